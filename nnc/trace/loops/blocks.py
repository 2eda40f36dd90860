"""Scans that run several traced iterations together as a block (`unroll=`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from nnc.array.array import as_value
from nnc.commands.loop import ITERATION, scan
from nnc.commands.shape import concatenate, reshape, slice_axis
from nnc.graph import bind
from nnc.graph.rules import Value
from nnc.trace.core.staging import Staged, stage

Results = tuple[list[Value], list[Value]]  # carried values, and rows


class Blocks(NamedTuple):
    """A scan of `iteration`, which takes its number, elements of `xs` sequences and `carries` values, and may run in blocks."""

    iteration: Staged
    xs: int
    carries: int
    reverse: bool
    checkpoint: str | int | None

    def bind(self, xs: Sequence[Value], carried: Sequence[Value], count: int, block: int) -> Results:
        """Binds scans of `count` iterations, `block` at a time; those that are left over are a scan of their own."""
        if block == 1:
            return self._bind(self.iteration, xs, carried, count)
        whole = count // block * block
        start = count - whole if self.reverse else 0  # of the rows that blocks take
        parts = [slice_axis(x, 0, start, start + whole) for x in xs]
        parts = [reshape(x, shape=(whole // block, block, *x.spec.shape[1:])) for x in parts]
        last, found = self._bind(self._block(block), parts, carried, whole // block)
        rows = [reshape(y, shape=(whole, *y.spec.shape[2:])) for y in found]
        if whole == count:
            return last, rows
        others = [slice_axis(x, 0, 0, start) if self.reverse else slice_axis(x, 0, whole, count) for x in xs]
        last, rest = self._bind(self._shifted(whole), others, last, count - whole)
        pairs = zip(rest, rows, strict=True) if self.reverse else zip(rows, rest, strict=True)
        return last, [concatenate(a, b, axis=0) for a, b in pairs]

    def _bind(self, body: Staged, xs: Sequence[Value], carried: Sequence[Value], count: int) -> Results:
        params = {
            "xs": self.xs, "carries": self.carries, "length": count, "reverse": self.reverse, "checkpoint": self.checkpoint,
        }  # fmt: skip
        results = bind(scan, [*xs, *carried, *body.captured], params, (body.graph,))
        return list(results[: self.carries]), list(results[self.carries :])

    def _block(self, block: int) -> Staged:
        """`block` iterations after one another, on blocks of elements."""
        graph, captured = self.iteration.graph, self.iteration.captured
        is_counted = graph.inputs[0] in graph.reads
        explicit = graph.input_specs[1 : self.iteration.num_explicit]
        elements = [spec.update(shape=(block, *spec.shape)) for spec in explicit[: self.xs]]

        def body(step: Any, *values: Any) -> list[Any]:
            carried = list(values[self.xs :])
            rows: list[list[Any]] = [[] for _ in range(block)]
            for k in reversed(range(block)) if self.reverse else range(block):
                element = [x[k] for x in values[: self.xs]]
                number = step * block + k if is_counted else step
                results = graph.evaluate([number, *element, *carried, *captured])
                carried, rows[k] = list(results[: self.carries]), list(results[self.carries :])
            return [*carried, *(_stack(column) for column in zip(*rows, strict=True))]

        return stage(body, [ITERATION, *elements, *explicit[self.xs :]], name=graph.name)

    def _shifted(self, first: int) -> Staged:
        """Returns the iteration, where numbers begin at `first`."""
        graph, captured = self.iteration.graph, self.iteration.captured
        if graph.inputs[0] not in graph.reads:
            return self.iteration
        specs = graph.input_specs[: self.iteration.num_explicit]
        return stage(lambda i, *values: graph.evaluate([i + first, *values, *captured]), specs, name=graph.name)


def _stack(values: Sequence[Any]) -> Value:
    return concatenate(*[reshape(x, shape=(1, *x.spec.shape)) for x in map(as_value, values)], axis=0)
