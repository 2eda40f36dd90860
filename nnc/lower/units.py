"""Takes elementwise nodes that wait for the same values, up to results of the graph, as one operation: a *unit*.

An optimizer's update of a parameter is one, and updates are half of the nodes of a training step. Nothing is to be decided within
a unit: it will be a kernel, none of its nodes can free anything before, and all can run then. So who looks for an order, or for
what memory holds, looks at units, and puts their nodes back when all is decided. That takes less time, and is nearer to what will
run: what nodes of a unit hand to each other never lies in memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from nnc.commands.control import fused
from nnc.commands.rules import effect, scalar
from nnc.graph import Graph, Node, Symbol
from nnc.graph.graph import new_node
from nnc.lower.codegen.domain import can_fuse, is_view


@dataclass(frozen=True, slots=True)
class Units:
    """The units of a graph.

    Args:     plain: the nodes of the graph as it is. graph: the same with one node for each unit: a kernel without a sub-graph.
              members: such a node and those that it stands for, by its first result.
    """

    plain: tuple[Node, ...]
    graph: Graph
    members: Mapping[Symbol, tuple[Node, Sequence[Node]]]

    @classmethod
    def none(cls, graph: Graph) -> Units:
        """A graph in which each node is looked at by itself."""
        return cls(graph.nodes, graph, {})

    @classmethod
    def of(cls, graph: Graph) -> Units:
        """Finds the units of a graph, those of at least two nodes; each stands where the last of its nodes did."""
        found = _find(graph)
        if not found:
            return cls.none(graph)
        inside = {node for nodes in found.values() for node in nodes}
        wanted = frozenset(graph.outputs)
        members: dict[Symbol, tuple[Node, Sequence[Node]]] = {}
        rest: list[Node] = []
        for node in graph.nodes:
            if node in found:
                unit = _as_one(found[node], wanted)
                members[unit.outputs[0]] = unit, found[node]
                rest.append(unit)
            elif node not in inside:
                rest.append(node)
        return cls(graph.nodes, graph.update(nodes=tuple(rest)), members)

    def apart(self, graph: Graph) -> Graph:
        """What was made of `self.graph`, with the nodes of units in their place; units may have moved, and read other symbols."""
        nodes: list[Node] = []
        for node in graph.nodes:
            unit, members = self.members.get(node.outputs[0], _NONE) if node.outputs else _NONE
            if unit is None:
                nodes.append(node)
            elif node is unit:
                nodes += members
            else:
                renamed = dict(zip(unit.inputs, node.inputs, strict=True))
                nodes += [each.update(inputs=tuple([renamed.get(s, s) for s in each.inputs])) for each in members]
        found = tuple(nodes)
        return graph.update(nodes=self.plain if found == self.plain else found)


_NONE: tuple[None, Sequence[Node]] = None, ()


@dataclass(slots=True, eq=False)
class _Group:
    """Nodes that may be a unit, and for which values they wait, if for any."""

    nodes: list[Node]
    waits: set[frozenset[Symbol]]


def _find(graph: Graph) -> dict[Node, list[Node]]:
    """The nodes of each unit, by the last of them; those that wait for nothing come first: what others make is then read next."""
    tail = _tail(graph)
    if len(tail) < 2:
        return {}
    given, views = _given(graph)
    groups: dict[Symbol, _Group] = {}
    needs: dict[Symbol, frozenset[Symbol]] = {}
    for node in tail:
        group, wanted = _Group([], set()), _NOTHING
        for symbol in node.inputs:
            part = groups.get(symbol)
            if part is None:
                while symbol in views:
                    symbol = views[symbol]
                if symbol not in given:
                    wanted |= {symbol}
                continue
            wanted |= needs[symbol]
            if part is not group:
                small, group = (part, group) if len(part.nodes) < len(group.nodes) else (group, part)
                group.nodes += small.nodes
                group.waits |= small.waits
                groups.update([(each.outputs[0], group) for each in small.nodes])
        group.nodes.append(node)
        if wanted:
            group.waits.add(wanted)
        groups[node.outputs[0]], needs[node.outputs[0]] = group, wanted
    place = {node: i for i, node in enumerate(tail)}
    found: dict[Node, list[Node]] = {}
    for group in dict.fromkeys(groups.values()):
        if len(group.nodes) > 1 and len(group.waits) < 2:
            nodes = sorted(group.nodes, key=place.__getitem__)
            found[nodes[-1]] = sorted(nodes, key=lambda node: bool(needs[node.outputs[0]]))
    return found


_NOTHING: frozenset[Symbol] = frozenset()


def _given(graph: Graph) -> tuple[set[Symbol], dict[Symbol, Symbol]]:
    """What is there from the beginning, numbers made of that, and what is made of nothing; what each view shows."""
    given = {*graph.inputs, *graph.constants}
    views: dict[Symbol, Symbol] = {}
    for node in graph.nodes:
        if is_view(node):
            views[node.outputs[0]] = node.inputs[0]
        inputs, outputs = node.inputs, node.outputs
        if given.issuperset(inputs) and (not inputs or all(symbol.spec.size <= 1 for symbol in outputs)):
            given.update(outputs)
    return given, views


def _tail(graph: Graph) -> list[Node]:
    """The nodes that kernels run element by element and that only such nodes read, in order."""
    read: set[Symbol] = set()  # by other nodes
    tail: list[Node] = []
    for node in reversed(graph.nodes):
        if node.command in scalar and node.outputs[0] not in read and _is_elementwise(node):
            tail.append(node)
        else:
            read.update(node.inputs)
    return tail[::-1]


def _is_elementwise(node: Node) -> bool:
    """Whether a node of a command on numbers makes several of them, in a printed kernel."""
    return node.outputs[0].spec.size > 1 and node.command not in effect and can_fuse(node)


def _as_one(nodes: Sequence[Node], wanted: frozenset[Symbol]) -> Node:
    """The node that stands for others; its results are those that are wanted, and what nobody reads."""
    own = {node.outputs[0] for node in nodes}
    read = {symbol: None for node in nodes for symbol in node.inputs}
    inputs = tuple([symbol for symbol in read if symbol not in own])
    results = tuple([symbol for node in nodes if (symbol := node.outputs[0]) in wanted or symbol not in read])
    pairs = [(i, j) for j, y in enumerate(results) for i, x in enumerate(inputs) if x.spec.shape == y.spec.shape]
    return new_node(fused, inputs, results, MappingProxyType({"overwrite": tuple(pairs)}), (), nodes[-1].source)
