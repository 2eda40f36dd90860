"""Transformations that keep updates or parameters within bounds: centred, normalised, without nan, not below 0."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import nnc.numpy as nnp
from nnc.array.array import Array, asarray
from nnc.array.promote import as_operand, astype
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.errors import DTypeError, user_error
from nnc.optim.arguments import Scalar, check_scalar
from nnc.optim.base import (
    GradientTransformation,
    leafwise,
    make_state,
    map_trainable,
    number,
    stateful,
    stateless,
    widen,
)
from nnc.optim.clipping import global_norm, norm

__all__ = [
    "ZeroNansState",
    "centralize",
    "keep_params_nonnegative",
    "normalize_by_update_norm",
    "scale_by_param_block_norm",
    "zero_nans",
]


@spelled
def centralize() -> GradientTransformation:
    """Takes the mean over all axes but the first from updates of at least two axes (Yong et al., "Gradient centralization", 2020).

    Weights of nnc.nn have outputs on their first axis; for weights (in, out) it centres each input's.

    Example:
        >>> nnc.optim.centralize().update(nnp.asarray([[1.0, 3.0], [2.0, 2.0]]), nnc.optim.EmptyState())[0]
        Array([[-1.,  1.],
               [ 0.,  0.]], dtype=float32)
    """

    def centre(u: Array) -> Array:
        if u.ndim < 2 or u.size == 0:
            return u
        wide = widen(u)
        return astype(wide - nnp.mean(wide, axis=tuple(range(1, u.ndim)), keepdims=True), u.dtype)

    return leafwise("centralize", centre)


@spelled
def normalize_by_update_norm(scale_factor: Scalar = 1.0, eps: Scalar = 1e-6) -> GradientTransformation:
    """Gives all updates together a constant norm.

    u' = scale_factor · u / (‖u‖ + eps)

    Args:
        scale_factor: the norm.
        eps: added to the norm of the updates.

    Example:
        >>> transformation = nnc.optim.normalize_by_update_norm(10.0, eps=0.0)
        >>> transformation.update(nnp.asarray([3.0, 4.0]), transformation.init(nnp.zeros(2)))[0]
        Array([6., 8.], dtype=float32)
    """
    where = "normalize_by_update_norm"
    check_scalar(where, "scale_factor", scale_factor, positive=True)
    check_scalar(where, "eps", eps)

    def update(updates: Any, params: Any) -> Any:
        size = global_norm(updates)
        divisor = (size + number(eps, size.dtype)) / number(scale_factor, size.dtype)

        def divide(u: Array) -> Array:
            wide = widen(u)
            return astype(wide / number(divisor, wide.dtype), u.dtype)

        return map_trainable(where, divide, "updates", updates)

    return stateless(where, update)


@spelled
def scale_by_param_block_norm(min_scale: Scalar = 1e-3) -> GradientTransformation:
    """Multiplies each array's update by the norm of its parameters, at least min_scale.

    Args:
        min_scale: least norm that counts.

    Raises:
        ArgumentTypeError (from update): params were not given.

    Example:
        >>> transformation = nnc.optim.scale_by_param_block_norm()
        >>> transformation.update(nnp.ones(2), transformation.init(nnp.ones(2)), nnp.asarray([3.0, 4.0]))[0]
        Array([5., 5.], dtype=float32)
    """
    return scale_by_size("scale_by_param_block_norm", min_scale, norm)


def scale_by_size(where: str, min_scale: Scalar, size_of: Callable[[Array], Array]) -> GradientTransformation:
    """Multiplies each update by the size of its parameter, at least `min_scale`."""
    check_scalar(where, "min_scale", min_scale)

    def multiply(u: Array, p: Any) -> Array:
        wide = widen(u)
        size = size_of(astype(asarray(p), wide.dtype))
        return astype(wide * nnp.maximum(size, number(min_scale, size.dtype)), u.dtype)

    return leafwise(where, multiply, reads_params=True)


@spelled
def keep_params_nonnegative() -> GradientTransformation:
    """Changes updates so that parameters do not fall below 0, the last link of a chain.

    u' = u where p + u ≥ 0, else −p

    Raises:
        ArgumentTypeError (from update): params were not given.
        DTypeError (from update): a parameter is complex.

    Example:
        >>> transformation = nnc.optim.keep_params_nonnegative()
        >>> transformation.update(nnp.asarray([-2.0, -0.5]), transformation.init(nnp.ones(2)), nnp.ones(2))[0]
        Array([-1. , -0.5], dtype=float32)
    """
    where = "keep_params_nonnegative"

    def bound(u: Array, p: Any) -> Array:
        if dtypes.is_complex(u.dtype):
            fix = "leave complex leaves out with nnc.optim.masked."
            raise user_error(DTypeError, where, "complex numbers have no order.", operands={"updates": u.spec}, fix=fix)
        wide = widen(u)
        at = astype(as_operand(p), wide.dtype)
        return astype(nnp.where(at + wide < 0, -at, wide), u.dtype)

    return leafwise(where, bound, reads_params=True)


class ZeroNansState(NamedTuple):
    """Which arrays had a nan in the last update.

    Attributes:
        found_nan: a 0-d bool for each parameter.

    Example:
        >>> state = nnc.optim.zero_nans().init(nnp.ones(2))
        >>> state.found_nan
        Array(False, dtype=bool)
    """

    found_nan: Any


@spelled
def zero_nans() -> GradientTransformation:
    """Replaces each nan in the updates by 0; its state tells which arrays had one.

    `apply_if_finite` leaves whole steps out instead.

    Example:
        >>> transformation = nnc.optim.zero_nans()
        >>> transformation.update(nnp.asarray([np.nan, 1.0]), transformation.init(nnp.zeros(2)))
        (Array([0., 1.], dtype=float32), ZeroNansState(found_nan=Array(True, dtype=bool)))
    """
    where = "zero_nans"

    def init_fn(params: Any) -> ZeroNansState:
        return ZeroNansState(make_state(where, lambda p: asarray(np.array(False)), params))

    def update_fn(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        found = make_state(where, lambda u: nnp.any(nnp.isnan(u)), updates)
        return map_trainable(where, lambda u: nnp.where(nnp.isnan(u), 0, u), "updates", updates), ZeroNansState(found)

    return stateful(where, ZeroNansState, init_fn, update_fn)
