"""Meshes: places in rows and columns, along axes with names."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from nnc.calls.spelling import spelled
from nnc.distributed.processes import size
from nnc.errors import ArgumentError, ArgumentTypeError, user_error

_WHERE = "nnc.distributed.make_mesh"


@dataclass(frozen=True, slots=True)
class Mesh:
    """Places along named axes; made by `make_mesh`.

    Args:
        axis_sizes: the number of places along each axis.
        axis_names: the name of each axis.
        simulated: all places are rows of one computation in this process.

    Example:
        >>> mesh = nnc.distributed.make_mesh((2,), ("data",), simulated=True)
        >>> mesh.axis_names
        ('data',)
    """

    axis_sizes: tuple[int, ...]
    axis_names: tuple[str, ...]
    simulated: bool = False

    @property
    def shape(self) -> dict[str, int]:
        """The number of places along each axis by its name."""
        return dict(zip(self.axis_names, self.axis_sizes, strict=True))

    @property
    def size(self) -> int:
        """The number of places."""
        return prod(self.axis_sizes)

    @property
    def strides(self) -> tuple[int, ...]:
        """Distances between the ranks of neighbours along each axis, in row-major order; empty unless the places are processes."""
        if self.simulated or self.size == 1:
            return ()
        return tuple(prod(self.axis_sizes[i + 1 :]) for i in range(len(self.axis_sizes)))


@spelled
def make_mesh(axis_shapes: Sequence[int], axis_names: Sequence[str], *, simulated: bool = False) -> Mesh:
    """Returns a mesh of places, over which `shard_map` and `data_parallel` run programs.

    Args:
        axis_shapes: the number of places along each axis.
        axis_names: the name of each axis.
        simulated: all places are rows of one computation in this process, as under `nnc.vmap`; any number of them can be tried
            so. Else each place is a process of those that `mpiexec` started together; ranks count along the last axis first.

    Returns:
        the mesh.

    Raises:
        ArgumentError: names and sizes do not fit, or the mesh is not simulated and there are not so many processes.
        ArgumentTypeError: they are no tuples of ints and strings.

    Example:
        >>> nnc.distributed.make_mesh((4, 2), ("data", "model"), simulated=True).shape
        {'data': 4, 'model': 2}
    """
    sizes, names = _sizes(axis_shapes), _names(axis_names)
    if len(sizes) != len(names):
        problem = f"there are {len(sizes)} sizes and {len(names)} names."
        fix = "give one size for each name."
        raise user_error(ArgumentError, _WHERE, problem, operands={"axis_shapes": sizes, "axis_names": names}, fix=fix)
    if len(set(names)) < len(names):
        problem = f"axis_names {names} has a name twice."
        raise user_error(ArgumentError, _WHERE, problem, fix="give each axis a name of its own.")
    if not simulated and prod(sizes) != size():
        problem = f"the mesh has {prod(sizes)} places, and the program runs in {size()} process{'es' * (size() > 1)}."
        fix = f"start it by mpiexec -n {prod(sizes)}, or pass simulated=True, which runs all places in this process."
        raise user_error(ArgumentError, _WHERE, problem, operands={"axis_shapes": sizes}, fix=fix)
    return Mesh(sizes, names, bool(simulated))


def _sizes(axis_shapes: Any) -> tuple[int, ...]:
    try:
        sizes = tuple(map(operator.index, axis_shapes))
    except TypeError:
        problem = f"axis_shapes must be a tuple of ints, it is {axis_shapes!r}."
        fix = "give one int for each axis, such as (4,) or (2, 2)."
        raise user_error(ArgumentTypeError, _WHERE, problem, fix=fix) from None
    if any(n < 1 for n in sizes):
        problem = f"axis_shapes {sizes} has an axis without places."
        raise user_error(ArgumentError, _WHERE, problem, fix="give positive ints.")
    return sizes


def _names(axis_names: Any) -> tuple[str, ...]:
    if not isinstance(axis_names, (tuple, list)) or not all(isinstance(name, str) and name for name in axis_names):
        problem = f"axis_names must be a tuple of strings, it is {axis_names!r}."
        raise user_error(ArgumentTypeError, _WHERE, problem, fix='give one name for each axis, such as ("data",).')
    return tuple(axis_names)


def check_mesh(where: str, mesh: Any) -> Mesh:
    """`mesh`; raises ArgumentTypeError unless it is one."""
    if not isinstance(mesh, Mesh):
        fix = "make one with nnc.distributed.make_mesh."
        raise user_error(ArgumentTypeError, where, f"mesh must be a mesh, it is a {type(mesh).__name__}.", fix=fix)
    return mesh
