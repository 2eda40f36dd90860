"""Lets loops, branches and checkpointed functions take and hand out square roots together with their squares.

A root is known as one only within the trace of its function (`powers.py`). So a command that owns sub-graphs gets, for each root
among its operands, the square as one more operand; and, for each result that may be a root, the square as one more result. Inside
and outside, `with_square` makes one value of the two again. Sub-graphs that have their squares already stay as they are, so one
extension serves derivatives of all orders.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from itertools import compress
from typing import Any

from nnc.base import dtypes
from nnc.commands import elementwise as ew
from nnc.commands.control import checkpoint, isolated
from nnc.commands.roles import Carry, NodeRoles, Read, Yield, branches, take_apart
from nnc.commands.rules import root_of
from nnc.graph import Command, Graph, Node, Symbol, bind, spec_of
from nnc.graph.builder import infer_specs
from nnc.trace.core.powers import keeps_roots


def bind_with_squares(
    command: Command, args: Sequence[Any], params: dict[str, Any], graphs: tuple[Graph, ...], are_roots: Sequence[bool]
) -> list[Any] | None:
    """Binds a command that takes or hands out square roots, with their squares; None where there are none to add."""
    if params.get("tangents_only") or not (any(are_roots) or any(map(_has_roots, graphs))):
        return None
    operands = tuple([Symbol(spec_of(x)) for x in args])
    specs = infer_specs(command, tuple([x.spec for x in operands]), params, graphs)
    loop = _parts(Node(command, operands, tuple(map(Symbol, specs)), params, graphs))
    if loop is None:
        return None
    extension = _Extension(loop, set(compress(operands, are_roots)))
    node = extension.join()
    if node is None:
        return None
    values = dict(zip(operands, args, strict=True))
    values.update((square, ew.square(values[x])) for x, square in extension.taken.items())
    found = bind(command, [values[x] for x in node.inputs], dict(node.params), node.graphs)
    results, handed = dict(zip(node.outputs, found, strict=True)), extension.handed
    return [ew.with_square(results[x], results[handed[x]]) if x in handed else results[x] for x in loop.node.outputs]


class _Extension:
    """Adds squares to a loop some of whose operands are `roots`.

    Attributes:
        taken: operand -> its square, a new operand.
        handed: result -> its square, a new result.
    """

    def __init__(self, loop: NodeRoles, roots: Set[Symbol]) -> None:
        self.loop, self.roots = loop, roots
        self.taken: dict[Symbol, Symbol] = {}
        self.handed: dict[Symbol, Symbol] = {}
        self._fronts: list[list[Node]] = [[] for _ in loop.graphs]
        self._backs: list[list[Node]] = [[] for _ in loop.graphs]

    def join(self) -> Node | None:
        """Returns the node with all squares; None where it has them."""
        loop = self.loop
        found = _roots_within(loop, self.roots)
        changed = loop.update(
            sequences=self._reads(loop.sequences),
            captured=self._reads(loop.captured),
            carries=self._carries(found[0]),
            rows=self._rows(found),
        )
        if not (self.taken or self.handed):
            return None
        graphs = [
            graph.update(nodes=(*front, *graph.nodes, *back))
            for graph, front, back in zip(loop.graphs, self._fronts, self._backs, strict=True)
        ]
        return changed.update(graphs=tuple(graphs)).join()

    def _reads(self, reads: Sequence[Read]) -> tuple[Read, ...]:
        kept, squares = list(reads), []
        for k, x in enumerate(reads):
            if x.operand in self.roots and any(map(_lacks_square, self.loop.graphs, x.inner)):
                pairs = [self._take(i, inner) for i, inner in enumerate(x.inner)]
                kept[k] = x._replace(inner=tuple([root for root, _ in pairs]))
                self.taken[x.operand] = Symbol(x.operand.spec)
                squares.append(Read(self.taken[x.operand], tuple([square for _, square in pairs])))
        return *kept, *squares

    def _carries(self, found: Set[Symbol]) -> tuple[Carry, ...]:
        graph, kept, squares = self.loop.graphs[0], list(self.loop.carries), []
        of = _roots_of_squares(graph)
        known = {of.get(x.following) for x in self.loop.carries}
        for k, x in enumerate(self.loop.carries):
            if x.inner in found and (x.following not in known or _lacks_square(graph, x.inner)):
                root, square = self._take(0, x.inner)
                kept[k] = x._replace(inner=root)
                self.taken[x.operand], self.handed[x.result] = Symbol(x.operand.spec), Symbol(x.result.spec)
                squares.append(Carry(self.taken[x.operand], square, self._hand(0, x.following), self.handed[x.result]))
        return *kept, *squares

    def _rows(self, found: Sequence[Set[Symbol]]) -> tuple[Yield, ...]:
        rows, roots = list(self.loop.rows), [*map(_roots_of_squares, self.loop.graphs)]
        known = {tuple([of.get(s) for of, s in zip(roots, x.inner, strict=True)]) for x in rows}
        for x in self.loop.rows:
            is_root = any(s in f for s, f in zip(x.inner, found, strict=True))
            if is_root and x.result.spec.dtype in dtypes.FLOATS and x.inner not in known:
                self.handed[x.result] = Symbol(x.result.spec)
                rows.append(Yield(tuple([self._hand(i, s) for i, s in enumerate(x.inner)]), self.handed[x.result]))
        return tuple(rows)

    def _take(self, i: int, inner: Symbol) -> tuple[Symbol, Symbol]:
        """Returns the inputs of a sub-graph, a root and its square, that stand for one it had."""
        root, square = Symbol(inner.spec), Symbol(inner.spec)
        self._fronts[i].append(Node(ew.with_square, (root, square), (inner,)))
        return root, square

    def _hand(self, i: int, inner: Symbol) -> Symbol:
        square = Symbol(inner.spec)
        self._backs[i].append(Node(ew.square, (inner,), (square,)))
        return square


def _parts(node: Node) -> NodeRoles | None:
    return branches(node, 0) if node.command in (checkpoint, isolated) else take_apart(node)


def _roots_of_squares(graph: Graph) -> dict[Symbol, Symbol]:
    return {node.outputs[0]: node.inputs[0] for node in graph.nodes if node.command is ew.square}


def _lacks_square(graph: Graph, root: Symbol) -> bool:
    """Whether a sub-graph reads an input without its square, another input."""
    readers = [node for node in graph.nodes if root in node.inputs]
    return root in graph.outputs or any(
        x.command is not ew.with_square or x.inputs[1] not in graph.inputs for x in readers
    )


def _has_roots(graph: Graph) -> bool:
    return any(x.command in root_of for x in graph.walk())


def hands_out_roots(graph: Graph) -> bool:
    """Whether an output may be a root."""
    return _has_roots(graph) and not _roots_in(graph, set()).isdisjoint(graph.outputs)


def _roots_within(loop: NodeRoles, roots: Set[Symbol]) -> list[set[Symbol]]:
    """Returns the symbols of each sub-graph that may be square roots, also those that become one in a later iteration."""
    carried = {x.inner for x in loop.carries if x.operand in roots}
    while True:
        reads = [x for x in (*loop.sequences, *loop.captured) if x.operand in roots]
        found = [_roots_in(graph, carried.union(x.inner[i] for x in reads)) for i, graph in enumerate(loop.graphs)]
        later = carried.union(x.inner for x in loop.carries if x.following in found[0])
        if later == carried:
            return found
        carried = later


def _roots_in(graph: Graph, roots: Set[Symbol]) -> set[Symbol]:
    """Returns the symbols of a graph that may be square roots, where some of its inputs are."""
    found = set(roots)
    for node in graph.nodes:
        loop = _parts(node) if node.graphs else None
        if loop is not None:
            inner = _roots_within(loop, found)
            found.update(x.result for x in loop.carries if x.inner in inner[0])
            found.update(x.result for x in loop.rows if any(s in f for s, f in zip(x.inner, inner, strict=True)))
        elif node.command in root_of:
            found.update(node.outputs if root_of[node.command][0] == 2 else ())
        elif not found.isdisjoint(node.inputs) and keeps_roots(node):
            found.update(node.outputs)
    return {x for x in found if x.spec.dtype in dtypes.FLOATS}
