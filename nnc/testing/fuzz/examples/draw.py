"""Draws operands and settings for examples of commands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nnc.base import dtypes

Rng = np.random.Generator
NDArray = np.ndarray[Any, Any]
Example = tuple[Sequence[Any], dict[str, Any]]
Draw = Callable[[Rng], Example]
Freedom = Callable[..., list[NDArray]]
Shape = tuple[int, ...]

_FLOATS = (dtypes.float32, dtypes.float32, dtypes.float64, dtypes.float64, dtypes.bfloat16, dtypes.float16)
_SIZES = (0, 1, 1, 2, 3, 4, 5, 7, 8, 16, 17)


def float_dtype(rng: Rng) -> dtypes.DType:
    """Returns a float dtype, dtypes of 32 and 64 bits more often."""
    return _FLOATS[rng.integers(len(_FLOATS))]


def size(rng: Rng, most: int = 17) -> int:
    """A size at which kernels change their ways: 0, 1, around the widths of vectors."""
    found = int(_SIZES[rng.integers(len(_SIZES))])
    return found if found <= most else int(rng.integers(1, most + 1))


def shape(rng: Rng, least: int = 0, most: int = 3) -> Shape:
    """A shape of some axes."""
    return tuple(size(rng, 9) for _ in range(rng.integers(least, most + 1)))


def one_of(rng: Rng, *values: Any) -> Any:
    """One of the values."""
    return values[rng.integers(len(values))]


def flag(rng: Rng, chance: float = 0.5) -> bool:
    """A bool."""
    return bool(rng.random() < chance)
