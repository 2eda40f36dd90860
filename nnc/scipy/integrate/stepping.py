"""The integration from Python, step by step: for results whose shapes depend on the steps, and for events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nnc.array.array import Array
from nnc.compiled.decorator import compile as compile_
from nnc.errors import ArgumentError, ArgumentTypeError, ShapeError, user_error
from nnc.numpy.creation import asarray, zeros
from nnc.numpy.joining import stack
from nnc.numpy.manipulation import moveaxis
from nnc.numpy.operands import known, to_value
from nnc.scipy.integrate.solution import OdeResult, OdeSolution
from nnc.scipy.integrate.steps import Method, Problem, State, start
from nnc.scipy.optimize.problems import integer
from nnc.trace.core.differentiate import jvp, stop_gradient
from nnc.trace.core.flat import call_function

_FIX = "pass t_eval, and neither events nor dense_output=True, inside compile and vmap: the number of steps is not known there."
_EPS = 4 * float(np.finfo(np.float64).eps)  # SciPy's tolerance for times of events


@dataclass(frozen=True, slots=True)
class Event:
    """A function whose zeros are looked for: after `limit` of them the integration ends; `direction` is its slope's sign there."""

    fun: Callable[[Any, Any], Any]
    limit: float
    direction: float


def prepare_events(events: Any, args: tuple[Any, ...]) -> list[Event]:
    """Returns the events of a user's functions.

    Raises:
        ArgumentError, ArgumentTypeError: one is no function, or its attribute `terminal` is no count.
    """
    listed = [events] if callable(events) else events
    if not isinstance(listed, (list, tuple)) or not all(map(callable, listed)):
        problem = f"events is {events!r}."
        raise user_error(ArgumentTypeError, "solve_ivp", problem, fix="pass a function event(t, y), or a list of them.")
    found = []
    for fun in listed:
        terminal = getattr(fun, "terminal", None) or 0
        if not isinstance(terminal, (bool, int, float)) or terminal < 0 or terminal != int(terminal):
            problem = f"the attribute terminal of an event is {terminal!r}."
            fix = "set it to True, or to the number of occurrences at which the integration ends."
            raise user_error(ArgumentError, "solve_ivp", problem, fix=fix)

        def call(t: Any, y: Any, fun: Any = fun) -> Any:
            value = call_function(fun, (t, y, *args), where="solve_ivp", fix="define it as event(t, y, *args).")
            value = to_value(value, "solve_ivp", "an event")
            if value.spec.size != 1:
                problem = "an event must be one number."
                fix = "return a scalar, or pass several events."
                raise user_error(ShapeError, "solve_ivp", problem, operands={"event": value.spec}, fix=fix)
            return value.reshape(())

        found.append(Event(call, terminal if terminal else np.inf, float(getattr(fun, "direction", 0) or 0)))
    return found


def step_by_step(
    method: Method, problem: Problem, t: Array, y: Array, first_step: Any, times: Array | None, dense: bool,
    events: list[Event] | None,
) -> OdeResult:  # fmt: skip
    """Makes all steps to the end of the interval, or to a terminal event."""
    s = start(method, problem, t, y, first_step)
    sign, end = _number(problem.direction), _number(problem.end)
    record = _Record([], []) if times is not None else _Record([t], [y])
    pieces: list[tuple[Any, Any]] = []  # where each step begins, and its terms
    ends = [t]
    found: list[list[tuple[Any, Any]]] = [[] for _ in events or ()]
    values = [_number(e.fun(t, y)) for e in events or ()]
    wanted = [] if times is None else [_number(x) for x in times]
    status = 0
    attempt = compile_(lambda s: method.attempt(problem, s))
    while sign * (_number(s.t) - end) < 0:
        before = s
        while True:
            s = attempt(s)
            if bool(known(s.failed, "solve_ivp", _FIX)) or _number(s.t) != _number(before.t):
                break
        if bool(known(s.failed, "solve_ivp", _FIX)):
            status = -1
            break
        terms, count = (None, 0)
        if dense or events or (times is not None and wanted and sign * (wanted[0] - _number(s.t)) <= 0):
            terms, count = method.dense(problem, s)
        s = s._replace(nfev=s.nfev + count)
        stop = None
        if events:
            new = [_number(e.fun(s.t, s.y)) for e in events]
            stop = _note_events(method, s, terms, events, found, values, new)
            values = new
        t, y = (s.t, s.y) if stop is None else stop
        if dense:
            ends.append(t)
            pieces.append((s, terms))
        if times is None:
            record.add(t, y)
        while wanted and sign * (wanted[0] - _number(t)) <= 0:
            at = times[len(times) - len(wanted)]  # type: ignore[index, arg-type]
            record.add(at, _between(method, s, terms, at))
            wanted.pop(0)
        if stop is not None:
            status = 1
            break
    if not record.t and times is not None and wanted and wanted[0] == _number(t):
        record.add(times[0], y)
    sol = _solution(method, problem, s, ends, pieces) if dense else None
    shown = None if events is None else [_stacked([x for x, _ in each], s.t) for each in found]
    states = None if events is None else [_rows([x for _, x in each], s.y) for each in found]
    ys = moveaxis(_rows(record.y, s.y), 0, -1)
    return OdeResult(
        _stacked(record.t, s.t), ys, sol, shown, states, s.nfev, s.njev, s.nlu, integer(status), asarray(status >= 0)
    )


@dataclass(frozen=True, slots=True)
class _Record:
    """The times and the solution at them, as far as they are known."""

    t: list[Any]
    y: list[Any]

    def add(self, t: Any, y: Any) -> None:
        """Adds a time."""
        self.t.append(t)
        self.y.append(y)


def _number(x: Any) -> float:
    """Returns the value of a scalar.

    Raises:
        TraceError: it is traced.
    """
    return float(known(x, "solve_ivp", _FIX))


def _stacked(values: Sequence[Any], like: Array) -> Array:
    return stack(list(values)) if values else zeros((0,), like.dtype)


def _rows(values: Sequence[Any], like: Array) -> Array:
    return stack(list(values)) if values else zeros((0, *like.shape), like.dtype)


def _between(method: Method, s: State, terms: Any, t: Any) -> Any:
    h = s.t - s.t_old
    return method.between((t - s.t_old) / h, h, s.y_old, terms)


def _solution(
    method: Method, problem: Problem, s: State, ends: list[Any], pieces: list[tuple[Any, Any]]
) -> OdeSolution:
    if not pieces:  # an interval without a length
        terms = method.dense(problem, s)[0]
        return OdeSolution(stack([s.t, s.t]), s.y[None], terms[None], method, zeros((1,), s.t.dtype))
    steps = [each for each, _ in pieces]
    return OdeSolution(
        stack(ends), stack([each.y_old for each in steps]), stack([terms for _, terms in pieces]), method,
        stack([each.t - each.t_old for each in steps]),
    )  # fmt: skip


# -- events ------------------------------------------------------------------------------------------------------------


def _note_events(
    method: Method, s: State, terms: Any, events: Sequence[Event], found: list[list[tuple[Any, Any]]],
    old: Sequence[float], new: Sequence[float],
) -> tuple[Any, Any] | None:  # fmt: skip
    """Adds the events of a step to `found`; returns time and solution of the terminal one, where there is one."""
    roots = []
    for i, (event, a, b) in enumerate(zip(events, old, new, strict=True)):
        up, down = a <= 0 <= b, a >= 0 >= b
        if (up and event.direction > 0) or (down and event.direction < 0) or ((up or down) and event.direction == 0):
            roots.append((_zero(method, s, terms, event), i))
    sign = 1 if _number(s.t) > _number(s.t_old) else -1
    last = [len(found[i]) + 1 >= events[i].limit for _, i in roots]
    if any(last):
        roots.sort(key=lambda root: sign * _number(root[0]))
    for t, i in roots:
        y = _between(method, s, terms, t)
        found[i].append((t, y))
        if len(found[i]) >= events[i].limit:
            return t, y
    return None


def _zero(method: Method, s: State, terms: Any, event: Event) -> Any:
    """Returns the time of an event within a step: by bisection and secants (Illinois), then a step of Newton's that has its
    derivative.
    """

    def along(t: Any) -> Any:
        return event.fun(t, _between(method, s, terms, t))

    a, b = _number(s.t_old), _number(s.t)
    fa, fb = _number(along(stop_gradient(s.t_old))), _number(along(stop_gradient(s.t)))
    if fa == 0 or fb == 0:
        a = b = a if fa == 0 else b
    side = 0
    for count in range(200):
        if abs(b - a) <= _EPS * max(1.0, abs(b)):
            break
        middle = 0.5 * (a + b) if count % 3 == 2 or fa == fb else (a * fb - b * fa) / (fb - fa)
        if not min(a, b) < middle < max(a, b):
            middle = 0.5 * (a + b)
        value = _number(along(asarray(middle, dtype=s.t.dtype)))
        if value == 0:
            a = b = middle
        elif (value < 0) == (fb < 0):
            b, fb = middle, value
            fa, side = (0.5 * fa if side == 1 else fa), 1
        else:
            a, fa = middle, value
            fb, side = (0.5 * fb if side == -1 else fb), -1
    t = asarray(b, dtype=s.t.dtype)
    value, slope = jvp(along, (t,), (t * 0 + 1,))
    # 0 in value: the derivative of the time is −dg / (dg/dt).
    moved = value - stop_gradient(value)
    slope = stop_gradient(slope)
    return t - moved / slope if _number(slope) != 0 else t
