"""The iteration space that a group of nodes shares: which axis of which tensor is which loop.

Axes that elementwise commands, broadcasts, transposes and reductions tie together are one *label*, a loop of the kernel. A group is
one loop nest if no tensor has a label twice and all its reductions remove the same labels: those are the loops of a *row*, which is
traversed once or, where a reduced operand depends on another reduction's result, in several phases (softmax takes three).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from nnc.base.dtypes import DType
from nnc.base.target import Target
from nnc.commands.control import fused, unit
from nnc.commands.properties import axes_of, is_placed, view_axes
from nnc.commands.rules import Counted, Gathered, elements, reduction
from nnc.graph import Command, Graph, Kernel, Node, Symbol
from nnc.graph.kernels import kernels_for
from nnc.graph.registry import REGISTRY
from nnc.lower.kernels.builder import has_code
from nnc.lower.kernels.reductions import has_reduction
from nnc.lower.kernels.scalars import has_scalar

UNIT = -1  # the label of an axis of size 1

_INDICES = 1 << 16

Labels = tuple[int, ...]
Axes = tuple[int, ...]
_Sum = tuple[int, Axes, int]  # the kind of the reduced operand, the axes that are removed, the kind of the result


def can_fuse(node: Node, machine: Target) -> bool:
    """Whether a node can be part of a printed loop nest.

    Args:
        machine: the program runs on it; kernels for other kinds of devices are not asked.
    """
    if node.command is unit:
        return True
    if node.graphs or len(node.outputs) != 1 or has_better_kernel(node, machine):
        return False
    if is_gather(node) and node.params["mode"] == "error" and node.inputs[1].spec.size > _INDICES:
        return False  # many indices are checked by several threads in a kernel of their own
    specs = [symbol.spec for symbol in node.inputs]
    output = node.outputs[0].spec
    if 0 in output.shape or any(0 in spec.shape for spec in specs):
        return False
    read = tuple([spec.dtype for spec in specs])
    return _has_code(node.command, read, output.dtype, tuple(node.params), REGISTRY.version)


@lru_cache(maxsize=4096)
def _has_code(
    command: Command, inputs: tuple[DType, ...], output: DType, params: tuple[str, ...], _version: int
) -> bool:
    """Whether a command can be printed, with parameters of these names and the kernels registered in this version."""
    if not all(map(has_code, (*inputs, output))):
        return False
    if axes_of(command) or is_placed(command):
        return True
    if command in reduction:
        return has_reduction(reduction[command], inputs[0])
    return has_scalar(command, inputs, output, dict.fromkeys(params))


def has_better_kernel(node: Node, machine: Target) -> bool:
    """Whether a backend has a kernel for the node of a higher priority than printed loop nests, on this machine."""
    better = _better_kernels(node.command, machine, REGISTRY.version)
    if not better:
        return False
    specs = tuple([symbol.spec for symbol in node.inputs])
    return any(each.supports(specs, node.params) for each in better)


@lru_cache(maxsize=1024)
def _better_kernels(command: Command, machine: Target, _version: int) -> tuple[Kernel, ...]:
    """Returns a command's kernels of a higher priority than loop nests, among a machine's kernels registered in this version."""
    nests = max([each.priority for each in kernels_for(fused, machine)], default=0)
    return tuple([each for each in kernels_for(command, machine) if each.priority > nests])


def is_reduction(node: Node) -> bool:
    """Whether a node makes one element of several."""
    if node.command not in reduction:
        return False
    shape = node.inputs[0].shape
    return any(shape[axis] != 1 for axis in node.params["axes"])


def is_view(node: Node) -> bool:
    """Whether a node shows its input in another form; a reduction of one element does, too."""
    return axes_of(node.command) is not None or (node.command in reduction and not is_reduction(node))


def is_gather(node: Node) -> bool:
    """Whether the elements of a node are those of its first input at computed places."""
    return isinstance(elements.get(node.command), Gathered)


def is_counted(node: Node) -> bool:
    """Whether each element of a node is its own position along an axis."""
    return isinstance(elements.get(node.command), Counted)


def keeps_order(node: Node) -> bool:
    """Whether the elements of a node stand in the order of its inputs' elements, and depend on no others."""
    if is_placed(node.command):
        return False
    if axes_of(node.command) is None:
        return True
    pairs = view_axes(node)
    return pairs is not None and [axis for axis, _ in pairs] == sorted(axis for axis, _ in pairs)


class Domain:
    """The labels of symbols, which grow node by node.

    Many symbols have the same labels along their axes: they are of one *kind*, and there are few kinds. Rules for labels run
    once for each kind, and where labels turn out to be one loop, the first replaces the others in each kind.
    """

    __slots__ = ("_gathered", "_kind", "_kinds", "_mixed", "_sums", "sizes")

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self._kinds: list[Labels] = []
        self._kind: dict[Symbol, int] = {}  # kinds by their places in the list
        self._sums: frozenset[_Sum] = frozenset()
        self._gathered: Mapping[Symbol, Axes] = {}  # symbols that are read at computed places, and along which axes
        self._mixed = False  # whether a symbol is read both so and element by element

    def copy(self) -> Domain:
        """Returns an independent copy."""
        other = Domain()
        other.sizes, other._kinds, other._kind = self.sizes.copy(), self._kinds.copy(), self._kind.copy()
        other._sums, other._gathered, other._mixed = self._sums, self._gathered, self._mixed
        return other

    @classmethod
    def of(cls, graph: Graph) -> Domain:
        """Returns the domain of a fused graph."""
        domain = cls.of_nodes(graph.nodes)
        for symbol in graph.inputs:
            domain.axes(symbol)
        return domain

    @classmethod
    def of_nodes(cls, nodes: Iterable[Node]) -> Domain:
        """Returns the domain of nodes that are known to fit."""
        domain = cls()
        for node in nodes:
            domain.extend(node)
        return domain

    @classmethod
    def joined(cls, x: Domain, y: Domain) -> Domain:
        """Joins two domains; labels of symbols that both know are tied together."""
        small, large = (x, y) if len(x._kind) < len(y._kind) else (y, x)
        domain = large.copy()
        domain._absorb(small)
        return domain

    # -- labels --------------------------------------------------------------------------------------------------------

    def axes(self, symbol: Symbol) -> Labels:
        """Returns the label of each axis of a symbol."""
        return self._kinds[self._known(symbol)]

    @property
    def reduced(self) -> frozenset[int]:
        """The labels that reductions remove."""
        return frozenset([self._kinds[kind][axis] for kind, axes, _ in self._sums for axis in axes])

    def _new_label(self, size: int) -> int:
        if size == 1:
            return UNIT
        self.sizes.append(size)
        return len(self.sizes) - 1

    def _known(self, symbol: Symbol) -> int:
        """Returns the kind of a symbol; a kind with new labels if it has none so far."""
        if symbol not in self._kind:
            self._kind[symbol] = self._kind_of(tuple([self._new_label(n) for n in symbol.spec.shape]))
        return self._kind[symbol]

    def _kind_of(self, labels: Labels) -> int:
        """Returns the kind with these labels."""
        if labels not in self._kinds:
            self._kinds.append(labels)
        return self._kinds.index(labels)

    def _connect(self, x: Symbol, y: Symbol, axes: Sequence[tuple[int, int]]) -> None:
        """Makes pairs of an axis of x and one of y the same loops; the other axes of y get new labels, if it is not known yet."""
        mine = self._kinds[self._known(x)]
        if y in self._kind:
            yours = self._kinds[self._kind[y]]
            self._tie([(mine[i], yours[j]) for i, j in axes])
            return
        same = {j: mine[i] for i, j in axes if mine[i] != UNIT and y.spec.shape[j] != 1}
        labels = [same[j] if j in same else self._new_label(n) for j, n in enumerate(y.spec.shape)]
        self._kind[y] = self._kind_of(tuple(labels))

    def _tie(self, pairs: Iterable[tuple[int, int]]) -> dict[int, int]:
        """Merges pairs of labels; returns the labels that are gone, with their replacements."""
        gone: dict[int, int] = {}
        for a, b in pairs:
            while a in gone:
                a = gone[a]
            while b in gone:
                b = gone[b]
            if a != b and UNIT not in (a, b):
                gone[max(a, b)] = min(a, b)
        if gone:
            for label in sorted(gone):  # the replacement is smaller, and stays by now
                gone[label] = gone.get(gone[label], gone[label])
            stays = gone.keys().isdisjoint
            self._kinds = [x if stays(x) else tuple([gone.get(label, label) for label in x]) for x in self._kinds]
        return gone

    # -- growing -------------------------------------------------------------------------------------------------------

    def _absorb(self, other: Domain) -> None:
        """Takes over the labels of another domain."""
        shared = self._kind.keys() & other._kind.keys()
        here = {UNIT: UNIT}  # names of the other's labels
        same = []
        for kind, theirs in {(self._kind[symbol], other._kind[symbol]) for symbol in shared}:
            for label, called in zip(other._kinds[theirs], self._kinds[kind], strict=True):
                if here.setdefault(label, called) != called:
                    same.append((here[label], called))
        if same:
            gone = self._tie(same)
            here = {label: gone.get(called, called) for label, called in here.items()}
        kinds = []
        for labels in other._kinds:
            for label in labels:
                if label not in here:
                    here[label] = self._new_label(other.sizes[label])
            kinds.append(self._kind_of(tuple([here[label] for label in labels])))
        for symbol, kind in other._kind.items():
            self._kind[symbol] = kinds[kind]
        if other._sums:
            self._sums |= {(kinds[kind], axes, kinds[result]) for kind, axes, result in other._sums}
        if self._gathered or other._gathered:
            self._mixed |= any(self._gathered.get(symbol) != other._gathered.get(symbol) for symbol in shared)
            self._gathered = {**self._gathered, **other._gathered}

    def extend(self, node: Node) -> bool:
        """Adds a node that `can_fuse`; False where its axes do not fit, after which the domain is invalid."""
        gathers = is_gather(node)
        if self._gathered and any(x in self._gathered for x in node.inputs[gathers:]):
            return False
        if gathers:
            return self._extend_by_gather(node)
        if axes_of(node.command) is not None:
            return self._extend_by_view(node)
        if node.command in reduction:
            self._extend_by_reduction(node)
        else:
            self._extend_by_elements(node)
        return True

    def _extend_by_view(self, node: Node) -> bool:
        (x,), (out,) = node.inputs, node.outputs
        pairs = view_axes(node)
        if pairs is None:
            return False
        if x in self._kind or not _repeats(x, out, pairs):
            self._connect(x, out, pairs)
        else:  # the output has more loops, which get their labels first
            self._connect(out, x, [(place, axis) for axis, place in pairs])
        return True

    def _extend_by_reduction(self, node: Node) -> None:
        (x,), (out,) = node.inputs, node.outputs
        gone = {axis % x.spec.ndim for axis in node.params["axes"]}
        kept = [axis for axis in range(x.spec.ndim) if axis not in gone]
        self._connect(x, out, [(axis, i) for i, axis in enumerate(kept)])
        removed = tuple([axis for axis in sorted(gone) if x.spec.shape[axis] != 1])
        if removed:
            self._sums |= {(self._kind[x], removed, self._kind[out])}

    def _extend_by_elements(self, node: Node) -> None:
        """Ties the axes of all operands and results; symbols that are not known yet need no labels of their own."""
        symbols = (*node.outputs, *node.inputs)
        kinds = [kind for symbol in symbols if (kind := self._kind.get(symbol)) is not None]
        for other in kinds[1:]:
            if other != kinds[0]:
                self._tie(zip(self._kinds[kinds[0]], self._kinds[other], strict=True))
        kind = kinds[0] if kinds else self._known(symbols[0])
        for symbol in symbols:
            self._kind[symbol] = kind

    def _extend_by_gather(self, node: Node) -> bool:
        """Indexed axes are no loops: the loops of the indices take their place. No tensor names the places it is read at itself."""
        (x, *indices), (out,) = node.inputs, node.outputs
        axes, batch = tuple(node.params["axes"]), node.params["batch"]
        if x in indices or self._gathered.get(x, axes) != axes or (x in self._kind and x not in self._gathered):
            return False
        self._gathered = {**self._gathered, x: axes}
        if x not in self._kind:
            labels = [UNIT if axis in axes else self._new_label(n) for axis, n in enumerate(x.spec.shape)]
            self._kind[x] = self._kind_of(tuple(labels))
        depth = indices[0].spec.ndim
        kept = [axis for axis in range(batch, x.spec.ndim) if axis not in axes]
        rest = zip(kept, range(depth, out.spec.ndim), strict=True)
        self._connect(x, out, [*((axis, axis) for axis in range(batch)), *rest])
        for index in indices:
            self._connect(out, index, [(axis, axis) for axis in range(depth)])
        return True

    # -- invariants ------------------------------------------------------------------------------------------------------

    def is_sound(self) -> bool:
        """Whether no symbol has a label twice, and reductions remove the same labels."""
        removed = {frozenset([self._kinds[kind][axis] for axis in axes]) for kind, axes, _ in self._sums}
        return len(removed) <= 1 and not self._mixed and all(map(_are_apart, self._kinds))

    def fits(self, outputs: Iterable[Symbol]) -> bool:
        """Whether the nodes with the results `outputs` are one loop nest: each output has an element for each iteration of
        all loops, or one for each row.
        """
        if not self.is_sound():
            return False
        if len(self._kinds) == 1:  # every operand has an element for every iteration
            return True
        loops = list(map(_loops, self._kinds))
        every = loops[0].union(*loops)
        rows = every - self.reduced if self._sums else every
        if any(loops[result] != rows for _, _, result in self._sums):
            return False  # a sum that does not belong to every row would be recomputed for each
        return all(loops[self._kind[symbol]] in (every, rows) for symbol in outputs)


def _repeats(x: Symbol, out: Symbol, pairs: Sequence[tuple[int, int]]) -> bool:
    """Whether a view shows an element of its input several times."""
    same = {place for axis, place in pairs if x.spec.shape[axis] == out.spec.shape[place]}
    return any(n != 1 and place not in same for place, n in enumerate(out.spec.shape))


@lru_cache(maxsize=1024)
def _loops(labels: Labels) -> frozenset[int]:
    """Returns the labels of axes that are loops."""
    return frozenset(labels) - {UNIT}


@lru_cache(maxsize=1024)
def _are_apart(labels: Labels) -> bool:
    """Whether no axes share a loop."""
    return len(_loops(labels)) + labels.count(UNIT) == len(labels)
