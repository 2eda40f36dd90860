"""A compiled function as one operation that can be differentiated: a forward part, and a linear part for the reverse pass.

The forward part returns, beside the function's results, the values that the linear part reads and that are neither operands
nor results (*residuals*), so nothing is computed twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nnc.array.array import Array
from nnc.base.dtypes import TAPE
from nnc.base.records import record
from nnc.commands.rules import is_differentiable, zeros
from nnc.graph import Graph, TensorSpec
from nnc.trace.core.backward import fill, push_graph
from nnc.trace.core.dual import run_linearize
from nnc.trace.core.staging import Staged, StagedTracer, StagingTrace


@record
class LinearPart:
    """The linear part of a function at a point.

    Its inputs are tangents of the operands for which `moving` is set, then `values`: positions among operands, results and
    residuals, in this order, or arrays. Its outputs are tangents of the results for which `nonzero` is set.
    """

    graph: Graph
    moving: tuple[bool, ...]
    nonzero: tuple[bool, ...]
    values: tuple[int | Array, ...]
    results: int

    def push(self, tangents: Sequence[Any], specs: Sequence[TensorSpec], value: Callable[[int], Any]) -> list[Any]:
        """Tangents of the results, None where zero; `value` gives the value at a position."""
        given = [
            zeros(spec) if t is None else t for t, spec, on in zip(tangents, specs, self.moving, strict=True) if on
        ]
        read = [value(x) if isinstance(x, int) else x for x in self.values]
        return fill(push_graph(self.graph, [*given, *read]), self.nonzero)


def split(graph: Graph, active: Sequence[bool]) -> tuple[Staged, LinearPart] | None:
    """Splits a graph into a forward part, which returns its results and residuals, and a part that is linear in the `active`
    inputs.

    Returns:
        both graphs; None where a loop returns a tape, which no program can return.
    """
    trace = StagingTrace(graph.name)
    moving = tuple([on and is_differentiable(spec) for on, spec in zip(active, graph.input_specs, strict=True)])
    with trace.recording(device=None):
        inputs = [trace.input(spec) for spec in graph.input_specs]
        outputs, linear = run_linearize(lambda *values: graph.evaluate(values), inputs, moving)
        places = {x.symbol: i for i, x in enumerate(inputs)}
        for i, x in enumerate(outputs):
            if isinstance(x, StagedTracer):
                places.setdefault(x.symbol, len(inputs) + i)
        residuals: list[StagedTracer] = []
        values: list[int | Array] = []
        for x in linear.staged.captured:
            if not isinstance(x, StagedTracer):
                values.append(x)
                continue
            if x.symbol not in places:
                places[x.symbol] = len(inputs) + len(outputs) + len(residuals)
                residuals.append(x)
            values.append(places[x.symbol])
        if any(x.spec.dtype == TAPE for x in residuals):
            return None
        forward = trace.finish([*outputs, *residuals])
    return forward, LinearPart(linear.staged.graph, moving, linear.nonzero, tuple(values), len(outputs))
