"""Lets independent chains of nodes take turns where a program will run on several streams."""

from __future__ import annotations

from nnc.base.options import Options
from nnc.commands.control import PRINTED
from nnc.device import machine_of
from nnc.graph import Graph
from nnc.lower.passes.memory.order import Description
from nnc.lower.plan.costs import node_cost
from nnc.lower.plan.schedule.accesses import is_message
from nnc.lower.plan.schedule.assign import (
    MESSAGES,
    choose_streams,
    estimate_seconds,
    is_affordable,
)
from nnc.lower.plan.views import runs


def interleave(graph: Graph, options: Options) -> Graph:
    """Puts nodes into the order in which several streams would begin them, where there are several.

    Memory is planned for one order. One chain after the other would use the same memory, so that the second had to wait for the
    first; chains that take turns have memory of their own, which is the cost of streams. Where "auto" finds that this takes too
    much memory, the order stays.

    Ensures: the same nodes; with "auto", the largest live set grows by a quarter at most, or by little.

    Example:
        b = f(a); c = f(b); y = f(x); z = f(y)  →  b = f(a); y = f(x); c = f(b); z = f(y)
    """
    description = Description.of_program(graph, options)
    operations = description.operations()
    begin = len(description.entries) - len(graph.nodes)  # entries before this one are no nodes

    def find_before() -> list[list[int]]:
        return [[j - begin for j in before if j >= begin] for before in operations.before[begin:]]

    device_costs = machine_of(options).schedule
    costs = [node_cost(node, device_costs) if runs(node, description.views) else None for node in graph.nodes]
    sends = [is_message(node.command, node.params) for node in graph.nodes]
    seconds = [
        0.0 if cost is None else estimate_seconds(cost.flops, cost.nbytes, device_costs, to_others)
        for cost, to_others in zip(costs, sends, strict=True)
    ]
    pinned = [
        MESSAGES if to_others else 0 if node.graphs and node.command not in PRINTED else None
        for node, to_others in zip(graph.nodes, sends, strict=True)
    ]
    schedule = choose_streams(find_before, seconds, pinned, options)
    if len(schedule.streams) == 1:
        return graph
    order = sorted(range(len(graph.nodes)), key=lambda i: schedule.planned[i][0])
    wanted = operations.peak([*range(begin), *(begin + i for i in order)])
    if not is_affordable(options, operations.peak(range(len(description.entries))), wanted):
        return graph
    return graph.update(nodes=tuple(map(graph.nodes.__getitem__, order)))
