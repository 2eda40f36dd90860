"""Registration of classes as pytrees: which fields of a dataclass are children, and which are settings of its structure."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import operator
from collections.abc import Callable, Iterable, Sequence
from itertools import compress, count
from operator import attrgetter
from typing import Any

import numpy as np
import optree

from nnc.base import dtypes
from nnc.device.dlpack import is_foreign

NAMESPACE = "nnc"
CHILDREN = "_tree_children"  # the attribute that holds which fields of a dataclass are children
CONTAINERS = frozenset({list, tuple, dict, type(None)})  # whose objects are never settings
_NUMERIC = (np.ndarray, np.generic, bool, int, float, complex)
_ABSENT = object()
_NO_TYPE = type(_ABSENT)  # of objects whose type decides nothing


def is_array(leaf: Any) -> bool:
    """Whether a leaf is numeric: an array or tracer of nnc, an array of NumPy or another library, or a number.

    Args:
        leaf: any object.

    Example:
        >>> nnc.tree.is_array(nnp.ones(2)), nnc.tree.is_array("name")
        (True, False)
    """
    return is_array_type(type(leaf))


def _is_array_type(kind: type) -> bool:
    """Whether the objects of a class are numeric.

    Args:
        kind: a class.
    """
    return hasattr(kind, "spec") or issubclass(kind, _NUMERIC) or is_foreign(kind)


# classes: more than programs have
is_array_type: Callable[[type], bool] = functools.lru_cache(maxsize=4096)(_is_array_type)


def register(
    cls: type, flatten: Callable[[Any], tuple[Iterable[Any], Any]], unflatten: Callable[[Any, Any], Any]
) -> None:
    """Makes a class a pytree: `flatten(x) -> (children, metadata)`, `unflatten(metadata, children) -> x`.

    The metadata is part of the structure, so it must be hashable and comparable.

    Args:
        cls: the class.
        flatten: x -> (children, metadata).
        unflatten: (metadata, children) -> x.

    Example:
        >>> class Pair:
        ...     def __init__(self, first, second):
        ...         self.first, self.second = first, second
        >>> register(Pair, lambda pair: ((pair.first, pair.second), None), lambda _, children: Pair(*children))
        >>> nnc.tree.leaves(Pair(1, 2))
        [1, 2]
    """
    optree.register_pytree_node(cls, flatten, unflatten, namespace=NAMESPACE)


def register_dataclass(cls: type, *, static_scalars: bool = False) -> type:
    """Makes a dataclass a pytree; `static_scalars` makes fields that hold Python floats and complex numbers settings, too.

    Args:
        cls: the dataclass.
        static_scalars: fields that hold Python floats and complex numbers are settings, too.

    Returns:
        the class.

    Example:
        >>> @dataclasses.dataclass
        ... class Pair:
        ...     first: object
        ...     second: object
        >>> Pair = register_dataclass(Pair)
        >>> nnc.tree.leaves(Pair(1, 2))
        []
    """
    names = [field.name for field in dataclasses.fields(cls)]
    static = {field.name for field in dataclasses.fields(cls) if field.metadata.get("static")}
    slots = any(hasattr(inspect.getattr_static(cls, name, None), "__set__") for name in names)
    is_plain = bool(cls.__dictoffset__) and not slots  # all fields stand in the object's dictionary

    unsaved = frozenset(names if static_scalars else static)
    read: Callable[[Any], tuple[Any, ...]] = (
        attrgetter(*names) if len(names) > 1 else lambda x: tuple(getattr(x, name) for name in names)
    )
    roles: dict[type, bool | None] = {}  # whether values of a type are settings; None: that depends on the value
    splits: dict[tuple[type, ...], _Split | None] = {}  # by the types of the values; None: the values decide

    def split_of(values: Sequence[Any], mapped: Sequence[str]) -> _Split:
        types = tuple([type(value) for value in values])
        if types not in splits:
            pairs = zip(names, types, strict=True)
            known = [None if kind is _NO_TYPE else name in static or role_of(kind) for name, kind in pairs]
            splits[types] = None if None in known else _Split.of(names, known, types)
        split = splits[types]
        if split is not None and (not mapped or mapped == split.entries):
            return split
        return _Split.of(names, [is_setting(name, x, mapped) for name, x in zip(names, values, strict=True)], types)

    def role_of(kind: type) -> bool | None:
        if kind not in roles:
            roles[kind] = _role_of(kind, static_scalars)
        return roles[kind]

    def is_setting(name: str, value: Any, mapped: Sequence[str]) -> bool | None:
        if value is _ABSENT:
            return None
        if name in mapped or name in static:
            return name not in mapped
        role = role_of(type(value))
        return not is_array(value) and is_opaque(value) if role is None else role

    def flatten_fields(x: Any) -> tuple[list[Any], tuple[Any, ...], tuple[str, ...]]:
        mapped = getattr(x, CHILDREN, ())  # their roles stay, even if the leaves are others now (a mask of bools)
        try:
            values = read(x)
        except AttributeError:  # not all are set
            values = tuple([getattr(x, name, _ABSENT) for name in names])
        split = split_of(values, mapped)
        settings = tuple(zip(split.settings, compress(values, split.are_settings), strict=True))
        for i in split.checked:
            values[i].check_field(static_scalars)
        return list(compress(values, split.are_children)), (split.entries, Settings(settings, unsaved)), split.entries

    def unflatten_fields(metadata: Any, children: Iterable[Any]) -> Any:
        order, settings = metadata
        x: Any = object.__new__(cls)
        if is_plain:
            content = x.__dict__
            content.update(zip(order, children, strict=True))
            content.update(settings.items)
            content[CHILDREN] = order
            return x
        for name, value in (*zip(order, children, strict=True), *settings.items):
            object.__setattr__(x, name, value)
        if hasattr(x, "__dict__"):
            object.__setattr__(x, CHILDREN, order)
        return x

    optree.register_pytree_node(
        cls, flatten_fields, unflatten_fields, path_entry_type=optree.GetAttrEntry, namespace=NAMESPACE
    )
    return cls


@dataclasses.dataclass(frozen=True, slots=True)
class _Split:
    """The fields of a dataclass, split into children (the entries) and settings: their names, and a mask of all fields.

    `checked` are the positions of fields whose values are asked whether they may be children (`check_field`).
    """

    entries: tuple[str, ...]
    are_children: tuple[bool, ...]
    settings: tuple[str, ...]
    are_settings: tuple[bool, ...]
    checked: tuple[int, ...]

    @classmethod
    def of(cls, names: Sequence[str], are_settings: Sequence[bool | None], types: Sequence[type]) -> _Split:
        """Returns the split of fields with these names and types of values; None stands for a field without a value."""
        checked = tuple([i for i, kind in enumerate(types) if hasattr(kind, "check_field")])
        children = tuple([is_setting is False for is_setting in are_settings])
        settings = tuple([is_setting is True for is_setting in are_settings])
        return cls(tuple(compress(names, children)), children, tuple(compress(names, settings)), settings, checked)


def _role_of(kind: type, static_scalars: bool) -> bool | None:
    """Whether all values of a type are settings, or none; None where each must be looked at."""
    if issubclass(kind, (str, bytes, bool, int)) or (static_scalars and issubclass(kind, (float, complex))):
        return True
    return False if kind in CONTAINERS or is_array_type(kind) or dataclasses.is_dataclass(kind) else None


class Settings:
    """The settings of a dataclass as part of a tree structure: compared by value, hashed as far as the values allow it.

    Args:
        items: names of fields and their values.
        unsaved: names of fields that files of the tree leave out.
    """

    __slots__ = ("items", "unsaved")

    def __init__(self, items: tuple[tuple[str, Any], ...], unsaved: frozenset[str]) -> None:
        self.items, self.unsaved = items, unsaved

    @property
    def saved(self) -> frozenset[str]:
        """The names of the settings that a file of the tree holds: numbers and strings, such as the step of a training state, but
        not where the field or the class says that they are settings.
        """
        kept = (name for name, value in self.items if type(value) in (bool, int, str))
        return frozenset(kept) - self.unsaved

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Settings) or len(self.items) != len(other.items):
            return False
        for (name, value), (other_name, other_value) in zip(self.items, other.items, strict=True):
            if name != other_name or not (value is other_value or same_settings(value, other_value)):
                return False
        return True

    def __hash__(self) -> int:
        return hash(tuple(name for name, _ in self.items))

    def __repr__(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self.items)


def same_settings(a: Any, b: Any) -> bool:
    """Equality of settings: of one type and equal, where arrays are compared by identity.

    Args:
        a: value of a field.
        b: another value of it.
    """
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(same_settings(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, (str, int)):
        return bool(a == b)
    if is_array(a) and not dtypes.is_scalar(a):
        return False
    if isinstance(a, (float, complex)):
        return repr(a) == repr(b)  # tells 0.0 from -0.0, and takes nan for itself
    return bool(a == b)


def is_opaque(value: Any) -> bool:
    """Whether optree sees a leaf that is no number: a function, an object.

    Args:
        value: any object that is no array.
    """
    return bool(optree.tree_is_leaf(value, namespace=NAMESPACE))


def is_dataclass(leaf: Any) -> bool:
    """Whether a value is an instance of a dataclass, and no array.

    Args:
        leaf: any object.
    """
    return dataclasses.is_dataclass(leaf) and not isinstance(leaf, type) and not is_array(leaf)


# -- numbers, which are settings --------------------------------------------------------------------------------------


def change_numbers(tree: Any, change: Callable[[int, int | float], Any]) -> Any:
    """Returns the tree with other values in place of ints and floats that are settings; fields declared static stay as they
    are.

    Args:
        tree: a pytree that was flattened before.
        change: returns the new value, which is a leaf, or the number itself, which stays a setting. It is given the count of the
            numbers before it, too.

    Example:
        >>> class Scaled(nnc.nn.Module):
        ...     by: float
        >>> nnc.tree.leaves(change_numbers([Scaled(2.0), Scaled(3.0)], lambda i, x: nnp.asarray(x) if i else x))
        [Array(3., dtype=float32)]
    """
    places = count()

    def visit(value: Any) -> Any:
        if value is None or optree.tree_is_leaf(value, namespace=NAMESPACE):
            return value
        children, metadata, _, rebuild = optree.tree_flatten_one_level(value, namespace=NAMESPACE)
        changed: dict[str, Any] = {}
        names: tuple[str, ...] = ()
        settings = Settings((), frozenset())
        match metadata:
            case (tuple() as names, Settings() as settings):
                pass
        declared = _declared_static(type(value)) if settings.items else frozenset()
        for name, x in settings.items:
            if type(x) in (int, float) and name not in declared:
                new = change(next(places), x)
                if new is not x:
                    changed[name] = new
        visited = [visit(child) for child in children]
        if not changed:
            return value if all(map(operator.is_, visited, children)) else rebuild(metadata, visited)
        left = Settings(tuple(pair for pair in settings.items if pair[0] not in changed), settings.unsaved)
        return rebuild(((*names, *changed), left), [*visited, *changed.values()])

    return visit(tree)


def _find_declared_static(kind: Any) -> frozenset[str]:
    fields: tuple[dataclasses.Field[Any], ...] = dataclasses.fields(kind)
    return frozenset(field.name for field in fields if field.metadata.get("static"))


# classes: more than programs have
_declared_static: Callable[[type], frozenset[str]] = functools.lru_cache(maxsize=4096)(_find_declared_static)
