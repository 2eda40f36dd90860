"""Gives each output of the graph memory of its own, which the caller may keep."""

from __future__ import annotations

from nnc.graph import Graph, Node, Symbol, command, register_pass
from nnc.lower.views import find_views
from nnc.options import Options


@register_pass("copy_outputs")
def copy_outputs(graph: Graph, options: Options) -> Graph:
    """Copies outputs that would share memory with an argument, a constant, another output, or a larger tensor.

    The copy follows the node that writes the value, so that the original's memory is free early.

    Requires: no later pass removes `copy` nodes.
    Ensures:  each output is, perhaps reshaped, the whole of a tensor that a node writes; no two are the same one's.
    Example:  y = transpose(x); return y  →  y = transpose(x); z = copy(y); return z
    """
    views = find_views(graph)
    given = {*graph.inputs, *graph.constants}
    taken: set[Symbol] = set()
    copies: dict[Symbol, list[Node]] = {}
    outputs: list[Symbol] = []
    sources = {symbol: node.source for node in graph.nodes for symbol in node.outputs}
    for symbol in graph.outputs:
        view = views[symbol]
        if view.is_whole and view.base not in given and view.base not in taken:
            taken.add(view.base)
            outputs.append(symbol)
            continue
        fresh = Symbol(symbol.spec, symbol.name)
        copies.setdefault(symbol, []).append(Node(command("copy"), (symbol,), (fresh,), source=sources.get(symbol)))
        outputs.append(fresh)
    if not copies:
        return graph
    nodes = [copy for symbol in (*graph.inputs, *graph.constants) for copy in copies.pop(symbol, ())]
    for node in graph.nodes:
        nodes.append(node)
        nodes += [copy for symbol in node.outputs for copy in copies.pop(symbol, ())]
    return graph.update(nodes=tuple(nodes), outputs=tuple(outputs))
