"""Sums of parts: gradients of the parts of a tensor, each placed in zeros, are joined instead of added up."""

from __future__ import annotations

from collections import Counter
from types import MappingProxyType

from nnc.base.options import Options
from nnc.commands.facts import boxes_of, is_addition
from nnc.commands.shape import assemble
from nnc.graph import Graph, Node, Symbol, first_overlap
from nnc.graph.registry import joined
from nnc.graph.remake import OncePerGraph


def join_sums(graph: Graph, options: Options) -> Graph:
    """Adds no zeros: the sum of assembled tensors whose parts do not overlap is one assembled tensor.

    The values are the same but for the sign of zero (-0.0 + 0.0 is 0.0).

    Ensures: no `add` has two operands that are assembled of disjoint parts and read nowhere else.

    Example:
        a = assemble(x at 0); b = assemble(y at 3); c = add(a, b)  →  c = assemble(x at 0, y at 3)
    """
    return _Joiner().graph(graph)


class _Joiner(OncePerGraph):
    def rewrite(self, graph: Graph) -> Graph:
        readers = Counter[Symbol]()
        if any(node.command in joined for node in graph.nodes):
            readers.update([*(symbol for node in graph.nodes for symbol in node.inputs), *graph.outputs])
        joins: dict[Symbol, Node] = {}
        nodes: list[Node] = []
        for node in graph.nodes:
            node = self.renew(node, {})
            if is_addition(node.command):
                node = _join(node, joins, readers) or node
            if node.command in joined:
                joins[node.outputs[0]] = node
            nodes.append(node)
        if all(a is b for a, b in zip(nodes, graph.nodes, strict=True)):
            return graph
        return graph.update(nodes=tuple(nodes))


def _join(node: Node, joins: dict[Symbol, Node], readers: Counter[Symbol]) -> Node | None:
    """Returns the sum as one assembled tensor; None where it is none."""
    left, right = (joins.get(symbol) for symbol in node.inputs)
    if left is None or right is None or any(readers[symbol] > 1 for symbol in node.inputs):
        return None
    inputs = (*left.inputs, *right.inputs)
    boxes = [box for join in (left, right) for box in boxes_of(join)]
    if first_overlap(boxes) is not None:
        return None
    (out,) = node.outputs
    params = {"shape": out.shape, "dtype": out.dtype, "starts": tuple(box.start for box in boxes)}
    return node.update(command=assemble, inputs=inputs, params=MappingProxyType(params))
