"""Data parallel training: one line makes the step of one process a step of many."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from nnc import tree
from nnc.array.array import as_value
from nnc.base import dtypes
from nnc.base.context import activity
from nnc.calls.spelling import spelled
from nnc.commands.shape import slice_axis
from nnc.distributed.mesh import Mesh, check_mesh, make_mesh
from nnc.distributed.partition import spec_of_split
from nnc.distributed.processes import size
from nnc.distributed.shard import own_axes, run_places
from nnc.distributed.shards import Shards, run_shards
from nnc.distributed.specs import PartitionSpec
from nnc.errors import ArgumentError, ArgumentTypeError, ShapeError, user_error
from nnc.errors.tracebacks import api_boundary
from nnc.graph import spec_of
from nnc.trace.core.axes import varying_over
from nnc.trace.core.collectives import mean_over
from nnc.trace.core.flat import FlatFunction, check_argnums, check_callable, check_positions, name_of
from nnc.trace.core.parts import is_part, padded, part_size, sharded_sizes, weight_splits
from nnc.typing import P, R

_WHERE = "nnc.distributed.data_parallel"


@spelled
def data_parallel(
    step: Callable[P, R], *, batch_argnums: int | Sequence[int], axis_name: str = "data", mesh: Mesh | None = None,
    local_batch: bool = False, shards: int | None = None,
) -> Callable[P, R]:  # fmt: skip
    """Runs a training step at several places, each with its part of the batch.

    The arguments that `batch_argnums` names are split along their first axes. All others are the same at all places, but for states
    of `nnc.optim.sharded`, and weights that `nnc.nn.tensor_parallel` splits over another axis of the mesh.

    Within `step`, `nnc.grad` and `nnc.value_and_grad` of a number that varies over the axis differentiate its mean over the places
    and return that mean: a loss that is a mean over the examples has the gradient of the whole batch. Floats that vary when they
    are returned, such as metrics and running statistics, are replaced by their means. So the step computes the result of one
    process on the whole batch, up to rounding, if all that depends on the batch is a mean over its examples.

    Args:
        step: function of pytrees.
        batch_argnums: positions of the arguments to split.
        axis_name: the axis of the mesh over which they are split, for collectives within `step`.
        mesh: the places; by default all processes, along one axis.
        local_batch: each process passes its own rows of the batch alone, all of them equally many, as
            `nnc.data.batches(..., share=(rank, size))` makes them. False: each passes the whole batch. On a simulated mesh, whose
            places are in one process, the batch is whole either way.
        shards: the batch is split into this number of parts, however many processes there are. Each runs `step` on its parts one
            after the other, and sums over the parts are formed in one fixed order, so the results have the same bits on 1, 2, 4, …
            processes. `shards` is a power of two times their number. None: one part for each place, which is faster.

    Returns:
        a function of the same arguments.

    Raises:
        ShapeError: an array of the batch cannot be split evenly.
        ArgumentError: a result that is no float varies over the axis, or any over another axis; the mesh has no such axis; `shards`
            does not fit the places.
        TraceError: with `shards`, a loop or branch within `step` holds a collective over the axis.

    Example:
        >>> def step(w, x, y):
        ...     loss, gradient = nnc.value_and_grad(lambda w: nnp.mean((x * w - y) ** 2))(w)
        ...     return w - 0.1 * gradient, loss
        >>> mesh = nnc.distributed.make_mesh((2,), ("data",), simulated=True)
        >>> parallel = nnc.distributed.data_parallel(step, batch_argnums=(1, 2), mesh=mesh)
        >>> x, y = nnp.arange(4.0), nnp.arange(4.0) * 3
        >>> step(1.0, x, y), parallel(1.0, x, y)
        ((Array(2.4, dtype=float32), Array(14., dtype=float32)), (Array(2.4, dtype=float32), Array(14., dtype=float32)))
    """
    check_callable(step, _WHERE)
    positions = check_argnums(_WHERE, batch_argnums, "name the arguments that hold the batch by number.")
    chosen = make_mesh((size(),), (axis_name,)) if mesh is None else check_mesh(_WHERE, mesh)
    if axis_name not in chosen.axis_names:
        problem = f"the mesh has no axis {axis_name!r}; it has {', '.join(map(repr, chosen.axis_names))}."
        raise user_error(ArgumentError, _WHERE, problem, fix="pass axis_name=, or a mesh with that axis.")
    parted = None if shards is None else Shards.of(_WHERE, chosen, shards)
    layout = chosen if parted is None else parted.mesh
    if not positions:
        problem = "batch_argnums names no argument."
        raise user_error(ArgumentTypeError, _WHERE, problem, fix="name the arguments that hold the batch.")

    @wraps(step)
    @api_boundary
    def parallel(*args: Any, **kwargs: Any) -> Any:
        batch = check_positions(_WHERE, "batch_argnums", positions, len(args))
        flat = FlatFunction.of(step, args, kwargs)
        paths = flat.paths()
        marks = (tuple(i in batch for i in range(len(args))), dict.fromkeys(kwargs, False))
        is_split = tree.broadcast_prefix(marks, (args, kwargs), where=_WHERE)
        in_specs = [PartitionSpec(axis_name) if is_split[i] else PartitionSpec() for i in flat.arguments.where]
        for path, x, spec in zip(paths, flat.leaves, in_specs, strict=True):
            _check_example_axis(path, x, spec)
        leaves, out_specs, sizes = list(flat.leaves), list[PartitionSpec](), list[int]()
        own, splits = sharded_sizes((args, kwargs), axis_name), weight_splits((args, kwargs), layout.axis_names)
        places, parts_in, parts_out = layout.shape[axis_name], set[int](), set[int]()
        if local_batch and chosen.strides:
            parts_in.update(i for i, spec in enumerate(in_specs) if spec.all_names)
        for i, at in enumerate(flat.arguments.where):
            shape = spec_of(as_value(leaves[i])).shape
            if splits[at]:
                in_specs[i] = spec_of_split(splits[at])
                parts_in.update((i,) if layout.strides and is_part(leaves[i], splits[at]) else ())
            elif own[at] and shape:
                in_specs[i] = PartitionSpec(axis_name)
                if layout.strides and shape != (own[at],):
                    parts_in.add(i)
                else:
                    leaves[i] = padded(leaves[i], places)

        def place(*values: Any) -> list[Any]:
            outputs, result = flat(*values), flat.result
            whole = result.build(result.dynamic)
            own, splits = sharded_sizes(whole, axis_name), weight_splits(whole, layout.axis_names)
            sizes[:] = [
                own[at] if spec_of(as_value(x)).shape else 0 for at, x in zip(result.where, outputs, strict=True)
            ]
            out_specs[:] = [
                PartitionSpec(axis_name) if size else spec_of_split(splits[at])
                for at, size in zip(result.where, sizes, strict=True)
            ]
            if layout.strides:
                parts_out.update(i for i, size in enumerate(sizes) if part_size(size, places) < size)
                parts_out.update(i for i, at in enumerate(result.where) if splits[at])
            pairs = zip(outputs, out_specs, strict=True)
            return [_mean(flat, i, x, layout, axis_name, spec.all_names) for i, (x, spec) in enumerate(pairs)]

        means = frozenset((axis_name,))
        with activity(f"tracing {name_of(step)} for data_parallel"):
            if parted is None:
                outputs = run_places(
                    place, chosen, leaves, paths, in_specs, out_specs, _WHERE, means, parts_in, parts_out
                )
            else:
                outputs = run_shards(place, parted, leaves, paths, in_specs, out_specs, _WHERE, parts_in)
        pairs = enumerate(zip(outputs, sizes, strict=True))
        return flat.build_result([slice_axis(x, 0, 0, n) if n and i not in parts_out else x for i, (x, n) in pairs])

    return parallel


def _check_example_axis(path: str, x: Any, spec: PartitionSpec) -> None:
    if spec.all_names and not spec_of(as_value(x)).shape:
        problem = f"{path} is 0-d, so it cannot be split."
        fix = "pass it by an argument that batch_argnums does not name."
        raise user_error(ShapeError, _WHERE, problem, operands={path: spec_of(as_value(x))}, fix=fix)


def _mean(flat: FlatFunction, number: int, x: Any, mesh: Mesh, axis_name: str, split_over: frozenset[str]) -> Any:
    """Returns a result that is the same at all places, but where it is split: the mean where a float varies over the axis of
    the batch.

    Raises:
        ArgumentError: it varies and is no float, or over another axis.
    """
    found = varying_over(x) or frozenset()
    axes = [axis for axis in own_axes(mesh) if axis in found and axis.name not in split_over]
    others = [axis.name for axis in axes if axis.name != axis_name]
    if not axes or (dtypes.is_inexact(spec_of(as_value(x)).dtype) and not others):
        return mean_over(as_value(x), axes) if axes else x
    name, path = (others or [axis_name])[0], flat.result.paths()[number]
    reason = ", over which no mean is taken" if others else " and is no float, so it has no mean"
    problem = f"result{path} varies over {name!r}{reason}."
    fix = f"join the values, for example with nnc.psum(x, {name!r}) or nnc.all_gather, or do not return them."
    raise user_error(ArgumentError, _WHERE, problem, operands={f"result{path}": spec_of(as_value(x))}, fix=fix)
