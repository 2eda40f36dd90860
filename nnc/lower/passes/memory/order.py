"""Orders nodes so that the fewest bytes are live."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import lru_cache
from itertools import islice

from nnc.base.dtypes import TAPE
from nnc.base.options import Options
from nnc.base.size import hint
from nnc.commands.control import PRINTED
from nnc.commands.rules import in_place_of
from nnc.graph import Graph, Node, Symbol, TensorSpec, register_pass
from nnc.graph.passes import Fact
from nnc.lower.alloc import ALIGNMENT
from nnc.lower.passes.simplify.dce import has_effect
from nnc.lower.plan.ordering import OperationGraph, improve_order
from nnc.lower.plan.stages import SymbolView
from nnc.lower.plan.views import find_views

_Numbers = tuple[int, ...]
_Row = tuple[_Numbers, _Numbers, tuple[tuple[int, int], ...]]  # reads, writes and overwrites of an operation
_NOTHING: _Row = (), (), ()


@register_pass("order", provides=("_description",), requires=[Fact.LAYOUT], ensures=[Fact.ORDERED])
def order(graph: Graph, options: Options) -> Graph:
    """Puts the nodes into an order whose largest live set is smaller, in sub-graphs, too.

    Memory that views share counts once, outputs of the graph and inputs count as memory that is there all the time; in an iteration
    of a loop, carried values end with their last reader. A node that can update a donated input in place follows the other readers
    of it. Nodes with effects keep their order, and no node of an iteration crosses the test.

    Requires: outputs have memory of their own.
    Provides: `_description`, which tells later passes the facts about memory found here.
    Ensures:  the largest live set is at most that of the given order, which stays where no better order is found.

    Example:
        a = f(x); b = f(y); c = sum(a); d = sum(b)  →  a = f(x); c = sum(a); b = f(y); d = sum(b)
    """
    description = Description.of_program(graph, options)
    return _Orderer().ordered(description).with_attrs(_description=description)


class ByIteration(ABC):
    """A pass that rewrites the iterations of loops, and branches, each once, since many nodes may share a sub-graph."""

    def __init__(self) -> None:
        self._known: dict[tuple[Graph, tuple[Symbol, ...], int], Graph] = {}

    @abstractmethod
    def iteration(self, graph: Graph, carried: tuple[Symbol, ...], before: int) -> Graph:
        """Rewrites a sub-graph; some of its inputs are carried, and its first nodes precede the test."""

    def inner(self, node: Node) -> Node:
        """Returns a node with its sub-graphs rewritten."""
        if not node.graphs or node.command in PRINTED:
            return node
        params = node.params
        # an iteration of a scan begins with its number and the elements
        first = 1 + params["xs"] if "xs" in params else 0
        graphs = []
        for graph in node.graphs:
            key = graph, graph.inputs[first : first + params.get("carries", 0)], params.get("before", 0)
            if key not in self._known:
                self._known[key] = self.iteration(*key)
            graphs.append(self._known[key])
        return node if tuple(graphs) == node.graphs else node.update(graphs=tuple(graphs))


class _Orderer(ByIteration):
    def ordered(self, description: Description) -> Graph:
        """Returns a graph in its new order."""
        graph = description.graph
        order = (description.entries[i] for i in improve_order(description.operations()))
        nodes = tuple(self.inner(node) for node in order if node is not None)
        return graph if nodes == graph.nodes else graph.update(nodes=nodes)

    def iteration(self, graph: Graph, carried: tuple[Symbol, ...], before: int) -> Graph:
        """See the base."""
        return self.ordered(Description(graph, carried=carried, before=before))


class Description:
    """A graph as operations on storages.

    Args:
        donated: the inputs that may be overwritten.
        free: the symbols whose memory is not part of the arena.
        carried: the inputs that die with their last reader.
        before: the number of nodes that must stay in front of the others.
        known: the description of an earlier form of the graph, called with the same inputs; the symbols that both graphs have
            lie in the same places.
    """

    def __init__(
        self,
        graph: Graph,
        *,
        donated: set[Symbol] | None = None,
        free: Sequence[Symbol] = (),
        carried: Sequence[Symbol] = (),
        before: int = 0,
        known: Description | None = None,
    ) -> None:
        self.views: dict[Symbol, SymbolView] = find_views(graph, known.views if known is not None else {})
        self.graph, self.donated, self.carried = graph, donated or set(), carried
        self.free = {self.views[symbol].base for symbol in free}
        self.number: dict[Symbol, int] = dict(known.number) if known is not None else {}  # of each symbol's tensor
        self._nbytes: list[int] = list(known._nbytes) if known is not None else []
        self._rows: dict[Node, _Row] = known._rows if known is not None else {}
        self._number_storages()
        # an entry that is no node begins the iteration, another stands for the test
        self.entries: list[Node | None] = [None, *graph.nodes[:before], None, *graph.nodes[before:]]

    @classmethod
    def of_program(cls, graph: Graph, options: Options, known: Description | None = None) -> Description:
        """Returns the description of a program's graph."""
        return cls(graph, donated={graph.inputs[i] for i in options.donated}, free=graph.outputs, known=known)

    def _number_storages(self) -> None:
        number, nbytes, free = self.number, self._nbytes, self.free
        for symbol, view in islice(self.views.items(), len(number), None):  # known symbols come first
            if view.base is symbol:
                number[symbol] = len(nbytes)
                nbytes.append(0 if symbol in free else hint(padded_bytes(symbol.spec)))
            else:
                number[symbol] = number[view.base]

    def operations(self, *, stay: bool = False) -> OperationGraph:
        """Returns the entries as operations; if they `stay` where they are, without the operations that each must follow."""
        return self._operations([()] * len(self.entries) if stay else self._after())

    def live_bytes(self) -> list[int]:
        """Returns the bytes that are live while each entry runs, in the given order."""
        return self.operations(stay=True).live_bytes(range(len(self.entries)))

    def _operations(self, after: list[tuple[int, ...]]) -> OperationGraph:
        known = self._rows
        rows = [known.get(node) or self._row(node) if node is not None else _NOTHING for node in self.entries]
        rows[0] = (), tuple(self.number[s] for s in self.carried), ()
        reads, writes, overwrites = zip(*rows, strict=True)
        kept = frozenset(self.number[s] for s in self.graph.outputs)
        return OperationGraph(self._nbytes, reads, writes, after, overwrites, kept)

    def _row(self, node: Node) -> _Row:
        """Returns the storages that a node reads and writes, and the pairs of them that may share memory; none for a view."""
        number, views, free, outputs = self.number, self.views, self.free, node.outputs
        writes = tuple([number[s] for s in outputs if views[s].base is s])
        row = _NOTHING
        if writes or not outputs:
            reads = tuple([number[s] for s in node.inputs])
            pairs = [(view.base, output) for view, output in overwritable(node, views)]
            row = reads, writes, tuple([(number[a], number[b]) for a, b in pairs if (a in free) == (b in free)])
        self._rows[node] = row
        return row

    def _after(self) -> list[tuple[int, ...]]:
        """Returns for each entry the entries that it follows, beside the writers of the memory that it reads."""
        views, donated = self.views, self.donated
        tapes = {symbol for symbol in views if symbol.spec.dtype == TAPE}
        writer: dict[Symbol, int] = {}
        readers: dict[Symbol, list[int]] = {}
        updater: dict[Symbol, int] = {}
        last_effect = start = 0
        result: list[tuple[int, ...]] = []
        for i, node in enumerate(self.entries):
            if node is None:
                result.append(tuple(range(i)))
                start = i
                continue
            after = [start, *[writer[s] for s in node.inputs if s in writer]]
            if has_effect(node) or (tapes and not tapes.isdisjoint((*node.inputs, *node.outputs))):
                after.append(last_effect)
                last_effect = i
            given = donated.intersection([views[s].base for s in node.inputs]) if donated else ()
            for base in given:
                readers.setdefault(base, []).append(i)
                updater.pop(base, None)
            if given:
                updater |= {view.base: i for view, _ in overwritable(node, views) if view.base in given}
            for s in node.outputs:
                writer[s] = i
            result.append(tuple(after))
        for base, i in updater.items():  # the last reader in the given order, so this makes no circle
            result[i] = (*result[i], *(j for j in readers[base] if j < i))
        return result


@lru_cache(maxsize=1 << 12)
def padded_bytes(spec: TensorSpec) -> int:
    """Returns the bytes that a tensor takes of the arena."""
    return 0 if spec.dtype == TAPE else -(-spec.nbytes // ALIGNMENT) * ALIGNMENT


def overwritable(node: Node, views: dict[Symbol, SymbolView]) -> list[tuple[SymbolView, Symbol]]:
    """Returns pairs of an input of `node` and an output that may take over the input's whole memory."""
    found: list[tuple[SymbolView, Symbol]] = []
    pairs = in_place_of(node.command, node.params).overwrite
    if not pairs:
        return found
    inputs, outputs = node.inputs, node.outputs
    for i, j in pairs:
        if i < len(inputs) and j < len(outputs):
            view, output = views[inputs[i]], outputs[j]
            x, y = view.spec, output.spec
            fits = x is y or (x.shape == y.shape and x.dtype.itemsize == y.dtype.itemsize)
            if fits and views[output].base is output and (view.base is inputs[i] or view.is_whole):
                found.append((view, output))
    return found
