"""The base of passes that rewrite graphs with their sub-graphs."""

from __future__ import annotations

from abc import ABC, abstractmethod

from nnc.graph import Graph, Node, Symbol


class OncePerGraph(ABC):
    """Rewrites each graph once, since many nodes may share a sub-graph, which stays shared."""

    def __init__(self) -> None:
        self._known: dict[Graph, Graph] = {}

    def graph(self, graph: Graph) -> Graph:
        """Rewrites a graph, or returns the earlier result for it."""
        found = self._known.get(graph)
        if found is None:
            found = self._known[graph] = self.rewrite(graph)
        return found

    @abstractmethod
    def rewrite(self, graph: Graph) -> Graph:
        """The new graph; the graph itself where nothing changes."""

    def renew(self, node: Node, renamed: dict[Symbol, Symbol]) -> Node:
        """The node with rewritten sub-graphs and renamed inputs; the node itself where neither changes."""
        inputs, graphs = node.inputs, node.graphs
        if not graphs and renamed.keys().isdisjoint(inputs):
            return node
        inputs = tuple([renamed.get(symbol, symbol) for symbol in inputs])
        graphs = tuple(map(self.graph, graphs))
        return node if (inputs, graphs) == (node.inputs, node.graphs) else node.update(inputs=inputs, graphs=graphs)
