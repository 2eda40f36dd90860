"""Merges two commands on the same operand into one, as the greatest elements of windows and their places."""

from __future__ import annotations

from nnc.base.options import Options
from nnc.commands.properties import has_companion
from nnc.commands.rules import together
from nnc.graph import Graph, Node
from nnc.lower.kernels.domain import is_view
from nnc.lower.passes.fusion.rematerialize_in_consumers import key_of


def join_pools(graph: Graph, options: Options) -> Graph:
    """Makes one node of neighbours in the order that one command computes `together`, so that memory is gone over once.

    Nodes far from each other are not joined, as the pass before has separated them where memory is short. Sub-graphs stay as they
    are.

    Ensures: the same values, up to the sign of zero.

    Example:
        y = max_pool(x); p = max_pool_places(x)  →  y, p = max_pool_both(x)
    """
    if not options.native:
        return graph
    position = {node: i for i, node in enumerate(node for node in graph.nodes if not is_view(node))}
    found = {key_of(node): node for node in graph.nodes if has_companion(node.command)}
    pairs: dict[Node, Node] = {}
    for node in graph.nodes:
        if node.command in together:
            key = together[node.command][0], *key_of(node)[1:]
            other = found.get(key)
            if other is not None and abs(position[node] - position[other]) == 1:
                pairs[node] = found.pop(key)
    if not pairs:
        return graph
    gone = set(pairs.values())
    nodes = (
        node.update(command=together[node.command][1], outputs=(*node.outputs, *pairs[node].outputs))
        if node in pairs
        else node
        for node in graph.nodes
        if node not in gone
    )
    return graph.update(nodes=tuple(nodes))
