"""Fuses elementwise commands and reductions over the same elements into one kernel, which traverses memory once."""

from __future__ import annotations

from collections.abc import Sequence

import nnc.commands.normalize  # noqa: F401  (its commands have expansions)
from nnc.base.options import Options
from nnc.base.target import Target
from nnc.commands.control import fused, unit
from nnc.commands.properties import axes_of, element_as
from nnc.commands.rules import Number, expansion
from nnc.device import machine_of
from nnc.graph import Graph, GraphBuilder, Node, Symbol, register_pass
from nnc.graph.graph import NDArray
from nnc.graph.passes import Fact
from nnc.graph.remake import with_renamed
from nnc.lower.kernels.builder import has_code
from nnc.lower.kernels.domain import Domain, has_better_kernel, is_gather, is_reduction
from nnc.lower.kernels.row_phases import overwrites
from nnc.lower.passes.fusion.forms import Forms, Pairs, of_one_shape
from nnc.lower.passes.fusion.grouping import FusionGroup, Grouping
from nnc.lower.passes.fusion.prefuse import members
from nnc.lower.passes.fusion.rematerialize_in_consumers import key_of
from nnc.lower.passes.memory.order import ByIteration


@register_pass(
    "fuse", requires=[Fact.NO_CALLS, Fact.ORDERED], ensures=[Fact.KERNELS], invalidates=[Fact.COMMANDS, Fact.FOLDED]
)
def fuse(graph: Graph, options: Options) -> Graph:
    """Makes one `fused` node of neighbours in the order that share an iteration space, in sub-graphs, too.

    A node joins the nodes that write or read its operands, if all of them can run where it stands: nobody else needs their results
    before. Views and constants between them, and commands that cost nothing (`full`, `iota`), are taken along; so are they for
    every other reader. Softmax and its relatives are first taken apart into the commands that they are made of.

    Ensures: the same values up to rounding of sums; every command that a printed kernel can run stands in a `fused` node.

    Example:
        y = exp(x); z = mul(y, y)  →  z = fused(x) {fused(%0): …}
    """
    return _Fuser(options.compact, machine_of(options)).iteration(graph, (), 0) if options.native else graph


class _Fuser(ByIteration):
    def __init__(self, compact: bool, machine: Target) -> None:
        super().__init__()
        self.compact, self.machine = compact, machine
        self.forms = Forms("fused")

    def iteration(self, graph: Graph, carried: tuple[Symbol, ...], before: int) -> Graph:
        """Fuses a graph; its first nodes stay in front of the others."""
        expanded, early = _expanded(graph, before, self.machine)
        grouping = Grouping(expanded, early, self.compact, self.machine)
        return _Rebuilt(expanded, grouping, self).graph()


def _expanded(graph: Graph, before: int, machine: Target) -> tuple[Graph, int]:
    """Expands commands that have an expansion; returns the graph, and the number of nodes in front by then."""
    if not any(node.command in expansion for node in graph.nodes):
        return graph, before
    nodes: list[Node] = []
    constants: dict[Symbol, NDArray] = dict(graph.constants)
    early = before
    for position, node in enumerate(graph.nodes):
        start = len(nodes)
        if node.command in expansion and _is_taken_apart(node, machine):
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


def _is_taken_apart(node: Node, machine: Target) -> bool:
    return all(has_code(s.dtype) and 0 not in s.shape for s in node.inputs) and not has_better_kernel(node, machine)


class _Rebuilt:
    """The graph in which each group is one node."""

    def __init__(self, old: Graph, grouping: Grouping, fuser: _Fuser) -> None:
        self.old, self.grouping, self.fuser = old, grouping, fuser
        self.nodes: list[Node] = []
        self.present: set[Symbol] = {*old.inputs, *old.constants}

    def graph(self) -> Graph:
        """Returns the new graph."""
        for i, node in enumerate(self.old.nodes):
            group = self.grouping.group[i]
            if group is not None:
                if len(group.nodes) == 1 and is_gather(node):
                    self._append(node)  # a kernel of its own is as fast
                elif group.nodes[-1] == i and group.outputs:
                    self._append(self._fused(group))
            elif not self.grouping.is_free[i]:
                self._append(self.fuser.inner(node))
        for symbol in self.old.outputs:
            self._provide(symbol)
        read = frozenset(self.old.outputs).union(*[node.inputs for node in self.nodes])
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
        node = self.old.nodes[self.grouping.writer[symbol]]
        stays = axes_of(node.command) or element_as(node.command, Number)  # the node stays outside of kernels
        self._append(
            node if stays else _fused_node((node,), {}, node.outputs, Domain.of_nodes((node,)), self.fuser.forms)
        )

    def _fused(self, group: FusionGroup) -> Node:
        last = self.old.nodes[group.nodes[-1]]
        if last.command is unit and len(group.nodes) == 1 and not group.taken:
            return last.update(command=fused)
        nodes: list[Node] = []
        constants: dict[Symbol, NDArray] = {}
        domain = None if group.is_plain else self.grouping.domain_of(group)
        for j in sorted([*group.nodes, *group.taken]):
            node = self.old.nodes[j]
            if node.command is unit:
                inner, known = members(node)
                constants |= known
                nodes += inner
                if domain is not None:
                    for each in inner:
                        domain.extend(each)
            else:
                constants |= {s: self.old.constants[s] for s in node.inputs if s in self.grouping.small}
                nodes.append(node)
        return _fused_node(nodes, constants, self.grouping.written(group), domain, self.fuser.forms)


def _without_repeats(nodes: Sequence[Node], outputs: Sequence[Symbol]) -> Sequence[Node]:
    """Returns the nodes, each computation once: copies that rematerializing passes made are one in a kernel."""
    if len({(node.command, node.inputs) for node in nodes}) == len(nodes):
        return nodes
    known: dict[tuple[object, ...], Symbol] = {}
    renamed: dict[Symbol, Symbol] = {}
    found = []
    for node in nodes:
        node = with_renamed(node, renamed)
        first = known.setdefault(key_of(node), node.outputs[0])
        if first is not node.outputs[0]:
            renamed[node.outputs[0]] = first
        if first is node.outputs[0] or node.outputs[0] in outputs:
            found.append(node)
    return found


def _fused_node(
    nodes: Sequence[Node],
    constants: dict[Symbol, NDArray],
    outputs: Sequence[Symbol],
    domain: Domain | None,
    forms: Forms,
) -> Node:
    """Makes a node that runs all of these, with copies of them in a graph of its own.

    Args:
        domain: None where all operands and results are traversed element by element.
    """
    nodes = _without_repeats(nodes, outputs)
    needed, kept = set(outputs), []
    for node in reversed(nodes):
        if node.outputs[0] in needed:
            kept.append(node)
            needed.update(node.inputs)
    kept.reverse()

    def overwrite(inputs: Sequence[Symbol]) -> Pairs:
        if domain is None:
            return of_one_shape(inputs, outputs)
        return overwrites(Graph(tuple(inputs), tuple(outputs), tuple(kept), constants), domain).overwrite

    heavy = next((node for node in reversed(kept) if is_reduction(node)), kept[-1])
    return forms.node(fused, kept, constants, outputs, overwrite, heavy)
