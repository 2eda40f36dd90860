"""The parts of a PTX text: variables, functions, and their instructions as opcode and operands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from nnc.testing.devices.ptx.faults import unknown
from nnc.testing.devices.ptx.values import TYPES, Type

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_LABEL = re.compile(r"^\s*([\w$%.]+):(?!:)")
_PREDICATE = re.compile(r"^@(!?)(%[\w$]+)\s+(.*)$", re.DOTALL)
_VARIABLE = re.compile(
    r"^(?:\.(?:visible|extern|weak|common)\s+)*\.(global|const|shared|local|param)\s+((?:\.\w+\s+(?:\d+\s+)?)*)"
    r"([\w$%.]+)\s*((?:\[\d*\])*)\s*(?:=\s*(.*))?$",
    re.DOTALL,
)
_FUNCTION = re.compile(
    r"^((?:\.(?:visible|extern|weak)\s+)*)\.(entry|func)\s*(?:\(([^)]*)\))?\s*([\w$%.]+)\s*(?:\(([^)]*)\))?(.*)$",
    re.DOTALL,
)
_REGISTERS = re.compile(r"^\.reg\s+\.(\w+)\s+(.*)$", re.DOTALL)
_OPERAND = re.compile(r"\{[^}]*\}|\[[^\]]*\]|\([^)]*\)|[^,\s]+")
CARRY = "%carry"  # stands for the flag of `add.cc` and the like, which has no name in PTX
_IGNORED = (".loc", ".file", ".pragma", ".section", ".version", ".target", ".address_size")


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction.

    Attributes:
        opcode: the name of the operation, with its modifiers.
        operands: as written: registers, numbers, `[address]`, `{vector}`, `(list)`.
        predicate: the register that decides whether a thread takes part, or None.
        negated: whether the threads take part for which the predicate is false.
    """

    opcode: str
    operands: tuple[str, ...]
    predicate: str | None
    negated: bool

    @property
    def name(self) -> str:
        """The opcode without modifiers."""
        return self.opcode.split(".")[0]

    @property
    def modifiers(self) -> list[str]:
        """The parts of the opcode behind its name."""
        return self.opcode.split(".")[1:]

    def __str__(self) -> str:
        guard = "" if self.predicate is None else f"@{'!' * self.negated}{self.predicate} "
        return f"{guard}{self.opcode} {', '.join(self.operands)}".rstrip()


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable with an address.

    Attributes:
        name: unique in the module, or in its function.
        space: `global`, `const`, `shared`, `local` or `param`.
        kind: the type of an element.
        nbytes: the variable's size.
        alignment: the alignment of its address.
        values: the numbers that it holds at first, or None.
        points: the alignment of the addresses that a pointer holds; else 1.
    """

    name: str
    space: str
    kind: Type
    nbytes: int
    alignment: int
    values: tuple[int, ...] | None
    points: int = 1


@dataclass(slots=True)
class Function:
    """A function or a kernel.

    Attributes:
        is_entry: whether it is a kernel.
        results: variables that it returns.
        parameters: variables that it takes.
        directives: performance directives, such as `maxntid`, with their numbers.
        registers: types by name; a name that ends in `<` stands for numbered ones.
        variables: its variables in shared, local and parameter memory.
        labels: for each label, the number of the instruction behind it.
        tables: the labels of branch tables.
    """

    name: str
    is_entry: bool
    results: list[Variable] = field(default_factory=list)
    parameters: list[Variable] = field(default_factory=list)
    directives: dict[str, tuple[int, ...]] = field(default_factory=dict)
    registers: dict[str, Type] = field(default_factory=lambda: {CARRY: TYPES["pred"]})
    variables: dict[str, Variable] = field(default_factory=dict)
    labels: dict[str, int] = field(default_factory=dict)
    tables: dict[str, list[str]] = field(default_factory=dict)
    code: list[Instruction] = field(default_factory=list)

    def register_type(self, name: str) -> Type | None:
        """Returns the type of a register, whose name has its percent sign; None where it is not declared."""
        return self.registers.get(name) or self.registers.get(name.rstrip("0123456789") + "<")


def parse(text: str) -> tuple[list[Variable], list[Function]]:
    """Parses a module of PTX; returns its variables and functions.

    Raises:
        DeviceError: a statement is not known.
    """
    variables, functions = [], []
    for head, body in _top_level(_COMMENT.sub(" ", text)):
        if body is None:
            if head and head.split()[0] not in _IGNORED and not _FUNCTION.match(head):
                variables.append(_parse_variable("PTX", head))
        else:
            functions.append(_parse_function(head, body))
    return variables, functions


def _top_level(text: str) -> Iterator[tuple[str, str | None]]:
    """Yields declarations, and functions as head and body."""
    lines = (
        line
        for line in text.splitlines()
        if not line.strip().startswith((".version", ".target", ".address_size", ".file"))
    )
    rest = "\n".join(lines)
    at = 0
    while at < len(rest):
        semicolon, brace = rest.find(";", at), rest.find("{", at)
        if brace >= 0 and ("=" not in rest[at:brace]) and (semicolon < 0 or brace < semicolon):
            end = _closing(rest, brace)
            yield rest[at:brace].strip(), rest[brace + 1 : end]
            at = end + 1
        elif semicolon >= 0:
            yield rest[at:semicolon].strip(), None
            at = semicolon + 1
        else:
            if rest[at:].strip():
                unknown("PTX", rest[at:].strip()[:60], "the text ends within a statement")
            return


def _closing(text: str, at: int) -> int:
    depth = 0
    for match in re.finditer(r"[{}]", text[at:]):
        depth += 1 if match[0] == "{" else -1
        if depth == 0:
            return at + match.start()
    return unknown("PTX", text[at : at + 60].strip(), "a brace is not closed")


def _parse_variable(where: str, text: str) -> Variable:
    match = _VARIABLE.match(text.strip())
    if match is None:
        unknown(where, " ".join(text.split())[:60], "it declares no variable")
    space, attributes, name, extents, values = match.groups()
    words = re.findall(r"\.(\w+)", attributes)
    kind = next((TYPES[word] for word in words if word in TYPES), None)
    if kind is None:
        unknown(where, " ".join(text.split())[:60], "it has no type")
    vector = next((int(word[1:]) for word in words if re.fullmatch(r"v\d", word)), 1)
    count = vector
    for extent in re.findall(r"\[(\d*)\]", extents):
        count *= int(extent or 0)
    alignment = re.search(r"\.align\s+(\d+)(?!.*\.align)", attributes)
    numbers = None if values is None else tuple(_number(where, word) for word in re.findall(r"[^\s,{}]+", values))
    stated = int(alignment[1]) if alignment else kind.nbytes * vector
    if "ptr" in words:
        return Variable(name, space, kind, count * kind.nbytes, kind.nbytes, numbers, points=stated)
    return Variable(name, space, kind, count * kind.nbytes, stated, numbers)


def _number(where: str, word: str) -> int:
    if re.fullmatch(r"0[fFdD][0-9a-fA-F]+", word):
        return int(word[2:], 16)
    try:
        return int(word.rstrip("U"), 0)
    except ValueError:
        return unknown(where, word, "an initial value that is no number")


def _parse_function(head: str, body: str) -> Function:
    match = _FUNCTION.match(head)
    if match is None:
        unknown("PTX", " ".join(head.split())[:60], "it is no function")
    _, kind, results, name, parameters, directives = match.groups()
    function = Function(name, kind == "entry")
    function.results = [_parse_variable(name, each) for each in (results or "").split(",") if each.strip()]
    function.parameters = [_parse_variable(name, each) for each in (parameters or "").split(",") if each.strip()]
    for word, numbers in re.findall(r"\.(\w+)((?:\s*\d+\s*,?)*)", directives):
        function.directives[word] = tuple(int(number) for number in re.findall(r"\d+", numbers))
    for statement in body.split(";"):
        _parse_statement(function, statement)
    return function


def _parse_statement(function: Function, text: str) -> None:
    text = text.strip().lstrip("{} \t\n")
    while match := _LABEL.match(text):
        text = text[match.end() :].strip().lstrip("{} \t\n")
        if text.startswith(".branchtargets"):
            function.tables[match[1]] = re.findall(r"[\w$]+", text.removeprefix(".branchtargets"))
            return
        function.labels[match[1]] = len(function.code)
    if not text or text.split()[0] in _IGNORED:
        return
    if registers := _REGISTERS.match(text):
        _parse_registers(function, registers[1], registers[2])
    elif text.startswith("."):
        variable = _parse_variable(function.name, text)
        old = function.variables.get(variable.name)
        if old is None or old.nbytes < variable.nbytes:  # blocks of calls declare the same names
            function.variables[variable.name] = variable
    else:
        function.code.append(_parse_instruction(text))


def _parse_registers(function: Function, kind: str, names: str) -> None:
    if kind not in TYPES:
        unknown(function.name, f".reg .{kind}", f"there is no type {kind}")
    for name in (each.strip() for each in names.split(",")):
        function.registers[re.sub(r"<\d+>$", "<", name)] = TYPES[kind]


def _parse_instruction(text: str) -> Instruction:
    predicate, negated = None, False
    if match := _PREDICATE.match(text):
        negated, predicate, text = match[1] == "!", match[2], match[3]
    opcode, _, rest = " ".join(text.split()).partition(" ")
    return Instruction(opcode, tuple(_OPERAND.findall(rest)), predicate, negated)
