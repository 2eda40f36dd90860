"""Discrete cosine transforms by Fourier transforms, which nnc.scipy.fft shows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nnc.array.array import Array, as_value
from nnc.array.promote import promote
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.errors import ArgumentError, user_error
from nnc.errors.errors import check_choice
from nnc.numpy import elementwise as el
from nnc.numpy import fft
from nnc.numpy.joining import concatenate, stack
from nnc.numpy.manipulation import flip, moveaxis, reshape
from nnc.numpy.operands import Axis, static_int, to_axes, to_axis, to_value
from nnc.numpy.padding import pad
from nnc.typing import ArrayLike

__all__ = ["dct", "dctn", "idct", "idctn"]

_INVERSE = {1: 1, 2: 3, 3: 2, 4: 4}
_NORMS = {None: "backward", "backward": "backward", "ortho": "ortho", "forward": "forward"}
_OPPOSITE = {"backward": "forward", "forward": "backward", "ortho": "ortho"}


def _angles(values: np.ndarray[Any, Any], like: Array) -> Array:
    """e to the power of i times real numbers, in the complex dtype of an array."""
    return as_value(np.exp(1j * values).astype(dtypes.complex_dtype(like.spec.dtype)))


def _real_numbers(values: Any, like: Array) -> Array:
    return as_value(np.asarray(values).astype(like.spec.dtype))


def _first(x: Array) -> Array:
    """Computes x[0] + (−1)ᵏ x[n − 1] + 2 Σ x[j] cos(π k j / (n − 1))."""
    return el.real(fft.rfft(concatenate([x, flip(x[..., 1:-1], -1)], axis=-1)))


def _second(x: Array) -> Array:
    """Computes 2 Σ x[j] cos(π k (2 j + 1) / 2 n), from the even elements and the odd ones in reverse (Makhoul, 1980)."""
    n = x.spec.shape[-1]
    v = concatenate([x[..., ::2], flip(x[..., 1::2], -1)], axis=-1)
    return 2 * el.real(fft.fft(v) * _angles(-np.pi * np.arange(n) / (2 * n), x))


def _third(x: Array) -> Array:
    """Computes x[0] + 2 Σ x[j] cos(π j (2 k + 1) / 2 n): the inverse of the second, times 2 n."""
    n = x.spec.shape[-1]
    turned = concatenate([x[..., :1] * 0, flip(x[..., 1:], -1)], axis=-1)
    half = n // 2 + 1
    v = fft.irfft(((x - 1j * turned) * _angles(np.pi * np.arange(n) / (2 * n), x))[..., :half], n) * n
    evens, odds = v[..., : (n + 1) // 2], flip(v[..., (n + 1) // 2 :], -1)
    pairs = stack([evens[..., : n // 2], odds], axis=-1)
    whole = reshape(pairs, (*x.spec.shape[:-1], n // 2 * 2))
    return concatenate([whole, evens[..., n // 2 :]], axis=-1)


def _fourth(x: Array) -> Array:
    """Computes 2 Σ x[j] cos(π (2 k + 1) (2 j + 1) / 4 n)."""
    n = x.spec.shape[-1]
    k = np.arange(n)
    found = fft.fft(x * _angles(-np.pi * k / (2 * n), x), 2 * n)[..., :n]
    return 2 * el.real(found * _angles(-np.pi * (2 * k + 1) / (4 * n), x))


_TYPES: dict[int, Callable[[Array], Array]] = {1: _first, 2: _second, 3: _third, 4: _fourth}


def _transform(where: str, x: Array, kind: int, n: int | None, axis: int, norm: str) -> Array:
    """Returns the transform along one axis; norms are those of the forward direction."""
    if dtypes.is_complex(x.spec.dtype):
        parts = [_transform(where, part, kind, n, axis, norm) for part in (el.real(x), el.imag(x))]
        return parts[0] + 1j * parts[1]
    at = to_axis(where, axis, x.spec.ndim)
    rows = moveaxis(x, at, -1)
    size = rows.spec.shape[-1] if n is None else static_int(n, where, "n")
    if size < (2 if kind == 1 else 1):
        problem = f"the transform would have {size} points."
        raise user_error(ArgumentError, where, problem, fix="use 1 or more, for type 1 2 or more.")
    missing = size - rows.spec.shape[-1]
    rows = pad(rows, [(0, 0)] * (x.spec.ndim - 1) + [(0, missing)]) if missing > 0 else rows[..., :size]
    total = 2 * (size - 1) if kind == 1 else 2 * size
    before, behind = np.ones(size), np.ones(size)
    if norm == "ortho":
        behind = behind / math.sqrt(total)
        if kind == 1:
            before[[0, -1]] = math.sqrt(2)
            behind[[0, -1]] /= math.sqrt(2)
        elif kind == 2:
            behind[0] /= math.sqrt(2)
        elif kind == 3:
            before[0] = math.sqrt(2)
    elif norm == "forward":
        behind = behind / total
    rows = rows if (before == 1).all() else rows * _real_numbers(before, rows)
    found = _TYPES[kind](rows)
    return moveaxis(found if (behind == 1).all() else found * _real_numbers(behind, rows), -1, at)


def _read(where: str, x: Any, kind: Any, norm: Any) -> tuple[Array, str]:
    check_choice(where, "type", kind, _TYPES)
    check_choice(where, "norm", norm, _NORMS)
    (x,) = promote(x, where=where, to=lambda dtype: dtypes.accumulator(dtypes.to_float(dtype)))
    return to_value(x, where), _NORMS[norm]


def _all_axes(where: str, x: Array, s: Sequence[int] | None, axes: Axis) -> list[tuple[int, int | None]]:
    """Returns the axes to transform, and their sizes."""
    implied = axes is None and s is not None
    along = range(x.spec.ndim - len(s or ()), x.spec.ndim) if implied else to_axes(where, axes, x.spec.ndim)
    if (s is not None and len(s) != len(along)) or any(i < 0 for i in along):
        problem = f"s is {s!r} for axes {tuple(along)} of {x.spec.ndim}."
        raise user_error(ArgumentError, where, problem, fix="give one size for each axis.")
    return [(axis, None if s is None else s[i]) for i, axis in enumerate(along)]


@spelled
def dct(
    x: ArrayLike, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None
) -> Array:  # fmt: skip
    """Returns the discrete cosine transform of a vector along an axis.

    Type 2: y[k] = 2 Σ x[j] cos(π k (2 j + 1) / 2 n); other types as in SciPy. Real and imaginary parts are transformed by
    themselves.

    Args:
        x: any shape; integers become float32.
        type: 1, 2, 3 or 4.
        n: number of points: x is cut, or filled with 0.
        axis: the axis of the vectors.
        norm: "backward" leaves the sum as it is, "forward" divides it by 2 n (type 1: 2 (n - 1)), "ortho" makes the transform
            orthogonal.

    Raises:
        ArgumentError: there is no such type or norm, or no point.

    Example:
        >>> dct(np.asarray([1.0, 1.0, 1.0])).round(6)
        Array([6., 0., 0.], dtype=float64)
    """
    value, chosen = _read("dct", x, type, norm)
    return _transform("dct", value, type, n, axis, chosen)


@spelled
def idct(
    x: ArrayLike, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None
) -> Array:  # fmt: skip
    """Returns the inverse discrete cosine transform of a vector along an axis: `idct(dct(x))` is x.

    Args:
        x: any shape; integers become float32.
        type: 1, 2, 3 or 4, the type of the transform that is inverted.
        n: number of points: x is cut, or filled with 0.
        axis: the axis of the vectors.
        norm: the norm of the transform that is inverted, as for `dct`.

    Raises:
        ArgumentError: there is no such type or norm, or no point.

    Example:
        >>> idct(dct(np.asarray([1.0, 2.0, 4.0]))).round(6)
        Array([1., 2., 4.], dtype=float64)
    """
    value, chosen = _read("idct", x, type, norm)
    return _transform("idct", value, _INVERSE[type], n, axis, _OPPOSITE[chosen])


@spelled
def dctn(
    x: ArrayLike, type: int = 2, s: Sequence[int] | None = None, axes: Axis = None, norm: str | None = None
) -> Array:  # fmt: skip
    """Returns the discrete cosine transform along several axes, one after the other.

    Args:
        x: any shape; integers become float32.
        type: 1, 2, 3 or 4.
        s: number of points along each of the axes: x is cut, or filled with 0.
        axes: the axes; by default all, or the last ones for which there are sizes in s.
        norm: "backward", "ortho" or "forward", as for `dct`.

    Raises:
        ArgumentError: there is no such type or norm, or sizes do not fit the axes.

    Example:
        >>> dctn(np.ones((2, 2))).round(6)
        Array([[16.,  0.],
               [ 0.,  0.]], dtype=float64)
    """
    value, chosen = _read("dctn", x, type, norm)
    for axis, n in _all_axes("dctn", value, s, axes):
        value = _transform("dctn", value, type, n, axis, chosen)
    return value


@spelled
def idctn(
    x: ArrayLike, type: int = 2, s: Sequence[int] | None = None, axes: Axis = None, norm: str | None = None
) -> Array:  # fmt: skip
    """Returns the inverse discrete cosine transform along several axes, one after the other.

    Args:
        x: any shape; integers become float32.
        type: 1, 2, 3 or 4, the type of the transform that is inverted.
        s: number of points along each of the axes: x is cut, or filled with 0.
        axes: the axes; by default all, or the last ones for which there are sizes in s.
        norm: the norm of the transform that is inverted, as for `dct`.

    Raises:
        ArgumentError: there is no such type or norm, or sizes do not fit the axes.

    Example:
        >>> idctn(dctn(np.ones((2, 2)))).round(6)
        Array([[1., 1.],
               [1., 1.]], dtype=float64)
    """
    value, chosen = _read("idctn", x, type, norm)
    for axis, n in _all_axes("idctn", value, s, axes):
        value = _transform("idctn", value, _INVERSE[type], n, axis, _OPPOSITE[chosen])
    return value
