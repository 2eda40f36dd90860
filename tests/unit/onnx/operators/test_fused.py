"""Operators of the domain com.microsoft give the results of onnxruntime, whose optimizer and quantizers write them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import onnx
import pytest
from onnx import helper

pytest.importorskip("onnxruntime")
import onnxruntime

import nnc
from nnc.errors import UnsupportedError
from tests.unit.onnx.models import FLOAT, model, node
from tests.unit.onnx.operators.cases import IMAGE, floats, numbers

RNG = np.random.default_rng(3)
DOMAIN = "com.microsoft"


class Fused(NamedTuple):
    """An operator on operands; those that are weights in models, by their places."""

    operator: str
    operands: tuple[Any, ...]
    attributes: Mapping[str, Any] = MappingProxyType({})
    outputs: tuple[str, ...] = ("y0",)  # "" for one that the model leaves out
    weights: frozenset[int] = frozenset()
    domain: str = DOMAIN


def unsigned(*shape: int) -> Any:
    return RNG.integers(0, 256, shape, np.uint8)


def signed(*shape: int) -> Any:
    """Draws integers of 7 bits, since onnxruntime adds pairs of products in 16 bits on processors without VNNI."""
    return RNG.integers(-63, 64, shape).astype(np.int8)


def scale(value: float) -> Any:
    return np.float32(value)


X, ROW = floats(2, 5, 8), floats(8)
A = (unsigned(2, 4, 6, 5), scale(0.02), np.uint8(120))
B = (unsigned(4, 1, 5), scale(0.03), np.uint8(99))
OUT = (scale(0.05), np.uint8(128))
POOL = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}
QKV, WEIGHTS, BIAS = floats(2, 5, 16), floats(16, 48) / 4, floats(48)
PAST = floats(2, 2, 4, 3, 4)
Q, K, V = floats(2, 5, 16), floats(2, 7, 16, seed=1), floats(2, 7, 16, seed=2)
ANGLES = np.arange(16)[:, None] / 10.0 ** np.arange(8)
COS, SIN = np.cos(ANGLES).astype(np.float32), np.sin(ANGLES).astype(np.float32)
GROUPED = {"num_heads": 4, "kv_num_heads": 2}
# 2 new places of one example behind 5, and one of two examples, of which one has fewer before it
SEVERAL = (floats(1, 2, 64), floats(1, 2, 32), floats(1, 2, 32, seed=1), floats(1, 2, 5, 16), floats(1, 2, 5, 16, seed=1),
           np.array([6], np.int32), np.array(7, np.int32))  # fmt: skip
SINGLE = (floats(2, 1, 64), floats(2, 1, 32), floats(2, 1, 32, seed=1), floats(2, 2, 5, 16), floats(2, 2, 5, 16, seed=1),
          np.array([5, 3], np.int32), np.array(6, np.int32))  # fmt: skip
FIRST = (floats(2, 5, 64), floats(2, 5, 32), floats(2, 5, 32, seed=1), None, None, np.array([4, 2], np.int32),
         np.array(5, np.int32))  # fmt: skip
FULL = (*FIRST[:5], np.array([4, 4], np.int32), FIRST[6])
CACHED = ("y0", "y1", "y2")

CALLS = [
    *(Fused("FusedConv", (IMAGE, floats(3, 4, 3, 3), floats(3), *more), {"activation": name, **settings})
      for name, settings in (("Relu", {}), ("Tanh", {}), ("Sigmoid", {}), ("LeakyRelu", {"activation_params": [0.2]}),
                             ("Clip", {"activation_params": [-0.5, 1.5]}), ("HardSigmoid", {"activation_params": [0.3, 0.4]}))
      for more in ((), (floats(2, 3, 5, 3, seed=9),))),
    *(Fused("FusedGemm", (floats(3, 4), floats(5, 4), floats(5)), {"transB": 1, "alpha": 0.5, "activation": name, **settings})
      for name, settings in (("Relu", {}), ("LeakyRelu", {"activation_alpha": 0.2}))),
    *(Fused("FusedMatMul", (floats(2, 3, 4, 5), floats(2, 3, 5, 4)), {"transA": t, "transB": t, "alpha": 0.5}) for t in (0, 1)),
    Fused("FusedMatMul", (floats(3, 2, 4), floats(4, 2, 5)), {"transBatchA": 1, "transBatchB": 1}),
    Fused("FusedMatMul", (floats(4, 2, 3), floats(5, 2, 4)), {"transBatchA": 1, "transBatchB": 1, "transA": 1, "transB": 1}),
    Fused("Gelu", (X,)), Fused("QuickGelu", (X,)), Fused("QuickGelu", (X,), {"alpha": 1.0}), Fused("FastGelu", (X,)),
    Fused("FastGelu", (X, ROW)), Fused("BiasGelu", (X, ROW)),
    Fused("Inverse", (floats(2, 3, 3) + 2 * np.eye(3, dtype=np.float32),)),
    *(Fused("SkipLayerNormalization", (X, floats(2, 5, 8, seed=1), ROW, *more), {"epsilon": 1e-5}, ("y0", "", "", "y3"))
      for more in ((), (floats(8, seed=1),), (None, floats(8, seed=2)))),
    Fused("SkipLayerNormalization", (X, floats(5, 8), ROW, ROW)),
    Fused("SkipSimplifiedLayerNormalization", (X, floats(2, 5, 8, seed=1), ROW, floats(8, seed=2)), {}, ("y0", "", "", "y3")),
    Fused("SimplifiedLayerNormalization", (X, ROW), {"axis": -1, "epsilon": 1e-5}, domain=""),
    Fused("EmbedLayerNormalization", (
        np.array([[1, 3, 0], [2, 2, 5]], np.int32), np.array([[0, 1, 1], [0, 0, 1]], np.int32), floats(6, 8), floats(4, 8),
        floats(2, 8), ROW, floats(8, seed=1), np.array([[1, 1, 0], [1, 1, 1]], np.int32)), {"epsilon": 1e-5}, CACHED),
    Fused("EmbedLayerNormalization", (
        np.array([[1, 3, 0]], np.int32), None, floats(6, 8), floats(4, 8), None, ROW, ROW, None, np.array([[2, 0, 1]], np.int32)),
        {}, ("y0", "y1")),
    # quantised numbers
    Fused("QLinearAdd", (*A, *B, *OUT)), Fused("QLinearMul", (*A, *B, *OUT)),
    Fused("QLinearAdd", (signed(3, 4), scale(0.1), np.int8(-2), signed(4), scale(0.2), np.int8(3), scale(0.1), np.int8(1))),
    Fused("QLinearConv", (unsigned(2, 6, 5, 4), scale(0.1), np.uint8(7), signed(6, 2, 3, 2), scale(0.02), np.int8(0), scale(0.5),
                          np.uint8(128)), {"group": 2, "pads": [1, 0, 1, 1], "channels_last": 1}, weights=frozenset((3,))),
    Fused("QLinearSigmoid", (*A, scale(1 / 256), np.uint8(0))), Fused("QLinearLeakyRelu", (*A, *OUT), {"alpha": 0.1}),
    *(Fused("QLinearAveragePool", (*A, *OUT), {**POOL, "count_include_pad": c, "channels_last": last})
      for c in (0, 1) for last in (0, 1)),
    *(Fused("QLinearGlobalAveragePool", (*A, *OUT), {"channels_last": last}) for last in (0, 1)),
    *(Fused("QLinearSoftmax", (unsigned(2, 3, 5), scale(0.02), np.uint8(5), scale(1 / 256), np.uint8(0)), {"opset": o, "axis": 1})
      for o in (12, 13)),
    Fused("QLinearConcat", (*OUT, *A, unsigned(2, 4, 2, 5), scale(0.01), np.uint8(7)), {"axis": 2}),
    Fused("QLinearWhere", (RNG.random((4, 6, 5)) < 0.5, *A, *B, *OUT)),
    Fused("QuantizeLinear", (X, scale(0.03), np.uint8(100))), Fused("DequantizeLinear", A),
    Fused("MatMulIntegerToFloat", (unsigned(3, 4), signed(4, 5), scale(0.1), np.abs(floats(5)), np.uint8(9), None, floats(5))),
    Fused("DynamicQuantizeMatMul", (floats(3, 4), signed(4, 5), np.abs(floats(5)), signed(5), floats(5))),
    Fused("QGemm", (unsigned(3, 4), scale(0.1), np.uint8(9), signed(5, 4), scale(0.2), np.int8(1), np.arange(5, dtype=np.int32),
                    scale(2.0), np.uint8(128)), {"transB": 1}),
    Fused("QGemm", (unsigned(3, 4), scale(0.1), np.uint8(9), signed(4, 5), scale(0.2), np.int8(0))),
    *(Fused("MatMulNBits", (floats(3, 40), unsigned(6, 3, 16 * bits // 8), np.abs(floats(6, 3)), *zeros),
            {"K": 40, "N": 6, "bits": bits, "block_size": 16}, weights=frozenset((1, 2, 3)))
      for bits, zeros in ((4, ()), (4, (unsigned(6, 2),)), (8, ()), (4, (floats(6, 3) + 8,)))),
    *(Fused("DynamicQuantizeLSTM", (
        floats(5, 2, 3), signed(d, 3, 16), signed(d, 4, 16), floats(d, 32), None, None, None, None, np.full(d, 0.02, np.float32),
        np.zeros(d, np.int8), np.full(d, 0.01, np.float32), np.zeros(d, np.int8)),
        {"hidden_size": 4, "direction": direction}, CACHED, frozenset((1, 2, 8, 9, 10, 11)))
      for d, direction in ((1, "forward"), (1, "reverse"), (2, "bidirectional"))),
    # attention
    *(Fused("Attention", (QKV, WEIGHTS, BIAS, *more), {"num_heads": 4, **settings}) for more, settings in (
        ((), {}), ((), {"unidirectional": 1}), ((), {"scale": 0.3}), ((np.array([5, 3], np.int32),), {}),
        ((np.array([5, 4, 1, 0], np.int32),), {}), ((np.array([[1, 1, 1, 0, 0], [0, 1, 1, 1, 1]], np.int32),), {}),
        ((RNG.integers(0, 2, (2, 5, 5)).astype(np.int32),), {}), ((None, None, floats(1, 4, 5, 5)), {}))),
    *(Fused("Attention", (QKV, WEIGHTS, BIAS, None, PAST), {"num_heads": 4, "unidirectional": u}, ("y0", "y1")) for u in (0, 1)),
    Fused("Attention", (QKV, floats(16, 32) / 4, floats(32)), {"num_heads": 4, "qkv_hidden_sizes": [8, 8, 16]}),
    *(Fused("QAttention", (unsigned(2, 5, 16), signed(16, 48), floats(48), scale(0.01), scale(0.01), mask, np.uint8(128),
                           np.int8(0)), {"num_heads": 4, "unidirectional": u}, weights=frozenset((1, 2, 3, 4, 6, 7)))
      for mask, u in ((None, 0), (np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32), 0), (None, 1))),
    *(Fused("MultiHeadAttention", (Q, K, V, *more), {"num_heads": 4, **settings}) for more, settings in (
        ((), {}), ((floats(48),), {"scale": 0.4}), ((None, np.array([7, 4], np.int32)), {}),
        ((None, RNG.integers(0, 2, (2, 7)).astype(np.int32)), {"mask_filter_value": -1e4}),
        ((None, None, floats(1, 1, 5, 7)), {}))),
    Fused("MultiHeadAttention", (Q, floats(2, 4, 7, 4), floats(2, 4, 7, 4, seed=1)), {"num_heads": 4}),
    *(Fused("MultiHeadAttention", (Q, Q, V[:, :5].copy(), None, None, None, PAST[0], PAST[1]),
            {"num_heads": 4, "unidirectional": u}, CACHED)
      for u in (0, 1)),
    *(Fused("RotaryEmbedding", (x, places, COS[:, :4], SIN[:, :4]), {"interleaved": i, **settings})
      for i in (0, 1) for x, places, settings in (
        (floats(2, 5, 16), numbers(3), {}), (floats(2, 2, 5, 8), np.array([[0, 1, 2, 3, 4], [4, 5, 6, 7, 8]]), {}),
        (floats(2, 5, 24), numbers(0), {"num_heads": 2, "rotary_embedding_dim": 8}))),
    *(Fused("GroupQueryAttention", (*operands, *more), {**GROUPED, **settings}, CACHED) for operands in (SEVERAL, FULL)
      for more, settings in (((), {}), ((COS, SIN), {"do_rotary": 1}), ((COS, SIN), {"do_rotary": 1, "rotary_interleaved": 1}),
                             ((), {"local_window_size": 3}), ((), {"softcap": 2.0, "scale": 0.5}))),
    Fused("GroupQueryAttention", (floats(2, 5, 128), None, None, *FULL[3:], COS, SIN), {**GROUPED, "do_rotary": 1}, CACHED),
]  # fmt: skip


def model_of(call: Fused) -> bytes:
    """A model of one node; total lengths are weights, as they follow from shapes in real models."""
    names = ["" if operand is None else f"x{place}" for place, operand in enumerate(call.operands)]
    made = helper.make_node(call.operator, names, list(call.outputs), domain=call.domain, **call.attributes)
    held = {place for place in call.weights if place < len(names)} | (
        {6} if call.operator == "GroupQueryAttention" else set()
    )
    inputs, weights = [], []
    for place, (name, operand) in enumerate(zip(names, call.operands, strict=True)):
        if operand is not None and place in held:
            weights.append(onnx.numpy_helper.from_array(np.asarray(operand), name))
        elif operand is not None:
            kind = helper.np_dtype_to_tensor_dtype(np.asarray(operand).dtype)
            inputs.append(helper.make_tensor_value_info(name, kind, np.shape(operand)))
    outputs = [helper.make_empty_tensor_value_info(name) for name in call.outputs if name]
    graph = helper.make_graph([made], "one", inputs, outputs, weights)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]
    return bytes(helper.make_model(graph, opset_imports=imports, ir_version=9).SerializeToString())


def session_of(data: bytes, path: Path | None = None) -> Any:
    """A session; it writes the model as its optimizer leaves it to `path`."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    if path is not None:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        options.optimized_model_filepath = str(path)
    return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("call", CALLS, ids=[f"{place}-{call.operator}" for place, call in enumerate(CALLS)])
def test_a_fused_operator_gives_the_result_of_onnxruntime(call: Fused) -> None:
    data = model_of(call)
    names = {value.name for value in onnx.load_from_string(data).graph.input}
    feeds = {f"x{place}": np.asarray(x) for place, x in enumerate(call.operands) if f"x{place}" in names}
    wanted = session_of(data).run(None, feeds)
    loaded = nnc.onnx.load(data)
    found = list(map(np.asarray, loaded(feeds)))
    assert "as a whole" in loaded.explain()
    assert [(value.shape, value.dtype) for value in found] == [(value.shape, value.dtype) for value in wanted]
    is_quantized = call.operator in ("DynamicQuantizeLSTM", "DynamicQuantizeMatMul")  # a step of the quantisation
    for value, other in zip(found, wanted, strict=True):
        if other.dtype.kind == "f":
            np.testing.assert_allclose(value, other, 1e-4, 5e-3 if is_quantized else 1e-4)
        else:
            assert np.abs(value.astype(int) - other.astype(int)).max() <= 1  # rounded elsewhere
            assert (value != other).mean() < 0.05


@pytest.mark.parametrize("operands", [FIRST, SINGLE], ids=["first", "later"])
def test_caches_of_examples_with_different_lengths_are_those_of_onnxruntime(operands: tuple[Any, ...]) -> None:
    """Rows behind the ends of examples hold anything."""
    data = model_of(Fused("GroupQueryAttention", (*operands, COS, SIN), {**GROUPED, "do_rotary": 1}, CACHED))
    held = (0, 1, 2, 3, 4, 5, 7, 8)
    feeds = {f"x{place}": x for place, x in enumerate((*operands, COS, SIN)) if place in held and x is not None}
    for found, wanted in zip(nnc.onnx.load(data)(feeds), session_of(data).run(None, feeds), strict=True):
        for example, last in enumerate(operands[5]):
            rows = (example, slice(last + 1)) if wanted.ndim == 3 else (example, slice(None), slice(last + 1))
            np.testing.assert_allclose(np.asarray(found)[rows], wanted[rows], 1e-4, 1e-4)


def test_models_are_the_same_when_the_optimizer_of_onnxruntime_has_written_them(tmp_path: Path) -> None:
    x, weights = floats(2, 3, 4, 4), {"k": floats(8, 3, 3, 3), "w": floats(16, 16), "b": floats(16), "s": floats(16)}
    weights |= {"half": np.float32(0.5), "one": np.float32(1), "root": np.float32(2**0.5), "flat": numbers(2, 8, 16)}
    nodes = [
        node("Conv", ["x", "k"], ["c"], pads=[1, 1, 1, 1]), node("Relu", ["c"], ["r"]), node("Reshape", ["r", "flat"], ["h"]),
        node("MatMul", ["h", "w"], ["m"]), node("Add", ["m", "b"], ["a"]), node("Div", ["a", "root"], ["d"]),
        node("Erf", ["d"], ["e"]), node("Add", ["e", "one"], ["f"]), node("Mul", ["a", "f"], ["g"]),
        node("Mul", ["g", "half"], ["u"]),
        node("Add", ["h", "u"], ["n"]), node("LayerNormalization", ["n", "s", "b"], ["l"]), node("Sigmoid", ["l"], ["q"]),
        node("Mul", ["l", "q"], ["y"]),
    ]  # fmt: skip
    data = model(nodes, {"x": (FLOAT, x.shape)}, {"y": (FLOAT, None)}, weights)
    wanted = session_of(data, tmp_path / "model.onnx").run(None, {"x": x})[0]
    fused = {node.op_type for node in onnx.load(tmp_path / "model.onnx").graph.node if node.domain == DOMAIN}
    assert len(fused) >= 3, fused
    np.testing.assert_allclose(nnc.onnx.load(tmp_path / "model.onnx")({"x": x})[0], wanted, 1e-4, 1e-4)


def test_a_model_that_is_optimized_for_one_processor_is_refused_with_the_remedy() -> None:
    call = Fused("Conv", (IMAGE, floats(3, 4, 3, 3)), domain="com.microsoft.nchwc")
    with pytest.raises(UnsupportedError, match="at the level ORT_ENABLE_EXTENDED"):
        nnc.onnx.load(model_of(call))({f"x{place}": x for place, x in enumerate(call.operands)})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (Fused("MultiHeadAttention", (floats(2, 5, 4, 3, 4),), {"num_heads": 4}), "MultiHeadAttention with packed operands"),
        (Fused("FusedConv", (IMAGE, floats(3, 4, 3, 3)), {"activation": "Softplus"}), "activation 'Softplus' of FusedConv"),
    ],
)  # fmt: skip
def test_forms_that_nnc_lacks_are_named(call: Fused, message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        nnc.onnx.load(model_of(call))({f"x{place}": x for place, x in enumerate(call.operands)})
