"""Clipping of gradients, and norms over whole trees."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import nnc.numpy as nnp
from nnc import tree
from nnc.array.array import Array, asarray
from nnc.array.promote import astype, promote, result_dtype
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.commands import elementwise as ew
from nnc.errors import ShapeError, user_error
from nnc.numpy.norms import wide_euclidean
from nnc.numpy.scaling import scaled_sum_of_squares
from nnc.optim.arguments import Scalar, check_scalar, is_trainable
from nnc.optim.base import GradientTransformation, leafwise, map_trainable, number, stateless, widen
from nnc.typing import ArrayLike

__all__ = [
    "adaptive_grad_clip",
    "clip",
    "clip_by_block_rms",
    "clip_by_global_norm",
    "clip_by_norm",
    "global_norm",
    "unitwise_clip",
    "unitwise_norm",
]


def squared_magnitude(x: Array) -> Array:
    """|x|², real also for complex `x`."""
    return x.real * x.real + x.imag * x.imag if dtypes.is_complex(x.dtype) else x * x


def norm(x: Array) -> Array:
    """Returns the Euclidean norm of all elements."""
    return nnp.linalg.vector_norm(x)


@spelled
def global_norm(updates: Any) -> Array:
    """Returns the Euclidean norm of all floating-point leaves together: sqrt(sum over leaves and elements of |x|²).

    Args:
        updates: a pytree; 16-bit floats are summed in float32.

    Returns:
        a 0-d array, float32 for a tree without float leaves.

    Example:
        >>> nnc.optim.global_norm({"a": nnp.asarray([3.0]), "b": nnp.asarray([4.0])})
        Array(5., dtype=float32)
    """
    dtype, total = _norm_of_leaves(updates)
    return astype(total, dtype)


def _norm_of_leaves(updates: Any) -> tuple[dtypes.DType, Array]:
    """Returns the dtype of a global norm, and the norm, in a dtype that holds it also where that one does not."""
    leaves = [widen(asarray(x)) for x in tree.leaves(updates) if is_trainable(x)]
    if not leaves:
        return dtypes.float32, asarray(0.0)
    dtype = dtypes.real_dtype(result_dtype(*leaves, where="global_norm"))
    parts = [scaled_sum_of_squares(x, tuple(range(x.ndim))) for x in leaves]
    roots, factors = (nnp.stack(promote(*values, where="global_norm")) for values in zip(*parts, strict=True))
    norms = astype(ew.length(roots), dtypes.float64) / astype(factors, dtypes.float64)
    return dtype, norms[0] if len(leaves) == 1 else nnp.linalg.vector_norm(norms)


def _wide_norm(x: Array) -> Array:
    """Returns the Euclidean norm of all elements, in the dtype in which it is computed."""
    return wide_euclidean(x, tuple(range(x.ndim)))


@spelled
def clip(max_delta: Scalar) -> GradientTransformation:
    """Limits each element of the updates to [−max_delta, max_delta], of complex ones both parts; inf limits nothing.

    Args:
        max_delta: largest size of an element.

    Example:
        >>> transformation = nnc.optim.clip(1.0)
        >>> transformation.update(nnp.asarray([-3.0, 0.5]), transformation.init(nnp.zeros(2)))[0]
        Array([-1. ,  0.5], dtype=float32)
    """
    check_scalar("clip", "max_delta", max_delta, positive=True, infinite=True)

    def limit(u: Array) -> Array:
        if dtypes.is_complex(u.dtype):
            return limit(u.real) + limit(u.imag) * 1j
        bound = number(max_delta, u.dtype)
        return nnp.minimum(nnp.maximum(u, -bound), bound)

    return leafwise("clip", limit)


def rms(x: Array) -> Array:
    """Returns the root of the mean of |x|²; 0 for an empty array."""
    return astype(_wide_norm(x) / math.sqrt(max(x.size, 1)), dtypes.real_dtype(x.dtype))


@spelled
def clip_by_norm(max_norm: Scalar) -> GradientTransformation:
    """Shrinks each array by itself so that its norm is at most `max_norm`.

    u' = u · max_norm / max(‖u‖, max_norm)

    Args:
        max_norm: largest norm of an array.

    Example:
        >>> transformation = nnc.optim.clip_by_norm(1.0)
        >>> transformation.update([nnp.asarray([3.0, 4.0]), nnp.asarray([0.5])], transformation.init(nnp.zeros(2)))[0]
        [Array([0.6, 0.8], dtype=float32), Array([0.5], dtype=float32)]
    """
    check_scalar("clip_by_norm", "max_norm", max_norm, positive=True, infinite=True)
    return _clip_each("clip_by_norm", max_norm, _wide_norm)


@spelled
def clip_by_block_rms(threshold: Scalar) -> GradientTransformation:
    """Shrinks each array so that the root of the mean of its squares is at most `threshold` (Shazeer and Stern, "Adafactor",
    2018).

    Args:
        threshold: largest root mean square of an array.

    Example:
        >>> transformation = nnc.optim.clip_by_block_rms(1.0)
        >>> transformation.update(nnp.asarray([4.0, 4.0]), transformation.init(nnp.zeros(2)))[0]
        Array([1., 1.], dtype=float32)
    """
    check_scalar("clip_by_block_rms", "threshold", threshold, positive=True, infinite=True)
    return _clip_each("clip_by_block_rms", threshold, rms)


# Below it a factor may be no normal number of float32. It is a power of two, so that products with it are exact.
_TINY = 2.0**-100


def _shrink(u: Array, size: Array, bound: Any) -> Array:
    """u · bound / max(size, bound), which is u itself where the bound is infinite; the size may be of a dtype with more range."""
    within = size <= bound
    factor = nnp.where(within, 1, bound / nnp.where(within, 1, size))
    first = number(nnp.where(factor < _TINY, _TINY, 1), u.dtype)
    then = number(nnp.where(factor < _TINY, factor / _TINY, factor), u.dtype)
    return u * then * first  # the later number first, so that both products are one step


def _clip_each(where: str, bound: Scalar, size: Callable[[Array], Array]) -> GradientTransformation:
    """Shrinks each array to a size of at most `bound`."""

    def shrink(u: Array) -> Array:
        wide = widen(u)
        here = size(wide)
        return astype(_shrink(wide, here, number(bound, here.dtype)), u.dtype)

    return leafwise(where, shrink)


@spelled
def adaptive_grad_clip(
    clipping: Scalar, eps: Scalar = 1e-3, axis: int | tuple[int, ...] | None = None
) -> GradientTransformation:
    """Limits the norm of each unit's gradient to a share of the norm of its weights (Brock et al., "High-performance
    large-scale image recognition without normalization", 2021).

    u' = u · min(1, clipping · max(‖p‖, eps) / ‖u‖),  norms over the axes that are summed in one output

    Args:
        clipping: the share.
        eps: least norm of weights that counts.
        axis: the axes of a norm; None: all of arrays with at most one axis longer than 1, else all but the last of up
            to four axes, as weights lie in Optax's convolutions (`(*window, in, out)`); of nnc.nn's `(out, in,
            *window)` weights it is `axis=tuple(range(1, p.ndim))`, by `multi_transform` where ranks differ.

    Raises:
        ArgumentTypeError (from update): params were not given.

    Example:
        >>> transformation = nnc.optim.adaptive_grad_clip(0.1)
        >>> transformation.update(nnp.asarray([3.0, 4.0]), transformation.init(nnp.ones(2)), nnp.asarray([6.0, 8.0]))[0]
        Array([0.6, 0.8], dtype=float32)
    """
    where = "adaptive_grad_clip"
    check_scalar(where, "clipping", clipping, positive=True, infinite=True)
    check_scalar(where, "eps", eps)

    def shrink(u: Array, p: Any) -> Array:
        wide = widen(u)
        u_norm, p_norm = (_unit_norm(astype(asarray(x), wide.dtype), axis) for x in (u, p))
        limit = nnp.maximum(p_norm, number(eps, p_norm.dtype)) * number(clipping, p_norm.dtype)
        return astype(_shrink(wide, u_norm, limit), u.dtype)

    return leafwise(where, shrink, reads_params=True)


@spelled
def unitwise_norm(x: ArrayLike, axis: int | tuple[int, ...] | None = None) -> Array:
    """Returns the norm of each unit, the weights that are summed in one output, in the shape of x.

    Args:
        x: floats.
        axis: the axes of a norm; None: as `adaptive_grad_clip` chooses them.

    Example:
        >>> nnc.optim.unitwise_norm(nnp.asarray([[3.0, 1.0], [4.0, 0.0]]))
        Array([[5., 1.],
               [5., 1.]], dtype=float32)
    """
    x = asarray(x)
    return nnp.broadcast_to(_unit_norm(x, axis), x.shape)


@spelled
def unitwise_clip(g_norm: ArrayLike, max_norm: ArrayLike, grad: ArrayLike, div_eps: Scalar = 1e-6) -> Array:
    """Limits a gradient unit by unit: g · min(1, max_norm / g_norm), where g_norm is at least max_norm.

    Args:
        g_norm: norms of the units of the gradient, from `unitwise_norm`.
        max_norm: the largest norms, in the shape of g_norm.
        grad: the gradient, in the shape of g_norm.
        div_eps: least g_norm to divide by.

    Raises:
        ShapeError: shapes differ.

    Example:
        >>> g = nnp.asarray([3.0, 4.0])
        >>> nnc.optim.unitwise_clip(nnc.optim.unitwise_norm(g), nnp.ones(2), g)
        Array([0.6, 0.8], dtype=float32)
    """
    norms, most, g = asarray(g_norm), asarray(max_norm), asarray(grad)
    if not norms.shape == most.shape == g.shape:
        problem = "the shapes differ."
        operands = {"g_norm": norms.spec, "max_norm": most.spec, "grad": g.spec}
        fix = "pass norms of the gradient's shape, as unitwise_norm gives them."
        raise user_error(ShapeError, "unitwise_clip", problem, operands=operands, fix=fix)
    return nnp.where(norms < most, g, g * (most / nnp.maximum(norms, number(div_eps, norms.dtype))))


def _unit_norm(x: Array, axis: int | tuple[int, ...] | None) -> Array:
    """Returns the norm over `axis`, with the axes kept."""
    if axis is None and sum(n != 1 for n in x.shape) > 1:
        axis = tuple(range(x.ndim - 1)) if x.ndim != 3 else 0
    return nnp.linalg.vector_norm(x, axis=axis, keepdims=True)


@spelled
def clip_by_global_norm(max_norm: Scalar) -> GradientTransformation:
    """Shrinks all updates together so that their norm is at most `max_norm` (Pascanu et al., "On the difficulty of training
    recurrent neural networks", 2013).

    u' = u · max_norm / max(‖u‖, max_norm)

    Updates within the norm are not changed in any bit.

    Args:
        max_norm: largest norm of all updates together.

    Example:
        >>> transformation = nnc.optim.clip_by_global_norm(1.0)
        >>> transformation.update(nnp.asarray([3.0, 4.0]), transformation.init(nnp.zeros(2)))[0]
        Array([0.6, 0.8], dtype=float32)
    """
    check_scalar("clip_by_global_norm", "max_norm", max_norm, positive=True, infinite=True)

    def update(updates: Any, params: Any) -> Any:
        size = _norm_of_leaves(updates)[1]
        bound = number(max_norm, size.dtype)

        def shrink(u: Array) -> Array:
            return astype(_shrink(widen(u), size, bound), u.dtype)

        return map_trainable("clip_by_global_norm", shrink, "updates", updates)

    return stateless("clip_by_global_norm", update)
