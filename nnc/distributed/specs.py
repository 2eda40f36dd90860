"""Partition specs: over which axes of a mesh the axes of an array are split."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

from nnc.array.array import as_value
from nnc.commands.shape import reshape, transpose
from nnc.distributed.mesh import Mesh
from nnc.errors import ArgumentError, ArgumentTypeError, ShapeError, user_error
from nnc.graph import spec_of

Entry = tuple[str, ...]  # the axes of the mesh over which an axis of an array is split


class PartitionSpec:
    """Over which axes of a mesh each axis of an array is split, from the first on; the others stay whole.

    Args:
        *entries: a name, a tuple of names (the first counts slowest), or None.

    Example:
        >>> nnc.distributed.PartitionSpec("data", None)
        PartitionSpec('data', None)
    """

    __slots__ = ("_entries",)

    def __init__(self, *entries: str | tuple[str, ...] | None) -> None:
        for entry in entries:
            names = entry if isinstance(entry, tuple) else () if entry is None else (entry,)
            if not all(isinstance(name, str) for name in names):
                problem = f"{entry!r} is no name of an axis."
                fix = 'give a name, a tuple of names or None for each axis, such as PartitionSpec("data", None).'
                raise user_error(ArgumentTypeError, "nnc.distributed.PartitionSpec", problem, fix=fix)
        self._entries = entries

    @property
    def names(self) -> tuple[Entry, ...]:
        """The axes of the mesh for each axis of the array."""
        return tuple(x if isinstance(x, tuple) else () if x is None else (x,) for x in self._entries)

    @property
    def all_names(self) -> frozenset[str]:
        """All axes of the mesh over which something is split."""
        return frozenset(name for entry in self.names for name in entry)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PartitionSpec) and self.names == other.names

    def __hash__(self) -> int:
        return hash(self.names)

    def __repr__(self) -> str:
        return f"PartitionSpec({', '.join(map(repr, self._entries))})"

    def __reduce__(self) -> tuple[Any, ...]:
        return PartitionSpec, self._entries


def check_spec(where: str, spec: Any, mesh: Mesh) -> PartitionSpec:
    """`spec`, whose names must be axes of the mesh, each at most once."""
    if not isinstance(spec, PartitionSpec):
        fix = "give PartitionSpec(...) for each argument or result; PartitionSpec() for a value that is whole at all places."
        raise user_error(ArgumentTypeError, where, f"{spec!r} is no PartitionSpec.", fix=fix)
    names = [name for entry in spec.names for name in entry]
    for name in names:
        if name not in mesh.axis_names:
            problem = f"{spec!r} names {name!r}; the mesh has the axes {', '.join(map(repr, mesh.axis_names))}."
            raise user_error(ArgumentError, where, problem, fix="use axes of the mesh.")
    if len(set(names)) < len(names):
        raise user_error(ArgumentError, where, f"{spec!r} names an axis twice.", fix="split one axis by each name.")
    return spec


def split(where: str, path: str, x: Any, spec: PartitionSpec, mesh: Mesh) -> Any:
    """`x` with an axis for each axis of the mesh in the spec, in the mesh's order, before the axes of one place's part.

    Raises:
        ShapeError: an axis does not exist, or cannot be split evenly.
    """
    x = as_value(x)
    shape, sizes = spec_of(x).shape, mesh.shape
    if len(spec) > len(shape):
        problem = f"{path} has {len(shape)} axes, {spec!r} speaks of {len(spec)}."
        fix = "give a spec with at most one entry for each axis."
        raise user_error(ShapeError, where, problem, operands={path: spec_of(x)}, fix=fix)
    if not spec.all_names:
        return x
    cut: list[int] = []
    where_is: dict[str, int] = {}
    own: list[int] = []
    for i, n in enumerate(shape):
        names = spec.names[i] if i < len(spec) else ()
        count = prod(sizes[name] for name in names)
        if n % count:
            over = " and ".join(map(repr, names))
            problem = f"axis {i} of {path} has {n} elements, no multiple of the {count} places of {over}."
            fix = f"give a multiple of {count}: drop the last {n % count}, or pad with {count - n % count}."
            raise user_error(ShapeError, where, problem, operands={path: spec_of(x)}, fix=fix)
        for name in names:
            where_is[name] = len(cut)
            cut.append(sizes[name])
        own.append(len(cut))
        cut.append(n // count)
    order = [where_is[name] for name in mesh.axis_names if name in where_is] + own
    x = reshape(x, shape=tuple(cut))
    return x if order == sorted(order) else transpose(x, permutation=tuple(order))


def join(where: str, path: str, x: Any, spec: PartitionSpec, mesh: Mesh) -> Any:
    """Joins the parts in `x`, in the form that `split` returns, to the whole array."""
    leading = [name for name in mesh.axis_names if name in spec.all_names]
    shape, sizes = spec_of(x).shape, mesh.shape
    part = shape[len(leading) :]
    if len(spec) > len(part):
        problem = f"{path} has {len(part)} axes at each place, {spec!r} speaks of {len(spec)}."
        fix = "give a spec with at most one entry for each axis."
        raise user_error(ShapeError, where, problem, operands={path: spec_of(x)}, fix=fix)
    if not leading:
        return x
    order: list[int] = []
    joined: list[int] = []
    for i, n in enumerate(part):
        names = spec.names[i] if i < len(spec) else ()
        order += [*(leading.index(name) for name in names), len(leading) + i]
        joined.append(n * prod(sizes[name] for name in names))
    x = x if order == sorted(order) else transpose(x, permutation=tuple(order))
    return reshape(x, shape=tuple(joined))
