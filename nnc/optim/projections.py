"""Projections: the nearest point of a convex set, for parameters that must stay in one.

After each step, `params = nnc.optim.projection_simplex(params)` makes projected gradient descent of any optimizer. All of them take
trees, whose floating-point leaves together are one vector; other leaves stay.
"""

from __future__ import annotations

from typing import Any

import nnc.numpy as nnp
from nnc import tree
from nnc.array.array import Array, asarray
from nnc.array.promote import as_operand, astype
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.errors import ArgumentError, DTypeError, user_error
from nnc.optim.arguments import Scalar, check_scalar, is_trainable
from nnc.optim.base import map_trainable, number, widen
from nnc.optim.clipping import global_norm
from nnc.optim.linesearch import ravel, unravel
from nnc.optim.precision import select_tree
from nnc.optim.totals import inner_product, magnitudes, squared_norm
from nnc.optim.transforms import scaled
from nnc.typing import A

__all__ = [
    "projection_box",
    "projection_halfspace",
    "projection_hypercube",
    "projection_hyperplane",
    "projection_l1_ball",
    "projection_l1_sphere",
    "projection_l2_ball",
    "projection_l2_sphere",
    "projection_linf_ball",
    "projection_non_negative",
    "projection_simplex",
    "projection_vector",
]


def _check_real(where: str, values: Any) -> None:
    for leaf in tree.leaves(values):
        if is_trainable(leaf) and dtypes.is_complex(asarray(leaf).dtype):
            problem = "complex numbers have no order."
            fix = "project the real and the imaginary parts."
            raise user_error(DTypeError, where, problem, operands={"tree": asarray(leaf).spec}, fix=fix)


@spelled
def projection_non_negative(tree: A) -> A:
    """Returns the nearest tree whose elements are at least 0: max(x, 0).

    Args:
        tree: a pytree.

    Raises:
        DTypeError: a leaf is complex.

    Example:
        >>> nnc.optim.projection_non_negative({"w": nnp.asarray([-1.0, 2.0])})
        {'w': Array([0., 2.], dtype=float32)}
    """
    where = "projection_non_negative"
    _check_real(where, tree)
    return map_trainable(where, lambda x: nnp.maximum(x, 0), "tree", tree)


@spelled
def projection_box(tree: A, lower: Any, upper: Any) -> A:
    """Returns the nearest tree whose elements lie in [lower, upper].

    Args:
        tree: a pytree.
        lower: a number, or a tree of bounds like `tree`.
        upper: a number, or a tree of bounds like `tree`.

    Raises:
        DTypeError: a leaf is complex.

    Example:
        >>> nnc.optim.projection_box(nnp.asarray([-1.0, 0.5, 4.0]), 0.0, 2.0)
        Array([0. , 0.5, 2. ], dtype=float32)
    """
    where = "projection_box"
    _check_real(where, tree)

    def clip(x: Array, low: Any, high: Any) -> Array:
        return nnp.minimum(nnp.maximum(x, astype(as_operand(low), x.dtype)), astype(as_operand(high), x.dtype))

    bounds = [_like(tree, bound) for bound in (lower, upper)]
    return map_trainable(where, clip, "tree", tree, lower=bounds[0], upper=bounds[1])


def _like(values: Any, bound: Any) -> Any:
    """Returns a bound for each leaf of `values`, in its shape."""
    if not tree.is_array(bound) or getattr(bound, "shape", ()) != ():
        return bound

    def fill(x: Array) -> Array:
        return nnp.broadcast_to(astype(as_operand(bound), x.dtype), x.shape)

    return map_trainable("projection_box", fill, "tree", values)


@spelled
def projection_hypercube(tree: A, scale: Any = 1) -> A:
    """Returns the nearest tree whose elements lie in [0, scale].

    Args:
        tree: a pytree.
        scale: a number, or a tree of numbers like `tree`.

    Raises:
        DTypeError: a leaf is complex.

    Example:
        >>> nnc.optim.projection_hypercube(nnp.asarray([-1.0, 0.5, 4.0]))
        Array([0. , 0.5, 1. ], dtype=float32)
    """
    return projection_box(tree, 0, scale)


@spelled
def projection_linf_ball(tree: A, scale: Scalar = 1) -> A:
    """Returns the nearest tree whose elements have a size of at most `scale`.

    Args:
        tree: a pytree.
        scale: the bound.

    Raises:
        DTypeError: a leaf is complex.

    Example:
        >>> nnc.optim.projection_linf_ball(nnp.asarray([-3.0, 0.5]))
        Array([-1. ,  0.5], dtype=float32)
    """
    check_scalar("projection_linf_ball", "scale", scale)
    return projection_box(tree, -scale, scale)


@spelled
def projection_simplex(tree: A, scale: Scalar = 1) -> A:
    """Returns the nearest tree whose elements are at least 0 and add up to `scale` (Duchi et al., "Efficient projections onto
    the l1-ball", 2008).

    Cost: a sort of all elements.

    Args:
        tree: a pytree of at least one element.
        scale: the sum, above 0.

    Raises:
        ArgumentError: the tree has no floating-point elements.
        DTypeError: a leaf is complex.

    Example:
        >>> nnc.optim.projection_simplex({"a": nnp.asarray([0.5, -1.0]), "b": nnp.asarray(1.5)})
        {'a': Array([0., 0.], dtype=float32), 'b': Array(1., dtype=float32)}
    """
    where = "projection_simplex"
    check_scalar(where, "scale", scale, positive=True)
    _check_real(where, tree)
    values = ravel(tree)
    if values.size == 0:
        problem = "the tree has no floating-point elements, which cannot add up to anything."
        raise user_error(ArgumentError, where, problem, fix="give at least one element.")
    return unravel(tree, _simplex(values, number(scale, values.dtype)))


def _simplex(values: Array, scale: Any) -> Array:
    """max(x − θ, 0), with the θ for which the sum is `scale`."""
    descending = nnp.sort(values)[::-1]
    places = astype(nnp.arange(1, values.size + 1), values.dtype)
    thresholds = (nnp.cumsum(descending) - scale) / places
    last = nnp.sum(descending > thresholds) - 1  # the support: elements above their own threshold
    return nnp.maximum(values - thresholds[last], 0)


@spelled
def projection_l1_sphere(tree: A, scale: Scalar = 1) -> A:
    """Returns a nearest tree whose absolute elements add up to `scale`.

    Args:
        tree: a pytree of at least one element.
        scale: the sum, above 0.

    Raises:
        ArgumentError: the tree has no floating-point elements.
        DTypeError: a leaf is complex.

    Example:
        >>> nnc.optim.projection_l1_sphere(nnp.asarray([2.0, -1.5]))
        Array([ 0.75, -0.25], dtype=float32)
    """
    where = "projection_l1_sphere"
    _check_real(where, tree)
    sizes = projection_simplex(map_trainable(where, nnp.abs, "tree", tree), scale)
    return map_trainable(where, lambda x, size: nnp.sign(x) * size, "tree", tree, sizes=sizes)


@spelled
def projection_l1_ball(tree: A, scale: Scalar = 1) -> A:
    """Returns the nearest tree whose absolute elements add up to at most `scale`; many of its elements are 0.

    Args:
        tree: a pytree of at least one element.
        scale: the bound, above 0.

    Raises:
        ArgumentError: the tree has no floating-point elements.
        DTypeError: a leaf is complex.

    Example:
        >>> nnc.optim.projection_l1_ball(nnp.asarray([2.0, -0.5]))
        Array([ 1., -0.], dtype=float32)
    """
    on_sphere = projection_l1_sphere(tree, scale)
    size = magnitudes("projection_l1_ball", tree)
    return select_tree(size <= number(scale, size.dtype), tree, on_sphere)


@spelled
def projection_l2_sphere(tree: A, scale: Scalar = 1) -> A:
    """Returns the nearest tree whose norm is `scale`: scale · x / ‖x‖; nan for zeros, where all such trees are equally near.

    Args:
        tree: a pytree.
        scale: the norm.

    Example:
        >>> nnc.optim.projection_l2_sphere(nnp.asarray([3.0, 4.0]))
        Array([0.6, 0.8], dtype=float32)
    """
    where = "projection_l2_sphere"
    check_scalar(where, "scale", scale)
    size = global_norm(tree)
    return scaled(where, tree, number(scale, size.dtype) / size)


@spelled
def projection_l2_ball(tree: A, scale: Scalar = 1) -> A:
    """Returns the nearest tree whose norm is at most `scale`: x · min(1, scale / ‖x‖).

    Args:
        tree: a pytree.
        scale: the bound.

    Example:
        >>> nnc.optim.projection_l2_ball([nnp.asarray([3.0, 4.0]), nnp.asarray(0.0)])
        [Array([0.6, 0.8], dtype=float32), Array(0., dtype=float32)]
    """
    where = "projection_l2_ball"
    check_scalar(where, "scale", scale)
    size = global_norm(tree)
    bound = number(scale, size.dtype)
    within = size <= bound
    factor = nnp.where(within, 1, bound / nnp.where(within, 1, size))
    return scaled(where, tree, factor)


# -- hyperplanes -------------------------------------------------------------------------------------------------------


def _along(where: str, x: Any, a: Any, factor: Array) -> Any:
    """x + factor · a."""

    def add(u: Array, v: Any) -> Array:
        wide = widen(u)
        return astype(wide + astype(as_operand(v), wide.dtype) * number(factor, wide.dtype), u.dtype)

    return map_trainable(where, add, "x", x, a=a)


def _distance(where: str, x: Any, a: Any, b: Scalar) -> Array:
    """(b − ⟨x, a⟩) / ‖a‖²."""
    product = inner_product(where, "x", x, a=a)
    return (number(b, product.dtype) - product) / astype(squared_norm(where, a), product.dtype)


@spelled
def projection_vector(x: A, a: Any) -> A:
    """Returns the nearest multiple of `a`: ⟨x, a⟩ / ‖a‖² · a.

    Args:
        x: a pytree.
        a: a tree like x, not all 0.

    Raises:
        TreeError, ShapeError: the two do not match.

    Example:
        >>> nnc.optim.projection_vector(nnp.asarray([1.0, 2.0]), nnp.asarray([0.0, 5.0]))
        Array([0., 2.], dtype=float32)
    """
    where = "projection_vector"
    return scaled(where, a, -_distance(where, x, a, 0.0))


@spelled
def projection_hyperplane(x: A, a: Any, b: Scalar) -> A:
    """Returns the nearest y with ⟨y, a⟩ = b: x + (b − ⟨x, a⟩) / ‖a‖² · a.

    Args:
        x: a pytree.
        a: a tree like x, not all 0.
        b: the product.

    Raises:
        TreeError, ShapeError: x and a do not match.

    Example:
        >>> nnc.optim.projection_hyperplane(nnp.asarray([1.0, 3.0]), nnp.asarray([1.0, 1.0]), 2.0)
        Array([0., 2.], dtype=float32)
    """
    where = "projection_hyperplane"
    return _along(where, x, a, _distance(where, x, a, b))


@spelled
def projection_halfspace(x: A, a: Any, b: Scalar) -> A:
    """Returns the nearest y with ⟨y, a⟩ ≤ b: x + min((b − ⟨x, a⟩) / ‖a‖², 0) · a.

    Args:
        x: a pytree.
        a: a tree like x, not all 0.
        b: the bound.

    Raises:
        TreeError, ShapeError: x and a do not match.

    Example:
        >>> nnc.optim.projection_halfspace(nnp.asarray([1.0, 3.0]), nnp.asarray([1.0, 1.0]), 9.0)
        Array([1., 3.], dtype=float32)
    """
    where = "projection_halfspace"
    return _along(where, x, a, nnp.minimum(_distance(where, x, a, b), 0))
