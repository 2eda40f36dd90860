"""Estimates the work of nodes and steps: floating-point operations, and bytes that are read and written."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from nnc.base.bounded import remembered
from nnc.base.size import hint
from nnc.base.source import SourceLine
from nnc.base.target import Schedule
from nnc.commands.control import PRINTED
from nnc.commands.properties import flops_of
from nnc.graph import Graph, Node
from nnc.graph.spec import plain
from nnc.lower.plan.schedule.assign import estimate_seconds
from nnc.lower.plan.stages import Branches, Step


class CostRow(NamedTuple):
    """One step: floating-point operations, bytes that it reads and writes, and about how long it takes on one core."""

    command: str
    flops: int
    nbytes: int
    seconds: float
    source: SourceLine | None


def node_cost(node: Node, costs: Schedule) -> CostRow:
    """Returns the cost of a node; its sub-graphs count once for each iteration where their number is known. Values within a
    kernel touch no memory.
    """
    rows = [node_cost(inner, costs) for graph in node.graphs for inner in graph.nodes]
    iterations = hint(node.params.get("length")) or 1
    specs = [plain(symbol.spec) for symbol in node.inputs]
    flops = flops_of(node.command, specs, node.params) if not node.graphs else 0
    flops += iterations * sum(row.flops for row in rows)
    nbytes = sum(hint(symbol.spec.nbytes) for symbol in (*node.inputs, *node.outputs))
    nbytes += iterations * sum(row.nbytes for row in rows) if node.command not in PRINTED else 0
    return CostRow(node.command.name, flops, nbytes, estimate_seconds(flops, nbytes, costs), node.source)


def step_bytes(step: Step) -> int:
    """Bytes that a step reads and writes; see `_inside` for loops and branches."""
    own = sum(hint(view.spec.nbytes) for view in (*step.inputs, *step.outputs))
    return own + _inside(step, step_bytes)


def step_flops(step: Step) -> int:
    """Floating-point operations of a step; see `_inside` for loops and branches, nodes of other sub-graphs count once."""
    if step.graphs:
        return sum(map(_graph_flops, step.graphs))
    own = flops_of(step.command, list(map(plain, step.input_specs)), step.params) if step.region is None else 0
    return own + _inside(step, step_flops)


@remembered  # kernels that are alike share a graph
def _graph_flops(graph: Graph) -> int:
    """Counts the floating-point operations of a sub-graph and of those within it, each once."""
    nodes = [node for node in graph.walk() if not node.graphs]
    return sum(flops_of(node.command, [plain(symbol.spec) for symbol in node.inputs], node.params) for node in nodes)


def _inside(step: Step, measure: Callable[[Step], int]) -> int:
    """Returns the cost of a step's region: its most expensive branch; its iterations, one where their number is not known."""
    if isinstance(step.region, Branches):
        return max((sum(map(measure, branch)) for branch in step.region.branches), default=0)
    if step.region is None:
        return 0
    c = step.region.copies[-1]
    iterations = hint(step.region.length) if step.region.length is not None else 1
    return iterations * sum(map(measure, (*c.head, *c.tail, *c.turn)))
