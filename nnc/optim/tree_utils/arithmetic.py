"""Arithmetic on whole trees, and parts of the states of optimizers by name, as in optax.tree_utils.

All arrays and numbers among the leaves take part; other leaves, such as strings, stay as they are in the first tree.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import nnc.numpy as nnp
from nnc import random, tree
from nnc.array.array import Array, asarray
from nnc.array.promote import astype
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.errors import ArgumentError, user_error
from nnc.optim.clipping import squared_magnitude
from nnc.typing import DTypeLike

__all__ = [
    "tree_add",
    "tree_add_scale",
    "tree_allclose",
    "tree_batch_shape",
    "tree_cast",
    "tree_cast_like",
    "tree_clip",
    "tree_conj",
    "tree_div",
    "tree_full_like",
    "tree_max",
    "tree_min",
    "tree_mul",
    "tree_norm",
    "tree_ones_like",
    "tree_random_like",
    "tree_real",
    "tree_scale",
    "tree_size",
    "tree_split_key_like",
    "tree_sub",
    "tree_sum",
    "tree_vdot",
    "tree_where",
    "tree_zeros_like",
]


def _map(function: Callable[..., Any], first: Any, *others: Any) -> Any:
    """Applies `function` to arrays of the first tree and the leaves beside them."""

    def apply(x: Any, *rest: Any) -> Any:
        return function(asarray(x), *[asarray(y) for y in rest]) if tree.is_array(x) else x

    return tree.map(apply, first, *others)


def _arrays(values: Any) -> list[Array]:
    return [asarray(x) for x in tree.leaves(values) if tree.is_array(x)]


# -- arithmetic --------------------------------------------------------------------------------------------------------


@spelled
def tree_add(tree_x: Any, tree_y: Any, *other_trees: Any) -> Any:
    """Adds trees leaf by leaf.

    Args:
        tree_x: a pytree.
        tree_y: a tree of the same structure.
        other_trees: more of them.

    Raises:
        TreeError: structures differ.

    Example:
        >>> tree_add({"w": 1.0}, {"w": 2.0}, {"w": 3.0})
        {'w': Array(6., dtype=float32)}
    """
    return _map(lambda *xs: sum(xs[1:], xs[0]), tree_x, tree_y, *other_trees)


@spelled
def tree_sub(tree_x: Any, tree_y: Any) -> Any:
    """Subtracts trees leaf by leaf.

    Args:
        tree_x: a pytree.
        tree_y: a tree of the same structure.

    Raises:
        TreeError: structures differ.

    Example:
        >>> tree_sub({"a": nnp.asarray([6.0])}, {"a": nnp.asarray([2.0])})
        {'a': Array([4.], dtype=float32)}
    """
    return _map(lambda x, y: x - y, tree_x, tree_y)


@spelled
def tree_mul(tree_x: Any, tree_y: Any) -> Any:
    """Multiplies trees leaf by leaf.

    Args:
        tree_x: a pytree.
        tree_y: a tree of the same structure.

    Raises:
        TreeError: structures differ.

    Example:
        >>> tree_mul({"a": nnp.asarray([6.0])}, {"a": nnp.asarray([2.0])})
        {'a': Array([12.], dtype=float32)}
    """
    return _map(lambda x, y: x * y, tree_x, tree_y)


@spelled
def tree_div(tree_x: Any, tree_y: Any) -> Any:
    """Divides trees leaf by leaf.

    Args:
        tree_x: a pytree.
        tree_y: a tree of the same structure.

    Raises:
        TreeError: structures differ.

    Example:
        >>> tree_div({"a": nnp.asarray([6.0])}, {"a": nnp.asarray([2.0])})
        {'a': Array([3.], dtype=float32)}
    """
    return _map(lambda x, y: x / y, tree_x, tree_y)


@spelled
def tree_scale(scalar: Any, tree: Any) -> Any:
    """Multiplies every leaf by a number.

    Args:
        scalar: a number or a 0-d array.
        tree: a pytree.

    Example:
        >>> tree_scale(2.0, [nnp.ones(2), "name"])
        [Array([2., 2.], dtype=float32), 'name']
    """
    return _map(lambda x: x * scalar, tree)


@spelled
def tree_add_scale(tree_x: Any, scalar: Any, tree_y: Any) -> Any:
    """Adds a multiple of a tree: x + scalar · y.

    Args:
        tree_x: a pytree.
        scalar: a number or a 0-d array.
        tree_y: a tree of the same structure.

    Raises:
        TreeError: structures differ.

    Example:
        >>> tree_add_scale([1.0], 0.5, [4.0])
        [Array(3., dtype=float32)]
    """
    return _map(lambda x, y: x + y * scalar, tree_x, tree_y)


@spelled
def tree_vdot(tree_x: Any, tree_y: Any) -> Any:
    """Returns the sum over all elements of conj(x) · y.

    Args:
        tree_x: a pytree.
        tree_y: a tree of the same structure.

    Raises:
        TreeError: structures differ.

    Example:
        >>> tree_vdot([nnp.ones(2), 3.0], [nnp.ones(2), 2.0])
        Array(8., dtype=float32)
    """
    return tree_sum(_map(lambda x, y: nnp.conj(x) * y, tree_x, tree_y))


@spelled
def tree_sum(tree: Any) -> Any:
    """Returns the sum of all elements; 0 of a tree without arrays.

    Args:
        tree: a pytree.

    Example:
        >>> tree_sum({"a": nnp.ones(3), "b": 2.0})
        Array(5., dtype=float32)
    """
    return sum((nnp.sum(x) for x in _arrays(tree)), 0)


@spelled
def tree_max(tree: Any) -> Any:
    """Returns the greatest element; -inf of a tree without elements.

    Args:
        tree: a pytree.

    Example:
        >>> tree_max([nnp.asarray([1.0, 5.0]), nnp.asarray(3.0)])
        Array(5., dtype=float32)
    """
    result: Any = -math.inf
    for x in _arrays(tree):
        result = nnp.maximum(nnp.max(x), result) if x.size else result
    return result


@spelled
def tree_min(tree: Any) -> Any:
    """Returns the least element; inf of a tree without elements.

    Args:
        tree: a pytree.

    Example:
        >>> tree_min([nnp.asarray([1.0, 5.0]), nnp.asarray(3.0)])
        Array(1., dtype=float32)
    """
    result: Any = math.inf
    for x in _arrays(tree):
        result = nnp.minimum(nnp.min(x), result) if x.size else result
    return result


@spelled
def tree_size(tree: Any) -> int:
    """Returns the number of elements.

    Args:
        tree: a pytree.

    Example:
        >>> tree_size({"a": nnp.ones((2, 3)), "b": 1.0})
        7
    """
    return sum(x.size for x in _arrays(tree))


@spelled
def tree_norm(tree: Any, ord: int | float | str | None = None, squared: bool = False) -> Any:
    """Returns the norm of all elements together.

    Args:
        tree: a pytree.
        ord: 2 or None: the root of the sum of |x|²; 1: the sum of |x|; `np.inf`: the greatest |x|.
        squared: return its square.

    Raises:
        ArgumentError: another ord.

    Example:
        >>> tree_norm([nnp.asarray([3.0]), nnp.asarray([4.0])])
        Array(5., dtype=float32)
    """
    if ord in (None, 2):
        if squared:
            return asarray(tree_sum(_map(squared_magnitude, tree)))
        norms = [nnp.linalg.vector_norm(x) for x in _arrays(tree)]
        return nnp.linalg.vector_norm(nnp.stack(norms)) if norms else asarray(0.0)
    if ord not in (1, math.inf, "inf", "infinity"):
        problem = f"ord is {ord!r}; it must be 1, 2 or inf."
        raise user_error(ArgumentError, "tree_norm", problem, fix="choose one of them.")
    sizes = _map(nnp.abs, tree)
    size = asarray(tree_sum(sizes) if ord == 1 else tree_max(sizes))
    return nnp.square(size) if squared else size


@spelled
def tree_allclose(a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Any:
    """Returns whether all elements are close, |a − b| ≤ atol + rtol · |b|.

    Args:
        a: a pytree.
        b: a tree of the same structure.
        rtol: relative tolerance.
        atol: absolute tolerance.
        equal_nan: nan equals nan.

    Raises:
        TreeError: structures differ.

    Example:
        >>> tree_allclose([nnp.asarray([1.0])], [nnp.asarray([1.0 + 1e-7])])
        Array(True, dtype=bool)
    """
    close = _map(lambda x, y: nnp.allclose(x, y, rtol=rtol, atol=atol, equal_nan=equal_nan), a, b)
    result: Any = asarray(True)
    for x in _arrays(close):
        result = result & x
    return result


# -- leaf by leaf ------------------------------------------------------------------------------------------------------


@spelled
def tree_zeros_like(tree: Any, dtype: DTypeLike | None = None) -> Any:
    """Returns zeros in place of the leaves.

    Args:
        tree: a pytree.
        dtype: the dtype of the zeros; default the leaf's.

    Example:
        >>> tree_zeros_like({"a": nnp.asarray([1.0, 2.0])})
        {'a': Array([0., 0.], dtype=float32)}
    """
    return tree_full_like(tree, 0, dtype)


@spelled
def tree_ones_like(tree: Any, dtype: DTypeLike | None = None) -> Any:
    """Returns ones in place of the leaves.

    Args:
        tree: a pytree.
        dtype: the dtype of the ones; default the leaf's.

    Example:
        >>> tree_ones_like({"a": nnp.asarray([5.0, 2.0])})
        {'a': Array([1., 1.], dtype=float32)}
    """
    return tree_full_like(tree, 1, dtype)


@spelled
def tree_full_like(tree: Any, fill_value: Any, dtype: DTypeLike | None = None) -> Any:
    """Returns arrays of one value in place of the leaves.

    Args:
        tree: a pytree.
        fill_value: a number.
        dtype: the dtype of the arrays; default the leaf's.

    Example:
        >>> tree_full_like([nnp.ones(2)], 3.0)
        [Array([3., 3.], dtype=float32)]
    """
    return _map(lambda x: nnp.full_like(x, fill_value, dtype=dtype), tree)


@spelled
def tree_cast(tree: Any, dtype: DTypeLike | None) -> Any:
    """Returns the tree with its floating-point leaves in another dtype.

    Args:
        tree: a pytree.
        dtype: None leaves them.

    Example:
        >>> tree_cast({"w": nnp.ones(1), "n": 3}, "float64")
        {'w': Array([1.], dtype=float64), 'n': Array(3, dtype=int64)}
    """
    if dtype is None:
        return tree
    kind = dtypes.as_dtype(dtype)
    return _map(lambda x: astype(x, kind) if dtypes.is_inexact(x.dtype) else x, tree)


@spelled
def tree_cast_like(tree: Any, other_tree: Any) -> Any:
    """Returns the tree with each leaf in the dtype of the leaf beside it.

    Args:
        tree: a pytree.
        other_tree: a tree of the same structure.

    Raises:
        TreeError: structures differ.

    Example:
        >>> tree_cast_like([nnp.asarray([1.0])], [nnp.asarray([1])])
        [Array([1], dtype=int64)]
    """
    return _map(lambda x, y: astype(x, y.dtype), tree, other_tree)


@spelled
def tree_clip(tree: Any, min_value: Any = None, max_value: Any = None) -> Any:
    """Limits every element.

    Args:
        tree: a pytree.
        min_value: least value; None: no limit.
        max_value: greatest value; None: no limit.

    Example:
        >>> tree_clip([nnp.asarray([-3.0, 0.5, 3.0])], -1.0, 1.0)
        [Array([-1. ,  0.5,  1. ], dtype=float32)]
    """
    return _map(lambda x: nnp.clip(x, min_value, max_value), tree)


@spelled
def tree_conj(tree: Any) -> Any:
    """Returns the complex conjugates.

    Args:
        tree: a pytree.

    Example:
        >>> tree_conj([nnp.asarray([1 + 2j])])
        [Array([1.-2.j], dtype=complex64)]
    """
    return _map(nnp.conj, tree)


@spelled
def tree_real(tree: Any) -> Any:
    """Returns the real parts.

    Args:
        tree: a pytree.

    Example:
        >>> tree_real([nnp.asarray([1 + 2j])])
        [Array([1.], dtype=float32)]
    """
    return _map(nnp.real, tree)


@spelled
def tree_where(condition: Any, tree_x: Any, tree_y: Any) -> Any:
    """Returns elements of one tree where a condition holds, else of the other.

    Args:
        condition: a bool that broadcasts to all leaves.
        tree_x: a pytree.
        tree_y: a tree of the same structure.

    Raises:
        TreeError: structures differ.

    Example:
        >>> tree_where(True, [nnp.asarray([1.0])], [nnp.asarray([2.0])])
        [Array([1.], dtype=float32)]
    """
    return _map(lambda x, y: nnp.where(condition, x, y), tree_x, tree_y)


@spelled
def tree_batch_shape(tree: Any, shape: Sequence[int] = ()) -> Any:
    """Returns the leaves with new leading axes, along which they are repeated.

    Args:
        tree: a pytree.
        shape: sizes of the new axes.

    Example:
        >>> tree_batch_shape({"w": nnp.ones(3)}, (2,))["w"].shape
        (2, 3)
    """
    return _map(lambda x: nnp.broadcast_to(x, (*shape, *x.shape)), tree)


@spelled
def tree_split_key_like(rng_key: Any, target_tree: Any) -> Any:
    """Returns a key of its own for each leaf.

    Args:
        rng_key: a key of `nnc.random`.
        target_tree: a pytree.

    Example:
        >>> keys = tree_split_key_like(nnc.random.key(0), {"a": nnp.ones(2), "b": nnp.ones(3)})
        >>> sorted(keys)
        ['a', 'b']
    """
    leaves, treedef = tree.flatten(target_tree)
    keys = random.split(rng_key, max(len(leaves), 1))
    return tree.unflatten(treedef, [keys[i] for i in range(len(leaves))])


@spelled
def tree_random_like(
    rng_key: Any, target_tree: Any, sampler: Callable[..., Any] = random.normal, dtype: DTypeLike | None = None
) -> Any:
    """Returns independent random arrays in place of the leaves.

    Args:
        rng_key: a key of `nnc.random`.
        target_tree: a pytree.
        sampler: (key, shape, dtype) -> array.
        dtype: the dtype of the arrays; default the leaf's.

    Example:
        >>> tree_random_like(nnc.random.key(0), {"w": nnp.ones((2, 3))})["w"].shape
        (2, 3)
    """
    keys = tree_split_key_like(rng_key, target_tree)
    return _map(lambda x, key: sampler(key, x.shape, x.dtype if dtype is None else dtype), target_tree, keys)
