"""Pytrees of parameters as one vector of each dtype, which places along a named axis exchange."""

from __future__ import annotations

from math import prod
from typing import Any

from nnc import tree
from nnc.array.array import as_value
from nnc.commands.collective import all_gather_same
from nnc.commands.shape import concatenate, reshape, slice_axis
from nnc.graph import spec_of
from nnc.optim.arguments import is_trainable
from nnc.trace.core.axes import NamedAxis


def vectors_of(params: Any) -> dict[str, Any]:
    """Returns the trainable leaves of each dtype as one vector."""
    groups: dict[str, list[Any]] = {}
    for leaf in filter(is_trainable, tree.leaves(params)):
        x = as_value(leaf)
        groups.setdefault(str(x.spec.dtype), []).append(reshape(x, shape=(x.spec.size,)))
    return {name: concatenate(*parts, axis=0) if len(parts) > 1 else parts[0] for name, parts in groups.items()}


def with_vectors(params: Any, vectors: dict[str, Any]) -> Any:
    """Returns the tree with these vectors in place of the trainable leaves."""
    at, leaves = dict.fromkeys(vectors, 0), []
    for leaf in tree.leaves(params):
        if is_trainable(leaf):
            spec = as_value(leaf).spec
            name, count = str(spec.dtype), prod(spec.shape)
            part = slice_axis(vectors[name], 0, at[name], at[name] + count)
            at[name] += count
            leaf = reshape(part, shape=spec.shape)
        leaves.append(leaf)
    return tree.unflatten(tree.structure(params), leaves)


def whole(part: Any, size: int, axis: NamedAxis) -> Any:
    """Gathers the vector from the parts at all places."""
    rows = all_gather_same(part, axis.index, **axis.params)
    return slice_axis(reshape(rows, shape=(spec_of(rows).size,)), 0, 0, size)
