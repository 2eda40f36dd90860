"""Means and variances of long rows take one pass over memory, and are as exact as two passes make them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import nn
from nnc.lower.phases import BEFORE_FUSION, FUSE, JOIN, names_of
from tests.unit.lower.passes.tools import names, run

_RNG = np.random.default_rng(5)
X = _RNG.normal(size=(4, 32, 32, 16)).astype(np.float32)
ZEROS = np.zeros(16, np.float32)


def _moments(x: Any) -> Any:
    mean = nnp.mean(x, axis=(0, 1, 2))
    return mean, nnp.mean((x - mean) ** 2, axis=(0, 1, 2))


def test_both_moments_are_found_in_one_pass_over_memory() -> None:
    graph = run(nnc.make_graph(_moments)(X), *names_of((*BEFORE_FUSION, FUSE, JOIN)))
    sweeps = [node for node in graph.nodes if any(symbol.spec.size == X.size for symbol in node.inputs)]
    assert [node.command.name for node in sweeps] == ["reshape", "fused"]


def test_rows_that_stay_in_the_cache_and_results_of_kernels_keep_their_two_passes() -> None:
    short = nnc.make_graph(lambda x: nnp.var(x, axis=0))(X.reshape(512, -1))
    along = nnc.make_graph(lambda x: nnp.var(x, axis=1))(X.reshape(8, -1))
    made = nnc.make_graph(lambda x: _moments(nnp.sin(x)))(X)
    for graph in (short, along, made):
        before = run(graph, *names_of(BEFORE_FUSION))
        assert run(before, "moments_in_blocks").nodes == before.nodes


def test_variances_of_other_axes_or_about_other_centres_are_left_alone() -> None:
    other = lambda x: (
        nnp.mean(x, axis=(0, 1, 2)),
        nnp.mean((x - nnp.mean(x, axis=(1, 2), keepdims=True)) ** 2, axis=(0, 1, 2)),
    )
    centre = lambda x: nnp.mean((x - ZEROS - 1) ** 2, axis=(0, 1, 2))
    added = lambda x: nnp.mean((x + nnp.mean(x, axis=(0, 1, 2))) ** 2, axis=(0, 1, 2))
    another = lambda x: nnp.mean((x - nnp.mean(nnp.flip(x, axis=3), axis=(0, 1, 2))) ** 2, axis=(0, 1, 2))
    turned = lambda x: nnp.mean((nnp.mean(x, axis=(0, 1, 2)) - x) ** 2, axis=(0, 1, 2))
    for function in (other, centre, added, another, turned):
        before = run(nnc.make_graph(function)(X), *names_of(BEFORE_FUSION))
        assert names(run(before, "moments_in_blocks")) == names(before)


def _outlier(at: tuple[int, ...], value: float) -> Any:
    x = X.copy()
    x[at] = value
    return x


@pytest.mark.parametrize(
    "x",
    [X, X + 1e4, X * 1e-3 + 7, _outlier((0, 0, 0), 1e4), _outlier((0, 4, 4), 1e4), _outlier((2, 20, 20), 50) * 1e-3],
    ids=["plain", "far from 0", "narrow", "outlier", "outlier in the sample", "narrow with an outlier"],
)
def test_the_variance_has_a_few_roundings_wherever_the_mean_lies(x: Any) -> None:
    mean, variance = map(np.asarray, nnc.compile(_moments)(x))
    exact = x.astype(np.float64)
    deviation = exact.std(axis=(0, 1, 2))
    np.testing.assert_allclose(variance, deviation**2, rtol=1e-5)
    assert np.all(np.abs(mean - exact.mean(axis=(0, 1, 2))) <= 1e-6 * deviation + 2e-7 * np.abs(x).max())


def test_constant_rows_have_variance_0_and_infinity_makes_nan() -> None:
    same = np.full_like(X, 3.3)
    mean, variance = map(np.asarray, nnc.compile(_moments)(same))
    assert not variance.any()
    np.testing.assert_array_equal(mean, nnc.compile(lambda x: nnp.mean(x, axis=(0, 1, 2)))(same))
    infinite = np.asarray(nnc.compile(_moments)(_outlier((1, 2, 3), np.inf))[1])
    assert np.isnan(infinite).all()


def test_infinity_has_an_infinite_mean() -> None:
    mean = np.asarray(nnc.compile(_moments)(_outlier((1, 2, 3), np.inf))[0])
    assert np.isposinf(mean).all()


@pytest.mark.parametrize("n", [1 << 20, (1 << 18) - 1, 65_537])
def test_moments_of_long_rows_keep_their_digits_wherever_outliers_lie(n: int) -> None:
    """The mean is tiny beside the outliers; they lie at places by which a mean of samples could be found."""
    x = (1e3 + _RNG.normal(size=(2, n))).astype(np.float32)
    x[:, n // 8 :: n // 4] = 0
    y = (1e-3 * _RNG.normal(size=(2, n)) + 1e-3).astype(np.float32)
    y[:, n // 8 :: n // 4], y[:, :4] = 1e5, -1e5

    def moments(x: Any) -> Any:
        mean = nnp.mean(x, axis=1, keepdims=True)
        return mean[:, 0], nnp.mean((x - mean) ** 2, axis=1)

    (_, variance), (mean, _) = (nnc.compile(moments)(value) for value in (x, y))
    np.testing.assert_allclose(variance, x.astype(np.float64).var(1), rtol=2e-6)
    np.testing.assert_allclose(mean, y.astype(np.float64).mean(1), atol=2e-6 * np.abs(y).mean())


def test_a_batch_norm_in_a_loop_is_the_same() -> None:
    def f(x: Any) -> Any:
        return nnc.scan(lambda y, _: (nn.batch_norm(y, ZEROS, ZEROS, axis=3)[0], None), x, None, length=2)[0]

    want = (X - X.mean((0, 1, 2))) / X.std((0, 1, 2))
    np.testing.assert_allclose(np.asarray(nnc.compile(f)(X)), want, atol=1e-4)


def test_values_less_the_means_of_other_rows_are_not_taken_for_centred() -> None:
    """The axes have one size, so that shapes do not tell whether each element meets its own mean."""
    x = np.random.default_rng(3).normal(np.arange(1100), 1, (1100, 1100)).astype(np.float32)

    def squares(x: Any) -> Any:
        mean = nnp.sum(x, axis=0) / x.shape[0]
        return nnp.sum((x - mean[:, None]) ** 2, axis=0)

    wide = x.astype(np.float64)
    wanted = ((wide - wide.mean(0)[:, None]) ** 2).sum(0)
    np.testing.assert_allclose(nnc.compile(squares)(x), wanted, rtol=1e-4)
