"""Least squares of numbers that are not negative, against SciPy, and as compiled, mapped and differentiated code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.optimize

import nnc
from nnc.errors import ArgumentError, DTypeError, ShapeError
from nnc.optim import nnls
from nnc.testing import check_grads

rng = np.random.default_rng(0)
A, B = rng.normal(size=(8, 4)), rng.normal(size=8)


@pytest.mark.parametrize("shape", [(8, 4), (12, 1), (5, 5), (30, 10)])
def test_solutions_agree_with_scipy(shape: tuple[int, int]) -> None:
    solve = nnc.compile(nnls, static_argnums=2)
    for seed in range(5):
        draw = np.random.default_rng(seed)
        a, b = draw.normal(size=shape), draw.normal(size=shape[0])
        want, residual = scipy.optimize.nnls(a, b)
        got = np.asarray(solve(a, b, 20_000))
        assert (got >= 0).all() and got.dtype == np.float64
        np.testing.assert_allclose(np.linalg.norm(a @ got - b), residual, rtol=1e-10)
        np.testing.assert_allclose(got, want, atol=1e-5)


def test_columns_batches_and_compiled_calls_have_the_same_solutions() -> None:
    want = np.stack([nnls(A, b, 300) for b in (B, -B)])
    np.testing.assert_allclose(np.asarray(nnls(A, np.stack([B, -B], 1), 300)).T, want, rtol=1e-12)
    np.testing.assert_allclose(nnc.vmap(lambda b: nnls(A, b, 300))(np.stack([B, -B])), want, rtol=1e-12)
    np.testing.assert_allclose(nnc.compile(lambda a, b: nnls(a, b, 300, unroll=7))(A, B), want[0], rtol=1e-12)
    largest = np.linalg.eigvalsh(A.T @ A)[-1]
    np.testing.assert_allclose(nnls(A, B, 300, L=largest), want[0], rtol=1e-12)
    solve = nnc.compile(nnls, static_argnums=2)
    np.testing.assert_allclose(solve(A, B, 4000, L=2 * largest), solve(A, B, 4000), atol=1e-9)


def test_gradients_agree_with_differences() -> None:
    check_grads(lambda a, b: nnls(a, b, 500), (A, B), order=1, rtol=1e-4)


def test_matrices_of_zeros_and_no_iterations_give_zeros() -> None:
    assert not np.asarray(nnls(A * 0, B, 5)).any() and not np.asarray(nnls(A, B, 0)).any()
    assert nnls([[1, 0], [0, 1]], [2, -1], 50).tolist() == [2.0, 0.0]


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: nnls(A, B[:3], 5), ShapeError, "b have as many rows"),
        (lambda: nnls(B, B, 5), ShapeError, "A must be a matrix"),
        (lambda: nnls(A, B, -1), ArgumentError, "iters is -1"),
        (lambda: nnls(A, B, 5, L=-1.0), ArgumentError, "L is -1.0"),
        (lambda: nnls(A * 1j, B, 5), DTypeError, "nnls: A must be floating-point"),
    ],
)
def test_mistakes_are_named(call: Callable[[], Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call()
