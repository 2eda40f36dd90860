"""Sums of squares and means in one pass: the same bits as plain sums where these stay in range, and right numbers elsewhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import nn
from nnc.commands.elementwise import with_slope
from nnc.trace.core.specialised import specialise

RNG = np.random.default_rng(3)
SMALL, LARGE = (RNG.normal(size=(4, n)).astype(np.float32) for n in (7, 5000))


def numbers(x: Any) -> Any:
    return np.asarray(x).astype(np.float64)


@pytest.mark.parametrize("x", [SMALL, LARGE])
@pytest.mark.parametrize("function", [nnp.mean, nnp.var, nnp.std, nnp.linalg.norm])
def test_large_arrays_whose_numbers_are_looked_at_give_the_values_of_traces(function: Any, x: Any) -> None:
    for scale in (1, 1e-25, 1e25):
        values = nnp.asarray(x * np.float32(scale))
        np.testing.assert_allclose(numbers(function(values)), numbers(nnc.compile(function)(values)), rtol=1e-5)
        if function is not nnp.var:
            np.testing.assert_allclose(numbers(function(values)) / scale, numbers(function(x)), rtol=1e-5)


def test_scaling_changes_no_bits_of_ordinary_numbers() -> None:
    plain = nnc.compile(lambda x: nnp.sqrt(nnp.sum(x * x, axis=0)))
    assert np.array_equal(plain(LARGE), nnc.compile(lambda x: nnp.linalg.norm(x, axis=0))(LARGE))
    assert np.array_equal(
        nnc.compile(lambda x: nnp.sum(x, axis=0) / 4)(LARGE), nnc.compile(lambda x: nnp.mean(x, axis=0))(LARGE)
    )


@pytest.mark.parametrize("scale", [1, 1e-18, 1e18])
@pytest.mark.parametrize("way", [lambda f: f, nnc.compile])
def test_second_derivatives_of_norms_are_right(way: Any, scale: float) -> None:
    x = np.array([3.0, -4.0, 12.0])
    unit = x / 13
    want = (np.eye(3) - np.outer(unit, unit)) / 13
    hessian = way(nnc.hessian(nnp.linalg.norm))(nnp.asarray(x * scale, "float32"))
    np.testing.assert_allclose(numbers(hessian) * scale, want, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("way", [lambda f: f, nnc.compile])
def test_means_that_overflow_keep_their_derivatives_and_infinities(way: Any) -> None:
    x = nnp.full((20000,), 3e38)
    mean, slopes = way(nnc.value_and_grad(nnp.mean))(x)
    np.testing.assert_allclose(float(mean), 3e38, rtol=1e-5)  # of 20000 rounded sums
    assert np.array_equal(slopes, np.full(20000, np.float32(1 / 20000)))
    assert float(way(nnp.mean)(x.at[3].set(np.inf))) == np.inf
    assert np.isnan(float(way(nnp.mean)(x.at[3].set(np.nan))))
    assert float(way(nnp.mean)(nnp.full((3,), 2e-38))) == np.float32(2e-38)


@pytest.mark.parametrize("eps", [0.0, 1e-30, 1.0])
def test_rms_norms_of_rows_of_all_sizes(eps: float) -> None:
    for scale in (1e-30, 1e-12, 1.0, 1e25):
        x = (SMALL * np.float32(scale)).astype(np.float64)
        want = x / np.sqrt((x * x).mean(1, keepdims=True) + eps)
        got = nnc.compile(lambda x: nn.rms_norm(x, eps=eps))(x.astype(np.float32))
        np.testing.assert_allclose(numbers(got), want, rtol=1e-5)


def test_a_value_with_the_slope_of_another_has_that_slope() -> None:
    f = lambda x: nnp.sum(with_slope(nnp.exp(x), x * x * x))
    x = nnp.asarray([1.0, 2.0])
    assert np.array_equal(nnc.grad(f)(x), [3, 12])
    assert np.array_equal(nnc.compile(nnc.hessian(f))(x), [[6, 0], [0, 12]])
    assert float(f(x)) == float(nnp.sum(nnp.exp(x)))


@pytest.mark.parametrize("shape", [(5,), (4, 5), (3, 700)])
@pytest.mark.parametrize("axis", [None, -1])
def test_like_calls_are_right_whether_or_not_their_numbers_are_usual(shape: tuple[int, ...], axis: int | None) -> None:
    """From the third like call on, the commands for usual numbers run, and others where these are not usual."""
    x = RNG.normal(size=shape)
    functions = {
        np.mean: nnp.mean, np.var: nnp.var, np.std: nnp.std,
        (lambda x, axis: np.sqrt(np.sum(x * x, axis))): lambda x, axis: nnp.linalg.vector_norm(x, axis=axis),
    }  # fmt: skip
    for scale in (1.0, 2.0, 3.0, 4.0, 1e18, 1e-12, 5.0, 3e37, 1e-30, 0.0, np.inf, np.nan, 1.0):
        values = (x * scale + (0 if np.isfinite(scale) else x)).astype(np.float32)
        for wanted, found in functions.items():
            with np.errstate(all="ignore"):
                want = wanted(values.astype(np.float64), axis).astype(np.float32)
            size = np.nan_to_num(abs(values.astype(np.float64)), posinf=0).max()
            got = np.asarray(found(nnp.asarray(values), axis=axis))
            np.testing.assert_allclose(got, want, rtol=2e-6, atol=1e-6 * size if wanted is np.mean else 0)


def test_specialised_calls_go_the_other_way_where_sums_overflow() -> None:
    calls = [specialise(nnp.mean, (nnp.ones(5),), {}, [0]), specialise(nnp.linalg.norm, (nnp.ones(5),), {}, [0])]
    for call in calls:
        assert call is not None
        assert float(call.run([nnp.full((5,), 3e38)])) > 2e38  # its sums overflow
        assert float(call.run([nnp.full((5,), 2.0)])) in (2.0, np.sqrt(np.float32(20)))


def rows_one_by_one(f: Any) -> Any:
    """f of each row, without a graph of its own."""
    return lambda x: nnp.stack([f(x[i]) for i in range(len(x))])


@pytest.mark.parametrize("function", [nnp.mean, nnp.var, nnp.std, nnp.linalg.norm, nn.layer_norm, nn.rms_norm])
def test_graphs_that_are_made_before_their_derivatives_keep_their_slopes(function: Any) -> None:
    x, weights = (nnp.asarray(RNG.normal(size=(4, 7))) for _ in range(2))

    def loss(rows: Any) -> Any:
        def loss(x: Any) -> Any:
            found = nnp.sin(rows(x))
            return (found * (weights if found.ndim == 2 else weights[:, 0])).sum()

        return loss

    def curved(rows: Any) -> Any:
        return nnc.grad(lambda x: nnp.sum(nnp.square(nnc.grad(loss(rows))(x))))

    plain = rows_one_by_one(function)
    wanted, second = nnc.grad(loss(plain))(x), curved(plain)(x)
    for rows in (
        rows_one_by_one(nnc.checkpoint(function)), rows_one_by_one(nnc.compile(function)), nnc.vmap(function),
        lambda x: nnc.scan(lambda carry, row: (carry, function(row)), 0.0, x)[1],
    ):  # fmt: skip
        np.testing.assert_allclose(numbers(nnc.grad(loss(rows))(x)), numbers(wanted), rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(numbers(curved(rows)(x)), numbers(second), rtol=1e-8, atol=1e-11)
