"""Puts sums right behind the nodes that make their operands, so that the kernel which makes these can add them up."""

from __future__ import annotations

from nnc.base.options import Options
from nnc.base.size import hint
from nnc.device import machine_of
from nnc.graph import Graph, Node, Symbol
from nnc.lower.kernels.domain import can_fuse, is_reduction, is_view

_SMALL = 64  # a sum that takes this part of its operand's bytes may be there earlier


def reduce_in_producers(graph: Graph, options: Options) -> Graph:
    """Moves small sums, maxima and the like up to the elementwise command that makes their operand.

    `order` runs nodes first that free memory, as small sums hardly do; behind that they would have to read memory again. The sums
    of a norm's gradient are the case in point. Sub-graphs stay as they are.

    Ensures: the same values bit for bit; no more bytes are live, but for the sums.

    Example:
        y = mul(x, s); z = add(y, w); a = reduce_sum(y)  →  y = mul(x, s); a = reduce_sum(y); z = add(y, w)
    """
    if not options.native:
        return graph
    machine = machine_of(options)
    sums = [node for node in graph.nodes if is_reduction(node) and _is_small(node) and can_fuse(node, machine)]
    wanted = {node.inputs[0] for node in sums}
    made = [node for node in graph.nodes if not wanted.isdisjoint(node.outputs)]
    made = [node for node in made if can_fuse(node, machine) and not is_view(node) and not is_reduction(node)]
    ends = {s for node in made for s in node.outputs}
    moved: dict[Symbol, list[Node]] = {}
    for node in sums:
        if node.inputs[0] in ends:
            moved.setdefault(node.inputs[0], []).append(node)
    if not moved:
        return graph
    late = {node for nodes in moved.values() for node in nodes}
    nodes: list[Node] = []
    for node in graph.nodes:
        if node not in late:
            nodes += [node, *(x for symbol in node.outputs for x in moved.get(symbol, ()))]
    return graph.update(nodes=tuple(nodes))


def _is_small(node: Node) -> bool:
    return hint(node.outputs[0].spec.nbytes) * _SMALL <= hint(node.inputs[0].spec.nbytes)
