"""Captures: Python values that a traced function took from closures, globals, attributes and defaults.

A trace freezes such values into its graph. A snapshot of them is taken when the trace ends and compared before each reuse, so
that a changed value leads to a new trace and never to a stale result. Scalars and strings are compared by value, containers
element by element, all else by identity; but attributes that the function reads of an object, of a class or of the user's own
modules are compared, too, and the functions it calls are looked through. An array of NumPy or another library that the trace did
not take as a hidden input was read by Python code, so its elements are compared (inside containers and objects: of arrays up to 1
MiB).
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import operator
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import CellType, FunctionType, GetSetDescriptorType, MemberDescriptorType, MethodType, ModuleType
from typing import Any, NamedTuple

import numpy as np

from nnc.array.promote import as_operand
from nnc.base.source import is_internal
from nnc.device.dlpack import is_foreign
from nnc.errors import NncError, TreeError, user_error
from nnc.errors.errors import shorten
from nnc.trace.core.reads import Reads, reads_of

_PLAIN = (bool, int, float, complex, str, bytes, type(None), np.generic, slice, range)
_MUTABLE = (list, dict, set, deque)
_CONTAINERS = (*_MUTABLE, tuple, frozenset)
_ARRAY_BYTES = 1 << 20  # the elements of larger arrays inside containers are not compared
_UNREAD = frozenset({"__repr__", "__str__", "__format__", "__reduce__", "__setattr__", "__delattr__", "__annotate__"})
_LIBRARIES = frozenset(
    {"numpy", "ml_dtypes", "optree", "scipy", "torch", "jax", "jaxlib", "cupy", "tensorflow", "einops"}
)
_MISSING = object()
Pair = tuple[Any, str]
NDArray = np.ndarray[Any, Any]


# -- comparing ---------------------------------------------------------------------------------------------------------


class _Container(NamedTuple):
    """The fingerprint of a container: its elements, and the fingerprints of containers among them."""

    kind: Any
    keys: tuple[Any, ...] | None
    values: tuple[Any, ...]
    inner: tuple[tuple[int, Any], ...]

    def expected(self) -> list[Any]:
        """The elements, with fingerprints in place of containers."""
        inner = dict(self.inner)
        return [inner.get(i, value) for i, value in enumerate(self.values)]


class _Set(NamedTuple):
    """The fingerprint of a set: its type, and its elements with their types, since 1, 1.0 and True are equal."""

    kind: Any
    elements: frozenset[tuple[type, Any]]

    @staticmethod
    def of(value: Any) -> _Set:
        return _Set(type(value), frozenset((type(x), x) for x in value))


class _Elements(NamedTuple):
    """The form of an array of NumPy, or of another library, which can change in place; and its values, where these are compared."""

    array: Any
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: Any
    content: bytes | None

    def has_form(self, now: NDArray) -> bool:
        """Whether an array still has this form."""
        return now.shape == self.shape and now.strides == self.strides and now.dtype == self.dtype


def _fingerprint(value: Any, around: tuple[int, ...] = ()) -> Any:
    """Returns the part of a value that is kept to compare it later."""
    if isinstance(value, (set, frozenset)):
        return _Set.of(value)
    if not isinstance(value, _CONTAINERS) or id(value) in around:
        return value
    keys = tuple(value) if isinstance(value, dict) else None
    values = tuple(value.values()) if isinstance(value, dict) else tuple(value)
    around = (*around, id(value))
    inner = tuple((i, _fingerprint(x, around)) for i, x in enumerate(values) if isinstance(x, _CONTAINERS))
    return _Container(type(value), keys, values, inner)


def _same(now: Any, then: Any) -> bool:
    """Whether `now` still has the fingerprint `then`."""
    if now is then:
        return True
    if type(then) is _Container:
        return _same_container(now, then)
    if type(then) is _Set:
        return isinstance(now, (set, frozenset)) and _Set.of(now) == then
    if type(now) is not type(then):
        return False
    if isinstance(now, _PLAIN):
        return repr(now) == repr(then) if isinstance(now, (float, complex)) else _equal(now, then)
    if isinstance(now, MethodType):
        return now.__func__ is then.__func__ and now.__self__ is then.__self__
    return isinstance(now, frozenset) and _Set.of(now) == _Set.of(then)


def _equal(now: Any, then: Any) -> bool:
    return now.tobytes() == then.tobytes() if isinstance(now, np.generic) else bool(now == then)


def _same_container(now: Any, then: _Container) -> bool:
    kind: type = type(now)
    if kind is not then.kind or len(now) != len(then.values):
        return False
    values = now.values() if then.keys is not None else now
    if then.keys is not None and not all(map(_same, now, then.keys)):
        return False
    if not then.inner:
        return all(map(operator.is_, values, then.values)) or all(map(_same, values, then.values))
    return all(map(_same, values, then.expected()))


def _changes(name: str, now: Any, then: Any) -> Iterator[str]:
    """Describes the differences of `now` from the fingerprint `then`."""
    if _same(now, then):
        return
    if (
        isinstance(then, _Container)
        and isinstance(now, _CONTAINERS)
        and type(now) is then.kind
        and len(now) == len(then.values)
    ):
        before = then.expected()
        keys = list(range(len(before))) if then.keys is None else list(then.keys)
        if then.keys is None or list(now) == keys:
            values = list(now.values()) if isinstance(now, dict) else list(now)
            for key, a, b in zip(keys, values, before, strict=True):
                yield from _changes(f"{name}[{key!r}]", a, b)
            return
    old, new = _show(then), _show(now)
    yield (
        f"captured {name} changed from {old} to {new}"
        if old != new
        else f"captured {name} was replaced by another {new}"
    )


def _show(value: Any) -> str:
    if value is _MISSING:
        return "nothing"
    if isinstance(value, _Container):
        return f"a {value.kind.__name__} of {len(value.values)}"
    if isinstance(value, _CONTAINERS):
        return f"a {type(value).__name__} of {len(value)}"
    if isinstance(value, (FunctionType, MethodType)):
        return f"function {value.__qualname__}"
    spec = getattr(value, "spec", None)
    return str(spec) if spec is not None else shorten(value)


# -- snapshots ---------------------------------------------------------------------------------------------------------


class Captured(NamedTuple):
    """One value from outside: how to read it again, its name, and its fingerprint."""

    read: Callable[[], Any]
    name: str
    seen: Any


class Snapshot(NamedTuple):
    """All values that a function takes from outside, and the forms of NumPy arrays, with the elements of those that it read in
    Python.
    """

    values: tuple[Captured, ...]
    arrays: tuple[tuple[str, _Elements], ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether the function captures nothing."""
        return not self.values and not self.arrays

    def changes(self) -> list[str]:
        """Returns a line for each value that has changed."""
        lines = [line for value in self.values for line in _changes(value.name, value.read(), value.seen)]
        for name, x in self.arrays:
            if not _same_elements(x):
                now = _elements_of(x.array)
                what = "elements" if now is not None and x.has_form(now) else "form"
                lines.append(f"the {what} of captured {name} changed")
        return lines

    def unchanged(self) -> bool:
        """Whether every value is unchanged."""
        for value in self.values:
            now = value.read()
            if now is not value.seen and not _same(now, value.seen):
                return False
        for _, x in self.arrays:  # asked in each call, so the frequent case calls no function
            now = x.array
            if x.content is None and type(now) is np.ndarray:
                if now.shape != x.shape or now.strides != x.strides or now.dtype is not x.dtype:
                    return False
            elif not _same_elements(x):
                return False
        return True


def _same_elements(x: _Elements) -> bool:
    now = _elements_of(x.array)
    return now is not None and x.has_form(now) and (x.content is None or now.tobytes() == x.content)


def _elements_of(array: Any) -> NDArray | None:
    """Returns the elements of an array of NumPy or another library; None where the library does not hand them out."""
    if isinstance(array, np.ndarray):
        return array
    try:
        return np.asarray(as_operand(array))
    except NncError:
        return None


def take_snapshot(fun: Any, arguments: Iterable[Pair] = (), hidden: Iterable[np.ndarray[Any, Any]] = ()) -> Snapshot:
    """Returns the present values that `fun`, and the functions it refers to, take from outside.

    Args:
        arguments: the objects and functions that `fun` is called with, and their names; these are searched as well.
        hidden: the arrays that its trace took as inputs; their elements need no comparing.
    """
    inputs = {x.__array_interface__["data"][0] for x in hidden}
    starts = [(fun, ""), *arguments]
    reads = Reads()
    while True:  # the attributes read of an object may be known only after a function that is found later
        walk = _Walk(reads)
        walk.follow(starts)
        if walk.reads == reads:
            break
        reads = walk.reads
    elements = []
    for name, array in walk.arrays:
        if (x := _elements_of(array)) is not None:
            may_change = x.flags.writeable or x.base is not None
            is_input = x.__array_interface__["data"][0] in inputs
            is_compared = may_change and not is_input and (name.isidentifier() or x.nbytes <= _ARRAY_BYTES)
            elements.append((name, _Elements(array, x.shape, x.strides, x.dtype, x.tobytes() if is_compared else None)))
    return Snapshot(tuple(walk.found.values()), tuple(elements))


class _Walk:
    """A walk through everything that a function can reach, limited to the attributes that this code reads."""

    def __init__(self, reads: Reads) -> None:
        self.known, self.reads = reads, reads
        self.found: dict[tuple[int, str], Captured] = {}
        self.arrays: list[tuple[str, Any]] = []
        self._seen: dict[int, Any] = {}  # holds the values, so that their ids stay their own
        self._pending: list[Pair] = []

    def follow(self, starts: Iterable[Pair]) -> None:
        """Walks from some values, which are not watched themselves."""
        self._pending += starts
        while self._pending:
            self._look_into(*self._pending.pop())

    def _watch(self, owner: Any, read: Callable[[], Any], name: str) -> None:
        value = read()
        if value is _MISSING or isinstance(value, ModuleType) or (isinstance(value, type) and _is_library(value)):
            if isinstance(value, ModuleType):
                self._pending.append((value, name))
            return
        if (id(owner), name) not in self.found:
            try:
                self.found[id(owner), name] = Captured(read, name, _fingerprint(value))
            except RecursionError:
                problem = f"the captured {type(value).__name__} is nested too deeply to be compared between calls."
                fix = "put the values that the function reads into a flat list or dict."
                raise user_error(TreeError, name, problem, fix=fix) from None
        self._pending.append((value, name))

    def _look_into(self, value: Any, name: str) -> None:
        """Watches all parts of a value that can change."""
        if isinstance(value, _PLAIN) or id(value) in self._seen:
            return
        self._seen[id(value)] = value
        if isinstance(value, np.ndarray):
            if value.dtype != object:
                self.arrays.append((name, value))
        elif is_foreign(type(value)):
            self.arrays.append((name, value))
        elif isinstance(value, dict):
            self._pending += [(x, f"{name}[{key!r}]") for key, x in value.items() if not isinstance(x, _PLAIN)]
        elif isinstance(value, _CONTAINERS):
            self._pending += [(x, f"{name}[{i}]") for i, x in enumerate(value) if not isinstance(x, _PLAIN)]
        elif isinstance(value, functools.partial):
            self._pending += [(value.func, name), (value.args, name), (value.keywords, name)]
        elif isinstance(value, MethodType):
            self._pending += [(value.__func__, name), (value.__self__, "self")]
        elif isinstance(value, FunctionType):
            self._function(value)
        elif isinstance(value, ModuleType):
            if not _is_library(value):
                self._attributes(value, name, {**vars(value)})
        elif isinstance(value, type):
            self._class(value, value)
        elif not hasattr(type(value), "spec"):  # looked up in the class, since an object may answer to any name
            self._object(value, name)

    # -- functions -----------------------------------------------------------------------------------------------------

    def _function(self, fun: FunctionType) -> None:
        cells = dict(zip(fun.__code__.co_freevars, fun.__closure__ or (), strict=False))
        if _is_library(fun):  # searched for the user's functions that it holds
            self._pending += [
                (_cell_value(cell), name) for name, cell in cells.items() if _may_hold_code(_cell_value(cell))
            ]
            return
        reads = reads_of(fun.__code__)
        self.reads = self.reads | dataclasses.replace(reads, names=frozenset(), logs=frozenset(), modules=frozenset())
        for name in sorted(reads.names | reads.logs):
            if not name.isidentifier():  # added to the code by a tool (rewritten asserts), not written by the user
                continue
            if name in cells:
                owner: Any = cells[name]
                reader: Callable[[], Any] = functools.partial(_cell_value, owner)
            else:
                owner, reader = fun.__globals__, functools.partial(fun.__globals__.get, name, _MISSING)
            if name in reads.names or not isinstance(reader(), (*_MUTABLE, np.ndarray)):
                self._watch(owner, reader, name)
        for module in sorted(reads.modules & sys.modules.keys()):
            self._pending.append((sys.modules[module], module))
        for kind in ("__defaults__", "__kwdefaults__"):
            if getattr(fun, kind):
                self._watch(fun, functools.partial(getattr, fun, kind), f"{fun.__name__}.{kind}")
        self._attributes(fun, fun.__name__, vars(fun))

    # -- objects -------------------------------------------------------------------------------------------------------

    def _attributes(self, owner: Any, name: str, content: Mapping[str, Any]) -> None:
        """Watches the attributes that some function reads."""
        for attribute in self._names(content):
            if not attribute.startswith("__"):
                self._watch(owner, functools.partial(getattr, owner, attribute, _MISSING), f"{name}.{attribute}")

    def _names(self, content: Mapping[str, Any], everything: bool = False) -> list[str]:
        if everything:
            return sorted(content)
        logs = {x for x in self.known.attribute_logs & content.keys() if not isinstance(content[x], _MUTABLE)}
        return sorted((self.known.attributes & content.keys()) | logs)

    def _object(self, value: Any, name: str) -> None:
        inner = _wrapped(value)
        if inner is not None:
            self._pending.append((inner, name))
        cls = type(value)
        if cls.__module__.partition(".")[0] in ("nnc", "numpy", "builtins") and not dataclasses.is_dataclass(value):
            if cls.__module__ != "builtins" and inner is None:
                slots = {key: getattr(value, key, None) for base in cls.__mro__ for key in _slots(base)}
                content = {**slots, **getattr(value, "__dict__", {})}
                self._pending += [(x, f"{name}.{key}") for key, x in content.items() if _may_hold_code(x)]
            return
        self._class(cls, value)
        fields = {item.name for item in dataclasses.fields(value)} if dataclasses.is_dataclass(value) else set()
        frozen = bool(fields) and cls.__dataclass_params__.frozen
        content = _instance_attributes(value)
        for attribute in sorted({*self._names(content, self.known.everything), *(fields & content.keys())}):
            if frozen and attribute in fields and not isinstance(content[attribute], _MUTABLE):
                self._pending.append((content[attribute], f"{name}.{attribute}"))
            else:
                self._watch(value, functools.partial(getattr, value, attribute, _MISSING), f"{name}.{attribute}")

    def _class(self, cls: type, value: Any) -> None:
        """Watches data of the class that functions read of `value`, the class or an object of it; looks into its functions."""
        own = _instance_attributes(value) if value is not cls else {}
        for base in cls.__mro__:
            if _is_library(base):
                continue
            content = vars(base)
            for attribute in {*self._names(content), *(x for x in content if x.startswith("__") and x not in _UNREAD)}:
                static = content[attribute]
                code = _functions_of(static)
                if code:
                    self._pending += [(x, attribute) for x in code]
                elif not attribute.startswith("__") and not hasattr(type(static), "__get__") and attribute not in own:
                    reader = functools.partial(getattr, value, attribute, _MISSING)
                    self._watch(value, reader, f"{cls.__name__}.{attribute}")


def _wrapped(value: Any) -> Any:
    """Returns the function behind a wrapper; None for other objects, also where the look-up raises."""
    try:
        return getattr(value, "__wrapped__", None)
    except Exception:
        return None


def _functions_of(static: Any) -> list[Any]:
    """Returns the functions in an entry of a class."""
    if isinstance(static, FunctionType):
        return [static]
    if isinstance(static, (classmethod, staticmethod)):
        return [static.__func__]
    if isinstance(static, property):
        return [f for f in (static.fget,) if f is not None]
    if isinstance(static, functools.cached_property):
        return [static.func]
    inner = inspect.getattr_static(static, "__wrapped__", None)
    return [inner] if inner is not None else []


def _instance_attributes(value: Any) -> dict[str, Any]:
    """Returns the attributes that an object itself holds, in its dictionary and its slots."""
    content = dict(getattr(value, "__dict__", {}))
    for base in type(value).__mro__:
        for name in _slots(base):
            kind = vars(base).get(name)
            if isinstance(kind, (MemberDescriptorType, GetSetDescriptorType)) and hasattr(value, name):
                content[name] = getattr(value, name)
    return content


def _slots(cls: type) -> tuple[str, ...]:
    slots = vars(cls).get("__slots__", ())
    names = (slots,) if isinstance(slots, str) else tuple(slots)
    return tuple(name for name in names if name not in ("__dict__", "__weakref__"))


def _cell_value(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # the cell is not filled yet
        return _MISSING


def _may_hold_code(value: Any) -> bool:
    """Whether something that a library function holds may lead to a function of the user's."""
    return isinstance(value, (list, tuple, dict)) or (callable(value) and not isinstance(value, type))


def _is_library(value: Any) -> bool:
    """Whether a module, class or function belongs to Python, nnc or a library that nobody changes while programs run."""
    if isinstance(value, FunctionType) and is_internal(value.__code__.co_filename):
        return True
    name = getattr(value, "__name__" if isinstance(value, ModuleType) else "__module__", None) or ""
    root = name.partition(".")[0]
    if root == "nnc":
        return not isinstance(value, FunctionType)
    return root in _LIBRARIES or (root in sys.stdlib_module_names and root != "__main__")
