"""Clipping of gradients, and norms over whole trees."""

from __future__ import annotations

from typing import Any

import nnc.numpy as nnp
from nnc import dtypes, tree
from nnc.array import asarray
from nnc.commands.promote import astype, result_dtype
from nnc.commands.rules import Value
from nnc.optim.arguments import Scalar, check_scalar, is_trainable
from nnc.optim.base import GradientTransformation, map_trainable, number, stateless, widen
from nnc.spelling import spelled


def squared_magnitude(x: Value) -> Value:
    """|x|², real also for complex `x`."""
    return x.real * x.real + x.imag * x.imag if dtypes.is_complex(x.dtype) else x * x


def norm(x: Value) -> Value:
    """The Euclidean norm of all elements."""
    return nnp.sqrt(nnp.sum(squared_magnitude(x)))


def global_norm(updates: Any) -> Value:
    """The Euclidean norm of all floating-point leaves together: sqrt(sum over leaves and elements of |x|²).

    Args:     updates: a pytree; 16-bit floats are summed in float32.
    Returns:  a 0-d array, float32 for a tree without float leaves.
    Example:
        >>> nnc.optim.global_norm({"a": nnp.asarray([3.0]), "b": nnp.asarray([4.0])})
        Array(5., dtype=float32)
    """
    parts = [nnp.sum(squared_magnitude(widen(asarray(x)))) for x in tree.leaves(updates) if is_trainable(x)]
    if not parts:
        return asarray(0.0)
    dtype = result_dtype(*parts, where="global_norm")
    total = astype(parts[0], dtype)
    for part in parts[1:]:
        total = total + astype(part, dtype)
    return nnp.sqrt(total)


@spelled
def clip(max_delta: Scalar) -> GradientTransformation:
    """Limits each element of the updates to [−max_delta, max_delta].

    Example:
        >>> transformation = nnc.optim.clip(1.0)
        >>> transformation.update(nnp.asarray([-3.0, 0.5]), transformation.init(nnp.zeros(2)))[0]
        Array([-1. ,  0.5], dtype=float32)
    """
    check_scalar("clip", "max_delta", max_delta, positive=True)

    def limit(u: Value) -> Value:
        bound = number(max_delta, u.dtype)
        return nnp.minimum(nnp.maximum(u, -bound), bound)

    return stateless("clip", lambda updates, params: map_trainable("clip", limit, "updates", updates))


@spelled
def clip_by_global_norm(max_norm: Scalar) -> GradientTransformation:
    """Shrinks all updates together so that their norm is at most `max_norm` (Pascanu et al., "On the difficulty of training
    recurrent neural networks", 2013).

    u' = u · max_norm / max(‖u‖, max_norm)

    Updates within the norm are not changed in any bit.

    Example:
        >>> transformation = nnc.optim.clip_by_global_norm(1.0)
        >>> transformation.update(nnp.asarray([3.0, 4.0]), transformation.init(nnp.zeros(2)))[0]
        Array([0.6, 0.8], dtype=float32)
    """
    check_scalar("clip_by_global_norm", "max_norm", max_norm, positive=True)

    def update(updates: Any, params: Any) -> Any:
        size = global_norm(updates)
        bound = number(max_norm, size.dtype)
        factor = bound / nnp.maximum(size, bound)

        def shrink(u: Value) -> Value:
            wide = widen(u)
            return astype(wide * number(factor, wide.dtype), u.dtype)

        return map_trainable("clip_by_global_norm", shrink, "updates", updates)

    return stateless("clip_by_global_norm", update)
