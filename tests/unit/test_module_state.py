"""Mutable objects and cached functions of modules stand in docs/state.md, each with the reason why no argument carries it."""

from __future__ import annotations

import ast
import importlib
import re
import weakref
from collections.abc import Iterator
from contextvars import ContextVar
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any

import nnc
from nnc.graph import Attribute, Command, TensorSpec

ROOT = Path(nnc.__file__).parent
CHANGES = {"add", "append", "clear", "discard", "extend", "insert", "pop", "popitem", "remove", "setdefault", "update"}
CONTAINERS = (dict, list, set, weakref.WeakValueDictionary, weakref.WeakKeyDictionary, weakref.WeakSet)


def is_state(value: Any, given: ast.expr, is_changed: bool) -> bool:
    """Whether an object of a module can change: a container that begins empty, a lock, an instance of a class that is not frozen.

    A container that is written out with its elements is a table, unless a function of the module changes it.
    """
    kind = type(value)
    if isinstance(value, Attribute):
        return kind is not Attribute  # columns are filled where they are registered
    if isinstance(value, CONTAINERS):
        is_empty = not isinstance(given, ast.DictComp) and not ast.unparse(given).strip("{}[]()")
        return is_empty or is_changed or isinstance(given, ast.Call)
    if isinstance(value, ContextVar) or kind.__module__ in ("_thread", "threading"):
        return True
    if not kind.__module__.startswith("nnc") or isinstance(value, (type, tuple, Enum, Command, TensorSpec)):
        return False
    parameters = getattr(kind, "__dataclass_params__", None)
    return parameters is None or not parameters.frozen


def is_cached(node: ast.stmt) -> bool:
    """Whether a function remembers its answers."""
    names = [ast.unparse(each) for each in node.decorator_list] if isinstance(node, ast.FunctionDef) else []
    return any(re.fullmatch(r"(functools\.)?(cache|lru_cache.*)", name) for name in names)


def changed_in_functions(tree: ast.Module) -> set[str]:
    """The names of containers that functions write to: by a subscript, or by a method that changes them."""
    found = set()
    for function in ast.walk(tree):
        for node in ast.walk(function) if isinstance(function, ast.FunctionDef) else ():
            match node:
                case ast.Subscript(value=ast.Name(id=name), ctx=ast.Store() | ast.Del()):
                    found.add(name)
                case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method)) if method in CHANGES:
                    found.add(name)
    return found


def state_of(module: ModuleType, tree: ast.Module) -> Iterator[str]:
    """The names of a module that hold state."""
    changed = changed_in_functions(tree)
    for node in tree.body:
        inner = node.body if isinstance(node, ast.ClassDef) else [node]
        yield from (each.name for each in inner if isinstance(each, ast.FunctionDef) and is_cached(each))
        if not isinstance(node, (ast.Assign, ast.AnnAssign)) or node.value is None:
            continue
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            if isinstance(target, ast.Name) and is_state(getattr(module, target.id), node.value, target.id in changed):
                yield target.id


def test_all_state_of_modules_is_listed_with_its_reason() -> None:
    found = set()
    for path in ROOT.rglob("*.py"):
        name = ".".join(path.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__")
        if path.stem != "__main__":
            tree = ast.parse(path.read_text(encoding="utf-8"))
            found |= {f"{name}.{each}" for each in state_of(importlib.import_module(name), tree)}
    rows = [line for line in (ROOT.parent / "docs" / "state.md").read_text().splitlines() if line.startswith("| `")]
    listed = {name for row in rows for name in re.findall(r"`([\w.]+)`", row.split(" | ")[0])}
    assert found == listed, {"not listed": sorted(found - listed), "gone": sorted(listed - found)}
