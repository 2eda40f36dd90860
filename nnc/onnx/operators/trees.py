"""Ensembles of decision trees: all rows walk down all trees at once, a step of a loop for each level."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

import nnc
import nnc.numpy as nnp
from nnc.onnx.model import Node
from nnc.onnx.operators.classical import ML, as_floats, labels_of, transformed
from nnc.onnx.operators.table import operator
from nnc.onnx.values import check_known

NDArray = np.ndarray[Any, Any]
_MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "BRANCH_MEMBER", "LEAF")
_MEMBER, _LEAF = 6, 7
_COMPARISONS = (nnp.less_equal, nnp.less, nnp.greater_equal, nnp.greater, nnp.equal, nnp.not_equal)


class Trees(NamedTuple):
    """The nodes of all trees, and the weights that rows get where they end. Leaves lead to themselves.

    `members` has a row of numbers for each node, filled up with NaN; `weights` and `has_weight` are (nodes, targets).
    """

    modes: NDArray
    features: NDArray
    splits: NDArray
    true: NDArray
    false: NDArray
    tracks_true: NDArray
    members: NDArray | None
    roots: NDArray
    weights: NDArray
    has_weight: NDArray

    def levels(self) -> Iterator[NDArray]:
        """Yields the nodes that rows may be at after 0, 1, … steps.

        Raises:
            ValueError: a tree leads back to itself.
        """
        level = np.unique(self.roots)
        for _ in range(self.modes.size + 1):
            yield level
            level = level[self.modes[level] != _LEAF]
            if not level.size:
                return
            level = np.unique([self.true[level], self.false[level]])
        raise ValueError("a tree leads back to itself")


def _walk(trees: Trees, x: Any) -> Any:
    """Returns the leaf of each row in each tree, (rows, trees)."""
    kinds = [mode for mode in range(_LEAF) if (trees.modes == mode).any()]
    fixed = trees._replace(splits=trees.splits.astype(x.dtype))
    start = np.broadcast_to(trees.roots.astype(np.int32), (x.shape[0], trees.roots.size))

    def step(_: Any, at: Any) -> Any:
        value = nnp.take_along_axis(x, nnp.asarray(fixed.features)[at], axis=1)
        split, mode = nnp.asarray(fixed.splits)[at], nnp.asarray(fixed.modes)[at]
        goes: Any = np.zeros((), bool)
        for kind in kinds:
            if kind == _MEMBER and fixed.members is not None:
                members = nnp.asarray(fixed.members.astype(x.dtype))[at]
                holds = nnp.any(nnp.expand_dims(value, -1) == members, axis=-1)
            else:
                holds = _COMPARISONS[kind](value, split)
            goes = nnp.where(mode == np.int32(kind), holds, goes) if len(kinds) > 1 else holds
        if fixed.tracks_true.any():
            goes = nnp.where(nnp.isnan(value), nnp.asarray(fixed.tracks_true)[at], goes)
        return nnp.where(goes, nnp.asarray(fixed.true)[at], nnp.asarray(fixed.false)[at])

    return nnc.fori_loop(0, sum(1 for _ in trees.levels()) - 1, step, nnp.asarray(start))


def _scores(trees: Trees, x: Any, join: str) -> Any:
    """Joins the weights of the leaves that each row reaches, (rows, targets)."""
    leaves = _walk(trees, x)
    weights = nnp.asarray(trees.weights.astype(x.dtype))[leaves]  # (rows, trees, targets)
    if join in ("MIN", "MAX"):
        has = nnp.asarray(trees.has_weight)[leaves]
        none = np.asarray(np.inf if join == "MIN" else -np.inf, x.dtype)
        function = nnp.min if join == "MIN" else nnp.max
        found = function(nnp.where(has, weights, none), axis=1, initial=none)
        return nnp.where(nnp.any(has, axis=1), found, np.zeros((), x.dtype))
    total = nnp.sum(weights, axis=1)
    return total / np.asarray(trees.roots.size, x.dtype) if join == "AVERAGE" else total


def _by_ids(node: Node, what: str, targets: int) -> Trees:
    """Reads trees whose nodes have numbers within their tree; `what` names the attributes of weights: target or class."""
    get: Any = node.attributes
    trees, numbers = get["nodes_treeids"], get["nodes_nodeids"]
    place = {key: index for index, key in enumerate(zip(trees, numbers, strict=True))}
    modes = np.array([_MODES.index(mode) for mode in get["nodes_modes"]], np.int32)
    own = np.arange(modes.size, dtype=np.int32)

    def children(name: str) -> NDArray:
        found = zip(trees, get[name], own.tolist(), modes.tolist(), strict=True)
        return np.array([i if mode == _LEAF else place[tree, child] for tree, child, i, mode in found], np.int32)

    true, false = children("nodes_truenodeids"), children("nodes_falsenodeids")
    inner = modes != _LEAF
    is_child = np.isin(own, [true[inner], false[inner]])
    roots = [index for index in range(modes.size) if not is_child[index]]
    if len(roots) != len(set(trees)):
        raise ValueError(f"{len(set(trees))} trees have {len(roots)} roots")
    check_known(8 * modes.size * targets, f"the weights of {node.operator}")
    weights, has = np.zeros((modes.size, targets)), np.zeros((modes.size, targets), bool)
    held = get.get(f"{what}_weights_as_tensor", get.get(f"{what}_weights"))
    for tree, number, target, weight in zip(
        get[f"{what}_treeids"],
        get[f"{what}_nodeids"],
        get[f"{what}_ids"],
        np.asarray(held).ravel().tolist(),
        strict=True,
    ):
        weights[place[tree, number], target] += weight
        has[place[tree, number], target] = True
    splits = np.asarray(get.get("nodes_values_as_tensor", get.get("nodes_values")), np.float64)
    tracks = np.asarray(get.get("nodes_missing_value_tracks_true") or np.zeros(modes.size), bool)
    features = np.asarray(get["nodes_featureids"], np.int32)
    found = Trees(modes, features, splits, true, false, tracks & inner, None, np.asarray(roots), weights, has)
    if sum(level.size for level in found.levels()) != modes.size:
        raise ValueError("a tree leads back to itself, or has nodes that none leads to")
    return found


def _with_base(node: Node, scores: Any) -> Any:
    base = node.attributes.get("base_values_as_tensor", node.attributes.get("base_values"))
    return scores if base is None or not np.size(base) else scores + np.asarray(base, scores.dtype).reshape(1, -1)


@operator("TreeEnsembleRegressor", domain=ML)
def regressor(node: Node, x: Any) -> Any:
    x, targets = as_floats(x), node.attributes.get("n_targets", 1)
    scores = _scores(_by_ids(node, "target", targets), x, node.attributes.get("aggregate_function", "SUM"))
    return transformed(node, nnp.astype(_with_base(node, scores), "float32"))


@operator("TreeEnsembleClassifier", domain=ML)
def classifier(node: Node, x: Any) -> Any:
    """The weights of two classes may be those of one alone; its score decides then."""
    x, ids = as_floats(x), node.attributes["class_ids"]
    classes = node.attributes.get("classlabels_int64s") or node.attributes.get("classlabels_strings")
    if not classes:
        raise ValueError("it names no classes")
    count = len(classes)
    targets = max(count, *(number + 1 for number in ids))
    scores = _scores(_by_ids(node, "class", targets), x, "SUM")
    scores = nnp.astype(_with_base(node, scores), "float32")
    if len(set(ids)) == 1 and count <= 2:
        second = scores[:, :1]
        is_plain = node.attributes.get("post_transform", "NONE") in ("NONE", "PROBIT")
        scores = nnp.concatenate([1 - second if is_plain else -second, second], axis=1)
    scores = transformed(node, scores)
    return labels_of(nnp.argmax(scores, axis=1), [0, *classes] if count == 1 else classes), scores


@operator("TreeEnsemble", domain=ML)
def ensemble(node: Node, x: Any) -> Any:
    """Version 5: leaves have numbers of their own."""
    get: Any = node.attributes
    modes, targets = np.asarray(get["nodes_modes"]).astype(np.int32), get.get("n_targets", 1)
    inner, leaves = modes.size, len(get["leaf_targetids"])
    own = np.arange(inner, inner + leaves)

    def children(ids: str, are_leaves: str) -> NDArray:
        found = np.where(np.asarray(get[are_leaves], bool), np.asarray(get[ids]) + inner, get[ids])
        if found.size and not 0 <= found.min() <= found.max() < inner + leaves:
            raise ValueError(f"{ids} names a node that is not there")
        return np.concatenate([found, own]).astype(np.int32)

    def filled(values: Any, fill: Any) -> NDArray:
        return np.concatenate([np.asarray(values), np.full(leaves, fill)])

    tracks = get.get("nodes_missing_value_tracks_true") or np.zeros(inner)
    check_known(8 * (inner + leaves) * targets, "the weights of TreeEnsemble")
    weights, has = np.zeros((inner + leaves, targets)), np.zeros((inner + leaves, targets), bool)
    weights[own, get["leaf_targetids"]] = np.asarray(get["leaf_weights"], np.float64)
    has[own, get["leaf_targetids"]] = True
    trees = Trees(
        filled(modes, _LEAF).astype(np.int32), filled(get["nodes_featureids"], 0).astype(np.int32),
        filled(np.asarray(get["nodes_splits"], np.float64), 0.0), children("nodes_truenodeids", "nodes_trueleafs"),
        children("nodes_falsenodeids", "nodes_falseleafs"), filled(np.asarray(tracks, bool), False).astype(bool),
        _members(get.get("membership_values"), filled(modes, _LEAF)), np.asarray(get["tree_roots"]), weights, has,
    )  # fmt: skip
    if not 0 <= trees.roots.min() <= trees.roots.max() < inner:
        raise ValueError("tree_roots names a node that is not there")
    x = as_floats(x)
    scores = _scores(trees, x, ("AVERAGE", "SUM", "MIN", "MAX")[get.get("aggregate_function", 1)])
    kind = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")[get.get("post_transform", 0)]
    return transformed(node._replace(attributes={"post_transform": kind}), scores)


def _members(values: Any, modes: NDArray) -> NDArray | None:
    """Returns a row of numbers for each node that asks for membership; NaN ends each set in the file."""
    if values is None:
        return None
    flat = np.asarray(values, np.float64).ravel()
    sets = np.split(flat, np.flatnonzero(np.isnan(flat)) + 1)
    widest = max(map(len, sets), default=1)
    check_known(8 * modes.size * widest, "the sets of TreeEnsemble")
    found = np.full((modes.size, max(widest, 1)), np.nan)
    for row, members in zip(np.flatnonzero(modes == _MEMBER), sets, strict=False):
        found[row, : len(members)] = members
    return found
