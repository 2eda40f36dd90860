"""The parts of all methods for initial value problems: the state of an integration, its norms, and the size of the first step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from nnc.array.array import Array
from nnc.numpy import elementwise as el
from nnc.numpy import linalg as la
from nnc.scipy.optimize.problems import integer
from nnc.trace.core.differentiate import stop_gradient

SAFETY, MIN_FACTOR, MAX_FACTOR = 0.9, 0.2, 10.0  # of changes of the step size, as in SciPy


@dataclass(frozen=True, slots=True)
class Problem:
    """An initial value problem, and how exactly it is solved. Numbers are scalars of the real dtype of y."""

    fun: Callable[[Any, Any], Any]  # (t, y) -> the derivative of y
    end: Any
    direction: Any  # 1 or -1
    rtol: Any
    atol: Any
    max_step: Any

    def is_before(self, t: Any, other: Any) -> Any:
        """Whether `t` comes before `other` in the direction of the integration."""
        return self.direction * (t - other) < 0


class State(NamedTuple):
    """An integration after an attempt to make a step: the point reached, and the last step that was accepted."""

    t: Any
    y: Any
    f: Any  # the derivative at t
    size: Any  # absolute size of the step to attempt; steps have no derivative
    rejected: Any  # whether the last attempt was rejected
    failed: Any
    t_old: Any
    y_old: Any
    stages: Any  # of the accepted step, from which it is interpolated
    extra: Any  # values of the method
    nfev: Any
    njev: Any
    nlu: Any


class Method(Protocol):
    """A method. Its steps are SciPy's, but for rounding; those of implicit methods differ a little more."""

    @property
    def order(self) -> int:
        """The order of the error estimate."""

    def start(self, problem: Problem, t: Any, y: Any, f: Any) -> tuple[Any, Any, int]:
        """Returns `stages` and `extra` before the first step, and the number of Jacobians made."""

    def attempt(self, problem: Problem, s: State) -> State:
        """Tries a step."""

    def dense(self, problem: Problem, s: State) -> tuple[Any, int]:
        """Returns the terms that interpolate the accepted step, (k, n), and the number of evaluations made for them."""

    def between(self, x: Any, h: Any, y: Any, terms: Any) -> Any:
        """Returns the solution at the share x of a step of length h from y."""


def rms(x: Array) -> Array:
    """Returns the root of the mean of squares, a constant for derivatives."""
    return la.vector_norm(stop_gradient(x)) / float(x.spec.size) ** 0.5


def start(method: Method, problem: Problem, t: Array, y: Array, first_step: Any) -> State:
    """Returns the state before the first step."""
    f = problem.fun(t, y)
    size, nfev = (first_step, 1) if first_step is not None else (_first_size(method.order, problem, t, y, f), 2)
    stages, extra, njev = method.start(problem, t, y, f)
    no = problem.direction == 0
    size = stop_gradient(problem.direction * 0 + size)
    return State(t, y, f, size, no, no, t, y, stages, extra, integer(nfev), integer(njev), integer(0))


def _first_size(order: int, problem: Problem, t: Array, y: Array, f: Array) -> Any:
    """Returns a size by the first two derivatives (Hairer, Nørsett and Wanner, section II.4)."""
    t, y, f = (stop_gradient(x) for x in (t, y, f))
    length = el.abs(stop_gradient(problem.end) - t)
    scale = problem.atol + el.abs(y) * problem.rtol
    d0, d1 = rms(y / scale), rms(f / scale)
    h = el.where((d0 < 1e-5) | (d1 < 1e-5), 1e-6, 0.01 * d0 / el.where(d1 > 0, d1, 1))
    h = el.minimum(h, length)
    step = h * problem.direction
    moved = problem.fun(t + step, y + step * f)
    d2 = rms((moved - f) / scale) / el.where(h > 0, h, 1)
    most = el.maximum(d1, d2)
    usual = (0.01 / el.where(most > 0, most, 1)) ** (1 / (order + 1))
    second = el.where((d1 <= 1e-15) & (d2 <= 1e-15), el.maximum(1e-6, h * 1e-3), usual)
    return el.minimum(el.minimum(100 * h, second), el.minimum(length, problem.max_step))


def propose(problem: Problem, s: State) -> tuple[Any, Any, Any, Any]:
    """Returns the size, the length with its sign, the end of the step to attempt, and whether it is too short to be made."""
    t = stop_gradient(s.t)
    least = 10 * el.abs(el.nextafter(t, problem.direction * float("inf")) - t)
    size = el.where(s.rejected, s.size, el.clip(s.size, least, el.maximum(problem.max_step, least)))
    h = size * problem.direction
    end = stop_gradient(problem.end)
    over = problem.direction * (t + h - end) > 0
    h = el.where(over, end - t, h)
    # Lengths are constants: the last point moves with the first.
    reached = el.where(over, end, t + h)
    return el.abs(h), h, s.t + (reached - t), s.rejected & ~(size >= least)  # also where the size is NaN


def interpolate(method: Method, problem: Problem, s: State, t: Any) -> tuple[Any, int]:
    """Returns the solution at a time within the last accepted step, and the number of evaluations made for it."""
    terms, count = method.dense(problem, s)
    h = s.t - s.t_old
    x = el.where(h != 0, (t - s.t_old) / el.where(h != 0, h, 1), 0)
    return method.between(x, h, s.y_old, terms), count
