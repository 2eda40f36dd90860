"""What a traced function took from outside: Python values in closures, globals and attributes.

A trace freezes such values into its graph. A snapshot of them is taken when the trace ends and compared before each reuse, so
that a changed value leads to a new trace and never to a stale result. Scalars, strings and tuples of them are compared by
value, arrays and functions by identity, containers leaf by leaf. A container that the function only writes to
(`log.append(x)`) is no input and is not watched.
"""

from __future__ import annotations

import builtins
import dis
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from nnc import tree
from nnc.source import is_internal

_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_WRITES = {"append", "extend", "add", "insert", "update", "clear", "pop", "remove", "setdefault", "discard", "write"}
_MISSING = object()
_MAX_LEAVES = 10_000


@dataclass(frozen=True, slots=True)
class Captured:
    """One value from outside: how to read it again, what it is called, and what it was."""

    read: Callable[[], Any]
    name: str
    seen: Any

    def change(self) -> str | None:
        """What changed, in words; None where nothing did."""
        now = _fingerprint(self.read())
        if _same(now, self.seen):
            return None
        return f"captured {self.name} changed from {_show(self.seen)} to {_show(now)}"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All values that a function takes from outside."""

    values: tuple[Captured, ...]

    def changes(self) -> list[str]:
        """A line for each value that is not what it was."""
        return [change for value in self.values if (change := value.change()) is not None]

    def unchanged(self) -> bool:
        """Whether every value is what it was."""
        return all(_same(_fingerprint(value.read()), value.seen) for value in self.values)


@dataclass(frozen=True, slots=True)
class _Leaves:
    structure: Any
    values: tuple[Any, ...]


def _fingerprint(value: Any) -> Any:
    """What is kept of a value to compare it later: itself where it cannot change, its leaves where it is a container."""
    if isinstance(value, (list, dict, set)) or (isinstance(value, tuple) and value and not isinstance(value, _PLAIN)):
        if isinstance(value, set):
            return frozenset(value)
        leaves, structure = tree.flatten(value)
        return _Leaves(structure, tuple(leaves[:_MAX_LEAVES]))
    return value


def _same(now: Any, then: Any) -> bool:
    if now is then:
        return True
    if type(now) is not type(then):
        return False
    if isinstance(now, _Leaves):
        return (
            len(now.values) == len(then.values)
            and now.structure == then.structure
            and all(_same(a, b) for a, b in zip(now.values, then.values, strict=True))
        )
    if isinstance(now, (*_PLAIN, frozenset)):
        return bool(now == then) or (now != now and then != then)
    if isinstance(now, MethodType):
        return now.__func__ is then.__func__ and now.__self__ is then.__self__
    return False


def _show(value: Any) -> str:
    if isinstance(value, _Leaves):
        value = (
            tree.unflatten(value.structure, value.values) if len(value.values) < 20 else f"{len(value.values)} values"
        )
    if value is _MISSING:
        return "nothing"
    text = str(getattr(value, "spec", None) or repr(value))
    return text if len(text) <= 60 else text[:57] + "..."


def take_snapshot(fun: Any) -> Snapshot:
    """The values that `fun`, and the functions it refers to, take from outside, as they are now."""
    found: dict[tuple[int, str], Captured] = {}
    seen: set[int] = set()
    for read, owner, name in _walk(fun, seen):
        value = read()
        if value is not _MISSING:
            found.setdefault((owner, name), Captured(read, name, _fingerprint(value)))
    return Snapshot(tuple(found.values()))


_Found = Iterator[tuple[Callable[[], Any], int, str]]


def _walk(fun: Any, seen: set[int]) -> _Found:
    """Readers of everything that a callable takes from outside."""
    if id(fun) in seen:
        return
    seen.add(id(fun))
    if isinstance(fun, functools.partial):
        for part in (fun.func, *fun.args, *fun.keywords.values()):
            if callable(part):
                yield from _walk(part, seen)
    elif isinstance(fun, MethodType):
        yield from _object(fun.__self__, type(fun.__self__).__name__, seen)
        yield from _walk(fun.__func__, seen)
    elif isinstance(fun, FunctionType):
        yield from _function(fun, seen)
    elif hasattr(fun, "__wrapped__"):
        yield from _walk(fun.__wrapped__, seen)
    elif callable(fun) and not isinstance(fun, type) and hasattr(fun, "__dict__") and not hasattr(fun, "spec"):
        yield from _object(fun, type(fun).__name__, seen)
        call = getattr(type(fun), "__call__", None)
        if isinstance(call, FunctionType):
            yield from _walk(call, seen)


def _function(fun: FunctionType, seen: set[int]) -> _Found:
    own = is_internal(fun.__code__.co_filename)  # nnc's wrappers are looked through, for the user's functions they hold
    reads, attributes = _reads(fun.__code__)
    for name, cell in zip(fun.__code__.co_freevars, fun.__closure__ or (), strict=False):
        if own:
            content = _cell_value(cell)
            if isinstance(content, (FunctionType, MethodType, functools.partial)) or hasattr(content, "__wrapped__"):
                yield from _walk(content, seen)
        elif name in reads:
            yield from _value(functools.partial(_cell_value, cell), id(cell), name, attributes.get(name, ()), seen)
    if own:
        return
    for default in (*(fun.__defaults__ or ()), *(fun.__kwdefaults__ or {}).values()):
        if isinstance(default, FunctionType):
            yield from _walk(default, seen)
    for name in sorted(reads):
        if name in fun.__globals__ and name not in fun.__code__.co_freevars:
            reader = functools.partial(fun.__globals__.get, name, _MISSING)
            yield from _value(reader, id(fun.__globals__), name, attributes.get(name, ()), seen)


def _cell_value(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return _MISSING


def _value(read: Callable[[], Any], owner: int, name: str, attributes: tuple[str, ...], seen: set[int]) -> _Found:
    value = read()
    if isinstance(value, ModuleType):
        if not _is_library(value):
            for attribute in attributes:
                reader = functools.partial(getattr, value, attribute, _MISSING)
                yield from _value(reader, id(value), f"{name}.{attribute}", (), seen)
        return
    if isinstance(value, type):
        return
    yield read, owner, name
    if callable(value) and not hasattr(value, "spec"):
        yield from _walk(value, seen)
    elif not isinstance(value, (*_PLAIN, list, dict, tuple, set)) and not hasattr(value, "spec"):
        yield from _object(value, name, seen)


def _object(value: Any, name: str, seen: set[int]) -> _Found:
    """The plain values, arrays and containers among the attributes of an object."""
    if id(value) in seen and not callable(value):
        return
    seen.add(id(value))
    for attribute, content in list(getattr(value, "__dict__", {}).items()):
        if isinstance(content, (*_PLAIN, list, dict, tuple)) or hasattr(content, "spec"):
            yield functools.partial(getattr, value, attribute, _MISSING), id(value), f"{name}.{attribute}"


def _is_library(module: ModuleType) -> bool:
    root = module.__name__.partition(".")[0]
    return root in ("nnc", "numpy", "math", "builtins") or is_internal(getattr(module, "__file__", "") or "")


@functools.lru_cache(maxsize=4096)
def _reads(code: CodeType) -> tuple[frozenset[str], dict[str, tuple[str, ...]]]:
    """Outer names that a function reads (not only writes to), and which attributes of each; those of inner functions too."""
    names: set[str] = set()
    attributes: dict[str, tuple[str, ...]] = {}
    instructions = [
        i for i in dis.get_instructions(code) if i.opname not in ("CACHE", "PUSH_NULL", "PRECALL", "EXTENDED_ARG")
    ]
    for now, following in zip(instructions, [*instructions[1:], None], strict=True):
        if now.opname not in ("LOAD_GLOBAL", "LOAD_DEREF", "LOAD_NAME", "LOAD_CLASSDEREF", "LOAD_CLOSURE"):
            continue
        name = str(now.argval)
        if now.opname == "LOAD_CLOSURE" or (now.opname == "LOAD_GLOBAL" and hasattr(builtins, name)):
            continue
        if following is not None and following.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            attribute = str(following.argval)
            if attribute in _WRITES:
                continue
            attributes[name] = (*attributes.get(name, ()), attribute)
        names.add(name)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            inner, inner_attributes = _reads(constant)
            names |= inner
            for name, found in inner_attributes.items():
                attributes[name] = (*attributes.get(name, ()), *found)
    return frozenset(names), attributes
