"""Replaces calls (column `inlines`) by the nodes of the graph that they call, in sub-graphs, too.

A call may be a barrier (its nodes recompute what exists already, on purpose). Barriers are inlined by a pass of their
own, which runs after equal nodes have been merged; until then nothing sees into them.
"""

from __future__ import annotations

from collections.abc import Sequence

from nnc.commands.control import inlines
from nnc.graph import Graph, Node, Symbol, register_pass
from nnc.graph.graph import NDArray
from nnc.options import Options


@register_pass("inline_calls")
def inline_calls(graph: Graph, options: Options) -> Graph:
    """Inlines calls that are no barriers.

    Requires: nothing.
    Ensures:  no node is a call without `barrier`, at any depth.
    Example:  y = call(x) {square(%0): mul(%0, %0)}  →  y = mul(x, x)
    """
    return _Inliner(barriers=False).graph(graph)


@register_pass("inline_barriers")
def inline_barriers(graph: Graph, options: Options) -> Graph:
    """Inlines all calls.

    Requires: no later pass merges equal nodes.
    Ensures:  no node is a call, at any depth.
    Example:  y = call(x) {barrier=True} {square(%0): mul(%0, %0)}  →  y = mul(x, x)
    """
    return _Inliner(barriers=True).graph(graph)


class _Inliner:
    """One run of a pass; remembers each graph's inlined form, since many nodes may share a sub-graph."""

    def __init__(self, barriers: bool) -> None:
        self.barriers = barriers
        self.known: dict[int, tuple[Graph, Graph]] = {}  # holds the graph too, so that its id stays its own

    def graph(self, graph: Graph) -> Graph:
        """`graph` with its calls inlined; the graph itself where there are none."""
        if id(graph) not in self.known:
            self.known[id(graph)] = graph, self._rewrite(graph)
        return self.known[id(graph)][1]

    def _rewrite(self, graph: Graph) -> Graph:
        replaced: dict[Symbol, Symbol] = {}
        constants = dict(graph.constants)
        nodes: list[Node] = []
        changed = False
        for node in graph.nodes:
            inputs = tuple(replaced.get(symbol, symbol) for symbol in node.inputs)
            graphs = tuple(self.graph(sub_graph) for sub_graph in node.graphs)
            if self._is_inlined(node):
                changed = True
                outputs = _append_copy(graphs[0], inputs, nodes, constants)
                replaced.update(zip(node.outputs, outputs, strict=True))
            elif inputs != node.inputs or any(a is not b for a, b in zip(graphs, node.graphs, strict=True)):
                changed = True
                nodes.append(node.update(inputs=inputs, graphs=graphs))
            else:
                nodes.append(node)
        if not changed:
            return graph
        outputs = tuple(replaced.get(symbol, symbol) for symbol in graph.outputs)
        return graph.update(nodes=tuple(nodes), outputs=outputs, constants=constants)

    def _is_inlined(self, node: Node) -> bool:
        return inlines.get(node.command, False) and (self.barriers or not node.params.get("barrier", False))


def _append_copy(
    graph: Graph, inputs: Sequence[Symbol], nodes: list[Node], constants: dict[Symbol, NDArray]
) -> tuple[Symbol, ...]:
    """Appends the nodes of `graph` on `inputs`, with symbols of their own; returns what stands for its outputs."""
    renamed: dict[Symbol, Symbol] = dict(zip(graph.inputs, inputs, strict=True))
    for symbol, value in graph.constants.items():
        renamed[symbol] = Symbol(symbol.spec, symbol.name)
        constants[renamed[symbol]] = value
    for node in graph.nodes:
        operands = tuple(renamed[symbol] for symbol in node.inputs)
        results = tuple(Symbol(symbol.spec, symbol.name) for symbol in node.outputs)
        nodes.append(node.update(inputs=operands, outputs=results))
        renamed.update(zip(node.outputs, results, strict=True))
    return tuple(renamed[symbol] for symbol in graph.outputs)
