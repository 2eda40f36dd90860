"""Finds where code asks for the names of commands: comparisons with one, and tables of several."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import nnc
from nnc.graph import COMMANDS, Attribute, Command

ROOT = Path(nnc.__file__).parents[1]


@dataclass(frozen=True)
class Use:
    """A comparison with commands, or a table of them, in a file of the package."""

    file: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.text}"


def uses_in(folder: str) -> list[Use]:
    """All of a folder of the package, in the order of files and lines."""
    found = [use for path in sorted((ROOT / folder).rglob("*.py")) for use in _uses_in_file(path)]
    return sorted(set(found), key=lambda use: (use.file, use.line))


def _uses_in_file(path: Path) -> Iterator[Use]:
    file = path.relative_to(ROOT).as_posix()
    module = importlib.import_module(file.removesuffix(".py").removesuffix("/__init__").replace("/", "."))
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if names_commands(node, module):
            yield Use(file, getattr(node, "lineno", 0), ast.unparse(node))


def names_commands(node: ast.AST, module: ModuleType) -> bool:
    """Whether a node compares something with commands, looks the name of one up, or is a table of names."""
    if isinstance(node, ast.Compare):
        return any(_is_command(side, module) for side in (node.left, *node.comparators))
    if isinstance(node, ast.Subscript):
        return ast.unparse(node.slice).endswith("command.name")
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        looked_up = node.args if node.func.attr == "get" else ()
        return any(ast.unparse(each).endswith("command.name") for each in (node.func.value, *looked_up))
    return _is_table(node)


def _is_command(side: ast.expr, module: ModuleType) -> bool:
    """Whether one side of a comparison is a command, the name of one, or a table of either; columns are none."""
    if isinstance(side, ast.Constant):
        return side.value in COMMANDS
    if isinstance(side, (ast.Name, ast.Attribute)):
        return _holds_commands(_value_of(side, module))
    return _is_table(side)


def _value_of(node: ast.Name | ast.Attribute, module: ModuleType) -> Any:
    """Resolves a name of the module, which may be one in another module; None for others."""
    if isinstance(node, ast.Name):
        return vars(module).get(node.id)
    owner = _value_of(node.value, module) if isinstance(node.value, (ast.Name, ast.Attribute)) else None
    return getattr(owner, node.attr, None) if isinstance(owner, (ModuleType, Command)) else None


def _holds_commands(value: Any) -> bool:
    if isinstance(value, (Command, str)):
        return isinstance(value, Command) or value in COMMANDS
    if isinstance(value, Attribute) or not isinstance(value, (tuple, list, set, frozenset, Mapping)):
        return False
    return bool(value) and all(
        isinstance(each, Command) or (isinstance(each, str) and each in COMMANDS) for each in value
    )


def _is_table(node: ast.AST) -> bool:
    """Whether a display holds two names or more, which are most of its items."""
    entries = node.keys if isinstance(node, ast.Dict) else getattr(node, "elts", ())
    held = [
        entry.value in COMMANDS for entry in entries if isinstance(entry, ast.Constant) and isinstance(entry.value, str)
    ]
    return sum(held) >= 2 and 2 * sum(held) > len(held)
