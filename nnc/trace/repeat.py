"""Functions that are traced once for operands of the same specs, however often they are applied within a trace.

A network applies its layers, and an optimizer its formula, to operands of few shapes many times over. Of equal specs and settings
the same nodes follow, so all calls but the first only record those nodes again, with other symbols: those of the graph that is
staged, and those of the linear graph beside it where the call is differentiated.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar, cast

from nnc.commands.promotion import WATCHED
from nnc.commands.rules import effect
from nnc.context import get_context, set_context
from nnc.graph import Node, Symbol
from nnc.graph.builder import Passage
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
    if type(trace) is not StagingTrace or trace.is_noting or WATCHED in context.modes:
        return function(*args, **kwargs)
    key: list[Any] = [function, context.modes, len(args), *kwargs]
    site = _Site(trace)
    for arg in (*args, *kwargs.values()) if kwargs else args:
        if not isinstance(arg, Tracer):
            key.append(exact_setting(arg))
        elif site.takes(arg):
            key += (arg.spec, arg.weak, type(arg))
        else:
            return function(*args, **kwargs)
    if not site.is_sound():
        return function(*args, **kwargs)
    key.append(site.dual)
    form = tuple(key)
    try:
        known = trace.repeats.get(form, _NEW)
    except TypeError:  # a setting without a hash
        return function(*args, **kwargs)
    if type(known) is _First:
        known = trace.repeats[form] = _Record.of(known)
    if known is None:
        return function(*args, **kwargs)
    source = context.source or user_source()
    if known is not _NEW:
        return known.repeat(site, source)
    before = site.count_nodes()
    trace.is_noting = True
    try:
        beside = site.linear.alone() if site.linear is not None else nullcontext()
        line = set_context(source=source)  # of all it does: settings with a hash are no functions of the user's
        with trace.alone(), beside, line:
            result = function(*args, **kwargs)
    finally:
        trace.is_noting = False
    may_hold_values = getattr(function, "__closure__", None) is not None
    trace.repeats[form] = _First(site, before, site.count_nodes(), source, result, may_hold_values)
    return result


_NEW: Any = object()


class _Site:
    """Where a call records: the staging trace of its operands and, where some are differentiated, the trace that does so."""

    __slots__ = ("dual", "operands", "symbols", "tangents", "trace", "values")

    def __init__(self, trace: StagingTrace) -> None:
        self.trace = trace
        self.dual: DualTrace | None = None
        self.operands: list[Tracer] = []
        self.values: list[StagedTracer] = []  # of the operands
        self.symbols: list[Symbol] = []  # of these
        self.tangents: list[Symbol] = []  # of those that have some

    def takes(self, x: Any) -> bool:
        """Adds an operand; False where another transform sees it."""
        value = x
        if type(x) is DualTracer:
            value, tangent, owner = x.primal, x.tangent, x.owner
            if owner.linear is None or (self.dual is not None and self.dual is not owner):
                return False
            if type(tangent) is not StagedTracer or tangent.owner is not owner.linear:
                return False
            self.dual = owner
            self.tangents.append(tangent.symbol)
        if type(value) is not StagedTracer or value.owner is not self.trace:
            return False
        self.operands.append(x)
        self.values.append(value)
        self.symbols.append(value.symbol)
        return True

    def is_sound(self) -> bool:
        """Whether the traces go on, and no symbol stands twice."""
        trace, dual, symbols, tangents = self.trace, self.dual, self.symbols, self.tangents
        if not (trace.alive and (dual is None or (dual.alive and dual.level > trace.level))):
            return False
        return len(symbols) < 2 or (len({*symbols}) == len(symbols) and len({*tangents}) == len(tangents))

    @property
    def linear(self) -> StagingTrace | None:
        """The trace of the tangents."""
        return self.dual.linear if self.dual is not None else None

    def count_nodes(self) -> tuple[int, int]:
        """How many nodes there are in the graph, and in that of the tangents."""
        return self.trace.builder.num_nodes, self.linear.builder.num_nodes if self.linear is not None else 0


class _First(NamedTuple):
    """The first of calls that are alike: where, the numbers of nodes before and after, by which line, and what it returned.

    Functions that close over something may read values of the trace by themselves; the same ones in every call.
    """

    site: _Site
    before: tuple[int, int]
    after: tuple[int, int]
    source: SourceLine | None
    result: Any
    may_hold_values: bool


@dataclass(frozen=True, slots=True)
class _Record:
    """What one call recorded, as far as it depends on the operands: `nodes` of their symbols, `linear` ones of their tangents and
    of the values that are `captured`, told by the places of their symbols. `result` makes what a repeated call returns.
    """

    nodes: Passage
    linear: Passage | None
    captured: tuple[int, ...]
    result: Callable[[_Copy], Any]

    @classmethod
    def of(cls, first: _First) -> _Record | None:
        """The record of a call; None where it cannot be repeated."""
        site, before, after, source, result, may_hold_values = first
        recorded = site.trace.builder.nodes_between(before[0], after[0])
        inside = {*site.symbols, *(symbol for node in recorded for symbol in node.outputs)}
        read = [symbol for node in recorded for symbol in node.inputs]
        nodes, written = _depending(recorded, {*site.symbols})
        linear: list[Node] = []
        captured: dict[Symbol, Symbol] = {}  # of the linear graph: that of the value
        if site.linear is not None:
            found = site.linear.builder.nodes_between(before[1], after[1])
            for symbol in dict.fromkeys(symbol for node in found for symbol in node.inputs):
                value = site.linear.values.get(symbol)
                if type(value) is StagedTracer and value.owner is site.trace:
                    read.append(value.symbol)
                    if value.symbol in written:
                        captured[symbol] = value.symbol
                elif isinstance(value, Tracer):
                    return None
            inside.update(site.tangents, site.linear.values, (symbol for node in found for symbol in node.outputs))
            read += [symbol for node in found for symbol in node.inputs if not site.linear.builder.is_constant(symbol)]
            linear, _ = _depending(found, {*site.tangents, *captured})
        if any(map(site.trace.is_concrete, site.symbols)):
            return None  # a symbol that is read as an operand cannot be told from the same read as a constant
        if not may_hold_values and not all(symbol in inside or site.trace.is_concrete(symbol) for symbol in read):
            return None
        if any(callable(value) for node in (*nodes, *linear) for value in node.params.values()):
            return None  # a function may hold values of this call
        passage = Passage.of(nodes, site.symbols, source)
        beside = Passage.of(linear, [*captured, *site.tangents], source) if site.linear is not None else None
        make = _result(result, site, passage.places, beside.places if beside is not None else {})
        if make is None:
            return None
        return cls(passage, beside, tuple([passage.places[symbol] for symbol in captured.values()]), make)

    def repeat(self, site: _Site, source: SourceLine | None) -> Any:
        """Records the same for other operands."""
        copy = _Copy(site, source)
        site.trace.builder.repeat(self.nodes, copy.symbols, source)
        if self.linear is not None and site.linear is not None:
            symbol_of = site.linear.symbol_of
            copy.moved = [*[symbol_of(copy.value(place)) for place in self.captured], *site.tangents]
            site.linear.builder.repeat(self.linear, copy.moved, source)
        return self.result(copy)


class _Copy:
    """A call that is being repeated: what stands for the symbols of the first one, in the graph and in that of the tangents."""

    __slots__ = ("moved", "site", "source", "symbols", "values")

    def __init__(self, site: _Site, source: SourceLine | None) -> None:
        self.site, self.source = site, source
        self.symbols = list(site.symbols)
        self.moved: list[Symbol] = []
        self.values: dict[int, StagedTracer] = {}

    def value(self, place: int, weak: bool | None = None) -> StagedTracer:
        """The value of what stands at a place: one object, since graphs capture values by their identity."""
        operands = self.site.values
        known = operands[place] if place < len(operands) else self.values.get(place)
        if known is None or (weak is not None and known.weak is not weak):
            known = self.values[place] = StagedTracer(self.site.trace, self.symbols[place], self.source, bool(weak))
        return known


def _depending(nodes: Sequence[Node], known: set[Symbol]) -> tuple[list[Node], set[Symbol]]:
    """The nodes that depend on symbols or have an effect, and those symbols with all that these nodes write."""
    found = []
    for node in nodes:
        if not known.isdisjoint(node.inputs) or node.command in effect:
            known.update(node.outputs)
            found.append(node)
    return found, known


def _value(x: Any, site: _Site, places: Mapping[Symbol, int]) -> Callable[[_Copy], Any] | None:
    """What makes a value of the graph; None where `x` is none."""
    if type(x) is not StagedTracer or x.owner is not site.trace:
        return None
    for i, value in enumerate(site.values):
        if x is value:
            return lambda copy: copy.site.values[i]
    place, weak = places.get(x.symbol), x.weak
    return (lambda copy: x) if place is None else (lambda copy: copy.value(place, weak))


def _result(
    x: Any, site: _Site, places: Mapping[Symbol, int], moved: Mapping[Symbol, int]
) -> Callable[[_Copy], Any] | None:
    """What makes the result of a repeated call that stands for `x` of the first one; None where nothing can."""
    if type(x) is tuple:
        parts = [part for y in x if (part := _result(y, site, places, moved)) is not None]
        return (lambda copy: tuple([part(copy) for part in parts])) if len(parts) == len(x) else None
    for i, operand in enumerate(site.operands):
        if x is operand:
            return lambda copy: copy.site.operands[i]
    if type(x) is not DualTracer:
        return _value(x, site, places)
    primal, tangent, weak = _value(x.primal, site, places), x.tangent, x.weak
    if primal is None or x.owner is not site.dual or type(tangent) is not StagedTracer:
        return None
    if tangent.owner is not site.linear or tangent.symbol not in moved:
        return None
    place = moved[tangent.symbol]

    def make(copy: _Copy) -> DualTracer:
        return DualTracer(
            x.owner, primal(copy), StagedTracer(tangent.owner, copy.moved[place], copy.source), copy.source, weak
        )

    return make


set_recall_of_traces(_call)
