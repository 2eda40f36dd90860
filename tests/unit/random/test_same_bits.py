"""Every draw has the same bits, however it runs; and draws follow their distributions where rounding matters most."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from scipy import stats

import nnc
from nnc import random
from nnc.commands import draws as commands

KEY = random.key(42)
COUNT = 17
PROBABILITIES = [0.2, 0.3, 0.5]

# of a key and a function that gives parameters their dtype
DRAWS: dict[str, Any] = {
    "uniform": lambda key, a: random.uniform(key, (COUNT,), a(0).dtype, a(-1.3), a(2.7)),
    "normal": lambda key, a: random.normal(key, (COUNT,), a(0).dtype),
    "truncated_normal": lambda key, a: random.truncated_normal(key, a(-1), a(9), (COUNT,), a(0).dtype),
    "exponential": lambda key, a: random.exponential(key, (COUNT,), a(0).dtype),
    "gumbel": lambda key, a: random.gumbel(key, (COUNT,), a(0).dtype),
    "laplace": lambda key, a: random.laplace(key, (COUNT,), a(0).dtype),
    "cauchy": lambda key, a: random.cauchy(key, (COUNT,), a(0).dtype),
    "logistic": lambda key, a: random.logistic(key, (COUNT,), a(0).dtype),
    "lognormal": lambda key, a: random.lognormal(key, a(0.7), (COUNT,), a(0).dtype),
    "pareto": lambda key, a: random.pareto(key, a(2.5), (COUNT,), a(0).dtype),
    "rayleigh": lambda key, a: random.rayleigh(key, a(2.5), (COUNT,), a(0).dtype),
    "weibull_min": lambda key, a: random.weibull_min(key, a(2.3), a(1.7), (COUNT,), a(0).dtype),
    "triangular": lambda key, a: random.triangular(key, a(0), a(1), a(3), (COUNT,), a(0).dtype),
    "maxwell": lambda key, a: random.maxwell(key, (COUNT,), a(0).dtype),
    "wald": lambda key, a: random.wald(key, a(2.3), (COUNT,), a(0).dtype),
    "gamma": lambda key, a: random.gamma(key, a([[0.3], [7.5]]), (2, COUNT), a(0).dtype),
    "loggamma": lambda key, a: random.loggamma(key, a(0.7), (COUNT,), a(0).dtype),
    "beta": lambda key, a: random.beta(key, a(0.7), a(2.5), (COUNT,), a(0).dtype),
    "dirichlet": lambda key, a: random.dirichlet(key, a([0.7, 2, 3, 1, 1]), (COUNT,), a(0).dtype),
    "chisquare": lambda key, a: random.chisquare(key, a(3.3), (COUNT,), a(0).dtype),
    "f": lambda key, a: random.f(key, a(3.3), a(4.7), (COUNT,), a(0).dtype),
    "t": lambda key, a: random.t(key, a(3.3), (COUNT,), a(0).dtype),
    "generalized_normal": lambda key, a: random.generalized_normal(key, a(1.7), (COUNT,), a(0).dtype),
    "ball": lambda key, a: random.ball(key, 5, 3, (COUNT,), a(0).dtype),
    "poisson": lambda key, a: random.poisson(key, np.asarray([[3.3], [300.3], [3e9]]), (3, COUNT)),
    "binomial": lambda key, a: random.binomial(key, a([[20], [1000]]), a(0.3), (2, COUNT)),
    "multinomial": lambda key, a: random.multinomial(key, a([100, 7]), a([PROBABILITIES] * 2)),
    "geometric": lambda key, a: random.geometric(key, a(0.01), (COUNT,)),
    "bernoulli": lambda key, a: random.bernoulli(key, a(0.3), (COUNT,)),
    "rademacher": lambda key, a: random.rademacher(key, (COUNT,)),
    "randint": lambda key, a: random.randint(key, (COUNT,), 3, 100),
    "permutation": lambda key, a: random.permutation(key, COUNT),
    "categorical": lambda key, a: random.categorical(key, a([[0.5, 1, 2]] * COUNT)),
    "choice": lambda key, a: random.choice(key, 3, (COUNT,), p=a(PROBABILITIES)),
    "choice without replacement": lambda key, a: random.choice(key, 3, (2,), replace=False, p=a(PROBABILITIES)),
}  # fmt: skip
FACTORED: dict[str, Any] = {
    "orthogonal": lambda key, a: random.orthogonal(key, 5, (3,), a(0).dtype),
    "multivariate_normal": lambda key, a: random.multivariate_normal(
        key, a(np.ones(3)), a(np.eye(3) + 0.3), (COUNT,), a(0).dtype
    ),
}  # LAPACK has no 16-bit floats
CASES = [
    *((name, "float32") for name in (*DRAWS, *FACTORED)),
    *(
        (name, "float64")
        for name in ("uniform", "normal", "truncated_normal", "wald", "beta", "poisson", "ball", "orthogonal")
    ),
    *((name, "bfloat16") for name in ("uniform", "normal", "truncated_normal", "wald", "gamma", "t", "weibull_min")),
]


@pytest.mark.parametrize(("name", "dtype"), CASES, ids=lambda x: x)
def test_draws_have_the_same_bits_however_they_run(name: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))

    def draw(key: Any) -> Any:
        return {**DRAWS, **FACTORED}[name](key, lambda x: np.asarray(x, kind))

    keys = random.split(KEY, 2)
    want = [np.asarray(draw(key)) for key in keys]
    assert np.asarray(nnc.compile(draw)(keys[0])).tobytes() == want[0].tobytes()
    rows = nnc.compile(nnc.vmap(draw), contract=True)(keys)
    assert np.asarray(rows).tobytes() == np.stack(want).tobytes()
    monkeypatch.setenv("NNC_NATIVE", "0")
    assert np.asarray(nnc.compile(draw)(keys[1])).tobytes() == want[1].tobytes()


def test_a_draw_that_is_added_keeps_its_bits_where_products_are_joined_with_sums() -> None:
    base = np.float32(2.0**20)  # so large that only a rounded draw gives this sum

    def shifted(key: Any) -> Any:
        return random.rayleigh(key, np.float32(2.5), (999,)) + base

    got = nnc.compile(shifted, contract=True)(KEY)
    np.testing.assert_array_equal(np.asarray(got), np.asarray(random.rayleigh(KEY, np.float32(2.5), (999,))) + base)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_functions_of_draws_have_the_same_bits_in_compiled_code(dtype: Any) -> None:
    rng = np.random.default_rng(0)
    edges = np.asarray([0, -0.0, 1, -1, np.inf, -np.inf, np.nan], dtype)
    positive = np.concatenate([np.exp(rng.uniform(-80, 80, 2001)).astype(dtype), edges])
    unit = np.concatenate([rng.uniform(-1, 1, 2001).astype(dtype), edges])
    low = rng.normal(0, 8, 2001).astype(dtype)
    high = low + np.exp(rng.normal(0, 2, 2001)).astype(dtype)
    for command, operands in (
        (commands.portable_log, (positive,)), (commands.portable_log1p, (unit,)), (commands.normal_quantile, (unit,)),
        (commands.portable_exp, (rng.uniform(-80, 80, 2001).astype(dtype),)), (commands.tan_of_turns, (unit[:2001] / 2,)),
        (commands.truncated_normal_quantile, (np.abs(unit[:2001]), low, high)),
    ):  # fmt: skip
        np.testing.assert_array_equal(np.asarray(nnc.compile(command)(*operands)), np.asarray(command(*operands)))


@pytest.mark.parametrize("interval", [(6, 9), (-9, -6), (6, 6.25), (-1, 12), (30, 31), (-np.inf, -40), (200, np.inf)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_normal_draws_between_bounds_in_the_tails_follow_their_distribution(
    interval: tuple[float, float], dtype: str
) -> None:
    x = np.asarray(random.truncated_normal(KEY, *interval, (4000,), dtype)).astype(np.float64)
    assert (x > interval[0]).all() and (x < interval[1]).all()
    if dtype == "float32":
        assert stats.kstest(x, stats.truncnorm(*interval).cdf).statistic < 0.035
    elif interval == (6, 9):
        assert len(np.unique(x)) > 15


def test_counts_of_large_rates_have_the_variance_of_their_rate_and_any_parity() -> None:
    for rate in (3e5, 1e7, 1e9, 1e12):
        draws = np.asarray(random.poisson(KEY, rate, (20000,)))
        assert abs(draws.mean() - rate) < 5 * np.sqrt(rate / 20000)
        assert abs(draws.var() / rate - 1) < 0.06
        assert abs((draws % 2).mean() - 0.5) < 0.02
    draws = np.asarray(random.binomial(KEY, 1e9, 0.3, (20000,), "float64"))
    assert abs(draws.var() / 2.1e8 - 1) < 0.06 and abs((draws % 2).mean() - 0.5) < 0.02
    assert abs((np.asarray(random.geometric(KEY, np.float32(1e-9), (20000,))) % 2).mean() - 0.5) < 0.02


def test_gamma_draws_of_large_parameters_have_their_variance() -> None:
    for size in (1e6, 1e8):
        draws = np.asarray(random.gamma(KEY, np.float32(size), (20000,))).astype(np.float64)
        assert abs(draws.var() / size - 1) < 0.06
        shares = np.asarray(random.beta(KEY, np.float32(size), np.float32(size), (20000,))).astype(np.float64)
        assert abs(shares.var() * 8 * size - 1) < 0.06


def test_wald_draws_of_large_means_are_positive_and_follow_their_distribution() -> None:
    for mean in (0.5, 1000.0, 1e6):
        draws = np.asarray(random.wald(KEY, np.float32(mean), (4000,))).astype(np.float64)
        assert (draws > 0).all()
        assert stats.kstest(draws, stats.invgauss(mean).cdf).pvalue > 1e-3


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_tangent_of_turns_is_periodic(dtype: Any) -> None:
    x = np.random.default_rng(1).uniform(-0.4, 0.4, 2001).astype(dtype)
    for turns in (0, 1, -1, 2, 1000):
        shifted = (x + dtype(turns)).astype(dtype)
        wanted = np.tan(np.pi * (shifted - dtype(turns)).astype(np.float64))
        for tangent in (commands.tan_of_turns, nnc.compile(commands.tan_of_turns)):
            np.testing.assert_allclose(np.asarray(tangent(shifted)), wanted, rtol=8 * np.finfo(dtype).eps)
