"""vmap: values that carry a hidden leading batch axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nnc.array.array import as_value
from nnc.array.promote import with_weakness
from nnc.base.context import get_context, new_level, set_context
from nnc.base.dtypes import Weakness
from nnc.base.source import user_source
from nnc.errors import UnsupportedError, user_error
from nnc.graph import Command, Graph, bind
from nnc.graph.registry import batch
from nnc.trace.core.axes import Axes, varying_over
from nnc.trace.core.tracer import Tracer


class BatchTracer(Tracer):
    """A tracer that stands for one row of `value`, whose first axis is the batch."""

    __slots__ = ("value",)

    def __init__(self, trace: BatchTrace, value: Any, weak: Weakness = False) -> None:
        super().__init__(trace, value.spec.update(shape=value.spec.shape[1:]), get_context().source, weak)
        self.value = value

    def as_weak(self, weak: Weakness = True) -> Any:
        """The same value, of which commands take the weakness of all rows."""
        twin: Any = super().as_weak(weak)
        twin.value = with_weakness(self.value, weak)
        return twin

    def varying_over(self) -> Axes | None:
        """Returns the axes over which its rows vary."""
        return varying_over(self.value)


class BatchTrace:
    """Runs commands for all rows at once through their batching rules."""

    differentiates = False

    def __init__(self, level: int, size: int) -> None:
        self.level, self.size = level, size
        self.alive = True

    def split(self, value: Any) -> tuple[Any, bool]:
        """Returns the value at the enclosing level, and whether it has the batch axis."""
        if isinstance(value, BatchTracer) and value.owner is self:
            return value.value, True
        return as_value(value), False

    def process(
        self, command: Command, args: Sequence[Any], params: dict[str, Any], graphs: tuple[Graph, ...]
    ) -> Sequence[Any]:
        """Runs a command for all rows by its batching rule."""
        pairs = [self.split(arg) for arg in args]
        operands, batched = tuple(v for v, _ in pairs), tuple(b for _, b in pairs)
        with set_context(source=get_context().source or user_source()):
            if not any(batched):
                return bind(command, operands, params, graphs)
            rule = batch.get(command, None)
            if rule is None:
                problem = "this command has no batching rule."
                shown = {f"input {i}": v.spec for i, v in enumerate(operands)}
                fix = f"register one: nnc.graph.attribute('batch').set({command.name!r}, rule), or use nnc.map."
                raise user_error(UnsupportedError, command.name, problem, operands=shown, fix=fix)
            static = {**params, "graphs": graphs} if graphs else params
            outputs, out_batched = rule(self.size, operands, batched, **static)
            return [BatchTracer(self, x, x.weak) if b else x for x, b in zip(outputs, out_batched, strict=True)]


def run_batched(
    fun: Callable[..., Sequence[Any]], size: int, values: Sequence[Any], batched: Sequence[bool]
) -> tuple[list[Any], list[bool]]:
    """Outputs of a flat function for all rows, and which of them have the batch axis (leading)."""
    trace = BatchTrace(new_level(), size)
    try:
        with set_context(level=trace.level):
            arguments = [as_value(v) for v in values]
            outputs = fun(*[BatchTracer(trace, v, v.weak) if b else v for v, b in zip(arguments, batched, strict=True)])
            pairs = [trace.split(x) for x in outputs]
    finally:
        trace.alive = False
    return [v for v, _ in pairs], [b for _, b in pairs]
