"""Explicit Runge-Kutta methods: steps, error estimates and continuous extensions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nnc.array.array import Array
from nnc.numpy import elementwise as el
from nnc.numpy import linalg as la
from nnc.numpy.creation import asarray
from nnc.numpy.joining import stack
from nnc.numpy.manipulation import broadcast_to
from nnc.scipy.integrate.steps import MAX_FACTOR, MIN_FACTOR, SAFETY, Problem, State, propose, rms
from nnc.scipy.integrate.tableaus import Tableau
from nnc.trace.core.differentiate import stop_gradient


def _combined(weights: Sequence[float], rows: Any) -> Any:
    """Returns the sum of rows times numbers, without those of weight 0."""
    total = None
    for w, row in zip(weights, rows, strict=False):
        if w:
            total = row * w if total is None else total + row * w
    return total


@dataclass(frozen=True, slots=True)
class RungeKutta:
    """The explicit method of a tableau."""

    tableau: Tableau

    @property
    def order(self) -> int:
        """The order of the error estimate."""
        return self.tableau.order

    def start(self, problem: Problem, t: Any, y: Any, f: Any) -> tuple[Any, Any, int]:
        """Returns the stages of no step, which are all its derivative."""
        return broadcast_to(f, (len(self.tableau.c) + 1, *f.shape)) * 1, (), 0

    def attempt(self, problem: Problem, s: State) -> State:
        """Tries a step; nothing but its size changes where the estimated error is too large."""
        table = self.tableau
        size, h, t, failed = propose(problem, s)
        stages = [s.f]
        for c, row in zip(table.c[1:], table.a[1:], strict=True):
            stages.append(problem.fun(s.t + c * h, s.y + h * _combined(row, stages)))
        y = s.y + h * _combined(table.b, stages)
        f = problem.fun(t, y)
        stages.append(f)
        scale = problem.atol + el.maximum(el.abs(stop_gradient(s.y)), el.abs(stop_gradient(y))) * problem.rtol
        error = self._error([_combined(row, [stop_gradient(k) for k in stages]) / scale for row in table.error], size)
        accepted = (error < 1) & ~failed
        factor = SAFETY * el.where(error > 0, error, 1) ** (-1 / (table.order + 1))
        longer = el.where(error == 0, MAX_FACTOR, el.minimum(MAX_FACTOR, factor))
        longer = el.where(s.rejected, el.minimum(longer, 1), longer)
        shorter = el.where(el.isnan(error), MIN_FACTOR, el.maximum(MIN_FACTOR, factor))

        def kept(new: Any, old: Any) -> Any:
            return el.where(accepted, new, old)

        return State(
            kept(t, s.t), kept(y, s.y), kept(f, s.f), size * kept(longer, shorter), ~accepted, s.failed | failed,
            kept(s.t, s.t_old), kept(s.y, s.y_old), kept(stack(stages), s.stages), (), s.nfev + len(table.c), s.njev, s.nlu,
        )  # fmt: skip

    def _error(self, errors: Sequence[Any], size: Any) -> Any:
        if len(errors) == 1:
            return rms(errors[0] * size)
        fifth, third = (el.square(la.vector_norm(e)) for e in errors)
        root = el.sqrt((fifth + 0.01 * third) * float(errors[0].size))
        return el.where(root == 0, 0, size * fifth / el.where(root == 0, 1, root))

    def dense(self, problem: Problem, s: State) -> tuple[Any, int]:
        """Returns the terms of the continuous extension."""
        table, h = self.tableau, s.t - s.t_old
        stages = s.stages
        if not table.further:
            return la.matmul(_constant(list(zip(*table.extension, strict=True)), stages), stages), 0
        rows = [stages[i] for i in range(len(table.c) + 1)]
        for c, weights in table.further:
            rows.append(problem.fun(s.t_old + c * h, s.y_old + h * _combined(weights, rows)))
        change = s.y - s.y_old
        terms = [change, h * rows[0] - change, 2 * change - h * (s.f + rows[0])]
        terms += [h * _combined(weights, rows) for weights in table.extension]
        return stack(terms), len(table.further)

    def between(self, x: Any, h: Any, y: Any, terms: Any) -> Any:
        """Returns the value of the extension."""
        total: Any = 0
        count = terms.shape[0]
        if not self.tableau.further:
            for i in reversed(range(count)):
                total = (total + terms[i]) * x
            return y + h * total
        for i in range(count):
            total = (total + terms[count - 1 - i]) * (x if i % 2 == 0 else 1 - x)
        return y + total


def _constant(rows: Any, like: Array) -> Array:
    return asarray(rows, dtype=like.dtype)
