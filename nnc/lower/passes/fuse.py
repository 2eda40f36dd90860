"""Puts elementwise commands and reductions that go over the same elements into one kernel, so that memory is gone over once."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import nnc.commands.normalize  # noqa: F401  (its commands have expansions)
from nnc.commands.control import PRINTED, fused
from nnc.commands.rules import effect, expansion
from nnc.graph import Graph, GraphBuilder, Node, Symbol, register_pass
from nnc.graph.graph import NDArray
from nnc.lower.codegen.builder import has_code
from nnc.lower.codegen.domain import (
    GATHER,
    UNIT,
    VIEWS,
    Domain,
    Phases,
    can_fuse,
    has_better_kernel,
    is_reduction,
    is_view,
    overwrites,
)
from nnc.lower.passes.at_readers import key_of, repeated
from nnc.options import Options

_NODES = 96  # in one kernel: a longer one spills registers and takes long to compile
_OPERANDS = 32
ROW = 1 << 15  # elements of a row that is gone through in several phases: more would not stay in the cache
COLUMN = 1 << 10  # the same for rows across memory, many of which are gone through at once
_AS_THEY_ARE = (*VIEWS, "full")  # outside of kernels
_SMALL = 64  # nodes in between that make this part of what a group makes do not matter
_SIBLINGS = 4  # how many earlier readers of an operand are tried


@register_pass("fuse")
def fuse(graph: Graph, options: Options) -> Graph:
    """Makes one `fused` node of neighbours in the order that share an iteration space, in sub-graphs, too.

    A node joins those that write or read its operands, if all of them can run where it stands: nobody else needs their results
    before. Views and constants between them, and what costs nothing to make (`full`, `iota`), are taken along; so are they for
    every other reader. Softmax and its relatives are taken apart into what they are computed from first.

    Requires: the order of the nodes is the one that will run, up to small moves.
    Ensures:  the same values up to rounding of sums; every command that a printed kernel can run stands in a `fused` node.
    Example:  y = exp(x); z = mul(y, y)  →  z = fused(x) {fused(%0): …}
    """
    return _Fuser(options.compact).graph(graph) if options.native else graph


class _Fuser:
    """One run of the pass; remembers each sub-graph's form, since many nodes may share a sub-graph."""

    def __init__(self, compact: bool) -> None:
        self.compact = compact
        self._known: dict[tuple[Graph, int], Graph] = {}

    def graph(self, graph: Graph, before: int = 0) -> Graph:
        """The fused form of a graph, the first nodes of which stay in front of the others."""
        key = graph, before
        if key not in self._known:
            expanded, early = _expanded(graph, before)
            self._known[key] = _Grouping(expanded, early, self).result()
        return self._known[key]

    def inner(self, node: Node) -> Node:
        """A node with its sub-graphs fused."""
        if not node.graphs or node.command in PRINTED:
            return node
        before = node.params.get("before", 0) if node.command.name == "while" else 0
        return node.update(graphs=tuple(self.graph(graph, before) for graph in node.graphs))


def _expanded(graph: Graph, before: int) -> tuple[Graph, int]:
    """The graph with commands taken apart that have an expansion, and how many nodes are in front by then."""
    if not any(node.command in expansion for node in graph.nodes):
        return graph, before
    nodes: list[Node] = []
    constants: dict[Symbol, NDArray] = dict(graph.constants)
    renamed: dict[Symbol, Symbol] = {}
    early = before
    for position, node in enumerate(graph.nodes):
        node = node.update(inputs=tuple(renamed.get(s, s) for s in node.inputs))
        start = len(nodes)
        if node.command in expansion and _is_taken_apart(node):
            builder = GraphBuilder()
            inputs = [builder.input(s.spec) for s in node.inputs]
            with builder:
                out = expansion[node.command](*inputs, **node.params)
            part = builder.build(out)
            stands = dict(zip(part.inputs, node.inputs, strict=True)) | {part.outputs[0]: node.outputs[0]}
            constants.update(part.constants)
            for inner in part.nodes:
                reads = tuple(stands.get(s, s) for s in inner.inputs)
                writes = tuple(stands.get(s, s) for s in inner.outputs)
                nodes.append(Node(inner.command, reads, writes, inner.params, source=node.source))
        else:
            nodes.append(node)
        if position < before:
            early += len(nodes) - start - 1
    return graph.update(nodes=tuple(nodes), constants=constants), early


def _is_taken_apart(node: Node) -> bool:
    return all(has_code(s.dtype) and 0 not in s.shape for s in node.inputs) and not has_better_kernel(node)


@dataclass(eq=False)
class _Group:
    """Nodes that become one kernel: those that compute, and in `taken` what they take along."""

    domain: Domain
    nodes: list[int]
    taken: set[Node] = field(default_factory=set)

    @property
    def last(self) -> int:
        """The position at which it runs."""
        return self.nodes[-1]


class _Grouping:
    """The groups of one graph."""

    def __init__(self, graph: Graph, early: int, fuser: _Fuser) -> None:
        self.graph, self.early, self.fuser = graph, early, fuser
        self.writer = {symbol: node for node in graph.nodes for symbol in node.outputs}
        self.position = {node: i for i, node in enumerate(graph.nodes)}
        self.fusable = [can_fuse(node) for node in graph.nodes]
        self.small = {s for s, value in graph.constants.items() if value.size == 1 and has_code(s.dtype)}
        self.group: list[_Group | None] = [None] * len(graph.nodes)
        self.single: int | None = None  # the last node that computes a single value
        self.repeated = repeated(graph)  # copies go with their reader, not with others that read the same
        self.readers: dict[Symbol, list[int]] = {}  # the nodes that compute with a symbol, directly or through views
        self.lasting = {self.root(symbol) for symbol in graph.outputs}
        for i, node in enumerate(graph.nodes):
            if not self.is_free(node):
                for root in {self.root(symbol) for symbol in node.inputs}:
                    self.readers.setdefault(root, []).append(i)

    # -- what stands where ---------------------------------------------------------------------------------------------

    def is_free(self, node: Node) -> bool:
        """Whether a node costs nothing within a kernel, so that every kernel may have it."""
        return self.fusable[self.position[node]] and (is_view(node) or not node.inputs)

    def root(self, symbol: Symbol) -> Symbol:
        """What a symbol is a view of."""
        node = self.writer.get(symbol)
        while node is not None and is_view(node) and self.fusable[self.position[node]]:
            symbol = node.inputs[0]
            node = self.writer.get(symbol)
        return symbol

    def chain(self, symbol: Symbol) -> list[Node]:
        """The free nodes from the root of a symbol to it."""
        found: list[Node] = []
        node = self.writer.get(symbol)
        while node is not None and self.is_free(node):
            found.append(node)
            if not node.inputs:
                break
            node = self.writer.get(node.inputs[0])
        return found[::-1]

    def group_of(self, symbol: Symbol) -> _Group | None:
        """The group that writes what a symbol is a view of."""
        node = self.writer.get(self.root(symbol))
        return self.group[self.position[node]] if node is not None else None

    # -- grouping ------------------------------------------------------------------------------------------------------

    def result(self) -> Graph:
        """The graph of the groups."""
        for i, node in enumerate(self.graph.nodes):
            if self.fusable[i] and not self.is_free(node):
                self._place(i, node)
        return _Rebuilt(self).graph()

    def _place(self, i: int, node: Node) -> None:
        group = self._alone(i, node, with_free=True) or self._alone(i, node, with_free=False)
        if group is None:
            self.fusable[i] = False
            return
        self.group[i] = group
        tried: list[_Group] = []
        for other in self._candidates(i, node):
            if not any(other is x for x in (*tried, self.group[i])):
                tried.append(other)
                self._merge(other, i)
        if node.outputs[0].spec.size == 1:
            self.single = i

    def _alone(self, i: int, node: Node, with_free: bool) -> _Group | None:
        """A group of one node and, `with_free`, what it reads of small constants and of what is made from nothing; None where that
        does not fit."""
        group = _Group(Domain(), [i])
        for symbol in node.inputs if with_free else ():
            chain = self.chain(symbol)
            if self.root(symbol) in self.small or (chain and not chain[0].inputs):
                if not all(group.domain.add(free) for free in chain):
                    return None
                group.taken.update(chain)
        if self._gathers_from_itself([node], group.taken):
            return None
        return group if group.domain.add(node) and group.domain.fits([node], [node.outputs[0]]) else None

    def _candidates(self, i: int, node: Node) -> Iterable[_Group]:
        groups = [self.group_of(symbol) for symbol in node.inputs]
        yield from sorted((g for g in groups if g is not None), key=lambda g: -g.last)
        if (
            self.single is not None
            and node.outputs[0].spec.size == 1
            and (group := self.group[self.single]) is not None
        ):
            yield group
        if node in self.repeated:
            return
        copied = [x for s in node.inputs if (x := self.writer.get(s)) in self.repeated and x is not None]
        for symbol in dict.fromkeys(map(self.root, (*node.inputs, *(s for x in copied for s in x.inputs)))):
            if symbol.spec.size > 1:
                earlier = [j for j in self.readers.get(symbol, ()) if j < i][-_SIBLINGS:]
                yield from (g for j in reversed(earlier) if (g := self.group[j]) is not None)

    def _merge(self, other: _Group, i: int) -> bool:
        """Puts another group and that of node i into one, which runs at node i, if that is allowed and of use."""
        mine = self.group[i]
        assert mine is not None
        if len(other.nodes) + len(mine.nodes) > _NODES or (other.nodes[0] < self.early) != (i < self.early):
            return False
        members = {*other.nodes, *mine.nodes}
        written = {self.graph.nodes[j].outputs[0] for j in other.nodes}
        if any(j not in members and j < i for symbol in written for j in self.readers.get(symbol, ())):
            return False
        if not self._saves_memory(other, i, members, written) or self._fails_late(other, i):
            return False
        domain = other.domain.copy()
        taken = set(other.taken)
        for j in mine.nodes:
            for symbol in self.graph.nodes[j].inputs:
                if self.root(symbol) in written:
                    for free in self.chain(symbol):
                        taken.add(free)
                        if not domain.add(free):
                            return False
        domain.absorb(mine.domain)
        group = _Group(domain, sorted(members), taken | mine.taken)
        nodes = [self.graph.nodes[j] for j in group.nodes]
        reads = {symbol for node in nodes for symbol in node.inputs}
        outputs = self.outputs(group)
        if self._gathers_from_itself(nodes, taken | mine.taken):
            return False
        if len(reads) + len(outputs) > _OPERANDS + len(nodes) or not domain.fits(nodes, outputs):
            return False
        if not self._is_worthwhile(group, nodes, outputs):
            return False
        for j in group.nodes:
            self.group[j] = group
        return True

    def outputs(self, group: _Group) -> list[Symbol]:
        """The symbols of a group that others read."""
        members = set(group.nodes)
        found = []
        for j in group.nodes:
            symbol = self.graph.nodes[j].outputs[0]
            if symbol in self.lasting or any(k not in members for k in self.readers.get(symbol, ())):
                found.append(symbol)
        return found

    def _saves_memory(self, other: _Group, i: int, members: set[int], written: set[Symbol]) -> bool:
        """Whether what is kept longer, since the other group runs later, is no more than what need not be kept at all."""
        first = other.last + 1
        between = [node for j in range(first, i) if j not in members and not self.is_free(node := self.graph.nodes[j])]
        made = sum(symbol.spec.nbytes for node in between for symbol in node.outputs)
        if made * _SMALL <= max(symbol.spec.nbytes for symbol in written):  # so there is room for what the group reads
            return True
        if self.fuser.compact:
            return False
        longer = gone = 0
        for root in {self.root(s) for j in other.nodes for s in self.graph.nodes[j].inputs}:
            writer = self.writer.get(root)
            if writer is not None and root not in written and self.readers[root][-1] < i:
                longer += root.spec.nbytes
        for symbol in written:
            if symbol not in self.lasting and all(j in members for j in self.readers.get(symbol, ())):
                gone += symbol.spec.nbytes
        return longer <= gone

    def _fails_late(self, other: _Group, i: int) -> bool:
        """Whether a node that may raise would come behind an effect that it stands before."""
        if not any(_may_raise(self.graph.nodes[j]) for j in other.nodes):
            return False
        return any(node.command in effect for node in self.graph.nodes[other.nodes[0] : i])

    def _gathers_from_itself(self, nodes: Sequence[Node], taken: set[Node]) -> bool:
        """Whether a kernel would read at computed places what it makes itself, or could not look at indices beforehand."""
        made = {symbol for node in (*nodes, *taken) for symbol in node.outputs}
        return any(
            node.inputs[0] in self.small or not made.isdisjoint(node.inputs if _may_raise(node) else node.inputs[:1])
            for node in nodes
            if node.command.name == GATHER
        )

    def _is_worthwhile(self, group: _Group, nodes: Sequence[Node], outputs: Sequence[Symbol]) -> bool:
        """Whether one kernel is no slower than two: rows that are gone through again must stay in the cache."""
        domain = group.domain
        reduced = domain.reduced
        if not reduced:
            return True
        full = max((s for node in nodes for s in (*node.inputs, *node.outputs)), key=lambda s: s.spec.size)
        last = next((label for label in reversed(domain.axes(full)) if label != UNIT), UNIT)
        if math.prod(domain.sizes[label] for label in reduced) <= (ROW if last in reduced else COLUMN):
            return True
        graph = Graph((), tuple(outputs), tuple(sorted((*nodes, *group.taken), key=self.position.__getitem__)))
        given = {s for node in graph.nodes for s in node.inputs}.difference(n.outputs[0] for n in graph.nodes)
        return Phases.of(graph.update(inputs=tuple(given)), group.domain).count <= 1


def _may_raise(node: Node) -> bool:
    """Whether a node that can be fused refuses some values."""
    return node.command.name == GATHER and node.params["mode"] == "error"


class _Rebuilt:
    """The graph in which each group is one node."""

    def __init__(self, grouping: _Grouping) -> None:
        self.grouping, self.old = grouping, grouping.graph
        self.nodes: list[Node] = []
        self.present: set[Symbol] = {*self.old.inputs, *self.old.constants}

    def graph(self) -> Graph:
        """The new graph."""
        grouping = self.grouping
        for i, node in enumerate(self.old.nodes):
            group = grouping.group[i]
            if group is not None:
                if len(group.nodes) == 1 and node.command.name == GATHER:
                    self._append(node)  # its own kernel is as good
                elif group.last == i and grouping.outputs(group):
                    self._append(self._fused(group))
            elif not grouping.is_free(node):
                self._append(grouping.fuser.inner(node))
        for symbol in self.old.outputs:
            self._provide(symbol)
        read = frozenset(self.old.outputs).union(*(node.inputs for node in self.nodes))
        constants = {s: v for s, v in self.old.constants.items() if s in read}
        return self.old.update(nodes=tuple(self.nodes), constants=constants)

    def _append(self, node: Node) -> None:
        for symbol in node.inputs:
            self._provide(symbol)
        self.nodes.append(node)
        self.present.update(node.outputs)

    def _provide(self, symbol: Symbol) -> None:
        """Appends the free nodes that make a symbol."""
        if symbol in self.present:
            return
        node = self.grouping.writer[symbol]
        stays = node.command.name in _AS_THEY_ARE
        self._append(node if stays else _fused_node((node,), {}, node.outputs, Domain.of_nodes((node,))))

    def _fused(self, group: _Group) -> Node:
        grouping = self.grouping
        inside = [self.old.nodes[j] for j in group.nodes]
        nodes = sorted((*inside, *group.taken), key=grouping.position.__getitem__)
        constants = {s: self.old.constants[s] for node in nodes for s in node.inputs if s in grouping.small}
        return _fused_node(nodes, constants, grouping.outputs(group), group.domain)


def _without_repeats(nodes: Sequence[Node], outputs: Sequence[Symbol]) -> list[Node]:
    """The nodes, each computation once: what several readers made for themselves (`at_readers`) is one within a kernel."""
    known: dict[tuple[object, ...], Symbol] = {}
    renamed: dict[Symbol, Symbol] = {}
    found = []
    for node in nodes:
        node = node.update(inputs=tuple(renamed.get(s, s) for s in node.inputs))
        first = known.setdefault(key_of(node), node.outputs[0])
        if first is node.outputs[0] or node.outputs[0] in outputs:
            found.append(node)
        else:
            renamed[node.outputs[0]] = first
    return found


def _fused_node(
    nodes: Sequence[Node], constants: dict[Symbol, NDArray], outputs: Sequence[Symbol], domain: Domain
) -> Node:
    """A node that runs all of these, with copies of them in a graph of its own."""
    nodes = _without_repeats(nodes, outputs)
    needed, kept = set(outputs), []
    for node in reversed(nodes):
        if node.outputs[0] in needed:
            kept.append(node)
            needed.update(node.inputs)
    kept.reverse()
    own = {node.outputs[0] for node in kept}
    inputs = tuple(dict.fromkeys(s for node in kept for s in node.inputs if s not in own and s not in constants))
    held = {s: value for s, value in constants.items() if s in needed}
    facts = overwrites(Graph(inputs, tuple(outputs), tuple(kept), held), domain)
    renamed = {s: Symbol(s.spec, s.name) for s in (*inputs, *held, *own)}
    inner = tuple(
        Node(n.command, tuple(renamed[s] for s in n.inputs), (renamed[n.outputs[0]],), n.params, source=n.source)
        for n in kept
    )
    graph = Graph(
        tuple(renamed[s] for s in inputs),
        tuple(renamed[s] for s in outputs),
        inner,
        {renamed[s]: value for s, value in held.items()},
        name="fused",
    )
    params = MappingProxyType({"overwrite": facts.overwrite})
    heavy = next((node for node in reversed(kept) if is_reduction(node)), kept[-1])
    return Node(fused, inputs, tuple(outputs), params, (graph,), heavy.source)
