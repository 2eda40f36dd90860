from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.errors import (
    ArgumentError,
    ArgumentTypeError,
    DTypeError,
    FileFormatError,
    RetraceWarning,
    ShapeError,
    TraceError,
)
from nnc.testing import check_grads

pytest.importorskip("onnx")
from nnc.onnx.callable import OnnxFunction
from nnc.trace.core import captures
from tests.unit.onnx.models import BOOL, FLOAT, INT64, dense, graph, model, node

X = np.array([[1.0, 2.0, 3.0], [-1.0, 0.5, 2.0]], np.float32)
W, B = np.arange(6, dtype=np.float32).reshape(3, 2) / 10, np.array([-0.5, 0.5], np.float32)
Y = np.maximum(X @ W + B, 0)


def traces(f: Any) -> int:
    """The number of traces of a model."""
    return sum(program.cache_info().misses for program in f._programs.values())


def test_a_model_names_its_inputs_and_outputs() -> None:
    f = nnc.onnx.load(dense())
    assert [(value.name, value.dtype, value.shape) for value in f.inputs] == [("x", np.float32, ("batch", 3))]
    assert [(value.name, value.shape) for value in f.outputs] == [("y", ("batch", 2))]
    assert f.params == {}
    assert f.explain() == "it has not run yet."


@pytest.mark.parametrize("make", [np.asarray, nnc.asarray, lambda x: x.tolist()], ids=["numpy", "nnc", "lists"])
def test_inputs_are_arrays_of_any_kind(make: Any) -> None:
    f = nnc.onnx.load(dense())
    for _ in range(3):
        (y,) = f({"x": make(X)})
        np.testing.assert_allclose(y, Y, rtol=1e-6)
    assert f.explain() == "compiled as a whole: x float32[2, 3]"


def test_equal_shapes_are_traced_once_and_other_shapes_again() -> None:
    f = nnc.onnx.load(dense())
    for count in (2, 2, 2, 5, 5, 2):
        f({"x": nnc.asarray(np.ones((count, 3), np.float32))})
    assert traces(f) <= 2
    before = traces(f)
    f({"x": np.ones((5, 3), np.float32)})
    assert traces(f) == before


def test_mistakes_in_feeds_are_named() -> None:
    f = nnc.onnx.load(dense())
    with pytest.raises(ArgumentTypeError, match=r'feeds is a ndarray\.[\s\S]*pass a dict such as \{"x": x\}'):
        f(X)
    with pytest.raises(ArgumentError, match="no input 'X'[\\s\\S]*write 'x'"):
        f({"X": X})
    with pytest.raises(ArgumentError, match="the input 'x' is missing"):
        f({})
    with pytest.raises(DTypeError, match=r'dtype float64, the model declares float32[\s\S]*x\.astype\("float32"\)'):
        f({"x": X.astype(np.float64)})
    with pytest.raises(ShapeError, match=r"has shape \(2, 4\)[\s\S]*float32\[batch, 3\]"):
        f({"x": np.ones((2, 4), np.float32)})
    with pytest.raises(ShapeError, match=r"has shape \(3,\)"):
        f({"x": np.ones(3, np.float32)})


def test_mistakes_are_found_after_right_calls_too() -> None:
    f = nnc.onnx.load(dense())
    for _ in range(4):
        f({"x": nnc.asarray(X)})
    with pytest.raises(ShapeError):
        f({"x": nnc.asarray(X.T)})
    with pytest.raises(DTypeError):
        f({"x": nnc.asarray(X).astype("float64")})
    with pytest.raises(ArgumentError, match="no input 'z'"):
        f({"x": nnc.asarray(X), "z": nnc.asarray(X)})


def test_a_name_of_a_dimension_stands_for_one_size() -> None:
    declared = {"x": (FLOAT, ["batch", 3]), "z": (FLOAT, ["batch", 3])}
    f = nnc.onnx.load(model([node("Add", ["x", "z"], ["y"])], declared, {"y": (FLOAT, ["batch", 3])}))
    with pytest.raises(ShapeError, match="'batch' is 2 by axis 0 of 'x', and 1 by axis 0 of 'z'"):
        f({"x": X, "z": X[:1]})


@pytest.mark.parametrize("unknown", ["?", -1, None, ""])
def test_dimensions_without_a_name_tie_nothing(unknown: Any) -> None:
    declared = {"x": (FLOAT, [unknown, unknown])}
    f = nnc.onnx.load(model([node("Neg", ["x"], ["y"])], declared, {"y": (FLOAT, [unknown, unknown])}))
    assert f.inputs[0].shape == (None, None)
    np.testing.assert_array_equal(f({"x": X})[0], -X)


def test_an_input_with_a_weight_of_its_name_may_be_left_out() -> None:
    declared = {"x": (FLOAT, [2, 3]), "c": (FLOAT, [])}
    f = nnc.onnx.load(
        model([node("Mul", ["x", "c"], ["y"])], declared, {"y": (FLOAT, [2, 3])}, {"c": np.float32(2)}, opset=8)
    )
    np.testing.assert_array_equal(f({"x": X})[0], 2 * X)
    np.testing.assert_array_equal(f({"x": X, "c": np.float32(3)})[0], 3 * X)
    np.testing.assert_array_equal(f({"x": X})[0], 2 * X)


def test_outputs_are_chosen_by_name_and_the_rest_does_not_run() -> None:
    nodes = [node("Neg", ["x"], ["h"]), node("Frobnicate", ["h"], ["y"], domain="com.example")]
    data = model(nodes, {"x": (FLOAT, [2, 3])}, {"y": (FLOAT, [2, 3])})
    f = nnc.onnx.load(data, outputs=["h"])
    np.testing.assert_array_equal(f({"x": X})[0], -X)
    with pytest.raises(ArgumentError, match="no value 'hh'[\\s\\S]*write 'h'"):
        nnc.onnx.load(data, outputs=["hh"])


def reshaping() -> bytes:
    """y = x in the shape of the input s."""
    declared = {"x": (FLOAT, [2, 3]), "s": (INT64, [2])}
    return model([node("Reshape", ["x", "s"], ["y"], name="change")], declared, {"y": (FLOAT, [None, None])})


@pytest.mark.parametrize("make", [np.asarray, nnc.asarray], ids=["numpy", "nnc"])
def test_values_of_small_inputs_are_fixed_where_shapes_need_them(make: Any) -> None:
    f = nnc.onnx.load(reshaping())
    for _ in range(3):
        for shape in ((3, 2), (6, 1), (1, 6)):
            (y,) = f({"x": make(X), "s": make(np.array(shape))})
            np.testing.assert_array_equal(y, X.reshape(shape))
    assert "the values of 's'" in f.explain()
    assert "node 'change' (Reshape)" in f.explain()
    assert len(f._programs) <= 4


def test_after_many_variants_the_nodes_run_one_by_one() -> None:
    f = nnc.onnx.load(
        model([node("Tile", ["x", "s"], ["y"])], {"x": (FLOAT, [3]), "s": (INT64, [1])}, {"y": (FLOAT, [None])})
    )
    for count in range(1, 25):
        (y,) = f({"x": X[0], "s": np.array([count])})
        np.testing.assert_array_equal(y, np.tile(X[0], count))
    assert len(f._programs) <= 17


def test_shapes_that_depend_on_data_run_in_parts() -> None:
    nodes = [node("Neg", ["x"], ["h"]), node("NonZero", ["h"], ["y"], name="places")]
    f = nnc.onnx.load(model(nodes, {"x": (FLOAT, ["n"])}, {"y": (INT64, [1, "m"])}))
    for seed in range(3):
        x = np.random.default_rng(seed).integers(0, 2, 40).astype(np.float32)
        np.testing.assert_array_equal(f({"x": x})[0], np.stack(np.nonzero(x)))
    assert "node 'places' (NonZero)" in f.explain()
    assert "1 of 2 nodes compiled as a part, then by themselves: node 'places' (NonZero)" in f.explain()


def test_a_model_is_a_part_of_other_functions() -> None:
    f = nnc.onnx.load(dense())
    inside = nnc.compile(lambda x: f({"x": x * 2})[0])
    np.testing.assert_allclose(inside(X), np.maximum(2 * X @ W + B, 0), rtol=1e-6)
    mapped = nnc.vmap(lambda row: f({"x": row[None]})[0][0])(nnc.asarray(X))
    np.testing.assert_allclose(mapped, Y, rtol=1e-6)
    slope = nnc.grad(lambda x: nnp.sum(f({"x": x})[0]))(nnc.asarray(X))
    np.testing.assert_allclose(slope, (Y > 0).astype(np.float32) @ W.T, rtol=1e-6)


def test_shapes_cannot_depend_on_values_of_an_outer_trace() -> None:
    f = nnc.onnx.load(reshaping())
    with pytest.raises(TraceError, match="node 'change'"):
        nnc.compile(lambda s: f({"x": X, "s": s})[0])(nnc.asarray([3, 2]))
    fixed = nnc.compile(lambda x: f({"x": x, "s": np.array([3, 2])})[0])
    np.testing.assert_array_equal(fixed(X), X.reshape(3, 2))


def test_weights_are_trained() -> None:
    f = nnc.onnx.load(dense(), trainable=True)
    assert sorted(f.params) == ["b", "w"]
    np.testing.assert_allclose(f({"x": X})[0], Y, rtol=1e-6)
    np.testing.assert_allclose(
        f.apply({"w": f.params["w"] * 2, "b": f.params["b"]}, {"x": X})[0], np.maximum(X @ W * 2 + B, 0), rtol=1e-6
    )

    def loss(params: Any) -> Any:
        return nnp.sum(nnp.tanh(f.apply(params, {"x": X})[0]))

    check_grads(loss, (f.params,), order=1, atol=1e-2, rtol=1e-2)
    slopes = nnc.compile(nnc.grad(loss))(f.params)
    np.testing.assert_allclose(slopes["b"], ((1 - np.tanh(Y) ** 2) * (Y > 0)).sum(0), rtol=1e-5)


def test_numbers_without_dimensions_are_not_trained() -> None:
    weights = {"w": np.ones(3, np.float32), "eps": np.float32(1e-6)}
    nodes = [node("Mul", ["x", "w"], ["h"]), node("Add", ["h", "eps"], ["y"])]
    f = nnc.onnx.load(model(nodes, {"x": (FLOAT, [3])}, {"y": (FLOAT, [3])}, weights), trainable=True)
    assert list(f.params) == ["w"]


def test_params_are_those_of_the_model() -> None:
    f = nnc.onnx.load(dense(), trainable=True)
    with pytest.raises(ArgumentError, match="params has 'w', and the model has"):
        f.apply({"w": f.params["w"]}, {"x": X})
    with pytest.raises(ArgumentError, match="trainable=True"):
        nnc.onnx.load(dense()).apply({"w": f.params["w"]}, {"x": X})


def test_packed_weights_are_made_once() -> None:
    weights = {"w": np.random.default_rng(0).standard_normal((64, 32, 3, 3)).astype(np.float32)}
    nodes = [node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])]
    f = nnc.onnx.load(model(nodes, {"x": (FLOAT, [1, 32, 16, 16])}, {"y": (FLOAT, [1, 64, 16, 16])}, weights))
    x = np.random.default_rng(1).standard_normal((1, 32, 16, 16)).astype(np.float32)
    expected = np.asarray(nnc.nn.conv(x, weights["w"], padding=1))
    for _ in range(3):
        np.testing.assert_allclose(f({"x": x})[0], expected, rtol=1e-4, atol=1e-4)
    (copies,) = f._tracer.own._copies.values()
    assert copies[1].shape == (64, 32, 3, 3)


def test_a_call_of_known_arrays_looks_through_no_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    f = nnc.onnx.load(dense())
    for x in (np.asarray(X), nnc.asarray(X)) * 3:
        expected = np.asarray(f({"x": x})[0])
    monkeypatch.setattr(captures, "_same", lambda now, then: pytest.fail("captured values are compared"))
    monkeypatch.setattr(OnnxFunction, "apply", lambda *_: pytest.fail("the inputs are checked again"))
    for x in (np.asarray(X), nnc.asarray(X)):
        np.testing.assert_array_equal(f({"x": x})[0], expected)


def test_many_models_may_be_called_once_each() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", RetraceWarning)
        for _ in range(9):
            nnc.onnx.load(dense())({"x": X})


def test_results_share_no_memory_with_inputs_of_numpy() -> None:
    f = nnc.onnx.load(model([node("Identity", ["x"], ["y"])], {"x": (FLOAT, [3])}, {"y": (FLOAT, [3])}))
    x = np.ones(3, np.float32)
    for _ in range(3):
        (found,) = f({"x": x})
        x[:] = 2
        np.testing.assert_array_equal(found, [1, 1, 1])
        x[:] = 1


# -- branches and loops ------------------------------------------------------------------------------------------------


def branching(other: list[Any]) -> bytes:
    branches = {
        "then_branch": graph([node("Neg", ["x"], ["a"])], {}, {"a": (FLOAT, None)}),
        "else_branch": graph(other, {}, {"b": (FLOAT, None)}),
    }
    return model([node("If", ["p"], ["y"], **branches)], {"x": (FLOAT, [2, 3]), "p": (BOOL, [])}, {"y": (FLOAT, None)})


def test_branches_of_equal_shapes_compile_as_one() -> None:
    f = nnc.onnx.load(branching([node("Abs", ["x"], ["b"])]))
    for flag in (True, False, True):
        (y,) = f({"x": X, "p": np.array(flag)})
        np.testing.assert_array_equal(y, -X if flag else np.abs(X))
    assert f.explain().splitlines() == ["compiled as a whole: x float32[2, 3], p bool[]"]


def test_branches_of_other_shapes_compile_for_each_flag() -> None:
    f = nnc.onnx.load(branching([node("Transpose", ["x"], ["b"])]))
    for flag in (True, False, True):
        (y,) = f({"x": X, "p": np.array(flag)})
        np.testing.assert_array_equal(y, -X if flag else X.T)
    assert "the branch of If" in f.explain()


def looping(count: Any, stacked: bool) -> bytes:
    """s = s * 2 + x, `count` times; with all states stacked."""
    nodes = [
        node("Add", ["s", "s"], ["t"]), node("Add", ["t", "x"], ["u"]), node("Identity", ["c"], ["d"]),
        node("Identity", ["u"], ["v"]),
    ]  # fmt: skip
    outputs = {"d": (BOOL, []), "u": (FLOAT, [3])} | ({"v": (FLOAT, [3])} if stacked else {})
    body = graph(nodes, {"i": (INT64, []), "c": (BOOL, []), "s": (FLOAT, [3])}, outputs)
    names = ["y", "all"] if stacked else ["y"]
    declared = {"x": (FLOAT, [3]), "n": (INT64, [])}
    weights = {"zero": np.zeros(3, np.float32)} | ({"n": np.array(count)} if count is not None else {})
    return model(
        [node("Loop", ["n", "", "zero"], names, body=body)],
        declared if count is None else {"x": (FLOAT, [3])},
        dict.fromkeys(names, (FLOAT, None)),
        weights,
    )


@pytest.mark.parametrize("stacked", [False, True])
@pytest.mark.parametrize("fixed", [False, True])
def test_loops_run_their_rounds(stacked: bool, fixed: bool) -> None:
    for count in (0, 1, 5):
        f = nnc.onnx.load(looping(count if fixed else None, stacked))
        found = f({"x": X[0]} if fixed else {"x": X[0], "n": np.array(count)})
        states = [X[0] * (2**i - 1) for i in range(1, count + 1)]
        np.testing.assert_allclose(found[0], states[-1] if states else 0 * X[0], rtol=1e-6)
        if stacked and states:
            np.testing.assert_allclose(found[1], states, rtol=1e-6)


def test_a_loop_with_a_traced_count_is_one_program() -> None:
    f = nnc.onnx.load(looping(None, stacked=False))
    for count in (3, 7, 2000):
        f({"x": X[0], "n": np.array(count)})
    assert traces(f) == 1


def test_loops_within_loops_end_soon() -> None:
    """A file of a few hundred bytes that asks for 10^9 rounds of shapes that change."""
    inner = [
        node("Concat", ["s", "s"], ["u"], axis=0),
        node("Slice", ["u", "one", "three"], ["v"]),
        node("Identity", ["c"], ["d"]),
    ]
    body = graph(inner, {"i": (INT64, []), "c": (BOOL, []), "s": (FLOAT, None)}, {"d": (BOOL, []), "v": (FLOAT, None)})
    for _ in range(2):
        nodes = [node("Loop", ["n", "", "s"], ["v"], body=body), node("Identity", ["c"], ["d"])]
        body = graph(
            nodes, {"i": (INT64, []), "c": (BOOL, []), "s": (FLOAT, None)}, {"d": (BOOL, []), "v": (FLOAT, None)}
        )
    weights = {"n": np.array(1000), "x": np.zeros(3, np.float32), "one": np.array([1]), "three": np.array([4])}
    f = nnc.onnx.load(model([node("Loop", ["n", "", "x"], ["y"], body=body)], {}, {"y": (FLOAT, None)}, weights))
    with pytest.raises(FileFormatError, match="nodes of"):
        f({})


@pytest.mark.parametrize("operator", ["Loop", "Scan"])
def test_shapes_that_depend_on_a_loops_state_run_round_by_round(operator: str) -> None:
    """s = sum(range(s)) + x of each round."""
    nodes = [
        node("Range", ["zero", "s", "one"], ["r"]), node("ReduceSum", ["r"], ["t"], keepdims=0), node("Add", ["t", "k"], ["u"]),
        node("Identity", ["u"], ["v"]),
    ]  # fmt: skip
    weights = {"zero": np.array(0), "one": np.array(1), "n": np.array(3)}
    if operator == "Loop":
        nodes.append(node("Identity", ["c"], ["d"]))
        inputs = {"i": (INT64, []), "c": (BOOL, []), "s": (INT64, [])}
        body = graph(nodes, inputs, {"d": (BOOL, []), "u": (INT64, []), "v": (INT64, [])}, {"k": np.array(2)})
        call, declared = node("Loop", ["n", "", "x"], ["y", "all"], body=body), {"x": (INT64, [])}
    else:
        body = graph(nodes, {"s": (INT64, []), "k": (INT64, [])}, {"u": (INT64, []), "v": (INT64, [])})
        call = node("Scan", ["x", "ks"], ["y", "all"], body=body, num_scan_inputs=1)
        declared = {"x": (INT64, []), "ks": (INT64, [3])}
    f = nnc.onnx.load(model([call], declared, {"y": (INT64, []), "all": (INT64, [3])}, weights))
    feeds = {"x": np.array(4)} | ({} if operator == "Loop" else {"ks": np.array([2, 2, 2])})
    y, states = f(feeds)
    assert (int(y), states.tolist()) == (437, [8, 30, 437])
