"""Drops nodes and constants that nothing reads."""

from __future__ import annotations

from nnc.commands.rules import effect
from nnc.graph import Graph, Node, Symbol, register_pass
from nnc.options import Options

REMOVABLE_EFFECTS = ("random",)


@register_pass("dce")
def dce(graph: Graph, options: Options) -> Graph:
    """Drops what no output and no effect depends on, in sub-graphs, too. Inputs stay.

    Requires: nothing.
    Ensures:  each node has an effect, or an output that a later node or the graph's outputs read.
    Example:  a = exp(x); b = neg(x); return a  →  a = exp(x); return a
    """
    return _sweep(graph, {})


def has_effect(node: Node) -> bool:
    """Whether a node does more than yield its outputs, by itself or within its sub-graphs."""
    kind = effect.get(node.command, None)
    if kind is not None and kind not in REMOVABLE_EFFECTS:
        return True
    return any(has_effect(inner) for graph in node.graphs for inner in graph.walk())


def _sweep_once(graph: Graph, known: dict[int, Graph]) -> Graph:
    """The swept form of a sub-graph, which nodes may share."""
    if id(graph) not in known:
        known[id(graph)] = _sweep(graph, known)
    return known[id(graph)]


def _sweep(graph: Graph, known: dict[int, Graph]) -> Graph:
    needed: set[Symbol] = set(graph.outputs)
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if not (needed.intersection(node.outputs) or has_effect(node)):
            continue
        needed.update(node.inputs)
        if node.graphs:
            graphs = tuple(_sweep_once(sub_graph, known) for sub_graph in node.graphs)
            if any(a is not b for a, b in zip(graphs, node.graphs, strict=True)):
                node = node.update(graphs=graphs)
        kept.append(node)
    nodes = tuple(reversed(kept))
    constants = {symbol: value for symbol, value in graph.constants.items() if symbol in needed}
    if nodes == graph.nodes and len(constants) == len(graph.constants):
        return graph
    return graph.update(nodes=nodes, constants=constants)
