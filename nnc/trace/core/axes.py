"""Named axes, and the axes over which values vary.

Within a named axis a value is either the same at all places along it or varies over it. Results vary over the axes over which
their operands do; `psum` and its kind make a result that does not. Where a command gets differentiable operands of both kinds,
`pvary` nodes make all of them vary. So derivatives need no more rules: the transpose of `pvary` adds the cotangents of all places,
and the transpose of `psum` hands out the one cotangent that all places share.

The axes of staged values stand in the trace that records them (nnc.trace.core.staging); a value of any other trace varies as
the values from which it is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from nnc.base.context import get_context
from nnc.commands.collective import EQUALISING, psum, pvary
from nnc.commands.control import inlines
from nnc.commands.replay import pull_iterations
from nnc.commands.roles import NodeRoles, take_apart
from nnc.commands.rules import is_differentiable
from nnc.graph import Command, Graph, Node, Symbol, spec_of
from nnc.graph.registry import effect


@dataclass(frozen=True, slots=True, eq=False)
class NamedAxis:
    """An axis over which a function is mapped: its name, the number of its places, and the number of the place at which the
    function runs, a value of the trace at `level`. `means` says that gradients of values that vary over it are those of their mean.
    `stride` is that of the ranks of places that are processes (nnc.commands.collective).
    """

    name: str
    size: int
    index: Any
    level: int
    means: bool = False
    stride: int = 0

    @property
    def params(self) -> dict[str, Any]:
        """The parameters of a collective over the axis."""
        found: dict[str, Any] = {"size": self.size, "axis_name": self.name}
        return {**found, "stride": self.stride} if self.stride else found


Axes = frozenset[NamedAxis]
NOWHERE: Axes = frozenset()  # of values that are the same at all places


def varying_over(x: Any) -> Axes | None:
    """Returns the axes over which a value varies; None where its trace does not know."""
    own = getattr(x, "varying_over", None)  # of tracers; arrays of devices and variables have an owner, too
    return entered(x, -1) if own is None else cast("Axes | None", own())


def entered(x: Any, level: int) -> Axes:
    """Returns the axes over which a value from outside varies within the branches and loops that are traced now, since not all
    places run them alike; `level` is that of the value's trace.
    """
    context = get_context()
    trace, found = context.staging, NOWHERE
    if not context.axes or not hasattr(x, "spec") or not is_differentiable(x.spec):
        return found
    while trace is not None and trace.level > level:
        found |= getattr(trace, "entry", NOWHERE)
        trace = getattr(trace, "outer", None)
    return found


def outer_axes(level: int) -> Axes | None:
    """Returns the axes of a value of a trace that does not know: none where the trace is outside of all named axes."""
    axes = get_context().axes
    return NOWHERE if not axes or level < axes[0].level else None


def union(found: Iterable[Axes | None]) -> Axes | None:
    """Returns the axes of a result; None where those of an operand are not known."""
    result: set[NamedAxis] = set()
    for axes in found:
        if axes is None:
            return None
        result |= axes
    return frozenset(result)


def in_order(axes: Axes) -> list[NamedAxis]:
    """Axes, outermost first."""
    return sorted(axes, key=lambda axis: axis.level)


def names_of(axes: Axes) -> str:
    """Returns the names of axes in a message."""
    return " and ".join(repr(axis.name) for axis in in_order(axes))


def vary(x: Any, axes: Axes | None) -> Any:
    """Returns a value that varies over these axes, too."""
    found = varying_over(x)
    if axes is None or found is None:
        return x
    for axis in in_order(axes - found):
        x = pvary(x, axis.index, **axis.params)
    return x


def sum_to(x: Any, axes: Axes | None) -> Any:
    """Returns the sum of a value over the axes over which it varies, but for these."""
    found = varying_over(x)
    if axes is None or found is None:
        return x
    for axis in in_order(found - axes):
        x = psum(x, axis.index, **axis.params)
    return x


def matched(values: Sequence[Any], axes: Sequence[Axes | None] | None) -> list[Any]:
    """Tangents or cotangents that vary over the axes over which their primals do; over others they are summed."""
    if axes is None:
        return list(values)
    pairs = zip(values, axes, strict=True)
    return [vary(sum_to(x, over), over) if is_differentiable(spec_of(x)) else x for x, over in pairs]


def align(command: Command, args: Sequence[Any], change: Callable[[Any, Axes], Any] = vary) -> Sequence[Any]:
    """Returns the operands of a command, aligned."""
    return args if len(args) < 2 or command is pvary else aligned(args, change)


def aligned(args: Sequence[Any], change: Callable[[Any, Axes], Any] = vary) -> list[Any]:
    """Makes all values that may be differentiated vary over all axes over which one of them does, by `change`."""
    if not get_context().axes:
        return list(args)
    found = [varying_over(x) for x in args]
    target = union(found)
    if not target or all(axes == target for axes in found):
        return list(args)
    return [
        change(x, target) if axes != target and hasattr(x, "owner") and is_differentiable(x.spec) else x
        for x, axes in zip(args, found, strict=True)
    ]


# -- the axes of results -----------------------------------------------------------------------------------------------

Known = dict[Symbol, Axes | None]


def axes_of_results(node: Node, operands: Sequence[Axes | None]) -> list[Axes | None]:
    """Returns the axes over which a node's results vary."""
    if not node.graphs:
        target = union(operands)
        if node.command.name in EQUALISING:
            others, index = union(operands[:-1]), operands[-1]
            target = None if others is None or index is None else others - index
        return [target] * len(node.outputs)
    known = dict(zip(node.inputs, operands, strict=True))
    loop = take_apart(node)
    if loop is not None:
        return _of_loop(loop, known)
    if node.command is pull_iterations:
        return _of_pulled(node, operands)
    if inlines.get(node.command, False):
        graph = node.graphs[0]
        found = axes_within(graph, dict(zip(graph.inputs, operands, strict=True)))
        return [found.get(s, NOWHERE) for s in graph.outputs]
    return [union(operands)] * len(node.outputs)


def axes_within(graph: Graph, known: Mapping[Symbol, Axes | None]) -> Known:
    """Returns the axes of all symbols of a graph from those of its inputs; constants vary over none."""
    found = dict(known)
    for node in graph.nodes:
        results = axes_of_results(node, [found.get(s, NOWHERE) for s in node.inputs])
        found.update(zip(node.outputs, results, strict=True))
    return found


def _of_loop(loop: NodeRoles, known: Known) -> list[Axes | None]:
    """Returns the axes of the results of loops, branches and calls. Carried values vary over the axes of any iteration: the
    least fixed point.

    Where the number of iterations or the branch varies, so does every result.
    """
    ambient = union([known[s] for s in loop.lead])
    carried: Known = {x.inner: union([known[x.operand], ambient]) for x in loop.carries}
    while True:
        inside: list[Known] = []
        for i, graph in enumerate(loop.graphs):
            inputs: Known = {x.inner[i]: known[x.operand] for x in (*loop.sequences, *loop.captured)}
            inputs.update(dict.fromkeys(loop.counter[i : i + 1], ambient))
            inside.append(axes_within(graph, inputs | carried))
        test = union([inside[0].get(s, NOWHERE) for s in loop.test] + [ambient])
        following = {
            x.inner: union([carried[x.inner], inside[0].get(x.following, NOWHERE), test]) for x in loop.carries
        }
        if following == carried:
            break
        carried = following
    results: Known = {x.result: carried[x.inner] for x in loop.carries}
    for y in (*loop.exits, *loop.rows):
        found = [each.get(s, NOWHERE) for each, s in zip(inside, y.inner, strict=True)]
        results[y.result] = union([*found, test])
    results.update(dict.fromkeys(loop.iterations, test))
    return [results[s] for s in loop.node.outputs]


def _of_pulled(node: Node, operands: Sequence[Axes | None]) -> list[Axes | None]:
    """Returns the axes of the results of `pull_iterations`: cotangents that are carried, sums, and cotangents of elements."""
    params, (advance, pull) = node.params, node.graphs
    ambient = operands[0] if params["length"] is None else NOWHERE
    rest = list(operands[1:] if params["length"] is None else operands)
    reads, carries = params["xs"] + params["rows"], params["carries"]
    moved = params["pulled"] + params["sums"]
    elements, states, cts, captured = (
        rest[:reads], rest[reads : reads + carries], rest[reads + carries : reads + carries + moved],
        rest[reads + carries + moved :],
    )  # fmt: skip

    def iterate(graph: Graph, own: list[Axes | None], values: list[Axes | None]) -> Known:
        while True:
            found = axes_within(graph, dict(zip(graph.inputs, [ambient, *values, *own, *captured], strict=True)))
            following = [union([a, found.get(s, NOWHERE)]) for a, s in zip(own, graph.outputs, strict=False)]
            if following == own:
                return found
            own[:] = following

    iterate(advance, states, elements[: params["xs"]])
    found = iterate(pull, cts, [*elements, *states])
    return [*cts, *(union([found.get(s, NOWHERE), ambient]) for s in pull.outputs[moved:])]


def collectives_over(graph: Graph, axes: Axes) -> list[Node]:
    """Returns the nodes of a graph, sub-graphs included, that join the values of the places along one of these axes."""
    names = {axis.name for axis in axes}
    return [
        node
        for node in graph.walk()
        if effect.get(node.command, None) == "collective" and node.params["axis_name"] in names
    ]
