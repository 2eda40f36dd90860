"""Values for parameters of functions and commands, by the parameter's name or annotation.

There is no table of functions here: a command that another package registers is generated if its parameters have names like these,
or if it defines its operands itself (the column `example`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nnc.base import dtypes
from nnc.graph import TensorSpec

Draw = Callable[[random.Random, TensorSpec], Any]
SKIP: Any = object()  # the parameter is left out

SIZES = (0, 1, 1, 2, 2, 3, 3, 4, 5, 7, 8, 15, 16, 17, 33, 129)
SHORT = (1, 2, 2, 3, 3, 4, 5, 7, 8)
DTYPES = (
    "float32", "float32", "float32", "float64", "float64", "float64", "float16", "bfloat16", "int32", "int64", "bool", "uint8",
    "int8", "int16", "uint16", "uint32", "uint64", "complex64", "complex128",
)  # fmt: skip


def _axis(rng: random.Random, x: TensorSpec) -> Any:
    return rng.randrange(-x.ndim, x.ndim) if x.ndim else 0


def _axes(rng: random.Random, x: TensorSpec) -> tuple[int, ...]:
    found = rng.sample(range(x.ndim), rng.randint(0, x.ndim))
    return tuple(a - x.ndim if rng.random() < 0.3 else a for a in found)


def _permutation(rng: random.Random, x: TensorSpec) -> tuple[int, ...]:
    return tuple(rng.sample(range(x.ndim), x.ndim))


def _same_size(rng: random.Random, x: TensorSpec) -> tuple[int, ...]:
    """A shape of as many elements, or one to broadcast to."""
    kind = rng.randrange(4)
    if kind == 0:
        return (
            *(rng.choice(SHORT) for _ in range(rng.randint(0, 2))),
            *(rng.choice(SHORT) if n == 1 else n for n in x.shape),
        )
    if kind == 1 or not x.ndim:
        return (*x.shape[:1], 1, *x.shape[1:])
    if kind == 2:
        return (x.size,)
    factor = next((f for f in rng.sample((2, 3, 4, 5, 7), 5) if x.size % f == 0), 1)
    return (x.size // factor, factor)


def _starts(rng: random.Random, x: TensorSpec) -> tuple[int, ...]:
    return tuple(rng.randint(0, min(n, 3)) for n in x.shape)


def _limits(rng: random.Random, x: TensorSpec) -> tuple[int, ...]:
    return tuple(rng.randint(min(n, 3), n) for n in x.shape)


def _per_axis(least: int, most: int) -> Draw:
    return lambda rng, x: tuple(rng.randint(least, most) for _ in x.shape)


def _integer(least: int, most: int) -> Draw:
    return lambda rng, x: rng.randint(least, most)


def _one_of(*values: Any) -> Draw:
    return lambda rng, x: rng.choice(values)


def _optional(draw: Draw, *others: Any) -> Draw:
    return lambda rng, x: rng.choice(others) if rng.random() < 0.3 else draw(rng, x)


def _dtype(rng: random.Random, x: TensorSpec) -> Any:
    return np.dtype(dtypes.BY_NAME[rng.choice(DTYPES)])


def _axis_or_axes(rng: random.Random, x: TensorSpec) -> Any:
    return rng.choice((None, _axis(rng, x), _axes(rng, x)))


BY_NAME: dict[str, Draw] = {
    "axis": _axis, "axes": _axes, "axis1": _axis, "axis2": _axis, "permutation": _permutation, "shape": _same_size,
    "new_shape": _same_size, "start": _starts, "limit": _limits, "stride": _per_axis(1, 3), "low": _per_axis(0, 2),
    "high": _per_axis(0, 2), "interior": _per_axis(0, 2), "dtype": _dtype, "k": _integer(-1, 3),
    "n": _integer(1, 4), "num": _integer(1, 5), "kth": lambda rng,
    x: rng.randrange(max(x.shape[-1], 1)) if x.ndim else 0, "shift": _integer(-5, 5), "repetitions": _integer(1, 3),
    "repeats": _integer(0, 3), "decimals": _integer(0, 1), "side": _one_of("left", "right"),
    "exponent": _integer(-2, 4), "decreasing": _one_of(True, False), "value": _one_of(0, 1, -2.5, 0.5),
    "source": _axis, "destination": _axis, "q": _one_of(0.0, 0.25, 0.5, 1.0), "indices_or_sections": _integer(1, 3),
    "pad_width": _integer(0, 3), "num_classes": _integer(1, 6), "groups": _integer(1, 4), "window": _integer(1, 3),
    "output_size": _integer(1, 4), "size": _integer(1, 5), "factor": _integer(1, 3), "points": _integer(1, 9),
    "reduction": _one_of("none", "mean", "sum"), "layout": _one_of("NCHW", "NHWC"), "offset": _integer(-2, 2),
    "width": _one_of(8, 16, 32, 64), "deg": _integer(0, 2), "degree": _one_of(1, 2, 3), "N": _integer(0, 5),
    "M": _integer(1, 6), "d": _integer(1, 3),
}  # fmt: skip
BY_ANNOTATION: dict[str, Draw] = {
    "bool": _one_of(True, False), "int": _integer(0, 3), "Axis": _axis_or_axes, "Axes": _axis_or_axes,
    "int | None": _optional(_axis, None), "float": _one_of(0.5, 1.0, 2.0), "Sequence[int]": _permutation,
}  # fmt: skip


def draw_setting(rng: random.Random, name: str, annotation: str, specs: Sequence[TensorSpec]) -> Any:
    """A value for a parameter; SKIP where nothing is known of it."""
    draw = BY_NAME.get(name) or BY_ANNOTATION.get(annotation)
    return SKIP if draw is None else draw(rng, specs[0] if specs else TensorSpec((), "float32"))
