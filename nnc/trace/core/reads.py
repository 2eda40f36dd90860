"""Finds the outer variables and attributes that a function reads, from its bytecode (CPython 3.11 and later).

A variable that is only written to is no input: counters (`n += 1`, `self.calls += 1`, `counts["f"] += 1`), logs (`log.append(x)`)
and caches that are filled but not read (`seen[key] = x`).

Bytecode is there also where the source is not (a prompt, a lambda among others of its line), and idioms of it are a few
instructions in a row, for which a regular expression is the shortest notation. Were `n += 1` a read, a function that counts its
traces would be traced anew in each call as soon as it is called with two shapes: 2.4 ms a call, rather than 0.03, with ten
products of 4x4 matrices. A getattr with a computed name would go unnoticed, and give results of a value that has changed since.
"""

from __future__ import annotations

import dis
import functools
import re
from dataclasses import replace
from types import CodeType

from nnc.base.records import record

_LOGGING = frozenset(
    {"append", "extend", "add", "insert", "update", "clear", "remove", "discard", "write", "appendleft"}
)
_DYNAMIC = frozenset({"getattr", "hasattr", "attrgetter", "methodcaller"})
_ALL = frozenset({"vars", "asdict", "astuple", "__dict__", "__getattribute__"})
_IGNORED = frozenset(
    {"CACHE", "PUSH_NULL", "PRECALL", "EXTENDED_ARG", "NOP", "RESUME", "COPY_FREE_VARS", "MAKE_CELL", "NOT_TAKEN"}
)

# A letter for each kind of instruction, so that idioms of several are regular expressions.
_LETTERS = {
    **dict.fromkeys(("LOAD_GLOBAL", "LOAD_DEREF", "LOAD_NAME", "LOAD_CLASSDEREF"), "V"),
    **dict.fromkeys(("LOAD_FROM_DICT_OR_DEREF", "LOAD_FROM_DICT_OR_GLOBALS"), "V"),
    **dict.fromkeys(("STORE_GLOBAL", "STORE_DEREF", "STORE_NAME"), "v"),
    **dict.fromkeys(("LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_BORROW"), "L"),
    **dict.fromkeys(("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR", "IMPORT_FROM"), "A"),
    **dict.fromkeys(("LOAD_CONST", "LOAD_SMALL_INT"), "K"),
    "BINARY_SUBSCR": "S", "BINARY_OP": "B", "STORE_ATTR": "a", "STORE_SUBSCR": "s", "COPY": "c", "SWAP": "w",
    "IMPORT_NAME": "I",
}  # fmt: skip
_COUNTER = re.compile(r"VKB(?=v)")
_ATTRIBUTE_COUNTER = re.compile(r"AKB(?:w|[LV])(?=a)")
_WRITTEN_ITEM = re.compile(r"[VA](?:K|LA*)(?:cc[SB]KBww)?s")
_TWO_LOADS = ("LOAD_FAST_LOAD_FAST", "LOAD_FAST_BORROW_LOAD_FAST_BORROW")


@record
class Reads:
    """The names that a function, with the functions defined in it, reads.

    `names` are outer variables and `attributes` the names of attributes, of any objects. `logs` and `attribute_logs` are
    only written to if they are containers. `modules` are imported by it; `everything` says that it may read any attribute.
    """

    names: frozenset[str] = frozenset()
    logs: frozenset[str] = frozenset()
    attributes: frozenset[str] = frozenset()
    attribute_logs: frozenset[str] = frozenset()
    modules: frozenset[str] = frozenset()
    everything: bool = False

    def __or__(self, other: Reads) -> Reads:
        names, attributes = self.names | other.names, self.attributes | other.attributes
        return Reads(
            names,
            (self.logs | other.logs) - names,
            attributes,
            (self.attribute_logs | other.attribute_logs) - attributes,
            self.modules | other.modules,
            self.everything or other.everything,
        )


@functools.lru_cache(maxsize=4096)
def reads_of(code: CodeType) -> Reads:
    """Finds the names that `code` reads.

    Example:
        >>> def f(x):
        ...     log.append(x)
        ...     return x * scale.value
        >>> reads = reads_of(f.__code__)
        >>> sorted(reads.names), sorted(reads.logs), sorted(reads.attributes)
        (['scale'], ['log'], ['append', 'value'])
    """
    instructions = _instructions(code)
    letters = "".join(letter for letter, _ in instructions)
    values = [str(value) for _, value in instructions]
    names: set[str] = set()
    logs: set[str] = set()
    attributes: set[str] = set()
    attribute_logs: set[str] = set()
    modules: set[str] = set()
    for i, (letter, name) in enumerate(zip(letters, values, strict=True)):
        if letter == "I":
            modules.add(name)
        if letter not in "VA" or _is_counter(letters, values, i):
            continue
        read, logged = (names, logs) if letter == "V" else (attributes, attribute_logs)
        is_log = _WRITTEN_ITEM.match(letters, i) or (letters[i + 1 : i + 2] == "A" and values[i + 1] in _LOGGING)
        (logged if is_log else read).add(name)
    if names & _DYNAMIC:
        attributes |= {text for text in code.co_consts if isinstance(text, str) and text.isidentifier()}
    everything = bool((names | attributes) & _ALL) or ("getattr" in names and _computes_names(letters, values))
    result = Reads(frozenset(names), everything=everything, modules=frozenset(modules)) | Reads(
        logs=frozenset(logs), attributes=frozenset(attributes), attribute_logs=frozenset(attribute_logs)
    )
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            result |= reads_of(constant)
    # Variables of this function that inner ones read are no captures, unless an inner one declares a global of that name.
    own = frozenset(code.co_cellvars) - _names_within(code)
    return replace(result, names=result.names - own, logs=result.logs - own)


def _names_within(code: CodeType) -> set[str]:
    """Returns the names of globals and attributes in the functions within a function."""
    inner = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return {name for each in inner for name in (*each.co_names, *_names_within(each))}


def _instructions(code: CodeType) -> list[tuple[str, object]]:
    found: list[tuple[str, object]] = []
    for i in dis.get_instructions(code):
        if i.opname in _TWO_LOADS and isinstance(i.argval, tuple):
            found += [("L", name) for name in i.argval]
        elif i.opname not in _IGNORED:
            found.append((_LETTERS.get(i.opname, "."), i.argval))
    return found


def _is_counter(letters: str, values: list[str], i: int) -> bool:
    """Whether the load at `i` only serves to write the same variable or attribute anew."""
    match = (_COUNTER if letters[i] == "V" else _ATTRIBUTE_COUNTER).match(letters, i)
    return match is not None and values[match.end()] == values[i]


def _computes_names(letters: str, values: list[str]) -> bool:
    """Whether a `getattr` takes a name that is no literal."""
    calls = [
        i for i, (letter, name) in enumerate(zip(letters, values, strict=True)) if letter == "V" and name == "getattr"
    ]
    return any(letters[i + 2 : i + 3] != "K" for i in calls)
