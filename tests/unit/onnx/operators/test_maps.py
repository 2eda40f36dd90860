"""Operators on maps give the results of onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import nnc
from nnc.errors import FileFormatError
from tests.unit.onnx.operators.test_classical import ML, draw

FLOAT, INT64, STRING = TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING


def map_type(key: int, value: int) -> Any:
    return helper.make_map_type_proto(key, helper.make_tensor_type_proto(value, []))


def model_of(nodes: list[Any], inputs: list[Any], outputs: list[Any]) -> bytes:
    graph = helper.make_graph(nodes, "maps", inputs, outputs)
    imports = [helper.make_opsetid("", 18), helper.make_opsetid(ML, 3)]
    return bytes(helper.make_model(graph, opset_imports=imports, ir_version=9).SerializeToString())


def run(data: bytes, feeds: dict[str, Any]) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return list(onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"]).run(None, feeds))


@pytest.mark.parametrize(
    ("operator", "kinds", "x", "attributes"),
    [
        ("DictVectorizer", (STRING, FLOAT, FLOAT), {"a": 1.5, "c": 2.0}, {"string_vocabulary": ["a", "b", "c"]}),
        ("DictVectorizer", (INT64, FLOAT, FLOAT), {1: 2.0}, {"int64_vocabulary": [3, 1]}),
        ("CastMap", (INT64, FLOAT, FLOAT), {3: 1.5, 1: 2.5}, {"map_form": "DENSE"}),
        ("CastMap", (INT64, FLOAT, STRING), {3: 1.5, 1: 2.5}, {"cast_to": "TO_STRING", "map_form": "SPARSE", "max_map": 5}),
        ("CastMap", (INT64, FLOAT, STRING), {3: 1.5, 1: 1 / 3}, {"cast_to": "TO_STRING"}),
        ("CastMap", (INT64, FLOAT, INT64), {3: 1.5, 1: -2.5, 9: 4.0}, {"cast_to": "TO_INT64", "map_form": "SPARSE", "max_map": 8}),
    ],
)  # fmt: skip
def test_maps_become_arrays(operator: str, kinds: tuple[int, int, int], x: Any, attributes: Any) -> None:
    key, value, result = kinds
    node = helper.make_node(operator, ["x"], ["y"], domain=ML, **attributes)
    declared = [helper.make_value_info("x", map_type(key, value))]
    data = model_of([node], declared, [helper.make_tensor_value_info("y", result, None)])
    f = nnc.onnx.load(data)
    for feeds in ({"x": x}, {"x": dict.fromkeys(x, 7.0)}, {"x": x}):
        (found,), (wanted,) = f(feeds), run(data, feeds)
        assert np.asarray(found).dtype == wanted.dtype
        np.testing.assert_array_equal(found, wanted)


def test_maps_of_integers_strings_and_rows_of_maps() -> None:
    """Which onnxruntime does not take from Python."""

    def found(x: Any) -> Any:
        node = helper.make_node("DictVectorizer", ["x"], ["y"], domain=ML, string_vocabulary=["a", "b"])
        declared = helper.make_value_info("x", helper.make_sequence_type_proto(map_type(STRING, INT64)))
        return nnc.onnx.load(model_of([node], [declared], [helper.make_empty_tensor_value_info("y")]))({"x": x})[0]

    np.testing.assert_array_equal(found([{"a": 1}, {"b": 2}, {}]), [[1, 0], [0, 2], [0, 0]])
    assert found({"a": 1}).dtype == np.int64
    assert found({"b": "word"}).tolist() == [["", "word"]]


@pytest.mark.parametrize("labels", [{"classlabels_strings": ["no", "yes"]}, {"classlabels_int64s": [4, 5]}])
def test_scores_become_maps_behind_a_compiled_part(labels: Any) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Softmax", ["h"], ["p"]),
        helper.make_node("ZipMap", ["p"], ["y"], domain=ML, **labels),
    ]  # fmt: skip
    key = STRING if "classlabels_strings" in labels else INT64
    outputs = [helper.make_value_info("y", helper.make_sequence_type_proto(map_type(key, FLOAT)))]
    data = model_of(nodes, [helper.make_tensor_value_info("x", FLOAT, [None, 4])], outputs)
    proto = onnx.ModelProto.FromString(data)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(draw(4, 2), "w"))
    data = proto.SerializeToString()
    f, x = nnc.onnx.load(data), draw(3, 4, seed=1)
    for rows in (x, np.tile(x, (2, 1)), x, x[:1]):
        (found,), (wanted,) = f({"x": rows}), run(data, {"x": rows})
        assert [row.keys() for row in found] == [row.keys() for row in wanted]
        for row, other in zip(found, wanted, strict=True):
            np.testing.assert_allclose(list(row.values()), list(other.values()), rtol=1e-5)
    assert "2 of 3 nodes compiled as a part" in f.explain()


def test_scores_for_other_labels_are_refused() -> None:
    node = helper.make_node("ZipMap", ["x"], ["y"], domain=ML, classlabels_int64s=[4, 5])
    declared = helper.make_value_info("y", helper.make_sequence_type_proto(map_type(INT64, FLOAT)))
    f = nnc.onnx.load(model_of([node], [helper.make_tensor_value_info("x", FLOAT, [None, None])], [declared]))
    with pytest.raises(FileFormatError, match="3 scores for 2 labels"):
        f({"x": draw(2, 3)})
