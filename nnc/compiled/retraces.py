"""Explains why a compiled function is traced again, and warns where that happens time and again.

A trace takes as long as thousands of calls, so a function that is traced in each call is slower than one that is not compiled. Two
things are noticed: one compiled function with many traces, and many functions that `nnc.compile` makes of the same code, each of
which is called once (`nnc.compile` within a loop).
"""

from __future__ import annotations

import functools
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from operator import ne
from types import CodeType, FunctionType, MethodType
from typing import Any, NamedTuple

from nnc.base.context import get_context
from nnc.base.source import SourceLine, is_internal, user_source
from nnc.compiled.signature import Identity, Key, is_spec, shown_spec
from nnc.errors import RetraceWarning
from nnc.errors.errors import shorten
from nnc.tree import changes_of_containers
from nnc.tree.mismatches import Change as ChangeOfContainer

Fun = Callable[..., Any]
# traces; the buckets of a well-padded program are fewer, and a loop that retraces gets here within seconds
FIRST_WARNING = 8
_ORIGINS = 1024  # remembered pairs of code and calling line, the latest ones


class Change(NamedTuple):
    """One difference between two calls, in words, and how to do without it."""

    text: str
    fix: str


_PAD = "pad it to one of a few sizes, with a mask for the padding"
_DTYPE = "convert it to one dtype before the call, for example with .astype(...)"
_WEAK = "always pass an array, for example nnp.asarray(x), or always a Python number"
_STRUCTURE = "give it the same containers, keys and lengths in each call"
_SETTING = "pass it as an array or a number if it stands for one, since each other setting is traced anew"
_STATIC = "pass it as an array or a number: leave it out of static_argnums and static_argnames"
_FIELD = (
    "make the field an array if it changes, for example nnp.asarray({}): a number in a field that decides a shape or a branch, "
    "or that is declared static, is a setting, and each setting is traced anew"
)
_NO_NUMBER = "keep it the same in each call: it is a setting, and each setting is traced anew"
_OBJECT = (
    "make it once, outside of the loop: functions and objects without __eq__ and __hash__ are compared by identity"
)
_CAPTURED = "pass it as an argument, as an array if it is a number, instead of changing it between calls"

_DEVICE = "keep the arguments on one device: nnc.device_put"


# -- differences -------------------------------------------------------------------------------------------------------


def difference(fun: Fun, old: Key, new: Key) -> str:
    """Describes how two calls of `fun` differ."""
    return describe(differences(fun, old, new))


def describe(changes: Sequence[Change]) -> str:
    """Returns the texts of changes in one line."""
    return "; ".join(change.text for change in changes)


def differences(fun: Fun, old: Key, new: Key) -> list[Change]:
    """Lists how two calls of `fun` differ, argument by argument."""
    changes = _static_changes(dict(old.static), dict(new.static))
    after = new.paths(fun)
    if old.treedef != new.treedef:
        before = old.paths(fun)
        changes += [Change(f"argument {path} is no longer given", _STRUCTURE) for path in before if path not in after]
        changes += [Change(f"argument {path} is new", _STRUCTURE) for path in after if path not in before]
        return changes or [
            _change_of(x, new.path(x.path, fun)) for x in changes_of_containers(old.treedef, new.treedef)
        ]
    for path, x, y in zip(after, old.leaves, new.leaves, strict=True):
        if x != y:
            text = f"argument {path} changed from {shown(x)} to {shown(y)}"
            changes.append(Change(text, _fix_of_leaf(x, y)))
    if old.device != new.device:
        changes.append(Change(f"the arguments are on {new.device}, and were on {old.device}", _DEVICE))
    return changes or [Change("other static arguments were given", _STATIC)]


def captured_changes(texts: Sequence[str]) -> list[Change]:
    """Returns the changes of values that a function takes from outside, which a snapshot words."""
    return [Change(text, _OBJECT if "was replaced by another" in text else _CAPTURED) for text in texts]


def nearest(fun: Fun, keys: Collection[Key], new: Key) -> list[Change]:
    """Lists how a call differs from the one of `keys` that is most like it, the latest of several."""
    alike = [key for key in reversed(list(keys)) if key.treedef == new.treedef]
    if alike:
        counts = [sum(map(ne, key.leaves, new.leaves)) + (key.static != new.static) for key in alike]
        return differences(fun, alike[counts.index(min(counts))], new)
    found = [differences(fun, key, new) for key in reversed(list(keys))]
    return min(found, key=len)


def _static_changes(old: dict[str, Any], new: dict[str, Any]) -> list[Change]:
    changes = []
    for name in dict.fromkeys([*old, *new]):
        if name not in new or name not in old:
            text = f"static argument {name} is {'new' if name in new else 'no longer given'}"
            changes.append(Change(text, _STRUCTURE))
        elif old[name] != new[name]:
            text = f"static argument {name} changed from {shown(old[name])} to {shown(new[name])}"
            changes.append(Change(text, _OBJECT if _is_object(new[name]) else _STATIC))
    return changes


def _change_of(change: ChangeOfContainer, path: str) -> Change:
    """Returns the change of a setting in a field, or of a container's class."""
    old, new = change.old, change.new
    if not change.is_setting:
        return Change(f"argument {path} is a {new.__name__}, and was a {old.__name__}", _STRUCTURE)
    text = f"argument {path} changed from {shorten(old)} to {shorten(new)}"
    if isinstance(new, (bool, int, float, complex)):
        return Change(text, _FIELD.format(new))
    return Change(text, _NO_NUMBER if isinstance(new, (str, bytes, tuple, frozenset, type(None))) else _OBJECT)


def _fix_of_leaf(old: Any, new: Any) -> str:
    if not (is_spec(old) and is_spec(new)):
        return _OBJECT if _is_object(new) else _SETTING
    if old[0].shape != new[0].shape:
        return _PAD
    return _WEAK if old[1] != new[1] else _DTYPE


def _is_object(key: Any) -> bool:
    """Whether a setting is equal to nothing but itself."""
    if isinstance(key, Identity):
        return True
    return not is_spec(key) and key[0] is not tuple and key[0].__eq__ is object.__eq__


def shown(key: Any) -> str:
    """Returns an entry of a key in words: the spec of an array, the value of a setting."""
    if isinstance(key, Identity):
        return repr(key.value)
    if is_spec(key):
        return f"{shown_spec(*key)} (a Python number)" if key[1] else str(key[0])
    kind, value = key
    if kind is tuple:
        return f"({', '.join(map(shown, value))}{',' if len(value) == 1 else ''})"
    return str(value) if issubclass(kind, (float, complex)) else repr(value)


# -- warnings ----------------------------------------------------------------------------------------------------------


def is_due(count: int) -> bool:
    """Whether a number of traces is 8, 16, 32 and so on.

    Example:
        >>> [n for n in range(1, 40) if is_due(n)]
        [8, 16, 32]
    """
    return count >= FIRST_WARNING and count & (count - 1) == 0


def warn_of_traces(name: str, traces: int, calls: int, changes: Sequence[Change]) -> None:
    """Warns that a compiled function was traced again, at the user's line."""
    _warn(
        name,
        f"it was traced {traces} times in {calls} calls. The last time, {describe(changes)}.",
        "; ".join(dict.fromkeys(change.fix for change in changes))
        + ". Where so many traces are wanted, say how many with nnc.compile(..., max_traces=n)",
    )


@dataclass(slots=True)
class _Origins:
    """Counts of compiled functions of the same code that were first called at the same line, and never again."""

    counts: OrderedDict[Any, int] = field(default_factory=OrderedDict)
    lock: threading.Lock = field(default_factory=threading.Lock)


_ORIGINS_SEEN = _Origins()


def note_first_trace(name: str, fun: Fun) -> Any:
    """Counts the first trace of a compiled function; warns where many functions made of the same code were traced at the same
    line. Functions of nnc alone, such as those of imported models, are none that a user could make once.

    Returns:
        the argument for `note_reuse` once the function is called again.
    """
    codes = tuple(_codes(fun))
    origin = codes, user_source()
    if all(isinstance(code, tuple) and is_internal(code[0].co_filename) for code in codes):
        return origin
    with _ORIGINS_SEEN.lock:
        counts = _ORIGINS_SEEN.counts
        count = counts[origin] = counts.get(origin, 0) + 1
        counts.move_to_end(origin)
        if len(counts) > _ORIGINS:
            counts.popitem(last=False)
    if is_due(count):
        _warn(
            name,
            f"nnc.compile made {count} functions of it here, and each was traced and called only once.",
            f"call nnc.compile({name}) once, outside of the loop or function that calls it, and call its result there",
        )
    return origin


def note_reuse(origin: Any) -> None:
    """Forgets the count of an origin: a function that came from there was called again."""
    with _ORIGINS_SEEN.lock:
        _ORIGINS_SEEN.counts.pop(origin, None)


def _codes(fun: Any, depth: int = 4) -> Iterator[tuple[CodeType, str] | type]:
    """The code and name of a function and of the functions that it is made of, by wrapping and in closures."""
    if isinstance(fun, MethodType):
        fun = fun.__func__
    if isinstance(fun, functools.partial):
        fun = fun.func
    if not isinstance(fun, FunctionType):
        yield type(fun)
        return
    yield fun.__code__, fun.__qualname__
    for cell in fun.__closure__ or ():
        try:
            value = cell.cell_contents
        except ValueError:  # not filled yet
            continue
        if depth and isinstance(value, (FunctionType, MethodType, functools.partial)):
            yield from _codes(value, depth - 1)


def _warn(name: str, problem: str, fix: str) -> None:
    source = get_context().source or user_source() or SourceLine("<unknown>", 0, "<unknown>")
    silence = "warnings.simplefilter('ignore', nnc.errors.RetraceWarning)"
    text = f"{name}: {problem}\n  at {source.describe()}\nFix: {fix}; {silence} silences this."
    warnings.warn_explicit(text, RetraceWarning, source.file, source.line)
