"""Functions that are traced once for operands of the same specs, however often they are applied within a trace.

A network applies its layers, and an optimizer its formula, to operands of few shapes many times over. Of equal specs and settings
the same nodes follow, so all calls but the first only record those nodes again, with other symbols: those of the graph that is
staged, and those of the linear graph beside it where the call is differentiated.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from nnc.commands.rules import effect
from nnc.context import get_context
from nnc.graph import Node, Symbol
from nnc.graph.recall import exact_setting, set_recall_of_traces
from nnc.source import SourceLine, user_source
from nnc.trace.dual import DualTrace, DualTracer
from nnc.trace.staging import StagedTracer, StagingTrace
from nnc.trace.tracer import Tracer

F = TypeVar("F", bound=Callable[..., Any])


def repeated(function: F) -> F:
    """`function`, whose calls on traced operands of the same specs, with the same settings, are traced once for each trace.

    The function must be pure, and one of the specs of its arrays and of its settings alone. It returns an array or a tuple
    of what it may return. What it does with concrete arrays, and with values that other transforms trace, stays as it is.
    """

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return _call(function, args, kwargs)

    return cast(F, call)


def _call(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of a pure function; of a call alike, the nodes are recorded again."""
    context = get_context()
    trace = context.staging
    if type(trace) is not StagingTrace or trace.is_noting:
        return function(*args, **kwargs)
    site = _Site.of(trace, [arg for arg in (*args, *kwargs.values()) if isinstance(arg, Tracer)])
    if site is None:
        return function(*args, **kwargs)
    facts = function, context.modes, site.dual, len(args), *kwargs
    key = (*facts, *map(_part, args), *map(_part, kwargs.values()))
    try:
        known = trace.repeats.get(key, _NEW)
    except TypeError:  # a setting without a hash
        return function(*args, **kwargs)
    source = context.source or user_source()
    if known is _NEW:
        before = site.count_nodes()
        trace.is_noting = True
        try:
            result = function(*args, **kwargs)
        finally:
            trace.is_noting = False
        trace.repeats[key] = _Record.of(site, before, source, result)
        return result
    return function(*args, **kwargs) if known is None else known.repeat(site, source)


_NEW: Any = object()


def _part(arg: Any) -> Any:
    """What of an argument belongs to the key of a call."""
    if isinstance(arg, Tracer):
        return arg.spec, arg.weak, type(arg)
    return exact_setting(arg)


@dataclass(frozen=True, slots=True)
class _Site:
    """Where a call records: the staging trace of its operands and, where some are differentiated, the trace that does so."""

    trace: StagingTrace
    dual: DualTrace | None
    operands: Sequence[Tracer]
    values: Sequence[StagedTracer]  # of the operands
    symbols: tuple[Symbol, ...]  # of these
    tangents: tuple[Symbol, ...]  # of those that have some

    @classmethod
    def of(cls, trace: StagingTrace, operands: Sequence[Tracer]) -> _Site | None:
        """The site of a call with these operands; None where another transform sees one of them, or a symbol stands twice."""
        dual: DualTrace | None = None
        values, tangents = [], []
        for x in operands:
            value: Any = x
            if type(x) is DualTracer:
                value, tangent, owner = x.primal, x.tangent, x.owner
                if owner.linear is None or (dual is not None and dual is not owner):
                    return None
                if type(tangent) is not StagedTracer or tangent.owner is not owner.linear:
                    return None
                dual = owner
                tangents.append(tangent.symbol)
            if type(value) is not StagedTracer or value.owner is not trace:
                return None
            values.append(value)
        if not (trace.alive and (dual is None or (dual.alive and dual.level > trace.level))):
            return None
        symbols = tuple([value.symbol for value in values])
        if len({*symbols}) < len(symbols) or len({*tangents}) < len(tangents):
            return None
        return cls(trace, dual, operands, values, symbols, tuple(tangents))

    @property
    def linear(self) -> StagingTrace | None:
        """The trace of the tangents."""
        return self.dual.linear if self.dual is not None else None

    def count_nodes(self) -> tuple[int, int]:
        """How many nodes there are in the graph, and in that of the tangents."""
        return self.trace.builder.num_nodes, self.linear.builder.num_nodes if self.linear is not None else 0


@dataclass(frozen=True, slots=True)
class _Record:
    """What one call recorded, as far as it depends on the operands.

    `captured` are the values of the graph that the linear nodes read: the position of the operand whose value it is, or a symbol
    that the call wrote. `result` makes what a repeated call returns.
    """

    source: SourceLine | None
    symbols: tuple[Symbol, ...]
    tangents: tuple[Symbol, ...]
    nodes: tuple[Node, ...]
    linear: tuple[Node, ...]
    captured: Mapping[Symbol, int | Symbol]
    result: Callable[[_Copy], Any]

    @classmethod
    def of(cls, site: _Site, before: tuple[int, int], source: SourceLine | None, result: Any) -> _Record | None:
        """The record of the call that just returned `result`; None where it cannot be repeated."""
        made = site.trace.builder.nodes_from(before[0])
        nodes, written = _depending(made, {*site.symbols})
        linear: list[Node] = []
        captured: dict[Symbol, int | Symbol] = {}
        if site.linear is not None:
            found = site.linear.builder.nodes_from(before[1])
            for symbol in dict.fromkeys(symbol for node in found for symbol in node.inputs):
                value = site.linear.values.get(symbol)
                at = next((i for i, x in enumerate(site.values) if x is value), None)
                if at is not None:
                    captured[symbol] = at
                elif type(value) is StagedTracer and value.owner is site.trace:
                    if value.symbol in written:
                        captured[symbol] = value.symbol
                elif isinstance(value, Tracer):
                    return None
            linear, moved = _depending(found, {*site.tangents, *captured})
        else:
            moved = set()
        if any(callable(value) for node in (*nodes, *linear) for value in node.params.values()):
            return None  # a function may hold values of this call
        make = _result(result, site, written, moved)
        if make is None:
            return None
        return cls(source, site.symbols, site.tangents, tuple(nodes), tuple(linear), captured, make)

    def repeat(self, site: _Site, source: SourceLine | None) -> Any:
        """Records the same for other operands."""
        copy = _Copy(site, source, dict(zip(self.symbols, site.symbols, strict=True)), {})
        site.trace.builder.repeat(self.nodes, copy.symbols, self.source, source)
        if site.linear is not None:
            for symbol, place in self.captured.items():
                value = site.values[place] if isinstance(place, int) else copy.value(place)
                copy.moved[symbol] = site.linear.symbol_of(value)
            copy.moved.update(zip(self.tangents, site.tangents, strict=True))
            site.linear.builder.repeat(self.linear, copy.moved, self.source, source)
        return self.result(copy)


@dataclass(frozen=True, slots=True)
class _Copy:
    """A call that is being repeated: what stands for the symbols of the first one, in the graph and in that of the tangents."""

    site: _Site
    source: SourceLine | None
    symbols: dict[Symbol, Symbol]
    moved: dict[Symbol, Symbol]
    values: dict[Symbol, StagedTracer] = field(default_factory=dict)

    def value(self, symbol: Symbol, weak: bool = False) -> StagedTracer:
        """The value of what stands for a symbol of the graph: one object, since graphs capture values by their identity."""
        known = self.values.get(symbol)
        if known is None or known.weak is not weak:
            known = self.values[symbol] = StagedTracer(self.site.trace, self.symbols[symbol], self.source, weak)
        return known


def _depending(nodes: Sequence[Node], known: set[Symbol]) -> tuple[list[Node], set[Symbol]]:
    """The nodes that depend on symbols or have an effect, and those symbols with all that these nodes write."""
    found = []
    for node in nodes:
        if not known.isdisjoint(node.inputs) or node.command in effect:
            known.update(node.outputs)
            found.append(node)
    return found, known


def _value(x: Any, site: _Site, written: set[Symbol]) -> Callable[[_Copy], Any] | None:
    """What makes a value of the graph; None where `x` is none."""
    if type(x) is not StagedTracer or x.owner is not site.trace:
        return None
    for i, value in enumerate(site.values):
        if x is value:
            return lambda copy: copy.site.values[i]
    symbol, weak = x.symbol, x.weak
    return (lambda copy: copy.value(symbol, weak)) if symbol in written else (lambda copy: x)


def _result(x: Any, site: _Site, written: set[Symbol], moved: set[Symbol]) -> Callable[[_Copy], Any] | None:
    """What makes the result of a repeated call that stands for `x` of the first one; None where nothing can."""
    if type(x) is tuple:
        parts = [part for y in x if (part := _result(y, site, written, moved)) is not None]
        return (lambda copy: tuple([part(copy) for part in parts])) if len(parts) == len(x) else None
    for i, operand in enumerate(site.operands):
        if x is operand:
            return lambda copy: copy.site.operands[i]
    if type(x) is not DualTracer:
        return _value(x, site, written)
    primal, tangent, weak = _value(x.primal, site, written), x.tangent, x.weak
    if primal is None or x.owner is not site.dual or type(tangent) is not StagedTracer:
        return None
    if tangent.owner is not site.linear or tangent.symbol not in moved:
        return None

    def make(copy: _Copy) -> DualTracer:
        symbol = copy.moved[tangent.symbol]
        return DualTracer(x.owner, primal(copy), StagedTracer(tangent.owner, symbol, copy.source), weak)

    return make


set_recall_of_traces(_call)
