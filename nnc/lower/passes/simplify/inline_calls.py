"""Replaces calls (column `inlines`) by the nodes of the graph that they call, in sub-graphs, too.

A call may be a barrier (its nodes recompute existing values, on purpose). Barriers are inlined by a pass of their
own, which runs after equal nodes have been merged; until then nothing sees into them.
"""

from __future__ import annotations

from nnc.base.options import Options
from nnc.commands.control import inlines, isolated
from nnc.graph import Graph, Node, Symbol, register_pass
from nnc.graph.passes import Fact
from nnc.graph.remake import OncePerGraph, append_copy


@register_pass("inline_calls", ensures=[Fact.INLINED])
def inline_calls(graph: Graph, options: Options) -> Graph:
    """Inlines calls that are no barriers.

    Ensures: no node is a call without `barrier`, at any depth.

    Example:
        y = call(x) {square(%0): mul(%0, %0)}  →  y = mul(x, x)
    """
    return _Inliner(barriers=False).graph(graph)


@register_pass("inline_barriers", requires=[Fact.INLINED], ensures=[Fact.NO_CALLS], invalidates=[Fact.BARRIERS])
def inline_barriers(graph: Graph, options: Options) -> Graph:
    """Inlines all calls, but for those that stay apart until steps are made.

    Ensures: no node is a call, at any depth.

    Example:
        y = call(x) {barrier=True} {square(%0): mul(%0, %0)}  →  y = mul(x, x)
    """
    return _Inliner(barriers=True).graph(graph)


class _Inliner(OncePerGraph):
    def __init__(self, barriers: bool) -> None:
        super().__init__()
        self.barriers = barriers

    def rewrite(self, graph: Graph) -> Graph:
        """`graph` with its calls inlined; the graph itself where there are none."""
        replaced: dict[Symbol, Symbol] = {}
        constants = dict(graph.constants)
        nodes: list[Node] = []
        changed = False
        for node in graph.nodes:
            new = self.renew(node, replaced)
            if self._is_inlined(node):
                changed = True
                outputs = append_copy(new.graphs[0], new.inputs, nodes, constants)
                replaced.update(zip(node.outputs, outputs, strict=True))
            else:
                changed |= new is not node
                nodes.append(new)
        if not changed:
            return graph
        outputs = tuple(replaced.get(symbol, symbol) for symbol in graph.outputs)
        return graph.update(nodes=tuple(nodes), outputs=outputs, constants=constants)

    def _is_inlined(self, node: Node) -> bool:
        if not inlines.get(node.command, False) or node.command is isolated:
            return False
        return self.barriers or not node.params.get("barrier", False)
