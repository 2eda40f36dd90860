"""Convolutions, windows and spectra agree with SciPy; their derivatives, with differences."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import scipy.signal

import nnc
import nnc.scipy.signal as signal
from nnc.errors import ArgumentError, DTypeError, ShapeError
from nnc.testing import check_grads

RNG = np.random.default_rng(11)
LONG, SHORT = RNG.normal(size=40), RNG.normal(size=7)
IMAGE, KERNEL, WIDE = RNG.normal(size=(6, 9)), RNG.normal(size=(3, 4)), RNG.normal(size=(3, 12))
CUBE, SMALL_CUBE = RNG.normal(size=(4, 5, 6)), RNG.normal(size=(2, 3, 3))
X, Y = RNG.normal(size=(2, 300)), RNG.normal(size=(2, 280))

# name: nnc's and SciPy's function, operands
CASES: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[Any, ...]]] = {}


def case(name: str, label: str, *operands: Any, **kwargs: Any) -> None:
    ours, theirs = getattr(signal, name), getattr(scipy.signal, name)
    part = slice(1, None) if name == "istft" else None  # SciPy counts its times along the first axis

    def run(function: Any, *xs: Any) -> Any:
        return function(*xs, **kwargs) if part is None else tuple(function(*xs, **kwargs)[part])

    CASES[f"{name} {label}"] = (partial(run, ours), partial(run, theirs), operands)


for function in ("convolve", "correlate", "fftconvolve", "oaconvolve"):
    for mode in ("full", "same", "valid"):
        case(function, f"{mode} vectors", LONG, SHORT, mode=mode)
        case(function, f"{mode} short first", SHORT, LONG, mode=mode)
        case(function, f"{mode} images", IMAGE, KERNEL, mode=mode)
    case(function, "cubes", CUBE, SMALL_CUBE)
    case(function, "complex", LONG + 1j * LONG[::-1], SHORT * (1 + 2j), mode="same")
    case(function, "one element", LONG[:1], SHORT[:1])
for function in ("convolve", "correlate"):
    for method in ("direct", "fft"):
        case(function, method, IMAGE, KERNEL, mode="same", method=method)
    case(function, "odd same", IMAGE, WIDE, mode="same")
for function in ("fftconvolve", "oaconvolve"):
    case(function, "one axis", IMAGE, KERNEL[:1], axes=1)
    case(function, "other axis", IMAGE[:, :1], IMAGE, axes=0)
case("oaconvolve", "blocks", RNG.normal(size=(2, 3000)), RNG.normal(size=(2, 5)), axes=-1, mode="same")
case("oaconvolve", "blocks of images", RNG.normal(size=(300, 7)), RNG.normal(size=(3, 2)), mode="valid")
case("oaconvolve", "blocks, short first", RNG.normal(size=4), RNG.normal(size=999))
for mode in ("full", "same", "valid"):
    for boundary in ("fill", "wrap", "symm"):
        case("convolve2d", f"{mode} {boundary}", IMAGE, KERNEL, mode=mode, boundary=boundary)
        case("correlate2d", f"{mode} {boundary}", IMAGE, KERNEL, mode=mode, boundary=boundary)
case("convolve2d", "fillvalue", IMAGE, KERNEL, mode="same", fillvalue=2.5)
case("convolve2d", "small first", KERNEL, IMAGE, mode="valid")
for kind in ("linear", "constant", "l", "c"):
    case("detrend", kind, X, type=kind)
case("detrend", "breaks", X, bp=[10, 11, 100])
case("detrend", "axis", IMAGE, axis=0)
case("stft", "default", X)
case("stft", "other", X, fs=3.0, window="hamming", nperseg=30, noverlap=20, nfft=37, detrend="linear", boundary="even")
case("stft", "odd", X, nperseg=31, boundary="odd", padded=False, scaling="psd", return_onesided=False)
case("stft", "constant", X, window=("tukey", 0.3), nperseg=32, boundary="constant", axis=1)
case("stft", "axis", np.stack([X, X + 1], -1), nperseg=32, boundary=None, axis=1)
case("stft", "window", X[0], window=SHORT.astype(np.float32), nperseg=7, noverlap=3)
case("stft", "complex", X[0] + 1j * X[1], nperseg=32, return_onesided=False)
case("welch", "default", X)
case("welch", "other", X, fs=2.0, nperseg=32, noverlap=10, nfft=35, detrend="linear", scaling="spectrum")
case("welch", "median", X, nperseg=32, detrend=False, average="median")
case("welch", "axis", X.T, nperseg=33, axis=0)
case("welch", "complex", X[0] + 1j * X[1], nperseg=32, return_onesided=False)
case("csd", "default", X, Y, nperseg=64)
case("csd", "median", X, Y, nperseg=32, average="median")
case("csd", "broadcast", X[0], X, nperseg=32)
Z = scipy.signal.stft(X, nperseg=32)[2]
case("istft", "default", Z)
case("istft", "scaling", Z, fs=3.0, window="hamming", scaling="psd", boundary=False)
case("istft", "axes", np.moveaxis(Z, (1, 2), (2, 0)), time_axis=0, freq_axis=2)
case("istft", "overlap", scipy.signal.stft(X, nperseg=33, noverlap=20)[2], nperseg=33, noverlap=20)
case("istft", "twosided", scipy.signal.stft(X, nperseg=32, return_onesided=False)[2], input_onesided=False)
cases = pytest.mark.parametrize("name", CASES)


def check(got: Any, want: Any, tolerance: float) -> None:
    for one, other in zip(nnc.tree.leaves(got), want if isinstance(want, tuple) else (want,), strict=True):
        assert one.shape == other.shape and np.iscomplexobj(one) == np.iscomplexobj(other)
        size = max(np.abs(other).max(), 1e-2)
        np.testing.assert_allclose(np.asarray(one), other, rtol=0, atol=tolerance * size)


@cases
def test_functions_agree_with_scipy_in_float64_and_float32(name: str) -> None:
    ours, theirs, operands = CASES[name]
    want = theirs(*operands)
    got = ours(*operands)
    check(got, want, 1e-14 if "detrend" not in name and "stft" not in name else 1e-13)
    narrow = ours(*(x.astype(np.complex64 if np.iscomplexobj(x) else np.float32) for x in operands))
    check(narrow, want, 2e-5)
    assert all(x.dtype in (np.float32, np.complex64) for x in nnc.tree.leaves(narrow))


COMPILED = (
    "convolve same images", "convolve fft", "correlate valid images", "fftconvolve one axis", "oaconvolve blocks",
    "convolve2d same symm", "detrend breaks", "stft other", "istft overlap", "welch other", "csd median",
)  # fmt: skip


@pytest.mark.parametrize("name", COMPILED)
def test_compiled_functions_agree_with_scipy(name: str) -> None:
    ours, theirs, operands = CASES[name]
    check(nnc.compile(ours)(*operands), theirs(*operands), 1e-13)


def test_rows_are_mapped() -> None:
    rows = nnc.vmap(lambda x, k: (signal.convolve(x, k), signal.welch(x, nperseg=64)[1]))(X, X[:, :5])
    want = [(scipy.signal.convolve(x, x[:5]), scipy.signal.welch(x, nperseg=64)[1]) for x in X]
    check(rows, (np.stack([a for a, _ in want]), np.stack([b for _, b in want])), 1e-13)


DIFFERENTIATED: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "convolve": (lambda x, y: signal.convolve(x, y, "same"), (IMAGE, KERNEL)),
    "correlate": (lambda x, y: signal.correlate(x, y, "valid"), (SHORT, LONG[:12])),
    "fftconvolve": (signal.fftconvolve, (LONG[:9], SHORT)),
    "oaconvolve": (signal.oaconvolve, (X[0], SHORT[:2])),
    "convolve2d": (lambda x, y: signal.convolve2d(x, y, boundary="wrap"), (IMAGE, KERNEL)),
    "detrend": (signal.detrend, (LONG,)),
    "stft": (lambda x: signal.stft(x, nperseg=8, boundary="odd", detrend="constant")[2], (LONG,)),
    "istft": (lambda z: signal.istft(z, nperseg=8)[1], (scipy.signal.stft(LONG, nperseg=8)[2],)),
    "welch": (lambda x: signal.welch(x, nperseg=8)[1], (LONG,)),
    "csd": (lambda x, y: abs(signal.csd(x, y, nperseg=8)[1]), (LONG, LONG[::-1] + SHORT[0])),
    "window": (lambda x, w: signal.welch(x, window=w)[1], (LONG, np.abs(SHORT))),
}


@pytest.mark.parametrize("name", DIFFERENTIATED)
def test_derivatives_agree_with_differences(name: str) -> None:
    ours, operands = DIFFERENTIATED[name]
    check_grads(ours, operands, order=1, rtol=1e-4, atol=1e-5)


def test_times_of_an_inverse_belong_to_its_samples() -> None:
    t, x = signal.istft(Z, fs=4.0)
    assert x.shape[-1] == t.shape[0]
    np.testing.assert_allclose(np.asarray(t), np.arange(x.shape[-1]) / 4)


def test_integers_are_convolved_exactly() -> None:
    x, y = np.array([3, -2, 5]), np.array([2**40, 1])
    for method in ("auto", "direct"):
        got = signal.convolve(x, y, method=method)
        np.testing.assert_array_equal(np.asarray(got), np.convolve(x, y))
        assert got.dtype == np.int64
    assert signal.convolve(x, np.array([1, 1]), method="fft").dtype == np.int64
    assert signal.fftconvolve(x, x).dtype == np.float32
    assert signal.detrend(x).dtype == np.float32
    assert signal.convolve(np.float64(2), np.float64(3)) == 6


def test_large_convolutions_are_made_by_fourier_transforms() -> None:
    x = RNG.normal(size=5000)
    assert "fft" in str(nnc.make_graph(signal.convolve)(x, x))
    assert "fft" not in str(nnc.make_graph(signal.convolve)(x, x[:9]))
    check(signal.convolve(x, x), scipy.signal.convolve(x, x), 1e-14)


WINDOWS: tuple[Any, ...] = (
    "barthann", "bartlett", "blackman", "blackmanharris", "bohman", "boxcar", "cosine", "exponential", "flattop", "hamming", "hann",
    "nuttall", "parzen", "triang", "tukey", ("exponential", None, 3.0), ("gaussian", 2.0), ("general_cosine", [0.5, 0.3, 0.2]),
    ("general_gaussian", 1.5, 2.0), ("general_hamming", 0.75), ("kaiser", 4.0), 5.0, ("tukey", 0.2), ("tukey", 1.5),
)  # fmt: skip


@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_windows_are_those_of_scipy(window: Any) -> None:
    for n in (1, 2, 7, 16):
        for periodic in (True, False):
            got = signal.get_window(window, n, periodic, dtype="float64")
            np.testing.assert_allclose(
                np.asarray(got), scipy.signal.get_window(window, n, periodic), rtol=0, atol=1e-15
            )
    assert signal.get_window(window, 3).dtype == np.float32


def test_names_of_windows_say_whether_they_are_periodic() -> None:
    for suffix, periodic in (("_periodic", True), ("_symmetric", False)):
        got = signal.get_window("hann" + suffix, 8)
        np.testing.assert_array_equal(np.asarray(got), np.asarray(signal.get_window("hann", 8, periodic)))


MISTAKES = {
    "mode": (lambda: signal.convolve(LONG, SHORT, "both"), ArgumentError, "mode is 'both'"),
    "method": (lambda: signal.correlate(LONG, SHORT, method="slow"), ArgumentError, "method is 'slow'"),
    "axes": (lambda: signal.convolve(LONG, IMAGE), ShapeError, "as many axes"),
    "nothing": (lambda: signal.fftconvolve(LONG[:0], LONG), ShapeError, "not empty"),
    "valid": (lambda: signal.convolve(IMAGE, WIDE, "valid"), ShapeError, "neither operand covers"),
    "apart": (lambda: signal.fftconvolve(IMAGE, KERNEL, axes=1), ShapeError, "do not broadcast"),
    "no matrix": (lambda: signal.convolve2d(LONG, SHORT), ShapeError, "must be matrices"),
    "boundary": (lambda: signal.convolve2d(IMAGE, KERNEL, boundary="edge"), ArgumentError, "boundary is 'edge'"),
    "trend": (lambda: signal.detrend(LONG, type="square"), ArgumentError, "type is 'square'"),
    "breaks": (lambda: signal.detrend(LONG, bp=41), ArgumentError, "bp is 41"),
    "window": (lambda: signal.get_window("sinc", 3), ArgumentError, "no window 'sinc'"),
    "parameters": (lambda: signal.get_window("kaiser", 3), ArgumentError, "has 0 parameters"),
    "long window": (lambda: signal.welch(LONG, window=np.ones(41)), ArgumentError, "segments have 41"),
    "overlap": (lambda: signal.welch(LONG, nperseg=8, noverlap=8), ArgumentError, "noverlap 8"),
    "points": (lambda: signal.stft(LONG, nperseg=8, nfft=7), ArgumentError, "nfft is 7"),
    "window matrix": (lambda: signal.stft(LONG, window=IMAGE), ShapeError, "window must be a vector"),
    "window length": (lambda: signal.stft(LONG, window=SHORT, nperseg=8), ShapeError, "window has 7"),
    "stft boundary": (lambda: signal.stft(LONG, boundary="wrap"), ArgumentError, "boundary is 'wrap'"),
    "scaling": (lambda: signal.stft(LONG, scaling="density"), ArgumentError, "scaling is 'density'"),
    "average": (lambda: signal.welch(LONG, average="max"), ArgumentError, "average is 'max'"),
    "onesided": (lambda: signal.welch(LONG * 1j), DTypeError, "one-sided"),
    "one axis": (lambda: signal.istft(LONG), ShapeError, "no axes"),
    "same axes": (lambda: signal.istft(Z, time_axis=1, freq_axis=1), ArgumentError, "name one axis"),
    "empty signal": (lambda: signal.csd(LONG[:0], LONG), ShapeError, "signal is empty"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_worded(name: str) -> None:
    call, error, text = MISTAKES[name]
    with pytest.raises(error, match=text) as found:
        call()
    assert "Fix:" in str(found.value)
