"""Computes commands for which a device has no kernel of its own by other commands."""

from __future__ import annotations

from nnc.base.options import Options
from nnc.commands.rules import decomposition
from nnc.graph import Graph, GraphBuilder, Node
from nnc.graph.remake import NewGraph, rewritten


def decompose(graph: Graph, options: Options) -> Graph:
    """Computes commands with the column `decomposition` by others on devices other than the CPU, in sub-graphs, too.

    There a library's product and printed kernels are launched with all other kernels; the command's reference would run from
    Python. Operands and results without elements stay with the command.

    Ensures: the same values up to rounding.

    Example:
        y, l = attention(q, k, v)  →  s = dot(q, k); w = exp(s - max(s)); y = dot(w, v) / sum(w); …
    """
    return rewritten(graph, _Decomposed)


class _Decomposed(NewGraph):
    def add(self, node: Node) -> None:
        """See the base."""
        part = _part(node) if node.command in decomposition else None
        if part is None:
            self.nodes.append(node)
            return
        self.renamed.update(zip(node.outputs, part.outputs, strict=True))
        self.constants |= part.constants
        self.nodes += [inner.update(source=node.source) for inner in part.nodes]


def _part(node: Node) -> Graph | None:
    """Returns the commands that replace a node and read its inputs; None where the node stays."""
    if any(0 in symbol.shape for symbol in (*node.inputs, *node.outputs)):
        return None
    builder = GraphBuilder()
    stands = {builder.input(symbol.spec): symbol for symbol in node.inputs}
    with builder:
        found = decomposition[node.command](*stands, **node.params)
    if found is None:
        return None
    part = builder.build(*found)
    nodes = [inner.update(inputs=tuple(stands.get(s, s) for s in inner.inputs)) for inner in part.nodes]
    outputs = tuple(stands.get(s, s) for s in part.outputs)
    return part.update(inputs=node.inputs, nodes=tuple(nodes), outputs=outputs)
