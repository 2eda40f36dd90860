"""Draws a sample of small changes (mutants) to nnc's source, each of which changes the results or the working of a program."""

from __future__ import annotations

import ast
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeGuard

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

AREAS = {
    "trace": ("nnc/trace", "nnc/compiled/signature.py", "nnc/compiled/compiled.py", "nnc/compiled/executable.py"),
    "passes": ("nnc/lower/passes",),
    "lower": ("nnc/lower",),
    "kernels": ("nnc/lower/kernels",),
    "dynamic": ("nnc/trace/dynamic", "nnc/compiled/dynamic"),
    "commands": ("nnc/commands",),
    "graph": ("nnc/graph",),
    "backends": ("nnc/backends",),
    "nn": ("nnc/nn",),
    "optim": ("nnc/optim",),
}  # beginnings of paths; a file belongs to the area with the longest one

# Changes of decorators and of exceptions' classes change no result most of the time (caches, frozen classes).
LEFT_OUT = ("RemoveDecorator", "ExceptionReplacer", "VariableReplacer", "VariableInserter")

# An operator becomes one that a slip of the pen might have put there: others raise at once, which any test notices.
KINDS = (
    {"Add", "Sub", "Mul", "Div", "FloorDiv", "Mod"},
    {"BitOr", "BitAnd", "BitXor"},
    {"LShift", "RShift"},
    {"Eq", "NotEq", "Lt", "LtE", "Gt", "GtE"},
    {"Is", "IsNot"},
)


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change to one file.

    Attributes:
        path: the file, relative to the repository's root.
        line: the line that changes, from 1.
        operator: cosmic-ray's name of the change.
        occurrence: which of the places where the operator applies in the file.
        function: qualified name of the function around the line; "" at module level.
        before: text of the line.
        after: text of the changed line.
        source: text of the changed file.
    """

    path: str
    line: int
    operator: str
    occurrence: int
    function: str
    before: str
    after: str
    source: str

    def describe(self) -> str:
        """Returns the place and both texts of the line, for people."""
        return f"{self.path}:{self.line} in {self.function or 'module'}\n  - {self.before}\n  + {self.after}"


def area_of(path: str) -> str | None:
    """Returns the area that a file belongs to, None if it is in none."""
    matches = [(len(start), area) for area, starts in AREAS.items() for start in starts if path.startswith(start)]
    return max(matches)[1] if matches else None


def sample_mutants(root: Path, areas: Sequence[str], count: int, seed: int) -> list[Mutant]:
    """Draws mutants: as many of each area, each place of an area as likely as any other.

    Args:
        root: the repository's root.
        areas: names in `AREAS`.
        count: number of mutants.
        seed: equal seeds and sources give equal samples.

    Returns:
        `count` different mutants, fewer if the areas have fewer places.
    """
    draw = random.Random(seed)
    files = defaultdict(list)
    for file in sorted(root.glob("nnc/**/*.py")):
        path = file.relative_to(root).as_posix()
        files[area_of(path)].append(path)
    drawn: dict[tuple[str, int, int], Mutant] = {}
    for turn in range(20 * count):
        if len(drawn) == count:
            break
        paths = files[areas[turn % len(areas)]]
        path = draw.choices(paths, [(root / path).stat().st_size for path in paths])[0]
        places = list_places(root, path)
        if not places:
            continue
        position = draw.choice(sorted(places))
        operator, occurrence = draw.choice(places[position])
        if (path, *position) not in drawn and (mutant := make_mutant(root, path, position[0], operator, occurrence)):
            drawn[path, *position] = mutant
    return list(drawn.values())


def is_plausible(operator: str) -> bool:
    """Returns whether a change of cosmic-ray's is one that a person could make."""
    _, replaced, rest = operator.partition("Operator_")
    pair = set(rest.split("_"))
    replaces_one = bool(replaced) and len(pair) == 2 and "Delete" not in rest
    return not any(word in operator for word in LEFT_OUT) and (not replaces_one or any(pair <= kind for kind in KINDS))


@cache
def list_places(root: Path, path: str) -> dict[tuple[int, int], list[tuple[str, int]]]:
    """Finds the places (line, column) of a file that can be changed, each with operators and their occurrences."""
    tree = get_ast((root / path).read_text())
    nodes = list(ast_nodes(tree))
    places = defaultdict(list)
    for name in filter(is_plausible, operator_names()):
        operator = get_operator(name)()
        positions = (position for node in nodes for position in operator.mutation_positions(node))
        for occurrence, (start, _) in enumerate(positions):
            places[start].append((name, occurrence))
    return dict(places)


def make_mutant(root: Path, path: str, line: int, operator: str, occurrence: int) -> Mutant | None:
    """Makes a mutant; None if no result could tell it from the original: annotations, docstrings, words of messages."""
    text = (root / path).read_text()
    source = mutate_code(text, get_operator(operator)(), occurrence)
    if source is None:
        return None
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return None
    original = ast.parse(text)
    if ast.dump(strip(tree)) == ast.dump(strip(ast.parse(text))):
        return None
    before, after = text.splitlines(), source.splitlines()
    changed = next((row for row, (old, new) in enumerate(zip(before, after, strict=False)) if old != new), line - 1)
    return Mutant(
        path, line, operator, occurrence, function_at(original, line), before[changed].strip(), after[changed].strip(), source
    )  # fmt: skip


def strip(tree: ast.Module) -> ast.Module:
    """Removes syntax without effect when nnc runs: annotations, overloads, docstrings, `zip`'s `strict` and `slots` of classes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign):
            node.annotation = ast.Constant(None)
        elif isinstance(node, ast.arg):
            node.annotation = None
        elif isinstance(node, ast.FunctionDef):
            node.returns = None
            if any(ast.unparse(mark).endswith("overload") for mark in node.decorator_list):
                node.args = ast.parse("lambda: 0", mode="eval").body.args
        elif is_docstring(node) or (isinstance(node, ast.keyword) and node.arg in {"strict", "slots"}):
            node.value = ast.Constant(None)
        elif isinstance(node, ast.Subscript) and ast.unparse(node.slice) == "-1":
            node.slice = ast.Constant(0)  # most first elements are the only ones
    return tree


def is_docstring(node: ast.AST) -> TypeGuard[ast.Expr]:
    """Returns whether a statement is a constant."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def function_at(tree: ast.Module, line: int) -> str:
    """Returns the qualified name of the innermost function around a line, "" if there is none."""
    return max(
        (
            (node.lineno, name)
            for node, name in named_functions(tree)
            if first_line(node) <= line <= (node.end_lineno or 0)
        ),
        default=(0, ""),
    )[1]


def first_line(node: ast.FunctionDef) -> int:
    """Returns the line of the first decorator, which is where Python says that a function's code begins."""
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])


def named_functions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[ast.FunctionDef, str]]:
    """Yields the functions of a module, nested ones included, with their qualified names."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef):
            yield node, prefix + node.name
            yield from named_functions(node, f"{prefix}{node.name}.<locals>.")
        elif isinstance(node, ast.ClassDef):
            yield from named_functions(node, f"{prefix}{node.name}.")
        else:
            yield from named_functions(node, prefix)
