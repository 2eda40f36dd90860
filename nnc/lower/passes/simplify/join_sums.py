"""Sums of parts: gradients of the parts of a tensor, each placed in zeros, are joined instead of added up."""

from __future__ import annotations

from types import MappingProxyType

from nnc.base.options import Options
from nnc.commands.properties import boxes_of, is_addition
from nnc.commands.shape import assemble
from nnc.graph import Graph, Node, Symbol, first_overlap
from nnc.graph.registry import joined
from nnc.graph.remake import NewGraph, OncePerGraph, rewritten


def join_sums(graph: Graph, options: Options) -> Graph:
    """Adds no zeros: the sum of assembled tensors whose parts do not overlap is one assembled tensor.

    The values are the same but for the sign of zero (-0.0 + 0.0 is 0.0).

    Ensures: no `add` has two operands that are assembled of disjoint parts and read nowhere else.

    Example:
        a = assemble(x at 0); b = assemble(y at 3); c = add(a, b)  →  c = assemble(x at 0, y at 3)
    """
    return rewritten(graph, _Joined)


class _Joined(NewGraph):
    """`joins` are the nodes that assemble tensors, by their results."""

    def __init__(self, passes: OncePerGraph, graph: Graph) -> None:
        super().__init__(passes, graph)
        self.joins: dict[Symbol, Node] = {}

    def add(self, node: Node) -> None:
        """See the base."""
        if is_addition(node.command):
            node = self._join(node) or node
        if node.command in joined:
            self.joins[node.outputs[0]] = node
        self.nodes.append(node)

    def _join(self, node: Node) -> Node | None:
        """Returns the sum as one assembled tensor; None where it is none."""
        left, right = (self.joins.get(symbol) for symbol in node.inputs)
        if left is None or right is None or any(self.reads[symbol] > 1 for symbol in node.inputs):
            return None
        inputs = (*left.inputs, *right.inputs)
        boxes = [box for join in (left, right) for box in boxes_of(join)]
        if first_overlap(boxes) is not None:
            return None
        (out,) = node.outputs
        params = {"shape": out.shape, "dtype": out.dtype, "starts": tuple(box.start for box in boxes)}
        return node.update(command=assemble, inputs=inputs, params=MappingProxyType(params))
