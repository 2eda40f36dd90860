"""Sequences, which are lists of values, and values that may be absent."""

from __future__ import annotations

from typing import Any

import numpy as np

import nnc.numpy as nnp
from nnc.onnx.model import Node
from nnc.onnx.operators.table import operator
from nnc.onnx.values import integers

Sequence = list[Any]


@operator("SequenceConstruct")
def construct(node: Node, *parts: Any) -> Any:
    return list(parts)


@operator("SequenceEmpty")
def empty(node: Node) -> Any:
    return []


@operator("SequenceAt")
def at(node: Node, sequence: Sequence, place: Any) -> Any:
    return sequence[integers(place, "the place of SequenceAt")[0]]


@operator("SequenceLength")
def length(node: Node, sequence: Sequence) -> Any:
    return np.asarray(len(sequence), np.int64)


@operator("SequenceInsert")
def insert(node: Node, sequence: Sequence, value: Any, place: Any = None) -> Any:
    index = integers(place, "the place of SequenceInsert")[0] if place is not None else len(sequence)
    if not -len(sequence) <= index <= len(sequence):
        raise IndexError(f"the place {index} in a sequence of {len(sequence)}")
    return (
        [*sequence[:index], value, *sequence[index:]]
        if index >= 0
        else [*sequence[: len(sequence) + index], value, *sequence[index:]]
    )


@operator("SequenceErase")
def erase(node: Node, sequence: Sequence, place: Any = None) -> Any:
    index = integers(place, "the place of SequenceErase")[0] if place is not None else -1
    kept = list(sequence)
    del kept[index]
    return kept


@operator("SequenceMap")
def map_body(node: Node, sequence: Sequence, *others: Any) -> Any:
    body = node.attributes["body"]
    rounds = [
        body(value, *(other[index] if isinstance(other, list) else other for other in others))
        for index, value in enumerate(sequence)
    ]
    return tuple([found[output] for found in rounds] for output in range(len(body.graph.outputs)))


@operator("ConcatFromSequence")
def concat(node: Node, sequence: Sequence) -> Any:
    join = nnp.stack if node.attributes.get("new_axis", 0) else nnp.concatenate
    return join([nnp.asarray(part) for part in sequence], axis=node.attributes["axis"])


@operator("SplitToSequence")
def split(node: Node, x: Any, sizes: Any = None) -> Any:
    axis = node.attributes.get("axis", 0)
    whole = x.shape[axis]
    if sizes is None:
        parts = nnp.split(x, list(range(1, whole)), axis=axis)
        return list(parts) if node.attributes.get("keepdims", 1) else [nnp.squeeze(part, axis=axis) for part in parts]
    chosen = integers(sizes, "the sizes of SplitToSequence")
    ends = np.cumsum(chosen)[:-1].tolist() if len(sizes.shape) else list(range(chosen[0], whole, chosen[0]))
    return list(nnp.split(x, ends, axis=axis))


@operator("Optional", "OptionalGetElement")
def optional(node: Node, value: Any = None) -> Any:
    return value


@operator("OptionalHasElement")
def has_element(node: Node, value: Any = None) -> Any:
    return np.asarray(value is not None)
