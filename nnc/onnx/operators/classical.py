"""The domain of classical machine learning: encoders, scalers, linear models, support vectors. Trees: trees.py."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np

import nnc
import nnc.nn as nn
import nnc.numpy as nnp
from nnc.onnx.model import Node
from nnc.onnx.operators.table import operator
from nnc.onnx.values import known

ML = "ai.onnx.ml"
SMALL = 1e-7  # a score that SOFTMAX_ZERO takes as none; probabilities keep that far from 0 and 1


def as_floats(x: Any) -> Any:
    """Returns an operand as an array of floats: float64 stays, all else becomes float32."""
    return nnp.asarray(x) if np.dtype(x.dtype) in (np.float32, np.float64) else nnp.astype(x, "float32")


def _softmax_zero(x: Any) -> Any:
    """A softmax in which scores of 0 get none, but the share that the others leave."""
    largest = nnp.max(x, axis=-1, keepdims=True)
    parts = nnp.where(nnp.abs(x) > SMALL, nnp.exp(x - largest), x * nnp.exp(-largest))
    total = nnp.sum(parts, axis=-1, keepdims=True)
    return nnp.where(total == 0, np.asarray(0.5, x.dtype), parts / nnp.where(total == 0, nnp.ones_like(total), total))


_TRANSFORMS: dict[str, Any] = {
    "NONE": lambda x: x, "LOGISTIC": nn.sigmoid, "SOFTMAX": lambda x: nn.softmax(x, axis=-1), "SOFTMAX_ZERO": _softmax_zero,
    "PROBIT": lambda x: np.asarray(np.sqrt(2), x.dtype) * nnp.erfinv(2 * x - 1),
}  # fmt: skip


def transformed(node: Node, scores: Any) -> Any:
    """Applies the node's `post_transform` to scores."""
    return _TRANSFORMS[node.attributes.get("post_transform", "NONE")](scores)


def labels_of(index: Any, labels: Sequence[Any]) -> Any:
    """Returns the labels, numbers or strings, at some places."""
    if isinstance(labels[-1], str):
        return np.array(labels, object)[known(index, "the places of labels")]
    return nnp.asarray(np.array(labels, np.int64))[index]


def _classes(node: Node, ints: str = "classlabels_ints") -> list[Any]:
    found: list[Any] = node.attributes.get(ints) or node.attributes.get("classlabels_strings") or []
    return found


# -- encoders ----------------------------------------------------------------------------------------------------------


def _first_of(node: Node, names: list[str]) -> Any:
    """Returns the first of the attributes that is there."""
    found = [node.attributes[name] for name in names if name in node.attributes]
    return found[0] if found else None


@operator("LabelEncoder", domain=ML)
def label_encoder(node: Node, x: Any) -> Any:
    kinds = ("tensor", "strings", "int64s", "floats")
    keys, values = (_first_of(node, [f"{what}_{kind}" for kind in kinds]) for what in ("keys", "values"))
    if keys is None:  # version 1: between strings and their places
        words = node.attributes["classes_strings"]
        keys, values = (words, range(len(words))) if x.dtype == object else (range(len(words)), words)
    defaults = {"string": "_Unused", "int64": -1, "float": -0.0}
    first = next(iter(values))
    kind = "string" if isinstance(first, str) else "float" if isinstance(first, (float, np.floating)) else "int64"
    default = node.attributes.get("default_tensor", node.attributes.get(f"default_{kind}", defaults[kind]))
    default = default.reshape(-1)[0] if isinstance(default, np.ndarray) else default
    table = dict(zip((_hashable(key) for key in keys), values, strict=True))
    found = [table.get(_hashable(value), default) for value in known(x, "the labels of LabelEncoder").ravel()]
    dtypes = {"string": object, "float": np.float32, "int64": np.int64}
    dtype = values.dtype if isinstance(values, np.ndarray) else dtypes[kind]
    return np.array(found, dtype).reshape(x.shape)


def _hashable(value: Any) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    return "NaN" if isinstance(value, float) and value != value else value


@operator("CategoryMapper", domain=ML)
def category_mapper(node: Node, x: Any) -> Any:
    """Strings become their numbers, or numbers their strings."""
    get = node.attributes.get
    words, numbers = get("cats_strings", []), get("cats_int64s", [])
    values = known(x, "the categories of CategoryMapper")
    if values.dtype == object:
        table: dict[Any, Any] = dict(zip(words, numbers, strict=True))
        found = [table.get(str(value), get("default_int64", -1)) for value in values.ravel()]
        return np.array(found, np.int64).reshape(values.shape)
    table = dict(zip(numbers, words, strict=True))
    return np.array([table.get(int(v), get("default_string", "_Unused")) for v in values.ravel()], object).reshape(
        values.shape
    )


@operator("OneHotEncoder", domain=ML)
def one_hot_encoder(node: Node, x: Any) -> Any:
    strings = node.attributes.get("cats_strings")
    if strings:
        values = known(x, "the categories of OneHotEncoder")
        found = (values[..., None] == np.array(strings, object)).astype(np.float32)
    else:
        kinds = np.array(node.attributes["cats_int64s"], np.int64)
        found = nnp.astype(nnp.expand_dims(nnp.astype(x, "int64"), -1) == kinds, "float32")
    if not node.attributes.get("zeros", 1) and not known(
        nnp.all(nnp.any(found > 0, axis=-1)), "whether all are categories"
    ):
        raise ValueError("an element is none of the categories")
    return found


@operator("ArrayFeatureExtractor", domain=ML)
def feature_extractor(node: Node, x: Any, places: Any) -> Any:
    found = nnp.take(x, nnp.ravel(places), axis=-1)
    return nnp.reshape(found, (1, -1)) if len(x.shape) == 1 else found


@operator("FeatureVectorizer", domain=ML)
def feature_vectorizer(node: Node, *operands: Any) -> Any:
    """Joins columns; each operand is cut or filled up with 0 to its number of them."""
    parts = []
    for x, width in zip(operands, node.attributes["inputdimensions"], strict=True):
        rows = nnp.reshape(x, (-1, 1)) if len(x.shape) == 1 else nnp.asarray(x)
        rows = rows[:, :width]
        parts.append(nnp.pad(rows, ((0, 0), (0, width - rows.shape[1]))))
    return nnp.concatenate(parts, axis=1)


# -- numbers -----------------------------------------------------------------------------------------------------------


@operator("Binarizer", domain=ML)
def binarizer(node: Node, x: Any) -> Any:
    return nnp.astype(x > np.asarray(node.attributes.get("threshold", 0.0), x.dtype), x.dtype)


@operator("Scaler", domain=ML)
def scaler(node: Node, x: Any) -> Any:
    wide = as_floats(x)
    offset, scale = (
        np.asarray(node.attributes.get(name, [value]), wide.dtype) for name, value in (("offset", 0), ("scale", 1))
    )
    return (wide - offset) * scale


@operator("Normalizer", domain=ML)
def normalizer(node: Node, x: Any) -> Any:
    wide, how = as_floats(x), node.attributes.get("norm", "MAX")
    sizes: dict[str, Any] = {
        "MAX": lambda v: nnp.max(nnp.abs(v), axis=-1, keepdims=True),
        "L1": lambda v: nnp.sum(nnp.abs(v), axis=-1, keepdims=True),
        "L2": lambda v: nnp.linalg.norm(v, axis=-1, keepdims=True),
    }
    size = sizes[how](wide)
    return wide / nnp.where(size == 0, nnp.ones_like(size), size)


@operator("Imputer", domain=ML)
def imputer(node: Node, x: Any) -> Any:
    """Replaces a number, mostly NaN, by others: one for all columns or one for each."""
    get = node.attributes.get
    kind = "floats" if get("imputed_value_floats") else "int64s"
    values = np.asarray(get(f"imputed_value_{kind}", []), x.dtype)
    replaced = get("replaced_value_float", 0.0) if kind == "floats" else get("replaced_value_int64", 0)
    if values.size not in (1, x.shape[-1]):
        raise ValueError(f"it imputes {values.size} values, and the rows have {x.shape[-1]}")
    is_hole = nnp.isnan(x) if replaced != replaced else x == np.asarray(replaced, x.dtype)
    return nnp.where(is_hole, values, x)


# -- linear models -----------------------------------------------------------------------------------------------------


@operator("LinearRegressor", domain=ML)
def linear_regressor(node: Node, x: Any) -> Any:
    wide, targets = as_floats(x), node.attributes.get("targets", 1)
    weights = np.asarray(node.attributes["coefficients"], wide.dtype).reshape(targets, -1)
    scores = wide @ nnp.asarray(weights.T)
    intercepts = node.attributes.get("intercepts")
    return transformed(node, scores if not intercepts else scores + np.asarray(intercepts, wide.dtype))


@operator("LinearClassifier", domain=ML)
def linear_classifier(node: Node, x: Any) -> Any:
    """The score of one class alone is also that of the other, with the other sign, where two have names."""
    wide, classes = as_floats(x), _classes(node)
    weights = np.asarray(node.attributes["coefficients"], wide.dtype).reshape(-1, x.shape[-1])
    scores = wide @ nnp.asarray(weights.T)
    if node.attributes.get("intercepts"):
        scores = scores + np.asarray(node.attributes["intercepts"], wide.dtype)
    if scores.shape[1] == 1 and len(classes) == 2:
        scores = nnp.concatenate([-scores, scores], axis=1)
    scores = nnp.astype(transformed(node, scores), "float32")
    if scores.shape[1] > 1:
        return labels_of(nnp.argmax(scores, axis=1), classes), scores
    limit = np.float32(0 if node.attributes.get("post_transform", "NONE") == "NONE" else 0.5)
    other = "" if classes and isinstance(classes[0], str) else 0
    return labels_of(nnp.astype(scores[:, 0] >= limit, "int64"), [other, *(classes[:1] or [1])]), scores


# -- support vectors ---------------------------------------------------------------------------------------------------


def _kernel(node: Node, x: Any, vectors: Any, kind: str) -> Any:
    """Returns the kernel of each row with each vector."""
    gamma, coef0, degree = (np.asarray(v, x.dtype) for v in (node.attributes.get("kernel_params") or [0.0, 0.0, 0.0]))
    other = nnp.asarray(np.asarray(vectors, x.dtype))
    if kind == "RBF":
        squares = nnp.sum(nnp.square(nnp.expand_dims(x, 1) - other), axis=-1)
        return nnp.exp(-gamma * squares)
    products = x @ other.T
    if kind == "POLY":
        return nnp.power(products * gamma + coef0, degree)
    return nnp.tanh(products * gamma + coef0) if kind == "SIGMOID" else products


@operator("SVMRegressor", domain=ML)
def svm_regressor(node: Node, x: Any) -> Any:
    get, wide = node.attributes.get, as_floats(x)
    count = get("n_supports", 0)
    weights = np.asarray(node.attributes["coefficients"], wide.dtype)
    if count:
        vectors = np.asarray(get("support_vectors")).reshape(count, -1)
        scores = _kernel(node, wide, vectors, get("kernel_type", "LINEAR")) @ nnp.asarray(weights.reshape(count, 1))
    else:
        scores = wide @ nnp.asarray(weights.reshape(-1, 1))
    scores = scores + np.asarray(node.attributes["rho"][0], wide.dtype)
    if get("one_class", 0):
        scores = nnp.where(scores > 0, nnp.ones_like(scores), -nnp.ones_like(scores))
    return transformed(node, scores)


@operator("SVMClassifier", domain=ML)
def svm_classifier(node: Node, x: Any) -> Any:
    """Votes of pairs of classes (libsvm), their probabilities (`prob_a`), or linear scores of each class."""
    get, wide, classes = node.attributes.get, as_floats(x), _classes(node)
    counts, rho = get("vectors_per_class") or [], np.asarray(get("rho"), wide.dtype)
    weights, count = np.asarray(get("coefficients"), wide.dtype), max(len(classes), 1)
    if not sum(counts):
        scores = wide @ nnp.asarray(weights.reshape(count, -1).T) + rho[0]
        index, most = nnp.argmax(scores, axis=1), nnp.max(scores, axis=1)
        return _svm_result(node, scores, index, most, weights, False)
    pairs = _pair_scores(node, wide, weights, rho)
    votes = [nnp.zeros(wide.shape[:1], "int32") for _ in counts]
    for (i, j), score in zip(combinations(range(len(counts)), 2), pairs, strict=True):
        wins = nnp.astype(score > 0, "int32")
        votes[i], votes[j] = votes[i] + wins, votes[j] + 1 - wins
    total = nnp.stack(votes, axis=1)
    index, most = nnp.argmax(total, axis=1), nnp.max(total, axis=1)
    scores, has_probabilities = nnp.stack(pairs, axis=1), bool(get("prob_a"))
    if has_probabilities:
        scores = _probabilities(scores, get("prob_a"), get("prob_b"), len(counts))
    return _svm_result(node, scores, index, most, weights, has_probabilities)


def _pair_scores(node: Node, x: Any, weights: Any, rho: Any) -> list[Any]:
    """Returns the score of each pair of classes."""
    counts = node.attributes["vectors_per_class"]
    ends = np.cumsum([0, *counts])
    coefficients = weights.reshape(-1, ends[-1])
    vectors = np.asarray(node.attributes["support_vectors"]).reshape(ends[-1], -1)
    kernel = _kernel(node, x, vectors, node.attributes.get("kernel_type", "LINEAR"))
    found = []
    for place, (i, j) in enumerate(combinations(range(len(counts)), 2)):
        own, other = slice(ends[i], ends[i + 1]), slice(ends[j], ends[j + 1])
        score = kernel[:, own] @ nnp.asarray(coefficients[j - 1, own]) + kernel[:, other] @ nnp.asarray(
            coefficients[i, other]
        )
        found.append(score + rho[place])
    return found


def _probabilities(scores: Any, a: Any, b: Any, count: int) -> Any:
    """Wu, Lin and Weng, Probability estimates for multi-class classification by pairwise coupling (2004): their second method."""
    dtype = scores.dtype
    fits = 1 - nn.sigmoid(scores * np.asarray(a, dtype) + np.asarray(b, dtype))
    fits = nnp.clip(fits, np.asarray(SMALL, dtype), np.asarray(1 - SMALL, dtype))
    rates = [[nnp.zeros_like(fits[:, 0])] * count for _ in range(count)]
    for place, (i, j) in enumerate(combinations(range(count), 2)):
        rates[i][j], rates[j][i] = fits[:, place], 1 - fits[:, place]
    r = nnp.stack([nnp.stack(row, axis=-1) for row in rates], axis=-2)  # (rows, classes, classes)
    same = np.eye(count, dtype=bool)
    q = nnp.where(same, nnp.expand_dims(nnp.sum(nnp.square(r), axis=-2), -1), -r * nnp.swapaxes(r, -1, -2))

    def step(_: Any, p: Any) -> Any:
        qp = nnp.einsum("rij,rj->ri", q, p)
        pqp = nnp.sum(p * qp, axis=-1)
        is_done = nnp.max(nnp.abs(qp - nnp.expand_dims(pqp, -1)), axis=-1, keepdims=True) < 0.005 / count
        new = p
        for t in range(count):
            difference = (pqp - qp[:, t]) / q[:, t, t]
            new = new + nnp.expand_dims(difference, -1) * np.eye(count, dtype=dtype)[t]
            pqp = (pqp + difference * (difference * q[:, t, t] + 2 * qp[:, t])) / nnp.square(1 + difference)
            less = nnp.expand_dims(1 + difference, -1)
            qp, new = (qp + nnp.expand_dims(difference, -1) * q[:, t]) / less, new / less
        return nnp.where(is_done, p, new)

    start = nnp.full((scores.shape[0], count), np.asarray(1 / count, dtype))
    return nnc.fori_loop(0, max(100, count), step, start)


def _svm_result(node: Node, scores: Any, index: Any, most: Any, weights: Any, has_probabilities: bool) -> Any:
    """Returns labels and scores. With a single `rho`, there are two classes, and one score that decides."""
    classes, is_positive = _classes(node), bool(weights.min() >= 0)
    if len(node.attributes["rho"]) == 1 and len(classes) != 2:
        labels = labels_of(nnp.astype(most > 0, "int64"), [0, 1])
    else:
        if len(node.attributes["rho"]) == 1 and not has_probabilities and is_positive:
            index = nnp.where(most >= 0.5, nnp.ones_like(index), index)
        labels = labels_of(index, classes or list(range(scores.shape[1])))
    if scores.shape[1] > 1:
        return labels, transformed(node, scores)
    if node.attributes.get("post_transform", "NONE") == "PROBIT" or len(classes) != 2:
        return labels, transformed(node, scores)
    return labels, transformed(node, nnp.concatenate([-scores, scores], axis=1))
