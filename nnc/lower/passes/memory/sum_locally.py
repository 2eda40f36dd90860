"""Sums within a process before its message, instead of after it: the message has fewer elements, or there are fewer messages."""

from __future__ import annotations

from nnc.base.options import Options
from nnc.commands.collective import psum
from nnc.commands.elementwise import add
from nnc.commands.properties import is_sum
from nnc.graph import Graph, Node, Symbol
from nnc.graph.remake import OncePerGraph, Remake, rewritten


def sum_locally(graph: Graph, options: Options) -> Graph:
    """Moves sums over axes, and of two values, in front of the sums of their operands over processes, if nothing else reads these.

    The gradient of a bias is the case in point: the bias is spread over the examples before it meets values that vary over the
    processes, so that the backward pass sums over the processes first. So is the gradient of a value that several weights read
    whose parts the processes hold: each of them has a sum of its own.

    Ensures: no sum over axes reads a sum over processes that it alone reads, and no sum of two reads two of them over the same
        processes, but for empty ones. The values differ by rounding.

    Example:
        a = psum(x); b = reduce_sum(a)             →  c = reduce_sum(x); b = psum(c)
        a = psum(x); b = psum(y); c = add(a, b)    →  d = add(x, y); c = psum(d)
    """
    return rewritten(graph, _Sums)


class _Sums(Remake):
    """`totals` has the node that sums over processes for each value that is such a sum, or that can be summed instead of its
    operands; `awaited` are these operands.
    """

    def __init__(self, passes: OncePerGraph, graph: Graph) -> None:
        super().__init__(passes, graph)
        self.totals: dict[Symbol, Node] = {}
        self.awaited: set[Symbol] = set()
        for node in graph.nodes:
            total = node if _is_message(node) else self._total(node)
            if total is not None:
                self.totals[node.outputs[0]] = total
                self.awaited.update(() if total is node else node.inputs)

    def _total(self, node: Node) -> Node | None:
        """Returns the sum over processes that a node can go through in place of its operands."""
        found = [self.totals.get(symbol) for symbol in node.inputs]
        first = found[0] if found else None
        if first is None or not (is_sum(node.command) or node.command is add):
            return None
        alone = all(self.reads[symbol] == 1 for symbol in node.inputs)
        alike = all(x is not None and x.inputs[1] is first.inputs[1] and x.params == first.params for x in found)
        return first if alone and alike else None

    def take(self, old: Node) -> None:
        """See the base."""
        self.old = old
        super().take(old)

    def new_form(self, node: Node) -> Symbol | None:
        """See the base."""
        total = self.totals.get(self.old.outputs[0]) if self.old.outputs else None
        waits = total is not None and self.old.outputs[0] in self.awaited
        if total is self.old or total is None:
            return node.inputs[0] if waits else None
        part = self.make(node.command.name, *node.inputs, **node.params)
        index = self.renamed.get(total.inputs[1], total.inputs[1])
        return part if waits else self.make("psum", part, index, **total.params)


def _is_message(node: Node) -> bool:
    """Whether a node sends elements to other processes and gets the sums. Of no elements a sum over axes has more."""
    return node.command is psum and bool(node.params.get("stride", 0) and node.outputs[0].spec.size)
