"""Finds the greatest elements of windows and their places in one kernel, so that memory is gone over once."""

from __future__ import annotations

from nnc.commands.pool import max_pool, max_pool_both, max_pool_places
from nnc.graph import Graph, Node, register_pass
from nnc.lower.codegen.domain import is_view
from nnc.lower.passes.at_readers import key_of
from nnc.options import Options


@register_pass("join_pools", concerns=("max_pool_places",))
def join_pools(graph: Graph, options: Options) -> Graph:
    """Makes one `max_pool_both` node of neighbours in the order, a `max_pool` and the `max_pool_places` of the same windows.

    Where places are found much later, memory was short in between. Sub-graphs stay as they are.

    Requires: the order and the layout are final.
    Ensures:  the same values, up to the sign of zero.

    Example:
        y = max_pool(x); p = max_pool_places(x)  →  y, p = max_pool_both(x)
    """
    if not options.native:
        return graph
    position = {node: i for i, node in enumerate(node for node in graph.nodes if not is_view(node))}
    found = {key_of(node)[1:]: node for node in graph.nodes if node.command == max_pool_places}
    pairs: dict[Node, Node] = {}
    for node in graph.nodes:
        places = found.get(key_of(node)[1:]) if node.command == max_pool else None
        if places is not None and abs(position[node] - position[places]) == 1:
            pairs[node] = found.pop(key_of(node)[1:])
    if not pairs:
        return graph
    gone = set(pairs.values())
    nodes = (
        node.update(command=max_pool_both, outputs=(*node.outputs, *pairs[node].outputs)) if node in pairs else node
        for node in graph.nodes
        if node not in gone
    )
    return graph.update(nodes=tuple(nodes))
