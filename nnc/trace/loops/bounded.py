"""The tangents of loops of unknown length where their number of iterations is bounded, as in exported programs.

The loop runs as it is, and tells how many iterations there are. A `scan` of the largest number repeats them, with a branch that
does nothing behind the last one, so that all memory is known: that of loops within loops, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nnc.commands.elementwise import less
from nnc.trace.core.dual import run_apart
from nnc.trace.loops.branches import cond
from nnc.trace.loops.control_flow import scan


def bounded_tangents(
    iteration: Callable[..., Sequence[Any]], iterations: Any, most: int, primals: Sequence[Any], tangents: Sequence[Any],
    carries: int, forward: bool,
) -> list[Any]:  # fmt: skip
    """Returns the tangents of the carried values behind the last iteration.

    Args:
        iteration: (number, *carried, *captured) -> the next carried values.
        iterations: how many there are, at most `most`.
        primals: the carried values at the start, then those that the loop captures.
        carries: how many are carried.
    """

    def again(*values: Any) -> Sequence[Any]:
        captured = values[carries:]

        def step(carried: tuple[Any, ...], number: Any) -> tuple[tuple[Any, ...], None]:
            def go(*carried: Any) -> tuple[Any, ...]:
                return tuple(iteration(number, *carried, *captured))

            return cond(less(number, iterations), go, lambda *carried: carried, *carried), None

        final: tuple[Any, ...] = scan(step, tuple(values[:carries]), counted)[0]
        return final

    counted = np.arange(most)
    return run_apart(again, primals, tangents, forward)[1]
