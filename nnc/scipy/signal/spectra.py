"""Spectra of segments of a signal, which nnc.scipy.signal shows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from nnc.array.array import Array, as_value
from nnc.array.promote import astype, promote, result_dtype
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.commands.rules import check_dtype
from nnc.errors import ArgumentError, ShapeError, user_error
from nnc.errors.errors import check_choice
from nnc.numpy import elementwise as el
from nnc.numpy import fft
from nnc.numpy.creation import zeros
from nnc.numpy.joining import concatenate
from nnc.numpy.manipulation import flip, moveaxis
from nnc.numpy.moments import mean
from nnc.numpy.operands import to_axis, to_size, to_value, to_values
from nnc.numpy.reductions import sum as sum_
from nnc.numpy.statistics import median
from nnc.scipy.signal.trends import detrend as without_trend
from nnc.scipy.signal.windows import make_window
from nnc.typing import ArrayLike

__all__ = ["csd", "istft", "stft", "welch"]

_BOUNDARIES = ("even", "odd", "constant", "zeros", None)
_LEAST = 1e-10  # of the sum of squared windows, below which samples are not divided by it, as in SciPy


@dataclass(frozen=True, slots=True)
class _Segments:
    """The cut of a signal: `size` samples each, `step` apart, of transforms of `points`, seen through `window`."""

    size: int
    step: int
    points: int
    window: Array


def _segments(
    where: str,
    window: Any,
    nperseg: Any,
    noverlap: Any,
    nfft: Any,
    n: int | None,
    dtype: dtypes.DType,
) -> _Segments:
    """Reads the sizes of segments; `n` is the length of the signal, where it limits them.

    Raises:
        ArgumentError, ShapeError: a size is out of range.
    """
    named = isinstance(window, (str, tuple, int, float))
    held = np.zeros((), dtypes.real_dtype(dtype))
    values = None if named else to_values(where, signal=held, window=window)[1]
    if values is not None and values.spec.ndim != 1:
        problem = "the window must be a vector."
        raise user_error(ShapeError, where, problem, operands={"window": values.spec}, fix="flatten it.")
    size = None if nperseg is None else to_size(nperseg, where, "nperseg")
    if size is None:
        size = 256 if values is None else values.spec.size
    if values is None and n is not None:
        size = min(size, n)
    if size < 1 or (n is not None and size > n):
        limit = "1" if n is None else f"1 to {n}, the length of the signal"
        raise user_error(ArgumentError, where, f"segments have {size} samples.", fix=f"set nperseg to {limit}.")
    if values is not None and values.spec.size != size:
        problem = f"the window has {values.spec.size} samples, a segment {size}."
        fix = "leave nperseg out, or set it to the length of the window."
        raise user_error(ShapeError, where, problem, operands={"window": values.spec}, fix=fix)
    points = size if nfft is None else to_size(nfft, where, "nfft")
    overlap = size // 2 if noverlap is None else to_size(noverlap, where, "noverlap")
    if points < size or overlap >= size:
        problem = f"nfft is {points} and noverlap {overlap}, segments have {size} samples."
        fix = "make nfft at least, and noverlap less than the number of samples of a segment."
        raise user_error(ArgumentError, where, problem, fix=fix)
    if values is None:
        values = as_value(make_window(where, window, size, True).astype(dtypes.real_dtype(dtype)))
    else:  # its sums are as exact as those of the signal
        values = astype(values, result_dtype(values, held, where=where))
    return _Segments(size, size - overlap, points, values)


def _places(count: int, seg: _Segments) -> np.ndarray[Any, Any]:
    """Returns the positions of the samples of each segment."""
    return np.arange(count)[:, None] * seg.step + np.arange(seg.size)


def _transformed(x: Array, seg: _Segments, detrend: Any, onesided: bool) -> Array:
    """Returns the transforms of all segments, (..., segments, frequencies)."""
    count = (x.spec.shape[-1] - seg.size) // seg.step + 1
    parts = x[..., as_value(_places(count, seg))]
    if callable(detrend):
        parts = to_value(detrend(parts), "detrend")
    elif detrend:
        parts = without_trend(parts, axis=-1, type=detrend)
    parts = parts * seg.window
    return fft.rfft(parts, seg.points) if onesided else fft.fft(parts, seg.points)


def _frequencies(seg: _Segments, fs: Any, onesided: bool, dtype: dtypes.DType) -> Array:
    made = (np.fft.rfftfreq if onesided else np.fft.fftfreq)(seg.points)
    return as_value(made.astype(dtypes.real_dtype(dtype))) * fs


def _scale(where: str, scaling: str, names: tuple[str, str], window: Array, fs: Any) -> Array:
    """Returns the factor of a power; `names` are those of a density and of a spectrum."""
    check_choice(where, "scaling", scaling, names)
    return 1.0 / (fs * sum_(window * window)) if scaling == names[0] else 1.0 / el.square(sum_(window))


def _signals(where: str, *signals: Any) -> list[Array]:
    found = [
        to_value(x, where) for x in promote(*signals, where=where, to=lambda d: dtypes.accumulator(dtypes.to_float(d)))
    ]
    for x in found:
        if not x.spec.ndim or not x.spec.size:
            raise user_error(ShapeError, where, "the signal is empty.", operands={"x": x.spec}, fix="pass samples.")
    return found


def _check_onesided(where: str, onesided: bool, *signals: Array) -> None:
    if onesided:
        for x in signals:
            check_dtype(where, x.spec, dtypes.is_float, "real for a one-sided spectrum")


def _extended(x: Array, count: int, how: str) -> Array:
    """Returns the signal with `count` samples more at both ends of the last axis."""
    if not count:
        return x
    first, last = x[..., :1], x[..., -1:]
    if how in ("even", "odd"):
        before, behind = flip(x[..., 1 : count + 1], -1), flip(x[..., -count - 1 : -1], -1)
        if how == "odd":
            before, behind = 2 * first - before, 2 * last - behind
    else:
        ends = (first * 0, last * 0) if how == "zeros" else (first, last)
        before, behind = (end + zeros((*x.spec.shape[:-1], count), x.spec.dtype) for end in ends)
    return concatenate([before, x, behind], axis=-1)


@spelled
def stft(
    x: ArrayLike, fs: ArrayLike = 1.0, window: Any = "hann", nperseg: int | None = None, noverlap: int | None = None,
    nfft: int | None = None, detrend: Any = False, return_onesided: bool = True, boundary: str | None = "zeros",
    padded: bool = True, axis: int = -1, scaling: str = "spectrum",
) -> tuple[Array, Array, Array]:  # fmt: skip
    """Returns the spectra of segments of a signal that overlap: the short-time Fourier transform.

    Args:
        x: a signal along `axis`; integers become float32.
        fs: samples per unit of time.
        window: a name or a tuple, as for `get_window`, or a vector.
        nperseg: samples of a segment, 256 by default; all of a shorter signal.
        noverlap: samples that neighbours share, by default half of a segment.
        nfft: points of a transform, by default those of a segment; more are filled with 0.
        detrend: "constant" or "linear" removes the trend of each segment, as `detrend` does; a function is called with all
            segments, the last axis is that of time.
        return_onesided: only frequencies of 0 and more; a complex signal needs False.
        boundary: the signal is continued by half a segment at both ends, so that the first segment is centred on the first sample:
            "zeros", "constant", "even" or "odd"; None leaves it.
        padded: fill with 0 at the end, so that all samples lie in a segment.
        axis: the axis of time.
        scaling: "spectrum": a sine has its amplitude's half; "psd": squares are densities.

    Returns:
        Frequencies; times of the middles of the segments; and the spectra, with the frequencies in place of `axis` and the segments
        along a last axis.

    Raises:
        ArgumentError, ShapeError: a size or a name is out of range.
        DTypeError: a one-sided spectrum of a complex signal is asked for.

    Example:
        >>> f, t, z = stft(np.sin(np.arange(1000)), nperseg=100)
        >>> f.shape, t.shape, z.shape
        ((51,), (21,), (51, 21))
    """
    check_choice("stft", "boundary", boundary, _BOUNDARIES)
    (value,) = _signals("stft", x)
    _check_onesided("stft", return_onesided, value)
    at = to_axis("stft", axis, value.spec.ndim)
    rows = moveaxis(value, at, -1)
    n, dtype = rows.spec.shape[-1], rows.spec.dtype
    seg = _segments("stft", window, nperseg, noverlap, nfft, n, dtype)
    if boundary in ("even", "odd") and seg.size // 2 >= n:
        problem = f"{seg.size // 2} samples are reflected, there are {n}."
        raise user_error(ArgumentError, "stft", problem, fix="use shorter segments.")
    if boundary is not None:
        rows = _extended(rows, seg.size // 2, boundary)
    if padded:
        more = (-(rows.spec.shape[-1] - seg.size) % seg.step) % seg.size
        rows = concatenate([rows, zeros((*rows.spec.shape[:-1], more), dtype)], axis=-1)
    factor = el.sqrt(_scale("stft", scaling, ("psd", "spectrum"), seg.window, fs))
    found = _transformed(rows, seg, detrend, return_onesided) * factor
    count = found.spec.shape[-2]
    times = (np.arange(count) * seg.step + (0 if boundary is not None else seg.size / 2)).astype(
        dtypes.real_dtype(dtype)
    )
    return _frequencies(seg, fs, return_onesided, dtype), as_value(times) / fs, moveaxis(found, -1, at)


@spelled
def istft(
    Zxx: ArrayLike, fs: ArrayLike = 1.0, window: Any = "hann", nperseg: int | None = None,  # noqa: N803  (SciPy's name)
    noverlap: int | None = None, nfft: int | None = None, input_onesided: bool = True, boundary: bool = True,
    time_axis: int = -1, freq_axis: int = -2, scaling: str = "spectrum",
) -> tuple[Array, Array]:  # fmt: skip
    """Returns the signal of a short-time Fourier transform: the weighted sum of its segments, the inverse of `stft`.

    Args:
        Zxx: the spectra, complex.
        fs: samples per unit of time.
        window: a name or a tuple, as for `get_window`, or a vector: the one of `stft`.
        nperseg: samples of a segment, by default as many as an even number of frequencies says.
        noverlap: samples that neighbours share, by default half of a segment.
        nfft: points of a transform, by default those of a segment.
        input_onesided: the spectra hold frequencies of 0 and more only.
        boundary: the signal was continued by half a segment at both ends, which is cut off.
        time_axis: the axis of segments.
        freq_axis: the axis of frequencies.
        scaling: "spectrum" or "psd", as for `stft`.

    Returns:
        Times, and the signal along the axis `time_axis`.

    Raises:
        ArgumentError, ShapeError: a size or a name is out of range.

    Example:
        >>> x = np.sin(np.arange(1000))
        >>> t, y = istft(stft(x, nperseg=100)[2], nperseg=100)
        >>> bool(abs(y - x).max() < 1e-12)
        True
    """
    where = "istft"
    (z,) = promote(Zxx, where=where, to=lambda d: dtypes.complex_dtype(dtypes.accumulator(dtypes.to_float(d))))
    z = to_value(z, where, "Zxx")
    if z.spec.ndim < 2:
        problem = "Zxx has no axes of frequencies and times."
        raise user_error(ShapeError, where, problem, operands={"Zxx": z.spec}, fix="pass stft's result.")
    time, freq = to_axis(where, time_axis, z.spec.ndim), to_axis(where, freq_axis, z.spec.ndim)
    if time == freq:
        raise user_error(ArgumentError, where, "time_axis and freq_axis name one axis.", fix="name two.")
    rows = moveaxis(z, (time, freq), (-2, -1))  # (..., segments, frequencies)
    count, size = rows.spec.shape[-2:]
    usual = 2 * (size - 1) if input_onesided else size
    points = nfft if nfft is not None else nperseg if input_onesided and nperseg == usual + 1 else usual
    real = dtypes.real_dtype(z.spec.dtype)
    length = nperseg if nperseg is not None or not isinstance(window, (str, tuple, int, float)) else usual
    seg = _segments(where, window, length, noverlap, points, None, real)
    parts = fft.irfft(rows, seg.points) if input_onesided else fft.ifft(rows, seg.points)
    parts = parts[..., : seg.size] * seg.window / el.sqrt(_scale(where, scaling, ("psd", "spectrum"), seg.window, fs))
    total = seg.size + (count - 1) * seg.step
    places = as_value(_places(count, seg))
    x = zeros((*parts.spec.shape[:-2], total), parts.spec.dtype).at[..., places].add(parts)
    squares = el.square(seg.window) + zeros((count, seg.size), seg.window.dtype)
    weights = zeros((total,), seg.window.dtype).at[places].add(squares)
    if boundary:
        cut = seg.size // 2
        x, weights = x[..., cut : total - cut], weights[cut : total - cut]
    x = x / el.where(weights > _LEAST, weights, 1)
    times = as_value(np.arange(x.spec.shape[-1]).astype(real)) / fs
    return times, moveaxis(x, -1, time - (freq < time))


@spelled
def csd(
    x: ArrayLike, y: ArrayLike, fs: ArrayLike = 1.0, window: Any = "hann", nperseg: int | None = None,
    noverlap: int | None = None, nfft: int | None = None, detrend: Any = "constant", return_onesided: bool = True,
    scaling: str = "density", axis: int = -1, average: str = "mean",
) -> tuple[Array, Array]:  # fmt: skip
    """Estimates the cross power spectral density of two signals by Welch's method: averages over segments of conj(X) Y.

    Args:
        x: a signal along `axis`; integers become float32.
        y: another one; the shorter is filled with 0, other axes broadcast.
        fs: samples per unit of time.
        window: a name or a tuple, as for `get_window`, or a vector.
        nperseg: samples of a segment, 256 by default; all of a shorter signal.
        noverlap: samples that neighbours share, by default half of a segment.
        nfft: points of a transform, by default those of a segment; more are filled with 0.
        detrend: removes the trend of each segment: "constant", "linear", a function, or False, as for `stft`.
        return_onesided: only frequencies of 0 and more, which have the power of both signs; complex signals need False.
        scaling: "density" divides by frequency, "spectrum" does not.
        axis: the axis of time.
        average: "mean" of the segments, or "median", corrected for its bias.

    Returns:
        Frequencies, and the density with frequencies along `axis`.

    Raises:
        ArgumentError, ShapeError: a size or a name is out of range.
        DTypeError: a one-sided spectrum of a complex signal is asked for.

    Example:
        >>> f, p = csd(np.sin(np.arange(1000)), np.cos(np.arange(1000)), nperseg=100)
        >>> f.shape, p.dtype
        ((51,), dtype('complex128'))
    """
    return _welch("csd", x, y, fs, window, nperseg, noverlap, nfft, detrend, return_onesided, scaling, axis, average)


@spelled
def welch(
    x: ArrayLike, fs: ArrayLike = 1.0, window: Any = "hann", nperseg: int | None = None, noverlap: int | None = None,
    nfft: int | None = None, detrend: Any = "constant", return_onesided: bool = True, scaling: str = "density",
    axis: int = -1, average: str = "mean",
) -> tuple[Array, Array]:  # fmt: skip
    """Estimates the power spectral density of a signal: the average over segments of |X|² (Welch, 1967).

    Args:
        x: a signal along `axis`; integers become float32.
        fs: samples per unit of time.
        window: a name or a tuple, as for `get_window`, or a vector.
        nperseg: samples of a segment, 256 by default; all of a shorter signal.
        noverlap: samples that neighbours share, by default half of a segment.
        nfft: points of a transform, by default those of a segment; more are filled with 0.
        detrend: removes the trend of each segment: "constant", "linear", a function, or False, as for `stft`.
        return_onesided: only frequencies of 0 and more, which have the power of both signs; complex signals need False.
        scaling: "density" divides by frequency, "spectrum" does not.
        axis: the axis of time.
        average: "mean" of the segments, or "median", corrected for its bias.

    Returns:
        Frequencies, and the real density with frequencies along `axis`.

    Raises:
        ArgumentError, ShapeError: a size or a name is out of range.
        DTypeError: a one-sided spectrum of a complex signal is asked for.

    Example:
        >>> f, p = welch(np.sin(np.arange(1000)), nperseg=100)
        >>> float(f[p.argmax()].round(4))
        0.16
    """
    return _welch(
        "welch", x, None, fs, window, nperseg, noverlap, nfft, detrend, return_onesided, scaling, axis, average
    )


def _welch(
    where: str, x: Any, y: Any, fs: Any, window: Any, nperseg: Any, noverlap: Any, nfft: Any, detrend: Any, onesided: bool,
    scaling: str, axis: int, average: str,
) -> tuple[Array, Array]:  # fmt: skip
    check_choice(where, "average", average, ("mean", "median"))
    signals = _signals(where, x) if y is None else _signals(where, x, y)
    _check_onesided(where, onesided, *signals)
    rows = [moveaxis(s, to_axis(where, axis, s.spec.ndim), -1) for s in signals]
    n = max(s.spec.shape[-1] for s in rows)
    rows = [
        s
        if s.spec.shape[-1] == n
        else concatenate([s, zeros((*s.spec.shape[:-1], n - s.spec.shape[-1]), s.spec.dtype)], axis=-1)
        for s in rows
    ]
    dtype = rows[0].spec.dtype
    seg = _segments(where, window, nperseg, noverlap, nfft, n, dtype)
    found = [_transformed(s, seg, detrend, onesided) for s in rows]
    first, last = found[0], found[-1]
    power = el.square(el.real(first)) + el.square(el.imag(first)) if y is None else el.conj(first) * last
    power = power * _scale(where, scaling, ("density", "spectrum"), seg.window, fs)
    if onesided:
        double = np.full(power.spec.shape[-1], 2.0)
        double[0] = 1
        if seg.points % 2 == 0:
            double[-1] = 1  # the highest frequency is its own opposite
        power = power * as_value(double.astype(dtypes.real_dtype(dtype)))
    averaged = moveaxis(_AVERAGES[average](power), -1, axis)
    return _frequencies(seg, fs, onesided, dtype), averaged


def _median(power: Array) -> Array:
    """Returns the median over segments, divided by its expectation for the exponential distribution of mean 1."""
    count = power.spec.shape[-2]
    k = 2 * np.arange(1.0, (count - 1) // 2 + 1)
    bias = 1 + float(np.sum(1 / (k + 1) - 1 / k))
    if not dtypes.is_complex(power.spec.dtype):
        return median(power, axis=-2) / bias
    return (median(el.real(power), axis=-2) + 1j * median(el.imag(power), axis=-2)) / bias


_AVERAGES: dict[str, Callable[[Array], Array]] = {"mean": lambda p: mean(p, axis=-2), "median": _median}
