"""Fourier transforms and windows. A complex number is two real ones along a last axis."""

from __future__ import annotations

from typing import Any

import numpy as np

import nnc.numpy as nnp
from nnc.onnx.model import Node, dtype_of
from nnc.onnx.operators.table import operator
from nnc.onnx.values import check_known, integers, known


@operator("DFT", since=17)
def dft_of_attributes(node: Node, x: Any, length: Any = None) -> Any:
    return _dft(node, x, length, node.attributes.get("axis", 1))


@operator("DFT", since=20)
def dft(node: Node, x: Any, length: Any = None, axis: Any = None) -> Any:
    return _dft(node, x, length, integers(axis, "the axis of DFT")[0] if axis is not None else -2)


def _dft(node: Node, x: Any, length: Any, axis: int) -> Any:
    axis = axis % len(x.shape)
    size = integers(length, "the length of DFT")[0] if length is not None else x.shape[axis]
    is_inverse, is_onesided = bool(node.attributes.get("inverse", 0)), bool(node.attributes.get("onesided", 0))
    x = nnp.asarray(x)
    complex_x = x[..., 0] if x.shape[-1] == 1 else x[..., 0] + 1j * x[..., 1]
    if is_inverse and is_onesided:
        half = size // 2 + 1 if length is not None else x.shape[axis]
        return nnp.expand_dims(nnp.fft.irfft(complex_x, 2 * (half - 1) if length is None else size, axis=axis), -1)
    if x.shape[-1] == 1 and is_onesided:
        found = nnp.fft.rfft(complex_x, size, axis=axis)
    else:
        found = (nnp.fft.ifft if is_inverse else nnp.fft.fft)(complex_x, size, axis=axis)
        found = nnp.take(found, np.arange(size // 2 + 1), axis=axis) if is_onesided else found
    return nnp.astype(nnp.stack([nnp.real(found), nnp.imag(found)], axis=-1), x.dtype)


@operator("STFT")
def stft(node: Node, signal: Any, step: Any, window: Any = None, length: Any = None) -> Any:
    signal = nnp.asarray(signal)
    (stride,) = integers(step, "the step of STFT")
    size = integers(length, "the length of STFT")[0] if length is not None else window.shape[0]
    count = (signal.shape[1] - size) // stride + 1
    check_known(8 * max(count, 0) * size, "the places of STFT", signal.size)
    places = np.arange(count)[:, None] * stride + np.arange(size)
    frames = nnp.take(signal, places, axis=1)  # (batch, frames, size, 1 or 2)
    if window is not None:
        frames = frames * nnp.reshape(window, (-1, 1))
    numbers = frames[..., 0] if frames.shape[-1] == 1 else frames[..., 0] + 1j * frames[..., 1]
    if frames.shape[-1] == 1 and node.attributes.get("onesided", 1):
        found = nnp.fft.rfft(numbers, axis=-1)
    else:
        found = nnp.fft.fft(numbers, axis=-1)
        found = found[..., : size // 2 + 1] if node.attributes.get("onesided", 1) else found
    return nnp.astype(nnp.stack([nnp.real(found), nnp.imag(found)], axis=-1), signal.dtype)


_COSINES = {
    "HannWindow": (0.5, 0.5, 0.0),
    "HammingWindow": (25 / 46, 21 / 46, 0.0),
    "BlackmanWindow": (0.42, 0.5, 0.08),
}


@operator(*_COSINES)
def cosine_window(node: Node, size: Any) -> Any:
    (count,) = integers(size, f"the size of {node.operator}")
    first, second, third = _COSINES[node.operator]
    check_known(8 * count, f"the result of {node.operator}")
    periods = count if node.attributes.get("periodic", 1) else count - 1
    angle = 2 * np.pi * np.arange(count) / periods
    found = first - second * np.cos(angle) + third * np.cos(2 * angle)
    return found.astype(dtype_of(node.attributes.get("output_datatype", 1)))


@operator("MelWeightMatrix")
def mel_weights(node: Node, bins: Any, length: Any, rate: Any, low: Any, high: Any) -> Any:
    """Triangles between neighbouring points that lie evenly on the mel scale."""
    what = "the settings of MelWeightMatrix"
    (count,), (size,), (sampled,) = integers(bins, what), integers(length, what), integers(rate, what)
    begin, end = (float(known(edge, what).reshape(())) for edge in (low, high))
    check_known(8 * (size // 2 + 1 + 2) * (count + 2), "the result of MelWeightMatrix")
    mels = _mel(begin) + np.arange(count + 2) * (_mel(end) - _mel(begin)) / (count + 2)
    edges = np.floor((size + 1) * (700 * (10 ** (mels / 2595) - 1)) / sampled).astype(np.int64)
    found = np.zeros((size // 2 + 1, count))
    for index in range(count):
        left, centre, right = edges[index : index + 3]
        for place in range(left, centre + 1):
            found[place, index] = (place - left) / (centre - left) if centre > left else 1.0
        for place in range(centre, right):
            found[place, index] = (right - place) / (right - centre)
    return found.astype(dtype_of(node.attributes.get("output_datatype", 1)))


def _mel(frequency: float) -> float:
    return float(2595 * np.log10(1 + frequency / 700))
