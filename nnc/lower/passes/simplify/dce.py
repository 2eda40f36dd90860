"""Drops nodes, constants, results and captured values that nothing reads.

A loop loses the results that nobody wants, the carried values that serve only themselves, and the captured values and sequences
that its iterations do not read; a command with several results may have a form without some of them (column `narrow`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nnc.base.options import Options
from nnc.commands.control import PRINTED
from nnc.commands.roles import Carry, NodeRoles, Yield, take_apart
from nnc.commands.rules import REMOVABLE_EFFECTS
from nnc.graph import Attribute, Graph, Node, Symbol, register_pass
from nnc.graph.passes import Fact
from nnc.graph.registry import effect
from nnc.graph.remake import OncePerGraph

narrow: Attribute[Callable[[Node, Sequence[bool]], Node]] = Attribute(
    "narrow", "(node, which results are read) -> a node without some results that are not, or the node itself"
)


@register_pass("dce", ensures=[Fact.NO_DEAD])
def dce(graph: Graph, options: Options) -> Graph:
    """Drops nodes that no output and no effect depends on, in sub-graphs, too. Inputs of the graph stay.

    Ensures: each node has an effect, or an output that a later node or the graph's outputs read; each input and output of a
        loop's or branch's sub-graph is read. A carried value that only the next iteration's own reads is none.

    Example:
        a = exp(x); b = neg(x); return a  →  a = exp(x); return a
    """
    return _Sweeper().graph(graph)


def has_effect(node: Node) -> bool:
    """Whether a node does more than yield its outputs, by itself or within its sub-graphs."""
    return _acts_itself(node) or (bool(node.graphs) and node.command not in PRINTED and _Sweeper().has_effect(node))


def _acts_itself(node: Node) -> bool:
    kind = effect.get(node.command, None)
    return kind is not None and kind not in REMOVABLE_EFFECTS


class _Sweeper(OncePerGraph):
    """One run of the pass."""

    def __init__(self) -> None:
        super().__init__()
        self.joined: dict[Any, tuple[Graph, ...]] = {}
        self.effects: dict[Graph, bool] = {}
        self.operands: dict[tuple[Node, Symbol], tuple[Symbol, ...]] = {}
        self.read: dict[Graph, frozenset[Symbol]] = {}

    def has_effect(self, node: Node) -> bool:
        """Whether a node has an effect; looks into each sub-graph once."""
        return _acts_itself(node) or any(map(self._acts, node.graphs))

    def _acts(self, graph: Graph) -> bool:
        if graph not in self.effects:
            self.effects[graph] = any(map(self.has_effect, graph.nodes))
        return self.effects[graph]

    def rewrite(self, graph: Graph) -> Graph:
        """`graph` without nodes that its outputs do not need; the graph itself where nothing is dropped."""
        needed: set[Symbol] = set(graph.outputs)
        kept: list[Node] = []
        for node in reversed(graph.nodes):
            if needed.isdisjoint(node.outputs) and not self.has_effect(node):
                continue
            if node.graphs or len(node.outputs) > 1:
                node = self._narrow(node, needed)
            needed.update(node.inputs)
            kept.append(node)
        nodes = tuple(reversed(kept))
        constants = {symbol: value for symbol, value in graph.constants.items() if symbol in needed}
        if nodes == graph.nodes and len(constants) == len(graph.constants):
            return graph
        return graph.update(nodes=nodes, constants=constants)

    def _narrow(self, node: Node, needed: set[Symbol]) -> Node:
        """Returns a node of several results, or of sub-graphs, without the results that are not needed, its sub-graphs swept."""
        if node.graphs:
            loop = take_apart(node)
            return self._narrow_loop(loop, needed) if loop is not None else self.renew(node, {})
        if node.command in narrow and not needed.issuperset(node.outputs):
            return narrow[node.command](node, [symbol in needed for symbol in node.outputs])
        return node

    def _narrow_loop(self, loop: NodeRoles, needed: set[Symbol]) -> Node:
        """First the results go, then operands that the swept iterations do not read."""
        exits = tuple(x for x in loop.exits if x.result in needed)
        rows = tuple(x for x in loop.rows if x.result in needed)
        carries = loop.carries
        if any(x.result not in needed for x in carries):
            live = self._live(loop, 0, [x for x in loop.results if x.result in needed])
            carries = tuple(x for x in carries if x.inner in live)
        node = loop.node
        if (exits, rows, carries) != (loop.exits, loop.rows, loop.carries):
            node = loop.update(exits=exits, rows=rows, carries=carries).join(self.joined)
        return self._without_unread(self.renew(node, {}))

    def _live(self, loop: NodeRoles, which: int, wanted: Sequence[Carry | Yield]) -> set[Symbol]:
        """Finds symbols of a sub-graph on which its test, its effects and its wanted results depend, from iteration to
        iteration.
        """
        graph = loop.graphs[which]
        writers = {symbol: node for node in graph.nodes for symbol in node.outputs}
        following = {x.inner: x.following for x in loop.carries}
        todo = [x.inner if isinstance(x, Carry) else x.inner[which] for x in wanted]
        todo += [
            *loop.test,
            *(s for node in graph.nodes if self.has_effect(node) for s in (*node.inputs, *node.outputs)),
        ]
        live: set[Symbol] = set()
        while todo:
            symbol = todo.pop()
            if symbol in live:
                continue
            live.add(symbol)
            if symbol in following:
                todo.append(following[symbol])
            elif symbol in writers:
                todo += self._operands(writers[symbol], symbol)
        return live

    def _operands(self, node: Node, result: Symbol) -> tuple[Symbol, ...]:
        """Returns the operands that one result of a node depends on."""
        loop = take_apart(node) if len(node.outputs) > 1 else None
        if loop is None:
            return node.inputs
        if (node, result) not in self.operands:
            wanted = [x for x in loop.results if x.result is result]
            found = list(loop.lead)
            for which in range(len(loop.graphs)):
                live = self._live(loop, which, wanted)
                found += [x.operand for x in (*loop.sequences, *loop.captured) if x.inner[which] in live]
                found += [x.operand for x in loop.carries if x.inner in live]
            self.operands[node, result] = tuple(found)
        return self.operands[node, result]

    def _without_unread(self, node: Node) -> Node:
        """Returns the node without the sequences and captured values that no iteration reads."""
        loop = take_apart(node)
        if loop is None:
            return node
        reads = [self._reads(graph) for graph in loop.graphs]
        sequences, captured = (
            tuple(x for x in group if any(s in read for s, read in zip(x.inner, reads, strict=True)))
            for group in (loop.sequences, loop.captured)
        )
        if (sequences, captured) == (loop.sequences, loop.captured):
            return node
        return loop.update(sequences=sequences, captured=captured).join(self.joined)

    def _reads(self, graph: Graph) -> frozenset[Symbol]:
        if graph not in self.read:
            self.read[graph] = graph.reads
        return self.read[graph]
