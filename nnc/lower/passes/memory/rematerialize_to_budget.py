"""Rematerializes values of a graph, so that its plan fits into a budget of memory.

It is no registered pass: the amount to rematerialize is known only once plans have been made, so the pipeline calls it
after its passes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from nnc.base.dtypes import TAPE
from nnc.base.options import Options
from nnc.base.target import Schedule as Costs
from nnc.commands.control import PRINTED
from nnc.device import machine_of
from nnc.graph import Graph, Node, Symbol, verify
from nnc.graph.registry import effect
from nnc.lower.passes.memory.order import Description
from nnc.lower.plan.costs import node_cost
from nnc.lower.plan.emit import Workspace
from nnc.lower.plan.ordering import frugal_order
from nnc.lower.plan.rematerialize import RunOrder, TimedOperations, fit, squeeze
from nnc.lower.plan.stages import Planned
from nnc.lower.plan.views import runs

_ATTEMPTS = 4  # limits that are tried for a budget
_NEAR = 0.98  # of the budget; a plan that takes less leaves room for less work
_SLACK = (1.08, 1.2)  # limits that are tried as well: plans may be smaller than the estimates by much


def frugal(graph: Graph, options: Options) -> Graph:
    """Orders the nodes so that few results wait for long, also far below the peak: less has to be recomputed.

    `order` has no reason to run a weight's gradient early where memory is far from its peak, and may keep all that it reads.
    """
    description = Description.of_program(graph, options)
    nodes = (description.entries[i] for i in frugal_order(description.operations()))
    return graph.update(nodes=tuple(node for node in nodes if node is not None))


class Rematerializer:
    """Finds forms of a program that fit a budget: graphs of kernels, graphs of single commands, and other orders of them.

    Values within kernels take no memory, so the live bytes of kernels are those of the plan. Single commands can be recomputed
    without the rest of their kernel, but the resulting kernels are known only afterwards.
    """

    def __init__(
        self, graphs: Sequence[Graph], options: Options, workspace: Workspace, plan: Callable[[Graph], Planned]
    ) -> None:
        self.forms = [_GraphForm(graph, options, workspace) for graph in dict.fromkeys(graphs)]
        self.verifies, self.plan = options.verify_passes, plan

    def fit(self, planned: Planned, budget: int) -> Planned:
        """Returns a plan of at most `budget` bytes: of the plans found, the one that recomputes for the shortest time; or the
        smallest plan.

        Orders are made on an estimate of the live bytes; real plans show the error of the estimate.

        Args:
            planned: the plan of the graphs without rematerialization.
        """
        search = _Search(self._planned, budget)
        outside = planned.peak - planned.arena_bytes
        for form in self.forms:
            limit = budget - outside
            for _ in range(_ATTEMPTS):
                peak = search.within(form, limit)
                if peak is None or _NEAR * budget <= peak <= budget:
                    break
                limit += budget - peak
            for slack in _SLACK if search.best is not None else ():
                search.within(form, int(slack * (budget - outside)))
        return search.best or self._smallest(planned)

    def _smallest(self, planned: Planned) -> Planned:
        """Returns the smallest plan that is found; it does not depend on the budget, so a budget of its size can be kept to."""
        best = planned
        for form in self.forms:
            least = squeeze(form.problem)
            for order in (least, *fit(form.problem, least.peak * 11 // 10)):
                best = min(best, self._planned(form, order), key=lambda found: found.peak)
        return best

    def _planned(self, form: _GraphForm, order: RunOrder) -> Planned:
        graph, recomputed = form.rewritten(order)
        if self.verifies:
            verify(graph)
        return replace(self.plan(graph), recomputed=recomputed)


@dataclass
class _Search:
    """The search for the plan that fits into a budget and recomputes for the shortest time."""

    plan: Callable[[_GraphForm, RunOrder], Planned]
    budget: int
    best: Planned | None = None
    shortest: float = math.inf

    def within(self, form: _GraphForm, limit: int) -> int | None:
        """Makes plans of orders of at most `limit` bytes that take less time than the best, until one fits.

        Returns:
            the smallest peak; None where there is no such order.
        """
        peaks: list[int] = []
        for order in fit(form.problem, limit):
            if order.seconds >= self.shortest:
                break
            found = self.plan(form, order)
            peaks.append(found.peak)
            if found.peak <= self.budget:
                self.best, self.shortest = found, order.seconds
                break
        return min(peaks, default=None)


class _GraphForm:
    """A graph that is too large for a budget.

    Commands with an effect, random ones, commands with sub-graphs that are no kernels, and commands that touch tapes run once; any
    other may run again right before a use of its results. Each copy of a node has symbols of its own and the line of the original.
    """

    def __init__(self, graph: Graph, options: Options, workspace: Workspace) -> None:
        self.graph = graph
        description = Description.of_program(graph, options)
        self.entries, self.views = description.entries, description.views
        self.writers = {symbol: node for node in graph.nodes for symbol in node.outputs}
        self.problem = _problem(description, workspace, machine_of(options).schedule)

    def rewritten(self, order: RunOrder) -> tuple[Graph, tuple[Node, ...]]:
        """Returns the graph that runs its nodes in such an order, and the nodes in it that are copies."""
        nodes: list[Node] = []
        copies: list[Node] = []
        latest: dict[Symbol, Symbol] = {}  # of symbols that own memory and were recomputed
        shown: dict[tuple[Symbol, Symbol], Symbol] = {}  # views of those: by the original view and the latest base

        def follow(symbol: Symbol) -> Symbol:
            base = self.views[symbol].base
            if base not in latest or symbol is base:
                return latest.get(symbol, symbol)
            key = symbol, latest[base]
            if key not in shown:
                node = self.writers[symbol]
                inputs = tuple(map(follow, node.inputs))
                shown[key] = Symbol(symbol.spec, symbol.name)
                nodes.append(node.update(inputs=inputs, outputs=(shown[key],)))
            return shown[key]

        kept = {self.views[symbol].base for symbol in self.graph.outputs}
        ran: set[int] = set()
        for i in order.operations:
            node = self.entries[i]
            if node is None or not runs(node, self.views):
                nodes += [node] if node is not None else []
                continue
            inputs = tuple(map(follow, node.inputs))
            if i in ran:
                outputs = tuple(Symbol(symbol.spec, symbol.name) for symbol in node.outputs)
                latest.update(pair for pair in zip(node.outputs, outputs, strict=True) if pair[0] not in kept)
                node = node.update(inputs=inputs, outputs=outputs)
                copies.append(node)
            elif inputs != node.inputs:
                node = node.update(inputs=inputs)
            ran.add(i)
            nodes.append(node)
        return self.graph.update(nodes=tuple(nodes)), tuple(copies)


def _problem(description: Description, workspace: Workspace, costs: Costs) -> TimedOperations:
    """Returns a graph in numbers; entries that are no nodes, and views, take neither time nor memory."""
    working = [node if node is not None and runs(node, description.views) else None for node in description.entries]
    return TimedOperations(
        description.operations(),
        seconds=[node_cost(node, costs).seconds if node is not None else 0.0 for node in working],
        repeatable=[node is not None and _is_repeatable(node) for node in working],
        extra=[_inner_bytes(node, workspace, costs) if node is not None else 0 for node in working],
    )


def _is_repeatable(node: Node) -> bool:
    if node.graphs and node.command not in PRINTED:
        return False
    touches_tape = any(symbol.dtype == TAPE for symbol in (*node.inputs, *node.outputs))
    return not touches_tape and all(n.command not in effect for n in (node, *(n for g in node.graphs for n in g.nodes)))


def _inner_bytes(node: Node, workspace: Workspace, costs: Costs) -> int:
    """About how many bytes a node needs beside its operands and results: its kernel's workspace, the live set of its sub-graphs."""
    if node.command in PRINTED:
        return workspace(node)
    inner = (_problem(Description(graph), workspace, costs).peak for graph in node.graphs)
    return max(inner, default=workspace(node))
