"""Specialised calls within a trace: the nodes of a call recorded again for other operands, without running the function.

A network applies its layers, and an optimizer its formula, to operands of few shapes many times over. Of calls with one key the
first runs the function. Its nodes are cut out of the trace, and those of tangents out of the linear graph beside it, as a graph
of their own, which later calls of the trace record. While the first call runs, the trace finds nothing that was made before, so
that all that its nodes read shows: operands, constants, and what they make; a call that reads anything else is not recorded again.
A function that may close over values of the trace runs twice: a value that it holds can be an operand of one call, not of both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from nnc.array import Array
from nnc.commands.shape import broadcast_to
from nnc.context import get_context, observes_commands, set_context
from nnc.graph import Graph, InlineGraph, Node, Symbol
from nnc.graph.specialise import exact_setting, set_layers
from nnc.source import SourceLine, user_source
from nnc.trace.dual import DualTrace, DualTracer
from nnc.trace.specialised import is_plain, specialise
from nnc.trace.staging import StagedTracer, StagingTrace
from nnc.trace.tracer import Tracer

_NEW: Any = object()
Layout = int | None | tuple["Layout", ...]  # a result: the number of a part, None, or a tuple of results


def record_call(function: Callable[..., Any], may_capture: bool, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of a pure function while something is staged."""
    context = get_context()
    trace = context.staging
    if (
        type(trace) is not StagingTrace
        or trace.is_recording
        or context.meter is not None  # which counts what rules keep
        or (context.modes and observes_commands(context))
    ):
        return function(*args, **kwargs)
    key: list[Any] = [function, len(args), *kwargs]
    site = _Site(trace)
    for arg in (*args, *kwargs.values()) if kwargs else args:
        if not isinstance(arg, Tracer):
            key.append(exact_setting(arg))
        elif site.takes(arg):
            key += (arg.spec, arg.weak, type(arg))
        else:
            return function(*args, **kwargs)
    key.append(site.dual)
    form = tuple(key)
    try:
        known = trace.calls.get(form, _NEW)
    except TypeError:  # a setting without a hash
        return function(*args, **kwargs)
    source = context.source or user_source()
    if type(known) is _Run and not may_capture:
        known = trace.calls[form] = known.cut(may_capture)
    if type(known) is StagedCall and trace.alive:
        return site.record(known, source)
    if known is None or not trace.alive:
        return function(*args, **kwargs)
    run = _Run(site, source)
    result = run(function, args, kwargs)
    trace.calls[form] = run if known is _NEW else _agreed(run.cut(may_capture), known.cut(may_capture))
    return result


class _Run:
    """A call that ran the function: where, and how many nodes there were before and after, in both graphs."""

    __slots__ = ("after", "before", "result", "site", "source")

    def __init__(self, site: _Site, source: SourceLine | None) -> None:
        self.site, self.source = site, source
        self.before = self.after = site.count_nodes()
        self.result: Any = None

    def __call__(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Runs it, while the traces find nothing that was made before."""
        trace, linear = self.site.trace, self.site.linear
        hidden = [(each, each.hide_spreads()) for each in (trace, linear) if each is not None]
        trace.is_recording = True
        try:
            with set_context(
                source=self.source
            ):  # of all commands: settings with a hash are no functions of the user's
                self.result = function(*args, **kwargs)
        finally:
            trace.is_recording = False
            for each, spreads in hidden:
                each.show_spreads(spreads)
        self.after = self.site.count_nodes()
        return self.result

    def cut(self, may_capture: bool) -> StagedCall | None:
        """The call as a graph of its own; None where it is none."""
        call = cut(self.site, self.before, self.after, self.result)
        is_closed = call is not None and (may_capture or all(map(self.site.trace.is_known, call.others)))
        return call if is_closed else None


class _Site:
    """Where a call records: the staging trace of its operands and, where some are differentiated, the trace that does so."""

    __slots__ = ("dual", "operands", "primals", "symbols", "tangents", "trace")

    def __init__(self, trace: StagingTrace) -> None:
        self.trace = trace
        self.dual: DualTrace | None = None
        self.operands: list[Tracer] = []
        self.primals: list[StagedTracer] = []  # of the operands
        self.symbols: list[Symbol] = []  # of these
        self.tangents: list[Symbol] = []  # of those that have some

    def takes(self, x: Any) -> bool:
        """Adds an operand; False where another transform sees it."""
        value = x
        if type(x) is DualTracer:
            value, tangent, owner = x.primal, x.tangent, x.owner
            if (
                not owner.alive
                or owner.linear is None
                or owner.level <= self.trace.level
                or self.dual not in (None, owner)
            ):
                return False
            if type(tangent) is not StagedTracer or tangent.owner is not owner.linear:
                return False
            self.dual = owner
            self.tangents.append(tangent.symbol)
        if type(value) is not StagedTracer or value.owner is not self.trace:
            return False
        self.operands.append(x)
        self.primals.append(value)
        self.symbols.append(value.symbol)
        return True

    @property
    def linear(self) -> StagingTrace | None:
        """The trace of the tangents."""
        return self.dual.linear if self.dual is not None else None

    def count_nodes(self) -> tuple[int, int]:
        """How many nodes there are in the graph, and in that of the tangents."""
        return self.trace.builder.num_nodes, self.linear.builder.num_nodes if self.linear is not None else 0

    def record(self, call: StagedCall, source: SourceLine | None) -> Any:
        """Records the nodes of a call for these operands and returns its result."""
        trace = self.trace
        symbols = trace.inline(call.graph, [*self.symbols, *call.others], source)
        if call.linear is None and call.layout == 0 and call.results[0][1] is None:
            return StagedTracer(trace, symbols[0], source, call.results[0][0])  # one new value, as most calls have it
        made = [StagedTracer(trace, symbol, source) for symbol in symbols]
        tangents: Sequence[StagedTracer | None] = [None] * len(made)
        if call.linear is not None:
            tangents = self._tangents(call, call.linear, [*self.primals, *made], source)
        values: list[Any] = []
        for x, (weak, operand), tangent in zip(made, call.results, tangents, strict=False):
            if operand is not None:
                values.append(self.operands[operand])
            elif tangent is None:
                values.append(StagedTracer(trace, x.symbol, source, weak))
            else:
                values.append(DualTracer(self.dual, x, tangent, source, weak))  # type: ignore[arg-type]
        return _build(call.layout, values)

    def _tangents(
        self, call: StagedCall, graph: InlineGraph, values: Sequence[StagedTracer], source: SourceLine | None
    ) -> list[StagedTracer | None]:
        """Tangents of the results, or None: what the linear part records in the linear graph."""
        linear: Any = self.linear
        read = [linear.symbol_of(values[x] if isinstance(x, int) else x) for x in call.reads]
        moved = iter(linear.inline(graph, [*self.tangents, *read], source))
        return [StagedTracer(linear, next(moved), source) if moves else None for moves in call.moves]


@dataclass(frozen=True, slots=True, eq=False)
class StagedCall:
    """The nodes that a call recorded.

    Inputs of the graph are operands, then `others`, which the function holds. Its outputs are results, then values that the linear
    part reads; each of `results` is its weakness, and the operand that it is, if it is one. Inputs of the linear part are
    tangents, then `reads`: places among operands and outputs, or values. It yields tangents of the results that `moves`.
    """

    operands: frozenset[Symbol]
    graph: InlineGraph
    others: tuple[Symbol, ...]
    layout: Layout
    results: tuple[tuple[bool, int | None], ...]
    linear: InlineGraph | None
    reads: tuple[Any, ...]
    moves: tuple[bool, ...]


def _agreed(x: StagedCall | None, y: StagedCall | None) -> StagedCall | None:
    """A call that two runs of a function recorded alike, for operands of which they share none."""
    if x is None or y is None or x.linear is not None or not x.operands.isdisjoint(y.operands):
        return None
    forms = [(call.graph.rows, call.others, call.layout, call.results) for call in (x, y)]
    constants = [[(value.dtype, value.tobytes()) for value in call.graph.constants] for call in (x, y)]
    return x if forms[0] == forms[1] and constants[0] == constants[1] else None


def cut(site: _Site, before: tuple[int, int], after: tuple[int, int], result: Any) -> StagedCall | None:
    """The call whose nodes were recorded between two counts; None where these read anything that is not told apart."""
    trace, linear, inputs = site.trace, site.linear, site.symbols
    nodes = trace.builder.nodes_between(before[0], after[0])
    moved = linear.builder.nodes_between(before[1], after[1]) if linear is not None else []
    found = [*_results(result)]
    if not all(is_plain(value) for node in (*nodes, *moved) for value in node.params.values()):
        return None  # a function may hold values of this call
    if len({*inputs}) < len(inputs) or len({*site.tangents}) < len(site.tangents) or any(map(trace.is_known, inputs)):
        return None  # nobody can tell as which operand, or as which constant, a symbol is read
    if any(x is not None and not _is_of(x, site) for x in found):
        return None
    results = [x for x in found if x is not None]
    wanted = [x.primal.symbol if type(x) is DualTracer else x.symbol for x in results]
    tangents = [x.tangent.symbol for x in results if type(x) is DualTracer]
    read: list[Any] = []  # by the linear part: symbols of the trace, or arrays
    symbols = _outside(moved, site.tangents, tangents)
    if linear is not None:
        given = [symbol for symbol in symbols if not linear.builder.is_constant(symbol)]
        if any(symbol not in linear.values for symbol in given):
            return None
        read = [linear.values[symbol] for symbol in given]
        if any(isinstance(x, Tracer) and (type(x) is not StagedTracer or x.owner is not trace) for x in read):
            return None
        read = [x.symbol if type(x) is StagedTracer else x for x in read]
    outputs = [*wanted, *dict.fromkeys(x for x in read if isinstance(x, Symbol) and x not in inputs)]
    others = [symbol for symbol in _outside(nodes, inputs, outputs) if not trace.builder.is_constant(symbol)]
    place = {symbol: i for i, symbol in reversed([*enumerate((*inputs, *outputs))])}
    parts = [_graph(trace, [*inputs, *others], nodes, outputs)]
    if linear is not None:
        parts.append(_graph(linear, [*site.tangents, *given], moved, tangents))
    return StagedCall(
        frozenset(inputs), parts[0], tuple(others), _layout(result, iter(range(len(results)))),
        tuple([(x.weak, next((i for i, y in enumerate(site.operands) if x is y), None)) for x in results]),
        parts[1] if linear is not None else None, tuple([place[x] if isinstance(x, Symbol) else x for x in read]),
        tuple([type(x) is DualTracer for x in results]),
    )  # fmt: skip


def _outside(nodes: Sequence[Node], inputs: Sequence[Symbol], outputs: Sequence[Symbol]) -> list[Symbol]:
    """The symbols that nodes, or outputs, read beside inputs and what the nodes write."""
    inside, read = {*inputs}, dict.fromkeys([*[symbol for node in nodes for symbol in node.inputs], *outputs])
    inside.update(*[node.outputs for node in nodes])
    return [symbol for symbol in read if symbol not in inside]


def _graph(
    trace: StagingTrace, inputs: Sequence[Symbol], nodes: Sequence[Node], outputs: Sequence[Symbol]
) -> InlineGraph:
    """Nodes of a trace as a graph of their own."""
    constants = {symbol: trace.builder.value_of(symbol) for symbol in _outside(nodes, inputs, outputs)}
    return InlineGraph.of(Graph(tuple(inputs), tuple(outputs), tuple(nodes), constants), broadcast_to)


def _results(result: Any) -> Iterator[Any]:
    """The parts of a result that is made of tuples."""
    if type(result) is tuple:
        for x in result:
            yield from _results(x)
    else:
        yield result


def _is_of(x: Any, site: _Site) -> bool:
    """Whether a part of a result belongs to the traces of a site."""
    if type(x) is DualTracer:
        tangent = x.tangent
        is_staged = type(tangent) is StagedTracer and tangent.owner is site.linear
        return x.owner is site.dual and is_staged and _is_of(x.primal, site)
    return type(x) is StagedTracer and x.owner is site.trace


def _layout(result: Any, numbers: Iterator[int]) -> Layout:
    """How a result is made of its parts."""
    if type(result) is tuple:
        return tuple([_layout(x, numbers) for x in result])
    return None if result is None else next(numbers)


def _build(layout: Layout, values: Sequence[Any]) -> Any:
    """The result of a call with these values for its parts."""
    if type(layout) is tuple:
        return tuple([_build(x, values) for x in layout])
    return None if layout is None else values[cast(int, layout)]


set_layers(array=Array, specialise=specialise, record=record_call)
