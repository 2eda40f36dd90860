"""Values that are split over the places along a named axis, in arguments and results: `Sharded` marks vectors, and the property
`split_weights` of modules their weights (nnc.nn.parallel).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nnc import tree
from nnc.array.array import as_value
from nnc.commands.rules import zeros
from nnc.commands.shape import concatenate
from nnc.graph import spec_of
from nnc.graph.rules import Value


@dataclass(frozen=True)
class Sharded:
    """A pytree whose vectors are split over the places along a named axis; its numbers are not.

    Args:
        size: elements of each whole vector.
    """

    state: Any
    size: int = field(metadata={"static": True})
    axis_name: str = field(metadata={"static": True})


def sharded_sizes(value: Any, axis_name: str) -> list[int]:
    """For each leaf of a pytree the size of the vectors of the `Sharded` over this axis that holds it; 0 where none does."""
    found: list[int] = []
    for leaf in tree.flatten(value, lambda x: isinstance(x, Sharded))[0]:
        is_own = isinstance(leaf, Sharded) and leaf.axis_name == axis_name
        found += [leaf.size if is_own else 0] * (len(tree.leaves(leaf)) if isinstance(leaf, Sharded) else 1)
    return found


def part_size(size: int, places: int) -> int:
    """Elements of a place's part of a vector; the last parts are filled up with zeros."""
    return -(-size // places)


def padded(x: Any, places: int) -> Value:
    """Returns a vector with zeros behind it, so that it has as many elements for each place."""
    x = as_value(x)
    (size,) = spec_of(x).shape
    missing = part_size(size, places) * places - size
    return concatenate(x, zeros(spec_of(x).update(shape=(missing,))), axis=0) if missing else x


# For each axis of a weight the named axis and the whole size, if it is split.
Split = tuple[tuple[str, int] | None, ...]


def weight_splits(value: Any, axis_names: Sequence[str] | None = None) -> list[Split]:
    """Returns for each leaf of a pytree how it is split; () where it is whole.

    Args:
        axis_names: the axes of a mesh; weights that are split over other axes are whole on it.
    """
    found: list[Split] = []
    for node in tree.flatten(value, _says)[0]:
        splits: Mapping[str, Split] = getattr(node, "split_weights", {}) if _says(node) else {}
        found += [splits.get(path.lstrip("."), ()) for path, _ in tree.leaves_with_path(node)]
    if axis_names is None:
        return found
    return [x if all(axis is None or axis[0] in axis_names for axis in x) else () for x in found]


def is_part(x: Any, split: Split) -> bool:
    """Whether an array is a place's part of a weight, not the whole."""
    shape = spec_of(as_value(x)).shape
    return any(axis is not None and n != axis[1] for n, axis in zip(shape, split, strict=False))


def _says(value: Any) -> bool:
    return hasattr(type(value), "split_weights")
