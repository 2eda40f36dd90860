"""Pytrees: nested containers of arrays. Dicts, lists, tuples, namedtuples, dataclasses, None and registered classes.

Built on optree, in its namespace "nnc". A dataclass becomes a pytree when it is first met: its fields are children, except
fields marked `metadata={"static": True}` and fields that hold a setting (a string, a function, a bool, an int, …), which become
part of the structure.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import compress
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar, overload

import numpy as np
import optree

from nnc import dtypes
from nnc.errors import ArgumentTypeError, TreeError, user_error
from nnc.foreign import is_foreign
from nnc.tracebacks import api_boundary

if TYPE_CHECKING:
    from nnc.array import Array

__all__ = [
    "all_leaves",
    "broadcast_prefix",
    "flatten",
    "flatten_with_path",
    "is_array",
    "leaves",
    "map",
    "paths",
    "reduce",
    "register",
    "register_dataclass",
    "structure",
    "transpose",
    "unflatten",
]

NAMESPACE = "nnc"
CHILDREN = "_tree_children"  # the attribute that holds which fields of a dataclass are children
_CHILDREN = frozenset({list, tuple, dict, type(None)})  # whose objects are never settings
_NUMERIC = (np.ndarray, np.generic, bool, int, float, complex)
_ABSENT = object()
_NO_TYPE = type(_ABSENT)  # of objects whose type decides nothing
TreeDef = optree.PyTreeSpec
IsLeaf = Callable[[Any], bool] | None
T = TypeVar("T")
S = TypeVar("S")


def is_array(leaf: Any) -> bool:
    """Whether a leaf is numeric: an array or tracer of nnc, an array of NumPy or another library, or a number.

    Args:
        leaf: any object.
    """
    return is_array_type(type(leaf))


def _is_array_type(kind: type) -> bool:
    """Whether the objects of a class are numeric.

    Args:
        kind: a class.
    """
    return hasattr(kind, "spec") or issubclass(kind, _NUMERIC) or is_foreign(kind)


is_array_type: Callable[[type], bool] = functools.lru_cache(maxsize=4096)(
    _is_array_type
)  # classes: more than programs have


def flatten(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> tuple[list[Array], TreeDef]:
    """The leaves of `tree` in order, and its structure.

    Args:
        tree: a pytree.
        is_leaf: whether a node is a leaf although it is a container.

    Returns:
        the leaves in order, and the structure.

    Example:
        >>> flatten({"b": 2, "a": [1, None]})[0]
        [1, 2]
    """
    while True:
        try:
            leaves, treedef = optree.tree_flatten(tree, is_leaf=is_leaf, namespace=NAMESPACE)
        except RecursionError:
            _check_depth(tree)
            raise
        kinds = {kind for kind in {type(leaf) for leaf in leaves} if dataclasses.is_dataclass(kind)}
        met = [leaf for leaf in leaves if type(leaf) in kinds] if kinds else []
        new = {type(leaf) for leaf in met if not is_array(leaf) and not (is_leaf and is_leaf(leaf))}
        if not new:
            return leaves, treedef
        for cls in new:
            register_dataclass(cls)


def _check_depth(tree: Any) -> None:
    """Raises TreeError for a tree that holds itself, or is deeper than optree walks."""
    pending: list[tuple[Any, str, tuple[int, ...]]] = [(tree, "", ())]
    while pending:
        value, path, around = pending.pop()
        if id(value) in around:
            raise user_error(
                TreeError, "pytree", f"the {type(value).__name__} at {path} holds itself, so it has no end.",
                fix="leave the reference to itself out, or pass the tree that it stands for.",
            )  # fmt: skip
        if len(around) > optree.MAX_RECURSION_DEPTH:
            raise user_error(
                TreeError, "pytree", f"containers are nested more than {optree.MAX_RECURSION_DEPTH} deep: {path[:40]}...",
                fix="put the arrays into one list, or stack them.",
            )  # fmt: skip
        if isinstance(value, (list, tuple)):
            pending += [(x, f"{path}[{i}]", (*around, id(value))) for i, x in enumerate(value)]
        elif isinstance(value, dict):
            pending += [(x, f"{path}[{key!r}]", (*around, id(value))) for key, x in value.items()]
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = [(item.name, getattr(value, item.name, None)) for item in dataclasses.fields(value)]
            pending += [(x, f"{path}.{name}", (*around, id(value))) for name, x in fields]


def unflatten(treedef: TreeDef, leaves: Iterable[Any]) -> Any:
    """The tree of structure `treedef` with these leaves.

    Args:
        treedef: a structure.
        leaves: as many values as it has leaves.
    """
    return treedef.unflatten(leaves)


def leaves(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> list[Array]:
    """The leaves of `tree` in order: arrays, and any other leaves, which types leave out.

    Args:
        tree: a pytree.
        is_leaf: whether a node is a leaf although it is a container.
    """
    return flatten(tree, is_leaf)[0]


def structure(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> TreeDef:
    """The structure of `tree`.

    Args:
        tree: a pytree.
        is_leaf: whether a node is a leaf although it is a container.
    """
    return flatten(tree, is_leaf)[1]


@overload
def map(f: Callable[[Array], Array], tree: T, *, is_leaf: IsLeaf = None) -> T: ...
@overload
def map(f: Callable[[Array, Array], Array], tree: T, other: object, /, *, is_leaf: IsLeaf = None) -> T: ...
@overload
def map(
    f: Callable[[Array, Array, Array], Array], tree: T, second: object, third: object, /, *, is_leaf: IsLeaf = None
) -> T: ...
@overload
def map(f: Callable[..., object], tree: object, *rest: object, is_leaf: IsLeaf = None) -> object: ...
@api_boundary
def map(f: Callable[..., Any], tree: Any, *rest: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """Applies `f` to the leaves of `tree` and the corresponding leaves of `rest`, which must have the same structure.

    Args:
        f: takes a leaf of each tree.
        tree: a pytree.
        *rest: more trees of that structure.
        is_leaf: whether a node is a leaf although it is a container.

    Raises:
        TreeError: a tree of `rest` has another structure; every differing path is listed.

    Example:
        >>> map(lambda x, y: x + y, {"a": 1}, {"a": 10})
        {'a': 11}
    """
    first, treedef = flatten(tree, is_leaf)
    columns = [first]
    for i, other in enumerate(rest):
        other_leaves, other_treedef = flatten(other, is_leaf)
        if other_treedef != treedef:
            raise tree_mismatch("tree.map", "the first tree", tree, f"tree {i + 2}", other)
        columns.append(other_leaves)
    return unflatten(treedef, [f(*row) for row in zip(*columns, strict=True)])


def all_leaves(leaves: Iterable[Any]) -> bool:
    """Whether every element is a leaf.

    Args:
        leaves: any objects.
    """
    return all(structure(leaf).is_leaf() for leaf in leaves)


@overload
def reduce(function: Callable[[Array, Array], Array], tree: object, *, is_leaf: IsLeaf = None) -> Array: ...
@overload
def reduce(function: Callable[[S, Array], S], tree: object, initializer: S, is_leaf: IsLeaf = None) -> S: ...
@api_boundary
def reduce(
    function: Callable[[Any, Any], Any],
    tree: Any,
    initializer: Any = _ABSENT,
    is_leaf: Callable[[Any], bool] | None = None,
) -> Any:
    """Folds `function` over the leaves of `tree`, starting from `initializer`, or else from the first leaf.

    Args:
        function: (value so far, leaf) -> value.
        tree: a pytree.
        initializer: value before the first leaf.
        is_leaf: whether a node is a leaf although it is a container.

    Raises:
        TreeError: there is no leaf and no `initializer`.

    Example:
        >>> reduce(lambda a, b: a + b, {"a": 1, "b": [2, 3]})
        6
    """
    values = iter(leaves(tree, is_leaf))
    result = next(values, _ABSENT) if initializer is _ABSENT else initializer
    if result is _ABSENT:
        raise user_error(TreeError, "nnc.tree.reduce", "the tree has no leaves.", fix="pass an initializer.")
    return functools.reduce(function, values, result)


def flatten_with_path(tree: Any) -> list[tuple[str, Array]]:
    """Pairs (path, leaf), a path written as in Python: `["layers"][0].weight`.

    Args:
        tree: a pytree.

    Example:
        >>> flatten_with_path({"layers": [1, 2]})
        [('["layers"][0]', 1), ('["layers"][1]', 2)]
    """
    values, treedef = flatten(tree)
    return list(zip(("".join(path) for path in paths(treedef)), values, strict=True))


def paths(treedef: TreeDef) -> list[list[str]]:
    """The path of each leaf, entry by entry: `["layers"]`, `[0]`, `.weight`.

    Args:
        treedef: a structure.
    """
    return [[_written(entry) for entry in accessor] for accessor in optree.treespec_accessors(treedef)]


def _written(entry: Any) -> str:
    key = entry.entry
    if isinstance(key, str) and not isinstance(entry, optree.GetAttrEntry):
        return f"[{json.dumps(key, ensure_ascii=False)}]"
    return str(entry.codify(""))


def broadcast_prefix(
    prefix: Any, tree: Any, is_leaf: Callable[[Any], bool] | None = None, where: str = "tree"
) -> list[Any]:
    """A value of `prefix` for each leaf of `tree`; `prefix` has the structure of `tree` or of a part of it from the root.

    Args:
        prefix: a tree that ends where values stand.
        tree: a pytree.
        is_leaf: whether a node is a leaf although it is a container.
        where: the function the user called, for messages.

    Raises:
        TreeError: `prefix` is no prefix of `tree`.
    """
    flatten(tree)  # registers the dataclasses in it
    values, treedef = flatten(prefix, is_leaf)
    try:
        parts = treedef.flatten_up_to(tree)
        return [value for value, part in zip(values, parts, strict=True) for _ in range(structure(part).num_leaves)]
    except ValueError as error:
        raise user_error(
            TreeError, where, f"the prefix {prefix!r} does not fit the tree: {error}",
            fix="give one value for the whole tree, or a tree of values of its structure.",
        ) from None  # fmt: skip


def settings(tree: Any) -> list[tuple[Any, str]]:
    """Returns the values that dataclasses in `tree` hold besides children, and the names of the fields.

    Args:
        tree: a pytree.
    """
    found: list[tuple[Any, str]] = []
    for leaf in optree.tree_leaves(tree, is_leaf=_is_dataclass, namespace=NAMESPACE):
        if _is_dataclass(leaf):
            _add_settings(found, leaf)
    return found


def _add_settings(found: list[tuple[Any, str]], x: Any) -> None:
    """Adds the settings of a dataclass, and of the dataclasses in its fields."""
    for item in dataclasses.fields(x):
        value = getattr(x, item.name, None)
        if value is None or is_array(value):
            continue
        if type(value) not in _CHILDREN and _is_opaque(value):
            found.append((value, item.name))
        elif _is_dataclass(value):
            _add_settings(found, value)
        else:
            found += settings(value)


# -- registration ------------------------------------------------------------------------------------------------------


def register(
    cls: type, flatten: Callable[[Any], tuple[Iterable[Any], Any]], unflatten: Callable[[Any, Any], Any]
) -> None:
    """Makes a class a pytree: `flatten(x) -> (children, metadata)`, `unflatten(metadata, children) -> x`.

    The metadata is part of the structure, so it must be hashable and comparable.

    Args:
        cls: the class.
        flatten: x -> (children, metadata).
        unflatten: (metadata, children) -> x.
    """
    optree.register_pytree_node(cls, flatten, unflatten, namespace=NAMESPACE)


def register_dataclass(cls: type, *, static_scalars: bool = False) -> type:
    """Makes a dataclass a pytree; `static_scalars` makes fields that hold Python floats and complex numbers settings, too.

    Args:
        cls: the dataclass.
        static_scalars: fields that hold Python floats and complex numbers are settings, too.

    Returns:
        the class.
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
            splits[types] = None if None in known else _Split.of(names, known)
        split = splits[types]
        if split is not None and (not mapped or mapped == split.entries):
            return split
        return _Split.of(names, [is_setting(name, x, mapped) for name, x in zip(names, values, strict=True)])

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
        return not is_array(value) and _is_opaque(value) if role is None else role

    def flatten_fields(x: Any) -> tuple[list[Any], tuple[Any, ...], tuple[str, ...]]:
        mapped = getattr(x, CHILDREN, ())  # their roles stay, even if the leaves are others now (a mask of bools)
        try:
            values = read(x)
        except AttributeError:  # not all are set
            values = tuple([getattr(x, name, _ABSENT) for name in names])
        split = split_of(values, mapped)
        settings = tuple(zip(split.settings, compress(values, split.are_settings), strict=True))
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
    """The fields of a dataclass, split into children (the entries) and settings: their names, and a mask of all fields."""

    entries: tuple[str, ...]
    are_children: tuple[bool, ...]
    settings: tuple[str, ...]
    are_settings: tuple[bool, ...]

    @classmethod
    def of(cls, names: Sequence[str], are_settings: Sequence[bool | None]) -> _Split:
        """The split of fields with these names; None stands for a field without a value."""
        children = tuple([is_setting is False for is_setting in are_settings])
        settings = tuple([is_setting is True for is_setting in are_settings])
        return cls(tuple(compress(names, children)), children, tuple(compress(names, settings)), settings)


def _role_of(kind: type, static_scalars: bool) -> bool | None:
    """Whether all values of a type are settings, or none; None where each must be looked at."""
    if issubclass(kind, (str, bytes, bool, int)) or (static_scalars and issubclass(kind, (float, complex))):
        return True
    return False if kind in _CHILDREN or is_array_type(kind) or dataclasses.is_dataclass(kind) else None


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


def _is_opaque(value: Any) -> bool:
    """Whether optree sees a leaf that is no number: a function, an object."""
    return bool(optree.tree_is_leaf(value, namespace=NAMESPACE))


def _is_dataclass(leaf: Any) -> bool:
    return dataclasses.is_dataclass(leaf) and not isinstance(leaf, type) and not is_array(leaf)


# -- mismatches --------------------------------------------------------------------------------------------------------


def tree_mismatch(
    where: str, left_name: str, left: Any, right_name: str, right: Any, fix: str | None = None,
    operands: Mapping[str, Any] | None = None,
) -> TreeError:  # fmt: skip
    """The error for two trees that should have one structure; it lists every path on which they differ, both sides.

    Args:
        where: the function the user called, for messages.
        left_name: the first tree's name in messages.
        left: a pytree.
        right_name: the second tree's name in messages.
        right: a pytree.
        fix: the remedy.
        operands: name -> spec or value, shown on lines of their own.
    """
    return user_error(
        TreeError, where, f"{left_name} and {right_name} differ in structure:\n" + "\n".join(differences(left, right)),
        operands=operands, fix=fix or "give both the same containers, keys and lengths.",
    )  # fmt: skip


def differences(left: Any, right: Any) -> list[str]:
    """One line for each path on which two trees differ in structure.

    Args:
        left: a pytree.
        right: a pytree.
    """
    a, b = dict(flatten_with_path(left)), dict(flatten_with_path(right))
    lines = [
        f"  {path or '(root)'}: {_describe(a[path])} on the left, nothing on the right" for path in a if path not in b
    ]
    lines += [
        f"  {path or '(root)'}: nothing on the left, {_describe(b[path])} on the right" for path in b if path not in a
    ]
    return lines or [f"  {structure(left)} on the left, {structure(right)} on the right"]


def _describe(leaf: Any) -> str:
    return str(getattr(leaf, "spec", None) or repr(leaf))


def check_same_structure(where: str, left_name: str, left: Any, right_name: str, right: Any) -> None:
    """Raises TreeError, listing every differing path, unless both trees have one structure.

    Args:
        where: the function the user called, for messages.
        left_name: the first tree's name in messages.
        left: a pytree.
        right_name: the second tree's name in messages.
        right: a pytree.
    """
    if structure(left) != structure(right):
        raise tree_mismatch(where, left_name, left, right_name, right)


def check_hashable(where: str, name: str, value: Any) -> None:
    """Raises ArgumentTypeError unless `value` can be part of a cache key.

    Args:
        where: the function the user called, for messages.
        name: the argument's name in messages.
        value: the argument.
    """
    try:
        hash(value)
    except TypeError:
        raise user_error(
            ArgumentTypeError, where, f"static argument {name} is a {type(value).__name__}, which has no hash.",
            fix="pass a hashable value (a tuple instead of a list), or an array as an ordinary argument.",
        ) from None  # fmt: skip


@api_boundary
def transpose(outer: TreeDef, inner: TreeDef, tree: Any) -> Any:
    """Turns a tree of structure `outer` whose leaves have structure `inner` inside out.

    Args:
        outer: structure of the trees to turn inside out.
        inner: structure of each of their leaves.
        tree: a tree of structure outer, of trees of structure inner.
    """
    return optree.tree_transpose(outer, inner, tree)


def unflatten_like(tree: Any, leaves: Sequence[Any]) -> Any:
    """A tree of the structure of `tree` with these leaves.

    Args:
        tree: a pytree whose structure is taken.
        leaves: as many values as it has leaves.
    """
    return unflatten(structure(tree), leaves)


def __dir__() -> list[str]:
    return sorted(__all__)
