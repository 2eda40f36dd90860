"""Replaces calls (column `inlines`) by the nodes of the graph that they call, in sub-graphs, too.

A call may be a barrier (its nodes recompute existing values, on purpose). Barriers are inlined by a pass of their
own, which runs after equal nodes have been merged; until then nothing sees into them.
"""

from __future__ import annotations

from functools import partial

from nnc.base.options import Options
from nnc.commands.control import inlines, isolated
from nnc.graph import Graph, Node, register_pass
from nnc.graph.passes import Fact
from nnc.graph.remake import NewGraph, OncePerGraph, append_copy, rewritten


@register_pass("inline_calls", ensures=[Fact.INLINED])
def inline_calls(graph: Graph, options: Options) -> Graph:
    """Inlines calls that are no barriers.

    Ensures: no node is a call without `barrier`, at any depth.

    Example:
        y = call(x) {square(%0): mul(%0, %0)}  →  y = mul(x, x)
    """
    return rewritten(graph, partial(_Inlined, barriers=False))


@register_pass("inline_barriers", requires=[Fact.INLINED], ensures=[Fact.NO_CALLS], invalidates=[Fact.BARRIERS])
def inline_barriers(graph: Graph, options: Options) -> Graph:
    """Inlines all calls, but for those that stay apart until steps are made.

    Ensures: no node is a call, at any depth.

    Example:
        y = call(x) {barrier=True} {square(%0): mul(%0, %0)}  →  y = mul(x, x)
    """
    return rewritten(graph, partial(_Inlined, barriers=True))


class _Inlined(NewGraph):
    def __init__(self, passes: OncePerGraph, graph: Graph, *, barriers: bool) -> None:
        super().__init__(passes, graph)
        self.barriers = barriers

    def add(self, node: Node) -> None:
        """See the base."""
        if self._is_inlined(node):
            outputs = append_copy(node.graphs[0], node.inputs, self.nodes, self.constants)
            self.renamed.update(zip(node.outputs, outputs, strict=True))
        else:
            self.nodes.append(node)

    def _is_inlined(self, node: Node) -> bool:
        if not inlines.get(node.command, False) or node.command is isolated:
            return False
        return self.barriers or not node.params.get("barrier", False)
