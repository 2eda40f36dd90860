"""Integrals of samples and initial value problems agree with SciPy; their derivatives, with solutions that are known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.integrate

import nnc
import nnc.numpy as nnp
import nnc.scipy.integrate as integrate
from nnc.errors import ArgumentError, ArgumentTypeError, ShapeError, TraceError, UnsupportedError
from nnc.testing import check_grads

RNG = np.random.default_rng(5)

# -- samples -----------------------------------------------------------------------------------------------------------

RULES = ("trapezoid", "cumulative_trapezoid", "simpson")


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 8])
def test_integrals_of_samples_agree_with_scipy(rule: str, n: int) -> None:
    ours, scipys = getattr(integrate, rule), getattr(scipy.integrate, rule)
    y, x = RNG.normal(size=(3, n, 2)), np.cumsum(RNG.uniform(0.1, 1, size=n))
    many = np.cumsum(RNG.uniform(0.1, 1, size=(3, n, 2)), axis=1)
    for kwargs in ({}, {"dx": 0.3}, {"x": x}, {"x": many}):
        want = scipys(y, axis=1, **kwargs)
        for run in (ours, nnc.compile(ours, static_argnames=("axis", "dx"))):
            got = run(y, axis=1, **kwargs)
            assert got.dtype == np.float64
            np.testing.assert_allclose(np.asarray(got), want, rtol=1e-13, atol=1e-13)


def test_integrals_of_samples_have_derivatives_and_other_dtypes() -> None:
    y, x = RNG.normal(size=6), np.cumsum(RNG.uniform(0.1, 1, size=6))
    for rule in RULES:
        check_grads(lambda y, x, rule=rule: getattr(integrate, rule)(y, x), (y, x), order=2, rtol=1e-4)
        assert getattr(integrate, rule)(np.arange(3)).dtype == np.float32
        assert getattr(integrate, rule)(y.astype(np.float32), dx=0.1).dtype == np.float32
    want = scipy.integrate.cumulative_trapezoid(y, initial=0)
    np.testing.assert_allclose(np.asarray(integrate.cumulative_trapezoid(y, initial=0)), want, rtol=1e-14)
    same = np.array([0.0, 0, 1, 2])  # two samples at one place
    np.testing.assert_allclose(
        np.asarray(integrate.simpson(y[:4], same)), scipy.integrate.simpson(y[:4], x=same), rtol=1e-14
    )


# -- initial value problems --------------------------------------------------------------------------------------------

EXPLICIT = ("RK23", "RK45", "DOP853")
IMPLICIT = ("Radau", "BDF")  # the matrices of their Newton iterations are not SciPy's
METHODS = (*EXPLICIT, *IMPLICIT)
methods = pytest.mark.parametrize("method", METHODS)
Y = np.array([10.0, 5.0])
TIMES = np.linspace(0, 4, 9)
TIGHT = {"rtol": 1e-8, "atol": 1e-10}


def predators(t: Any, y: Any, a: Any = 1.5, b: Any = 1.0) -> list[Any]:
    """Lotka and Volterra's equations, as a list of numbers."""
    return [a * y[0] - b * y[0] * y[1], -3 * y[1] + y[0] * y[1]]


def same(got: Any, want: Any, rtol: float) -> None:
    np.testing.assert_allclose(np.asarray(got.t), want.t, rtol=rtol)
    np.testing.assert_allclose(np.asarray(got.y), want.y, rtol=rtol, atol=1e-12)
    assert int(got.status) == want.status and got.message == want.message and bool(got.success) == want.success


@pytest.mark.parametrize("method", EXPLICIT)
def test_steps_are_those_of_scipy(method: str) -> None:
    for end, options in ((4, {}), (-0.5, {"max_step": 0.1}), (4, {"first_step": 0.01, "atol": np.array([1e-3, 1e-6])})):
        got = integrate.solve_ivp(predators, (0, end), Y, method, **options)
        want = scipy.integrate.solve_ivp(predators, (0, end), Y, method, **options)
        same(got, want, 1e-9)
        assert (int(got.nfev), int(got.njev), int(got.nlu)) == (want.nfev, 0, 0)


@methods
def test_solutions_at_given_times_are_those_of_scipy_at_once_and_compiled(method: str) -> None:
    rtol = 1e-5 if method in IMPLICIT else 1e-9
    times, options = TIMES[2:5], {"args": (1.4, 1.1), "rtol": 1e-6, "atol": 1e-8}
    want = scipy.integrate.solve_ivp(predators, (0, 4), Y, method, t_eval=times, **options)
    same(integrate.solve_ivp(predators, (0, 4), Y, method, t_eval=times, **options), want, rtol)
    if method == "RK45":
        run = nnc.compile(lambda y: integrate.solve_ivp(predators, (0, 4), y, method, t_eval=times, **options))
        same(run(Y), want, rtol)


def test_backwards_in_time_rows_of_a_batch_and_float32() -> None:
    times = TIMES[::-1].copy()
    want = scipy.integrate.solve_ivp(predators, (4, 0), Y, t_eval=times)
    same(integrate.solve_ivp(predators, (4, 0), Y, t_eval=times), want, 1e-9)
    starts = np.stack([Y, Y / 2, Y / 3])
    rows = nnc.vmap(lambda y: integrate.solve_ivp(predators, (0, 4), y, t_eval=TIMES).y)(starts)
    for y, row in zip(starts, np.asarray(rows), strict=True):
        want = scipy.integrate.solve_ivp(predators, (0, 4), y, t_eval=TIMES)
        np.testing.assert_allclose(row, want.y, rtol=1e-8)
    narrow = integrate.solve_ivp(predators, (0, 4), Y.astype(np.float32), t_eval=TIMES.tolist())
    assert narrow.y.dtype == narrow.t.dtype == np.float32
    np.testing.assert_allclose(
        np.asarray(narrow.y), scipy.integrate.solve_ivp(predators, (0, 4), Y, t_eval=TIMES).y, rtol=1e-2
    )
    assert integrate.solve_ivp(predators, (0, 1), np.array([10, 5]), t_eval=[1.0]).y.dtype == np.float32
    assert (
        integrate.solve_ivp(lambda t, y: -y * np.ones(2), (0, 1), Y.astype(np.float32), t_eval=[1.0]).y.dtype
        == np.float64
    )


def test_complex_solutions() -> None:
    turn = lambda t, y: 1j * y
    start = np.array([1 + 0j, 2j])
    for method in ("RK45",):
        want = scipy.integrate.solve_ivp(turn, (0, 3), start, method, t_eval=[1.0, 3.0])
        np.testing.assert_allclose(
            np.asarray(integrate.solve_ivp(turn, (0, 3), start, method, t_eval=[1.0, 3.0]).y), want.y, rtol=1e-9
        )


def robertson(t: Any, y: Any) -> list[Any]:
    """A stiff chemical reaction, whose rates differ by nine orders of magnitude."""
    slow, fast, square = 0.04 * y[0], 1e4 * y[1] * y[2], 3e7 * y[1] * y[1]
    return [fast - slow, slow - fast - square, square]


def test_stiff_problems_take_few_implicit_steps() -> None:
    times, y = np.array([0.4, 4, 40]), np.array([1.0, 0, 0])
    got = integrate.solve_ivp(robertson, (0, 40), y, "Radau", t_eval=times, rtol=1e-6, atol=1e-10)
    want = scipy.integrate.solve_ivp(robertson, (0, 40), y, "Radau", t_eval=times, rtol=1e-9, atol=1e-13)
    np.testing.assert_allclose(np.asarray(got.y), want.y, rtol=1e-4)
    assert bool(got.success) and int(got.nfev) < 1000 and int(got.njev) > 1 and int(got.nlu) > 1


@methods
def test_the_solution_as_a_function_is_that_of_scipy(method: str) -> None:
    want = scipy.integrate.solve_ivp(predators, (0, 4), Y, method, dense_output=True, **TIGHT)
    got = integrate.solve_ivp(predators, (0, 4), Y, method, dense_output=True, **TIGHT)
    times = np.array([0, 0.123, 2.5, 4, 4.01])
    rtol = 1e-5 if method in IMPLICIT else 1e-9
    np.testing.assert_allclose(np.asarray(got.sol(times)), want.sol(times), rtol=rtol)
    np.testing.assert_allclose(np.asarray(got.sol(1.5)), want.sol(1.5), rtol=rtol)
    slope = nnc.jacfwd(got.sol)(1.5)
    np.testing.assert_allclose(np.asarray(slope), predators(1.5, np.asarray(got.sol(1.5))), rtol=2e-3)


def height(t: Any, y: Any, g: Any = 0.5) -> Any:
    return y[0]


def apex(t: Any, y: Any, g: Any = 0.5) -> Any:
    return y[1]


def thrown(t: Any, y: Any, g: Any = 0.5) -> list[Any]:
    return [y[1], -g]


@pytest.mark.parametrize("terminal", [True, False, 1, 2])
@pytest.mark.parametrize("direction", [-1, 0, 1])
def test_events_are_those_of_scipy(terminal: Any, direction: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(height, "terminal", terminal, raising=False)
    monkeypatch.setattr(height, "direction", direction, raising=False)
    options = {"events": (height, apex), "dense_output": True}
    start = np.array([0.0, 10.0])
    for times in (None, np.array([0, 1.0, 39, 45])):
        got = integrate.solve_ivp(thrown, (0, 50), start, t_eval=times, **options)
        want = scipy.integrate.solve_ivp(thrown, (0, 50), start, t_eval=times, **options)
        same(got, want, 1e-8)
        for ours, theirs in zip(got.t_events, want.t_events, strict=True):
            np.testing.assert_allclose(np.asarray(ours), theirs, rtol=1e-9, atol=1e-12)
        for ours, theirs in zip(got.y_events, want.y_events, strict=True):
            np.testing.assert_allclose(np.asarray(ours), np.reshape(theirs, ours.shape), rtol=1e-8, atol=1e-8)
        middle = float(got.t[-1]) - 0.1
        np.testing.assert_allclose(np.asarray(got.sol(middle)), want.sol(middle), rtol=1e-8)


def test_times_of_events_have_derivatives() -> None:
    def landing(g: Any) -> Any:
        found = integrate.solve_ivp(
            thrown, (0, 100), np.array([1.0, 10.0]), events=height, args=(g,), rtol=1e-10, atol=1e-12
        )
        return found.t_events[0][0]

    g = np.float64(0.5)
    root = (100 + 2 * 0.5) ** 0.5  # (v + root) / g, with root² = v² + 2 g h
    np.testing.assert_allclose(float(landing(g)), (10 + root) / 0.5, rtol=1e-9)
    want = -(10 + root) / 0.25 + 1 / root / 0.5
    np.testing.assert_allclose(float(nnc.grad(landing)(g)), want, rtol=1e-7)
    np.testing.assert_allclose(float(nnc.jvp(landing, (g,), (np.float64(1),))[1]), want, rtol=1e-7)


def decayed(y: Any, k: Any, times: Any, method: str, **options: Any) -> Any:
    """The solution y0 exp(-k t) of a linear problem, whose function reads k from outside."""
    return integrate.solve_ivp(
        lambda t, y: -k * y, (0, 2), y, method, t_eval=times, **{"rtol": 1e-9, "atol": 1e-11, **options}
    ).y


START, RATE, AT = np.array([1.0, 2.0]), np.array([0.5, 1.5]), np.array([0.5, 1.25, 2.0])


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("RK45", {"checkpoint": "sqrt"}),
        ("DOP853", {}),
        ("Radau", {"rtol": 1e-6, "atol": 1e-8}),
        ("BDF", {"rtol": 1e-7, "atol": 1e-9}),
        ("BDF", {"rtol": 1e-7, "atol": 1e-9, "adjoint": True}),
        ("RK45", {"adjoint": True}),
    ],
)
def test_gradients_are_those_of_the_known_solution(method: str, options: Any) -> None:
    def total(y: Any, k: Any) -> Any:
        return (decayed(y, k, AT, method, **options) * np.array([1.0, 2, 3])).sum()

    weights = np.exp(-RATE[:, None] * AT) * np.array([1.0, 2, 3])
    want = weights.sum(1), -(START[:, None] * AT * weights).sum(1)
    tolerance = 1e-4 if method in IMPLICIT else 1e-6
    for x, y in zip(nnc.compile(nnc.grad(total, argnums=(0, 1)))(START, RATE), want, strict=True):
        np.testing.assert_allclose(np.asarray(x), y, rtol=tolerance)


def test_gradients_at_once_mapped_forwards_and_of_second_order() -> None:
    def at_end(k: Any, **options: Any) -> Any:
        return decayed(START, k, [2.0], "RK45", **options).sum()

    want = -2 * START * np.exp(-2 * RATE)
    np.testing.assert_allclose(np.asarray(nnc.grad(at_end)(RATE)), want, rtol=1e-6)
    for options in ({"rtol": 1e-7}, {"rtol": 1e-7, "adjoint": True}):
        rows = nnc.compile(nnc.vmap(nnc.grad(lambda k: at_end(k, **options))))(np.stack([RATE, 2 * RATE]))  # noqa: B023
        np.testing.assert_allclose(np.asarray(rows[0]), want, rtol=1e-5)
        np.testing.assert_allclose(np.asarray(rows[1]), -2 * START * np.exp(-4 * RATE), rtol=1e-5)
    np.testing.assert_allclose(np.asarray(nnc.jacfwd(at_end)(RATE)), want, rtol=1e-6)
    second = nnc.compile(nnc.jacfwd(nnc.grad(at_end)))(RATE)
    np.testing.assert_allclose(np.asarray(second), np.diag(4 * START * np.exp(-2 * RATE)), rtol=1e-5, atol=1e-8)


def test_times_have_derivatives() -> None:
    def at(begin: Any, end: Any) -> Any:
        return integrate.solve_ivp(lambda t, y: -RATE * y, (begin, 3), START, t_eval=nnp.stack([end]), **TIGHT).y.sum()

    slope = RATE * START * np.exp(-2 * RATE)
    got = nnc.grad(at, argnums=(0, 1))(np.float64(0), np.float64(2))
    np.testing.assert_allclose(np.asarray(got), [slope.sum(), -slope.sum()], rtol=1e-5)


def test_steps_from_python_have_gradients_of_all_results() -> None:
    def mean(k: Any) -> Any:
        found = integrate.solve_ivp(lambda t, y: -k * y, (0, 2), START, dense_output=True, **TIGHT)
        return found.y[:, -1].sum() + found.sol(1.0).sum()

    want = -START * (2 * np.exp(-2 * RATE) + np.exp(-RATE))
    np.testing.assert_allclose(np.asarray(nnc.grad(mean)(RATE)), want, rtol=1e-6)


def test_a_step_that_cannot_be_made_fails_and_leaves_nan() -> None:
    def explode(t: Any, y: Any) -> Any:
        return y * y  # 1 / (1 - t)

    got = integrate.solve_ivp(explode, (0, 2), np.ones(1), t_eval=[0.5, 1.5])
    assert not bool(got.success) and int(got.status) == -1
    np.testing.assert_allclose(np.asarray(got.y), [[2, np.nan]], rtol=1e-2)
    want = scipy.integrate.solve_ivp(explode, (0, 2), np.ones(1))
    steps = integrate.solve_ivp(explode, (0, 2), np.ones(1))
    assert steps.message == want.message and int(steps.status) == want.status == -1
    np.testing.assert_allclose(np.asarray(steps.t)[:10], want.t[:10], rtol=1e-9)


@pytest.mark.parametrize(("method", "adjoint"), [*((method, False) for method in METHODS), ("RK45", True)])
def test_nan_ends_an_integration(method: str, adjoint: bool) -> None:
    def solve(y: Any, k: Any, first: float | None = None) -> Any:
        got = integrate.solve_ivp(
            lambda t, y: k * y, (0.0, 1.0), y, method, t_eval=[0.5, 1.0], adjoint=adjoint, first_step=first
        )
        return got.y, got.status

    compiled = nnc.compile(solve)
    for y, k, first in ((Y * np.nan, 1.0, None), (Y, np.nan, None), (Y, np.nan, 0.1)):
        values, status = compiled(y, k, first)
        assert np.isnan(np.asarray(values)).all() and int(status) == -1
    value, gradient = nnc.value_and_grad(lambda y: nnp.sum(solve(y, np.nan)[0]))(Y)
    assert np.isnan(value) and gradient.shape == Y.shape
    if not adjoint:
        steps = integrate.solve_ivp(lambda t, y: y * np.nan, (0.0, 1.0), Y, method)
        assert int(steps.status) == -1 and steps.t.shape == (1,)


@methods
@pytest.mark.parametrize("backwards", [False, True])
def test_traced_times_outside_of_the_interval_or_out_of_order_fail(method: str, backwards: bool) -> None:
    begin, end = (1.0, 0.0) if backwards else (0.0, 1.0)

    def solve(shares: Any) -> Any:
        times = begin + (end - begin) * shares
        got = integrate.solve_ivp(lambda t, y: -y, (begin, end), np.ones(1), method, t_eval=times, rtol=1e-6)
        return got.y[0], got.success

    cases = np.array([[0.5, 1.0], [0.5, 2.0], [2.0, 3.0], [-1.0, 0.5], [np.nan, 0.5], [0.5, 0.2], [0.5, 0.5]])
    good = np.array([2, 1, 0, 0, 0, 1, 2])
    for found, success in (
        [np.stack(x) for x in zip(*map(nnc.compile(solve), cases), strict=True)],
        nnc.vmap(solve)(cases),
    ):
        want = np.where(np.arange(2) < good[:, None], np.exp((begin - end) * cases), np.nan)
        np.testing.assert_allclose(np.asarray(found), want, rtol=1e-4)
        np.testing.assert_array_equal(np.asarray(success), good == 2)


def test_traced_times_may_miss_the_ends_by_a_rounding_error() -> None:
    times = np.array([np.nextafter(0.1, 0), 0.2, np.nextafter(0.3, 1)])
    found = nnc.compile(lambda t: integrate.solve_ivp(lambda t, y: -y, (0.1, 0.3), np.ones(1), t_eval=t).y[0])(times)
    np.testing.assert_allclose(np.asarray(found), np.exp(0.1 - times), rtol=1e-3)


def test_an_interval_without_a_length_has_the_first_value() -> None:
    for options in ({}, {"t_eval": [1.0]}, {"dense_output": True}):
        got = integrate.solve_ivp(predators, (1, 1), Y, **options)
        np.testing.assert_array_equal(np.asarray(got.y), Y[:, None])
        assert bool(got.success)
    np.testing.assert_array_equal(np.asarray(got.sol(1.0)), Y)


def counted(n: Any) -> Any:
    def event(t: Any, y: Any) -> Any:
        return y[0]

    event.terminal = n  # type: ignore[attr-defined]
    return event


MISTAKES = {
    "method": (lambda: integrate.solve_ivp(predators, (0, 1), Y, "LSODA"), ArgumentError, "method is 'LSODA'"),
    "span": (lambda: integrate.solve_ivp(predators, 1.0, Y), ArgumentError, "t_span is 1.0"),
    "matrix": (lambda: integrate.solve_ivp(predators, (0, 1), Y[None]), ShapeError, "y0 must be a vector"),
    "derivative": (lambda: integrate.solve_ivp(lambda t, y: y[:1], (0, 1), Y), ShapeError, "derivative of each number"),
    "arguments": (lambda: integrate.solve_ivp(predators, (0, 1), Y, args=1.0), ArgumentTypeError, "args is 1.0"),
    "parameters": (lambda: integrate.solve_ivp(predators, (0, 1), Y, args=(1, 2, 3)), ArgumentTypeError, "predators"),
    "outside": (lambda: integrate.solve_ivp(predators, (0, 1), Y, t_eval=[2.0]), ArgumentError, "outside of t_span"),
    "order": (lambda: integrate.solve_ivp(predators, (0, 1), Y, t_eval=[0.5, 0.2]), ArgumentError, "in the order"),
    "nan": (lambda: integrate.solve_ivp(predators, (0, 1), Y, t_eval=[np.nan]), ArgumentError, "from nan to nan"),
    "times": (lambda: integrate.solve_ivp(predators, (0, 1), Y, t_eval=0.5), ShapeError, "t_eval must be a vector"),
    "tolerance": (lambda: integrate.solve_ivp(predators, (0, 1), Y, rtol=1e-16), ArgumentError, "rtol is 1e-16"),
    "step": (lambda: integrate.solve_ivp(predators, (0, 1), Y, max_step=0), ArgumentError, "max_step is 0.0"),
    "first": (lambda: integrate.solve_ivp(predators, (0, 1), Y, first_step=2.0), ArgumentError, "first_step is 2.0"),
    "complex": (lambda: integrate.solve_ivp(predators, (0, 1), Y * 1j, "Radau"), UnsupportedError, "'Radau' takes real"),
    "complex formulas": (lambda: integrate.solve_ivp(predators, (0, 1), Y * 1j, "BDF"), UnsupportedError, "'BDF' takes real"),
    "adjoint": (lambda: integrate.solve_ivp(predators, (0, 1), Y, adjoint=True), UnsupportedError, "needs known times"),
    "complex adjoint": (
        lambda: integrate.solve_ivp(predators, (0, 1), Y * 1j, t_eval=[1.0], adjoint=True), UnsupportedError, "real numbers",
    ),
    "event": (lambda: integrate.solve_ivp(predators, (0, 1), Y, events=1), ArgumentTypeError, "events is 1"),
    "vector event": (lambda: integrate.solve_ivp(predators, (0, 1), Y, events=lambda t, y: y), ShapeError, "one number"),
    "terminal": (lambda: integrate.solve_ivp(predators, (0, 1), Y, events=counted(-1)), ArgumentError, "terminal"),
    "compiled steps": (lambda: nnc.compile(lambda y: integrate.solve_ivp(predators, (0, 1), y))(Y), TraceError, "solve_ivp"),
    "mapped steps": (
        lambda: nnc.vmap(lambda y: integrate.solve_ivp(predators, (0, 1), y, dense_output=True).y)(np.stack([Y, Y])),
        TraceError, "solve_ivp",
    ),
    "samples": (lambda: integrate.simpson(Y, np.ones(3)), ShapeError, "different lengths"),
    "places": (lambda: integrate.trapezoid(Y, np.ones((3, 2))), ShapeError, "neither a vector"),
    "initial": (lambda: integrate.cumulative_trapezoid(Y, initial=1), ArgumentError, "initial is 1"),
    "none": (lambda: integrate.simpson(np.ones(0)), ShapeError, "no sample"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_worded(name: str) -> None:
    call, error, text = MISTAKES[name]
    with pytest.raises(error, match=text) as found:
        call()
    assert "Fix:" in str(found.value)


@pytest.mark.parametrize("span", [(2.0, 0.0), (0.0, 2.0)])
@pytest.mark.parametrize("turned", [False, True])
def test_of_two_terminal_events_in_one_step_the_first_in_the_direction_of_time_ends_it(
    span: tuple[float, float], turned: bool
) -> None:
    def event_at(time: float) -> Any:
        def event(t: Any, y: Any) -> Any:
            return t - time

        event.terminal = True  # type: ignore[attr-defined]
        return event

    events = [event_at(time) for time in ((1.1, 1.2) if turned else (1.2, 1.1))]
    options = {"events": events, "first_step": 2.0}
    got = integrate.solve_ivp(lambda t, y: y * 0 + 1, span, np.zeros(1), **options)
    want = scipy.integrate.solve_ivp(lambda t, y: y * 0 + 1, span, np.zeros(1), **options)
    first = 1.2 if span[0] else 1.1
    assert got.status == want.status == 1
    assert float(got.t[-1]) == pytest.approx(first) == pytest.approx(want.t[-1])
    for ours, theirs in zip(got.t_events, want.t_events, strict=True):
        np.testing.assert_allclose(np.asarray(ours), theirs, rtol=1e-12)
    np.testing.assert_allclose(np.asarray(got.y), want.y, rtol=1e-12)
