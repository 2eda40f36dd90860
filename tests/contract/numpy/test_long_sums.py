"""Sums over long axes: their error does not grow with the length, eager or compiled, in any kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp

_BOUND = 2e-6  # of the largest element of the result; float32 has 6e-8
_N = 1_000_000

# name: the function, in terms of a module like NumPy; the shape of its operand
_CASES: dict[str, tuple[Callable[[Any, Any], Any], tuple[int, ...]]] = {
    "all elements": (lambda np, x: np.sum(x), (4 * _N,)),
    "mean": (lambda np, x: np.mean(x), (4 * _N,)),
    "all elements of a matrix": (lambda np, x: np.sum(x), (1000, 1001)),
    "every third element": (lambda np, x: np.sum(x[::3]), (3 * _N,)),
    "few rows": (lambda np, x: np.sum(x, axis=1), (3, _N)),
    "rows that threads share": (lambda np, x: np.sum(x, axis=1), (40, 50_001)),
    "rows with a tail": (lambda np, x: np.sum(x, axis=1), (2, 1_000_003)),
    "four columns": (lambda np, x: np.sum(x, axis=0), (_N, 4)),
    "three columns": (lambda np, x: np.mean(x, axis=0), (_N, 3)),
    "many columns": (lambda np, x: np.sum(x, axis=0), (3000, 1001)),
    "two axes around another": (lambda np, x: np.sum(x, axis=(0, 2)), (400_000, 2, 5)),
    "two long axes around another": (lambda np, x: np.sum(x, axis=(0, 2)), (1100, 2, 1201)),
    "rows that lie as columns": (lambda np, x: np.sum(x.T, axis=1), (_N, 2)),
    "variance": (lambda np, x: np.var(np.concatenate([x, 2 * x])), (_N,)),
    "norm": (lambda np, x: np.linalg.norm(x), (_N,)),
    "norms of rows": (lambda np, x: np.sqrt(np.sum(x * x, axis=1)), (2, _N)),
    "softmax": (lambda np, x: np.exp(x - np.max(x)) / np.sum(np.exp(x - np.max(x))), (_N,)),
    "logarithm of a sum of exponentials": (lambda np, x: np.log(np.sum(np.exp(x))), (_N,)),
    "two sums at once": (lambda np, x: np.sum(x) / np.sum(x * x + 1), (_N,)),
    "dot product": (lambda np, x: x @ x, (4 * _N,)),
    "dot product of strided vectors": (lambda np, x: x[::2] @ x[1::2], (2 * _N,)),
    "dot products side by side": (lambda np, x: np.einsum("bi,bi->b", x, x), (2, _N)),
    "dot product over two axes": (lambda np, x: np.einsum("aib,aib->i", x, x), (1000, 2, 1001)),
    "tall matrix with itself": (lambda np, x: x.T @ x, (_N, 4)),
    "tall matrix and a column": (lambda np, x: x.T @ x[:, 0], (_N, 4)),
    "row and a tall matrix": (lambda np, x: x[:, 0] @ x, (60_000, 17)),
    "wide matrix with itself": (lambda np, x: x @ x.T, (4, _N)),
    "wide matrix and a tall one": (lambda np, x: x @ x.reshape(-1, 4), (4, _N)),
    "wide matrix and a vector": (lambda np, x: x @ x[0], (4, _N)),
    "products over two axes": (lambda np, x: np.einsum("ijk,ijl->kl", x, x), (1000, 1000, 3)),
    "running sum": (lambda np, x: np.cumsum(x), (2 * _N,)),
    "running sum backwards": (lambda np, x: np.cumsum(x[::-1]), (_N + 7,)),
    "running sums of rows": (lambda np, x: np.cumsum(x, axis=1), (2, 500_000)),
    "running sums of columns": (lambda np, x: np.cumsum(x, axis=0), (100_000, 17)),
}
_DATA: dict[str, Callable[[tuple[int, ...]], Any]] = {
    "uniform": lambda shape: np.random.default_rng(0).random(shape, dtype=np.float32),
    "constant": lambda shape: np.full(shape, 0.1, np.float32),
}


def _error(found: Any, expected: Any) -> float:
    return float(np.max(np.abs(np.asarray(found, np.float64) - expected)) / np.max(np.abs(expected)))


@pytest.mark.parametrize("data", list(_DATA))
@pytest.mark.parametrize("name", list(_CASES))
def test_the_error_of_a_long_sum_is_that_of_a_short_one(name: str, data: str) -> None:
    function, shape = _CASES[name]
    x = _DATA[data](shape)
    expected = function(np, x.astype(np.float64))
    operand = nnp.array(x)

    def run(x: Any) -> Any:
        return function(nnp, x)

    assert _error(run(operand), expected) <= _BOUND
    assert _error(nnc.compile(run)(operand), expected) <= _BOUND


_HALF: dict[str, Callable[[Any], Any]] = {
    "mean": lambda x: nnp.mean(x),
    "means of columns": lambda x: nnp.mean(x, axis=0),
    "product": lambda x: x.T @ x,
    "dot product": lambda x: x[:, 0] @ x[:, 1],
    "last running sum": lambda x: nnp.cumsum(x[:, 0] * 0.1)[-1],
}


@pytest.mark.parametrize(("rows", "columns"), [(70, 70), (400, 1200), (30, 400)])
def test_products_of_many_columns_sum_their_panels_by_themselves(rows: int, columns: int) -> None:
    """Packed panels have 1024 terms, so equal numbers, which all lose the same way, may lose more than the others do here."""
    generator = np.random.default_rng(2)
    x, y = (generator.random(shape, dtype=np.float32) for shape in ((rows, 20_000), (20_000, columns)))
    product = nnc.compile(lambda x, y: x @ y)(x, y)
    assert _error(product, x.astype(np.float64) @ y.astype(np.float64)) <= _BOUND


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", list(_HALF))
def test_long_sums_of_half_precision_lose_no_more_than_two_roundings(name: str, dtype: str) -> None:
    run = _HALF[name]
    x = nnp.full((_N // 2, 4), 0.1, dtype=dtype)
    expected = np.asarray(run(x.astype("float64")))
    for found in (run(x), nnc.compile(run)(x)):
        assert _error(found.astype("float32"), expected) <= 2 * float(nnp.finfo(dtype).eps) / 2


def test_gradients_of_a_regression_over_many_rows_are_exact_to_the_last_digits() -> None:
    x = np.random.default_rng(1).random((_N, 4), dtype=np.float32)
    w = np.ones(4, np.float32)

    def loss(w: Any, b: Any, x: Any) -> Any:
        return nnp.mean((x @ w + b - x[:, 0]) ** 2)

    gradient = nnc.grad(loss, argnums=(0, 1))
    errors = 2 * (x.astype(np.float64) @ w - x[:, 0])
    expected = errors @ x.astype(np.float64) / _N, np.mean(errors)
    for run in (gradient, nnc.compile(gradient)):
        for found, exact in zip(run(w, np.float32(0), x), expected, strict=True):
            assert _error(found, exact) <= _BOUND


@pytest.fixture
def threads() -> Iterator[Callable[[int], int]]:
    """Sets the number of threads; the one before returns after the test."""
    before = nnc.set_num_threads(1)
    yield nnc.set_num_threads
    nnc.set_num_threads(before)


@pytest.mark.parametrize("name", ["all elements", "rows that threads share", "tall matrix with itself", "running sum"])
def test_long_sums_have_the_same_bits_on_any_number_of_threads(name: str, threads: Callable[[int], int]) -> None:
    function, shape = _CASES[name]
    operand = nnp.array(_DATA["uniform"](shape))
    compiled = nnc.compile(lambda x: function(nnp, x))
    found = []
    for number in (1, 2):
        threads(number)
        found.append(np.asarray(compiled(operand)).tobytes())
    assert found[0] == found[1]


def test_running_sums_are_finite_behind_parts_that_overflow_by_themselves() -> None:
    x = np.zeros(5000, np.float32)
    x[1007:1011] = -2e38, -1e38, 3e38, 2e38
    x[2000], x[2001:2003] = -3e38, 2e38
    expected = np.cumsum(x.astype(np.float64)).astype(np.float32)
    for run in (lambda x: nnp.cumsum(x), lambda x: nnp.cumsum(nnp.stack([x, x, x], axis=1), axis=0)[:, 1]):
        np.testing.assert_allclose(np.asarray(nnc.compile(run)(x)), expected, rtol=1e-6, atol=1e31)
