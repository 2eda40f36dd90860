"""SM3: AdaGrad with the memory of one vector for each axis of an array."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import nnc.numpy as nnp
from nnc import tree
from nnc.array.array import Array, asarray
from nnc.array.promote import astype
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.optim.arguments import Scalar, check_scalar, is_trainable
from nnc.optim.base import GradientTransformation, map_trainable, number, stateful, widen
from nnc.optim.clipping import squared_magnitude
from nnc.optim.moments import average, check_decays, zeros_state
from nnc.optim.schedules import Schedule
from nnc.optim.transforms import stepping

__all__ = ["ScaleBySM3State", "scale_by_sm3", "sm3"]


class ScaleBySM3State(NamedTuple):
    """Greatest sums of squares along each axis, and means of updates.

    Attributes:
        mu: for each array a tuple of vectors, one for each axis; a 0-d array has one number.
        nu: means of updates, a tree like the parameters.

    Example:
        >>> state = nnc.optim.scale_by_sm3().init(nnp.ones(2))
        >>> state.nu
        Array([0., 0.], dtype=float32)
    """

    mu: Any
    nu: Any


@spelled
def scale_by_sm3(b1: Scalar = 0.9, b2: Scalar = 1.0, eps: Scalar = 1e-8) -> GradientTransformation:
    """Divides by roots of sums of squares that are kept for each axis only (Anil et al., "Memory-efficient adaptive optimization",
    2019).

    v[i, j, …] = b2 · min(a[i], b[j], …) + (1 − b2) · |g|²,  or min(a[i], b[j], …) + |g|² where b2 is 1
    a[i] ← the greatest of v over all axes but the first, …
    u = m ← b1 · m + (1 − b1) · g / sqrt(v + eps)

    Args:
        b1: decay of the mean of updates, in [0, 1).
        b2: decay of the sums of squares, in (0, 1]; 1 keeps all.
        eps: added inside the root.

    Example:
        >>> transformation = nnc.optim.scale_by_sm3()
        >>> params = nnp.asarray([3.0, 4.0])
        >>> transformation.update(nnp.asarray([1.0, -2.0]), transformation.init(params), params)[0]
        Array([ 0.1, -0.1], dtype=float32)
    """
    where = "scale_by_sm3"
    check_decays(where, b1=b1)
    check_scalar(where, "b2", b2, positive=True)
    check_scalar(where, "eps", eps)

    def init_fn(params: Any) -> ScaleBySM3State:
        means = zeros_state(where, params)

        def vectors(leaf: Any) -> Any:
            if not is_trainable(leaf):
                return ()
            x = asarray(leaf)
            kind = dtypes.real_dtype(dtypes.accumulator(x.dtype))
            return tuple(asarray(np.zeros(n, kind)) for n in (x.shape or ((),)))

        return ScaleBySM3State(tree.map(vectors, params), means)

    def update_fn(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        map_trainable(where, lambda m, g: m, "nu", state.nu, updates=updates)  # checks structure and shapes
        vectors = iter(tree.leaves(state.mu))
        moves: list[Any] = []
        kept: list[Any] = []
        for leaf in tree.leaves(updates):
            if not is_trainable(leaf):
                moves.append(leaf)
                kept.append(())
                continue
            g = asarray(leaf)
            old = [next(vectors) for _ in range(max(g.ndim, 1))]
            total = _sum_of_squares(g, old, b2)
            wide = widen(g)
            root = nnp.sqrt(nnp.where(total > 0, total + number(eps, total.dtype), 1))
            moves.append(wide * nnp.where(total > 0, 1 / root, 0))
            kept.append(tuple(_peaks(total)))
        steps = tree.unflatten_like(updates, moves)
        nu = map_trainable(where, lambda m, u: average(b1, u, m), "nu", state.nu, updates=steps)
        u = map_trainable(where, lambda g, m: astype(m, g.dtype), "updates", updates, nu=nu)
        return u, ScaleBySM3State(tree.unflatten_like(updates, kept), nu)

    return stateful(where, ScaleBySM3State, init_fn, update_fn)


def _sum_of_squares(g: Array, vectors: list[Array], b2: Scalar) -> Array:
    least = vectors[0] if g.ndim < 2 else None
    for axis, vector in enumerate(vectors if g.ndim > 1 else ()):
        along = nnp.reshape(vector, (1,) * axis + vector.shape + (1,) * (g.ndim - axis - 1))
        least = along if least is None else nnp.minimum(least, along)
    assert least is not None
    square = astype(squared_magnitude(widen(g)), least.dtype)
    decay = number(b2, least.dtype)
    if isinstance(b2, (int, float)):
        return least * decay + square * (1 if b2 == 1 else 1 - decay)
    return least * decay + square * nnp.where(decay == 1, 1, 1 - decay)


def _peaks(total: Array) -> list[Array]:
    """Returns the greatest sums along each axis; 0 of arrays without elements."""
    if total.ndim < 2:
        return [total]
    others = [tuple(range(i)) + tuple(range(i + 1, total.ndim)) for i in range(total.ndim)]
    return [nnp.max(total, axis=axes, initial=0) for axes in others]


@spelled
def sm3(learning_rate: Scalar | Schedule, momentum: Scalar = 0.9) -> GradientTransformation:
    """SM3 (Anil et al., "Memory-efficient adaptive optimization", 2019): AdaGrad, with m + n sums for a matrix of m · n.

    p ← p − learning_rate · m,    m ← momentum · m + (1 − momentum) · g / sqrt(v + 1e-8); see `scale_by_sm3` for v

    Args:
        learning_rate: a number, a 0-d array or a schedule.
        momentum: decay of the mean of updates, in [0, 1).

    Example:
        >>> optimizer = nnc.optim.sm3(0.1, momentum=0.0)
        >>> optimizer.update(nnp.asarray([3.0, -4.0]), optimizer.init(nnp.ones(2)))[0]
        Array([-0.1,  0.1], dtype=float32)
    """
    return stepping("sm3", learning_rate, scale_by_sm3(momentum))
