"""Takes elementwise nodes that wait for the same values, up to results of the graph, as one operation: a *unit*.

An optimizer's update of a parameter is one, and updates are half of the nodes of a training step. Passes have no choice within
a unit: it will be a kernel, none of its nodes can free memory before, and all can run then. Passes that follow look at it once
instead of at all of its nodes, and count values that lie in memory: values within a unit never do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from nnc.base.options import Options
from nnc.base.target import Target
from nnc.commands.control import unit
from nnc.commands.properties import element_as
from nnc.commands.rules import Number
from nnc.device import machine_of
from nnc.graph import Graph, Node, Symbol, register_pass
from nnc.graph.graph import NDArray, new_symbol
from nnc.graph.passes import Fact
from nnc.graph.registry import effect, scalar
from nnc.lower.kernels.builder import has_code
from nnc.lower.kernels.domain import can_fuse, is_view
from nnc.lower.passes.fusion.forms import Forms, copied, of_one_shape


@register_pass("prefuse", invalidates=[Fact.COMMANDS, Fact.ORDERED])
def prefuse(graph: Graph, options: Options) -> Graph:
    """Makes one `unit` node of the elementwise nodes that wait for the same values and lead to results alone.

    It stands where the last of them did, and owns them as a sub-graph, which equal units share. Known numbers, and results of
    commands without operands, are taken along, so that kernels have them as constants. Sub-graphs stay as they are, as do nodes
    that no single kernel takes.

    Ensures: the same values bit for bit.

    Example:
        g = dot(x, y); m = mul(v, 0.9); v' = add(m, g); w' = sub(w, v')
        →  g = dot(x, y); v', w' = unit(v, g, w) {%3 = add(mul(%0, 0.9), %1); %3, sub(%2, %3)}
    """
    machine = machine_of(options)
    found = _find(graph, machine) if options.native else {}
    return _WithUnits(graph, found, machine).result() if found else graph


def members(node: Node) -> tuple[list[Node], Mapping[Symbol, NDArray]]:
    """Returns the nodes that a unit stands for, which read and write its operands and results, and the constants that they
    read.

    Symbols between them are new ones: equal units share a sub-graph.
    """
    (graph,) = node.graphs
    outer = dict(zip((*graph.inputs, *graph.outputs), (*node.inputs, *node.outputs), strict=True))
    constants = {outer.setdefault(symbol, new_symbol(symbol.spec)): value for symbol, value in graph.constants.items()}
    return list(copied(graph.nodes, outer)), constants


# -- which nodes are a unit --------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class _UnitNodes:
    """Nodes that may become a unit, and the values that they wait for, if any."""

    nodes: list[Node]
    waits: set[frozenset[Symbol]]


def _find(graph: Graph, machine: Target) -> dict[Node, list[Node]]:
    """Finds the nodes of each unit, by the last of them; units that wait for nothing come first: results of others are then read
    next.
    """
    tail = _tail(graph, machine)
    if len(tail) < 2:
        return {}
    given, views = _given(graph)
    groups: dict[Symbol, _UnitNodes] = {}
    needs: dict[Symbol, frozenset[Symbol]] = {}
    for node in tail:
        group, wanted = None, _NOTHING
        for symbol in node.inputs:
            part = groups.get(symbol)
            if part is None:
                while symbol in views:
                    symbol = views[symbol]
                if symbol not in given:
                    wanted |= {symbol}
                continue
            wanted |= needs[symbol]
            if group is None:
                group = part
            elif part is not group:
                small, group = (part, group) if len(part.nodes) < len(group.nodes) else (group, part)
                group.nodes += small.nodes
                group.waits |= small.waits
                groups.update([(each.outputs[0], group) for each in small.nodes])
        if group is None:
            group = _UnitNodes([], set())
        group.nodes.append(node)
        if wanted:
            group.waits.add(wanted)
        groups[node.outputs[0]], needs[node.outputs[0]] = group, wanted
    place = {node: i for i, node in enumerate(tail)}
    found: dict[Node, list[Node]] = {}
    for group in dict.fromkeys(groups.values()):
        if 1 < len(group.nodes) <= machine.fusion.nodes and len(group.waits) < 2:
            nodes = sorted(group.nodes, key=place.__getitem__)
            found[nodes[-1]] = sorted(nodes, key=lambda node: bool(needs[node.outputs[0]]))
    return found


_NOTHING: frozenset[Symbol] = frozenset()


def _given(graph: Graph) -> tuple[set[Symbol], dict[Symbol, Symbol]]:
    """Finds symbols that are known from the beginning, numbers made of them, and results of commands without operands; for views
    their bases.
    """
    given = {*graph.inputs, *graph.constants}
    views: dict[Symbol, Symbol] = {}
    for node in graph.nodes:
        if is_view(node):
            views[node.outputs[0]] = node.inputs[0]
        inputs, outputs = node.inputs, node.outputs
        if given.issuperset(inputs) and (not inputs or all(symbol.spec.size <= 1 for symbol in outputs)):
            given.update(outputs)
    return given, views


def _tail(graph: Graph, machine: Target) -> list[Node]:
    """Returns the nodes that kernels run element by element and that only such nodes read, in order."""
    read: set[Symbol] = set()  # by other nodes
    tail: list[Node] = []
    for node in reversed(graph.nodes):
        if node.command in scalar and node.outputs[0] not in read and _is_elementwise(node, machine):
            tail.append(node)
        else:
            read.update(node.inputs)
    return tail[::-1]


def _is_elementwise(node: Node, machine: Target) -> bool:
    """Whether a node of a command on numbers makes several of several, in a printed kernel."""
    return (
        bool(node.inputs) and node.outputs[0].spec.size > 1 and node.command not in effect and can_fuse(node, machine)
    )


# -- the new graph -----------------------------------------------------------------------------------------------------


class _WithUnits:
    """The graph with units."""

    def __init__(self, graph: Graph, found: Mapping[Node, Sequence[Node]], machine: Target) -> None:
        self.graph, self.found, self.machine = graph, found, machine
        self.outputs = frozenset(graph.outputs)
        self.numbers = {s: value for s, value in graph.constants.items() if value.size == 1 and has_code(s.dtype)}
        self.held = self._held()
        self.forms = Forms("unit")

    def result(self) -> Graph:
        """Returns the graph, without nodes that only units have read."""
        inside = {node for nodes in self.found.values() for node in nodes}
        nodes: list[Node] = []
        read = set(self.outputs)
        for node in reversed(self.graph.nodes):
            if node in self.found:
                node = self._unit(self.found[node])
            elif node in inside or (node.outputs and node.outputs[0] in self.held and node.outputs[0] not in read):
                continue
            read.update(node.inputs)
            nodes.append(node)
        constants = {s: value for s, value in self.graph.constants.items() if s in read or s not in self.held}
        return self.graph.update(nodes=tuple(reversed(nodes)), constants=constants)

    def _held(self) -> dict[Symbol, tuple[Node, ...]]:
        """Finds nodes whose result has one known value everywhere: commands without operands, and constants."""
        held: dict[Symbol, tuple[Node, ...]] = dict.fromkeys(self.numbers, ())
        for node in self.graph.nodes:
            if (
                is_view(node)
                and node.inputs[0].spec.size == 1
                and node.inputs[0] in held
                and can_fuse(node, self.machine)
            ):
                held[node.outputs[0]] = (*held[node.inputs[0]], node)
            elif element_as(node.command, Number) and can_fuse(node, self.machine):
                held[node.outputs[0]] = (node,)
        return held

    def _unit(self, nodes: Sequence[Node]) -> Node:
        """Makes the node that stands for others; its results are the wanted symbols, and symbols that nobody reads."""
        taken = dict.fromkeys([made for node in nodes for s in node.inputs if s in self.held for made in self.held[s]])
        read = {symbol for node in nodes for symbol in node.inputs}
        results = [s for node in nodes if (s := node.outputs[0]) in self.outputs or s not in read]
        pairs = partial(of_one_shape, outputs=results)
        return self.forms.node(unit, (*taken, *nodes), self.numbers, results, pairs, nodes[-1])
