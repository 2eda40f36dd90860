"""Loops and calls taken apart, so that passes see which operand, which input of an iteration and which result belong together.

Commands state the same roles in different places (column `roles`), and branches and calls are iterations that carry nothing; a pass
edits a `NodeRoles` and joins it to a node again. `pull_iterations` is not among them: it owns two graphs with inputs of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, NamedTuple

from nnc.commands.tape import tape_handles
from nnc.graph import Attribute, Graph, Node, Symbol
from nnc.graph.registry import rewritten

Inner = tuple[Symbol, ...]  # one symbol for each sub-graph


class Read(NamedTuple):
    """An operand, and the input of each sub-graph by which an iteration reads it (a sequence: an element of it)."""

    operand: Symbol
    inner: Inner


class Carry(NamedTuple):
    """A carried value: its initial value, an iteration's input, the value for the next iteration, the result."""

    operand: Symbol
    inner: Symbol
    following: Symbol
    result: Symbol


class Yield(NamedTuple):
    """A value that the sub-graphs yield beside carried values, and the result that shows it."""

    inner: Inner
    result: Symbol


@dataclass(frozen=True, slots=True, eq=False)
class NodeRoles:
    """A node with sub-graphs by roles. `lead` are operands before all others (a branch's index, a dynamic length) and `counter`
    the inputs of sub-graphs that no operand gives; `exits` stand before the number of iterations, `rows` behind it. `length` is
    the number of iterations where the node tells it.
    """

    node: Node
    graphs: tuple[Graph, ...]
    lead: tuple[Symbol, ...] = ()
    counter: Inner = ()
    test: Inner = ()
    sequences: tuple[Read, ...] = ()
    carries: tuple[Carry, ...] = ()
    captured: tuple[Read, ...] = ()
    exits: tuple[Yield, ...] = ()
    iterations: tuple[Symbol, ...] = ()
    rows: tuple[Yield, ...] = ()
    length: int | None = None

    def update(self, **changes: Any) -> NodeRoles:
        """This loop with some roles replaced."""
        return replace(self, **changes)

    def join(self, known: dict[Any, tuple[Graph, ...]] | None = None) -> Node:
        """Returns the node; `known` shares the sub-graphs that loops with the same sub-graphs and roles get."""
        key = self.graphs, *(tuple(x) for x in self._ends())
        graphs = known.get(key) if known is not None else None
        if graphs is None:
            graphs = tuple(
                graph if (graph.inputs, graph.outputs) == ends else graph.update(inputs=ends[0], outputs=ends[1])
                for graph, ends in zip(self.graphs, self._ends(), strict=True)
            )
            if known is not None:
                known[key] = graphs
        node, params = self.node, dict(self.node.params)
        for name, count in (("xs", self.sequences), ("carries", self.carries), ("tapes", self.rows)):
            if name in params:
                params[name] = len(count)
        if "handles" in params and params.get("length") is None:
            params["handles"] = tape_handles(x.result.shape for x in self.rows)
        follow = rewritten.get(node.command, None)
        if follow is not None and graphs != node.graphs:
            params = dict(follow(params, node.graphs, graphs))
        operands: list[Read | Carry] = [*self.sequences, *self.carries, *self.captured]
        results: list[Carry | Yield] = [*self.carries, *self.exits]
        inputs = (*self.lead, *(x.operand for x in operands))
        outputs = (*(x.result for x in results), *self.iterations, *(x.result for x in self.rows))
        return node.update(inputs=inputs, outputs=outputs, graphs=graphs, params=MappingProxyType(params))

    def _ends(self) -> list[tuple[tuple[Symbol, ...], tuple[Symbol, ...]]]:
        """Returns the inputs and the outputs of each sub-graph."""
        ends = []
        for i in range(len(self.graphs)):
            reads = (
                (x.inner[i] for x in self.sequences),
                (x.inner for x in self.carries),
                (x.inner[i] for x in self.captured),
            )
            yields = (x.following for x in self.carries), (x.inner[i] for x in (*self.exits, *self.rows))
            counter, test = self.counter[i : i + 1], self.test[i : i + 1]
            ends.append(((*counter, *reads[0], *reads[1], *reads[2]), (*test, *yields[0], *yields[1])))
        return ends

    @property
    def results(self) -> list[Carry | Yield]:
        """All that yields a result."""
        return [*self.carries, *self.exits, *self.rows]

    @property
    def is_loop(self) -> bool:
        """Whether the node runs a sub-graph again and again: iterations are counted."""
        return bool(self.counter)

    @property
    def is_branch(self) -> bool:
        """Whether the first operand is the number of the sub-graph that runs."""
        return bool(self.lead) and not self.counter

    @property
    def runs_surely(self) -> bool:
        """Whether a whole iteration runs whenever the node does."""
        return bool(self.length)


roles: Attribute[Callable[[Node], NodeRoles]] = Attribute(
    "roles", "(node) -> the node by roles, for loops, branches and calls: passes go into sub-graphs by them"
)


def take_apart(node: Node) -> NodeRoles | None:
    """Returns the roles of a node with sub-graphs; None for commands that are not known to have them."""
    rule = roles.get(node.command)
    return rule(node) if rule is not None else None


def take_loop(node: Node) -> NodeRoles | None:
    """Returns the roles of a loop; None for any other node."""
    loop = take_apart(node) if node.graphs else None
    return loop if loop is not None and loop.is_loop else None


def branches(node: Node, lead: int) -> NodeRoles:
    """Returns the roles of a node that runs one of its sub-graphs on all operands but the first `lead` ones."""
    return NodeRoles(
        node,
        node.graphs,
        lead=node.inputs[:lead],
        captured=reads_of(node.inputs[lead:], [graph.inputs for graph in node.graphs]),
        rows=yields_of([graph.outputs for graph in node.graphs], node.outputs),
    )


def carries_of(*ends: Sequence[Symbol]) -> tuple[Carry, ...]:
    """Carried values of the operands, inputs and outputs of an iteration, and results that stand in one order."""
    return tuple(Carry(*symbols) for symbols in zip(*ends, strict=False))


def reads_of(operands: Sequence[Symbol], inner: Sequence[Sequence[Symbol]]) -> tuple[Read, ...]:
    """Pairs operands with the inputs of each sub-graph, in one order."""
    return tuple(Read(operand, tuple(symbols)) for operand, *symbols in zip(operands, *inner, strict=True))


def yields_of(inner: Sequence[Sequence[Symbol]], results: Sequence[Symbol]) -> tuple[Yield, ...]:
    """Pairs outputs of each sub-graph with results, in one order."""
    return tuple(Yield(tuple(symbols), result) for result, *symbols in zip(results, *inner, strict=True))
