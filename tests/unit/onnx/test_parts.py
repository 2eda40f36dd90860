"""Models whose shapes depend on data run in compiled parts, with the results of onnxruntime and of their nodes one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnxruntime")
import onnxruntime

import nnc
from nnc.errors import FileFormatError
from nnc.onnx.callable import OnnxFunction
from nnc.onnx.parts import MOST_VARIANTS
from tests.unit.onnx.models import BOOL, FLOAT, INT64, graph, model, node

STRING = 8
W = np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32) / 2
ROWS = {"x": (FLOAT, [None, 8])}


def draw(seed: int, *shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def chain(first: str, count: int, last: str) -> list[Any]:
    """Nodes that compute `last`, of the shape of `first`, in many steps."""
    found, now = [], first
    for step in range(count):
        inner, outer = f"{last}_{step}a", f"{last}_{step}"
        found += [
            node("MatMul", [now, "w"], [inner]),
            node(("Tanh", "Sigmoid", "Softsign")[step % 3], [inner], [outer]),
        ]
        now = outer
    return [*found, node("Identity", [now], [last])]


def check(data: bytes, calls: Sequence[dict[str, Any]]) -> OnnxFunction:
    """Compares calls with onnxruntime, and with a run of the nodes one by one."""
    f, session = nnc.onnx.load(data), onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    for feeds in calls:
        found, wanted = f(feeds), session.run(None, feeds)
        alone = [named.value for named in f._tracer.run(f.params, f._checked(feeds), frozenset())]
        for value, other, slow in zip(found, wanted, alone, strict=True):
            assert isinstance(value, nnc.Array)
            assert value.dtype == other.dtype
            np.testing.assert_allclose(value, other, rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(value, slow, rtol=1e-4, atol=1e-5)
    return f


def chosen_rows() -> bytes:
    """Computes the rows of x whose first result is above 0."""
    nodes = [
        *chain("x", 5, "h"), node("Gather", ["h", "zero"], ["first"], axis=1), node("Greater", ["first", "limit"], ["c"]),
        node("Compress", ["h", "c"], ["k"], axis=0, name="choose"), *chain("k", 5, "t"), node("Shape", ["k"], ["n"]),
    ]  # fmt: skip
    weights = {"w": W, "zero": np.array(0), "limit": np.float32(0)}
    return model(nodes, ROWS, {"t": (FLOAT, None), "n": (INT64, [2])}, weights)


def test_all_but_the_node_that_needs_numbers_is_compiled() -> None:
    f = check(chosen_rows(), [{"x": draw(0, 6, 8)}] * 3)
    assert f.explain().splitlines() == [
        "the condition of Compress in node 'choose' (Compress) depends on the values of 'x'",
        "in parts: x float32[6, 8]",
        "13 of 26 nodes compiled as a part, then by themselves: node 'choose' (Compress)",
        "12 of 12 nodes compiled as a part",
    ]


def plans(f: OnnxFunction) -> list[int]:
    return [len(kinds) for kinds in f._parts._plans.values()]


def test_a_part_is_compiled_again_for_shapes_that_come_again_alone() -> None:
    data, x = chosen_rows(), draw(0, 40, 8)
    counts = [x[:size] for size in (40, 30, 20, 20, 10)]
    f = check(data, [{"x": rows} for rows in counts])
    assert plans(f) == [2, 2]
    check_same = [f({"x": rows})[1].tolist() for rows in counts]
    assert plans(f) == [4, 4]
    assert [f({"x": rows})[1].tolist() for rows in counts] == check_same
    assert plans(f) == [4, 4]


def test_a_part_has_a_limited_number_of_programs() -> None:
    calls = [{"x": draw(1, size, 8)} for size in range(1, MOST_VARIANTS + 6)]
    f = check(chosen_rows(), calls * 2)
    assert max(plans(f)) == MOST_VARIANTS


def test_no_rows_are_rows_too() -> None:
    check(chosen_rows(), [{"x": x} for x in (draw(0, 6, 8), np.zeros((6, 8), np.float32), draw(0, 0, 8)) * 2])


def sized(operator: str, *inputs: str) -> bytes:
    """y = operator of the results h and of the number n, which they decide."""
    outputs = ["k", "places"] if operator == "TopK" else ["k"]
    nodes = [
        *chain("x", 3, "h"), node("ReduceMax", ["h"], ["top"], keepdims=0), node("Mul", ["top", "six"], ["wide"]),
        node("Cast", ["wide"], ["whole"], to=INT64), node("Abs", ["whole"], ["size"]), node("Add", ["size", "one"], ["s"]),
        node("Reshape", ["s", "one_long"], ["n"]), node("Concat", ["n", "one_long"], ["twice"], axis=0),
        node(operator, list(inputs), outputs), node("Cast", ["k"], ["y"], to=FLOAT), node("Exp", ["y"], ["z"]),
    ]  # fmt: skip
    weights = {
        "w": W, "six": np.float32(6), "one": np.array(1), "one_long": np.array([1]), "zero": np.array(0), "none": np.array([0]),
    }  # fmt: skip
    return model(nodes, ROWS, {"y": (FLOAT, None), "z": (FLOAT, None)}, weights)


@pytest.mark.parametrize(
    ("operator", "inputs"),
    [
        ("Range", ["zero", "s", "one"]), ("Tile", ["h", "twice"]), ("Slice", ["h", "none", "n", "one_long"]),
        ("Expand", ["wide", "twice"]), ("ConstantOfShape", ["twice"]), ("TopK", ["h", "n"]),
    ],
)  # fmt: skip
def test_numbers_of_the_data_decide_shapes(operator: str, inputs: list[str]) -> None:
    f = check(sized(operator, *inputs), [{"x": draw(seed, 4, 8)} for seed in range(3)] * 2)
    assert f"({operator})" in f.explain() or f"the {operator} of 'k'" in f.explain()
    assert "nodes compiled as a part" in f.explain()


def test_boxes_are_chosen_between_compiled_parts() -> None:
    nodes = [
        node("Sigmoid", ["raw"], ["boxes_"]), node("Mul", ["boxes_", "scale"], ["boxes"]), node("Sigmoid", ["s"], ["scores"]),
        node("NonMaxSuppression", ["boxes", "scores", "most", "overlap", "least"], ["chosen"]),
        node("Gather", ["chosen", "two"], ["places"], axis=1), node("Squeeze", ["boxes", "zero"], ["flat"]),
        node("Gather", ["flat", "places"], ["kept"]), node("MatMul", ["kept", "v"], ["y"]),
    ]  # fmt: skip
    weights = {
        "scale": np.array([1, 1, 3, 3], np.float32), "most": np.array([20]), "two": np.array(2),
        "overlap": np.array([0.5], np.float32), "least": np.array([0.3], np.float32), "zero": np.array([0]), "v": W[:4],
    }  # fmt: skip
    declared = {"raw": (FLOAT, [1, 50, 4]), "s": (FLOAT, [1, 2, 50])}
    data = model(nodes, declared, {"chosen": (INT64, None), "y": (FLOAT, None)}, weights)
    f = check(data, [{"raw": draw(seed, 1, 50, 4), "s": draw(seed + 9, 1, 2, 50)} for seed in (0, 1, 0, 1)])
    assert "by themselves: the NonMaxSuppression of 'chosen'" in f.explain()


def growing() -> bytes:
    """A loop whose state grows by a row each round, and stops where the data say so."""
    body = graph(
        [
            node("Gather", ["s", "last"], ["row"], axis=0), *chain("row", 4, "new"), node("Concat", ["s", "new"], ["t"], axis=0),
            node("ReduceSum", ["new"], ["total"], keepdims=0), node("Less", ["total", "limit"], ["again"]),
            node("Identity", ["total"], ["seen"]),
        ],
        {"i": (INT64, []), "c": (BOOL, []), "s": (FLOAT, [None, 8])},
        {"again": (BOOL, []), "t": (FLOAT, [None, 8]), "seen": (FLOAT, [])},
        {"last": np.array([-1])},
    )  # fmt: skip
    nodes = [*chain("x", 3, "h"), node("Loop", ["n", "", "h"], ["y", "all"], body=body), *chain("y", 3, "z")]
    weights = {"w": W, "limit": np.float32(3.0), "n": np.array(12)}
    return model(nodes, ROWS, {"z": (FLOAT, None), "all": (FLOAT, None)}, weights)


def test_the_body_of_a_loop_that_grows_is_compiled_for_shapes_that_come_again() -> None:
    f = check(growing(), [{"x": draw(seed, 3, 8)} for seed in (0, 1, 0)])
    assert "in 'main': 14 of 14 nodes compiled as a part" in f.explain()


def test_loops_within_loops_whose_shapes_the_data_decide_end_soon() -> None:
    """A small file that asks for 10^9 rounds."""
    inner = [
        node("NonZero", ["s"], ["p"]),
        node("Concat", ["s", "s"], ["u"], axis=0),
        node("Slice", ["u", "one", "n4"], ["v"]),
    ]
    states = {"i": (INT64, []), "c": (BOOL, []), "s": (FLOAT, None)}
    made = {"c2": (BOOL, []), "v": (FLOAT, None)}
    body = graph([*inner, node("Compress", ["v", "c"], ["z"]), node("Identity", ["c"], ["c2"])], states, made)
    for _ in range(2):
        nodes = [node("Loop", ["n", "", "s"], ["v"], body=body), node("Identity", ["c"], ["c2"])]
        body = graph(nodes, states, made)
    data = model(
        [node("NonZero", ["x"], ["q"]), node("Loop", ["n", "", "x"], ["y"], body=body)], {"x": (FLOAT, [40])}, {"y": (FLOAT, None)},
        {"n": np.array(1000), "one": np.array([1]), "n4": np.array([41])},
    )  # fmt: skip
    with pytest.raises(FileFormatError, match="loops and functions make"):
        nnc.onnx.load(data)({"x": draw(0, 40)})


def test_a_branch_that_the_data_choose_is_compiled_when_it_is_taken_again() -> None:
    branches = {
        "then_branch": graph(chain("h", 3, "a"), {}, {"a": (FLOAT, None)}),
        "else_branch": graph(
            [*chain("h", 3, "b_"), node("Concat", ["b_", "h"], ["b"], axis=0)], {}, {"b": (FLOAT, None)}
        ),
    }
    nodes = [
        *chain("x", 3, "h"), node("ReduceSum", ["x"], ["sum"], keepdims=0), node("Greater", ["sum", "zero"], ["p"]),
        node("If", ["p"], ["y"], **branches), *chain("y", 2, "z"),
    ]  # fmt: skip
    data = model(nodes, ROWS, {"z": (FLOAT, None)}, {"w": W, "zero": np.float32(0)})
    f = check(data, [{"x": sign * draw(3, 4, 8)} for sign in (1, -1, 1, -1, 1)])
    assert "in 'main': 7 of 7 nodes compiled as a part" in f.explain()
    assert "in 'main': 8 of 8 nodes compiled as a part" in f.explain()


def test_parts_of_data_in_sequences_are_compiled() -> None:
    nodes = [
        *chain("x", 3, "h"), node("Greater", ["h", "zero"], ["c"]), node("NonZero", ["c"], ["places"]),
        node("SplitToSequence", ["places", "one"], ["parts"], axis=0), node("SequenceAt", ["parts", "one"], ["columns"]),
        node("SequenceLength", ["parts"], ["n"]), node("Cast", ["columns"], ["f"], to=FLOAT), node("Exp", ["f"], ["y"]),
    ]  # fmt: skip
    data = model(
        nodes, ROWS, {"y": (FLOAT, None), "n": (INT64, [])}, {"w": W, "zero": np.float32(0), "one": np.array(1)}
    )
    check(data, [{"x": draw(seed, 3, 8)} for seed in (0, 1, 0)])


def test_numbers_beside_strings_are_compiled() -> None:
    """Labels that are strings are looked up by themselves, numbers compile; strings come out as NumPy's arrays."""
    nodes = [
        *chain("x", 3, "h"), node("ArgMax", ["h"], ["best"], axis=1, keepdims=0),
        node("LabelEncoder", ["best"], ["label"], domain="ai.onnx.ml", keys_int64s=range(8), values_strings=list("abcdefgh")),
        node("LabelEncoder", ["label"], ["code"], domain="ai.onnx.ml", keys_strings=list("abcdefgh"), values_floats=np.arange(8.0)),
        node("Neg", ["code"], ["d"]), node("Exp", ["d"], ["y"]),
    ]  # fmt: skip
    data = model(nodes, ROWS, {"label": (STRING, None), "y": (FLOAT, None)}, {"w": W}, ml=3)
    f, session = nnc.onnx.load(data), onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    for seed in (0, 1, 0):
        label, y = f({"x": draw(seed, 5, 8)})
        words, wanted = session.run(None, {"x": draw(seed, 5, 8)})
        assert label.tolist() == words.tolist()
        np.testing.assert_allclose(y, wanted, rtol=1e-5)
    assert "8 of 12 nodes compiled as a part" in f.explain()


def test_weights_that_are_trained_are_operands_of_parts() -> None:
    f = nnc.onnx.load(chosen_rows(), trainable=True)
    x = draw(0, 6, 8)
    first, second = f({"x": x})[0], f.apply({"w": f.params["w"] * 0.5}, {"x": x})[0]
    again = nnc.onnx.load(chosen_rows())({"x": x})[0]
    np.testing.assert_allclose(first, again, rtol=1e-5)
    assert not np.allclose(np.sum(first), np.sum(second))


def generated(seed: int) -> bytes:
    """A model of random nodes, of which some take rows that the data choose. All values have 8 columns."""
    rng, nodes, values = np.random.default_rng(seed), list[Any](), ["x"]

    def one() -> str:
        return values[int(rng.integers(len(values)))]

    for step in range(int(rng.integers(4, 10))):
        out = f"v{step}"
        ways: list[Callable[[], list[Any]]] = [
            lambda out=out: chain(one(), 2, out),
            lambda out=out: chain(one(), 1, out),
            lambda out=out: [node("Concat", [one(), one()], [out], axis=0)],
            lambda out=out: [
                node("ReduceMax", [name := one()], [f"{out}m"], axes=[1], keepdims=0),
                node("Greater", [f"{out}m", "limit"], [f"{out}c"]), node("Compress", [name, f"{out}c"], [out], axis=0),
            ],
            lambda out=out: [
                node("Greater", [name := one(), "limit"], [f"{out}c"]), node("NonZero", [f"{out}c"], [f"{out}p"]),
                node("GatherND", [name, f"{out}t"], [f"{out}g"]), node("Unsqueeze", [f"{out}g", "one"], [f"{out}u"]),
                node("MatMul", [f"{out}u", "row"], [out]),
            ],
            lambda out=out: [
                node("Shape", [name := one()], [f"{out}s"]), node("Slice", [f"{out}s", "none", "one"], [f"{out}n"]),
                node("Concat", [f"{out}n", "eight"], [f"{out}r"], axis=0), node("Reshape", [name, f"{out}r"], [out]),
            ],
        ]  # fmt: skip
        made = ways[int(rng.integers(len(ways)))]()
        at = next((place for place, entry in enumerate(made) if entry.op_type == "GatherND"), None)
        if at is not None:
            made.insert(at, node("Transpose", [f"{out}p"], [f"{out}t"], perm=[1, 0]))
        nodes += made
        values.append(out)
    weights = {
        "w": W, "limit": np.float32(0.1), "none": np.array([0]), "one": np.array([1]), "eight": np.array([8]), "row": W[:1],
    }  # fmt: skip
    return model(nodes, ROWS, dict.fromkeys(values[-2:], (FLOAT, None)), weights, opset=13)


@pytest.mark.parametrize("seed", range(12))
def test_generated_models_are_the_same_in_parts(seed: int) -> None:
    check(generated(seed), [{"x": draw(call % 2, 5, 8)} for call in range(4)])
