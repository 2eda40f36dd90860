"""Sums within a process before its message, instead of after it: the message has fewer elements."""

from __future__ import annotations

from nnc.commands.collective import by_elements, psum
from nnc.commands.facts import is_sum
from nnc.graph import Graph, Node, Symbol, register_pass
from nnc.lower.passes.once import OncePerGraph
from nnc.lower.passes.remake import Remake
from nnc.options import Options


@register_pass("sum_locally", concerns=by_elements)
def sum_locally(graph: Graph, options: Options) -> Graph:
    """Moves sums over axes of a tensor in front of the sum of that tensor over processes, if nothing else reads the latter.

    The gradient of a bias is the case in point: the bias is spread over the examples before it meets values that vary over the
    processes, so that the backward pass sums over the processes first.

    Requires: `pvary` nodes are gone.
    Ensures:  no sum over axes reads a sum over processes that it alone reads, but for empty ones. The values differ by rounding.

    Example:
        a = psum(x); b = reduce_sum(a)  →  c = reduce_sum(x); b = psum(c)
    """
    return _SumsLocally().graph(graph)


class _SumsLocally(OncePerGraph):
    def rewrite(self, graph: Graph) -> Graph:
        return _Sums(self, graph).result()


class _Sums(Remake):
    """`awaited`: the sum over processes that a value has yet to go through, of values that sums over axes alone read."""

    def __init__(self, passes: OncePerGraph, graph: Graph) -> None:
        super().__init__(passes, graph)
        self.awaited: dict[Symbol, Node] = {}
        readers = dict[Symbol, list[Node | None]]()
        for node in graph.nodes:
            for symbol in node.inputs:
                readers.setdefault(symbol, []).append(node)
        for symbol in graph.outputs:
            readers.setdefault(symbol, []).append(None)
        for node in graph.nodes:
            total = node if _is_message(node) else self._total(node)
            read_by = readers.get(node.outputs[0], []) if total is not None else []
            if total is not None and len(read_by) == 1 and read_by[0] is not None and is_sum(read_by[0].command):
                self.awaited[node.outputs[0]] = total

    def _total(self, node: Node) -> Node | None:
        return self.awaited.get(node.inputs[0]) if is_sum(node.command) else None

    def add(self, old: Node) -> bool:
        """See the base."""
        self.old = old
        return super().add(old)

    def new_form(self, node: Node) -> Symbol | None:
        """See the base."""
        waits = self.old.outputs[0] in self.awaited if self.old.outputs else False
        total = self._total(self.old)
        if total is None:
            return node.inputs[0] if waits else None
        part = self.make(node.command.name, *node.inputs, **node.params)
        index = self.renamed.get(total.inputs[1], total.inputs[1])
        return part if waits else self.make("psum", part, index, **total.params)


def _is_message(node: Node) -> bool:
    """Whether a node sends elements to other processes and gets the sums. Of no elements a sum over axes has more."""
    return node.command is psum and bool(node.params.get("stride", 0) and node.outputs[0].spec.size)
