"""Notices keys that are used twice, which makes draws depend on each other. `nnc.debug.check_keys` switches it on.

Draws, splits and folds read a place in the stream of a key; two readings of one place are a reuse. Keys are told apart by
their values where these are known, and by how they are computed where they are traced.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from nnc.array.array import Array
from nnc.base.context import ContextChange, get_context, set_context
from nnc.base.source import SourceLine, user_source
from nnc.commands.loop import ITERATION
from nnc.graph import Symbol
from nnc.trace.core.batching import BatchTracer
from nnc.trace.core.dual_tracer import DualTracer
from nnc.trace.core.staging import StagedTracer, StagingTrace

__all__ = ["KeyReuseWarning"]

_FIRST = np.asarray(0, np.uint64)


class KeyReuseWarning(UserWarning):
    """A key is used twice.

    Example:
        >>> import warnings
        >>> with warnings.catch_warnings(record=True) as found, nnc.debug.check_keys():
        ...     warnings.simplefilter("always")
        ...     key = nnc.random.key(0)
        ...     x, y = nnc.random.normal(key), nnc.random.uniform(key)
        >>> found[0].category.__name__
        'KeyReuseWarning'
    """


class KeyLedger:
    """The uses of keys within one block; it stands among the modes of the ambient context."""

    __slots__ = ("_numbers", "_symbols", "_uses")

    def __init__(self) -> None:
        self._uses: dict[Any, list[tuple[StagingTrace | None, SourceLine | None]]] = {}
        self._numbers: dict[Any, int] = {}  # of values that are computed in one way
        self._symbols: dict[Symbol, int] = {}

    def note(self, key: Array, start: Array) -> None:
        """Notes a use, and warns where it is the second, or one that every iteration of a loop repeats."""
        trace: StagingTrace | None = get_context().staging
        place, line = (self._identity(key), self._identity(start)), user_source()
        uses = self._uses.setdefault(place, [])
        before = [where for used_in, where in uses if used_in is None or used_in is trace or used_in.alive]
        if before:
            _warn("the same key is used twice, so the draws are not independent.", before[0], line)
        elif (
            isinstance(trace, StagingTrace)
            and _is_iteration(trace)
            and not (_is_of(key, trace) or _is_of(start, trace))
        ):
            _warn("every iteration of a loop uses the same key, so all iterations draw the same.", None, line)
        uses.append((trace, line))

    def _identity(self, x: Array) -> Any:
        if isinstance(x, BatchTracer):
            return "rows", self._identity(x.value)
        if isinstance(x, DualTracer):
            return self._identity(x.primal)
        if isinstance(x, StagedTracer):
            return "computed", self._number(x.symbol, x.owner)
        value = np.asarray(x.data if isinstance(x, Array) else x)
        return "value", value.dtype.name, value.shape, value.tobytes()

    def _number(self, symbol: Symbol, trace: StagingTrace) -> int:
        """One number for all symbols of a trace that are computed in the same way."""
        if symbol not in self._symbols:
            self._symbols[symbol] = self._fresh(symbol)
            for node in trace.builder.nodes:
                if node.outputs[0] in self._symbols and node.outputs[0] is not symbol:
                    continue
                operands = tuple(self._symbols.setdefault(s, self._fresh(s)) for s in node.inputs)
                for i, output in enumerate(node.outputs):
                    form = (
                        output if node.graphs else (node.command.name, tuple(sorted(node.params.items())), operands, i)
                    )
                    self._symbols[output] = self._fresh(form)
        return self._symbols[symbol]

    def _fresh(self, form: Any) -> int:
        return self._numbers.setdefault(form, len(self._numbers))


def _is_iteration(trace: StagingTrace) -> bool:
    """Whether a trace records the iteration of a loop; the first input is then the count."""
    inputs = trace.builder.inputs
    return bool(inputs) and inputs[0].spec is ITERATION


def _is_of(x: Array, trace: StagingTrace) -> bool:
    """Whether `x` is computed within `trace`."""
    while isinstance(x, (BatchTracer, DualTracer)):
        x = x.value if isinstance(x, BatchTracer) else x.primal
    return isinstance(x, StagedTracer) and x.owner is trace


def _warn(problem: str, first: SourceLine | None, second: SourceLine | None) -> None:
    lines = [f"nnc.random: {problem}"]
    lines += [f"  first at {first.describe()}"] if first is not None else []
    lines += [f"  {'again ' if first is not None else ''}at {second.describe()}"] if second is not None else []
    lines.append(
        "Fix: key, part = nnc.random.split(key), and draw from part."
        if first is not None
        else "Fix: split the key into one for each iteration and scan over them, or use nnc.random.fold_in(key, i)."
    )
    place = (second.file, second.line) if second is not None else ("<unknown>", 0)
    warnings.warn_explicit("\n".join(lines), KeyReuseWarning, *place)


def note_use(key: Array, start: Any = _FIRST) -> None:
    """Notes, where that is switched on, that the stream of `key` is read from `start` on."""
    for mode in get_context().modes:
        if isinstance(mode, KeyLedger):
            mode.note(key, start)


def unrecorded() -> ContextChange:
    """Within the block uses of keys are not noted: for methods that share a key on purpose."""
    return set_context(modes=frozenset(mode for mode in get_context().modes if not isinstance(mode, KeyLedger)))
