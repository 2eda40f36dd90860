"""Parts of a model by path: its parameters, which of them are trained, their dtypes, and arrays that stand in two places.

The path of a leaf joins the fields, places and keys on the way to it with dots, as in the files of `nnc.io`:
"encoder.layers.0.weight". A pattern is a path, the path of a part, or either with the wildcards of `fnmatch`: "encoder",
"*.bias" and "encoder.*.weight" all select leaves, and "!*.bias" all others. A predicate is a function (path, leaf) -> bool.
Everything here takes plain dicts and lists as well as modules.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from nnc import tree
from nnc.array.array import Array
from nnc.array.promote import dtype_of, to_dtype
from nnc.base import dtypes
from nnc.errors import ArgumentError, DTypeError, ShapeError, TreeError, user_error
from nnc.errors.errors import shorten
from nnc.errors.tracebacks import api_boundary
from nnc.graph import spec_of
from nnc.nn.module import Module, field, is_container
from nnc.nn.running import is_stateful, takes_key
from nnc.nn.selection import Selection, is_selection, select
from nnc.typing import A, ArrayLike, DTypeLike

__all__ = ["Tied", "assign", "cast", "combine", "parameters", "partition", "tie", "trainable"]

PLAIN_KEY = re.compile(r"(?!-?\d+$)[^.\"]+")  # names that need no quotes: without a dot, and unlike a place in a list


def walk(value: Any, path: str = "") -> Iterator[tuple[str, Module]]:
    """The modules in a tree with their paths, outer ones first."""
    if isinstance(value, Module):
        yield path, value
        parts: Any = value.__dict__.items()
    elif is_container(value):
        parts = value.items() if isinstance(value, dict) else enumerate(value)
    else:
        return
    for name, part in parts:
        yield from walk(part, join(path, name))


def join(path: str, key: object) -> str:
    """Returns the path of a part within the part at `path`."""
    plain = not isinstance(key, str) or PLAIN_KEY.fullmatch(key)
    text = str(key) if plain else json.dumps(key, ensure_ascii=False)
    return f"{path}.{text}" if path else text


def _is_none(value: Any) -> bool:
    return value is None


def _flatten(value: Any) -> tuple[list[str], list[Any], Any]:
    """Paths, leaves and structure of a tree in which None is a leaf."""
    leaves, structure = tree.flatten(value, is_leaf=_is_none)
    return [".".join(map(_plain, entries)) for entries in tree.paths(structure)], leaves, structure


def _plain(entry: str) -> str:
    """`.weight`, `[0]` and `["w"]` without Python's punctuation around the name."""
    if entry.startswith("."):
        return entry[1:]
    inner = entry[1:-1]
    return join("", json.loads(inner)) if inner.startswith('"') else inner


def _is_float(leaf: Any) -> bool:
    return tree.is_array(leaf) and dtypes.is_known(dtype_of(leaf)) and dtypes.is_inexact(dtype_of(leaf))


# -- parameters --------------------------------------------------------------------------------------------------------


def _state_paths(model: Any) -> tuple[str, ...]:
    return tuple(
        join(path, item.name)
        for path, module in walk(model)
        for item in dataclasses.fields(module)  # type: ignore[arg-type]
        if item.metadata.get("state")
    )


def _trained(model: Any, names: Sequence[str], leaves: Sequence[Any]) -> set[str]:
    """Returns the paths of floating-point leaves that are no state."""
    state = _state_paths(model)
    inside = tuple(f"{path}." for path in state)
    return {
        name
        for name, leaf in zip(names, leaves, strict=True)
        if _is_float(leaf) and name not in state and not name.startswith(inside)
    }


@api_boundary
def parameters(model: object, paths: Selection | None = None) -> dict[str, Array]:
    """Returns the parameters of a model by path: its floating-point arrays, but for states such as running averages.

    Args:
        model: a module, or any pytree.
        paths: patterns and predicates that select the parameters; all without them.

    Raises:
        ArgumentError: a pattern or a predicate selects nothing.

    Example:
        >>> model = nnc.nn.MLP(2, 1, width=8, depth=1, key=nnc.random.key(0))
        >>> {path: x.shape for path, x in nnc.nn.parameters(model, "*.bias").items()}
        {'layers.0.bias': (8,), 'layers.1.bias': (1,)}
    """
    names, leaves, _ = _flatten(model)
    chosen = _trained(model, names, leaves)
    if paths is not None:
        named = zip(names, leaves, strict=True)
        chosen &= select("nnc.nn.parameters", paths, {name: leaf for name, leaf in named if name in chosen})
    return {name: leaf for name, leaf in zip(names, leaves, strict=True) if name in chosen}


@api_boundary
def trainable(model: object, *, only: Selection | None = None, freeze: Selection = ()) -> object:
    """Returns a tree like the model with True for each leaf that is trained: a mask for `nnc.nn.partition` and
    `nnc.optim.masked`.

    `only` and `freeze` take a pattern ("encoder", "*.bias"), its negation ("!*.bias"), a predicate `(path, leaf) -> bool`, which is
    asked about each parameter, or a list of them: each adds paths, and a negation takes some of them away again.

    Args:
        model: a module, or any pytree.
        only: the parameters that are trained; by default all.
        freeze: parameters that are not trained, also where `only` selects them.

    Raises:
        ArgumentError: a pattern or a predicate selects nothing, or `only` no parameter.

    Example:
        >>> params = {"encoder": {"w": nnp.ones((2, 2)), "b": nnp.ones(2)}, "head": nnp.ones(2)}
        >>> nnc.nn.trainable(params, freeze="encoder")
        {'encoder': {'w': False, 'b': False}, 'head': True}
        >>> nnc.nn.trainable(params, only=["encoder", "!*.b"])
        {'encoder': {'w': True, 'b': False}, 'head': False}
        >>> nnc.nn.trainable(params, only=lambda path, x: x.ndim == 1, freeze="head")
        {'encoder': {'w': False, 'b': True}, 'head': False}
    """
    leaves, structure = tree.flatten(model)
    names = [".".join(map(_plain, entries)) for entries in tree.paths(structure)]
    named = dict(zip(names, leaves, strict=True))
    chosen = trained = _trained(model, names, leaves)
    if only is not None:
        chosen = chosen & select("nnc.nn.trainable", only, named, trained)
        if not chosen:
            fix = "nnc.nn.parameters(model) lists them; states and integers are not trained."
            raise user_error(ArgumentError, "nnc.nn.trainable", f"only={shorten(only)} selects no parameter.", fix=fix)
    chosen = chosen - select("nnc.nn.trainable", freeze, named, trained)
    return tree.unflatten(structure, [name in chosen for name in names])


@api_boundary
def partition(model: A, where: object = None) -> tuple[A, A]:
    """Two trees like the model, with None in place of leaves that the other one has; `nnc.nn.combine` puts them together.

    So a gradient can be taken of some leaves alone: an optimizer sees no leaf where there is None.

    Args:
        model: a module, or any pytree.
        where: the leaves that the first tree keeps: patterns and predicates (see `nnc.nn.trainable`), or a tree of bools such
            as `nnc.nn.trainable` makes. By default all that is trained.

    Raises:
        ArgumentError: a pattern or a predicate selects nothing.
        TreeError: the tree of bools is not like the model.

    Example:
        >>> params, rest = nnc.nn.partition(nnc.nn.BatchNorm(2))
        >>> params.scale, params.mean, rest.mean.shape
        (Array([1., 1.], dtype=float32), None, (2,))
    """
    names, leaves, structure = _flatten(model)
    if where is None:
        chosen = _trained(model, names, leaves)
    elif is_selection(where):
        named = {name: leaf for name, leaf in zip(names, leaves, strict=True) if leaf is not None}
        arrays = {name for name, leaf in named.items() if tree.is_array(leaf)}
        chosen = select("nnc.nn.partition", where, named, arrays)
    else:
        tree.check_same_structure("nnc.nn.partition", "the model", model, "where", where)
        marks = iter(tree.leaves(where))
        chosen = {name for name, leaf in zip(names, leaves, strict=True) if leaf is not None and bool(next(marks))}
    first = [leaf if name in chosen else None for name, leaf in zip(names, leaves, strict=True)]
    second = [None if name in chosen else leaf for name, leaf in zip(names, leaves, strict=True)]
    return tree.unflatten(structure, first), tree.unflatten(structure, second)


@api_boundary
def combine(first: A, *others: A) -> A:
    """Returns the tree that takes each leaf from the first of the trees that has one there, not None.

    Args:
        first: a tree as `nnc.nn.partition` makes it.
        *others: more trees of that structure.

    Raises:
        TreeError: the trees do not go together.

    Example:
        >>> nnc.nn.combine({"w": nnp.ones(1), "b": None}, {"w": None, "b": nnp.zeros(1)})
        {'w': Array([1.], dtype=float32), 'b': Array([0.], dtype=float32)}
    """
    _, leaves, structure = _flatten(first)
    columns = [leaves]
    for i, other in enumerate(others):
        _, more, like = _flatten(other)
        if like != structure:
            raise tree.tree_mismatch("nnc.nn.combine", "the first tree", first, f"tree {i + 2}", other)
        columns.append(more)
    rows = zip(*columns, strict=True)
    return tree.unflatten(structure, [next((x for x in row if x is not None), None) for row in rows])


@api_boundary
def cast(model: A, dtype: DTypeLike, paths: Selection = "*") -> A:
    """Returns the model with its floating-point leaves in another dtype; of a complex dtype, its complex leaves.

    Args:
        model: a module, or any pytree.
        dtype: a floating-point dtype.
        paths: patterns and predicates that select the leaves that are converted; all by default, running averages too.

    Raises:
        DTypeError: dtype is no floating-point dtype.
        ArgumentError: a pattern or a predicate selects nothing.

    Example:
        >>> model = nnc.nn.MLP(2, 1, width=8, depth=1, key=nnc.random.key(0))
        >>> {path: x.dtype.name for path, x in nnc.nn.parameters(nnc.nn.cast(model, "bfloat16", "*.weight")).items()}
        {'layers.0.weight': 'bfloat16', 'layers.0.bias': 'float32', 'layers.1.weight': 'bfloat16', 'layers.1.bias': 'float32'}
    """
    wanted = to_dtype(dtype, "nnc.nn.cast")
    if not dtypes.is_inexact(wanted):
        problem = f"dtype is {wanted.name}."
        raise user_error(DTypeError, "nnc.nn.cast", problem, fix="cast to a floating-point dtype such as bfloat16.")
    names, leaves, structure = _flatten(model)
    floats = {
        n: x for n, x in zip(names, leaves, strict=True) if _is_float(x) and dtypes.same_kind(dtype_of(x), wanted)
    }
    chosen = select("nnc.nn.cast", paths, floats)
    return tree.unflatten(
        structure, [_in_dtype(x, wanted) if name in chosen else x for name, x in zip(names, leaves, strict=True)]
    )


def _in_dtype(leaf: Any, dtype: dtypes.DType) -> Any:
    if hasattr(leaf, "astype"):
        return leaf.astype(dtype)
    return dataclasses.replace(leaf, dtype=dtype) if hasattr(leaf, "dtype") else dtype.type(leaf)


@api_boundary
def assign(model: A, values: Mapping[str, ArrayLike | None]) -> A:
    """Returns the model with other arrays at some paths, each of the shape and dtype of the array that it replaces.

    Args:
        model: a module, or any pytree.
        values: {path: array}.

    Raises:
        TreeError: there is no such path.
        ShapeError, DTypeError: a value does not fit.

    Example:
        >>> nnc.nn.assign({"w": nnp.ones(2)}, {"w": nnp.zeros(2)})
        {'w': Array([0., 0.], dtype=float32)}
    """
    names, leaves, structure = _flatten(model)
    for name in values:
        if name not in names:
            near = get_close_matches(name, names, 1) or names[:1]
            fix = f'"{near[0]}" is one.' if near else "the model has no arrays."
            raise user_error(TreeError, "nnc.nn.assign", f"the model has no path {name!r}.", fix=fix)
    return tree.unflatten(
        structure,
        [
            _fitting(name, leaf, values[name]) if name in values else leaf
            for name, leaf in zip(names, leaves, strict=True)
        ],
    )


def _fitting(name: str, old: Any, new: Any) -> Any:
    if old is None:
        return new
    have, want = spec_of(new), spec_of(old)
    if have != want:
        kind = ShapeError if have.shape != want.shape else DTypeError
        fix = "give the array the shape and dtype of the one that it replaces."
        raise user_error(kind, "nnc.nn.assign", f"{name} is {want}, the new value is {have}.", fix=fix)
    return new


# -- one array in two places -------------------------------------------------------------------------------------------


class Tied(Module):
    """A model some of whose arrays stand in several places; `nnc.nn.tie` makes it. It is called like the model.

    Args:
        model: the model, with None in place of further copies.
        pairs: {path of a copy: path of the array}.

    Example:
        >>> layers = (nnc.nn.Linear(2, 2, key=nnc.random.key(i)) for i in range(2))
        >>> tied = nnc.nn.tie(nnc.nn.Sequential(*layers), {"layers.1.weight": "layers.0.weight"})
        >>> list(nnc.nn.parameters(tied))
        ['model.layers.0.weight', 'model.layers.0.bias', 'model.layers.1.bias']
    """

    model: Any
    pairs: tuple[tuple[str, str], ...] = field(static=True)

    def whole(self) -> Any:
        """Returns the model with the shared arrays in all their places."""
        names, leaves, _ = _flatten(self.model)
        at = dict(zip(names, leaves, strict=True))
        return assign(self.model, {target: at[source] for target, source in self.pairs})

    def __call__(self, *args: Any, key: ArrayLike | None = None, **kwargs: Any) -> Any:
        """Calls the model."""
        model = self.whole()
        if key is not None and takes_key(model):
            kwargs["key"] = key
        out = model(*args, **kwargs)
        return (out[0], tie(out[1], dict(self.pairs))) if is_stateful(model) else out


@api_boundary
def tie(model: object, pairs: Mapping[str, str]) -> Tied:
    """Returns the model with arrays that stand in several places, each kept once.

    The places of a shared array hold None until the model is called, so that there is one leaf for an optimizer, one entry in
    a file, and the gradient is the sum over all places. Where the module is your own, using one field twice does the same.

    Args:
        model: a module, or any pytree.
        pairs: maps the path of a place to the path of the array that it shares.

    Returns:
        a module that is called like the model; `.whole()` is the model with all its places filled.

    Raises:
        ArgumentError: there is no such path, or an array would share itself.
        ShapeError, DTypeError: the two differ.

    Example:
        >>> model = nnc.nn.Sequential(nnc.nn.Embedding(9, 4, key=nnc.random.key(0)), nnc.nn.Linear(4, 9, key=nnc.random.key(1)))
        >>> tied = nnc.nn.tie(model, {"layers.1.weight": "layers.0.weight"})
        >>> list(nnc.nn.parameters(tied))
        ['model.layers.0.weight', 'model.layers.1.bias']
        >>> tied(np.array([1, 2])).shape
        (2, 9)
    """
    names, leaves, structure = _flatten(model)
    at = dict(zip(names, leaves, strict=True))
    for target, source in pairs.items():
        missing = [path for path in (target, source) if at.get(path) is None]
        if missing or source in pairs:
            problem = f"there is no array at {missing[0]!r}" if missing else f"{source!r} shares another array itself"
            fix = "write {place: the path of an array that stays}."
            raise user_error(ArgumentError, "nnc.nn.tie", f"{problem}.", fix=fix)
        _fitting(target, at[target], at[source])
    return Tied(
        tree.unflatten(structure, [None if name in pairs else at[name] for name in names]), tuple(pairs.items())
    )
