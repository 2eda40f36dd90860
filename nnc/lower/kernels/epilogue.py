"""Epilogues: commands on each element of a product as soon as it is known, the sub-graph of a `with_epilogue` node.

Its first node is the product, of the sub-graph's first two inputs; the others are elementwise commands, and views that merely name
axes. Every result has an element for each of the product's, so each can be written where a tile of the product would have been.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nnc.base.bounded import remembered
from nnc.base.target import Target
from nnc.commands.properties import is_placed, takes_epilogue
from nnc.graph import Graph, Node, Symbol
from nnc.lower.kernels.builder import Code, Value
from nnc.lower.kernels.domain import UNIT, Domain, Labels, can_fuse, is_reduction, is_view
from nnc.lower.kernels.scalars import scalar
from nnc.lower.plan.stages import Strides, View


@dataclass(frozen=True, eq=False)
class Epilogue:
    """The sub-graph of a `with_epilogue` node. `operands` are its operands beside the product, and its results."""

    graph: Graph
    product: Node
    nodes: tuple[Node, ...]
    domain: Domain

    @classmethod
    def of(cls, graph: Graph, machine: Target) -> Epilogue | None:
        """Returns the epilogue of a sub-graph on a machine; None where that is not computed element by element."""
        parts = _parts_of(graph, machine)
        return cls(graph, *parts) if parts is not None else None

    @property
    def operands(self) -> tuple[Symbol, ...]:
        """The symbols that are read beside the product, then the results."""
        return (*self.graph.inputs[2:], *self.graph.outputs)

    def strides(self, symbol: Symbol, strides: Strides) -> Strides:
        """Returns the strides of an operand along the product's axes: 0 along axes that it has not."""
        step = dict(zip(self.domain.axes(symbol), strides, strict=True))
        axes: Labels = self.domain.axes(self.product.outputs[0])
        return tuple(0 if label == UNIT else step.get(label, 0) for label in axes)

    def all_strides(self, inputs: Sequence[View], outputs: Sequence[View]) -> list[Strides]:
        """Returns the strides of all operands along the product's axes, for a step on these views."""
        views = (*inputs[2:], *outputs)
        return [self.strides(symbol, view.strides) for symbol, view in zip(self.operands, views, strict=True)]


@remembered  # passes and searches for kernels ask for each several times
def _parts_of(graph: Graph, machine: Target) -> tuple[Node, tuple[Node, ...], Domain] | None:
    """Parts of an epilogue beside its sub-graph."""
    if not graph.nodes or not takes_epilogue(graph.nodes[0].command):
        return None
    product, *nodes = graph.nodes
    if product.inputs != graph.inputs[:2]:
        return None
    if any(not can_fuse(node, machine) or is_reduction(node) or is_placed(node.command) for node in nodes):
        return None
    domain = Domain.of(graph.update(inputs=(product.outputs[0], *graph.inputs[2:]), nodes=tuple(nodes)))
    every = set(domain.axes(product.outputs[0])) - {UNIT}
    symbols = (*graph.inputs[2:], *(node.outputs[0] for node in nodes))
    sound = domain.is_sound() and all(set(domain.axes(s)) - {UNIT} <= every for s in symbols)
    full = all(set(domain.axes(s)) - {UNIT} == every for s in graph.outputs)
    return (product, tuple(nodes), domain) if sound and full else None


def evaluate(code: Code, epilogue: Epilogue, known: dict[Symbol, Value]) -> list[Value]:
    """Prints the values of the results, all with as many lanes as the widest of the product's and the inputs' values."""
    graph = epilogue.graph
    for symbol, number in graph.constants.items():
        known[symbol] = code.constant(number.reshape(-1)[0], symbol.dtype)
    for node in epilogue.nodes:
        out = node.outputs[0]
        if is_view(node):
            known[out] = known[node.inputs[0]]
            continue
        operands = [known[x] for x in node.inputs]
        known[out] = scalar(code, node.command, code.match(*operands) if operands else [], out.dtype, node.params)
    lanes = known[epilogue.product.outputs[0]].lanes
    return [code.splat(known[x], lanes) if lanes else known[x] for x in graph.outputs]
