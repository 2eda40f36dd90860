"""Calls of operators on inputs of our own: odd shapes, NaN, infinities, zeros with a sign, empty axes, extreme integers."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

NDArray = np.ndarray[Any, Any]


class Call(NamedTuple):
    """An operator in a version of the standard; an operand None is one that is left out."""

    operator: str
    version: int
    operands: tuple[NDArray | None, ...]
    attributes: Mapping[str, Any] = MappingProxyType({})
    outputs: int = 1
    bound: float = 1e-5  # how far results may lie apart, relative to the largest


def floats(*shape: int, dtype: str = "float32", seed: int = 0) -> NDArray:
    """Normal random numbers."""
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape).astype(dtype)


def numbers(*values: Any, dtype: str = "int64") -> NDArray:
    """Integers in one axis."""
    return np.array(values, dtype)


ODD = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, 1.5, -2.5, 0.5, 3e38, 1e-30], np.float32)
LEFT, RIGHT = np.array([7, -7, 7, -7, 0, 100, -128], np.int8), np.array([2, 2, -2, -2, 5, -1, 3], np.int8)
LARGE = np.array([0, 1, 2**64 - 1, 2**63], np.uint64)
BATCH = (*(floats(4, seed=seed) for seed in (1, 2, 3)), np.abs(floats(4, seed=4)) + 0.1)
IMAGE = floats(2, 4, 7, 5)
SCALES = np.array([1, 1, 1.5, 0.6], np.float32)

ELEMENTWISE = [
    *(Call("DynamicQuantizeLinear", 11, (x,), {}, 3) for x in (floats(5), np.zeros(3, np.float32), np.abs(floats(4)))),
    *(Call(name, 13, (ODD,)) for name in (
        "Abs", "Ceil", "Floor", "Neg", "Sign", "Sqrt", "Exp", "Tanh", "Relu", "Sigmoid", "IsNaN")),
    Call("Round", 11, (np.array([0.5, 1.5, 2.5, -0.5, -1.5, np.nan, np.inf], np.float32),)),
    Call("Round", 11, (floats(3, 0, 2),)),
    Call("Div", 13, (LEFT, RIGHT)),
    Call("Div", 14, (LARGE, np.array([3, 3, 3, 2], np.uint64))),
    Call("Div", 13, (ODD[:6], np.array([1, 0, 0, 0, 0, 0], np.float32))),
    Call("Mod", 13, (LEFT, RIGHT)),
    Call("Mod", 13, (LEFT, RIGHT), {"fmod": 1}),
    Call("Mod", 13, (floats(5), floats(5, seed=1)), {"fmod": 1}),
    Call("Pow", 15, (np.array([2, -3, 0, 5], np.int32), np.array([3, 2, 0, 1], np.int64))),
    Call("Pow", 15, (np.array([4, 9, 0], np.int32), np.array([0.5, 0.5, 0.5], np.float32))),
    Call("Pow", 15, (np.array([1.5, -2, 4], np.float64), np.array([2, 3, -1], np.int32))),
    Call("Add", 14, (floats(3, 1, 2, dtype="float16"), floats(4, 1, dtype="float16")), bound=2e-3),
    Call("Sub", 14, (np.array([0, 255], np.uint8), np.array([1, 0], np.uint8))),
    *(Call(name, 13, (ODD, ODD[::-1].copy(), floats(1))) for name in ("Max", "Min")),
    Call("Max", 13, (np.array([-(2**63), 5], np.int64), np.array([2**63 - 1, -5], np.int64))),
    Call("Sum", 13, (floats(3, 1), floats(1, 2), floats(1))),
    Call("Mean", 13, (floats(3, 2), floats(1, 2), floats(1))),
    Call("Clip", 13, (ODD, np.float32(-1.0), np.float32(2.0))),
    Call("Clip", 13, (np.array([-5, 0, 9], np.int8), None, np.int8(3))),
    Call("Clip", 6, (ODD,), {"max": 1.0}),
    Call("IsInf", 20, (ODD,), {"detect_negative": 0}),
    Call("IsInf", 20, (ODD,), {"detect_positive": 0}),
    Call("BitShift", 11, (np.array([1, 200, 255], np.uint8), np.array([7, 1, 3], np.uint8)), {"direction": "LEFT"}),
    Call("Cast", 13, (np.array([1.9, -1.9, 300.0, 0.0], np.float32),), {"to": 7}),
    Call("Cast", 13, (np.array([1.9, -0.5, np.nan, -0.0], np.float32),), {"to": 9}),
    Call("Cast", 13, (numbers(-1, 255, 256, 2**40),), {"to": 3}),
    Call("Where", 16, (np.array([[True], [False]]), ODD, numbers(1, dtype="float32"))),
    Call("PRelu", 16, (floats(2, 3, 4), floats(3, 1))),
    Call("Shrink", 9, (floats(7),), {"lambd": 0.7, "bias": 0.2}),
    Call("Mish", 18, (floats(7),)),
    Call("Gelu", 20, (floats(7),), {"approximate": "tanh"}),
    Call("Celu", 12, (floats(7),), {"alpha": 2.0}),
]  # fmt: skip

SUMS = ("ReduceSum", "ReduceMean", "ReduceProd", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2", "ReduceLogSumExp")
REDUCTIONS = [
    *(Call(name, 18, (floats(2, 3, 5), numbers(-1, 0)), {"keepdims": 0}) for name in SUMS),
    *(Call(name, 11, (floats(2, 3, 5),), {"axes": [1]}) for name in SUMS),
    *(Call(name, 20, (floats(2, 0, 3), numbers(1))) for name in ("ReduceSum", "ReduceProd", "ReduceL1", "ReduceL2")),
    *(Call(name, 20, (ODD, numbers(0))) for name in ("ReduceMax", "ReduceMin", "ReduceSum")),
    Call("ReduceSum", 13, (floats(2, 3), numbers()), {"noop_with_empty_axes": 1}),
    Call("ReduceSum", 13, (np.array([[2**62, 2**62], [5, -7]], np.int64), numbers(1))),
    Call("ReduceMean", 18, (np.array([[1, 2], [-1, -2]], np.int32), numbers(1))),
    *(Call(name, 13, (np.array([[2, 2, 1], [1, 1, 2]], np.float32),), {"axis": -1, "select_last_index": last, "keepdims": last})
      for name in ("ArgMax", "ArgMin") for last in (0, 1)),
    *(Call("CumSum", 14, (floats(3, 4), np.int32(axis)), {"exclusive": e, "reverse": r})
      for axis in (0, -1) for e in (0, 1) for r in (0, 1)),
]  # fmt: skip

SHAPES = [
    *(Call(name, version, (floats(2, 3, 4),), {"axis": 1}) for name in ("Softmax", "LogSoftmax") for version in (11, 13)),
    Call("Hardmax", 13, (floats(2, 3, 4),), {"axis": 1}),
    *(Call(name, 13, (np.array([[np.nan, 0], [-np.inf, 0]], np.float32),))
      for name in ("Softmax", "LogSoftmax")),
    Call("Slice", 13, (floats(5, 6), numbers(-1, 10), numbers(-100, -7), numbers(0, 1), numbers(-2, -1))),
    Call("Slice", 13, (floats(5, 6), numbers(3), numbers(2**63 - 1), numbers(-1))),
    Call("Slice", 9, (floats(5, 6),), {"starts": [1, -3], "ends": [100, -1]}),
    Call("Split", 18, (floats(7, 2),), {"num_outputs": 3}, outputs=3),
    Call("Split", 13, (floats(5, 2), numbers(0, 4, 1)), outputs=3),
    Call("Split", 11, (floats(2, 5),), {"axis": 1, "split": [2, 3]}, outputs=2),
    Call("Squeeze", 13, (floats(1, 3, 1), numbers(-1))),
    Call("Squeeze", 11, (floats(1, 3, 1),)),
    Call("Unsqueeze", 13, (floats(3, 2), numbers(-1, 0))),
    Call("Reshape", 14, (floats(0, 3), numbers(3, 0)), {"allowzero": 1}),
    Call("Reshape", 13, (floats(2, 3, 4), numbers(0, -1))),
    Call("Expand", 13, (floats(3, 1), numbers(2, 1, 4))),
    Call("Tile", 13, (floats(2, 3), numbers(2, 0))),
    Call("Flatten", 13, (floats(2, 3, 4),), {"axis": -1}),
    *(Call("Pad", 19, (floats(3, 4), numbers(1, 2, 0, 1), None), {"mode": m}) for m in ("reflect", "edge", "wrap")),
    Call("Pad", 18, (floats(3, 4), numbers(2, 1), np.float32(9.0), numbers(-1)), {}),
    Call("Trilu", 14, (floats(2, 3, 4), np.int64(-1)), {"upper": 0}),
    Call("OneHot", 11, (numbers(0, -1, 5, -9, 2), np.int64(4), np.array([-1.0, 2.0], np.float32)), {"axis": 0}),
    Call("EyeLike", 9, (np.zeros((3, 5), np.int32),), {"k": -1, "dtype": 1}),
    Call("Range", 11, (np.float32(1.0), np.float32(-1.1), np.float32(-0.5))),
    *(Call("DepthToSpace", 13, (floats(1, 8, 2, 3),), {"blocksize": 2, "mode": m}) for m in ("DCR", "CRD")),
    Call("SpaceToDepth", 13, (floats(1, 2, 4, 6),), {"blocksize": 2}),
    Call("ReverseSequence", 10, (floats(4, 3), numbers(1, 4, 2)), {"time_axis": 0, "batch_axis": 1}),
    Call("Gather", 13, (floats(4, 3), np.array([[-1, 0], [2, 1]], np.int64)), {"axis": -1}),
    Call("GatherElements", 13, (floats(4, 3), np.array([[-1, 0, 2], [1, -4, 3]], np.int64)), {"axis": 0}),
    Call("GatherND", 13, (floats(2, 3, 4), np.array([[[1]], [[-1]]], np.int64)), {"batch_dims": 1}),
    *(Call("ScatterElements", 18, (floats(4, 3), np.array([[1, 0, -1], [1, 3, 3]], np.int64), floats(2, 3)), {"reduction": r})
      for r in ("add", "mul", "max", "min")),
    *(Call("ScatterND", 18, (floats(4, 3), np.array([[1], [1], [3]], np.int64), floats(3, 3)), {"reduction": r})
      for r in ("add", "mul", "max", "min")),
    *(Call("TopK", 11, (np.array([[2, 5, 2, 9, 5], [1, 1, 1, 0, 0]], np.float32), numbers(3)), {"largest": largest}, outputs=2)
      for largest in (0, 1)),
    Call("NonZero", 13, (np.array([[0.0, -0.0, np.nan], [1, 0, 2]], np.float32),)),
    Call("NonZero", 13, (np.zeros((0, 3), np.float32),)),
    Call("Compress", 11, (floats(3, 4), np.array([True, False, True])), {"axis": 1}),
    Call("Unique", 11, (np.array([3, 1, 1, 2, 3], np.int64),), {"sorted": 0}, outputs=4),
    Call("Concat", 13, (floats(2, 0), floats(2, 3)), {"axis": -1}),
]  # fmt: skip

LAYERS = [
    Call("MatMul", 13, (floats(2, 1, 3, 4), floats(5, 4, 2))),
    Call("MatMul", 13, (floats(4), floats(3, 4, 2))),
    Call("MatMul", 13, (np.array([[100, -128]], np.int32), np.array([[7], [9]], np.int32))),
    Call("Gemm", 13, (floats(4, 3), floats(5, 4), floats(5)), {"transA": 1, "transB": 1, "alpha": 0.5, "beta": 2.0}),
    Call("Gemm", 13, (floats(3, 0), floats(0, 2), floats(3, 1))),
    Call("Einsum", 12, (floats(2, 3), floats(3, 4)), {"equation": "ij, jk -> ki"}),
    *(Call("Conv", 11, (IMAGE, floats(6, 2, 3, 2), floats(6)), {"group": 2, **more}) for more in (
        {"auto_pad": "SAME_UPPER", "strides": [2, 2]}, {"auto_pad": "SAME_LOWER", "strides": [2, 1]},
        {"dilations": [2, 1], "pads": [1, 0, 2, 1]}, {"auto_pad": "VALID"})),
    Call("Conv", 11, (floats(2, 3, 9), floats(4, 3, 3)), {"strides": [2]}),
    Call("Conv", 11, (floats(1, 2, 4, 5, 3), floats(3, 2, 2, 2, 2)), {"pads": [1, 0, 0, 0, 1, 1]}),
    *(Call("ConvTranspose", 11, (IMAGE, floats(4, 3, 3, 2), floats(3)), more) for more in (
        {"strides": [2, 3], "output_padding": [1, 0]}, {"pads": [1, 0, 1, 1], "strides": [2, 1]})),
    *(Call(name, 12, (IMAGE,), {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 1], **more})
      for name in ("MaxPool", "AveragePool") for more in ({}, {"ceil_mode": 1})),
    Call("AveragePool", 19, (IMAGE,), {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1], "count_include_pad": 1}),
    Call("LpPool", 18, (IMAGE,), {"kernel_shape": [3, 2], "p": 3}),
    *(Call(name, 13, (IMAGE,)) for name in ("GlobalAveragePool", "GlobalMaxPool")),
    Call("BatchNormalization", 15, (IMAGE, *BATCH)),
    Call("BatchNormalization", 15, (IMAGE, *BATCH), {"training_mode": 1, "momentum": 0.7}, outputs=3),
    Call("BatchNormalization", 9, (IMAGE, *BATCH), {"epsilon": 1e-2}),
    Call("InstanceNormalization", 6, (IMAGE, floats(4), floats(4, seed=1))),
    Call("LayerNormalization", 17, (IMAGE, floats(7, 5), floats(7, 5, seed=1)), {"axis": 2}, outputs=3),
    Call("RMSNormalization", 23, (IMAGE, floats(5)), {}),
    Call("GroupNormalization", 21, (IMAGE, floats(4), floats(4, seed=1)), {"num_groups": 2}),
    Call("LpNormalization", 1, (floats(3, 4),), {"axis": 0}),
    Call("LRN", 13, (floats(5, 5, 3, 2),), {"size": 3, "alpha": 0.5}),
    *(Call("Resize", 19, (IMAGE[:1], None, SCALES), {"mode": m, "coordinate_transformation_mode": c})
      for m in ("linear", "cubic") for c in ("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel")),
    *(Call("Resize", 19, (IMAGE[:1], None, SCALES), {"mode": "nearest", "nearest_mode": m})
      for m in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")),
    Call("Resize", 19, (IMAGE[:1], None, None, numbers(4, 3)), {"mode": "linear", "antialias": 1, "axes": [2, 3]}),
    Call("GridSample", 20, (IMAGE, floats(2, 3, 2, 2)), {"mode": "linear", "padding_mode": "reflection"}),
    Call("RNN", 14, (floats(5, 2, 3), floats(1, 4, 3), floats(1, 4, 4), floats(1, 8)), outputs=2),
    *(Call("GRU", 14, (floats(5, 2, 3), floats(1, 12, 3), floats(1, 12, 4), floats(1, 24)), {"linear_before_reset": b}, outputs=2)
      for b in (0, 1)),
    Call("LSTM", 14, (floats(5, 2, 3), floats(1, 16, 3), floats(1, 16, 4), floats(1, 32), None, floats(1, 2, 4),
                      floats(1, 2, 4, seed=1), floats(1, 12)), outputs=3),
    Call("QuantizeLinear", 13, (np.array([0.5, 1.5, 2.5, -900, 900], np.float32), np.float32(1.0), np.int8(3))),
    Call("DequantizeLinear", 21, (np.array([[-128, 127], [0, 1]], np.int8), numbers(0.5, 2, dtype="float32"),
         numbers(1, -1, dtype="int8")), {"axis": 1}),
    Call("MatMulInteger", 10, (np.full((2, 300), 255, np.uint8), np.full((300, 2), -128, np.int8), np.uint8(1), np.int8(-3))),
]  # fmt: skip

CALLS = [*ELEMENTWISE, *REDUCTIONS, *SHAPES, *LAYERS]

# With results in NumPy, where neither the reference nor the converter keeps to the standard.
_X = floats(2, 3, 4)
EXACT: list[tuple[Call, NDArray]] = [
    (Call("Add", 6, (_X, floats(3)), {"axis": 1, "broadcast": 1}), _X + floats(3)[:, None]),
    (Call("Hardmax", 11, (_X,)), np.eye(12, dtype=np.float32)[_X.reshape(2, 12).argmax(1)].reshape(2, 3, 4)),
    (Call("LpNormalization", 1, (_X,), {"p": 1}), _X / np.abs(_X).sum(-1, keepdims=True)),
    (Call("Mean", 13, (floats(3, 1), floats(1, 2))), (floats(3, 1) + floats(1, 2)) / np.float32(2)),
    (Call("Clip", 6, (np.array([-np.inf, np.inf, 1]),)), np.array([-1, 1, 0]) * float(np.finfo(np.float32).max) + [0, 0, 1]),
    (Call("Clip", 6, (np.array([-np.inf, 2], np.float16),), {"max": 1.0}), np.array([-np.inf, 1], np.float16)),
]  # fmt: skip
