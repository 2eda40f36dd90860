"""Draws of every distribution follow it, in every dtype, and are the same eager, compiled and mapped.

Keys are fixed, so that a test passes always or never.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

import nnc
import nnc.numpy as nnp
from nnc import random
from nnc.errors import ArgumentError

KEY = random.key(7)
REAL: dict[str, tuple[tuple[Any, ...], Any]] = {
    "uniform": ((), stats.uniform()), "normal": ((), stats.norm()), "exponential": ((), stats.expon()),
    "gumbel": ((), stats.gumbel_r()), "laplace": ((), stats.laplace()), "cauchy": ((), stats.cauchy()),
    "logistic": ((), stats.logistic()), "maxwell": ((), stats.maxwell()), "lognormal": ((0.5,), stats.lognorm(0.5)),
    "pareto": ((2.0,), stats.pareto(2)), "rayleigh": ((2.0,), stats.rayleigh(scale=2)),
    "weibull_min": ((2.0, 1.5), stats.weibull_min(1.5, scale=2)), "triangular": ((0.0, 1.0, 3.0), stats.triang(1 / 3, scale=3)),
    "wald": ((2.0,), stats.invgauss(2)), "truncated_normal": ((-0.5, 2.0), stats.truncnorm(-0.5, 2)),
    "gamma": ((0.7,), stats.gamma(0.7)), "loggamma": ((0.7,), stats.loggamma(0.7)), "beta": ((2.0, 3.0), stats.beta(2, 3)),
    "chisquare": ((3.0,), stats.chi2(3)), "f": ((3.0, 4.0), stats.f(3, 4)), "t": ((3.0,), stats.t(3)),
    "generalized_normal": ((1.5,), stats.gennorm(1.5)),
}  # fmt: skip
DTYPES = ["bfloat16", "float16", "float32", "float64"]
COUNTS: dict[str, tuple[tuple[Any, ...], Any]] = {
    "poisson": ((4.0,), stats.poisson(4)), "geometric": ((0.3,), stats.geom(0.3)), "binomial": ((10, 0.3), stats.binom(10, 0.3)),
}  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", REAL)
def test_real_draws_follow_their_distribution(name: str, dtype: str) -> None:
    parameters, distribution = REAL[name]
    x = getattr(random, name)(KEY, *parameters, shape=(1500,), dtype=dtype)
    assert x.dtype.name == dtype
    assert stats.kstest(np.asarray(x).astype(np.float64), distribution.cdf).pvalue > 1e-3


@pytest.mark.parametrize("name", sorted(set(REAL) - {"uniform", "beta", "f", "t", "chisquare"}))
def test_draws_of_16_bits_are_those_of_float32_rounded(name: str) -> None:
    parameters = REAL[name][0]
    single = getattr(random, name)(KEY, *parameters, shape=(300,))
    for dtype in ("bfloat16", "float16"):
        narrow = getattr(random, name)(KEY, *parameters, shape=(300,), dtype=dtype)
        near = np.asarray(single).astype(np.float64)
        eps = float(nnp.finfo(dtype).eps)
        np.testing.assert_allclose(np.asarray(narrow).astype(np.float64), near, rtol=eps, atol=eps / 8)


@pytest.mark.parametrize("name", COUNTS)
def test_counts_follow_their_distribution(name: str) -> None:
    parameters, distribution = COUNTS[name]
    x = np.asarray(getattr(random, name)(KEY, *parameters, shape=(3000,))).astype(int)
    values = np.arange(1, 8)
    seen = np.array([*(np.sum(x == k) for k in values), np.sum((x < 1) | (x > 7))])
    chances = np.array([*distribution.pmf(values), 1 - distribution.pmf(values).sum()])
    assert stats.chisquare(seen, chances / chances.sum() * x.size).pvalue > 1e-3


@pytest.mark.parametrize("dtype", DTYPES)
def test_choices_of_a_thousand_are_as_likely_as_asked(dtype: str) -> None:
    def check(drawn: Any) -> None:
        seen = np.bincount(np.asarray(drawn) // 100, minlength=10)
        assert stats.chisquare(seen).pvalue > 1e-3

    check(random.categorical(KEY, nnp.zeros(1000, dtype), shape=(3000,)))
    check(random.choice(KEY, 1000, (3000,), p=nnp.full(1000, 0.001, dtype)))
    check(random.choice(KEY, 1000, (500,), replace=False, p=nnp.full(1000, 0.001, dtype)))
    rare = random.bernoulli(KEY, nnp.asarray(0.002, dtype), (50000,))
    assert 60 < int(rare.sum()) < 150


@pytest.mark.parametrize(
    ("dtype", "low", "high"),
    [("int8", -128, 128), ("uint16", 0, 60000), ("int32", -(2**31), 2**30), ("uint32", 0, 3 * 2**30), ("int64", 0, 3 * 2**61),
     ("uint64", 0, 3 * 2**62), ("int64", -(2**63), 2**63), ("int32", 0, 70000)],
)  # fmt: skip
def test_integers_of_wide_ranges_are_equally_likely(dtype: str, low: int, high: int) -> None:
    draw = lambda key: random.randint(key, (20000,), low, high, dtype)
    x = np.asarray(draw(KEY))
    assert (x.astype(object) >= low).all() and (x.astype(object) < high).all()
    seen = np.histogram((x.astype(float) - low) / (high - low), 16, (0, 1))[0]
    assert stats.chisquare(seen).pvalue > 1e-3
    assert np.array_equal(np.asarray(nnc.compile(draw)(KEY)), x)
    if high <= np.iinfo(dtype).max:
        traced = nnc.compile(lambda key, a, b: random.randint(key, (20000,), a, b, dtype))
        assert np.array_equal(np.asarray(traced(KEY, np.asarray(low, dtype), np.asarray(high, dtype))), x)


@pytest.mark.parametrize("dtype", DTYPES)
def test_draws_are_the_same_eager_compiled_and_mapped(dtype: str) -> None:
    names = ("normal", "gumbel", "laplace", "cauchy", "logistic", "rayleigh", "truncated_normal", "uniform")

    def draw(key: Any) -> Any:
        return [getattr(random, name)(key, *REAL[name][0], shape=(5,), dtype=dtype) for name in names]

    eager, compiled, mapped = draw(KEY), nnc.compile(draw)(KEY), nnc.vmap(draw)(KEY[None])
    for x, y, z in zip(eager, compiled, mapped, strict=True):
        assert np.asarray(x).tobytes() == np.asarray(y).tobytes() == np.asarray(z).tobytes()


def test_the_upper_bound_is_left_out_after_rounding() -> None:
    assert float(random.uniform(KEY, (1000,), "float32", 1.0, 1.0000001).max()) == 1
    assert float(random.uniform(KEY, (1000,), "float16", 1000.0, 1000.5).max()) == 1000
    bounds = nnp.asarray([[0.0], [7.0]], "float16"), nnp.asarray([[0.1], [7.1]], "float16")
    x = random.uniform(KEY, (2, 1000), "float16", *bounds)
    assert bool(((x >= bounds[0]) & (x < bounds[1])).all())


@pytest.mark.parametrize(("dtype", "bound"), [("float32", 3e38), ("float64", 1.7e308), ("bfloat16", 3e38)])
def test_bounds_may_lie_farther_apart_than_the_largest_float(dtype: str, bound: float) -> None:
    known = random.uniform(KEY, (2000,), dtype, -bound, bound)
    limit = nnp.asarray(bound, dtype)
    traced = nnc.compile(lambda a: random.uniform(KEY, (2000,), dtype, -a, a))(limit)
    for x in (known, traced):
        share = np.asarray(x).astype(np.longdouble) / np.longdouble(bound)
        assert stats.kstest(share.astype(float), stats.uniform(-1, 2).cdf).pvalue > 1e-3


def test_impossible_choices_raise() -> None:
    with pytest.raises(ArgumentError, match="3 of 2 elements that have a probability above 0"):
        random.choice(KEY, 4, (3,), replace=False, p=np.array([0.5, 0.5, 0, 0]))
    with pytest.raises(ArgumentError, match="1 of 0 elements"):
        random.choice(KEY, 3, (2,), p=np.zeros(3))
    with pytest.raises(ArgumentError, match="2 of 1 categories"):
        random.categorical(KEY, np.array([0.0, -np.inf]), shape=(2,), replace=False)
    assert sorted(random.choice(KEY, 4, (2,), replace=False, p=np.array([0.5, 0.5, 0, 0])).tolist()) == [0, 1]


def test_counts_at_the_ends_have_one_value() -> None:
    most = np.iinfo(np.int32).max
    rates = np.array([np.nan, -1.0, 0.0, 1e30, np.inf])
    assert random.poisson(KEY, rates, dtype="int32").tolist() == [-1, -1, 0, most, most]
    assert random.geometric(KEY, np.array([0.0, 1.0, 2.0, np.nan]), dtype="int32").tolist() == [most, 1, -1, -1]
    assert random.binomial(KEY, 10, np.array([0.0, 1.0])).tolist() == [0, 10]
    assert random.binomial(KEY, np.inf, np.array([0.0, 0.5, 1.0])).tolist() == [0, np.inf, np.inf]
