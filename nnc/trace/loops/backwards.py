"""An iteration of a linear loop, run backwards: on the operands alone that get cotangents."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from typing import Any, NamedTuple

from nnc.commands.loop import ITERATION
from nnc.commands.rules import add_tangents, zeros
from nnc.graph import Graph, Symbol
from nnc.trace.core.backward import transpose_graph
from nnc.trace.core.staging import Staged, stage
from nnc.trace.loops.iterations import Flags, fill, flags_of


class Pulled(NamedTuple):
    """The operands of a loop that get cotangents: sequences, carried values and captured ones."""

    xs: Flags
    carries: Flags
    captured: Flags


class Backwards(NamedTuple):
    """An iteration of a linear loop, for the loop that runs it backwards.

    Attributes:
        graph: the graph of an iteration.
        xs: which sequences are linear operands.
        carries: the number of carried values, all of which are linear.
        captured: which captured values are linear operands.
        given: which results have cotangents: carried values, then rows.
    """

    graph: Graph
    xs: Flags
    carries: int
    captured: Flags
    given: Flags

    def trace(self) -> tuple[Staged, Pulled]:
        """Returns the iteration (elements, cotangents of rows, of carried values, sums, captured values), and the operands that
        get cotangents. No others take part: they would get zeros, and zero times infinity is not zero.
        """
        pulled = self._reached()
        while True:  # rules may return no cotangent of an operand on which a result depends
            staged, found = self._stage(pulled)
            if found == pulled:
                return staged, pulled
            pulled = found

    def _reached(self) -> Pulled:
        """Returns the operands on which results with cotangents depend, in this iteration or a later one: the least fixed point."""
        graph, count = self.graph, self.carries
        elements, carried, held = self._inputs()
        wanted = self.given
        while True:
            reached = {s for s, on in zip(graph.outputs, wanted, strict=True) if on}
            for node in reversed(graph.nodes):
                if not reached.isdisjoint(node.outputs):
                    reached.update(node.inputs)
            more = tuple(on or s in reached for on, s in zip(wanted[:count], carried, strict=True)) + wanted[count:]
            if more == wanted:
                flags = (
                    tuple(on and s in reached for s, on in zip(symbols, linear, strict=True))
                    for symbols, linear in ((elements, self.xs), (held, self.captured))
                )
                return Pulled(next(flags), wanted[:count], next(flags))
            wanted = more

    def _inputs(self) -> tuple[Sequence[Symbol], Sequence[Symbol], Sequence[Symbol]]:
        """Returns the elements, the carried values and the captured values of an iteration."""
        inputs, a = self.graph.inputs[1:], len(self.xs)
        return inputs[:a], inputs[a : a + self.carries], inputs[a + self.carries :]

    def _stage(self, pulled: Pulled) -> tuple[Staged, Pulled]:
        """Returns the iteration, where these operands get cotangents, and the ones of them that do."""
        graph, count, rows = self.graph, self.carries, self.given[self.carries :]
        elements, carried, held = self._inputs()
        every = (False, *self.xs, *(True,) * count, *self.captured)
        linear = tuple(compress(graph.inputs, every))
        others = tuple(s for s, on in zip(graph.inputs, every, strict=True) if not on)
        ordered, found = graph.update(inputs=(*linear, *others)), list[Pulled]()
        known = [s for s, on in zip(elements, self.xs, strict=True) if not on]

        def body(step: Any, *values: Any) -> list[Any]:
            rest = iter(values)
            reads, ct_rows = [next(rest) for _ in known], fill([next(rest) for _ in range(sum(rows))], rows)
            cts = fill([next(rest) for _ in range(sum(pulled.carries))], pulled.carries)
            sums = [next(rest) for _ in range(sum(pulled.captured))]
            back = iter(transpose_graph(ordered, len(linear), [step, *reads, *rest], [*cts, *ct_rows]))
            ct_xs, ct_carries, ct_held = (
                [next(back) if on else None for on in flags] for flags in (self.xs, (True,) * count, self.captured)
            )
            given = tuple(on or ct is not None for on, ct in zip(self.given[:count], ct_carries, strict=True))
            found.append(Pulled(flags_of(ct_xs), given, flags_of(ct_held)))
            ct_carries, ct_xs = (
                [zeros(x.spec) if ct is None else ct for x, ct, on in zip(symbols, cts, flags, strict=True) if on]
                for symbols, cts, flags in ((carried, ct_carries, pulled.carries), (elements, ct_xs, pulled.xs))
            )
            totals = [
                x if ct is None else add_tangents(x, ct)
                for x, ct in zip(sums, compress(ct_held, pulled.captured), strict=True)
            ]
            return [*ct_carries, *totals, *ct_xs]

        fixed = [s for s, on in zip(held, self.captured, strict=True) if not on]
        specs = [
            *(s.spec for s in known), *compress(graph.output_specs[count:], rows),
            *compress(graph.output_specs[:count], pulled.carries), *(s.spec for s in compress(held, pulled.captured)),
            *(s.spec for s in fixed),
        ]  # fmt: skip
        staged = stage(body, [ITERATION, *specs], name=f"transposed {graph.name}")
        return staged, found[-1]
