"""Loops and calls taken apart, so that passes see which operand, which input of an iteration and which result belong together.

`while` and `scan` state the same roles in different places, and `case_of` and calls are iterations that carry nothing; a pass
edits a `Loop` and joins it to a node again. `pull_rounds` is not among them: it owns two graphs with inputs of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, NamedTuple

from nnc.commands.tape import tape_handles
from nnc.graph import Graph, Node, Symbol
from nnc.graph.registry import rewritten

Inner = tuple[Symbol, ...]  # one symbol for each sub-graph


class Read(NamedTuple):
    """An operand, and the input of each sub-graph by which an iteration reads it (a sequence: an element of it)."""

    operand: Symbol
    inner: Inner


class Carry(NamedTuple):
    """A carried value: what it starts as, an iteration's input, the value for the next iteration, the result."""

    operand: Symbol
    inner: Symbol
    following: Symbol
    result: Symbol


class Yield(NamedTuple):
    """A value that the sub-graphs yield beside carried values, and the result that shows it."""

    inner: Inner
    result: Symbol


@dataclass(frozen=True, slots=True, eq=False)
class Loop:
    """A node with sub-graphs by roles. `lead` are operands before all others (a branch's index, a dynamic length) and `counter`
    the inputs of sub-graphs that no operand gives; `exits` stand before the number of iterations, `rows` behind it.
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
    rounds: tuple[Symbol, ...] = ()
    rows: tuple[Yield, ...] = ()

    def update(self, **changes: Any) -> Loop:
        """This loop with some roles replaced."""
        return replace(self, **changes)

    def join(self, known: dict[Any, tuple[Graph, ...]] | None = None) -> Node:
        """The node; `known` shares the sub-graphs that loops with the same sub-graphs and roles get."""
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
        outputs = (*(x.result for x in results), *self.rounds, *(x.result for x in self.rows))
        return node.update(inputs=inputs, outputs=outputs, graphs=graphs, params=MappingProxyType(params))

    def _ends(self) -> list[tuple[tuple[Symbol, ...], tuple[Symbol, ...]]]:
        """The inputs and the outputs of each sub-graph."""
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
    def runs_surely(self) -> bool:
        """Whether a whole iteration runs whenever the node does."""
        return self.node.command.name == "scan" and (self.node.params["length"] or 0) > 0


def take_apart(node: Node) -> Loop | None:
    """The roles of a node with sub-graphs; None for commands that are not known to have them."""
    rule = _RULES.get(node.command.name)
    return rule(node) if rule is not None else None


def _take_while(node: Node) -> Loop:
    body, carries, tapes = node.graphs[0], node.params["carries"], node.params.get("tapes", 0)
    exits = len(body.outputs) - 1 - carries - tapes
    yields, results = body.outputs[1 + carries :], node.outputs[carries:]
    return Loop(
        node,
        node.graphs,
        counter=body.inputs[:1],
        test=body.outputs[:1],
        carries=_carries(node.inputs[:carries], body.inputs[1:], body.outputs[1:], node.outputs),
        captured=_reads(node.inputs[carries:], (body.inputs[1 + carries :],)),
        exits=_yields((yields[:exits],), results[:exits]),
        rounds=results[exits : exits + 1],
        rows=_yields((yields[exits:],), results[exits + 1 :]),
    )


def _take_scan(node: Node) -> Loop:
    body, xs, carries = node.graphs[0], node.params["xs"], node.params["carries"]
    lead = 1 if node.params["length"] is None else 0
    operands, inner = node.inputs[lead:], body.inputs[1:]
    return Loop(
        node,
        node.graphs,
        lead=node.inputs[:lead],
        counter=body.inputs[:1],
        sequences=_reads(operands[:xs], (inner[:xs],)),
        carries=_carries(operands[xs : xs + carries], inner[xs:], body.outputs, node.outputs),
        captured=_reads(operands[xs + carries :], (inner[xs + carries :],)),
        rows=_yields((body.outputs[carries:],), node.outputs[carries:]),
    )


def _take_branches(node: Node) -> Loop:
    lead = 1 if node.command.name == "case_of" else 0
    return Loop(
        node,
        node.graphs,
        lead=node.inputs[:lead],
        captured=_reads(node.inputs[lead:], [graph.inputs for graph in node.graphs]),
        rows=_yields([graph.outputs for graph in node.graphs], node.outputs),
    )


_RULES: dict[str, Callable[[Node], Loop]] = {
    "while": _take_while,
    "scan": _take_scan,
    "case_of": _take_branches,
    "call": _take_branches,
}


def _carries(*ends: Sequence[Symbol]) -> tuple[Carry, ...]:
    return tuple(Carry(*symbols) for symbols in zip(*ends, strict=False))


def _reads(operands: Sequence[Symbol], inner: Sequence[Sequence[Symbol]]) -> tuple[Read, ...]:
    return tuple(Read(operand, tuple(symbols)) for operand, *symbols in zip(operands, *inner, strict=True))


def _yields(inner: Sequence[Sequence[Symbol]], results: Sequence[Symbol]) -> tuple[Yield, ...]:
    return tuple(Yield(tuple(symbols), result) for result, *symbols in zip(results, *inner, strict=True))
