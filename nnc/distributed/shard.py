"""`shard_map`: runs a function at all places of a mesh, each on its part of the arguments."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import wraps
from typing import Any

from nnc import tree
from nnc.array.array import as_value
from nnc.base.context import activity, get_context
from nnc.calls.spelling import spelled
from nnc.commands.collective import all_gather_same, process_index
from nnc.commands.index import gather
from nnc.commands.rules import lead
from nnc.distributed.agreement import check_agreement
from nnc.distributed.mesh import Mesh, check_mesh
from nnc.distributed.specs import PartitionSpec, check_spec, join, split
from nnc.errors import ArgumentError, user_error
from nnc.errors.tracebacks import api_boundary
from nnc.trace.core.axes import NamedAxis, names_of, vary, varying_over
from nnc.trace.core.flat import FlatFunction, check_callable, name_of
from nnc.trace.core.named import stage_named
from nnc.trace.core.vectorize import run_named
from nnc.typing import P, R

_WHERE = "nnc.distributed.shard_map"
Flat = Callable[..., list[Any]]


@spelled
def shard_map(f: Callable[P, R], *, mesh: Mesh, in_specs: Any, out_specs: Any) -> Callable[P, R]:
    """Runs `f` at all places of a mesh. Each place gets its part of the arguments, and the results are put together.

    Within `f`, the axes of the mesh are named axes: `nnc.psum` and the other collectives join values of places.

    Args:
        f: function of pytrees of parts.
        mesh: the places.
        in_specs: a PartitionSpec for each positional argument, or a tree of them that is a prefix of the arguments'; one
            PartitionSpec for all. Arguments are whole along axes of the mesh that their spec does not name.
        out_specs: likewise for the result. A result must be the same at all places along axes that its spec does not name.

    Returns:
        a function of whole arrays, without keyword arguments.

    Raises:
        ShapeError: an axis does not exist, or cannot be split evenly.
        ArgumentError: a spec names no axis of the mesh; a result varies over an axis that its spec does not name.
        TreeError: specs do not fit the arguments or the result.

    Example:
        >>> mesh = nnc.distributed.make_mesh((2,), ("data",), simulated=True)
        >>> P = nnc.distributed.PartitionSpec
        >>> total = lambda x: (x / nnc.psum(x.sum(), "data"), nnc.psum(x, "data"))
        >>> shares = nnc.distributed.shard_map(total, mesh=mesh, in_specs=P("data"), out_specs=(P("data"), P()))
        >>> shares(nnp.asarray([1.0, 2.0, 3.0, 4.0]))
        (Array([0.1, 0.2, 0.3, 0.4], dtype=float32), Array([4., 6.], dtype=float32))
    """
    check_callable(f, _WHERE)
    check_mesh(_WHERE, mesh)

    @wraps(f)
    @api_boundary
    def mapped(*args: Any, **kwargs: Any) -> Any:
        if kwargs:
            problem = f"{name_of(f)} was called with keyword arguments {', '.join(kwargs)}."
            raise user_error(ArgumentError, _WHERE, problem, fix="pass all arguments by position, as in_specs does.")
        if isinstance(in_specs, (tuple, list)) and len(in_specs) != len(args):
            problem = f"in_specs has {len(in_specs)} entries for {len(args)} arguments."
            fix = "give one entry for each argument, or one for all."
            raise user_error(ArgumentError, _WHERE, problem, operands={"in_specs": in_specs}, fix=fix)
        flat = FlatFunction.of(f, args)
        prefix = tuple(in_specs) if isinstance(in_specs, list) else in_specs
        specs = [check_spec(_WHERE, s, mesh) for s in tree.broadcast_prefix(prefix, args, where=f"{_WHERE}: in_specs")]
        chosen = [specs[i] for i in flat.arguments.where]
        found: list[PartitionSpec] = []

        def place(*values: Any) -> list[Any]:
            outputs = flat(*values)
            found[:] = _out_specs(flat, out_specs, mesh)
            _check_varying(flat, outputs, found, mesh)
            return outputs

        with activity(f"tracing {name_of(f)} for shard_map"):
            outputs = run_places(place, mesh, flat.leaves, flat.paths(), chosen, found)
        return flat.build_result(outputs)

    return mapped


def run_places(
    place: Flat, mesh: Mesh, leaves: Sequence[Any], paths: Sequence[str], in_specs: Sequence[PartitionSpec],
    out_specs: Sequence[PartitionSpec], where: str = _WHERE, means: frozenset[str] = frozenset(),
    parts_in: Collection[int] = (), parts_out: Collection[int] = (),
) -> list[Any]:  # fmt: skip
    """Returns the results of `place` at all places, put together.

    Args:
        place: the function of one place, on flat sequences of values.
        mesh: the places.
        leaves: whole arguments.
        paths: their names in messages.
        in_specs: their specs.
        out_specs: a list that holds the specs of the results when `place` has run.
        where: the function of nnc.
        means: axes along which gradients are those of the mean.
        parts_in: positions of arguments of which each process passes its part alone.
        parts_out: positions of results of which each process keeps its part alone; known when `place` has run.
    """
    parts = [
        split(where, path, x, spec, mesh) if spec.all_names and i not in parts_in else x
        for i, (path, x, spec) in enumerate(zip(paths, leaves, in_specs, strict=True))
    ]
    if mesh.strides:
        return _run_here(place, mesh, parts, in_specs, out_specs, where, means, parts_in, parts_out)

    def run(axes: Sequence[tuple[str, int]], values: Sequence[Any]) -> list[Any]:
        if not axes:
            return place(*values)
        (name, size), *rest = axes
        mapped = [name in spec.all_names for spec in in_specs]
        outputs, batched = run_named(name, lambda *rows: run(rest, rows), size, values, mapped, size, name in means)
        return [
            lead(size, x, on) if name in spec.all_names else x
            for x, on, spec in zip(outputs, batched, out_specs, strict=True)
        ]

    outputs = run(list(mesh.shape.items()), parts)
    return [join(where, "a result", x, spec, mesh) for x, spec in zip(outputs, out_specs, strict=True)]


def _run_here(
    place: Flat, mesh: Mesh, parts: Sequence[Any], in_specs: Sequence[PartitionSpec], out_specs: Sequence[PartitionSpec],
    where: str, means: frozenset[str], parts_in: Collection[int], parts_out: Collection[int],
) -> list[Any]:  # fmt: skip
    """Likewise, where the places are processes: this one runs its place.

    Arguments and results are whole, and the same in all processes. So a place takes its part of them by its numbers along the axes,
    and results are gathered; all of this is traced within the axes, so that it can be differentiated.
    """

    def take(x: Any, spec: PartitionSpec, is_part: bool) -> Any:
        axes = [axis for axis in own_axes(mesh) if axis.name in spec.all_names]
        if is_part:
            return vary(as_value(x), frozenset(axes))
        for axis in axes:
            x = gather(as_value(x), axis.index, axes=(0,), batch=0, mode="clip")
        return x

    def whole(x: Any, spec: PartitionSpec) -> Any:
        for axis in reversed(own_axes(mesh)):
            if axis.name in spec.all_names:
                x = all_gather_same(as_value(x), axis.index, **axis.params)
        return join(where, "a result", x, spec, mesh)

    def body(*values: Any) -> list[Any]:
        pairs = enumerate(zip(values, in_specs, strict=True))
        outputs = place(*(take(x, spec, i in parts_in) for i, (x, spec) in pairs))
        return [x if i in parts_out else whole(x, out_specs[i]) for i, x in enumerate(outputs)]

    def run(axes: Sequence[tuple[str, int, int]], values: Sequence[Any]) -> Sequence[Any]:
        if not axes:
            return body(*values)
        (name, size, stride), *rest = axes
        staged, _ = stage_named(
            lambda *inner: run(rest, inner), name, size, values, [False] * len(values), name in means, stride
        )
        if name == mesh.axis_names[0]:
            check_agreement(where, staged.graph)
        return staged.graph.evaluate([process_index(size=size, stride=stride), *staged.captured])

    axes = [(name, size, stride) for (name, size), stride in zip(mesh.shape.items(), mesh.strides, strict=True)]
    return list(run(axes, parts))


def own_axes(mesh: Mesh) -> list[NamedAxis]:
    """Returns the named axes of a mesh, within the function of a place."""
    return list(get_context().axes[len(get_context().axes) - len(mesh.axis_names) :])


def _out_specs(flat: FlatFunction, out_specs: Any, mesh: Mesh) -> list[PartitionSpec]:
    result = flat.result
    whole = result.build(result.dynamic)
    specs = tree.broadcast_prefix(out_specs, whole, where=f"{_WHERE}: out_specs")
    return [check_spec(_WHERE, specs[i], mesh) for i in result.where]


def _check_varying(flat: FlatFunction, outputs: Sequence[Any], specs: Sequence[PartitionSpec], mesh: Mesh) -> None:
    """Raises where a result varies over an axis of the mesh that its spec does not name."""
    own = own_axes(mesh)
    for path, x, spec in zip(flat.result.paths(), outputs, specs, strict=True):
        found = varying_over(x) or frozenset()
        extra = [axis for axis in own if axis in found and axis.name not in spec.all_names]
        if extra:
            problem = f"result{path} varies over {names_of(frozenset(extra))}, which {spec!r} does not name."
            fix = f"name the axis in out_specs, or join the values, for example with nnc.pmean(x, {extra[0].name!r})."
            raise user_error(ArgumentError, _WHERE, problem, operands={f"result{path}": as_value(x).spec}, fix=fix)
