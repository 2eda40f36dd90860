"""Totals, such as losses: sums of rows first, where the rows are summed for something else, too; the rest in the end.

A kernel goes over rows several times, but over rows and columns together only once. And the sum over examples stands between the
kernels of the forward and the backward part, of which the one could be computed along with the other.
"""

from __future__ import annotations

from nnc.base import dtypes
from nnc.base.options import Options
from nnc.base.size import hint
from nnc.commands.properties import is_sum
from nnc.commands.rules import expansion, reduction
from nnc.graph import Graph, Node, Symbol, register_pass
from nnc.graph.passes import Fact
from nnc.graph.registry import alias, effect, scalar
from nnc.graph.remake import Remake, rewritten

_LESS = 8  # an operand of a total must be at least so many times smaller than its own operand
_NODES = 32  # that are looked at to find the terms of a sum's operand


@register_pass("split_reductions", requires=[Fact.ORDERED], invalidates=[Fact.KERNELS])
def split_reductions(graph: Graph, options: Options) -> Graph:
    """Takes sums in two steps, whose operands are made of other sums over a part of the axes, in sub-graphs, too.

    Then nodes that lead from small results to single numbers, which only outputs of the graph hold, go behind all others. The small
    results, of sums, choices and the like, stay in memory for a little longer then.

    Ensures: the same values up to the order of sums; nodes that are moved read no donated input, and nothing large.

    Example:
        p = softmax(x) over rows; t = reduce_sum(p · w); y = p + 1
        →  r = reduce_sum(p · w) over rows; y; t = reduce_sum(r)
    """
    if options.compact or not options.native:
        return graph
    graph = rewritten(graph, _TwoSteps)
    given = {graph.inputs[i] for i in options.donated}
    last = _Last(graph, {*graph.constants, *graph.inputs} - given).nodes()
    nodes = (*(node for node in graph.nodes if node not in last), *(node for node in graph.nodes if node in last))
    return graph.update(nodes=nodes) if nodes != graph.nodes else graph


# -- two steps ---------------------------------------------------------------------------------------------------------


class _TwoSteps(Remake):
    def new_form(self, node: Node) -> Symbol | None:
        """See the base."""
        if not is_sum(node.command) or node.outputs[0].dtype not in (dtypes.float32, dtypes.float64):
            return None
        axes = set(node.params["axes"])
        first = self._summed_before(node.inputs[0], axes)
        if first is None:
            return None
        rest = tuple(sorted(axis - sum(i < axis for i in first) for axis in axes - first))
        return self.make("reduce_sum", self.make("reduce_sum", node.inputs[0], axes=tuple(sorted(first))), axes=rest)

    def _summed_before(self, symbol: Symbol, axes: set[int]) -> set[int] | None:
        """Some of the axes, over which something is summed of which a tensor is made by elementwise commands."""
        seen: set[Symbol] = set()
        waiting = [symbol]
        while waiting and len(seen) < _NODES:
            at = waiting.pop(0)
            node = self.writers.get(at)
            if node is None or at in seen:
                continue
            seen.add(at)
            if node.command in scalar:
                waiting += node.inputs
            elif node.command in expansion and "axes" in node.params and at.shape == symbol.shape:
                found = set(node.params["axes"])
                if found < axes:
                    return found
        return None


# -- behind all others -------------------------------------------------------------------------------------------------
class _Last:
    """Finds the nodes that can be last.

    Args:
        there: the symbols that stay in memory in any case.
    """

    def __init__(self, graph: Graph, there: set[Symbol]) -> None:
        self.graph, self.there = graph, there
        self.writers = {symbol: node for node in graph.nodes for symbol in node.outputs}
        self.readers: dict[Symbol, list[Node]] = {}
        for node in graph.nodes:
            for symbol in node.inputs:
                self.readers.setdefault(symbol, []).append(node)
        self.small: set[Symbol] = set()  # much smaller than an operand, or computed of such symbols and no larger
        given = set(graph.constants)
        for node in graph.nodes:
            is_view = node.command in alias
            if is_view and node.inputs[0] in given:
                given.update(node.outputs)
            most = max((hint(x.spec.size) for x in node.inputs), default=0) // _LESS
            if (is_view or node.command in scalar) and all(x in self.small or x in given for x in node.inputs):
                most = max([most, *(hint(x.spec.size) for x in node.inputs if x in self.small)])
            self.small.update(out for out in node.outputs if hint(out.spec.size) <= most)

    def nodes(self) -> set[Node]:
        """Returns all of them."""
        outputs = set(self.graph.outputs)
        read = {symbol.spec for node in self.graph.nodes for symbol in node.inputs}
        most = max([hint(spec.size) for spec in read], default=0) // _LESS
        found: set[Node] = set()
        for node in reversed(self.graph.nodes):
            (first, *others) = node.outputs or (None,)
            if first is None or others or not found.issuperset(self.readers.get(first, ())):
                continue
            if (first not in outputs or first.spec.size == 1) and _is_cheap(node, most):
                found.add(node)
        while True:  # a node that reads anything but small results stays, and so does each node that leads to it
            staying = {node for node in found if not self._may_be_last(node, found)}
            if not staying:
                return found
            found -= staying

    def _may_be_last(self, node: Node, found: set[Node]) -> bool:
        readers = self.readers.get(node.outputs[0], ())
        return found.issuperset(readers) and all(self._may_read(x, found) for x in node.inputs)

    def _may_read(self, symbol: Symbol, found: set[Node]) -> bool:
        if symbol in self.there:
            return True
        node = self.writers.get(symbol)
        if node is None:
            return False
        return node in found or symbol in self.small


def _is_cheap(node: Node, most: int) -> bool:
    """Whether a node is an elementwise command, a view or a sum of small tensors."""
    is_small = all(hint(symbol.spec.size) <= most for symbol in (*node.inputs, *node.outputs))
    return (
        is_small
        and node.command not in effect
        and (node.command in scalar or node.command in alias or node.command in reduction)
    )
