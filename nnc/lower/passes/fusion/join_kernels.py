"""Makes one launch of many small kernels that compute the same: an optimizer's step over all parameters of a model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from nnc.commands.control import PRINTED, fused, fused_many
from nnc.graph import Graph, Node, Symbol, register_pass
from nnc.lower.alloc import ALIGNMENT
from nnc.lower.kernels.kernel_ir import flat_key
from nnc.lower.passes.memory.order import Description
from nnc.lower.plan.stages import new_view
from nnc.lower.plan.views import runs
from nnc.options import Options

_KEPT = 1 << 16  # bytes that one kernel may keep from being free until the last one runs
_PEAK = 100  # of the peak of memory, the part by which waiting kernels may raise it
_MEMBERS = 512  # kernels of a node; a table of their operands lies on the stack


@register_pass("join_kernels")
def join_kernels(graph: Graph, options: Options) -> Graph:
    """Makes one `fused_many` node of `fused` nodes that do the same to every element of tensors of any length, in sub-graphs, too.

    A kernel waits for others like it until a node reads one of its results, or one of its operands (whose last reader may
    overwrite it). Waiting keeps operands from being free: that may hardly raise the peak, and large ones should still be in the
    cache.

    Requires: the order of the nodes is the one that will run.
    Ensures:  the same values, bit for bit; the largest live set grows by a hundredth at most.

    Example:
        p = fused(a) {sgd}; x = dot(b, c); q = fused(x) {sgd}  →  x = dot(b, c); p, q = fused_many(a, x) {sgd, sgd}
    """
    return _Joiner().graph(graph, free=graph.outputs) if options.native else graph


class _Joiner:
    """One run of the pass; remembers each sub-graph's form, since many nodes may share a sub-graph."""

    def __init__(self) -> None:
        self._known: dict[tuple[Graph, int], Graph] = {}

    def graph(self, graph: Graph, before: int = 0, free: Sequence[Symbol] = ()) -> Graph:
        """The form of a graph, the first nodes of which stay in front of the others; `free` have memory outside the arena."""
        key = graph, before
        if key not in self._known:
            nodes = tuple(map(self._inner, graph.nodes))
            graph = graph if nodes == graph.nodes else graph.update(nodes=nodes)
            self._known[key] = _Waiting(graph, free).result(before)
        return self._known[key]

    def _inner(self, node: Node) -> Node:
        if not node.graphs or node.command in PRINTED:
            return node
        graphs = tuple(self.graph(graph, node.params.get("before", 0)) for graph in node.graphs)
        return node if graphs == node.graphs else node.update(graphs=graphs)


@dataclass(eq=False)
class _Group:
    """Kernels that wait for others like them: the memory that they touch, single values apart, and the bytes kept for them."""

    members: list[Node] = field(default_factory=list)
    touches: set[Symbol] = field(default_factory=set)
    nbytes: int = 0


class _Waiting:
    """Goes through the nodes of a graph and puts kernels off."""

    def __init__(self, graph: Graph, free: Sequence[Symbol]) -> None:
        self.graph = graph
        self.description: Description = Description(graph, free=free, known=graph.attrs.get("_description"))
        self.views = self.description.views
        # symbols that live all the time, so that it does not matter when they are read
        self.lasting = {*graph.inputs, *graph.constants, *(self.views[s].base for s in graph.outputs)}
        self.groups: dict[Any, _Group] = {}
        self.touched: dict[Symbol, Any] = {}  # the key of the group that touches it
        self.results: set[Symbol] = set()  # of kernels that were put off
        self.waiting = 0  # bytes that are kept for all groups
        self.nodes: list[Node] = []

    def result(self, before: int) -> Graph:
        """The graph of the joined kernels."""
        keys = [self._key(node) for node in self.graph.nodes]
        joinable = [key for key in keys if key is not None]
        if len(set(joinable)) == len(joinable):
            return self.graph
        entries = len(self.description.entries)
        live = self.description.live_bytes()
        most = max(live) + max(live) // _PEAK
        for position, (node, key) in enumerate(zip(self.graph.nodes, keys, strict=True)):
            if position == before or live[entries - len(keys) + position] + self.waiting > most:
                self._run(self.groups)
            bases = self._bases(node.inputs)
            if not runs(node, self.views):  # a view of a symbol that is known by then
                bases &= self.results
            self._run({self.touched[base] for base in bases if base in self.touched})
            nbytes = _bytes(bases - self.lasting)
            if key is None or nbytes > _KEPT:
                self.nodes.append(node)
            else:
                self._put_off(node, key, bases, nbytes)
        self._run(self.groups)
        return self.graph.update(nodes=tuple(self.nodes))

    def _key(self, node: Node) -> Any:
        """Returns a key that is equal for kernels that can be joined; None where a node is none of them."""
        if node.command is not fused:
            return None
        views = [self.views[symbol] for symbol in (*node.inputs, *node.outputs)]
        return flat_key(node.graphs[0], [new_view(0, view.spec, view.offset, view.strides, ()) for view in views])

    def _bases(self, symbols: Iterable[Symbol]) -> set[Symbol]:
        """The memory that symbols lie in, single values apart, which kernels share."""
        return {base for s in symbols if (base := self.views[s].base).spec.size > 1}

    def _put_off(self, node: Node, key: Any, bases: set[Symbol], nbytes: int) -> None:
        group = self.groups.setdefault(key, _Group())
        group.members.append(node)
        group.touches |= {*bases, *node.outputs}
        self.results.update(node.outputs)
        group.nbytes += nbytes
        self.waiting += nbytes
        self.touched |= dict.fromkeys(group.touches, key)
        if len(group.members) == _MEMBERS:
            self._run([key])

    def _run(self, keys: Iterable[Any]) -> None:
        """Lets groups wait no longer."""
        for key in list(keys):
            group = self.groups.pop(key)
            self.waiting -= group.nbytes
            for base in group.touches:
                del self.touched[base]
            self.nodes.append(_joined(group.members))


def _bytes(symbols: Iterable[Symbol]) -> int:
    return sum(-(-symbol.spec.nbytes // ALIGNMENT) * ALIGNMENT for symbol in symbols)


def _joined(members: Sequence[Node]) -> Node:
    """One node for kernels that have nothing to do with one another."""
    if len(members) == 1:
        return members[0]
    pairs: list[tuple[int, int]] = []
    inputs: list[Symbol] = []
    outputs: list[Symbol] = []
    for member in members:
        pairs += ((len(inputs) + i, len(outputs) + j) for i, j in member.params["overwrite"])
        inputs += member.inputs
        outputs += member.outputs
    params = MappingProxyType({"overwrite": tuple(pairs)})
    graphs = tuple(member.graphs[0] for member in members)
    return Node(fused_many, tuple(inputs), tuple(outputs), params, graphs, members[-1].source)
