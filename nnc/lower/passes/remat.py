"""Computes values of a graph again, so that its plan fits into a budget of memory.

It is no pass that is registered: how much to compute again is known only once plans have been made, so the pipeline calls this
after its passes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from nnc.commands.rules import effect
from nnc.dtypes import TAPE
from nnc.graph import Graph, Node, Symbol, verify
from nnc.lower.emit import Workspace
from nnc.lower.passes.order import Description
from nnc.lower.rematerialize import Problem, Schedule, fit, squeeze
from nnc.lower.report import node_cost
from nnc.lower.stages import Planned
from nnc.lower.views import runs
from nnc.options import Options

_ATTEMPTS = 4  # limits that are tried for a budget


class Remat:
    """A graph that is too large for a budget.

    Commands with an effect, random ones, those with sub-graphs and those that touch tapes run once; any other may run again right
    before a use of its results. Each copy of a node has symbols of its own and the line of the original.
    """

    def __init__(self, graph: Graph, options: Options, workspace: Workspace) -> None:
        self.graph, self.options = graph, options
        donated = {graph.inputs[i] for i in options.donated}
        description = Description(graph, donated=donated, free=graph.outputs)
        self.entries, self.views = description.entries, description.views
        self.writers = {symbol: node for node in graph.nodes for symbol in node.outputs}
        self.problem = _problem(description, workspace)

    def fit(self, planned: Planned, budget: int, plan: Callable[[Graph], Planned]) -> Planned:
        """A plan of at most `budget` bytes, or the smallest that is found.

        Schedules are made on an estimate of the live bytes; real plans say by how much that was wrong.

        Args:     planned: the plan of the graph as it is. plan: the plan of another graph.
        """
        limit = budget - (planned.peak - planned.arena_bytes)
        for _ in range(_ATTEMPTS):
            peaks = []
            for schedule in fit(self.problem, limit):
                found = self._planned(schedule, plan)
                if found.peak <= budget:
                    return found
                peaks.append(found.peak)
            if not peaks:
                break
            limit -= min(peaks) - budget
        return self._smallest(planned, plan)

    def _smallest(self, planned: Planned, plan: Callable[[Graph], Planned]) -> Planned:
        """The smallest plan that is found; it does not depend on the budget, so a budget of its size can be kept to."""
        least = squeeze(self.problem)
        schedules = (least, *fit(self.problem, least.peak * 11 // 10))
        return min((planned, *(self._planned(s, plan) for s in schedules)), key=lambda found: found.peak)

    def _planned(self, schedule: Schedule, plan: Callable[[Graph], Planned]) -> Planned:
        graph, recomputed = self.rewritten(schedule)
        if self.options.verify_passes:
            verify(graph)
        return replace(plan(graph), recomputed=recomputed)

    def rewritten(self, schedule: Schedule) -> tuple[Graph, tuple[Node, ...]]:
        """The graph that runs its nodes as a schedule says, and those of its nodes that are copies."""
        nodes: list[Node] = []
        copies: list[Node] = []
        latest: dict[Symbol, Symbol] = {}  # of symbols that own memory and were computed again
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
        for i in schedule.operations:
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


def _problem(description: Description, workspace: Workspace) -> Problem:
    """A graph in numbers; entries that are no nodes, and views, take neither time nor memory."""
    working = [node if node is not None and runs(node, description.views) else None for node in description.entries]
    return Problem(
        description.operations(),
        seconds=[node_cost(node).seconds if node is not None else 0.0 for node in working],
        repeatable=[node is not None and _is_repeatable(node) for node in working],
        extra=[_inner_bytes(node, workspace) if node is not None else 0 for node in working],
    )


def _is_repeatable(node: Node) -> bool:
    touches_tape = any(symbol.dtype == TAPE for symbol in (*node.inputs, *node.outputs))
    return not node.graphs and node.command not in effect and not touches_tape


def _inner_bytes(node: Node, workspace: Workspace) -> int:
    """About how many bytes a node needs beside its operands and results: its kernel's workspace, what lives in its sub-graphs."""
    return max((_problem(Description(graph), workspace).peak for graph in node.graphs), default=workspace(node))
