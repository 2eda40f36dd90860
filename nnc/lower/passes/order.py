"""Runs nodes in the order that keeps the fewest bytes live."""

from __future__ import annotations

from collections.abc import Sequence

from nnc.commands.rules import in_place_facts
from nnc.dtypes import TAPE
from nnc.graph import Graph, Node, Symbol, register_pass
from nnc.lower.alloc import ALIGNMENT
from nnc.lower.passes.dce import has_effect
from nnc.lower.scheduling import OperationGraph, improve_order
from nnc.lower.stages import SymbolView
from nnc.lower.views import find_views, runs
from nnc.options import Options


@register_pass("order")
def order(graph: Graph, options: Options) -> Graph:
    """Puts the nodes into an order whose largest live set is smaller, in sub-graphs, too.

    What views share counts once, outputs of the graph and inputs count as memory that is there all the time; in a round of a
    loop, carried values end with their last reader. A node that can update a donated input in place follows the other readers
    of it. Nodes with effects keep their order, and no node of a round crosses the test.

    Requires: later passes keep the order; outputs have memory of their own.
    Ensures:  the largest live set is at most that of the given order, which stays where nothing better is found.
    Example:  a = f(x); b = f(y); c = sum(a); d = sum(b)  →  a = f(x); c = sum(a); b = f(y); d = sum(b)
    """
    return _Orderer(options.donated).top(graph)


class _Orderer:
    """One run of the pass; remembers each sub-graph's form, since many nodes may share a sub-graph."""

    def __init__(self, donated: Sequence[int]) -> None:
        self.donated = donated
        self.known: dict[tuple[Graph, tuple[Symbol, ...], int], Graph] = {}

    def top(self, graph: Graph) -> Graph:
        """The ordered form of the graph that is called."""
        donated = {graph.inputs[i] for i in self.donated}
        return _with_nodes(graph, self._ordered(Description(graph, donated=donated, free=graph.outputs)))

    def round(self, graph: Graph, carried: slice, before: int) -> Graph:
        """The ordered form of a sub-graph, some inputs of which are carried and the first nodes of which precede the test."""
        key = graph, graph.inputs[carried], before
        if key not in self.known:
            description = Description(graph, carried=key[1], before=before)
            self.known[key] = _with_nodes(graph, self._ordered(description))
        return self.known[key]

    def _ordered(self, description: Description) -> tuple[Node, ...]:
        nodes = (description.entries[i] for i in improve_order(description.operations()))
        return tuple(self._inner(node) for node in nodes if node is not None)

    def _inner(self, node: Node) -> Node:
        params = node.params
        first = 1 + params["xs"] if "xs" in params else 0  # a round of a scan begins with its number and the elements
        carried = slice(first, first + params.get("carries", 0))
        graphs = tuple(self.round(graph, carried, params.get("before", 0)) for graph in node.graphs)
        return node if graphs == node.graphs else node.update(graphs=graphs, params=params)


class Description:
    """A graph as operations on storages.

    Args:     donated: inputs that may be overwritten. free: symbols whose memory is no part of the arena. carried: inputs that
              end with their last reader. before: how many nodes must stay in front of the others.
    """

    def __init__(
        self,
        graph: Graph,
        *,
        donated: set[Symbol] | None = None,
        free: Sequence[Symbol] = (),
        carried: Sequence[Symbol] = (),
        before: int = 0,
    ) -> None:
        self.views = find_views(graph)
        self.graph, self.donated, self.carried = graph, donated or set(), carried
        self.free = {self.views[symbol].base for symbol in free}
        self.number = {s: i for i, s in enumerate(s for s in graph.symbols() if self.views[s].base is s)}  # of storages
        # an entry that is no node begins the round, another stands for the test
        self.entries: list[Node | None] = [None, *graph.nodes[:before], None, *graph.nodes[before:]]
        self.test = before + 1

    def operations(self) -> OperationGraph:
        """The entries as operations."""
        return self._operations(self._after())

    def live_bytes(self) -> list[int]:
        """The bytes that are live while each entry runs, in the given order."""
        return self._operations([()] * len(self.entries)).live_bytes(range(len(self.entries)))

    def _operations(self, after: list[tuple[int, ...]]) -> OperationGraph:
        views, number = self.views, self.number
        nbytes = [
            0 if s in self.free or s.dtype == TAPE else -(-s.spec.nbytes // ALIGNMENT) * ALIGNMENT for s in number
        ]
        reads: list[tuple[int, ...]] = []
        writes: list[tuple[int, ...]] = []
        overwrites: list[tuple[tuple[int, int], ...]] = []
        for node in self.entries:
            touches = node is not None and runs(node, views)
            reads.append(tuple(number[views[s].base] for s in node.inputs) if node is not None and touches else ())
            written = node.outputs if node is not None else self.carried if not writes else ()
            writes.append(tuple(number[s] for s in written if s in number))
            overwrites.append(self._overwrites(node) if node is not None else ())
        kept = frozenset(number[views[s].base] for s in self.graph.outputs)
        return OperationGraph(nbytes, reads, writes, after, overwrites, kept)

    def _overwrites(self, node: Node) -> tuple[tuple[int, int], ...]:
        return tuple(
            (self.number[view.base], self.number[output])
            for view, output in overwritable(node, self.views)
            if (view.base in self.free) == (output in self.free)
        )

    def _after(self) -> list[tuple[int, ...]]:
        """For each entry those that it follows, beside the writers of the memory that it reads."""
        writer: dict[Symbol, int] = {}
        readers: dict[Symbol, list[int]] = {}
        updater: dict[Symbol, int] = {}
        last_effect = 0
        result: list[tuple[int, ...]] = []
        for i, node in enumerate(self.entries):
            if node is None:
                result.append(tuple(range(i)))
                continue
            after = [0 if i < self.test else self.test, *(writer[s] for s in node.inputs if s in writer)]
            if has_effect(node) or any(s.dtype == TAPE for s in (*node.inputs, *node.outputs)):
                after.append(last_effect)
                last_effect = i
            for symbol in node.inputs:
                base = self.views[symbol].base
                if base in self.donated:
                    readers.setdefault(base, []).append(i)
                    updater.pop(base, None)
            if self.donated:
                updater |= {view.base: i for view, _ in overwritable(node, self.views) if view.base in self.donated}
            writer |= dict.fromkeys(node.outputs, i)
            result.append(tuple(after))
        for base, i in updater.items():  # the last reader in the given order, so this makes no circle
            result[i] = (*result[i], *(j for j in readers[base] if j < i))
        return result


def overwritable(node: Node, views: dict[Symbol, SymbolView]) -> list[tuple[SymbolView, Symbol]]:
    """The inputs of `node` whose whole memory may become that of an output, and that output."""
    found: list[tuple[SymbolView, Symbol]] = []
    pairs = in_place_facts(node.command, node.params).overwrite
    for i, j in pairs:
        if i < len(node.inputs) and j < len(node.outputs):
            view, output = views[node.inputs[i]], node.outputs[j]
            fits = view.spec.shape == output.spec.shape and view.spec.dtype.itemsize == output.spec.dtype.itemsize
            if fits and views[output].base is output and view.is_whole:
                found.append((view, output))
    return found


def _with_nodes(graph: Graph, nodes: tuple[Node, ...]) -> Graph:
    return graph if nodes == graph.nodes else graph.update(nodes=nodes)
