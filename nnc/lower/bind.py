"""Binds the symbols of a graph to numbered buffers: graph → `Bound`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np

from nnc.dtypes import TAPE
from nnc.graph import Graph, Symbol
from nnc.lower.passes.inplace import runs
from nnc.lower.stages import Bound, Buffer, Kind, Step, SymbolView, View
from nnc.source import SourceLine


def bind_buffers(graph: Graph) -> Bound:
    """The steps of `graph` on buffers.

    Args:     graph: one with the attributes "views" and "inplace", each output of which has memory of its own.
    """
    views: Mapping[Symbol, SymbolView] = graph.attrs["views"]
    overwritten: Mapping[Symbol, Symbol] = graph.attrs["inplace"]
    owner: dict[Symbol, Symbol] = {}
    for symbol, base in overwritten.items():
        owner[symbol] = owner.get(base, base)
    returned = {owner.get(views[s].base, views[s].base) for s in graph.outputs}
    numbers: dict[Symbol, int] = {}
    buffers: list[Buffer] = []
    counts: Counter[Kind] = Counter()

    def add(kind: Kind, symbol: Symbol, source: SourceLine | None = None) -> None:
        numbers[symbol] = len(buffers)
        buffers.append(Buffer(kind, counts[kind], symbol, source))
        counts[kind] += 1

    for symbol in graph.inputs:
        add(Kind.INPUT, symbol)
    for symbol in graph.constants:
        add(Kind.CONSTANT, symbol)
    for node in graph.nodes:
        for symbol in node.outputs:
            if views[symbol].base is symbol and symbol not in owner:
                kind = Kind.TAPE if symbol.dtype == TAPE else Kind.OUTPUT if symbol in returned else Kind.ARENA
                add(kind, symbol, node.source)

    def view_of(symbol: Symbol) -> View:
        view = views[symbol]
        return View(numbers[owner.get(view.base, view.base)], view.spec, view.offset, view.strides)

    steps = tuple(
        Step(
            node.command,
            tuple(map(view_of, node.inputs)),
            tuple(map(view_of, node.outputs)),
            node.params,
            node.graphs,
            node.source,
        )
        for node in graph.nodes
        if runs(node, views)
    )
    written = {view.buffer for step in steps for view in step.outputs}
    return Bound(
        name=graph.name,
        inputs=graph.input_specs,
        constants=tuple(np.ascontiguousarray(x).reshape(np.shape(x)) for x in graph.constants.values()),
        buffers=tuple(buffers),
        steps=steps,
        outputs=tuple(map(view_of, graph.outputs)),
        donated=tuple(i for i in range(len(graph.inputs)) if i in written),
    )
