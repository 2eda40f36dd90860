"""Convolutions and correlations in any number of dimensions, which nnc.scipy.signal shows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from nnc.array.array import Array
from nnc.array.promote import astype, promote
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.commands.conv import conv
from nnc.commands.elementwise import NUMERIC
from nnc.commands.rules import check_dtype
from nnc.errors import ShapeError, user_error
from nnc.errors.errors import check_choice
from nnc.numpy import elementwise as el
from nnc.numpy import fft
from nnc.numpy.manipulation import flip, reshape
from nnc.numpy.operands import Axis, to_axes, to_value, to_values
from nnc.numpy.padding import pad
from nnc.typing import ArrayLike

__all__ = ["convolve", "convolve2d", "correlate", "correlate2d", "fftconvolve", "oaconvolve"]

_MODES = ("full", "same", "valid")
_BOUNDARIES = {"fill": "constant", "wrap": "wrap", "symm": "symmetric"}
# Products a result that may take the time of one step of an FFT. Measured on float64 vectors of 1000 to 200000 elements, both
# take as long at 2; twice as many, since sums are more exact than transforms.
_DIRECT = 4


def _operands(
    where: str, in1: Any, in2: Any, mode: str, axes: Sequence[int] | None = None, floats: bool = False
) -> list[Array]:
    """Both operands in one dtype; in mode "valid" the one that covers the other comes first."""
    check_choice(where, "mode", mode, _MODES)
    to = (lambda dtype: dtypes.accumulator(dtypes.to_float(dtype))) if floats else None
    x, y = (to_value(v, where) for v in promote(in1, in2, where=where, to=to))
    check_dtype(where, x.spec, *NUMERIC)
    if x.spec.ndim != y.spec.ndim or not x.spec.size or not y.spec.size:
        problem = "both operands must have as many axes, and be not empty."
        fix = "insert axes of size 1, or use nnc.vmap for rows."
        raise user_error(ShapeError, where, problem, operands={"in1": x.spec, "in2": y.spec}, fix=fix)
    if mode != "valid":
        return [x, y]
    sizes = [(x.spec.shape[i], y.spec.shape[i]) for i in (range(x.spec.ndim) if axes is None else axes)]
    if all(a >= b for a, b in sizes):
        return [x, y]
    if all(a <= b for a, b in sizes):
        return [y, x]
    problem = "neither operand covers the other."
    fix = 'use mode="full", or an operand that is at least as large along all axes.'
    raise user_error(ShapeError, where, problem, operands={"in1": x.spec, "in2": y.spec}, fix=fix)


def _margins(n: int, mode: str) -> tuple[int, int]:
    """Returns the numbers of elements put before and behind the first operand, for n elements of the second."""
    return {"full": (n - 1, n - 1), "same": (n // 2, (n - 1) // 2), "valid": (0, 0)}[mode]


def _direct(x: Array, y: Array, margins: Sequence[tuple[int, int]]) -> Array:
    ones = (1,) * x.spec.ndim
    rows, kernel = reshape(x, (1, 1, *x.spec.shape)), reshape(flip(y), (1, 1, *y.spec.shape))
    found = conv(rows, kernel, stride=ones, padding=tuple(margins), dilation=ones, groups=1)
    return reshape(found, found.spec.shape[2:])


def _by_fft_is_faster(x: Array, y: Array) -> bool:
    if not dtypes.is_inexact(x.spec.dtype):
        return False  # integers are exact
    whole = math.prod(a + b - 1 for a, b in zip(x.spec.shape, y.spec.shape, strict=True))
    return min(x.spec.size, y.spec.size) > _DIRECT * math.log2(whole + 1)


@spelled
def convolve(in1: ArrayLike, in2: ArrayLike, mode: str = "full", method: str = "auto") -> Array:
    """Returns the convolution of two arrays with the same number of axes: out[k] = Σ_i in1[i] · in2[k - i].

    Args:
        in1: any shape.
        in2: as many axes.
        mode: "full": wherever they overlap; "same": of the shape of in1, centred; "valid": where one lies fully within the other.
        method: "direct" sums products; "fft" multiplies Fourier transforms, with rounding errors relative to the largest element;
            "auto" takes the faster one.

    Raises:
        ShapeError: the shapes do not fit.
        ArgumentError: there is no such mode or method.

    Example:
        >>> convolve(np.asarray([[1, 2], [3, 4]]), np.asarray([[1, 1]]))
        Array([[1, 3, 2],
               [3, 7, 4]], dtype=int64)
    """
    return _convolve("convolve", in1, in2, mode, method)


def _convolve(where: str, in1: Any, in2: Any, mode: str, method: str) -> Array:
    check_choice(where, "method", method, ("auto", "direct", "fft"))
    x, y = _operands(where, in1, in2, mode)
    if not x.spec.ndim:
        return x * y
    if method == "fft" or (method == "auto" and _by_fft_is_faster(x, y)):
        own = x.spec.dtype
        found = fftconvolve(x, y, mode)
        return found if dtypes.is_inexact(own) else astype(el.round(found), own)
    return _direct(x, y, [_margins(n, mode) for n in y.spec.shape])


@spelled
def correlate(in1: ArrayLike, in2: ArrayLike, mode: str = "full", method: str = "auto") -> Array:
    """Returns the correlation of two arrays with the same number of axes: out[k] = Σ_i in1[i + k] · conj(in2[i]).

    In mode "full" the first element belongs to the most negative k.

    Args:
        in1: any shape.
        in2: as many axes, conjugated.
        mode: "full", "same" or "valid", as for `convolve`.
        method: "auto", "direct" or "fft", as for `convolve`.

    Raises:
        ShapeError: the shapes do not fit.
        ArgumentError: there is no such mode or method.

    Example:
        >>> correlate(np.asarray([1, 2, 3]), np.asarray([0, 1]))
        Array([1, 2, 3, 0], dtype=int64)
    """
    in1, in2 = to_values("correlate", in1=in1, in2=in2)
    return _convolve("correlate", in1, el.conj(flip(in2)), mode, method)


# -- images ------------------------------------------------------------------------------------------------------------


def _convolve2d(
    where: str, in1: Any, in2: Any, mode: str, boundary: str, fillvalue: Any, turned: bool = False
) -> Array:
    check_choice(where, "boundary", boundary, _BOUNDARIES)
    x, y = _operands(where, in1, in2, mode)
    if x.spec.ndim != 2:
        problem = "both operands must be matrices."
        fix = "use convolve or correlate for other numbers of axes, and nnc.vmap for batches."
        raise user_error(ShapeError, where, problem, operands={"in1": x.spec, "in2": y.spec}, fix=fix)
    margins = [_margins(n, mode) for n in y.spec.shape]
    if turned:  # the centre of an even number of elements is the later one, so here the earlier one
        margins = [(high, low) for low, high in margins]
    if boundary == "fill" and isinstance(fillvalue, (int, float)) and not fillvalue:
        return _direct(x, y, margins)
    filled = {"constant_values": fillvalue} if boundary == "fill" else {}
    return _direct(pad(x, margins, mode=_BOUNDARIES[boundary], **filled), y, [(0, 0), (0, 0)])


@spelled
def convolve2d(
    in1: ArrayLike, in2: ArrayLike, mode: str = "full", boundary: str = "fill", fillvalue: ArrayLike = 0
) -> Array:
    """Returns the convolution of two matrices; the first one is continued beyond its edges.

    Args:
        in1: (m, n).
        in2: (k, l).
        mode: "full", "same" or "valid", as for `convolve`.
        boundary: "fill" with a number, "wrap" around, or "symm": reflect at the edges.
        fillvalue: the number of "fill".

    Raises:
        ShapeError: an operand is no matrix, or neither covers the other.
        ArgumentError: there is no such mode or boundary.

    Example:
        >>> convolve2d(np.asarray([[1, 2], [3, 4]]), np.asarray([[1, 1]]), mode="same", boundary="wrap")
        Array([[3, 3],
               [7, 7]], dtype=int64)
    """
    return _convolve2d("convolve2d", in1, in2, mode, boundary, fillvalue)


@spelled
def correlate2d(
    in1: ArrayLike, in2: ArrayLike, mode: str = "full", boundary: str = "fill", fillvalue: ArrayLike = 0
) -> Array:
    """Returns the correlation of two matrices; the first one is continued beyond its edges.

    Args:
        in1: (m, n).
        in2: (k, l), conjugated.
        mode: "full", "same" or "valid", as for `convolve`.
        boundary: "fill" with a number, "wrap" around, or "symm": reflect at the edges.
        fillvalue: the number of "fill".

    Raises:
        ShapeError: an operand is no matrix, or neither covers the other.
        ArgumentError: there is no such mode or boundary.

    Example:
        >>> correlate2d(np.asarray([[1, 2], [3, 4]]), np.asarray([[0, 1]]), mode="valid")
        Array([[2],
               [4]], dtype=int64)
    """
    in1, in2 = to_values("correlate2d", in1=in1, in2=in2)
    return _convolve2d("correlate2d", in1, el.conj(flip(in2)), mode, boundary, fillvalue, turned=True)


# -- Fourier transforms ------------------------------------------------------------------------------------------------


def _fast_size(n: int) -> int:
    """Returns the smallest product of 2, 3 and 5 from n on."""
    best = 1 << max(n - 1, 0).bit_length()
    five = 1
    while five < best:
        three = five
        while three < best:
            size = three
            while size < n:
                size *= 2
            best = min(best, size)
            three *= 3
        five *= 5
    return best


@spelled
def fftconvolve(in1: ArrayLike, in2: ArrayLike, mode: str = "full", axes: Axis = None) -> Array:
    """Returns the convolution of two arrays by the product of their Fourier transforms.

    Rounding errors are relative to the largest element of the result. Integers become float32.

    Args:
        in1: any shape.
        in2: as many axes; those that are not convolved broadcast.
        mode: "full", "same" or "valid", as for `convolve`.
        axes: the axes to convolve along; by default all.

    Raises:
        ShapeError: the shapes do not fit.
        ArgumentError: there is no such mode.

    Example:
        >>> fftconvolve(np.asarray([1.0, 2.0, 3.0]), np.asarray([0.0, 1.0])).round(6)
        Array([0., 1., 2., 3.], dtype=float64)
    """
    where = "fftconvolve"
    along = to_axes(where, axes, to_value(in1, where, "in1").spec.ndim)
    x, y = _operands(where, in1, in2, mode, along, floats=True)
    sizes = {i: x.spec.shape[i] + y.spec.shape[i] - 1 for i in along}
    apart = [(a, b) for i, (a, b) in enumerate(zip(x.spec.shape, y.spec.shape, strict=True)) if i not in sizes]
    if any(a != b and 1 not in (a, b) for a, b in apart):
        problem = "axes that are not convolved do not broadcast."
        fix = "make their sizes equal or 1, or name them in axes."
        raise user_error(ShapeError, where, problem, operands={"in1": x.spec, "in2": y.spec}, fix=fix)
    if not along:
        return x * y
    fast = [_fast_size(sizes[i]) for i in along]
    if dtypes.is_complex(x.spec.dtype):
        whole = fft.ifftn(fft.fftn(x, fast, along) * fft.fftn(y, fast, along), fast, along)
    else:
        whole = fft.irfftn(fft.rfftn(x, fast, along) * fft.rfftn(y, fast, along), fast, along)
    index = [slice(None)] * x.spec.ndim
    for i in along:
        a, b = x.spec.shape[i], y.spec.shape[i]
        start = {"full": 0, "same": (b - 1) // 2, "valid": b - 1}[mode]
        length = {"full": a + b - 1, "same": a, "valid": a - b + 1}[mode]
        index[i] = slice(start, start + length)
    return whole[tuple(index)]


@spelled
def oaconvolve(in1: ArrayLike, in2: ArrayLike, mode: str = "full", axes: Axis = None) -> Array:
    """Returns the convolution of a long array with a short one: Fourier transforms of blocks, whose overlaps are added.

    Rounding errors are relative to the largest element of a block. Integers become float32.

    Args:
        in1: any shape.
        in2: as many axes; those that are not convolved broadcast.
        mode: "full", "same" or "valid", as for `convolve`.
        axes: the axes to convolve along; by default all. Along the one whose sizes differ most, blocks are made.

    Raises:
        ShapeError: the shapes do not fit.
        ArgumentError: there is no such mode.

    Example:
        >>> oaconvolve(np.ones(1000), np.ones(3), mode="same").max().round(6)
        Array(3., dtype=float64)
    """
    where = "oaconvolve"
    along = to_axes(where, axes, to_value(in1, where, "in1").spec.ndim)
    x, y = _operands(where, in1, in2, mode, along, floats=True)
    ratios = {i: x.spec.shape[i] / y.spec.shape[i] for i in along}
    if not ratios:
        return fftconvolve(x, y, mode, axes=along)
    axis = max(ratios, key=lambda i: max(ratios[i], 1 / ratios[i]))
    a, b = x.spec.shape[axis], y.spec.shape[axis]
    short, long, small, n = (x, y, a, b) if a < b else (y, x, b, a)
    step = max(_fast_size(8 * small) - small + 1, 1)
    if n <= 2 * step:
        return fftconvolve(x, y, mode, axes=along)
    count = -(-n // step)
    margins = [(0, 0)] * long.spec.ndim
    margins[axis] = (0, count * step - n)
    shape = long.spec.shape
    blocks = reshape(pad(long, margins), (*shape[:axis], count, step, *shape[axis + 1 :]))
    kernel = reshape(short, (*short.spec.shape[:axis], 1, *short.spec.shape[axis:]))
    parts = fftconvolve(blocks, kernel, "full", axes=tuple(i + (i >= axis) for i in along))
    whole = _overlapped(parts, axis, count, step, small)
    index = [slice(None)] * x.spec.ndim
    for i in along:
        p, q = x.spec.shape[i], y.spec.shape[i]
        start = {"full": 0, "same": (q - 1) // 2, "valid": q - 1}[mode]
        index[i] = slice(start, start + {"full": p + q - 1, "same": p, "valid": p - q + 1}[mode])
    return whole[tuple(index)]


def _overlapped(parts: Array, axis: int, count: int, step: int, small: int) -> Array:
    """Blocks of step + small - 1 elements along the axis after `axis`, put together `step` apart; small - 1 is below step."""
    before, rest = parts.spec.shape[:axis], parts.spec.shape[axis + 2 :]
    lead = (slice(None),) * (axis + 1)
    heads, tails = parts[(*lead, slice(0, step))], parts[(*lead, slice(step, None))]
    margins = [(0, 0)] * parts.spec.ndim
    margins[axis], margins[axis + 1] = (0, 1), (0, 0)
    first = pad(heads, margins)
    margins[axis], margins[axis + 1] = (1, 0), (0, step - small + 1)
    return reshape(first + pad(tails, margins), (*before, (count + 1) * step, *rest))
