"""Values of which each place along a named axis holds a part: `Sharded` marks them in arguments and results."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from nnc import tree
from nnc.array import as_value
from nnc.commands.rules import Value, zeros
from nnc.commands.shape import concatenate
from nnc.graph import spec_of


@dataclass(frozen=True)
class Sharded:
    """A pytree whose vectors, of `size` elements outside of the axis, are split over the places along it; numbers are not.

    Args:
        state: pytree of vectors and numbers.
        size: elements of each vector.
        axis_name: the axis.
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
    """A vector with zeros behind it, so that it has as many elements for each place."""
    x = as_value(x)
    (size,) = spec_of(x).shape
    missing = part_size(size, places) * places - size
    return concatenate(x, zeros(spec_of(x).update(shape=(missing,))), axis=0) if missing else x
