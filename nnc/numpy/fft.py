"""Discrete Fourier transforms as in numpy.fft.

float32 gives complex64, as do integers and 16-bit floats; float64 gives complex128. `norm` says which direction is divided by the
number of points n: "backward" (the default, the inverse ones by n), "forward" (the forward ones by n), "ortho" (both by √n).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nnc.array.array import Array
from nnc.array.promote import astype, promote, to_dtype
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.commands import constants
from nnc.commands import elementwise as ew
from nnc.commands import fft as commands
from nnc.commands.rules import check_dtype
from nnc.commands.shape import pad, slice_axis
from nnc.errors import ArgumentError, ArgumentTypeError, NncError, user_error
from nnc.errors.names.lookup import public_names
from nnc.numpy.manipulation import roll
from nnc.numpy.operands import Axis, Shape, keeps_weakness, static_int, to_axes, to_value
from nnc.typing import ArrayLike, DTypeLike

__all__ = [
    "fft",
    "fft2",
    "fftfreq",
    "fftn",
    "fftshift",
    "hfft",
    "ifft",
    "ifft2",
    "ifftn",
    "ifftshift",
    "ihfft",
    "irfft",
    "irfft2",
    "irfftn",
    "rfft",
    "rfft2",
    "rfftfreq",
    "rfftn",
]

# -- shared ------------------------------------------------------------------------------------------------------------

_OF_SEVERAL_AXES = ("irfft2", "irfftn")  # of which one element along the last axis is one point, as in SciPy
_OPPOSITE = {None: "forward", "backward": "forward", "ortho": "ortho", "forward": "backward"}


def _wide(where: str, x: Any) -> Array:
    """`x` in a dtype that pocketfft computes in."""
    (x,) = promote(x, where=where, to=lambda dtype: dtypes.accumulator(dtypes.to_float(dtype)))
    return to_value(x, where)


def _complex(where: str, x: Any) -> Array:
    x = _wide(where, x)
    return astype(x, dtypes.complex_dtype(x.spec.dtype), where)


def _real(where: str, x: Any) -> Array:
    x = _wide(where, x)
    check_dtype(where, x.spec, dtypes.is_float, "real")
    return x


def _points(where: str, n: Any) -> int:
    points = static_int(n, where, "n")
    if points < 1:
        fix = "give n (or each size in s) of at least 1."
        raise user_error(ArgumentError, where, f"the transform would have {points} points.", fix=fix)
    return points


def _resized(x: Array, axis: int, n: int) -> Array:
    """`x` cut or padded with zeros to size `n` along `axis`."""
    shape = x.spec.shape
    if shape[axis] > n:
        return slice_axis(x, axis, 0, n)
    if shape[axis] == n:
        return x
    nothing = (0,) * len(shape)
    high = tuple(n - size if i == axis else 0 for i, size in enumerate(shape))
    return pad(x, constants.full(shape=(), dtype=x.spec.dtype, value=0), low=nothing, high=high, interior=nothing)


def _scaled(where: str, y: Array, n: int, norm: str | None, divides: str) -> Array:
    """`y`, a transform of `n` points, divided as `norm` says; `divides` is the norm that divides this direction by n."""
    if norm not in _OPPOSITE:
        problem = f"norm is {norm!r}."
        raise user_error(ArgumentError, where, problem, fix='use "backward" (the same as None), "ortho" or "forward".')
    factor = math.sqrt(n) if norm == "ortho" else n if (norm or "backward") == divides else 1
    return y if factor == 1 else y * (1 / factor)


def _sizes(where: str, x: Array, s: Sequence[int] | None, axes: Axis) -> tuple[list[int | None], Shape]:
    """Returns the sizes asked for (None: as they are), and the axes; without `axes` they are the last ones."""
    if s is None:
        at = to_axes(where, axes, x.spec.ndim)
        return [None] * len(at), at
    sizes = [static_int(n, where, "s") for n in (s if isinstance(s, (tuple, list)) else (s,))]
    at = to_axes(where, tuple(range(-len(sizes), 0)) if axes is None else axes, x.spec.ndim)
    if len(sizes) != len(at):
        problem = f"s has {len(sizes)} sizes for {len(at)} axes."
        fix = "give one size for each axis; -1 leaves an axis as it is."
        raise user_error(ArgumentError, where, problem, operands={"x": x.spec}, fix=fix)
    return [None if n == -1 else _points(where, n) for n in sizes], at


def _needs_axes(where: str, x: Array, axes: Shape) -> None:
    if not axes:
        problem = "there is no axis to transform."
        raise user_error(ArgumentError, where, problem, operands={"x": x.spec}, fix="name at least one axis.")


def _transform(where: str, x: Any, s: Sequence[int] | None, axes: Axis, norm: str | None, inverse: bool) -> Array:
    x = _complex(where, x)
    sizes, at = _sizes(where, x, s, axes)
    for axis, n in zip(at, sizes, strict=True):
        x = _resized(x, axis, _points(where, x.spec.shape[axis] if n is None else n))
    y = commands.fft(x, axes=at, inverse=inverse) if at else x
    return _scaled(where, y, math.prod(x.spec.shape[i] for i in at), norm, "backward" if inverse else "forward")


def _real_transform(where: str, x: Any, s: Sequence[int] | None, axes: Axis, norm: str | None) -> Array:
    x = _real(where, x)
    sizes, at = _sizes(where, x, s, axes)
    _needs_axes(where, x, at)
    for axis, n in zip(at, sizes, strict=True):
        x = _resized(x, axis, _points(where, x.spec.shape[axis] if n is None else n))
    y = commands.rfft(x, axis=at[-1])
    y = commands.fft(y, axes=at[:-1]) if at[:-1] else y
    return _scaled(where, y, math.prod(x.spec.shape[i] for i in at), norm, "forward")


def _inverse_real_transform(where: str, x: Any, s: Sequence[int] | None, axes: Axis, norm: str | None) -> Array:
    x = _complex(where, x)
    sizes, at = _sizes(where, x, s, axes)
    _needs_axes(where, x, at)
    for axis, n in zip(at[:-1], sizes[:-1], strict=True):
        x = _resized(x, axis, _points(where, x.spec.shape[axis] if n is None else n))
    last, size = at[-1], sizes[-1]
    m = x.spec.shape[last]
    default = 1 if m == 1 and where in _OF_SEVERAL_AXES else 2 * (m - 1)
    size = _points(where, default if size is None else size)
    x = _resized(x, last, size // 2 + 1)
    y = commands.irfft(commands.fft(x, axes=at[:-1], inverse=True) if at[:-1] else x, axis=last, points=size)
    return _scaled(where, y, math.prod(y.spec.shape[i] for i in at), norm, "backward")


def _opposite(norm: str | None) -> str | None:
    """Returns the norm that divides the other direction; unknown ones are left to `_scaled`, which refuses them."""
    return _OPPOSITE.get(norm, norm)


def _one(where: str, n: int | None) -> tuple[int] | None:
    return None if n is None else (_points(where, n),)


# -- complex to complex ------------------------------------------------------------------------------------------------


@keeps_weakness
def fft(x: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """Returns the discrete Fourier transform of `x` along `axis`.

    y[k] = Σ_j x[j] exp(-2πi jk / n)

    Args:
        x: real or complex.
        n: cut `x` or pad it with zeros to this size.
        axis: axis to transform.
        norm: which direction is divided by n: "backward" (the default: inverse ones), "forward" or "ortho" (both by
            √n).

    Returns:
        complex, of size n along `axis`.

    Raises:
        ArgumentError: there would be no points, or `norm` is none of the three.
        ShapeError: there is no such axis.

    Example:
        >>> nnp.fft.fft(np.asarray([1.0, 0.0, 0.0]))
        Array([1.+0.j, 1.+0.j, 1.+0.j], dtype=complex128)
    """
    return _transform("fft", x, _one("fft", n), (axis,), norm, inverse=False)


@keeps_weakness
def ifft(x: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """Returns the inverse of `fft`; the arguments are the same.

    Args:
        x: real or complex.
        n: cut `x` or pad it with zeros to this size.
        axis: axis to transform.
        norm: which direction is divided by the number of points: "backward" (the default: inverse ones), "forward" or
            "ortho" (both by its root).

    Example:
        >>> np.allclose(nnp.fft.ifft(nnp.fft.fft(np.arange(5.0))), np.arange(5.0))
        True
    """
    return _transform("ifft", x, _one("ifft", n), (axis,), norm, inverse=True)


@keeps_weakness
def fft2(x: ArrayLike, s: Sequence[int] | None = None, axes: Axis = (-2, -1), norm: str | None = None) -> Array:
    """Returns the discrete Fourier transform along the last two axes; see `fftn`.

    Args:
        x: real or complex.
        s: sizes to cut or pad the two axes to; -1 leaves one as it is.
        axes: the two axes to transform.
        norm: which direction is divided by the number of points: "backward" (the default: inverse ones), "forward" or
            "ortho" (both by its root).

    Example:
        >>> fft2(nnp.ones((2, 2)))
        Array([[4.+0.j, 0.+0.j],
               [0.+0.j, 0.+0.j]], dtype=complex64)
    """
    return _transform("fft2", x, s, axes, norm, inverse=False)


@keeps_weakness
def ifft2(x: ArrayLike, s: Sequence[int] | None = None, axes: Axis = (-2, -1), norm: str | None = None) -> Array:
    """Returns the inverse of `fft2`; the arguments are the same.

    Args:
        x: real or complex.
        s: sizes to cut or pad the two axes to; -1 leaves one as it is.
        axes: the two axes to transform.
        norm: which direction is divided by the number of points: "backward" (the default: inverse ones), "forward" or
            "ortho" (both by its root).

    Example:
        >>> ifft2(nnp.ones((2, 2)))
        Array([[1.+0.j, 0.+0.j],
               [0.+0.j, 0.+0.j]], dtype=complex64)
    """
    return _transform("ifft2", x, s, axes, norm, inverse=True)


@keeps_weakness
def fftn(x: ArrayLike, s: Sequence[int] | None = None, axes: Axis = None, norm: str | None = None) -> Array:
    """Returns the discrete Fourier transform along several axes.

    Args:
        x: real or complex.
        s: the size to cut or pad each of the axes to; -1 leaves one as it is.
        axes: all by default, or the last ones where `s` is given.
        norm: which direction is divided by the number of points: "backward" (the default: inverse ones), "forward" or
            "ortho" (both by its root).

    Raises:
        ArgumentError: s and axes differ in length.
        ShapeError: there is no such axis, or one is named twice.

    Example:
        >>> nnp.fft.fftn(np.ones((2, 2))).real
        Array([[4., 0.],
               [0., 0.]], dtype=float64)
    """
    return _transform("fftn", x, s, axes, norm, inverse=False)


@keeps_weakness
def ifftn(x: ArrayLike, s: Sequence[int] | None = None, axes: Axis = None, norm: str | None = None) -> Array:
    """Returns the inverse of `fftn`; the arguments are the same.

    Args:
        x: real or complex.
        s: sizes to cut or pad the axes to; -1 leaves one as it is.
        axes: axes to transform; all by default, or the last ones where `s` is given.
        norm: which direction is divided by the number of points: "backward" (the default: inverse ones), "forward" or
            "ortho" (both by its root).

    Example:
        >>> ifftn(nnp.asarray([4.0, 0.0]))
        Array([2.+0.j, 2.+0.j], dtype=complex64)
    """
    return _transform("ifftn", x, s, axes, norm, inverse=True)


# -- real to half of the complex, and back -----------------------------------------------------------------------------


@spelled
def rfft(x: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """Returns the first n // 2 + 1 bins of the `fft` of a real `x`; the others are their conjugates.

    Args:
        x: real.
        n: cut `x` or pad it with zeros to this size.
        axis: axis to transform.
        norm: which direction is divided by the number of points: "backward" (the default: inverse ones), "forward" or
            "ortho" (both by its root).

    Raises:
        DTypeError: x is complex.

    Example:
        >>> nnp.fft.rfft(np.asarray([1.0, 0.0, 0.0]))
        Array([1.+0.j, 1.+0.j], dtype=complex128)
    """
    return _real_transform("rfft", x, _one("rfft", n), (axis,), norm)


@keeps_weakness
def irfft(x: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """Returns the inverse of `rfft`: `n` real numbers, by default 2 (m - 1) for m bins.

    Args:
        x: complex, the first half of the bins.
        n: size of the result along the axis; 2 (m - 1) for m bins by default.
        axis: axis to transform.
        norm: which direction is divided by the number of points: "backward" (the default: inverse ones), "forward" or
            "ortho" (both by its root).

    Example:
        >>> np.allclose(nnp.fft.irfft(nnp.fft.rfft(np.arange(5.0)), n=5), np.arange(5.0))
        True
    """
    return _inverse_real_transform("irfft", x, _one("irfft", n), (axis,), norm)


@spelled
def rfft2(x: ArrayLike, s: Sequence[int] | None = None, axes: Axis = (-2, -1), norm: str | None = None) -> Array:
    """Returns the Fourier transform of a real `x` along the last two axes; see `rfftn`.

    Args:
        x: real.
        s: sizes to cut or pad the two axes to; -1 leaves one as it is.
        axes: the two axes to transform; half of the last one is kept.
        norm: which direction is divided by the number of points: "backward" (the default: inverse ones), "forward" or
            "ortho" (both by its root).

    Example:
        >>> rfft2(nnp.ones((2, 4))).shape
        (2, 3)
    """
    return _real_transform("rfft2", x, s, axes, norm)


@keeps_weakness
def irfft2(x: ArrayLike, s: Sequence[int] | None = None, axes: Axis = (-2, -1), norm: str | None = None) -> Array:
    """Returns the inverse of `rfft2`; see `irfftn`.

    Args:
        x: complex, as `rfft2` returns.
        s: sizes of the result along the two axes; 2 (m - 1) along the last one by default.
        axes: the two axes to transform.
        norm: which direction is divided by the number of points: "backward" (the default: inverse ones), "forward" or
            "ortho" (both by its root).

    Example:
        >>> irfft2(rfft2(nnp.ones((2, 4))))
        Array([[1., 1., 1., 1.],
               [1., 1., 1., 1.]], dtype=float32)
    """
    return _inverse_real_transform("irfft2", x, s, axes, norm)


@spelled
def rfftn(x: ArrayLike, s: Sequence[int] | None = None, axes: Axis = None, norm: str | None = None) -> Array:
    """Returns the Fourier transform of a real `x` along several axes; of the last of them it keeps the first half, as `rfft` does.

    Args:
        x: real.
        s: sizes to cut or pad the axes to; -1 leaves one as it is.
        axes: axes to transform; all by default, or the last ones where `s` is given. Half of the last one is kept.
        norm: which direction is divided by the number of points: "backward" (the default: inverse ones), "forward" or
            "ortho" (both by its root).

    Raises:
        DTypeError: x is complex.
        ArgumentError: there is no axis.

    Example:
        >>> nnp.fft.rfftn(np.ones((4, 6))).shape
        (4, 4)
    """
    return _real_transform("rfftn", x, s, axes, norm)


@keeps_weakness
def irfftn(x: ArrayLike, s: Sequence[int] | None = None, axes: Axis = None, norm: str | None = None) -> Array:
    """Returns the inverse of `rfftn`; `s` are the sizes of the result, by default 2 (m - 1) along the last of the axes.

    Args:
        x: complex, as `rfftn` returns.
        s: sizes of the result along the axes; 2 (m - 1) along the last one by default, 1 where m is 1.
        axes: axes to transform; all by default, or the last ones where `s` is given.
        norm: which direction is divided by the number of points: "backward" (the default: inverse ones), "forward" or
            "ortho" (both by its root).

    Example:
        >>> irfftn(rfftn(nnp.ones((2, 4)))).shape
        (2, 4)
    """
    return _inverse_real_transform("irfftn", x, s, axes, norm)


@keeps_weakness
def hfft(x: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """Returns the real `fft` of a signal with x[-j] = conj(x[j]), of which `x` is the first half.

    Args:
        x: complex, the first half of the signal.
        n: size of the result along the axis; 2 (m - 1) for m elements by default.
        axis: axis to transform.
        norm: which direction is divided by the number of points: "backward" (the default: inverse ones), "forward" or
            "ortho" (both by its root).

    Example:
        >>> nnp.fft.hfft(np.asarray([1.0, 0.0, 0.0]))
        Array([1., 1., 1., 1.], dtype=float64)
    """
    x = ew.conj(_complex("hfft", x))
    return _inverse_real_transform("hfft", x, _one("hfft", n), (axis,), _opposite(norm))


@spelled
def ihfft(x: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """Returns the inverse of `hfft`: the first half of the `ifft` of a real `x`.

    Args:
        x: real.
        n: cut `x` or pad it with zeros to this size.
        axis: axis to transform.
        norm: which direction is divided by the number of points: "backward" (the default: inverse ones), "forward" or
            "ortho" (both by its root).

    Example:
        >>> ihfft(nnp.asarray([1.0, 2.0, 1.0, 2.0]))
        Array([ 1.5-0.j,  0. -0.j, -0.5-0.j], dtype=complex64)
    """
    return ew.conj(_real_transform("ihfft", x, _one("ihfft", n), (axis,), _opposite(norm)))


# -- frequencies -------------------------------------------------------------------------------------------------------


def _frequencies(where: str, n: Any, d: Any, dtype: Any, half: bool) -> Array:
    n = _points(where, n)
    try:
        step = float(d)
    except NncError:
        raise
    except (TypeError, ValueError):
        raise user_error(ArgumentTypeError, where, f"d is {d!r}, not a number.", fix="pass a Python float.") from None
    if step == 0:
        raise user_error(ArgumentError, where, "d is 0.", fix="give the time between two samples.")
    wanted = dtypes.DEFAULT_FLOAT if dtype is None else to_dtype(dtype, where)
    values = np.fft.rfftfreq(n, step) if half else np.fft.fftfreq(n, step)
    return to_value(values.astype(wanted), where)


@spelled
def fftfreq(n: int, d: float = 1.0, dtype: DTypeLike | None = None, *, device: str | None = None) -> Array:
    """Returns the frequencies of the bins of an `fft` of `n` points that are `d` apart.

    Args:
        n: number of points.
        d: distance of the points.
        dtype: float32 by default.
        device: where the array is made, as `nnc.devices` lists it; by default the one of `nnc.default_device`.

    Raises:
        ArgumentError: n is less than 1, or d is 0.

    Example:
        >>> nnp.fft.fftfreq(4, 0.5)
        Array([ 0. ,  0.5, -1. , -0.5], dtype=float32)
    """
    return _frequencies("fftfreq", n, d, dtype, half=False)


@spelled
def rfftfreq(n: int, d: float = 1.0, dtype: DTypeLike | None = None, *, device: str | None = None) -> Array:
    """Returns the frequencies of the bins of an `rfft`; the arguments are those of `fftfreq`.

    Args:
        n: number of points.
        d: distance of the points.
        dtype: float32 by default.
        device: where the array is made, as `nnc.devices` lists it; by default the one of `nnc.default_device`.

    Example:
        >>> nnp.fft.rfftfreq(4, 0.5)
        Array([0. , 0.5, 1. ], dtype=float32)
    """
    return _frequencies("rfftfreq", n, d, dtype, half=True)


@spelled
def fftshift(x: ArrayLike, axes: Axis = None) -> Array:
    """Returns `x` rolled along `axes` (all by default) so that bin 0 comes to the middle.

    Args:
        x: any shape.
        axes: axes to roll; all by default.

    Example:
        >>> nnp.fft.fftshift(np.arange(5))
        Array([3, 4, 0, 1, 2], dtype=int64)
    """
    x = to_value(x, "fftshift")
    at = to_axes("fftshift", axes, x.spec.ndim)
    return roll(x, tuple(x.spec.shape[i] // 2 for i in at), at)


@spelled
def ifftshift(x: ArrayLike, axes: Axis = None) -> Array:
    """Returns the inverse of `fftshift`; for even sizes they are the same.

    Args:
        x: any shape.
        axes: axes to roll; all by default.

    Example:
        >>> nnp.fft.ifftshift(nnp.fft.fftshift(np.arange(5)))
        Array([0, 1, 2, 3, 4], dtype=int64)
    """
    x = to_value(x, "ifftshift")
    at = to_axes("ifftshift", axes, x.spec.ndim)
    return roll(x, tuple(-(x.spec.shape[i] // 2) for i in at), at)


if not TYPE_CHECKING:  # to which a name that is not there would be one of type NoReturn
    __getattr__, __dir__ = public_names("nnc.numpy.fft")
