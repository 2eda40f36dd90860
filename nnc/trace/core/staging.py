"""Staging: runs a function on abstract tracers and records every command as a node of a graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, cast

import numpy as np

from nnc.array.array import Array, as_value
from nnc.array.promote import WeakScalar, astype
from nnc.array.traced_scalar import TracedScalar
from nnc.base import dtypes
from nnc.base.context import Context, get_context, set_context
from nnc.base.dtypes import TAPE
from nnc.base.source import SourceLine, user_source
from nnc.commands.rules import is_differentiable
from nnc.commands.shape import broadcast_to
from nnc.commands.weakness import with_inherited_weakness
from nnc.errors import TraceError
from nnc.graph import Command, Graph, GraphBuilder, InlineGraph, Symbol, TensorSpec, spec_of
from nnc.trace.core.axes import NOWHERE, Axes, align, axes_of_results, entered, outer_axes, union, vary, varying_over
from nnc.trace.core.tracer import Tracer

Flat = Callable[..., Sequence[Any]]


class StagedTracer(Tracer):
    """Stands for a symbol of the graph that is being recorded."""

    __slots__ = ("symbol",)

    def __init__(
        self, trace: StagingTrace, symbol: Symbol, source: SourceLine | None, weak: dtypes.Weakness = False
    ) -> None:
        self.owner, self.spec, self.source, self.weak, self.symbol = trace, symbol.spec, source, weak, symbol

    def varying_over(self) -> Axes | None:
        """Returns the axes over which it varies, as its trace knows them."""
        trace = cast("StagingTrace", self.owner)
        return union((trace.varying_over(self.symbol), entered(self, trace.level)))

    def check_field(self, is_module: bool) -> None:
        """Checks a field of a dataclass that holds this value, when the dataclass is flattened. Where numbers become operands
        (nnc.compiled.freed_numbers), the value may stand for a number, which otherwise is a setting: derivatives, maps and
        loops would treat it as another array. It may be a part of the result, but no parameter of a module.

        Raises:
            TraceError: the function has to be traced for each number.
        """
        call = get_context().call
        if call is None or not call.has_freed_numbers or self.spec.shape:
            return
        may_be_number = bool(self.weak) or dtypes.is_bool(self.spec.dtype)
        if may_be_number and (call.is_running or (is_module and dtypes.is_inexact(self.spec.dtype))):
            raise TraceError("a number in a field of a dataclass is a setting here")


class StagingTrace:
    """Records commands into a graph.

    Values from outside (arrays, tracers of enclosing traces) become hidden inputs by identity; scalars, which nobody can change,
    become constants. `linear` marks the graphs of tangents that `linearize` makes; `forward` those that keep nothing for
    transposition.
    """

    differentiates = False

    def __init__(self, name: str, linear: bool = False, forward: bool = False) -> None:
        self.builder = GraphBuilder(name)
        self.level, self.linear, self.forward = self.builder.level, linear, forward
        self.alive = True
        self.captured: dict[int, tuple[Any, Symbol]] = {}  # holds the value, too, so that no other object gets its id
        self._scalars: dict[tuple[Any, ...], Symbol] = {}
        self._spreads: dict[tuple[Any, ...], Symbol] = {}
        self.values: dict[Symbol, Any] = {}  # captured values, by their symbols
        self.calls: dict[tuple[Any, ...], Any] = {}  # specialised calls (nnc.trace.core.staged_call)
        self.is_recording = False  # whether the first such call is being recorded

    @contextmanager
    def recording(self, **changes: Any) -> Iterator[Context]:
        """A block whose commands are recorded; the trace ends with it. `changes` are to the context."""
        try:
            with set_context(staging=self, level=self.level, source=None, **changes) as context:
                yield context
        finally:
            self.alive = False
            self.calls.clear()  # specialised calls hold traces, which hold values of this one

    def input(self, spec: TensorSpec, *, weak: dtypes.Weakness = False, name: str = "") -> StagedTracer:
        """Returns a new explicit input."""
        return StagedTracer(self, self.builder.input(spec, name=name), get_context().source, weak)

    def symbol_of(self, value: Any) -> Symbol:
        """Returns the symbol that stands for `value` in this graph."""
        if type(value) is StagedTracer and value.owner is self:
            return value.symbol
        if isinstance(value, Array) and value.spec.shape == () and value.spec.dtype != TAPE:
            value = value.data[()]
        elif isinstance(value, WeakScalar) and not value.ndim:
            value = value.dtype.type(value)
        if dtypes.is_scalar(value):
            value = astype(value, dtypes.exact_dtype(value), "argument")
        if isinstance(value, np.generic):
            key = type(value), np.asarray(value).tobytes()
            symbol = self._scalars.get(key)
            if symbol is None:
                symbol = self._scalars[key] = self.builder.constant(value)
            return symbol
        if type(value) is TracedScalar:
            value = value.root
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
            return [
                StagedTracer(self, self._spread(symbols[0], params, source), source, getattr(args[0], "weak", False))
            ]
        outputs = self.builder.record(command, symbols, params, graphs, source)
        results = [StagedTracer(self, symbol, source) for symbol in outputs]
        return with_inherited_weakness(command, args, graphs, results)

    def _spread(self, symbol: Symbol, params: Mapping[str, Any], source: SourceLine | None) -> Symbol:
        """Returns a symbol broadcast to a shape along given axes; the broadcast is recorded once for equal requests."""
        key = symbol, params["shape"], params.get("axes")
        found = self._spreads.get(key)
        if found is None:
            (found,) = self.builder.record(broadcast_to, (symbol,), params, (), source)
            self._spreads[key] = found
        return found

    def hide_spreads(self) -> dict[tuple[Any, ...], Symbol]:
        """Hides the broadcasts recorded so far from the commands that follow, so that their nodes read their own operands.

        Returns:
            the argument for `show_spreads`.
        """
        before, self._spreads = self._spreads, {}
        return before

    def show_spreads(self, before: dict[tuple[Any, ...], Symbol]) -> None:
        """Lets commands find the hidden broadcasts again."""
        for key, symbol in self._spreads.items():
            before.setdefault(key, symbol)
        self._spreads = before

    def varying_over(self, symbol: Symbol) -> Axes | None:
        """Returns the axes over which a symbol varies; None where they are not known."""
        return outer_axes(self.level)

    def is_known(self, symbol: Symbol) -> bool:
        """Whether a symbol stands for a known value: a constant, or a captured array."""
        return self.builder.is_constant(symbol) or isinstance(self.values.get(symbol), (Array, TracedScalar))

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


class NamedStagingTrace(StagingTrace):
    """Records commands within a named axis. It knows of each symbol over which axes it varies, and aligns operands.

    `entry` are axes over which all captured values are made to vary: within a branch that not all places take no command may
    join the values of places.
    """

    def __init__(self, name: str, entry: Axes = NOWHERE) -> None:
        super().__init__(name)
        context = get_context()
        self.outer, self.outer_level = context.staging, context.level
        self.probes: Any = None  # the custom function whose rule is asked for axes (nnc.trace.core.custom_axes)
        self.entry = entry
        self.constant_axes: Axes = entry | getattr(self.outer, "constant_axes", NOWHERE)
        self._axes: dict[Symbol, Axes | None] = {}
        self._varied: dict[tuple[int, Axes], tuple[Any, Any]] = {}  # captured values and the ones that vary
        self._broadcasts: dict[Symbol, tuple[Any, dict[str, Any]]] = {}  # operands and parameters by results

    def named_input(self, spec: TensorSpec, weak: dtypes.Weakness, axes: Axes | None) -> StagedTracer:
        """Returns a new explicit input that varies over these axes."""
        tracer = self.input(spec, weak=weak)
        self._axes[tracer.symbol] = axes
        return tracer

    def note_axes(self, tracer: StagedTracer, axes: Axes | None) -> None:
        """Says over which axes a value varies."""
        self._axes[tracer.symbol] = axes

    def varying_over(self, symbol: Symbol) -> Axes | None:
        """Returns the axes over which a symbol varies; constants vary over none but those of `entry`, here and outside."""
        if symbol in self._axes:
            return self._axes[symbol]
        return self.constant_axes if is_differentiable(symbol.spec) else NOWHERE

    def symbol_of(self, value: Any) -> Symbol:
        """Returns the symbol that stands for `value` in this graph."""
        value = self._enter(value)
        symbol = super().symbol_of(value)
        if isinstance(value, Tracer) and value.owner is not self:
            self._axes[symbol] = varying_over(value)
        return symbol

    def _enter(self, value: Any) -> Any:
        """Returns a value; in place of a captured one, one that varies over the axes of `entry` and is made outside of this
        trace.
        """
        return self._vary(value, self.entry) if self.entry and self._is_captured(value) else value

    def _is_captured(self, value: Any) -> bool:
        return isinstance(value, Tracer) and value.owner is not self and is_differentiable(value.spec)

    def _vary(self, value: Any, axes: Axes) -> Any:
        """Returns a value that varies over these axes, too. It is made as early as can be, outside of this trace and before a
        broadcast, so that the cotangents of all iterations and elements are added before those of the places.
        """
        if type(value) is StagedTracer and value.owner is self and value.symbol in self._broadcasts:
            operand, params = self._broadcasts[value.symbol]
            return self.process(broadcast_to, [self._vary(operand, axes)], params, ())[0]
        inner = frozenset(axis for axis in axes if axis.level >= self.level)
        if inner == axes or not self._is_captured(value):
            return vary(value, axes)
        key = id(value), axes - inner
        if key not in self._varied:
            with set_context(staging=self.outer, level=self.outer_level):
                make = self.outer._vary if isinstance(self.outer, NamedStagingTrace) else vary
                self._varied[key] = (value, make(value, axes - inner))
        return vary(self._varied[key][1], inner)

    def process(
        self, command: Command, args: Sequence[Any], params: dict[str, Any], graphs: tuple[Graph, ...]
    ) -> Sequence[Any]:
        """Records a command whose operands vary over the same axes; commands with sub-graphs take them as they are."""
        args = list(map(self._enter, args))
        args = args if graphs else align(command, args, self._vary)
        operands = [self.varying_over(self.symbol_of(arg)) for arg in args]
        outputs = super().process(command, args, params, graphs)
        results = operands if command is broadcast_to else axes_of_results(self.builder.last_node, operands)
        for tracer, axes in zip(outputs, results, strict=True):
            self._axes[tracer.symbol] = axes
        if command is broadcast_to and is_differentiable(outputs[0].spec):
            self._broadcasts.setdefault(outputs[0].symbol, (args[0], params))
        return outputs

    def finish(self, outputs: Sequence[Any]) -> Staged:
        """Ends the trace."""
        symbols = [self.symbol_of(x) for x in outputs]
        return super().finish(outputs)._replace(axes=tuple(map(self.varying_over, symbols)))


class Staged(NamedTuple):
    """A traced graph. Its last inputs are hidden: they stand for `captured`, values from outside the function.

    `axes` are the named axes over which its outputs vary, where it was traced within some.
    """

    graph: Graph
    captured: tuple[Any, ...]
    axes: tuple[Axes | None, ...] = ()

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


def axes_of(values: Sequence[Any]) -> list[Axes | None] | None:
    """Returns the named axes over which values vary, for `stage`; None outside of named axes."""
    return [varying_over(x) for x in values] if get_context().axes else None


def stage(
    fun: Flat, specs: Sequence[TensorSpec], *, weak: Sequence[dtypes.Weakness] | None = None, name: str = "graph",
    axes: Sequence[Axes | None] | None = None, entry: Axes = NOWHERE, linear: bool = False,
) -> Staged:  # fmt: skip
    """Traces `fun`, which takes and returns flat sequences of values, on abstract arguments.

    Args:
        specs: the specs of the arguments.
        weak: which arguments take the dtype of arrays that they meet.
        name: the graph's name.
        axes: the named axes over which each argument varies (`axes_of`); None outside of named axes, and for functions whose
            commands are aligned already, as the functions of rules are.
        entry: axes over which captured values are made to vary.
        linear: whether the graph computes tangents, to be transposed later; users' backward rules are then kept as they are.
    """
    weak = weak or [False] * len(specs)
    trace = StagingTrace(name, linear) if axes is None else NamedStagingTrace(name, entry)
    with trace.recording():
        if isinstance(trace, NamedStagingTrace) and axes is not None:
            tracers = [trace.named_input(*x) for x in zip(specs, weak, axes, strict=True)]
        else:
            tracers = [trace.input(spec, weak=is_weak) for spec, is_weak in zip(specs, weak, strict=True)]
        return trace.finish(fun(*tracers))
