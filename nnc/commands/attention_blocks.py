"""Runs a formula of attention's weights for some queries at a time: its memory is linear in the number of tokens, too."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from nnc.commands import constants
from nnc.commands.attention_formulas import Moving
from nnc.commands.elementwise import add, mul
from nnc.commands.loop import ITERATION, scan
from nnc.commands.rules import zeros
from nnc.commands.shape import pad, reshape, slice_axis, transpose
from nnc.graph import Graph, GraphBuilder, Symbol, TensorSpec
from nnc.graph.rules import Value

QUERIES = 128  # of a block; for twice as many or fewer all run at once

# a result for some queries and where they stand in it; None: it is a part of a sum
Part = tuple[Value | None, int | None]
Formula = Callable[[Sequence[Moving], Value | None], list[Part]]


def by_queries(
    formula: Formula, operands: Sequence[Moving], axes: Sequence[int | None], queries: int | None = None
) -> list[Value | None]:
    """Computes a formula for all queries, block by block.

    Args:
        formula: `(operands, number of the first query) -> parts`; it calls only commands.
        axes: the axis of queries in each operand, counted from the end; None where it has none.
        queries: queries of a block, about; by default `QUERIES`.
    """
    queries = QUERIES if queries is None else queries
    count = next(x.shape[axis] for x, axis in zip(operands, axes, strict=True) if axis is not None)
    if count <= 2 * queries:
        return [value for value, _ in formula(operands, None)]
    return _Blocks(formula, operands, axes, count, queries).run()


class _Blocks:
    """A `scan` over blocks of queries; it adds up the results that have no axis of queries."""

    def __init__(
        self, formula: Formula, operands: Sequence[Moving], axes: Sequence[int | None], count: int, queries: int
    ) -> None:
        self.formula, self.operands, self.axes, self.count = formula, operands, axes, count
        self.blocks = -(-count // queries)
        self.size = -(-count // self.blocks)

    def run(self) -> list[Value | None]:
        """Returns the results for all queries, and the sums."""
        _, parts = self._iteration([])
        summed = [x.spec for x, axis in parts if x is not None and axis is None]
        body, parts = self._iteration(summed)
        sequences = [self._cut(x, axis) for x, axis in self._values() if axis is not None]
        held = [x for x, axis in self._values() if axis is None]
        starts = [zeros(spec) for spec in summed]
        params = {"xs": len(sequences), "carries": len(summed), "length": self.blocks, "reverse": False}
        results = scan(*sequences, *starts, *held, graphs=(body,), **params)
        results = iter(results if isinstance(results, (tuple, list)) else (results,))
        totals = [next(results) for _ in summed]
        found: list[Value | None] = []
        for x, axis in parts:
            if x is None:
                found.append(None)
            else:
                found.append(totals.pop(0) if axis is None else self._join(next(results), axis))
        return found

    def _values(self) -> Iterator[tuple[Value, int | None]]:
        """The operands and their tangents."""
        for x, axis in zip(self.operands, self.axes, strict=True):
            yield x.value, axis
            if x.tangent is not None:
                yield x.tangent, axis

    def _iteration(self, summed: Sequence[TensorSpec]) -> tuple[Graph, list[Part]]:
        """Returns the formula for one block, and its results there."""
        b = GraphBuilder("block of queries")
        number = b.input(ITERATION)
        elements = iter([b.input(self._element(x.spec, axis)) for x, axis in self._values() if axis is not None])
        carried = [b.input(spec) for spec in summed]
        held = iter([b.input(x.spec) for x, axis in self._values() if axis is None])

        def symbol(axis: int | None) -> Symbol:
            return next(held if axis is None else elements)

        inner = [
            Moving(symbol(axis), symbol(axis) if x.tangent is not None else None)
            for x, axis in zip(self.operands, self.axes, strict=True)
        ]
        with b:
            parts = self.formula(inner, mul(number, constants.full_like(number, self.size)))
            terms = [x for x, axis in parts if x is not None and axis is None]
            totals = [add(total, x) for total, x in zip(carried, terms, strict=False)]
            rows = [x for x, axis in parts if x is not None and axis is not None]
        return b.build(*totals, *rows), parts

    def _element(self, spec: TensorSpec, axis: int) -> TensorSpec:
        at = axis % spec.ndim
        return spec.update(shape=(*spec.shape[:at], self.size, *spec.shape[at + 1 :]))

    def _cut(self, x: Value, axis: int) -> Value:
        """Blocks of queries, filled up with zeros, as a first axis."""
        shape, at = x.spec.shape, axis % x.spec.ndim
        more = self.blocks * self.size - self.count
        if more:
            high = tuple(more if i == at else 0 for i in range(len(shape)))
            none = (0,) * len(shape)
            x = pad(x, constants.full(shape=(), dtype=x.spec.dtype, value=0), low=none, high=high, interior=none)
        x = reshape(x, shape=(*shape[:at], self.blocks, self.size, *shape[at + 1 :]))
        order = (at, *(i for i in range(len(shape) + 1) if i != at))
        return transpose(x, permutation=order)

    def _join(self, x: Value, axis: int) -> Value:
        """Returns the inverse of `_cut`."""
        shape = x.spec.shape[1:]
        at = axis % len(shape)
        x = transpose(x, permutation=(*range(1, at + 1), 0, *range(at + 1, len(shape) + 1)))
        x = reshape(x, shape=(*shape[:at], self.blocks * self.size, *shape[at + 1 :]))
        return slice_axis(x, at, 0, self.count) if self.blocks * self.size != self.count else x
