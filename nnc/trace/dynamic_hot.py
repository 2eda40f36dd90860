"""Routines that ran so often that they are compiled: a program for all their commands, in place of a kernel for each.

What is recorded stays the same. The program yields the values that are kept, so what stands between them takes neither time nor
memory; views of what is kept are made anew.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nnc.array import Array, new_array
from nnc.commands.rules import alias
from nnc.errors import NncError
from nnc.graph import Graph, Node, Symbol
from nnc.trace.dynamic_routine import Record, Routine, Run
from nnc.trace.eager import run_plan

Program = Callable[[Sequence[np.ndarray[Any, Any]]], list[np.ndarray[Any, Any]]]
MakeProgram = Callable[[Graph], Program | None]

ENOUGH = (
    5e-3  # seconds; what compiling a small program takes. All times are estimates, so that equal runs give equal bits
)

_LOG = logging.getLogger("nnc")


def runner(routine: Routine, record: Record, make: MakeProgram) -> Run:
    """How a routine runs now: command by command, or, as soon as that has taken as long as compiling, as a program."""
    if record.run is not None:
        return record.run
    record.seconds += routine.seconds
    if record.seconds < ENOUGH:
        return routine.run
    record.run = routine.run
    try:
        record.run = _compiled(routine, record, make)
    except NncError as error:
        _LOG.debug("dynamic graph: %s is not compiled: %s", routine.name, str(error).splitlines()[0])
    return record.run


def _compiled(routine: Routine, record: Record, make: MakeProgram) -> Run:
    """The routine as a program with a view of what it yields for each view that is kept."""
    first = routine.first
    makers = {place: (plan, places) for plan, places, outputs in routine.placed() for place in outputs}
    yielded: list[int] = []
    views: dict[int, tuple[Any, int]] = {}

    def want(place: int) -> None:
        if place < first or place in views or place in yielded:
            return
        plan, places = makers[place]
        if alias.get(plan.command, None) == "view" and len(places) == 1:
            want(places[0])
            views[place] = plan, places[0]
        else:
            yielded.append(place)

    for place, _, is_kept in record.made:
        if is_kept:
            want(place)
    graph, read = _as_graph(routine, yielded)
    program = make(graph)
    if program is None:
        return routine.run
    _LOG.debug("dynamic graph: compiled %s, which ran %d times", routine.name, round(record.seconds / routine.seconds))
    specs, unknown = [symbol.spec for symbol in graph.outputs], [None] * (len(routine.specs) - first)

    def run(operands: Sequence[Array]) -> Sequence[Array | None]:
        values: list[Any] = [*operands, *routine.constants, *unknown]
        found = program([values[i].data for i in read])
        for place, data, spec in zip(yielded, found, specs, strict=True):
            values[place] = new_array(data, spec)
        for place, (plan, source) in views.items():
            (values[place],) = run_plan(plan, [values[source].data])
        return values[first:]

    return run


def _as_graph(routine: Routine, yielded: Sequence[int]) -> tuple[Graph, list[int]]:
    """The commands as a graph that yields the values at these places, and the places that it reads."""
    symbols: dict[int, Symbol] = {}
    nodes, read = [], []
    for plan, places, ours in routine.placed():
        for place, spec in (*zip(places, plan.specs, strict=True), *zip(ours, plan.outputs, strict=True)):
            if place not in symbols:
                symbols[place] = Symbol(spec)
                if place < routine.first:
                    read.append(place)
        inputs, made = (tuple([symbols[i] for i in some]) for some in (places, ours))
        nodes.append(Node(plan.command, inputs, made, plan.params, plan.graphs))
    outputs = tuple([symbols[i] for i in yielded])
    return Graph(tuple([symbols[i] for i in read]), outputs, tuple(nodes), name=routine.name), read
