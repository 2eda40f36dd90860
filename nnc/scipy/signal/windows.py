"""Windows that spectra are taken through, which nnc.scipy.signal shows."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from nnc.array.array import Array, as_value
from nnc.array.promote import to_dtype
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.errors import ArgumentError, user_error
from nnc.numpy.operands import to_size
from nnc.typing import DTypeLike

__all__ = ["get_window"]

NDArray = np.ndarray[Any, Any]


def _cosines(*weights: float) -> Callable[[int], NDArray]:
    """Returns a sum of cosines, of alternating signs as they are written in books."""

    def window(n: int) -> NDArray:
        angle = np.linspace(-math.pi, math.pi, n)
        return np.asarray(sum(w * np.cos(k * angle) for k, w in enumerate(weights)))

    return window


def _triang(n: int) -> NDArray:
    k = np.arange(1, (n + 1) // 2 + 1)
    half = 2 * k / (n + 1) if n % 2 else (2 * k - 1) / n
    return np.concatenate([half, half[-2::-1] if n % 2 else half[::-1]])


def _parzen(n: int) -> NDArray:
    x = np.abs(np.arange(-(n - 1) / 2, (n - 1) / 2 + 0.5))
    inner = 1 - 6 * (x / (n / 2)) ** 2 + 6 * (x / (n / 2)) ** 3
    return np.where(x <= (n - 1) / 4, inner, 2 * (1 - x / (n / 2)) ** 3)


def _bohman(n: int) -> NDArray:
    x = np.abs(np.linspace(-1, 1, n))
    inner = (1 - x) * np.cos(np.pi * x) + np.sin(np.pi * x) / np.pi
    return np.where((x == 1), 0, inner)


def _barthann(n: int) -> NDArray:
    x = np.abs(np.arange(n) / (n - 1) - 0.5)
    return 0.62 - 0.48 * x + 0.38 * np.cos(2 * np.pi * x)


def _tukey(n: int, alpha: float = 0.5) -> NDArray:
    if alpha <= 0:
        return np.ones(n)
    if alpha >= 1:
        return _cosines(0.5, 0.5)(n)
    k = np.arange(n, dtype=float)
    k = np.minimum(k, n - 1 - k)
    ramp = 0.5 * (1 + np.cos(np.pi * (-1 + 2 * k / alpha / (n - 1))))
    return np.where(k <= math.floor(alpha * (n - 1) / 2), ramp, 1)


def _exponential(n: int, center: float | None = None, tau: float = 1.0) -> NDArray:
    middle = (n - 1) / 2 if center is None else center
    return np.exp(-np.abs(np.arange(n) - middle) / tau)


def _gaussian(n: int, std: float) -> NDArray:
    return np.exp(-((np.arange(n) - (n - 1) / 2) ** 2) / (2 * std * std))


def _general_gaussian(n: int, p: float, sig: float) -> NDArray:
    return np.exp(-0.5 * np.abs((np.arange(n) - (n - 1) / 2) / sig) ** (2 * p))


_WINDOWS: dict[str, Callable[..., NDArray]] = {
    "barthann": _barthann, "bartlett": np.bartlett, "blackman": _cosines(0.42, 0.5, 0.08),
    "blackmanharris": _cosines(0.35875, 0.48829, 0.14128, 0.01168), "bohman": _bohman, "boxcar": np.ones,
    "cosine": lambda n: np.sin(np.pi / n * (np.arange(n) + 0.5)), "exponential": _exponential,
    "flattop": _cosines(0.21557895, 0.41663158, 0.277263158, 0.083578947, 0.006947368), "gaussian": _gaussian,
    "general_cosine": lambda n, weights: _cosines(*weights)(n), "general_gaussian": _general_gaussian,
    "general_hamming": lambda n, alpha: _cosines(alpha, 1 - alpha)(n), "hamming": _cosines(0.54, 0.46),
    "hann": _cosines(0.5, 0.5), "kaiser": lambda n, beta: np.kaiser(n, beta),
    "nuttall": _cosines(0.3635819, 0.4891775, 0.1365995, 0.0106411), "parzen": _parzen, "triang": _triang, "tukey": _tukey,
}  # fmt: skip
_NEEDS = {"gaussian": 1, "general_cosine": 1, "general_gaussian": 2, "general_hamming": 1, "kaiser": 1}


def make_window(where: str, window: Any, n: int, periodic: bool) -> NDArray:
    """Returns the values of a named window in float64.

    Raises:
        ArgumentError: there is no such window, or its parameters are missing.
    """
    if isinstance(window, (int, float)) and not isinstance(window, bool):
        window = ("kaiser", window)  # as in SciPy
    name, *parameters = (window,) if isinstance(window, str) else tuple(window)
    for suffix, value in (("_periodic", True), ("_symmetric", False)):
        if isinstance(name, str) and name.endswith(suffix):
            name, periodic = name.removesuffix(suffix), value
    if name not in _WINDOWS:
        raise user_error(ArgumentError, where, f"there is no window {name!r}.", fix=f"use {', '.join(_WINDOWS)}.")
    least = _NEEDS.get(name, 0)
    most = {"tukey": 1, "exponential": 2}.get(name, least)
    if not least <= len(parameters) <= most:
        fix = f"pass {least if least == most else f'{least} to {most}'} of them: ({name!r}, ...)."
        raise user_error(ArgumentError, where, f"the window {name!r} has {len(parameters)} parameters.", fix=fix)
    if n <= 1:
        return np.ones(n)
    values = _WINDOWS[name](n + 1 if periodic else n, *parameters)
    return np.asarray(values, np.float64)[:n]


@spelled
def get_window(window: Any, Nx: int, fftbins: bool = True, *, dtype: DTypeLike | None = None) -> Array:  # noqa: N803
    """Returns a window by its name.

    Args:
        window: a name: "barthann", "bartlett", "blackman", "blackmanharris", "bohman", "boxcar", "cosine", "exponential",
            "flattop", "hamming", "hann", "nuttall", "parzen", "triang", "tukey"; or a tuple of a name and its parameters:
            ("exponential", center, tau), ("gaussian", std), ("general_cosine", weights), ("general_gaussian", p, sig),
            ("general_hamming", alpha), ("kaiser", beta), ("tukey", alpha). A number is the beta of "kaiser".
        Nx: number of points.
        fftbins: one period, for spectra; False makes the window symmetric. Names that end in _periodic or _symmetric say so.
        dtype: the dtype of the result, float32 by default.

    Raises:
        ArgumentError: there is no such window, or its parameters are missing.

    Example:
        >>> get_window("hann", 4)
        Array([0. , 0.5, 1. , 0.5], dtype=float32)
    """
    n = to_size(Nx, "get_window", "Nx")
    wanted = dtypes.DEFAULT_FLOAT if dtype is None else to_dtype(dtype, "get_window")
    return as_value(make_window("get_window", window, n, fftbins).astype(wanted))
