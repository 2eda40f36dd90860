"""Small models for the tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

FLOAT, INT64, BOOL = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64, onnx.TensorProto.BOOL
Declared = Mapping[str, tuple[int, Sequence[int | str | None]]]


def node(operator: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> Any:
    return helper.make_node(operator, inputs, outputs, **attributes)


def values(declared: Declared) -> list[Any]:
    return [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in declared.items()]


def graph(nodes: Sequence[Any], inputs: Declared, outputs: Declared, weights: Mapping[str, Any] | None = None) -> Any:
    held = [
        array if isinstance(array, onnx.TensorProto) else numpy_helper.from_array(np.asarray(array), name)
        for name, array in (weights or {}).items()
    ]
    return helper.make_graph(list(nodes), "main", values(inputs), values(outputs), held)


def model(
    nodes: Sequence[Any],
    inputs: Declared,
    outputs: Declared,
    weights: Mapping[str, Any] | None = None,
    *,
    opset: int = 18,
    ml: int = 3,
    **more: Any,
) -> bytes:
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("my", 1), helper.make_opsetid("ai.onnx.ml", ml)]
    made = helper.make_model(graph(nodes, inputs, outputs, weights), opset_imports=imports, **more)
    return bytes(made.SerializeToString())


def dense(rows: int | str = "batch") -> bytes:
    """y = relu(x @ w + b) of three features to two."""
    weights = {"w": np.arange(6, dtype=np.float32).reshape(3, 2) / 10, "b": np.array([-0.5, 0.5], np.float32)}
    nodes = [node("Gemm", ["x", "w", "b"], ["h"], name="layer"), node("Relu", ["h"], ["y"])]
    return model(nodes, {"x": (FLOAT, [rows, 3])}, {"y": (FLOAT, [rows, 2])}, weights)
