"""Operators give the results of `onnx.reference`, as inputs and as weights, and those of the converted model."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper, version_converter
from onnx.reference import ReferenceEvaluator

import nnc
from tests.unit.onnx.operators.cases import CALLS, EXACT, Call

NEWEST = 22  # to which the converter brings old models
CONVERTED = ("Softmax", "LogSoftmax", "BatchNormalization")  # of which the reference knows only the new meaning


def model_of(call: Call, *, weights: bool = False) -> onnx.ModelProto:
    """A model of one node, whose operands are its inputs or its weights."""
    names = ["" if operand is None else f"x{index}" for index, operand in enumerate(call.operands)]
    outputs = [f"y{index}" for index in range(call.outputs)]
    node = helper.make_node(call.operator, names, outputs, **call.attributes)
    given = [(name, operand) for name, operand in zip(names, call.operands, strict=True) if operand is not None]
    inputs = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(np.asarray(operand).dtype), np.shape(operand)
        )
        for name, operand in given
    ]
    held = [numpy_helper.from_array(np.asarray(operand), name) for name, operand in given]
    graph = helper.make_graph(
        [node], "one", [] if weights else inputs, [helper.make_empty_tensor_value_info(name) for name in outputs],
        held if weights else [],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", call.version)], ir_version=10)


def feeds_of(call: Call) -> dict[str, Any]:
    return {f"x{index}": np.asarray(operand) for index, operand in enumerate(call.operands) if operand is not None}


def converted(call: Call) -> onnx.ModelProto:
    return version_converter.convert_version(model_of(call), NEWEST)


def check(call: Call, found: list[Any]) -> None:
    """Compares with the standard's reference, dtypes included."""
    is_old = call.operator in CONVERTED and call.version < 13
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        wanted = ReferenceEvaluator(converted(call) if is_old else model_of(call)).run(None, feeds_of(call))
    assert len(found) == len(wanted)
    for value, other in zip(map(np.asarray, found), map(np.asarray, wanted), strict=True):
        assert (value.shape, value.dtype) == (other.shape, other.dtype)
        if other.dtype.kind != "f":
            np.testing.assert_array_equal(value, other)
            continue
        finite = np.abs(other[np.isfinite(other)], dtype=np.float64)
        np.testing.assert_allclose(value, other, call.bound, min(call.bound * finite.max(initial=0.0), 1.0))


def parametrized(calls: list[Call]) -> Callable[[Any], Any]:
    names = [f"{index}-{call.operator}-{call.version}" for index, call in enumerate(calls)]
    return pytest.mark.parametrize("call", calls, ids=names)


@parametrized(CALLS)
def test_an_operator_gives_the_result_of_the_standard_s_reference(call: Call) -> None:
    check(call, nnc.onnx.load(model_of(call).SerializeToString())(feeds_of(call)))


@parametrized(CALLS)
def test_an_operator_of_weights_gives_the_same(call: Call) -> None:
    check(call, nnc.onnx.load(model_of(call, weights=True).SerializeToString())({}))


OLD = [call for call in CALLS if call.version < 13]


@parametrized(OLD)
def test_an_old_operator_gives_the_same_as_the_model_converted_to_a_new_version(call: Call) -> None:
    check(call, nnc.onnx.load(converted(call).SerializeToString())(feeds_of(call)))


@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize(("call", "wanted"), EXACT, ids=[f"{call.operator}-{call.version}" for call, _ in EXACT])
def test_an_operator_gives_the_result_that_the_standard_s_text_states(call: Call, wanted: Any, weights: bool) -> None:
    model = nnc.onnx.load(model_of(call, weights=weights).SerializeToString())
    (found,) = map(np.asarray, model({} if weights else feeds_of(call)))
    assert found.dtype == wanted.dtype
    np.testing.assert_allclose(found, wanted, 1e-6)


SMOOTH = {
    "Tanh", "Sigmoid", "Sum", "Mean", "Mish", "Gelu", "Celu", "PRelu", "ReduceSum", "ReduceMean", "ReduceLogSumExp", "CumSum",
    "Softmax", "LogSoftmax", "Slice", "Split", "Pad", "Gather", "GatherElements", "ScatterElements", "ScatterND", "MatMul", "Gemm",
    "Einsum", "Conv", "ConvTranspose", "AveragePool", "MaxPool", "LpPool", "BatchNormalization", "InstanceNormalization",
    "LayerNormalization", "RMSNormalization", "GroupNormalization", "LRN", "Resize", "GridSample", "RNN", "GRU", "LSTM",
}  # fmt: skip
DIFFERENTIABLE = [
    call
    for call in CALLS
    if call.operator in SMOOTH
    and all(operand is None or operand.dtype.kind != "f" or np.isfinite(operand).all() for operand in call.operands)
    and np.asarray(call.operands[0]).dtype == np.float32
    and np.size(call.operands[0])
]


@parametrized(DIFFERENTIABLE)
def test_gradients_agree_with_differences(call: Call) -> None:
    is_scales = call.operator == "Resize"  # whose second and third operands are float32 in every model
    operands = [
        o.astype(np.float64) if o is not None and o.dtype.kind == "f" and not (is_scales and i) else o
        for i, o in enumerate(call.operands)
    ]
    wide = call._replace(operands=tuple(operands), attributes={**call.attributes, **_stash(call)})
    model, feeds = nnc.onnx.load(model_of(wide).SerializeToString()), feeds_of(wide)
    free = {name: value for name, value in feeds.items() if value.dtype == np.float64}
    fixed = {name: value for name, value in feeds.items() if name not in free}
    weights = [np.random.default_rng(7).standard_normal(np.shape(out)) for out in model(feeds)]

    def loss(free: dict[str, Any]) -> Any:
        outs = model({**free, **fixed})
        return sum(nnc.numpy.sum(out * weight) for out, weight in zip(outs, weights, strict=True))

    found = nnc.grad(loss)(free)
    rng, step = np.random.default_rng(3), 1e-6
    way = {name: rng.standard_normal(value.shape) for name, value in free.items()}
    ahead, behind = (loss({n: v + sign * step * way[n] for n, v in free.items()}) for sign in (1, -1))
    along = sum(float(np.vdot(np.asarray(found[name]), way[name])) for name in free)
    np.testing.assert_allclose(along, (float(ahead) - float(behind)) / (2 * step), 1e-5, 1e-6)


def _stash(call: Call) -> dict[str, Any]:
    return (
        {"stash_type": 11} if call.operator in ("LayerNormalization", "RMSNormalization", "GroupNormalization") else {}
    )
