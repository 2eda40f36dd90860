"""The iteration space that a group of nodes shares: which axis of which tensor is which loop.

Axes that elementwise commands, broadcasts, transposes and reductions tie together are one *label*, a loop of the kernel. A group is
one loop nest if no tensor has a label twice and all its reductions remove the same labels: those are the loops of a *row*, which is
gone through once or, where a reduction's result is read by what is reduced again, in several phases (softmax takes three).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nnc.commands.control import fused
from nnc.commands.rules import InPlace
from nnc.graph import Graph, Node, Symbol, kernel
from nnc.lower.codegen.builder import has_code
from nnc.lower.codegen.scalars import has_scalar

REDUCTIONS = ("reduce_sum", "reduce_prod", "reduce_max", "reduce_min", "reduce_and", "reduce_or")
VIEWS = ("broadcast_to", "reshape", "transpose")
GATHER = "gather"
UNIT = -1  # the label of an axis of size 1

_INDICES = 1 << 16

Labels = tuple[int, ...]


def can_fuse(node: Node) -> bool:
    """Whether a node can be a part of a printed loop nest."""
    name, outputs = node.command.name, node.outputs
    if has_better_kernel(node):
        return False
    if node.graphs or len(outputs) != 1 or any(0 in s.shape or not has_code(s.dtype) for s in (*node.inputs, *outputs)):
        return False
    if name in REDUCTIONS or name in VIEWS or name == "iota":
        return True
    if name == GATHER:  # many indices are looked at by several threads in a kernel of their own
        return node.params["mode"] != "error" or node.inputs[1].spec.size <= _INDICES
    return has_scalar(node.command, tuple(s.dtype for s in node.inputs), outputs[0].dtype, node.params)


def has_better_kernel(node: Node) -> bool:
    """Whether a backend runs the command of a node by itself, and is to be preferred to a printed loop nest."""
    known = kernel.get(node.command, ())
    if not known:
        return False
    nests = max((each.priority for each in kernel.get(fused, ())), default=0)
    specs = tuple(s.spec for s in node.inputs)
    return any(each.priority > nests and each.supports(specs, node.params) for each in known)


def is_reduction(node: Node) -> bool:
    """Whether a node makes one element of several."""
    if node.command.name not in REDUCTIONS:
        return False
    shape = node.inputs[0].shape
    return any(shape[axis] != 1 for axis in node.params["axes"])


def is_view(node: Node) -> bool:
    """Whether a node shows its input in another form; a reduction of one element does, too."""
    return node.command.name in VIEWS or (node.command.name in REDUCTIONS and not is_reduction(node))


class Domain:
    """The labels of symbols, which grow node by node."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self._parent: list[int] = []
        self._axes: dict[Symbol, Labels] = {}
        self._removed: list[Labels] = []  # for each reduction
        self._gathered: dict[Symbol, Labels] = {}  # what is read at computed places, and along which axes
        self._mixed = False  # whether something is read both so and element by element
        self._tied = False  # whether labels have been made one, or removed, since the last check

    def copy(self) -> Domain:
        """A copy that grows by itself."""
        other = Domain()
        other.sizes, other._parent = list(self.sizes), list(self._parent)
        other._axes, other._removed = dict(self._axes), list(self._removed)
        other._gathered = dict(self._gathered)
        return other

    @classmethod
    def of(cls, graph: Graph) -> Domain:
        """The domain of a fused graph."""
        domain = cls.of_nodes(graph.nodes)
        for symbol in graph.inputs:
            domain.axes(symbol)
        return domain

    @classmethod
    def of_nodes(cls, nodes: Iterable[Node]) -> Domain:
        """The domain of nodes that are known to fit."""
        domain = cls()
        for node in nodes:
            domain._extend(node)
        return domain

    # -- labels --------------------------------------------------------------------------------------------------------

    def axes(self, symbol: Symbol) -> Labels:
        """The label of each axis of a symbol."""
        return tuple(map(self._find, self._known(symbol)))

    @property
    def reduced(self) -> frozenset[int]:
        """The labels that reductions remove."""
        return frozenset(self._find(label) for removed in self._removed for label in removed)

    def _find(self, label: int) -> int:
        if label == UNIT:
            return UNIT
        while self._parent[label] != label:
            self._parent[label] = self._parent[self._parent[label]]
            label = self._parent[label]
        return label

    def _known(self, symbol: Symbol) -> Labels:
        axes = self._axes.get(symbol)
        if axes is None:
            labels = []
            for n in symbol.shape:
                if n == 1:
                    labels.append(UNIT)
                else:
                    labels.append(len(self.sizes))
                    self._parent.append(len(self.sizes))
                    self.sizes.append(n)
            axes = self._axes[symbol] = tuple(labels)
        return axes

    def _tie(self, x: Iterable[int], y: Iterable[int]) -> None:
        for a, b in zip(x, y, strict=True):
            i, j = self._find(a), self._find(b)
            if i != j and UNIT not in (i, j):
                self._parent[max(i, j)] = min(i, j)
                self._tied = True

    # -- growing -------------------------------------------------------------------------------------------------------

    def absorb(self, other: Domain) -> None:
        """Takes over the labels of another domain; what both know is tied together."""
        shift = len(self.sizes)
        self.sizes += other.sizes
        self._parent += [label + shift for label in other._parent]

        def moved(labels: Labels) -> Labels:
            return tuple(label if label == UNIT else label + shift for label in labels)

        for symbol in other._axes.keys() & self._axes.keys():
            self._tie(self._axes[symbol], moved(other._axes[symbol]))
            self._mixed |= self._gathered.get(symbol) != other._gathered.get(symbol)
        now = {labels: tuple(map(self._find, moved(labels))) for labels in set(other._axes.values())}
        self._axes = {symbol: now[labels] for symbol, labels in other._axes.items()} | self._axes
        self._gathered |= other._gathered
        self._removed += map(moved, other._removed)
        self._tied = self._tied or bool(other._removed)

    def add(self, node: Node) -> bool:
        """Adds a node that `can_fuse`; False where its axes do not fit, and the domain is of no use any more."""
        return self._extend(node) and (not self._tied or self.is_sound())

    def _extend(self, node: Node) -> bool:
        """Adds a node without a look at the others."""
        name, params, out = node.command.name, node.params, node.outputs[0]
        known = self._known
        if any(x in self._gathered for x in node.inputs[name == GATHER :]):
            return False
        if name == GATHER:
            return self._extend_by_gather(node)
        if name in REDUCTIONS:
            x = node.inputs[0]
            gone = {axis % x.spec.ndim for axis in params["axes"]}
            axes = known(x)
            self._tie([label for i, label in enumerate(axes) if i not in gone], known(out))
            self._removed.append(tuple(axes[i] for i in sorted(gone) if axes[i] != UNIT))
            self._tied = True
        elif name == "transpose":
            axes = known(node.inputs[0])
            self._tie([axes[axis] for axis in params["permutation"]], known(out))
        elif name == "broadcast_to":
            x = node.inputs[0]
            where = params.get("axes")
            places = where if where is not None else range(out.spec.ndim - x.spec.ndim, out.spec.ndim)
            axes = known(out)
            self._tie(known(x), [axes[place] for place in places])
        elif name == "reshape":
            mine, yours = ([label for label in known(s) if label != UNIT] for s in (node.inputs[0], out))
            if [self.sizes[label] for label in mine] != [self.sizes[label] for label in yours]:
                return False
            self._tie(mine, yours)
        else:
            self._extend_by_elements(node)
        return True

    def _extend_by_elements(self, node: Node) -> None:
        """All have the same axes; those of symbols that are not known yet need no labels of their own."""
        (out,) = node.outputs
        axes = self._axes
        labels = axes.get(out)
        for x in node.inputs:
            mine = axes.get(x)
            if labels is None:
                labels = self._known(x) if mine is None else mine
            elif mine is None:
                axes[x] = labels
            elif mine is not labels:
                self._tie(mine, labels)
                axes[x] = labels
        if labels is None:
            self._known(out)
        else:
            axes[out] = labels

    def _extend_by_gather(self, node: Node) -> bool:
        """Indexed axes are no loops: the loops of the indices take their place."""
        (x, *indices), (out,) = node.inputs, node.outputs
        axes, batch = tuple(node.params["axes"]), node.params["batch"]
        if self._gathered.get(x, axes) != axes or (x in self._axes and x not in self._gathered):
            return False
        self._gathered[x] = axes
        labels = self._axes[x] = tuple(UNIT if i in axes else label for i, label in enumerate(self._known(x)))
        found, depth = self._known(out), indices[0].spec.ndim
        self._tie(labels[:batch], found[:batch])
        self._tie([label for i, label in enumerate(labels) if i >= batch and i not in axes], found[depth:])
        for index in indices:
            self._tie(self._known(index), found[:depth])
        return True

    def is_sound(self) -> bool:
        """Whether no symbol has a label twice, and reductions remove the same labels and leave none of them."""
        self._tied = False
        if self._mixed:
            return False
        for labels in set(self._axes.values()):
            found = [self._find(label) for label in labels if label != UNIT]
            if len(set(found)) < len(found):
                return False
        removed = [frozenset(map(self._find, labels)) for labels in self._removed if labels]
        return all(other == removed[0] for other in removed)

    def fits(self, nodes: Sequence[Node], outputs: Iterable[Symbol]) -> bool:
        """Whether the nodes, of which others read `outputs`, are one loop nest: each output has an element for each round of all
        loops, or one for each row."""
        if self._tied and not self.is_sound():
            return False
        reduced = self.reduced
        if self._mixed:
            return False
        every = frozenset(self._find(label) for labels in set(self._axes.values()) for label in labels) - {UNIT}
        rows = every - reduced
        reducing = nodes if self._removed else ()
        for node in reducing:  # a sum that does not belong to every row would be computed again for each
            if is_reduction(node) and frozenset(self.axes(node.outputs[0])) - {UNIT} != rows:
                return False
        shapes = (every, rows) if reduced else (every,)
        return all(frozenset(self.axes(symbol)) - {UNIT} in shapes for symbol in outputs)


@dataclass(frozen=True, slots=True)
class Phases:
    """In what order a fused graph's values are known: `rank` of a symbol is the phase of the row in whose loop it can be computed,
    or before which it is known if it does not vary along the row."""

    rank: dict[Symbol, int]
    varies: dict[Symbol, bool]  # along the row
    count: int

    @classmethod
    def of(cls, graph: Graph, domain: Domain) -> Phases:
        """The phases of a fused graph."""
        reduced = domain.reduced
        rank: dict[Symbol, int] = {}
        varies: dict[Symbol, bool] = {}
        for symbol in (*graph.inputs, *graph.constants):
            rank[symbol] = 0
            varies[symbol] = not reduced.isdisjoint(domain.axes(symbol))
        count = 0
        for node in graph.nodes:
            out = node.outputs[0]
            rank[out] = max((rank[s] for s in node.inputs), default=0)
            if is_reduction(node):
                count = max(count, rank[out] + 1)
                rank[out] += 1
                varies[out] = False
            elif node.command.name == "iota":
                varies[out] = domain.axes(out)[node.params["axis"]] in reduced
            else:
                varies[out] = any(varies[s] for s in node.inputs)
        for symbol in graph.outputs:
            if cls._is_full(domain, symbol):
                count = max(count, rank[symbol] + 1)
        return cls(rank, varies, count)

    @staticmethod
    def _is_full(domain: Domain, symbol: Symbol) -> bool:
        return not domain.reduced.isdisjoint(domain.axes(symbol))


def overwrites(graph: Graph, domain: Domain) -> InPlace:
    """Which inputs of a fused graph may share memory with which outputs: those whose elements are read for the last time where the
    output's element of the same place is written."""
    phases = Phases.of(graph, domain)
    last = dict.fromkeys(graph.inputs, 0)
    needed = _phase_reads(graph, domain, phases)
    for phase, symbols in enumerate(needed):
        for symbol in symbols:
            if symbol in last:
                last[symbol] = max(last[symbol], phase)
    anywhere = {node.inputs[0] for node in graph.nodes if node.command.name == GATHER}
    pairs = []
    for j, out in enumerate(graph.outputs):
        axes = domain.axes(out)
        full = not domain.reduced or not domain.reduced.isdisjoint(axes)
        written = phases.rank[out] if full else phases.count
        for i, x in enumerate(graph.inputs):
            if x.shape == out.shape and domain.axes(x) == axes and last[x] <= written and x not in anywhere:
                pairs.append((i, j))
    return InPlace(tuple(pairs))


def _phase_reads(graph: Graph, domain: Domain, phases: Phases) -> list[set[Symbol]]:
    """The symbols that each phase's loop may need, everything computed anew."""
    writers = {node.outputs[0]: node for node in graph.nodes}
    found: list[set[Symbol]] = [set() for _ in range(phases.count + 1)]

    def visit(symbol: Symbol, phase: int) -> None:
        waiting = [symbol]
        while waiting:
            symbol = waiting.pop()
            if symbol in found[phase]:
                continue
            found[phase].add(symbol)
            node = writers.get(symbol)
            if node is not None and (phases.varies[symbol] or phase == phases.count) and not is_reduction(node):
                waiting += node.inputs

    for node in graph.nodes:
        if is_reduction(node):
            visit(node.inputs[0], phases.rank[node.outputs[0]] - 1)
        elif not phases.varies[node.outputs[0]]:
            for x in node.inputs:
                visit(x, phases.rank[node.outputs[0]])
    for symbol in graph.outputs:
        visit(symbol, phases.rank[symbol])
    return found
