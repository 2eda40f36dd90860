"""Rotary position embedding: places of queries and keys as rotations."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import nnc.numpy as nnp
from nnc.array.array import Array
from nnc.array.promote import promote
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.commands.rules import check_axis
from nnc.errors import ArgumentError, ShapeError, user_error
from nnc.graph import spec_of
from nnc.nn.layers import check_features
from nnc.nn.module import Module
from nnc.numpy.operands import to_value
from nnc.typing import ArrayLike

__all__ = ["RotaryEmbedding"]

WHERE = "RotaryEmbedding"


class RotaryEmbedding(Module):
    """Rotates pairs of features by angles in proportion to their position (Su et al., 2021), before dot-product attention.

    The product of a query and a key then depends on the distance of their positions alone. Pair i of `features` turns by
    position · base^(-2i / features).

    Args:
        features: how many of the last axis are rotated, in pairs; features after these stay.
        base: ratio of the longest wave length to the shortest.
        interleaved: whether features 2i and 2i + 1 are a pair (GPT-J, the article), or i and features / 2 + i (GPT-NeoX, Llama
            as Hugging Face stores it).
        axis: the axis of positions: -3 of (..., T, heads, features), -2 of (..., T, features).

    Raises:
        ArgumentError: (when made) `features` is not even and positive, or `base` not positive.

    Example:
        >>> rotary = nnc.nn.RotaryEmbedding(8)
        >>> q = nnc.random.normal(nnc.random.key(0), (2, 5, 3, 8))
        >>> rotary(q).shape
        (2, 5, 3, 8)
        >>> bool(nnp.allclose(rotary(q, np.arange(4, 9))[:, :1], rotary(q[:, :1], np.array([4])), atol=1e-6))
        True
    """

    features: int
    base: float
    interleaved: bool
    axis: int

    @spelled
    def __init__(self, features: int, *, base: float = 10000.0, interleaved: bool = False, axis: int = -3) -> None:
        if features < 2 or features % 2:
            fix = "pass an even number: the features of a head, or fewer."
            raise user_error(ArgumentError, WHERE, f"features is {features}.", fix=fix)
        if not base > 0:
            raise user_error(ArgumentError, WHERE, f"base is {base!r}.", fix="pass a positive number, such as 10000.")
        self.features, self.base, self.interleaved, self.axis = features, float(base), interleaved, axis

    def __call__(self, x: ArrayLike, positions: ArrayLike | None = None) -> Array:
        """Rotates the features of each position.

        Args:
            x: (..., T, heads, features or more), or as `axis` says.
            positions: (..., T), integers or floats that broadcast to the axes of x up to the positions; 0 to T - 1 by default.

        Returns:
            the shape and dtype of x.

        Raises:
            ShapeError: x has fewer features, or the positions do not fit.
        """
        x = to_value(promote(x, where=WHERE, to=dtypes.to_float)[0], WHERE)
        axis = check_axis(WHERE, self.axis, x.ndim)
        if axis == x.ndim - 1 or x.shape[-1] < self.features:
            x = check_features(WHERE, x, self.features)
            problem = f"axis {self.axis} is the axis of features."
            fix = "pass the axis of positions: -2 of (..., T, features)."
            raise user_error(ArgumentError, WHERE, problem, operands={"x": spec_of(x)}, fix=fix)
        wide = dtypes.accumulator(x.dtype)
        angles = self._angles(x, axis, positions)
        cos, sin = nnp.astype(nnp.cos(angles), wide), nnp.astype(nnp.sin(angles), wide)
        rotated = nnp.astype(x[..., : self.features], wide)
        turned = self._turn(rotated, lambda a, b: (a * cos - b * sin, b * cos + a * sin)).astype(x.dtype)
        rest = x[..., self.features :]
        return turned if rest.shape[-1] == 0 else nnp.concatenate([turned, rest], axis=-1)

    def _angles(self, x: Array, axis: int, positions: ArrayLike | None) -> Array:
        """Returns the angles, of a shape that broadcasts to x with half its features; in float64, which keeps the digits of a
        large one.
        """
        at = nnp.arange(x.shape[axis]) if positions is None else nnp.asarray(positions)
        if at.ndim > axis + 1 or any(a not in (1, b) for a, b in zip(at.shape[::-1], x.shape[axis::-1], strict=False)):
            problem = "the positions do not fit x."
            fix = f"pass positions of shape ({x.shape[axis]},) or {x.shape[: axis + 1]}."
            raise user_error(ShapeError, WHERE, problem, operands={"x": spec_of(x), "positions": spec_of(at)}, fix=fix)
        rates = self.base ** (-np.arange(0, self.features, 2) / self.features)
        at = nnp.reshape(at, (*at.shape, *(1,) * (x.ndim - 1 - axis)))
        return nnp.astype(at, dtypes.float64) * nnp.asarray(rates)

    def _turn(self, x: Array, turn: Callable[[Array, Array], tuple[Array, Array]]) -> Array:
        """x with both features of each pair turned."""
        half = self.features // 2
        if not self.interleaved:
            return nnp.concatenate(turn(x[..., :half], x[..., half:]), axis=-1)
        pairs = nnp.reshape(x, (*x.shape[:-1], half, 2))
        return nnp.reshape(nnp.stack(turn(pairs[..., 0], pairs[..., 1]), axis=-1), x.shape)
