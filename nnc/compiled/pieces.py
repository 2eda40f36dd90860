"""Calls of compiled functions within transforms that are not compiled: the function's share of the transform runs as programs.

In reverse mode these are a forward pass, which also returns the values that the backward pass reads, and the backward pass; in
forward mode it is the function with its tangents, under `vmap` the function of all rows. Each program is that of a compiled
function, which an enclosing transform may call, so transforms nest.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import compress
from typing import Any

from nnc.array.array import asarray, settled
from nnc.array.device_array import DeviceArray
from nnc.array.promote import astype
from nnc.base import dtypes
from nnc.base.context import get_context
from nnc.base.source import user_source
from nnc.compiled.executable import Lowered
from nnc.device import CPU
from nnc.graph import spec_of
from nnc.trace.core.backward import fill, transpose_graph
from nnc.trace.core.batching import BatchTrace, BatchTracer, run_batched
from nnc.trace.core.dual import DualTrace, run_jvp
from nnc.trace.core.dual_tracer import DualTracer
from nnc.trace.core.pulls import apply_pull_only
from nnc.trace.core.square_roots import hands_out_roots
from nnc.trace.core.staging import Staged
from nnc.trace.core.tracer import Tracer
from nnc.trace.dynamic.linear import LinearPart, split

Fun = Callable[..., Any]


class Pieces:
    """The programs of one traced function, made when a transform first needs them.

    Args:
        lowered: the traced function.
        compile: compiles a function of arrays.
    """

    def __init__(self, lowered: Lowered, compile: Callable[[Fun], Fun]) -> None:
        self.snapshot, self._lowered, self._compile = lowered.snapshot, lowered, compile
        self._graph, used = lowered.wanted()
        self._reads = [i for i in used if i < lowered.num_explicit]
        # not operands of the programs: each takes them to its device
        self._captured = tuple([lowered.captured[i - lowered.num_explicit] for i in used[len(self._reads) :]])
        self._hands_out_roots = hands_out_roots(self._graph)
        self._known: dict[Hashable, Any] = {}

    def call(self, leaves: Sequence[Any]) -> Any:
        """Returns the function's result for traced leaves; NotImplemented where its commands must be seen one by one: where square
        roots come in or go out, whose squares have derivatives at 0, and where a linear map is made for forward mode.
        """
        operands = [
            astype(leaves[i], spec.dtype, "argument") if dtypes.is_scalar(leaves[i]) else leaves[i]
            for i, spec in zip(self._reads, self._graph.input_specs, strict=False)
        ]
        owners = [x.owner for x in operands if isinstance(x, Tracer)]
        trace = max(owners, key=lambda owner: owner.level, default=None)
        results: list[Any] | None = None
        if type(trace) is BatchTrace:
            results = self._map(trace, operands)
        elif type(trace) is DualTrace and not self._takes_roots(operands):
            results = self._push(trace, operands) if trace.linear is None else self._linearize(trace, operands)
        return NotImplemented if results is None else self._lowered.build(results)

    def _takes_roots(self, operands: Sequence[Any]) -> bool:
        return self._hands_out_roots or any(getattr(x, "origin", None) is not None for x in operands)

    def _evaluate(self) -> Fun:
        graph, captured = self._graph, self._captured
        return lambda *values: graph.evaluate([*values, *captured])

    def _piece(self, key: Hashable, make: Callable[[], Any]) -> Any:
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = make()
        return found

    def _map(self, trace: BatchTrace, operands: Sequence[Any]) -> list[Any]:
        """Runs the function for all rows."""
        pairs = [trace.split(x) for x in operands]
        batched, size = tuple([on for _, on in pairs]), trace.size
        rows = self._piece((size, batched), lambda: self._compile(_rows_of(self._evaluate(), size, batched)))
        mapped, same = rows(*[x for x, _ in pairs])
        return [y if x is None else BatchTracer(trace, x, x.weak) for x, y in zip(mapped, same, strict=True)]

    def _push(self, trace: DualTrace, operands: Sequence[Any]) -> list[Any]:
        """Runs the function with its tangents."""
        pairs = [trace.split(x) for x in operands]
        push = self._piece("push", lambda: self._compile(_push_of(self._evaluate())))
        return _duals(trace, *push([p for p, _ in pairs], [t for _, t in pairs]))

    def _linearize(self, trace: DualTrace, operands: Sequence[Any]) -> list[Any] | None:
        """Runs the forward pass, and records the backward pass as one command. None where that cannot be."""
        if trace.linear is None or trace.linear.forward:
            return None
        pairs = [trace.split(x) for x in operands]
        primals, active = [settled(p) for p, _ in pairs], tuple([t is not None for _, t in pairs])
        captured = list(map(settled, self._captured))
        lasting = tuple([x is y for x, y in zip(captured, self._captured, strict=True)])  # others may write to the rest
        passes = self._piece((active, lasting), lambda: self._passes(active, lasting))
        if passes is NotImplemented:
            return None
        forward, backward, linear = passes
        made = forward(*primals)
        device = next((x.device for x in made if isinstance(x, DeviceArray)), CPU)
        read_later = [x if lasts else asarray(x).to_device(device) for x, lasts in zip(captured, lasting, strict=True)]
        values, outputs = [*primals, *read_later, *made], made[: linear.results]
        known = {i for i, lasts in enumerate(lasting, len(primals)) if lasts}
        read = [values[i] for i in linear.values if isinstance(i, int) and i not in known]
        seeds = [t for (_, t), on in zip(pairs, linear.moving, strict=False) if on]
        specs = [spec_of(x) for x in compress(outputs, linear.nonzero)]
        moved = apply_pull_only(lambda cts: backward(read, list(cts)), seeds, specs, takes_none=True) if specs else []
        return _duals(trace, outputs, fill(moved, linear.nonzero))

    def _passes(self, active: Sequence[bool], lasting: Sequence[bool]) -> Any:
        """Returns the forward pass, the backward pass and the linear part; NotImplemented where no program can return the values
        that a loop keeps.
        """
        captured, count = self._captured, len(active)
        parts = split(self._graph, [*active, *[False] * len(captured)])
        if parts is None:
            return NotImplemented
        staged, linear = parts
        known = {i: x for i, (x, lasts) in enumerate(zip(captured, lasting, strict=True), count) if lasts}
        return self._compile(_forward_of(staged, captured)), self._compile(_backward_of(linear, known)), linear


def _rows_of(evaluate: Fun, size: int, batched: Sequence[bool]) -> Fun:
    """Returns the function of all rows: the outputs with the batch axis and the ones without, each with None for the others."""

    def rows(*values: Any) -> tuple[list[Any], list[Any]]:
        outputs, flags = run_batched(evaluate, size, values, batched)
        pairs = list(zip(outputs, flags, strict=True))
        return [x if on else None for x, on in pairs], [None if on else x for x, on in pairs]

    return rows


def _push_of(evaluate: Fun) -> Fun:
    def push(primals: list[Any], tangents: list[Any]) -> tuple[list[Any], list[Any]]:
        return run_jvp(evaluate, primals, tangents)

    return push


def _forward_of(staged: Staged, captured: Sequence[Any]) -> Fun:
    def forward(*primals: Any) -> list[Any]:
        return list(staged.graph.evaluate([*primals, *captured, *staged.captured]))

    return forward


def _backward_of(linear: LinearPart, known: Mapping[int, Any]) -> Fun:
    """Returns the backward pass, a function of the values that it reads and the cotangents.

    Args:
        known: captured values, by their places among those that the linear part reads.
    """

    def backward(read: list[Any], cts: list[Any]) -> list[Any]:
        rest = iter(read)
        values = [x if not isinstance(x, int) else known[x] if x in known else next(rest) for x in linear.values]
        return transpose_graph(linear.graph, sum(linear.moving), values, cts)

    return backward


def _duals(trace: DualTrace, outputs: Sequence[Any], tangents: Sequence[Any]) -> list[Any]:
    source = get_context().source or user_source()
    return [
        x if t is None or not dtypes.is_inexact(spec_of(x).dtype) else DualTracer(trace, x, t, source, x.weak)
        for x, t in zip(outputs, tangents, strict=True)
    ]
