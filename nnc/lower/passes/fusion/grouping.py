"""Chooses the nodes that become one kernel: nodes over the same elements, as far as the order of the nodes allows.

Each node is asked to join its producers and the nodes that read the same: a question or two for every node, of groups with dozens
of nodes. So sets of nodes and of symbols are integers here, with a bit for each: whether others read a result earlier is one
operation.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from nnc.base.size import hint
from nnc.base.target import Target
from nnc.commands.control import unit
from nnc.commands.rules import may_raise
from nnc.graph import Graph, Node, Symbol
from nnc.graph.registry import effect
from nnc.lower.kernels.builder import has_code
from nnc.lower.kernels.domain import UNIT, Domain, can_fuse, is_gather, is_reduction, is_view
from nnc.lower.passes.fusion.rematerialize_in_consumers import repeated

_SMALL = 64  # nodes in between that make this share of a group's bytes do not matter
_SIBLINGS = 4  # how many earlier readers of an operand are tried


@dataclass(eq=False, slots=True)
class FusionGroup:
    """Nodes that become one kernel, by their positions: nodes that compute, and free nodes that they take along.

    A group is *plain* if all that its nodes read and write has one shape and is traversed element by element: it always fits,
    and its domain is only made where it has to be compared with another one. The same holds for a node that looks for its group.
    """

    domain: Domain | None
    is_plain: bool
    nodes: list[int]  # in order; it runs where the last one stands
    taken: set[int]
    outputs: list[int]  # the nodes whose results others read
    views: list[tuple[int, Symbol]]  # the nodes whose results are read in another form, and that form
    members: int  # the nodes as a set
    readers: int  # the nodes, in the group and elsewhere, that read its results, directly or through views
    reads: int  # the symbols that its nodes read
    most: int  # the bytes of the largest result, of all readers
    count: int  # number of its commands, commands within units included
    widest: int  # the first node with the largest operand or result of all


class Grouping:
    """The groups of one graph.

    A node is *free* if it costs nothing within a kernel, so that each kernel may have a copy: a view, or a command without
    operands.

    Args:
        early: the number of nodes that stay in front of the others.
        compact: whether fusion may keep nothing in memory for longer.
        machine: has the limits of kernels.
    """

    def __init__(self, graph: Graph, early: int, compact: bool, machine: Target) -> None:
        self.nodes, self.early, self.compact, self.limits = graph.nodes, early, compact, machine.fusion
        self.group: list[FusionGroup | None] = [None] * len(graph.nodes)
        self.writer: dict[Symbol, int] = {}
        self.is_free: list[bool] = []
        self.small = {s for s, value in graph.constants.items() if value.size == 1 and has_code(s.dtype)}
        self._given = set(self.small)  # small constants in any form, and results of commands without operands
        self._shown: dict[Symbol, Symbol] = {}  # the symbol that a view shows
        self._readers: dict[Symbol, list[int]] = {}  # the nodes that compute with a symbol, directly or through views
        # the same for a node's results, as a set; one more reader is the caller
        self._read_by = [0] * len(graph.nodes)
        self._reads_of: list[int] = []  # the nodes whose results a node reads, directly or through views
        self._nbytes: list[int] = []  # that a node writes; 0 if it is free
        self._number: dict[Symbol, int] = {}  # the bits of symbols
        self._largest: dict[int, Symbol] = {}  # of a node's operands and results, where that was asked for
        self._gathers = self._raising = self._effects = self._sums = 0  # nodes
        self._single: int | None = None  # the last node that computes a single value
        self._copies = repeated(graph, machine)  # go with their reader, not with others that read the same
        known = graph.attrs.get("_fusable", {})
        fusable = [known[node] if node in known else can_fuse(node, machine) for node in graph.nodes]
        for i, node in enumerate(graph.nodes):
            self._describe(i, node, fusable[i])
        self._made = list(accumulate(self._nbytes, initial=0))  # bytes that are written before a node
        for symbol, readers in self._readers.items():
            if symbol in self.writer:
                self._read_by[self.writer[symbol]] |= sum([1 << j for j in readers])
        self._shared = {x: readers for x, readers in self._readers.items() if len(readers) > 1 and x.spec.size > 1}
        for symbol in {self._shown.get(symbol, symbol) for symbol in graph.outputs}:
            if symbol in self.writer:
                self._read_by[self.writer[symbol]] |= 1 << len(graph.nodes)
        for i, node in enumerate(graph.nodes):
            if fusable[i] and not self.is_free[i]:
                self._place(i, node)

    def _describe(self, i: int, node: Node, fusable: bool) -> None:
        """Caches facts of a node that other rules will ask for."""
        for symbol in node.outputs:
            self.writer[symbol] = i
        free = fusable and node.command is not unit and (not node.inputs or is_view(node))
        self.is_free.append(free)
        self._nbytes.append(0 if free else sum([hint(symbol.spec.nbytes) for symbol in node.outputs]))
        if node.command in effect:
            self._effects |= 1 << i
        if is_gather(node):
            self._gathers |= 1 << i
            self._raising |= may_raise(node) << i
        made = 0
        if not free:
            self._sums |= is_reduction(node) << i
            for root in {self._shown.get(symbol, symbol) for symbol in node.inputs}:
                self._readers.setdefault(root, []).append(i)
                if root in self.writer:
                    made |= 1 << self.writer[root]
        elif not node.inputs:
            self._given.add(node.outputs[0])
        else:
            self._shown[node.outputs[0]] = self._shown.get(node.inputs[0], node.inputs[0])
            if node.inputs[0] in self._given:
                self._given.add(node.outputs[0])
        self._reads_of.append(made)

    # -- the members of a group ---------------------------------------------------------------------------------------

    def chain(self, symbol: Symbol) -> list[int]:
        """Returns the free nodes that make a symbol, in order."""
        found: list[int] = []
        i = self.writer.get(symbol)
        while i is not None and self.is_free[i]:
            found.append(i)
            inputs = self.nodes[i].inputs
            i = self.writer.get(inputs[0]) if inputs else None
        return found[::-1]

    def written(self, group: FusionGroup) -> list[Symbol]:
        """Returns the symbols of a group that others read."""
        return [symbol for j in group.outputs for symbol in self.nodes[j].outputs]

    def _place(self, i: int, node: Node) -> None:
        """Puts a node into a group that it can share a kernel with and, if that fits, with the small constants and the results of
        commands without operands that it reads.
        """
        given = [j for symbol in node.inputs if symbol in self._given for j in self.chain(symbol)]
        others = self._candidates(i, node)
        group = self._joined(self._alone(i, node, given), others)
        if group is None and given:
            group = self._joined(self._alone(i, node, []), others)
        self.group[i] = group
        if group is not None and node.outputs[0].spec.size == 1:
            self._single = i

    def _alone(self, i: int, node: Node, given: Sequence[int]) -> FusionGroup:
        """Returns a group of one node and of its free producers, as far as they fit."""
        views = []
        reads = 0
        for symbol in node.inputs:
            reads |= 1 << self._number.setdefault(symbol, len(self._number))
            if symbol in self._shown and (made := self.writer.get(self._shown[symbol])) is not None:
                views.append((made, symbol))
        is_plain = not (self._sums >> i & 1 or self._gathers >> i & 1) and all(_shows_one(self.nodes[j]) for j in given)
        count = len(node.graphs[0].nodes) if node.graphs else 1
        return FusionGroup(
            None, is_plain, [i], set(given), [i], views, 1 << i, self._read_by[i], reads, self._nbytes[i], count, i
        )

    def _joined(self, group: FusionGroup, others: Iterable[FusionGroup]) -> FusionGroup | None:
        """Joins a group of one node with as many of these groups as fit; None where it does not even fit by itself."""
        for other in others:
            group = self._merged(other, group) or group
        if group.domain is None and not group.is_plain:
            group.domain = self._fitting([*sorted(group.taken), *group.nodes])
        return group if group.is_plain or group.domain is not None else None

    def domain_of(self, group: FusionGroup) -> Domain:
        """Returns the domain of a group."""
        if group.domain is None:
            group.domain = Domain.of_nodes([self.nodes[j] for j in sorted([*group.nodes, *group.taken])])
        return group.domain

    def _fitting(self, nodes: Sequence[int]) -> Domain | None:
        """Returns the domain of a node, and of free ones before it, if they can be a kernel."""
        domain = Domain()
        for j in nodes:
            if not domain.extend(self.nodes[j]):
                return None
        if self._gathers >> nodes[-1] & 1 and self._gathers_from_itself(nodes):
            return None
        return domain if domain.fits(self.nodes[nodes[-1]].outputs) else None

    # -- which groups join ------------------------------------------------------------------------------------------------

    def _candidates(self, i: int, node: Node) -> Iterable[FusionGroup]:
        """Returns the groups that a node may join, the most promising first: groups that make its operands, and groups that read
        the same.
        """
        shown, writer, shared = self._shown, self.writer, self._shared
        roots = [shown.get(symbol, symbol) for symbol in node.inputs]
        made = self._groups([writer[root] for root in roots if root in writer])
        if len(made) > 1:
            made.sort(key=_end, reverse=True)
        others: list[int] = []
        if self._single is not None and node.outputs[0].spec.size == 1:
            others.append(self._single)
        if node.outputs[0] not in self._copies:
            for symbol in node.inputs if self._copies else ():
                if symbol in self._copies:
                    roots += [shown.get(x, x) for x in self.nodes[writer[symbol]].inputs]
            for root in roots:
                if root in shared:
                    readers = shared[root]
                    end = bisect_left(readers, i)
                    others += reversed(readers[max(end - _SIBLINGS, 0) : end])
        return dict.fromkeys(made + self._groups(others))

    def _groups(self, nodes: Iterable[int]) -> list[FusionGroup]:
        """Returns the groups of these nodes, where they have one so far."""
        return [group for j in nodes if (group := self.group[j]) is not None]

    def _merged(self, other: FusionGroup, mine: FusionGroup) -> FusionGroup | None:
        """Adds the second of two groups to the first, which then runs where the second did; None if that is not allowed or
        useless.
        """
        i = mine.nodes[-1]
        count = other.count + mine.count
        if count > self.limits.nodes or (other.nodes[0] < self.early) != (i < self.early):
            return None
        members = other.members | mine.members
        if other.readers & ~members & ((1 << i) - 1):  # a node needs a result earlier
            return None
        if not self._saves_memory(other, mine) or (self._raising & other.members and self._fails_late(other, i)):
            return None
        nodes = sorted([*other.nodes, *mine.nodes])
        read_by, others = self._read_by, ~members
        outputs = [j for j in sorted([*other.outputs, *mine.outputs]) if read_by[j] & others]
        reads = other.reads | mine.reads
        if reads.bit_count() + len(outputs) > self.limits.operands + count:
            return None
        chains = [self.chain(symbol) for j, symbol in mine.views if other.members >> j & 1] if mine.views else []
        domain = None
        is_plain = not chains and self._share_elements(other, mine)
        if not is_plain:
            domain = self._tied(other, mine, chains)
            if domain is None or not domain.fits([self.nodes[j].outputs[0] for j in outputs]):
                return None
            if self._gathers & members and self._gathers_from_itself([*nodes, *other.taken.union(mine.taken, *chains)]):
                return None
            if self._sums & members and not self._is_worthwhile(nodes, outputs, domain, self._wider(other, mine)):
                return None
        other.domain, other.is_plain = domain, is_plain
        other.nodes, other.outputs, other.members, other.reads, other.count = nodes, outputs, members, reads, count
        other.widest = self._wider(other, mine)
        other.taken.update(mine.taken, *chains)
        other.views += mine.views
        other.readers |= mine.readers
        other.most = max(other.most, mine.most)
        for j in mine.nodes:
            self.group[j] = other
        return other

    def _share_elements(self, other: FusionGroup, mine: FusionGroup) -> bool:
        """Whether two groups are plain and of the same shape: one reads operands or results of the other."""
        if not (other.is_plain and mine.is_plain):
            return False
        if other.reads & mine.reads or other.readers & mine.members:
            return True
        return all(self.nodes[group.nodes[0]].outputs[0].spec.size == 1 for group in (other, mine))

    def _tied(self, other: FusionGroup, mine: FusionGroup, chains: Sequence[Sequence[int]]) -> Domain | None:
        """Returns the domain of two groups, and of the free nodes between them; None where their axes do not fit."""
        more = [j for chain in chains for j in chain]
        is_alone = mine.domain is None and len(mine.nodes) == 1
        if is_alone:
            more += (*sorted(mine.taken), *mine.nodes)
        domain = self.domain_of(other)
        if more:
            domain = domain.copy()
        for j in more:
            if not domain.extend(self.nodes[j]):
                return None
        return domain if is_alone else Domain.joined(domain, self.domain_of(mine))

    def _saves_memory(self, other: FusionGroup, mine: FusionGroup) -> bool:
        """Whether memory that is kept longer, since the other group runs later, is no more than memory that is not needed at
        all.
        """
        i, last = mine.nodes[-1], other.nodes[-1]
        made = self._made[i] - self._made[last + 1]
        if made and len(mine.nodes) > 1:
            made -= sum([self._nbytes[j] for j in mine.nodes if last < j < i])
        if not made or made * _SMALL <= other.most:  # there is room for the group's operands
            return True
        if self.compact:
            return False
        longer = 0
        for root in {self._shown.get(s, s) for j in other.nodes for s in self.nodes[j].inputs}:
            writer = self.writer.get(root)
            if writer is None or self.is_free[writer] or other.members >> writer & 1:
                continue
            if self._readers[root][-1] < i:
                longer += hint(root.spec.nbytes)
        others = ~(other.members | mine.members)
        gone = sum([self._nbytes[j] for j in other.nodes if not self._read_by[j] & others])
        return longer <= gone

    def _fails_late(self, other: FusionGroup, i: int) -> bool:
        """Whether a node that may raise would move behind an effect."""
        return bool(self._raising & other.members) and bool((self._effects & ((1 << i) - 1)) >> other.nodes[0])

    def _gathers_from_itself(self, nodes: Iterable[int]) -> bool:
        """Whether a kernel would read its own results at computed places, or could not look at indices beforehand."""
        made = {self.nodes[j].outputs[0] for j in nodes}
        gathers = [node for j in nodes if is_gather(node := self.nodes[j])]
        return any(
            node.inputs[0] in self.small or not made.isdisjoint(node.inputs if may_raise(node) else node.inputs[:1])
            for node in gathers
        )

    def _is_worthwhile(self, nodes: Sequence[int], outputs: Sequence[int], domain: Domain, widest: int) -> bool:
        """Whether one kernel is no slower than two: rows that are traversed again must stay in the cache."""
        reduced = domain.reduced
        length = math.prod([domain.sizes[label] for label in reduced])
        if length <= self.limits.column_elements:
            return True
        axes = domain.axes(self._widest(widest))
        last = next((label for label in reversed(axes) if label != UNIT), UNIT)
        return (last in reduced and length <= self.limits.row_elements) or self._is_gone_through_once(
            nodes, outputs, domain
        )

    def _widest(self, i: int) -> Symbol:
        """Returns the largest operand or result of a node."""
        found = self._largest.get(i)
        if found is None:
            node = self.nodes[i]
            found = self._largest[i] = max((*node.inputs, *node.outputs), key=_size)
        return found

    def _wider(self, x: FusionGroup, y: FusionGroup) -> int:
        """Returns the first node with the largest operand or result of two groups."""
        return max(sorted((x.widest, y.widest)), key=lambda i: self._widest(i).spec.size)

    def _is_gone_through_once(self, nodes: Sequence[int], outputs: Sequence[int], domain: Domain) -> bool:
        """Whether no sum depends on another one, and no result that has elements for all summed ones depends on a sum."""
        sums, reads_of = self._sums, self._reads_of
        late = 0  # the nodes whose results are known when sums are
        for j in nodes:
            if reads_of[j] & late:
                if sums >> j & 1:
                    return False
                late |= 1 << j
            else:
                late |= sums & 1 << j
        reduced = domain.reduced
        written = [self.nodes[j].outputs[0] for j in outputs if late >> j & 1]
        return all(reduced.isdisjoint(domain.axes(symbol)) for symbol in written)


def _size(symbol: Symbol) -> int:
    return hint(symbol.spec.size)


def _end(group: FusionGroup) -> int:
    """Returns the place in the order at which a group runs."""
    return group.nodes[-1]


def _shows_one(node: Node) -> bool:
    """Whether a free node has no operands, or shows one element in another form: it fits every reader."""
    return not node.inputs or node.inputs[0].spec.size == 1
