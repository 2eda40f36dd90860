"""Sampled curves: convolution, slopes, phases, and the windows that spectra are taken through."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nnc.array.array import Array, as_value
from nnc.array.promote import promote
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.commands import constants
from nnc.commands import elementwise as ew
from nnc.commands.conv import conv
from nnc.commands.elementwise import NUMERIC
from nnc.commands.rules import check_dtype
from nnc.commands.shape import slice_axis
from nnc.errors import ArgumentError, ShapeError, user_error
from nnc.errors.errors import check_choice
from nnc.numpy import elementwise as el
from nnc.numpy.bessel import i0
from nnc.numpy.joining import concatenate
from nnc.numpy.manipulation import flip, moveaxis, ravel
from nnc.numpy.operands import (
    Axis,
    in_dtype,
    keeps_weakness,
    known,
    static_int,
    strong,
    to_axes,
    to_axis,
    to_shape,
    to_value,
    to_values,
)
from nnc.numpy.reductions import cumsum, diff
from nnc.typing import ArrayLike

__all__ = [
    "bartlett", "blackman", "convolve", "correlate", "ediff1d", "gradient", "hamming", "hanning", "kaiser", "trim_zeros",
    "unwrap",
]  # fmt: skip

# -- convolution -------------------------------------------------------------------------------------------------------

_MODES = ("full", "same", "valid")


def _vectors(where: str, x: Any, y: Any) -> list[Array]:
    values = [to_value(v, where) for v in promote(x, y, where=where)]
    for v in values:
        check_dtype(where, v.spec, *NUMERIC)
        if v.spec.ndim != 1 or not v.spec.size:
            problem = "both operands must be vectors, not empty."
            operands = {"first": values[0].spec, "second": values[1].spec}
            fix = "use nnc.vmap for rows."
            raise user_error(ShapeError, where, problem, operands=operands, fix=fix)
    return values


def _slide(where: str, x: Array, weights: Array, mode: str) -> Array:
    """Sums of products of `weights` with the part of `x` below them; x is the longer one."""
    check_choice(where, "mode", mode, _MODES)
    n = weights.spec.size
    low, high = {"full": (n - 1, n - 1), "same": (n // 2, (n - 1) // 2), "valid": (0, 0)}[mode]
    rows, kernel = x.reshape(1, 1, x.spec.size), weights.reshape(1, 1, n)
    return conv(rows, kernel, stride=(1,), padding=((low, high),), dilation=(1,), groups=1).ravel()


@spelled
def convolve(a: ArrayLike, v: ArrayLike, mode: str = "full") -> Array:
    """Returns the convolution of two vectors: out[k] = Σ_i a[i] · v[k - i].

    Args:
        a: (n,).
        v: (m,).
        mode: "full": wherever they overlap; "same": as long as the longer one, centred; "valid": where they overlap
            fully.

    Raises:
        ShapeError: an operand is no vector, or empty.

    Example:
        >>> convolve(np.asarray([1, 2, 3]), [0, 1])
        Array([0, 1, 2, 3], dtype=int64)
    """
    a, v = _vectors("convolve", a, v)
    longer, shorter = (a, v) if a.spec.size >= v.spec.size else (v, a)
    return _slide("convolve", longer, flip(shorter), mode)


@spelled
def correlate(a: ArrayLike, v: ArrayLike, mode: str = "valid") -> Array:
    """Returns the correlation of two vectors: out[k] = Σ_i a[i + k] · conj(v[i]); the modes are those of `convolve`.

    Args:
        a: (n,).
        v: (m,), conjugated.
        mode: "full", "same" or "valid", as for `convolve`.

    Example:
        >>> correlate(np.asarray([1, 2, 3]), [0, 1])
        Array([2, 3], dtype=int64)
    """
    a, v = _vectors("correlate", a, v)
    v = el.conj(v)
    return _slide("correlate", a, v, mode) if a.spec.size >= v.spec.size else flip(_slide("correlate", v, a, mode))


# -- slopes ------------------------------------------------------------------------------------------------------------


@spelled
def gradient(f: ArrayLike, *varargs: Any, axis: Axis = None, edge_order: int = 1) -> Any:
    """Returns the slope of sampled values along each axis: central differences inside, one-sided ones at the ends.

    Args:
        f: sampled values, any shape.
        *varargs: distances between samples: one number for all axes, or for each axis a number or a vector of places.
        axis: along which; a single one gives one array instead of a tuple.
        edge_order: 1 or 2, the accuracy at the ends.

    Raises:
        ArgumentError: the distances do not fit the axes.
        ShapeError: an axis has fewer than edge_order + 1 samples.

    Example:
        >>> gradient(np.asarray([1.0, 2.0, 4.0, 7.0]))
        Array([1. , 1.5, 2.5, 3. ], dtype=float64)
    """
    f, *given = to_values("gradient", f=f, **{f"spacing {i}": h for i, h in enumerate(varargs)})
    (f,) = promote(f, where="gradient", to=dtypes.to_float)
    axes = to_axes("gradient", axis, f.spec.ndim)
    alike = len(given) == 1 and not given[0].spec.ndim
    spacings: list[Any] = given * len(axes) if alike else list(given) or [1.0] * len(axes)
    if len(spacings) != len(axes):
        problem = f"{len(spacings)} distances go with {len(axes)} axes."
        fix = "give one number for all axes, or one number or vector for each."
        raise user_error(ArgumentError, "gradient", problem, operands={"f": f.spec}, fix=fix)
    check_choice("gradient", "edge_order", edge_order, (1, 2))
    slopes = tuple(_slope(f, at, spacing, edge_order) for at, spacing in zip(axes, spacings, strict=True))
    return slopes[0] if len(slopes) == 1 else slopes


def _slope(f: Array, axis: int, spacing: Any, edge_order: int) -> Array:
    n = f.spec.shape[axis]
    if n <= edge_order:
        problem = f"axis {axis} has {n} samples, it needs {edge_order + 1}."
        fix = "pass more samples, or name the axes to take slopes along."
        raise user_error(ShapeError, "gradient", problem, operands={"f": f.spec}, fix=fix)
    h = to_value(spacing, "gradient", "spacing")
    if not dtypes.is_inexact(h.spec.dtype):
        h = ew.convert(h, dtype=f.spec.dtype)  # differences of unsigned places would wrap around
    if h.spec.ndim and h.spec.shape != (n,):
        problem = f"axis {axis} has {n} samples, its places have shape {h.spec.shape}."
        fix = "give a number, or a vector with the place of each sample."
        raise user_error(ShapeError, "gradient", problem, operands={"f": f.spec, "spacing": h.spec}, fix=fix)
    f = moveaxis(f, axis, -1)
    if h.spec.ndim:
        d = diff(h)
        before, after = d[:-1], d[1:]
        inner = (
            -after / (before * (before + after)) * f[..., :-2]
            + (after - before) / (before * after) * f[..., 1:-1]
            + before / (after * (before + after)) * f[..., 2:]
        )
        first, second, last_but_one, last = d[0], d[min(1, n - 2)], d[max(n - 3, 0)], d[n - 2]
    else:
        inner = (f[..., 2:] - f[..., :-2]) / (2 * h)
        first = second = last_but_one = last = h
    ends = (
        _end(f[..., 0], f[..., 1], f[..., 2 if n > 2 else 1], first, second, edge_order),
        -_end(f[..., -1], f[..., -2], f[..., -3 if n > 2 else -2], last, last_but_one, edge_order),
    )
    return moveaxis(concatenate([ends[0][..., None], inner, ends[1][..., None]], -1), -1, axis)


def _end(y0: Array, y1: Array, y2: Array, a: Array, b: Array, edge_order: int) -> Array:
    """Returns the slope, away from the end, of the line or parabola through the outermost samples at distances `a` and `b`."""
    if edge_order == 1:
        return (y1 - y0) / a
    return -(2 * a + b) / (a * (a + b)) * y0 + (a + b) / (a * b) * y1 - a / (b * (a + b)) * y2


@spelled
def ediff1d(x: ArrayLike, /, to_end: ArrayLike | None = None, to_begin: ArrayLike | None = None) -> Array:
    """Returns the differences of neighbours of the flattened `x`, with `to_begin` before and `to_end` behind them.

    Args:
        x: any shape, flattened.
        to_end: numbers to put behind the differences.
        to_begin: numbers to put before the differences.

    Example:
        >>> ediff1d(np.asarray([1, 4, 9]), to_end=0)
        Array([3, 5, 0], dtype=int64)
    """
    parts = [diff(ravel(x))]
    dtype = parts[0].spec.dtype
    if to_begin is not None:
        parts.insert(0, ravel(in_dtype(to_begin, dtype, "ediff1d", "to_begin")))
    if to_end is not None:
        parts.append(ravel(in_dtype(to_end, dtype, "ediff1d", "to_end")))
    return concatenate(parts)


@keeps_weakness
def unwrap(p: ArrayLike, discont: ArrayLike | None = None, axis: int = -1, *, period: ArrayLike = 2 * math.pi) -> Array:
    """Returns `p` with multiples of `period` added, so that neighbours along `axis` differ by at most half of it.

    Args:
        p: real, any shape.
        discont: jumps that are smaller stay; by default half the period.
        axis: axis to run along.
        period: distance of values that mean the same.

    Example:
        >>> unwrap(np.asarray([0, 1, 2, -1, 0]), period=4)
        Array([0, 1, 2, 3, 4], dtype=int64)
    """
    values, size = (to_value(v, "unwrap", "p") for v in promote(p, period, where="unwrap"))
    at = to_axis("unwrap", axis, values.spec.ndim)
    if values.spec.shape[at] < 2:
        return values
    exact = dtypes.is_integer(values.spec.dtype)
    jumps = diff(values, axis=at)
    half = size // 2 if exact else size / 2
    low = -half
    rest = el.remainder(jumps - low, size) + low
    ambiguous = el.equal(el.remainder(size, 2), 0) if exact else True
    at_edge = el.logical_and(el.logical_and(el.equal(rest, low), el.greater(jumps, 0)), ambiguous)
    rest = el.where(at_edge, half, rest)
    shift = el.where(el.less(abs(jumps), half if discont is None else discont), 0, rest - jumps)
    n = values.spec.shape[at]
    moved = slice_axis(values, at, 1, n) + cumsum(shift, at).astype(values.spec.dtype)
    return concatenate([slice_axis(values, at, 0, 1), moved], at)


@spelled
def trim_zeros(filt: ArrayLike, trim: str = "fb") -> Array:
    """Returns the vector `filt`, whose values must be known, without the zeros at its front ("f"), its back ("b") or both.

    Args:
        filt: (n,), whose values are known.
        trim: "f" the front, "b" the back, "fb" both.

    Example:
        >>> trim_zeros(np.asarray([0, 1, 0, 2, 0]))
        Array([1, 0, 2], dtype=int64)
    """
    x = to_value(filt, "trim_zeros", "filt")
    if x.spec.ndim != 1:
        problem = "filt must be a vector."
        raise user_error(ShapeError, "trim_zeros", problem, operands={"filt": x.spec}, fix="flatten it.")
    if not set(trim.lower()) <= {"f", "b"}:
        raise user_error(ArgumentError, "trim_zeros", f"trim is {trim!r}.", fix='use "f", "b" or "fb".')
    places = np.flatnonzero(known(x, "trim_zeros", "leave it out of the traced function."))
    if not places.size:
        return x[:0]
    start = int(places[0]) if "f" in trim.lower() else 0
    stop = int(places[-1]) + 1 if "b" in trim.lower() else x.spec.size
    return x[start:stop]


# -- windows -----------------------------------------------------------------------------------------------------------


def _window(where: str, size: Any, function: Any) -> Array:
    (n,) = to_shape(static_int(size, where, "M"), where)
    return as_value(np.asarray(function(n)).astype(dtypes.DEFAULT_FLOAT))


@spelled
def bartlett(M: int) -> Array:  # noqa: N803  (NumPy's name)
    """Returns the triangular window of `M` points.

    Args:
        M: number of points.

    Returns:
        (M,), float32.

    Example:
        >>> nnp.bartlett(3)
        Array([0., 1., 0.], dtype=float32)
    """
    return _window("bartlett", M, np.bartlett)


@spelled
def blackman(M: int) -> Array:  # noqa: N803
    """Returns the Blackman window of `M` points: 0.42 - 0.5 cos(2πi / (M - 1)) + 0.08 cos(4πi / (M - 1)).

    Args:
        M: number of points.

    Returns:
        (M,), float32.

    Example:
        >>> nnp.blackman(3).round(3)
        Array([-0.,  1., -0.], dtype=float32)
    """
    return _window("blackman", M, np.blackman)


@spelled
def hamming(M: int) -> Array:  # noqa: N803
    """Returns the Hamming window of `M` points: 0.54 - 0.46 cos(2πi / (M - 1)).

    Args:
        M: number of points.

    Returns:
        (M,), float32.

    Example:
        >>> hamming(3)
        Array([0.08, 1.  , 0.08], dtype=float32)
    """
    return _window("hamming", M, np.hamming)


@spelled
def hanning(M: int) -> Array:  # noqa: N803
    """Returns the Hann window of `M` points: 0.5 - 0.5 cos(2πi / (M - 1)).

    Args:
        M: number of points.

    Returns:
        (M,), float32.

    Example:
        >>> nnp.hanning(3)
        Array([0., 1., 0.], dtype=float32)
    """
    return _window("hanning", M, np.hanning)


@spelled
def kaiser(M: int, beta: ArrayLike) -> Array:  # noqa: N803
    """Returns the Kaiser window of `M` points: I0(beta · sqrt(1 - t²)) / I0(beta) for t from -1 to 1.

    Args:
        M: number of points.
        beta: shape of the window: 0 is a rectangle, greater ones are narrower.

    Example:
        >>> kaiser(3, 14.0)
        Array([7.726867e-06, 1.000000e+00, 7.726867e-06], dtype=float32)
    """
    (n,) = to_shape(static_int(M, "kaiser", "M"), "kaiser")
    (beta,) = promote(beta, where="kaiser", to=dtypes.to_float)
    beta = strong(to_value(beta, "kaiser", "beta"), "kaiser")
    t = np.linspace(-1, 1, n) if n > 1 else np.zeros(n)
    heights = np.sqrt(1 - t * t).astype(beta.spec.dtype)
    return i0(beta * heights) / i0(beta) if n else constants.full(shape=(0,), dtype=beta.spec.dtype, value=0)
