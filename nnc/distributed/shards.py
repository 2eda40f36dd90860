"""Programs that compute the same bits on any number of processes: each runs some of a fixed number of shards.

The program of one shard is split where it joins values of all shards. The parts in between are nodes `isolated`, so their kernels
are the same in every process; those whose values differ from shard to shard run once for each shard of the process. Sums are formed
in one fixed binary tree of neighbours: first the shards of a process, then the processes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nnc.array.array import as_value
from nnc.commands.collective import INDEX, all_gather_same, all_to_all, pmax, pmin, process_index, psum, pvary
from nnc.commands.control import inlines, isolated
from nnc.commands.elementwise import add, maximum, minimum
from nnc.commands.index import gather
from nnc.commands.rules import zeros
from nnc.commands.shape import concatenate, reshape, slice_axis
from nnc.distributed.agreement import check_agreement
from nnc.distributed.mesh import Mesh
from nnc.distributed.shard import own_axes
from nnc.distributed.specs import PartitionSpec, join, split
from nnc.errors import ArgumentError, ArgumentTypeError, TraceError, user_error
from nnc.graph import Command, Graph, Node, Symbol, bind, spec_of
from nnc.graph.registry import batch, effect
from nnc.graph.remake import OncePerGraph, append_copy
from nnc.graph.rules import Value
from nnc.trace.core.axes import NamedAxis, collectives_over
from nnc.trace.core.named import stage_named
from nnc.trace.core.staging import stage

_REDUCES: dict[Command, Command] = {psum: add, pmax: maximum, pmin: minimum}


@dataclass(frozen=True)
class Shards:
    """Cuts a batch into a fixed number of parts; each process runs the same number of them.

    Args:
        axis_name: the named axis whose places they are.
        size: the number of shards of all processes together.
        processes: how many share them.
    """

    axis_name: str
    size: int
    processes: int

    @classmethod
    def of(cls, where: str, mesh: Mesh, size: int) -> Shards:
        """Returns the shards that the processes of a mesh run.

        Raises:
            ArgumentError: the mesh has several axes; processes would not get blocks that a tree of neighbours joins first.
            ArgumentTypeError: `size` is no int.
        """
        if isinstance(size, bool) or not hasattr(size, "__index__"):
            problem = f"shards must be an int, it is {size!r}."
            raise user_error(ArgumentTypeError, where, problem, fix="pass a number such as 8.")
        processes = mesh.size if mesh.strides else 1
        if len(mesh.axis_names) > 1:
            problem = f"shards={size} needs a mesh of one axis, it has {', '.join(map(repr, mesh.axis_names))}."
            raise user_error(ArgumentError, where, problem, fix="pass a mesh of one axis, or leave shards out.")
        own, rest = divmod(size, processes)
        if rest or own < 1 or own & (own - 1):
            problem = f"shards={size} is not a power of two times the {processes} processes."
            fix = f"pass for example shards={4 * processes}, and run it on as many processes, a half or a quarter of them."
            raise user_error(ArgumentError, where, problem, fix=fix)
        return cls(mesh.axis_names[0], size, processes)

    @property
    def own(self) -> int:
        """The number of shards of one process."""
        return self.size // self.processes

    @property
    def mesh(self) -> Mesh:
        """A mesh whose places are the shards."""
        return Mesh((self.size,), (self.axis_name,), simulated=True)

    @property
    def own_mesh(self) -> Mesh:
        """A mesh whose places are the shards of one process."""
        return Mesh((self.own,), (self.axis_name,), simulated=True)


def run_shards(
    place: Callable[..., list[Any]], shards: Shards, leaves: Sequence[Any], paths: Sequence[str],
    in_specs: Sequence[PartitionSpec], out_specs: Sequence[PartitionSpec], where: str,
    parts_in: Collection[int] = (),
) -> list[Any]:  # fmt: skip
    """Returns the results of `place` at all shards, put together.

    Args:
        place: the function of one shard, on flat sequences of values.
        shards: the shards.
        leaves: whole arguments.
        paths: their names in messages.
        in_specs: their specs.
        out_specs: a list that holds the specs of the results when `place` has run.
        where: the function of nnc.
        parts_in: positions of arguments of which each process passes its part alone.
    """
    mapped = [bool(spec.all_names) for spec in in_specs]
    parts = [
        split(where, path, x, spec, shards.own_mesh if i in parts_in else shards.mesh) if on else x
        for i, (path, x, spec, on) in enumerate(zip(paths, leaves, in_specs, mapped, strict=True))
    ]

    def whole(x: Any, spec: PartitionSpec) -> Any:
        if spec.all_names:
            (axis,) = own_axes(shards.mesh)
            x = all_gather_same(as_value(x), axis.index, **axis.params)
        return join(where, "a result", x, spec, shards.mesh)

    def body(*values: Any) -> list[Any]:
        return [whole(x, spec) for x, spec in zip(place(*values), out_specs, strict=True)]

    staged, axis = stage_named(body, shards.axis_name, shards.size, parts, mapped, means=True)
    if shards.processes > 1:
        check_agreement(where, staged.graph)
    graph = _Opened(axis).graph(staged.graph)
    _refuse_inner_joins(where, graph, axis)
    run = _Run(graph, shards)
    first = run.process * np.asarray(shards.own, INDEX.dtype)
    numbers = [first + np.asarray(j, INDEX.dtype) for j in range(shards.own)]
    given = [
        [_row(x, np.asarray(j) if i in parts_in else number) for j, number in enumerate(numbers)]
        for i, (x, on) in enumerate(zip(parts, mapped, strict=True))
        if on
    ]
    return run([numbers, *given], staged.captured)


def _row(x: Value, number: Value) -> Value:
    return gather(as_value(x), number, axes=(0,), batch=0, mode="clip")


class _Opened(OncePerGraph):
    """Removes `pvary` from a graph and its sub-graphs, since all shards read the same value and its cotangents are added;
    inlines calls whose sub-graphs join values of shards.
    """

    def __init__(self, axis: NamedAxis) -> None:
        super().__init__()
        self.axes = frozenset((axis,))

    def rewrite(self, graph: Graph) -> Graph:
        """Returns the graph, in which the operands of `pvary` stand for its results."""
        renamed: dict[Symbol, Symbol] = {}
        constants, nodes = dict(graph.constants), list[Node]()
        names = {axis.name for axis in self.axes}
        for node in graph.nodes:
            new = self.renew(node, renamed)
            if node.command is pvary and node.params["axis_name"] in names:
                renamed[node.outputs[0]] = new.inputs[0]
            elif inlines.get(node.command, False) and collectives_over(new.graphs[0], self.axes):
                outputs = append_copy(new.graphs[0], new.inputs, nodes, constants)
                renamed.update(zip(node.outputs, outputs, strict=True))
            else:
                nodes.append(new)
        outputs = tuple(renamed.get(symbol, symbol) for symbol in graph.outputs)
        return graph.update(nodes=tuple(nodes), outputs=outputs, constants=constants)


def _refuse_inner_joins(where: str, graph: Graph, axis: NamedAxis) -> None:
    """Raises where a loop or a branch joins values of the shards."""
    top = set(graph.nodes)
    for node in collectives_over(graph, frozenset((axis,))):
        if node not in top:
            problem = f"{node.command.name} over {axis.name!r} within a loop or a branch cannot be dealt out to shards."
            operands = {"called": f"at {node.source.describe()}"} if node.source else {}
            fix = "join the values outside of the loop, or leave shards out."
            raise user_error(TraceError, where, problem, operands=operands, fix=fix)


class _Run:
    """Runs the graph of one shard for all shards of a process. It keeps values by symbol, those that differ in a list."""

    def __init__(self, graph: Graph, shards: Shards) -> None:
        self.graph, self.shards = graph, shards
        self.process: Value = as_value(np.zeros((), INDEX.dtype))
        self.between: dict[str, Any] = {}
        if shards.processes > 1:
            (self.process,) = bind(process_index, [], {"size": shards.processes, "stride": 1})
            self.between = {"size": shards.processes, "axis_name": shards.axis_name, "stride": 1}
        self.same: dict[Symbol, Value] = {symbol: as_value(x) for symbol, x in graph.constants.items()}
        self.own: dict[Symbol, list[Value]] = {}

    def __call__(self, own: Sequence[list[Value]], captured: Sequence[Any]) -> list[Value]:
        """Returns the results, from the inputs that differ from shard to shard and the captured ones."""
        inputs = self.graph.inputs
        self.own.update(zip(inputs, own, strict=False))
        self.same.update(zip(inputs[len(own) :], captured, strict=True))
        for nodes, joins in _levels(self.graph, self.shards.axis_name):
            differing = self._differing(nodes)
            self.part([node for node in nodes if node not in differing], False)
            self.part([node for node in nodes if node in differing], True)
            self.join(joins)
        return [self.values(symbol)[0] for symbol in self.graph.outputs]

    def _differing(self, nodes: Sequence[Node]) -> set[Node]:
        """Returns the nodes that read values which differ from shard to shard."""
        found, differing = set[Node](), set(self.own)
        for node in nodes:
            if not differing.isdisjoint(node.inputs):
                found.add(node)
                differing.update(node.outputs)
        return found

    def values(self, symbol: Symbol) -> list[Value]:
        """Returns the value of a symbol in each shard."""
        return self.own[symbol] if symbol in self.own else [self.same[symbol]] * self.shards.own

    # -- parts of the graph --------------------------------------------------------------------------------------------

    def part(self, nodes: Sequence[Node], is_own: bool) -> None:
        """Runs nodes; once for each shard, or once."""
        if not nodes:
            return
        graph = self.graph.part(nodes)
        if not is_own:
            results = bind(isolated, [self.same[symbol] for symbol in graph.inputs], {}, (graph,))
            self.same.update(zip(graph.outputs, results, strict=True))
            return
        operands = [self.values(symbol) for symbol in graph.inputs]
        found = [bind(isolated, list(each), {}, (graph,)) for each in zip(*operands, strict=True)]
        self.own.update((symbol, [each[i] for each in found]) for i, symbol in enumerate(graph.outputs))

    # -- joins ---------------------------------------------------------------------------------------------------------

    def join(self, nodes: Sequence[Node]) -> None:
        """Joins values of all shards; sums and extrema of one dtype travel together."""
        groups: dict[tuple[Command, Any], list[Node]] = {}
        for node in nodes:
            if node.command in _REDUCES and node.inputs[0].spec.size:
                key = _REDUCES[node.command], node.inputs[0].dtype
                groups.setdefault(key, []).append(node)
            else:
                self._gather(node)
        for (command, _), group in groups.items():
            self._reduce(command, group)

    def _reduce(self, command: Command, nodes: Sequence[Node]) -> None:
        specs = [node.inputs[0].spec for node in nodes]
        rows = zip(*(self.values(node.inputs[0]) for node in nodes), strict=True)
        flat = [_joined([reshape(x, shape=(spec.size,)) for x, spec in zip(row, specs, strict=True)]) for row in rows]
        total = self._between(command, _tree(command, flat))
        at = 0
        for node, spec in zip(nodes, specs, strict=True):
            self.same[node.outputs[0]] = reshape(slice_axis(total, 0, at, at + spec.size), shape=spec.shape)
            at += spec.size

    def _between(self, command: Command, x: Value) -> Value:
        """Returns a vector reduced over the processes: each reduces a part of it."""
        count, spec = self.shards.processes, spec_of(x)
        if count == 1:
            return x
        missing = -spec.size % count
        filled = _joined([x, zeros(spec.update(shape=(missing,)))]) if missing else x
        width = (spec.size + missing) // count
        parts = all_to_all(reshape(filled, shape=(count, width)), self.process, **self.between)
        part = _tree(command, [reshape(slice_axis(parts, 0, i, i + 1), shape=(width,)) for i in range(count)])
        whole = reshape(all_gather_same(part, self.process, **self.between), shape=(count * width,))
        return slice_axis(whole, 0, 0, spec.size)

    def _gather(self, node: Node) -> None:
        """Any other collective: its batching rule on the values of all shards."""
        x, size = node.inputs[0], self.shards.size
        rows = _joined([reshape(value, shape=(1, *x.shape)) for value in self.values(x)])
        if self.shards.processes > 1:
            rows = reshape(all_gather_same(rows, self.process, **self.between), shape=(size, *x.shape))
        differs = [False]

        def together(rows: Value) -> tuple[Value, ...]:
            numbers = as_value(np.arange(size, dtype=INDEX.dtype))
            results, differs[:] = batch[node.command](size, (rows, numbers), (True, True), **node.params)
            return tuple(results)

        staged = stage(together, [spec_of(rows)], name=node.command.name)
        (result,) = bind(isolated, [rows, *staged.captured], {}, (staged.graph,))
        numbers = self.own[self.graph.inputs[0]]
        self.own[node.outputs[0]] = [_row(result, number) if differs[0] else result for number in numbers]
        if not differs[0]:
            self.same[node.outputs[0]] = result


def _levels(graph: Graph, axis_name: str) -> list[tuple[list[Node], list[Node]]]:
    """Returns the nodes of a graph by the number of collectives over an axis on the longest way to them, and the collectives
    that end each level.
    """
    level: dict[Symbol, int] = {}
    found: list[tuple[list[Node], list[Node]]] = []
    for node in graph.nodes:
        at = max((level.get(symbol, 0) for symbol in node.inputs), default=0)
        is_join = effect.get(node.command, None) == "collective" and node.params["axis_name"] == axis_name
        level.update(dict.fromkeys(node.outputs, at + is_join))
        found += [([], []) for _ in range(at + 1 - len(found))]
        found[at][is_join].append(node)
    return found


def _joined(vectors: Sequence[Value]) -> Value:
    return concatenate(*vectors, axis=0) if len(vectors) > 1 else vectors[0]


def _tree(command: Command, values: Sequence[Value]) -> Value:
    """Returns the values reduced in pairs of neighbours, these in pairs again, and so on."""
    staged = stage(lambda a, b: [command(a, b)], [spec_of(values[0])] * 2, name=command.name)
    left = list(values)
    while len(left) > 1:
        pairs = [bind(isolated, left[i : i + 2], {}, (staged.graph,))[0] for i in range(0, len(left) - 1, 2)]
        left = pairs + left[2 * len(pairs) :]
    return left[0]
