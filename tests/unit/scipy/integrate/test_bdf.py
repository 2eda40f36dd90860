"""Differentiation formulas of varying order, `method="BDF"`: stiff problems agree with SciPy's BDF and with known solutions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.integrate

import nnc
import nnc.numpy as nnp
from nnc.scipy.integrate import solve_ivp
from nnc.scipy.integrate.bdf import BDF
from nnc.scipy.integrate.steps import Problem, start

RATES = np.array([0.04, 1e4, 3e7])
MATRIX = np.array([[-1.0, 0, 0], [1, -1000, 0], [3, 5, -1e5]])
START = np.array([1.0, 0, 0])
BEGIN = np.array([2.0, 0])


def robertson(t: Any, y: Any, k: Any = RATES) -> list[Any]:
    """A stiff chemical reaction, whose rates differ by nine orders of magnitude."""
    slow, fast, square = k[0] * y[0], k[1] * y[1] * y[2], k[2] * y[1] * y[1]
    return [fast - slow, slow - fast - square, square]


def van_der_pol(t: Any, y: Any) -> list[Any]:
    """An oscillator that hardly moves for most of the time, and jumps within a thousandth of it."""
    return [y[1], 1000 * (1 - y[0] ** 2) * y[1] - y[0]]


def linear(t: Any, y: Any) -> list[Any]:
    """A linear problem with eigenvalues from -1 to -1e5."""
    return [sum(float(a) * y[j] for j, a in enumerate(row)) for row in MATRIX]


def linear_solution(t: Any) -> Any:
    values, vectors = np.linalg.eig(MATRIX)
    return vectors @ (np.exp(values[:, None] * t) * np.linalg.solve(vectors, np.ones(3))[:, None])


PROBLEMS = {  # function, end, first value, options
    "robertson": (robertson, 1e5, START, {"rtol": 1e-6, "atol": 1e-10}),
    "van der pol": (van_der_pol, 2000.0, BEGIN, {"rtol": 1e-6, "atol": 1e-8}),
    "linear": (linear, 10.0, np.ones(3), {"rtol": 1e-6}),
    "backwards": (lambda t, y: [y[0] - y[1], 500 * y[1]], -2.0, np.ones(2), {"atol": np.array([1e-5, 1e-8])}),
    "short steps": (linear, 0.2, np.ones(3), {"max_step": 0.01, "first_step": 1e-8}),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_steps_are_about_as_many_as_scipys(name: str) -> None:
    fun, end, start, options = PROBLEMS[name]
    got = solve_ivp(fun, (0, end), start, "BDF", **options)
    want = scipy.integrate.solve_ivp(fun, (0, end), start, "BDF", **options)
    assert bool(got.success)
    assert got.t[-1] == end
    assert abs(got.t.shape[0] / want.t.shape[0] - 1) < 0.1
    assert 0.8 < int(got.nfev) / want.nfev < 1.1
    assert int(got.njev) <= want.njev
    assert int(got.nlu) <= 1.6 * want.nlu  # after a rejected step SciPy goes on with the matrix of another size
    np.testing.assert_allclose(np.asarray(got.t)[:9], want.t[:9], rtol=1e-7, atol=1e-15)
    np.testing.assert_allclose(np.asarray(got.y)[:, :9], want.y[:, :9], rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("name", ["robertson", "linear"])
def test_without_a_rejected_step_all_counts_and_steps_are_scipys(name: str) -> None:
    fun, end, start, options = PROBLEMS[name]
    got = solve_ivp(fun, (0, end), start, "BDF", **options)
    want = scipy.integrate.solve_ivp(fun, (0, end), start, "BDF", **options)
    assert (int(got.nfev), int(got.njev), int(got.nlu)) == (want.nfev, want.njev, want.nlu)
    np.testing.assert_allclose(np.asarray(got.y), want.y, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", ["van der pol", "short steps"])
def test_order_and_size_rise_only_after_steps_of_one_size_and_order(name: str) -> None:
    """Other orders are judged by differences that equal steps alone make; rejected steps and the longest step change sizes, too."""
    fun, end, first, options = PROBLEMS[name]
    rtol, atol, longest = (
        np.float64(options.get(x, y)) for x, y in (("rtol", 1e-3), ("atol", 1e-6), ("max_step", np.inf))
    )
    problem = Problem(lambda t, y: nnp.stack(fun(t, y)), np.float64(end), np.float64(1), rtol, atol, longest)
    state = start(BDF(), problem, nnp.asarray(np.float64(0)), nnp.asarray(first), None)
    attempt = nnc.compile(lambda s: BDF().attempt(problem, s))
    made: list[tuple[float, int]] = []  # sizes and orders of accepted steps since the last choice
    choices = rejected = 0
    while float(state.t) < end and choices < 60:
        before, state = state, attempt(state)
        if bool(state.rejected):
            rejected += 1
            continue
        order = max(int(before.extra.order), 1)
        made.append((float(state.extra.spacing), order))
        if int(state.extra.order) != order or float(state.size) > made[-1][0]:
            assert len(set(made[-order - 1 :])) == 1 and len(made) > order
            made.clear()
            choices += 1
    assert choices > 9 and (rejected > 9 or name == "short steps")


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_linear_problem_has_its_known_solution_at_given_times_and_between(dtype: Any) -> None:
    times, wide = np.array([1e-5, 1e-3, 0.1, 1, 2], dtype), dtype == np.float64
    options = {"rtol": 1e-8, "atol": 1e-12} if wide else {"rtol": 2e-5, "atol": 1e-7}
    want = linear_solution(times.astype(np.float64))
    bounds = {"rtol": 1e-6, "atol": 1e-9} if wide else {"rtol": 1e-3, "atol": 1e-5}
    start = np.ones(3, dtype)
    at_times = solve_ivp(linear, (0, 2), start, "BDF", t_eval=times, **options)
    dense = solve_ivp(linear, (0, 2), start, "BDF", dense_output=True, **options)
    for got in (at_times.y, dense.sol(times)):
        assert got.dtype == dtype
        np.testing.assert_allclose(np.asarray(got), want, **bounds)
    slope = nnc.jacfwd(dense.sol)(dtype(0.5))
    np.testing.assert_allclose(np.asarray(slope), linear(0.5, np.asarray(dense.sol(0.5))), rtol=1e-2, atol=2e-2)


def test_float32_takes_about_as_many_steps_and_is_as_exact_as_its_tolerances() -> None:
    options = {"rtol": 1e-4, "atol": 1e-8}
    exact = scipy.integrate.solve_ivp(robertson, (0, 40), START, "BDF", rtol=1e-10, atol=1e-14)
    want = scipy.integrate.solve_ivp(robertson, (0, 40), START, "BDF", **options)
    got = solve_ivp(robertson, (0, 40), START.astype(np.float32), "BDF", args=(RATES.astype(np.float32),), **options)
    assert got.y.dtype == got.t.dtype == np.float32
    assert abs(got.t.shape[0] / want.t.shape[0] - 1) < 0.2
    np.testing.assert_allclose(np.asarray(got.y)[:, -1], exact.y[:, -1], rtol=1e-3)
    # At the jump, float32 has no times that lie close enough to one another.
    options = {"rtol": 1e-4, "atol": 1e-6}
    exact = scipy.integrate.solve_ivp(van_der_pol, (0, 700), BEGIN, "BDF", rtol=1e-10, atol=1e-12)
    want = scipy.integrate.solve_ivp(van_der_pol, (0, 700), BEGIN, "BDF", **options)
    got = solve_ivp(van_der_pol, (0, 700), BEGIN.astype(np.float32), "BDF", **options)
    assert got.t.shape[0] <= 1.3 * want.t.shape[0]
    np.testing.assert_allclose(np.asarray(got.y)[:, -1], exact.y[:, -1], rtol=1e-2)


def rises(t: Any, y: Any) -> Any:
    return y[0]


def is_fast(t: Any, y: Any) -> Any:
    return y[1] - 100


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize("times", [None, np.array([10.0, 807, 1500, 1700])])
def test_events_and_dense_output_within_jumps_agree_with_scipy(
    terminal: bool, times: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rises, "direction", 1, raising=False)
    monkeypatch.setattr(rises, "terminal", terminal, raising=False)
    options = {"events": (rises, is_fast), "dense_output": True, "t_eval": times, "rtol": 1e-8, "atol": 1e-10}
    got = solve_ivp(van_der_pol, (0, 2000), BEGIN, "BDF", **options)
    want = scipy.integrate.solve_ivp(van_der_pol, (0, 2000), BEGIN, "BDF", **options)
    assert int(got.status) == want.status == terminal
    for ours, theirs in zip(got.t_events, want.t_events, strict=True):
        np.testing.assert_allclose(np.asarray(ours), theirs, rtol=1e-6)
    np.testing.assert_allclose(np.asarray(got.y_events[1]), want.y_events[1], rtol=1e-5)
    assert abs(float(got.y_events[0][0][0])) < 1e-6
    between = np.array([0.01, 3, 400, 800, 1100, 1600])
    np.testing.assert_allclose(np.asarray(got.sol(between)), want.sol(between), rtol=1e-5)
    if times is None:
        assert abs(got.t.shape[0] / want.t.shape[0] - 1) < 0.1
    else:
        np.testing.assert_allclose(np.asarray(got.t), want.t)
        np.testing.assert_allclose(np.asarray(got.y)[:, [0, 2]], want.y[:, [0, 2]], rtol=1e-5)


def test_the_first_value_is_the_solution_before_the_first_step() -> None:
    for options in ({}, {"t_eval": [1.0]}, {"dense_output": True}):
        got = solve_ivp(robertson, (1, 1), START, "BDF", **options)
        np.testing.assert_array_equal(np.asarray(got.y), START[:, None])
    np.testing.assert_array_equal(np.asarray(got.sol(1.0)), START)
    got = solve_ivp(robertson, (0, 1), START, "BDF", t_eval=[0.0, 1.0])
    np.testing.assert_array_equal(np.asarray(got.y)[:, 0], START)


# -- derivatives -------------------------------------------------------------------------------------------------------

TIMES = np.array([0.4, 4, 40])
WEIGHTS = np.array([[1.0, -2, 0.5], [1e4, 2e4, -3e4], [-0.5, 1, 2]])
TIGHT = {"rtol": 1e-7, "atol": 1e-12}


def reaction(k: Any, **options: Any) -> Any:
    return solve_ivp(robertson, (0, 40), START, "BDF", t_eval=TIMES, args=(k,), **{**TIGHT, **options}).y


def differences(k: Any) -> Any:
    """The derivatives of Robertson's solution by its rates, by finite differences of SciPy's, (3, 3, 3)."""

    def exact(k: Any) -> Any:
        options = {"t_eval": TIMES, "args": (k,), "rtol": 1e-10, "atol": 1e-14}
        return scipy.integrate.solve_ivp(robertson, (0, 40), START, "Radau", **options).y

    return np.stack([(exact(k * (1 + 1e-4 * e)) - exact(k * (1 - 1e-4 * e))) / 2e-4 for e in np.eye(3)], -1) / k


@pytest.mark.slow
def test_derivatives_through_steps_of_a_stiff_problem_are_finite_differences_compiled_and_mapped() -> None:
    want = differences(RATES)
    np.testing.assert_allclose(np.asarray(nnc.compile(nnc.jacfwd(reaction))(RATES)), want, rtol=1e-4)
    gradient = nnc.grad(lambda k: (reaction(k) * WEIGHTS).sum())
    got = np.asarray(nnc.compile(nnc.vmap(gradient))(np.stack([RATES, 2 * RATES])))
    np.testing.assert_allclose(got[0], np.einsum("ij,ijk", WEIGHTS, want), rtol=1e-5)
    np.testing.assert_allclose(got[1], np.einsum("ij,ijk", WEIGHTS, differences(2 * RATES)), rtol=1e-5)


def test_rows_of_a_batch_have_orders_and_steps_of_their_own() -> None:
    rates = np.stack([RATES, RATES * [5, 0.1, 1], RATES * 1e-3])
    rows = nnc.compile(nnc.vmap(reaction))(rates)
    one = nnc.compile(reaction)
    for row, k in zip(np.asarray(rows), rates, strict=True):
        np.testing.assert_allclose(row, np.asarray(one(k)), rtol=1e-9, atol=1e-14)
        want = scipy.integrate.solve_ivp(robertson, (0, 40), START, "BDF", t_eval=TIMES, args=(k,), **TIGHT)
        np.testing.assert_allclose(row, want.y, rtol=1e-5)


RATE, FIRST = np.array([0.5, 1.5]), np.array([1.0, 2.0])


def decayed(k: Any, first: Any = FIRST, end: Any = 2.0, begin: Any = 0.0, **options: Any) -> Any:
    """The last value of y' = -k y, y0 exp(-k t)."""
    options = {"rtol": 1e-8, "atol": 1e-10, **options}
    return solve_ivp(lambda t, y: -k * y, (begin, 3), first, "BDF", t_eval=nnp.stack([end]), **options).y.sum()


@pytest.mark.slow
def test_derivatives_of_second_order_by_times_and_of_the_adjoint_equation_are_those_of_the_known_solution() -> None:
    end, begin = np.float64(2), np.float64(0)
    value = FIRST * np.exp(-2 * RATE)
    second = nnc.compile(nnc.jacfwd(nnc.grad(decayed)))(RATE)
    np.testing.assert_allclose(np.asarray(second), np.diag(4 * value), rtol=1e-5, atol=1e-6)
    by_times = nnc.grad(lambda end, begin: decayed(RATE, FIRST, end, begin), argnums=(0, 1))(end, begin)
    np.testing.assert_allclose(np.asarray(by_times), [-(RATE * value).sum(), (RATE * value).sum()], rtol=1e-5)
    rows = nnc.compile(nnc.vmap(nnc.grad(lambda k: decayed(k, adjoint=True))))(np.stack([RATE, 2 * RATE]))
    np.testing.assert_allclose(np.asarray(rows), -2 * FIRST * np.exp([-2 * RATE, -4 * RATE]), rtol=2e-5)


def test_a_step_into_a_region_without_values_is_made_shorter_and_has_derivatives() -> None:
    """y' = -k sqrt(y) has (1 - k t / 2)²; the first step predicts a negative number, where even the Jacobian is NaN."""

    def solve(k: Any, t_eval: Any = None, **options: Any) -> Any:
        return solve_ivp(lambda t, y: -k * nnp.sqrt(y), (0, 1.5), np.ones(1), "BDF", t_eval, first_step=1.4, **options)

    options = {"t_eval": [1.5], "rtol": 1e-6, "atol": 1e-9}
    value, slope = nnc.value_and_grad(lambda k: solve(k, **options).y[0, 0])(np.float64(1))
    np.testing.assert_allclose([float(value), float(slope)], [0.0625, -0.375], rtol=1e-4)
    # A Jacobian of NaN would be of no use for shorter steps, either.
    assert int(solve(np.float64(1), **options).nfev) < 80
    coarse = solve(np.float64(1), atol=10.0)  # no error is too large, but the system has no solution that is found
    assert float(coarse.t[1]) < 1 and float(coarse.y[0, 1]) < 0.8


def test_a_step_that_cannot_be_made_fails_and_leaves_nan() -> None:
    explode = lambda t, y: y * y  # 1 / (1 - t)
    got = solve_ivp(explode, (0, 2), np.ones(1), "BDF", t_eval=[0.5, 1.5])
    assert not bool(got.success) and int(got.status) == -1
    np.testing.assert_allclose(np.asarray(got.y), [[2, np.nan]], rtol=1e-2)
    steps = solve_ivp(explode, (0, 2), np.ones(1), "BDF")
    want = scipy.integrate.solve_ivp(explode, (0, 2), np.ones(1), "BDF")
    assert steps.message == want.message and abs(float(steps.t[-1]) - 1) < 0.02
