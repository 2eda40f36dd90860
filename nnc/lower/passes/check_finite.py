"""Looks at every result for NaN and infinities, while the program runs."""

from __future__ import annotations

from types import MappingProxyType

from nnc.base.options import Options
from nnc.commands.debug import check_finite as check_command
from nnc.commands.debug import is_checked
from nnc.graph import Graph, Node
from nnc.graph.registry import effect


def check_finite(graph: Graph, options: Options) -> Graph:
    """Puts a node behind each one with floating-point results, which looks at them; in sub-graphs, too.

    Requires: no later pass reorders nodes with an effect.
    Ensures:  the first command that makes a NaN or an infinity raises, naming the user's line.

    Example:
        y = log(x); return y  →  y = log(x); check_finite(y, x); return y
    """
    return _checked(graph, {})


def _checked(graph: Graph, known: dict[Graph, Graph]) -> Graph:
    if graph not in known:
        nodes: list[Node] = []
        for node in graph.nodes:
            graphs = tuple(_checked(sub_graph, known) for sub_graph in node.graphs)
            nodes.append(node.update(graphs=graphs) if graphs != node.graphs else node)
            results = tuple(symbol for symbol in node.outputs if is_checked(symbol.spec))
            if results and node.inputs and not node.graphs and node.command not in effect:
                params = {"name": node.command.name, "results": len(results), "source": node.source}
                nodes.append(
                    Node(check_command, (*results, *node.inputs), (), MappingProxyType(params), (), node.source)
                )
        known[graph] = graph.update(nodes=tuple(nodes))
    return known[graph]
