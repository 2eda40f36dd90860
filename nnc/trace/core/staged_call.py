"""Specialised calls within a trace: records the nodes of an earlier call again for other operands, without running the function.

A network applies its layers, and an optimizer its formula, to operands of few shapes many times over. Of calls with one key the
first runs the function. Its nodes are cut out of the trace, and nodes of tangents out of the linear graph beside it, in a form in
which later calls of the trace record them. While the first call runs, the trace hides earlier nodes, so that all operands of
its nodes show: operands of the call, constants, and results of its own nodes; a call that reads others is not recorded again.
A function that may close over values of the trace is traced by itself, where such values become captured ones.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from nnc.array.array import Array
from nnc.base.context import get_context, observes_commands, set_context
from nnc.base.source import SourceLine, user_source
from nnc.calls.specialise import exact_setting, set_layers
from nnc.commands.shape import broadcast_to
from nnc.graph import InlineGraph, Node, Symbol
from nnc.trace.core.dual_tracer import DualTracer, is_nested
from nnc.trace.core.specialised import is_plain, specialise
from nnc.trace.core.staging import StagedTracer, StagingTrace
from nnc.trace.core.tracer import Tracer

if TYPE_CHECKING:
    from nnc.trace.core.dual import DualTrace

_NEW: Any = object()
Layout = int | None | tuple["Layout", ...]  # a result: the number of a part, None, or a tuple of results


def record_call(function: Callable[..., Any], may_capture: bool, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Returns the result of a pure function while something is staged."""
    context = get_context()
    trace = context.staging
    if (
        type(trace) is not StagingTrace
        or trace.is_recording
        or context.meter is not None  # which counts the residuals of rules
        or (context.modes and observes_commands(context))
    ):
        return function(*args, **kwargs)
    key: list[Any] = [function, len(args), *kwargs]
    site = _Site(trace)
    for arg in (*args, *kwargs.values()) if kwargs else args:
        if type(arg) is StagedTracer and arg.owner is trace:
            site.operands.append(arg)
            site.primals.append(arg)
            key += (arg.spec, arg.weak, StagedTracer)
        elif not isinstance(arg, Tracer):
            key.append(exact_setting(arg))
        elif type(arg) is DualTracer and site.takes(arg):
            key += (arg.spec, arg.weak, DualTracer)
        else:
            return function(*args, **kwargs)
    key.append(site.dual)
    form = tuple(key)
    try:
        known = trace.calls.get(form, _NEW)
    except TypeError:  # a setting without a hash
        return function(*args, **kwargs)
    if known is None or not trace.alive:
        return function(*args, **kwargs)
    source = context.source or user_source()
    if type(known) is _Run:
        known = trace.calls[form] = known.cut()
    elif known is _NEW and may_capture:
        known = trace.calls[form] = _traced_apart(site, source, function, args, kwargs) if site.dual is None else None
    elif known is _NEW:
        run = trace.calls[form] = _Run(site, source, function, args, kwargs)
        return run.result
    return function(*args, **kwargs) if known is None else site.record(known, source)


class _Site:
    """The traces that a call records into: the staging trace of its operands and, where some are differentiated, the trace that
    does so.
    """

    __slots__ = ("dual", "linear", "operands", "primals", "tangents", "trace")

    def __init__(self, trace: StagingTrace) -> None:
        self.trace = trace
        self.dual: DualTrace | None = None
        self.linear: StagingTrace | None = None  # the trace of the tangents
        self.operands: list[Tracer] = []
        self.primals: list[StagedTracer] = []  # of the operands
        self.tangents: list[Symbol] = []  # of the operands that have some

    def takes(self, x: DualTracer) -> bool:
        """Adds an operand that is differentiated; False where another transform sees it."""
        value, tangent, owner = x.primal, x.tangent, x.owner
        linear = owner.linear
        if (
            x.origin is not None
            or not owner.alive
            or is_nested(value, owner.dual)
            or linear is None
            or owner.level <= self.trace.level
            or (owner is not self.dual and self.dual is not None)
            or type(tangent) is not StagedTracer
            or tangent.owner is not linear
            or type(value) is not StagedTracer
            or value.owner is not self.trace
        ):
            return False
        self.dual, self.linear = owner, linear
        self.operands.append(x)
        self.primals.append(value)
        self.tangents.append(tangent.symbol)
        return True

    @property
    def symbols(self) -> list[Symbol]:
        """The symbols of the operands in the graph."""
        return [x.symbol for x in self.primals]

    def holds(self, x: Any) -> bool:
        """Whether a part of a result is a value of these traces."""
        if type(x) is DualTracer:
            tangent = x.tangent
            is_staged = type(tangent) is StagedTracer and tangent.owner is self.linear
            return x.origin is None and x.owner is self.dual and is_staged and self.holds(x.primal)
        return type(x) is StagedTracer and x.owner is self.trace

    def count_nodes(self) -> tuple[int, int]:
        """Returns how many nodes there are in the graph, and in the graph of the tangents."""
        return self.trace.builder.num_nodes, 0 if self.linear is None else self.linear.builder.num_nodes

    def record(self, call: StagedCall, source: SourceLine | None) -> Any:
        """Records the nodes of a call for these operands and returns its result."""
        trace = self.trace
        symbols = trace.inline(call.graph, [*self.symbols, *call.others], source)
        if call.linear is None and call.layout == 0 and call.results[0][1] is None:
            return StagedTracer(trace, symbols[0], source, call.results[0][0])  # one new value, as most calls have it
        # residuals are behind results
        weak = itertools.chain([kind for kind, _ in call.results], itertools.repeat(False))
        made = [StagedTracer(trace, symbol, source, kind) for symbol, kind in zip(symbols, weak, strict=False)]
        tangents: Sequence[StagedTracer | None] = [None] * len(made)
        if call.linear is not None:
            tangents = self._tangents(call, call.linear, [*self.primals, *made], source)
        values: list[Any] = []
        for x, (_, operand), tangent in zip(made, call.results, tangents, strict=False):
            if operand is not None:
                values.append(self.operands[operand])
            else:
                values.append(x if tangent is None else DualTracer(self.dual, x, tangent, source, x.weak))  # type: ignore[arg-type]
        return _build(call.layout, values)

    def _tangents(
        self, call: StagedCall, graph: InlineGraph, values: Sequence[StagedTracer], source: SourceLine | None
    ) -> list[StagedTracer | None]:
        """Tangents of the results, or None, as the linear part records them in the linear graph."""
        linear: Any = self.linear
        read = [linear.symbol_of(values[x]) if type(x) is int else x for x in call.reads]
        moved = iter(linear.inline(graph, [*self.tangents, *read], source))
        return [StagedTracer(linear, next(moved), source) if moves else None for moves in call.moves]


@dataclass(frozen=True, slots=True, eq=False)
class StagedCall:
    """The nodes that a call recorded.

    Inputs of `graph` are operands, then `others`: constants, captured arrays, and the function's own arrays. Its outputs are
    results, then values that the linear part reads; each of `results` is its weakness, and the operand that it is, if it is one.
    Inputs of the linear part are tangents, then `reads`: places among operands and outputs, or symbols. It yields tangents of the
    results that `moves`.
    """

    graph: InlineGraph
    others: tuple[Symbol, ...]
    layout: Layout
    results: tuple[tuple[bool, int | None], ...]
    linear: InlineGraph | None = None
    reads: tuple[int | Symbol, ...] = ()
    moves: tuple[bool, ...] = ()


# -- a function by itself ----------------------------------------------------------------------------------------------


def _traced_apart(
    site: _Site, source: SourceLine | None, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> StagedCall | None:
    """Traces a call on new operands, which the function cannot hold already.

    None where it holds a value of another trace, or yields one.
    """
    trace, inner = site.trace, StagingTrace("call")
    inner.is_recording = True
    try:
        with set_context(staging=inner, level=inner.level, source=source):
            operands = [inner.input(x.spec, weak=x.weak) for x in site.operands]
            rest = iter(operands)
            given = [next(rest) if isinstance(x, Tracer) else x for x in args]
            named = {name: next(rest) if isinstance(x, Tracer) else x for name, x in kwargs.items()}
            result = function(*given, **named)
    finally:
        inner.alive = False
    nodes, results = inner.builder.nodes, [x for x in _results(result) if x is not None]
    if not _are_plain(nodes) or any(type(x) is not StagedTracer or x.owner is not inner for x in results):
        return None
    others: list[Symbol] = []
    inputs, outputs = [x.symbol for x in operands], [x.symbol for x in results]
    beside = _outside(nodes, inputs, outputs)
    for symbol in beside:
        value = inner.builder.value_of(symbol)[()] if inner.builder.is_constant(symbol) else inner.values[symbol]
        if isinstance(value, Tracer) and not site.holds(value):
            return None
        others.append(trace.symbol_of(value))
    graph = InlineGraph.of([*inputs, *beside], nodes, outputs, broadcast_to)
    return StagedCall(graph, tuple(others), _layout(result), _kinds(results, operands))


# -- a function within the trace ---------------------------------------------------------------------------------------


class _Run:
    """A call that ran the function: its site, and the numbers of nodes before and after, in both graphs."""

    __slots__ = ("after", "before", "result", "site")

    def __init__(
        self, site: _Site, source: SourceLine | None, function: Callable[..., Any], args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:  # fmt: skip
        """Runs the function, while the traces hide earlier nodes."""
        self.site, self.before = site, site.count_nodes()
        trace = site.trace
        hidden = [(each, each.hide_spreads()) for each in (trace, site.linear) if each is not None]
        trace.is_recording = True
        try:
            # all commands get this line: settings with a hash are no functions of the user's
            with set_context(source=source):
                self.result = function(*args, **kwargs)
        finally:
            trace.is_recording = False
            for each, spreads in hidden:
                each.show_spreads(spreads)
        self.after = site.count_nodes()

    def cut(self) -> StagedCall | None:
        """Cuts the call out of the trace; None where its nodes read a symbol that has several roles."""
        site, result = self.site, self.result
        trace, linear, inputs = site.trace, site.linear, site.symbols
        if len({*inputs}) < len(inputs) or len({*site.tangents}) < len(site.tangents):
            return None  # a symbol that is two operands: the role of each read is unknown
        if any(map(trace.is_known, inputs)):
            return None  # a symbol that is an operand and captured: the role is unknown
        nodes = trace.builder.nodes_between(self.before[0], self.after[0])
        moved = [] if linear is None else linear.builder.nodes_between(self.before[1], self.after[1])
        results = [x for x in _results(result) if x is not None]
        if not (_are_plain(nodes) and _are_plain(moved) and all(map(site.holds, results))):
            return None
        outputs = [x.primal.symbol if type(x) is DualTracer else x.symbol for x in results]
        tangents = [x.tangent.symbol for x in results if type(x) is DualTracer]
        beside = _outside(moved, site.tangents, tangents)  # residuals of the linear part
        reads: list[int | Symbol] = []
        place = {symbol: i for i, symbol in reversed([*enumerate((*inputs, *outputs))])}
        for symbol in beside:
            value = symbol if linear is None or linear.is_known(symbol) else linear.values.get(symbol)
            if type(value) is StagedTracer and value.owner is trace:
                if value.symbol not in place:
                    place[value.symbol] = len(inputs) + len(outputs)
                    outputs.append(value.symbol)
                reads.append(place[value.symbol])
            elif value is symbol:
                reads.append(symbol)
            else:
                return None
        others = _outside(nodes, inputs, outputs)
        if not all(map(trace.is_known, others)):
            return None
        return StagedCall(
            InlineGraph.of([*inputs, *others], nodes, outputs, broadcast_to), tuple(others), _layout(result),
            _kinds(results, site.operands),
            None if linear is None else InlineGraph.of([*site.tangents, *beside], moved, tangents, broadcast_to),
            tuple(reads), tuple([type(x) is DualTracer for x in results]),
        )  # fmt: skip


def _are_plain(nodes: Sequence[Node]) -> bool:
    """Whether no parameter can hold values of a call, as a function may."""
    return all(is_plain(value) for node in nodes if node.params for value in node.params.values())


def _outside(nodes: Sequence[Node], inputs: Sequence[Symbol], outputs: Sequence[Symbol]) -> list[Symbol]:
    """Returns the symbols that nodes, or outputs, read beside inputs and results of the nodes."""
    known, found = {*inputs}, []
    for node in nodes:
        for symbol in node.inputs:
            if symbol not in known:
                known.add(symbol)
                found.append(symbol)
        known.update(node.outputs)
    return found + [symbol for symbol in dict.fromkeys(outputs) if symbol not in known]


# -- results -----------------------------------------------------------------------------------------------------------


def _results(result: Any) -> Iterator[Any]:
    """The parts of a result that is made of tuples."""
    if type(result) is tuple:
        for x in result:
            yield from _results(x)
    else:
        yield result


def _kinds(results: Sequence[Any], operands: Sequence[Any]) -> tuple[tuple[bool, int | None], ...]:
    """Returns the weakness of each result, and the operand that it is, if it is one."""
    return tuple([(x.weak, next((i for i, y in enumerate(operands) if x is y), None)) for x in results])


def _layout(result: Any, numbers: Iterator[int] | None = None) -> Layout:
    """Returns the result with each part replaced by a number."""
    numbers = itertools.count() if numbers is None else numbers
    if type(result) is tuple:
        return tuple([_layout(x, numbers) for x in result])
    return None if result is None else next(numbers)


def _build(layout: Layout, values: Sequence[Any]) -> Any:
    """Returns the result of a call with these values for its parts."""
    if type(layout) is tuple:
        return tuple([_build(x, values) for x in layout])
    return None if layout is None else values[cast(int, layout)]


set_layers(array=Array, specialise=specialise, record=record_call)
