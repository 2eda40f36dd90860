"""The domains of classical machine learning and of training."""

from __future__ import annotations

from typing import Any

import numpy as np

import nnc.numpy as nnp
from nnc.onnx.model import Node
from nnc.onnx.operators.table import operator
from nnc.onnx.values import check_known, known

ML, TRAINING = "ai.onnx.ml", "ai.onnx.preview.training"


# -- classical ---------------------------------------------------------------------------------------------------------


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


@operator("ArrayFeatureExtractor", domain=ML)
def feature_extractor(node: Node, x: Any, places: Any) -> Any:
    found = nnp.take(x, nnp.ravel(places), axis=-1)
    return nnp.reshape(found, (1, -1)) if len(x.shape) == 1 else found


@operator("Binarizer", domain=ML)
def binarizer(node: Node, x: Any) -> Any:
    return nnp.astype(x > np.asarray(node.attributes.get("threshold", 0.0), x.dtype), x.dtype)


@operator("TreeEnsemble", domain=ML)
def tree_ensemble(node: Node, x: Any) -> Any:
    """Walks each tree, row by row."""
    get: Any = node.attributes
    modes = np.asarray(get["nodes_modes"])
    splits, features = np.asarray(get["nodes_splits"]), np.asarray(get["nodes_featureids"])
    true, false = np.asarray(get["nodes_truenodeids"]), np.asarray(get["nodes_falsenodeids"])
    true_leaf, false_leaf = np.asarray(get["nodes_trueleafs"]), np.asarray(get["nodes_falseleafs"])
    targets, weights = np.asarray(get["leaf_targetids"]), np.asarray(get["leaf_weights"])
    missing = np.asarray(get.get("nodes_missing_value_tracks_true", np.zeros(len(modes))), bool)
    members = _members(get.get("membership_values"), modes)
    values = known(x, "the rows of TreeEnsemble")
    check_known(8 * len(values) * get["n_targets"], "the sums of TreeEnsemble")
    sums: list[list[list[Any]]] = [[[] for _ in range(get["n_targets"])] for _ in values]
    for row, numbers in enumerate(values):
        for at in get["tree_roots"]:
            for _ in modes:
                goes = _goes(modes[at], numbers[features[at]], splits[at], members.get(at), missing[at])
                is_leaf = true_leaf[at] if goes else false_leaf[at]
                at = true[at] if goes else false[at]
                if is_leaf:
                    break
            else:
                raise ValueError("a tree of TreeEnsemble leads back to itself")
            sums[row][targets[at]].append(weights[at])
    joins: dict[int, Any] = {
        0: lambda v: np.mean(v) if v else 0,
        1: lambda v: np.sum(v),
        2: lambda v: min(v, default=0),
        3: lambda v: max(v, default=0),
    }
    join = joins[get.get("aggregate_function", 1)]
    return np.array([[join(part) for part in row] for row in sums], values.dtype)


def _members(values: Any, modes: Any) -> dict[int, set[float]]:
    """Returns the sets of nodes that ask for membership; NaN ends each."""
    if values is None:
        return {}
    sets: list[set[float]] = [set()]
    for value in np.asarray(values).ravel():
        if np.isnan(value):
            sets.append(set())
        else:
            sets[-1].add(float(value))
    return dict(zip(np.flatnonzero(modes == 6).tolist(), sets, strict=False))


def _goes(mode: int, value: Any, split: Any, members: set[float] | None, tracks_true: bool) -> bool:
    if np.isnan(value):
        return tracks_true
    if mode == 6:
        return float(value) in (members or set())
    return bool([value <= split, value < split, value >= split, value > split, value == split, value != split][mode])


# -- training ----------------------------------------------------------------------------------------------------------


def _tensors(operands: Any, states: int) -> Any:
    """Groups operands: all parameters, then all gradients, then all of each state."""
    count = len(operands) // (2 + states)
    return zip(*(operands[part * count : (part + 1) * count] for part in range(2 + states)), strict=True)


def _ordered(results: list[tuple[Any, ...]]) -> tuple[Any, ...]:
    return tuple(value for part in zip(*results, strict=True) for value in part)


@operator("Adagrad", domain=TRAINING)
def adagrad(node: Node, rate: Any, step: Any, *operands: Any) -> Any:
    get = node.attributes.get
    rate = rate / (1 + nnp.astype(step, rate.dtype) * np.float32(get("decay_factor", 0.0)))
    results = []
    for x, gradient, total in _tensors(operands, 1):
        gradient = np.asarray(get("norm_coefficient", 0.0), x.dtype) * x + gradient
        total = total + nnp.square(gradient)
        results.append((x - rate * gradient / (nnp.sqrt(total) + np.asarray(get("epsilon", 0.0), x.dtype)), total))
    return _ordered(results)


@operator("Momentum", domain=TRAINING)
def momentum(node: Node, rate: Any, step: Any, *operands: Any) -> Any:
    get = node.attributes
    alpha, is_nesterov, results = np.float32(get["alpha"]), get["mode"] == "nesterov", []
    beta = nnp.where(nnp.asarray(step) > 0, np.float32(get["beta"]), np.float32(1))
    for x, gradient, velocity in _tensors(operands, 1):
        gradient = np.float32(get["norm_coefficient"]) * x + gradient
        velocity = alpha * velocity + beta * gradient
        results.append((x - rate * (gradient + alpha * velocity if is_nesterov else velocity), velocity))
    return _ordered(results)


@operator("Adam", domain=TRAINING)
def adam(node: Node, rate: Any, step: Any, *operands: Any) -> Any:
    get = node.attributes.get
    alpha, beta, results = np.float32(get("alpha", 0.9)), np.float32(get("beta", 0.999)), []
    count = nnp.astype(step, "float32")
    corrected = rate * nnp.sqrt(1 - nnp.power(beta, count)) / (1 - nnp.power(alpha, count))
    rate = nnp.where(nnp.asarray(step) > 0, corrected, rate)
    for x, gradient, mean, square in _tensors(operands, 2):
        gradient = np.float32(get("norm_coefficient", 0.0)) * x + gradient
        mean, square = alpha * mean + (1 - alpha) * gradient, beta * square + (1 - beta) * nnp.square(gradient)
        x = x - rate * mean / (nnp.sqrt(square) + np.float32(get("epsilon", 1e-6)))
        results.append(((1 - np.float32(get("norm_coefficient_post", 0.0))) * x, mean, square))
    return _ordered(results)
