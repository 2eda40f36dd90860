"""Operators give the results of onnxruntime, where `onnx.reference` lacks a form of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import nnc
from tests.unit.onnx.models import model, node
from tests.unit.onnx.operators.cases import IMAGE, Call, floats, numbers
from tests.unit.onnx.operators.test_operators import feeds_of, model_of, parametrized

LENGTHS = np.array([5, 2], np.int32)
REGIONS = np.array([[0, 0, 3, 4], [1, 1, 9, 8], [-2, -1, 2.5, 2]], np.float32)
ROI = {"output_height": 2, "output_width": 3, "spatial_scale": 0.7}
RNG = np.random.default_rng(5)
BYTES, SIGNED = RNG.integers(0, 256, (1, 4, 7, 5), np.uint8), RNG.integers(-128, 128, (6, 2, 3, 2), np.int8)


def recurrent() -> Iterator[Call]:
    """Networks with lengths, first states and, of LSTM, peepholes, in all directions."""
    for name, gates in (("RNN", 1), ("GRU", 3), ("LSTM", 4)):
        is_lstm = name == "LSTM"
        for direction in ("forward", "reverse", "bidirectional"):
            d = 1 + (direction == "bidirectional")
            weights = (floats(d, gates * 4, 3), floats(d, gates * 4, 4), floats(d, gates * 8))
            more = (floats(d, 2, 4, seed=1), floats(d, 12)) if is_lstm else ()
            for settings in ({}, {"clip": 0.5}, {"input_forget": 1} if is_lstm else {}):
                attributes = {"hidden_size": 4, "direction": direction, **settings}
                operands = (floats(5, 2, 3), *weights, LENGTHS, floats(d, 2, 4), *more)
                yield Call(name, 14, operands, attributes, 2 + is_lstm)


CALLS = [
    *recurrent(),
    *(Call("GridSample", 20, (IMAGE, floats(2, 3, 2, 2) * np.float32(1.3)), {"mode": m, "padding_mode": p, "align_corners": a})
      for m in ("linear", "nearest", "cubic") for p in ("zeros", "border", "reflection") for a in (0, 1)),
    *(Call("RoiAlign", 16, (IMAGE, REGIONS, numbers(0, 1, 1)),
           {"mode": m, "coordinate_transformation_mode": c, "sampling_ratio": s, **ROI})
      for m in ("avg", "max") for c in ("half_pixel", "output_half_pixel") for s in (0, 2)),
    *(Call("ConvTranspose", 11, (IMAGE, floats(4, 2, 3, 2)), {"strides": [2, 2], **more}) for more in (
        {"auto_pad": "SAME_UPPER"}, {"auto_pad": "SAME_LOWER"}, {"output_shape": [15, 11]}, {"dilations": [2, 1]}, {"group": 2})),
    *(Call(name, 19, (IMAGE,), {"kernel_shape": [3, 2], "strides": [2, 3], **more}, outputs)
      for name, outputs in (("MaxPool", 2), ("AveragePool", 1)) for more in (
        {"ceil_mode": 1}, {"auto_pad": "SAME_UPPER"}, {"auto_pad": "SAME_LOWER"}, {"dilations": [2, 1]},
        {"ceil_mode": 1, "pads": [1, 1, 1, 1]})),
    *(Call("TopK", 11, (np.array([[2, 5, 2, 9, 5], [1, 1, 1, 0, 0]], np.int64), numbers(2)), {"largest": s, "axis": a}, 2)
      for s in (0, 1) for a in (0, 1)),
    Call("MaxPool", 12, (np.array([[[1, 5, 5, 3, -128, 127]]], np.int8),), {"kernel_shape": [2], "strides": [2]}),
    Call("QLinearConv", 10, (BYTES, np.float32(0.1), np.uint8(7), SIGNED, np.float32(0.02), np.int8(0), np.float32(0.5),
                             np.uint8(128), np.arange(6, dtype=np.int32) * 100), {"group": 2, "pads": [1, 0, 1, 1]}),
    Call("ConvInteger", 10, (BYTES, BYTES[:, :, :3, :2].copy(), np.uint8(7), np.uint8(3)), {"pads": [1, 0, 1, 1]}),
    Call("NonMaxSuppression", 11, (np.abs(floats(1, 6, 4)), np.abs(floats(1, 2, 6)), np.int64(3), np.float32(0.1),
                                   np.float32(0.2)), {"center_point_box": 1}),
    Call("Slice", 13, (floats(5, 6), numbers(-10, 9), numbers(-100, -100), numbers(0, 1), numbers(-1, -1))),
    Call("Hardmax", 11, (floats(2, 3, 4),), {"axis": -2}),
]  # fmt: skip


@parametrized(CALLS)
def test_an_operator_gives_the_result_of_onnxruntime(call: Call) -> None:
    runtime: Any = pytest.importorskip("onnxruntime")
    data = model_of(call).SerializeToString()
    wanted = runtime.InferenceSession(data).run(None, feeds_of(call))
    found = list(map(np.asarray, nnc.onnx.load(data)(feeds_of(call))))
    assert [(value.shape, value.dtype) for value in found] == [(value.shape, value.dtype) for value in wanted]
    for value, other in zip(found, wanted, strict=True):
        if other.dtype.kind == "f":
            np.testing.assert_allclose(value, other, 1e-4, 1e-4)
        else:
            np.testing.assert_array_equal(value, other)


@pytest.mark.parametrize("channels", [8, 600, 5000])
@pytest.mark.parametrize("are_weights", [True, False])
def test_convolutions_of_integers_are_exact_where_float32_holds_no_sum(channels: int, are_weights: bool) -> None:
    """All products have one sign; many channels are taken in parts, or computed in float64."""
    x, w = np.full((1, channels, 3), 255, np.uint8), np.full((2, channels, 1), 127, np.int8)
    w[1, ::2], x[0, 1] = 126, 3
    data = model(
        [node("ConvInteger", ["x", "w"], ["y"])], {"x": (2, x.shape)} | ({} if are_weights else {"w": (3, w.shape)}),
        {"y": (6, None)}, {"w": w} if are_weights else {},
    )  # fmt: skip
    (found,) = nnc.onnx.load(data)({"x": x} if are_weights else {"x": x, "w": w})
    wanted = np.einsum("bct,oc->bot", x.astype(np.int64), w[:, :, 0].astype(np.int64))
    np.testing.assert_array_equal(found, wanted)
