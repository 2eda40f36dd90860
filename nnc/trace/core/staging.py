"""Staging: runs a function on abstract tracers and records every command as a node of a graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nnc.array import Array, as_value
from nnc.commands.shape import broadcast_to
from nnc.context import get_context, set_context
from nnc.dtypes import TAPE
from nnc.graph import Command, Graph, GraphBuilder, InlineGraph, Symbol, TensorSpec, spec_of
from nnc.source import SourceLine, user_source
from nnc.trace.core.tracer import Tracer

Flat = Callable[..., Sequence[Any]]


class StagedTracer(Tracer):
    """Stands for a symbol of the graph that is being recorded."""

    __slots__ = ("symbol",)

    def __init__(self, trace: StagingTrace, symbol: Symbol, source: SourceLine | None, weak: bool = False) -> None:
        self.owner, self.spec, self.source, self.weak, self.symbol = trace, symbol.spec, source, weak, symbol


class StagingTrace:
    """Records commands into a graph.

    Values from outside (arrays, tracers of enclosing traces) become hidden inputs by identity; scalars, which nobody can change,
    become constants. `linear` marks the graphs of tangents that `linearize` makes.
    """

    differentiates = False

    def __init__(self, name: str, linear: bool = False) -> None:
        self.builder = GraphBuilder(name)
        self.level, self.linear = self.builder.level, linear
        self.alive = True
        self.captured: dict[int, tuple[Any, Symbol]] = {}  # holds the value, too, so that no other object gets its id
        self._scalars: dict[tuple[Any, ...], Symbol] = {}
        self._spreads: dict[tuple[Any, ...], Symbol] = {}
        self.values: dict[Symbol, Any] = {}  # captured values, by their symbols
        self.calls: dict[tuple[Any, ...], Any] = {}  # specialised calls (nnc.trace.core.staged_call)
        self.is_recording = False  # whether the first such call is being recorded

    def input(self, spec: TensorSpec, *, weak: bool = False, name: str = "") -> StagedTracer:
        """A new explicit input."""
        return StagedTracer(self, self.builder.input(spec, name=name), get_context().source, weak)

    def symbol_of(self, value: Any) -> Symbol:
        """The symbol that stands for `value` in this graph."""
        if type(value) is StagedTracer and value.owner is self:
            return value.symbol
        if isinstance(value, Array) and value.spec.shape == () and value.spec.dtype != TAPE:
            value = value.data[()]
        if isinstance(value, (np.generic, bool, int, float, complex)):
            key = type(value), np.asarray(value).tobytes()
            symbol = self._scalars.get(key)
            if symbol is None:
                symbol = self._scalars[key] = self.builder.constant(value)
            return symbol
        entry = self.captured.get(id(value))
        if entry is None:
            symbol = Symbol(spec_of(value), "captured")
            self.builder.adopt(symbol)
            entry = self.captured[id(value)] = (value, symbol)
            self.values[symbol] = value
        return entry[1]

    def process(
        self, command: Command, args: Sequence[Any], params: dict[str, Any], graphs: tuple[Graph, ...]
    ) -> Sequence[Any]:
        """Records a command as a node."""
        symbols = tuple(
            [arg.symbol if type(arg) is StagedTracer and arg.owner is self else self.symbol_of(arg) for arg in args]
        )
        source = get_context().source or user_source()
        if command is broadcast_to:
            return [StagedTracer(self, self._spread(symbols[0], params, source), source)]
        outputs = self.builder.record(command, symbols, params, graphs, source)
        return [StagedTracer(self, symbol, source) for symbol in outputs]

    def _spread(self, symbol: Symbol, params: Mapping[str, Any], source: SourceLine | None) -> Symbol:
        """Returns a symbol broadcast to a shape along given axes; the broadcast is recorded once for equal requests."""
        key = symbol, params["shape"], params.get("axes")
        found = self._spreads.get(key)
        if found is None:
            (found,) = self.builder.record(broadcast_to, (symbol,), params, (), source)
            self._spreads[key] = found
        return found

    def hide_spreads(self) -> dict[tuple[Any, ...], Symbol]:
        """Lets the commands that follow find no broadcast that was recorded before, so that their nodes read their own operands.

        Returns:
            The argument of `show_spreads`.
        """
        before, self._spreads = self._spreads, {}
        return before

    def show_spreads(self, before: dict[tuple[Any, ...], Symbol]) -> None:
        """Lets commands find the hidden broadcasts again."""
        for key, symbol in self._spreads.items():
            before.setdefault(key, symbol)
        self._spreads = before

    def is_known(self, symbol: Symbol) -> bool:
        """Whether a symbol stands for a known value: a constant, or a captured array."""
        return self.builder.is_constant(symbol) or isinstance(self.values.get(symbol), Array)

    def inline(self, graph: InlineGraph, operands: Sequence[Symbol], source: SourceLine | None) -> list[Symbol]:
        """Records nodes for these operands, and returns the symbols of their outputs."""
        symbols = [*operands]
        self.builder.inline(graph, symbols, source, self._spread)
        return [symbols[i] for i in graph.outputs]

    def finish(self, outputs: Sequence[Any]) -> Staged:
        """Ends the trace."""
        graph = self.builder.build(*[self.symbol_of(x) for x in outputs])
        self.alive = False
        captured = tuple(self.captured.values())
        graph = graph.update(inputs=(*graph.inputs, *(symbol for _, symbol in captured)))
        return Staged(graph, tuple(as_value(value) for value, _ in captured))


@dataclass(frozen=True, slots=True)
class Staged:
    """A traced graph. Its last inputs are hidden: they stand for `captured`, values from outside the function."""

    graph: Graph
    captured: tuple[Any, ...]

    def without_unread(self) -> Staged:
        """Returns the graph without nodes that no output depends on, and without captured values that only such nodes read."""
        graph, count = self.graph.restrict(self.graph.outputs), self.num_explicit
        reads = graph.reads
        hidden = [(s, x) for s, x in zip(graph.inputs[count:], self.captured, strict=True) if s in reads]
        inputs = (*graph.inputs[:count], *(symbol for symbol, _ in hidden))
        return Staged(graph.update(inputs=inputs), tuple(value for _, value in hidden))

    @property
    def num_explicit(self) -> int:
        """The number of inputs that are the function's own arguments."""
        return len(self.graph.inputs) - len(self.captured)


def stage(fun: Flat, specs: Sequence[TensorSpec], *, weak: Sequence[bool] | None = None, name: str = "graph") -> Staged:
    """Traces `fun`, which takes and returns flat sequences of values, on abstract arguments."""
    trace = StagingTrace(name)
    weak = weak or [False] * len(specs)
    try:
        with set_context(staging=trace, level=trace.level, source=None):
            tracers = [trace.input(spec, weak=is_weak) for spec, is_weak in zip(specs, weak, strict=True)]
            return trace.finish(fun(*tracers))
    finally:
        trace.alive = False
        trace.calls.clear()  # specialised calls hold traces, which hold values of this one
