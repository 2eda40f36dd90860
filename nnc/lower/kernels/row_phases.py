"""The phases of a row: in which of the loops over it each value of a fused graph is known."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from nnc.base.records import record
from nnc.commands.properties import chooses
from nnc.graph import Graph, Symbol
from nnc.graph.rules import InPlace
from nnc.lower.kernels.domain import Domain, is_counted, is_gather, is_reduction


class Guard(NamedTuple):
    """The case in which a reduction is needed: a condition, the same along the row, that holds or does not."""

    condition: Symbol
    holds: bool


@record
class Phases:
    """The order in which a fused graph's values become known. `rank` gives, for a symbol that varies along the row, the phase
    in whose loop it can be computed; for others, the phase before which it is known. Values with a guard are needed in this
    case alone: reductions of them have loops of their own, which most rows skip.
    """

    rank: Mapping[Symbol, int]
    varies: Mapping[Symbol, bool]  # along the row
    count: int
    guards: Mapping[Symbol, Guard]

    @classmethod
    def of(cls, graph: Graph, domain: Domain, guarded: bool = False) -> Phases:
        """Returns the phases of a fused graph; without guards unless they are asked for."""
        sums = frozenset([node.outputs[0] for node in graph.nodes if is_reduction(node)])
        varies = _varying(graph, domain, sums)
        guards = _guards(graph, varies, sums) if guarded else {}
        rank = dict.fromkeys((*graph.inputs, *graph.constants), 0)
        is_settled = False
        while not is_settled:  # a condition may stand behind the reduction that it guards
            is_settled = True
            for node in graph.nodes:
                out = node.outputs[0]
                guard = guards.get(out) if out in sums else None
                read = node.inputs if guard is None else (*node.inputs, guard.condition)
                found = max([rank.get(s, 0) for s in read], default=0) + (out in sums)
                is_settled &= rank.get(out) in (found, None) and (guard is None or guard.condition in rank)
                rank[out] = found
        counts = [rank[symbol] for symbol in sums]
        counts += [rank[symbol] + 1 for symbol in graph.outputs if not domain.reduced.isdisjoint(domain.axes(symbol))]
        return cls(rank, varies, max(counts, default=0), guards)


def _varying(graph: Graph, domain: Domain, sums: frozenset[Symbol]) -> dict[Symbol, bool]:
    """Whether each symbol varies along the row."""
    reduced = domain.reduced
    varies = {x: not reduced.isdisjoint(domain.axes(x)) for x in (*graph.inputs, *graph.constants)}
    for node in graph.nodes:
        out = node.outputs[0]
        if is_counted(node):
            varies[out] = domain.axes(out)[node.params["axis"]] in reduced
        else:
            varies[out] = out not in sums and any(varies[s] for s in node.inputs)
    return varies


def _guards(graph: Graph, varies: Mapping[Symbol, bool], sums: frozenset[Symbol]) -> dict[Symbol, Guard]:
    """Returns the guards of values that are read only in unusual cases."""
    unusual = _unusual(graph, varies, sums)
    if not unusual:
        return {}
    needed: defaultdict[Symbol, set[Guard | None]] = defaultdict(set)
    for symbol in graph.outputs:
        needed[symbol].add(None)
    guards: dict[Symbol, Guard] = {}
    for node in reversed(graph.nodes):
        out = node.outputs[0]
        case = next(iter(needed[out])) if len(needed[out]) == 1 else None
        if case is not None:
            guards[out] = case
        for i, symbol in enumerate(node.inputs):
            guard = Guard(node.inputs[0], i == 1)
            needed[symbol].add(guard if i and chooses(node) and guard in unusual else case)
    return guards


def _unusual(graph: Graph, varies: Mapping[Symbol, bool], sums: frozenset[Symbol]) -> set[Guard]:
    """Returns the cases of choices between numbers of the row of which the other one is the usual one: it is made of numbers
    that the condition is made of, too. So a row whose sum of squares overflows is scaled. Of other choices nobody knows which
    case is usual.
    """
    # the reductions, and inputs for each row, that a value is made of
    known = defaultdict[Symbol, frozenset[Symbol]](frozenset)
    known |= {x: frozenset([x]) for x in graph.inputs if not varies[x]}
    found: set[Guard] = set()
    for node in graph.nodes:
        out = node.outputs[0]
        known[out] = frozenset([out]) if out in sums else frozenset().union(*(known[s] for s in node.inputs))
        if chooses(node) and not varies[node.inputs[0]]:
            condition, x, y = node.inputs
            found |= {
                Guard(condition, holds) for other, holds in ((y, True), (x, False)) if known[condition] & known[other]
            }
    return found


def overwrites(graph: Graph, domain: Domain) -> InPlace:
    """Returns pairs of an input of a fused graph and an output that may share memory: input elements are read for the last time
    where the output's element of the same place is written.
    """
    anywhere = {node.inputs[0] for node in graph.nodes if is_gather(node)}
    inputs = [(i, x.spec.shape, domain.axes(x)) for i, x in enumerate(graph.inputs) if x not in anywhere]
    form = [(out.spec.shape, domain.axes(out)) for out in graph.outputs]
    pairs = [(i, j) for j, wanted in enumerate(form) for i, *given in inputs if tuple(given) == wanted]
    if not pairs or not domain.reduced:  # all is read and written in one iteration
        return InPlace(tuple(pairs))
    guarded = Phases.of(graph, domain, guarded=True)
    for phases in (Phases.of(graph, domain), guarded) if guarded.guards else (guarded,):
        pairs = _unread(graph, domain, phases, pairs)
    return InPlace(tuple(pairs))


def _unread(graph: Graph, domain: Domain, phases: Phases, pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Returns the pairs of an input and an output that is written when the input has been read."""
    last = dict.fromkeys(graph.inputs, 0)
    for phase, symbols in enumerate(_phase_reads(graph, domain, phases)):
        for symbol in symbols:
            if symbol in last:
                last[symbol] = max(last[symbol], phase)
    written = [
        phases.count if domain.reduced.isdisjoint(domain.axes(out)) else phases.rank[out] for out in graph.outputs
    ]
    return [(i, j) for i, j in pairs if last[graph.inputs[i]] <= written[j]]


def _phase_reads(graph: Graph, domain: Domain, phases: Phases) -> list[set[Symbol]]:
    """Returns the symbols that each phase's loop may read if it recomputes everything."""
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
