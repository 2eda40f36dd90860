"""Rooms are joined by imports that tools see: strings name modules in two files, and a package imports its own modules later."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import nnc

ROOT = Path(nnc.__file__).parent
JOINING = {"__init__.py", "compiled/device_kinds.py"}
OWN = ("__name__", "__package__")
FILES = [path for path in sorted(ROOT.rglob("*.py")) if str(path.relative_to(ROOT)) not in JOINING]


def calls(tree: ast.Module, *names: str) -> Iterator[ast.Call]:
    """Yields calls of functions of these names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in names:
            yield node


def is_own(module: ast.expr) -> bool:
    """Whether the name of a module begins with the package of the file that names it."""
    first = module.values[0] if isinstance(module, ast.JoinedStr) else None
    return isinstance(first, ast.FormattedValue) and ast.unparse(first.value) in OWN


def is_of_python(module: ast.expr) -> bool:
    """Whether a module of Python's own library is named."""
    return isinstance(module, ast.Constant) and str(module.value).partition(".")[0] in sys.stdlib_module_names


def is_named(module: ast.expr) -> bool:
    """Whether a module of nnc is named by a string."""
    return any(isinstance(part, ast.Constant) and str(part.value).split(".")[0] == "nnc" for part in ast.walk(module))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_string_names_a_module_of_another_room(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    named = [ast.unparse(call) for call in calls(tree, "import_module", "__import__", "find_spec") if is_named(call)]
    assert named == []
    later = [call for call in calls(tree, "later") if path.name != "later.py"]
    assert [ast.unparse(call) for call in later if not is_own(call.args[0]) and not is_of_python(call.args[0])] == []


def test_modules_that_are_named_by_strings_are_there() -> None:
    for path in JOINING:
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
        named = [
            node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)
        ]
        modules = [x for x in named if x.startswith("nnc.") and x.replace(".", "").replace("_", "").isalnum()]
        assert len(modules) > 5
        for module in modules:
            place = ROOT.parent / Path(*module.split("."))
            assert place.with_suffix(".py").exists() or (place / "__init__.py").exists(), module
