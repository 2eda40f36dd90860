"""Operators that gather and scatter, sort and choose."""

from __future__ import annotations

from typing import Any

import numpy as np

import nnc
import nnc.numpy as nnp
from nnc.onnx.model import Node
from nnc.onnx.operators.table import operator
from nnc.onnx.values import integers, known

_REDUCTIONS = {"none": "set", "add": "add", "mul": "multiply", "max": "max", "min": "min"}


@operator("Gather")
def gather(node: Node, x: Any, places: Any) -> Any:
    axis = node.attributes.get("axis", 0)
    if isinstance(x, np.ndarray) and isinstance(places, np.ndarray):
        return np.take(x, places, axis=axis)
    return nnp.take(x, _from_front(places, x.shape[axis]), axis=axis)


def _from_front(places: Any, size: int) -> Any:
    """Counts negative indices from the front."""
    if isinstance(places, np.ndarray):
        return np.where(places < 0, places + size, places)
    return nnp.where(places < 0, places + np.asarray(size, places.dtype), places)


def _along(x: Any, places: Any, axis: int) -> tuple[Any, ...]:
    """Returns the index of elements whose place along one axis is given, and along the others is their own."""
    index = list(np.indices(places.shape, sparse=True))
    index[axis % len(x.shape)] = _from_front(nnp.asarray(places), x.shape[axis])
    return tuple(index)


@operator("GatherElements")
def gather_elements(node: Node, x: Any, places: Any) -> Any:
    return nnp.asarray(x)[_along(x, places, node.attributes.get("axis", 0))]


@operator("Scatter", "ScatterElements")
def scatter_elements(node: Node, x: Any, places: Any, updates: Any) -> Any:
    rows = nnp.asarray(x).at[_along(x, places, node.attributes.get("axis", 0))]
    return getattr(rows, _REDUCTIONS[node.attributes.get("reduction", "none")])(updates)


@operator("GatherND")
def gather_nd(node: Node, x: Any, places: Any) -> Any:
    def gather_rows(x: Any, places: Any) -> Any:
        return x[_last_axis_as_index(x, places)]

    for _ in range(node.attributes.get("batch_dims", 0)):
        gather_rows = nnc.vmap(gather_rows)
    return gather_rows(nnp.asarray(x), nnp.asarray(places))


@operator("ScatterND")
def scatter_nd(node: Node, x: Any, places: Any, updates: Any) -> Any:
    rows = nnp.asarray(x).at[_last_axis_as_index(x, nnp.asarray(places))]
    return getattr(rows, _REDUCTIONS[node.attributes.get("reduction", "none")])(updates)


def _last_axis_as_index(x: Any, places: Any) -> tuple[Any, ...]:
    return tuple(_from_front(places[..., axis], x.shape[axis]) for axis in range(places.shape[-1]))


@operator("TensorScatter")
def tensor_scatter(node: Node, past: Any, update: Any, begins: Any = None) -> Any:
    """Writes rows into a cache, each sequence's from its own place on."""
    axis = node.attributes.get("axis", -2) % len(past.shape)
    batch, size, count = past.shape[0], past.shape[axis], update.shape[axis]
    first = nnp.zeros((batch,), "int64") if begins is None else nnp.asarray(begins)
    places = nnp.expand_dims(first, 1) + np.arange(count)
    if node.attributes.get("mode", "linear") == "circular":
        places = places % size
    moved, rows = nnp.moveaxis(nnp.asarray(past), axis, 1), nnp.moveaxis(nnp.asarray(update), axis, 1)
    return nnp.moveaxis(moved.at[np.arange(batch)[:, None], places].set(rows), 1, axis)


@operator("NonZero")
def non_zero(node: Node, x: Any) -> Any:
    return np.array(np.nonzero(known(x, "the places of NonZero")), np.int64).reshape(len(x.shape), -1)


@operator("Compress")
def compress(node: Node, x: Any, condition: Any) -> Any:
    chosen = np.flatnonzero(known(condition, "the condition of Compress"))
    axis = node.attributes.get("axis")
    return nnp.take(x, chosen, axis=axis) if axis is not None else nnp.take(nnp.ravel(x), chosen)


@operator("Unique")
def unique(node: Node, x: Any) -> Any:
    values, axis = known(x, "the elements of Unique"), node.attributes.get("axis")
    found, first, inverse, counts = np.unique(values, True, True, True, axis=axis)
    if not node.attributes.get("sorted", 1):
        order = np.argsort(first)
        found, first, counts = np.take(found, order, axis=axis or 0), first[order], counts[order]
        inverse = np.argsort(order)[inverse]
    return found, first.astype(np.int64), inverse.reshape(-1).astype(np.int64), counts.astype(np.int64)


@operator("TopK")
def top_k_of_attributes(node: Node, x: Any) -> Any:
    return _top_k(node, x, node.attributes["k"])


@operator("TopK", since=10)
def top_k(node: Node, x: Any, k: Any) -> Any:
    return _top_k(node, x, integers(k, "the k of TopK")[0])


def _top_k(node: Node, x: Any, k: int) -> Any:
    """The first of equal elements comes first."""
    axis = node.attributes.get("axis", -1)
    is_largest = bool(node.attributes.get("largest", 1))
    order = nnp.argsort(nnp.asarray(x), axis=axis, stable=True, descending=is_largest)
    places = nnp.take(order, np.arange(k), axis=axis)
    return nnp.take_along_axis(nnp.asarray(x), places, axis=axis), nnp.astype(places, "int64")
