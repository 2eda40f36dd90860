"""Loop-invariant code motion: nodes with the same result in every iteration run once, before the loop.

A loop may run no iteration at all, so a node leaves it only if it certainly runs, or if it cannot fail and costs next to nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType

from nnc.base.dtypes import TAPE
from nnc.base.options import Options
from nnc.commands.properties import is_view, never_raises
from nnc.commands.roles import NodeRoles, Read, take_apart, take_loop
from nnc.graph import Graph, Node, Symbol, command
from nnc.graph.graph import NDArray
from nnc.graph.registry import cost, effect
from nnc.graph.remake import NewGraph, rewritten

CHEAP = 1 << 14  # operations that a loop of no iteration may cost in vain


def licm(graph: Graph, options: Options) -> Graph:
    """Moves nodes of loops that read only captured values and constants before the loop, and captures their results.

    A carried value that each iteration passes on unchanged becomes a captured one. Nodes that only show a value in another form
    (views) move along with others, not for their own sake. Draws and effects stay.

    Ensures: the loops yield the same values, and raise where they raised.

    Example:
        while … {b = exp(captured); c = carried + b}  →  b = exp(captured); while … {c = carried + b}
    """
    return rewritten(graph, _Moved)


class _Moved(NewGraph):
    """Moves nodes out of loops, inner loops first, so that a node that is invariant in several leaves them all."""

    def add(self, node: Node) -> None:
        """See the base."""
        loop = take_loop(node)
        if loop is None:
            self.nodes.append(node)
            return
        loop = _capture_unchanged(loop, self.renamed)
        before, loop = move_out(loop, self.constants)
        rows, loop = _rows_once(loop)
        self.nodes += [*before, loop.join() if loop.node is not node or before or rows else node, *rows]


def _capture_unchanged(loop: NodeRoles, renamed: dict[Symbol, Symbol]) -> NodeRoles:
    """Returns the loop with the carried values that no iteration changes captured; their results are their initial values."""
    same = [x for x in loop.carries if x.following is x.inner]
    if not same:
        return loop
    renamed.update((x.result, x.operand) for x in same)
    reads = tuple(Read(x.operand, (x.inner,)) for x in same)
    changed = tuple(x for x in loop.carries if x not in same)
    return _again(loop.update(carries=changed, captured=(*loop.captured, *reads)))


def _again(loop: NodeRoles) -> NodeRoles:
    joined = take_apart(loop.join())
    assert joined is not None
    return joined


def move_out(
    loop: NodeRoles, constants: dict[Symbol, NDArray], may_leave: Callable[[Node, bool], bool] | None = None
) -> tuple[list[Node], NodeRoles]:
    """Returns the nodes to run before the loop, with symbols of their own, and the loop that captures their results.

    Args:
        constants: the constants of the graph around the loop; new ones are added.
        may_leave: whether a node on invariant operands may move, given whether it surely runs in the first iteration; by
            default the rule of the pass `licm`.
    """
    may_leave = may_leave or _may_leave
    (body,) = loop.graphs
    outside: dict[Symbol, Symbol] = {x.inner[0]: x.operand for x in loop.captured}
    invariant = {*outside, *body.constants}
    writers: dict[Symbol, Node] = {}
    roots: list[Node] = []
    surely = len(body.nodes) if loop.runs_surely else loop.node.params.get("before", 0)
    for position, node in enumerate(body.nodes):
        if not invariant.issuperset(node.inputs) or not may_leave(node, position < surely):
            continue
        invariant.update(node.outputs)
        writers.update(dict.fromkeys(node.outputs, node))
        if not is_view(node) and (node.inputs or not _is_small(node)):
            roots.append(node)
    if not roots:
        return [], loop
    moved: list[Node] = []
    for node in roots:
        _copy_out(node, writers, body.constants, outside, constants, moved)
    gone = {symbol for node in roots for symbol in node.outputs}
    nodes = tuple(node for node in body.nodes if gone.isdisjoint(node.outputs) or not node.outputs)
    read = {*body.outputs, *(symbol for node in nodes for symbol in node.inputs)}
    captured = (*loop.captured, *(Read(outside[s], (s,)) for node in roots for s in node.outputs if s in read))
    graph = body.update(nodes=nodes, inputs=(*body.inputs, *(x.inner[0] for x in captured[len(loop.captured) :])))
    return moved, loop.update(graphs=(graph,), captured=captured)


def _may_leave(node: Node, surely: bool) -> bool:
    """Whether a node on invariant operands may run before the loop; `surely`: it runs in the first iteration at the latest."""
    if node.graphs or not node.outputs or node.command in effect or any(s.dtype == TAPE for s in node.outputs):
        return False
    if surely:
        return True
    return never_raises(node) and _operations(node) <= CHEAP


def _operations(node: Node) -> float:
    rule = cost.get(node.command, None)
    if rule is None:
        return math.inf
    return max(rule(*(s.spec for s in node.inputs), **node.params), *(s.spec.size for s in node.outputs))


def _is_small(node: Node) -> bool:
    return sum(symbol.spec.nbytes for symbol in node.outputs) <= CHEAP


def _copy_out(
    root: Node, writers: Mapping[Symbol, Node], inner_constants: Mapping[Symbol, NDArray],
    outside: dict[Symbol, Symbol], constants: dict[Symbol, NDArray], moved: list[Node],
) -> None:  # fmt: skip
    """Appends a node and the nodes that it needs, with symbols of the iteration replaced by their symbols `outside`."""
    todo = [root]
    while todo:
        node = todo[-1]
        for symbol in node.inputs:
            if symbol not in outside and symbol in inner_constants:
                outside[symbol] = Symbol(symbol.spec, symbol.name)
                constants[outside[symbol]] = inner_constants[symbol]
        missing = [writers[symbol] for symbol in node.inputs if symbol not in outside]
        if missing:
            todo += missing
            continue
        todo.pop()
        if node.outputs[0] not in outside:
            outputs = tuple(Symbol(symbol.spec, symbol.name) for symbol in node.outputs)
            outside.update(zip(node.outputs, outputs, strict=True))
            moved.append(node.update(inputs=tuple(outside[s] for s in node.inputs), outputs=outputs))


def _rows_once(loop: NodeRoles) -> tuple[list[Node], NodeRoles]:
    """Rows that all show one captured value are a broadcast of it; only where the number of iterations is known."""
    outside = {x.inner[0]: x.operand for x in loop.captured}
    once = [x for x in loop.rows if x.inner[0] in outside] if loop.length is not None else []
    spread = [
        Node(
            command("broadcast_to"),
            (outside[x.inner[0]],),
            (x.result,),
            MappingProxyType({"shape": x.result.shape, "axes": tuple(range(1, x.result.spec.ndim))}),
            source=loop.node.source,
        )
        for x in once
    ]
    return spread, loop.update(rows=tuple(x for x in loop.rows if x not in once)) if once else loop
