"""Moves elementwise commands down to their readers, where memory is scarce."""

from __future__ import annotations

from nnc.base.options import Options
from nnc.device import machine_of
from nnc.graph import Graph, Node, Symbol
from nnc.lower.kernels.domain import can_fuse, is_reduction
from nnc.lower.plan.views import find_views, runs


def delay_cheap(graph: Graph, options: Options) -> Graph:
    """Runs elementwise commands as late as their first reader allows and no more bytes are live for.

    `order` weighs values that are kept from the forward part, before `rematerialize_after_peak` makes them anew: behind that, all
    results of a kernel on a value may wait for a product to end, where the value alone could. Sub-graphs stay as they are.

    Ensures: the same values bit for bit; where a node stood, no more bytes are live. Donated inputs live no longer.

    Example:
        y = exp(x); z = neg(y); a = dot(b, c); w = add(mul(z, a), y)
        →  a = dot(b, c); y = exp(x); z = neg(y); w = add(mul(z, a), y)
    """
    machine = machine_of(options)
    views = find_views(graph)
    donated = {graph.inputs[i] for i in options.donated}
    given = {*graph.inputs, *graph.constants} - donated  # they are there all the time
    places = list(range(len(graph.nodes)))  # for each node, the node of the given order that it stands in front of
    first: dict[Symbol, int] = dict.fromkeys(graph.outputs, -1)  # where each symbol is read first, as far as is known
    uses: dict[Symbol, list[int]] = {}  # the nodes that read each memory
    for i, node in enumerate(graph.nodes):
        for base in {views[symbol].base for symbol in node.inputs}:
            uses.setdefault(base, []).append(i)

    def find_place(i: int, node: Node, latest: int) -> int:
        """Returns the last place at which a node writes as many bytes, at least, as have to live longer for it."""
        ends = {  # where the live range of its operand ends without it
            base: max((places[j] for j in uses[base] if j != i), default=-1)
            for base in {views[symbol].base for symbol in node.inputs} - given
        }
        written = sum(symbol.spec.nbytes for symbol in node.outputs if views[symbol].base is symbol)
        for place in sorted({latest, *(end for end in ends.values() if i < end < latest)}, reverse=True):
            longer = [base for base, end in ends.items() if end < place]
            if donated.isdisjoint(longer) and sum(base.spec.nbytes for base in longer) <= written:
                return place
        return i

    for i in reversed(range(len(graph.nodes))):
        node = graph.nodes[i]
        latest = min((first[symbol] for symbol in node.outputs if symbol in first), default=-1)
        if latest > i and (not runs(node, views) or (can_fuse(node, machine) and not is_reduction(node))):
            places[i] = find_place(i, node, latest)
        for symbol in node.inputs:
            first[symbol] = min(first.get(symbol, places[i]), places[i])
    order = sorted(range(len(places)), key=lambda i: (places[i], i))
    return graph if order == list(range(len(order))) else graph.update(nodes=tuple(graph.nodes[i] for i in order))
