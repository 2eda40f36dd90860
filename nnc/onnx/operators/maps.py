"""Maps of the domain of classical machine learning, which are dicts."""

from __future__ import annotations

from typing import Any

import numpy as np

from nnc.onnx.model import Node
from nnc.onnx.operators.table import operator
from nnc.onnx.values import check_known, known

ML = "ai.onnx.ml"


@operator("DictVectorizer", domain=ML)
def dict_vectorizer(node: Node, x: Any) -> Any:
    """The values of the vocabulary's keys in a row; 0 for missing ones. A sequence of maps has a row for each."""
    words = node.attributes.get("string_vocabulary") or node.attributes["int64_vocabulary"]
    rows = x if isinstance(x, list) else [x]
    values = [value for row in rows for value in row.values()]
    dtype, missing = _kind(values[0] if values else 0.0)
    return np.array([[row.get(word, missing) for word in words] for row in rows], dtype).reshape(len(rows), len(words))


def _kind(value: Any) -> tuple[Any, Any]:
    """Returns the dtype of a map's values, and the value of missing keys."""
    if isinstance(value, str):
        return object, ""
    return (np.int64, 0) if isinstance(value, (int, np.integer)) else (np.float32, 0.0)


@operator("ZipMap", domain=ML)
def zip_map(node: Node, x: Any) -> Any:
    """A map from labels to scores for each row."""
    labels = node.attributes.get("classlabels_strings") or node.attributes["classlabels_int64s"]
    rows = known(x, "the scores of ZipMap")
    rows = rows.reshape(1, -1) if rows.ndim < 2 else rows
    if rows.shape[1] != len(labels):
        raise ValueError(f"{rows.shape[1]} scores for {len(labels)} labels")
    return [dict(zip(labels, row.tolist(), strict=True)) for row in rows]


@operator("CastMap", domain=ML)
def cast_map(node: Node, x: dict[int, Any]) -> Any:
    """The values of a map by increasing keys; in the sparse form each at the place of its key, others 0."""
    get = node.attributes.get
    dtype, cast, missing = _CASTS[get("cast_to", "TO_FLOAT")]
    if get("map_form", "DENSE") == "DENSE":
        return np.array([cast(x[key]) for key in sorted(x)], dtype).reshape(1, -1)
    size = get("max_map", 1)
    check_known(8 * size, "the result of CastMap")
    return np.array([cast(x[key]) if key in x else missing for key in range(size)], dtype).reshape(1, -1)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:f}"


# the dtype, the conversion and the value of missing keys; texts of numbers as onnxruntime has them
_CASTS: dict[str, tuple[Any, Any, Any]] = {
    "TO_FLOAT": (np.float32, float, 0.0), "TO_STRING": (object, _text, "0.f"), "TO_INT64": (np.int64, int, 0),
}  # fmt: skip
