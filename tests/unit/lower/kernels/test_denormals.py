"""Compiled programs take denormal numbers as 0 where they compute nothing in float64; callers keep their own mode."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import nn
from nnc.backends.cpu.compiler.float_mode import flushes_denormals
from nnc.errors import ArgumentTypeError

pytestmark = [
    pytest.mark.unguarded,  # the guard runs steps one by one, without the mode of their program
    pytest.mark.skipif(not flushes_denormals(), reason="the processor has no such mode that nnc knows"),
]

SMALL = np.full(5, 1e-20, np.float32)
TINY = np.float32(1e-40)
WIDE = np.full(5, 1e-160)


def callers_product() -> float:
    """A product that is 0 where this thread flushes denormal numbers."""
    return float(np.multiply(SMALL, SMALL)[0])


@pytest.fixture(autouse=True)
def _the_caller_keeps_its_mode() -> Any:
    yield
    assert callers_product() > 0


def test_float32_flushes_and_float64_keeps_denormal_numbers() -> None:
    square = nnc.compile(lambda x: x * x)
    assert not np.asarray(square(SMALL)).any()
    assert np.asarray(square(WIDE)).all()
    assert not np.asarray(nnc.compile(lambda x: x * 2)(np.full(5, TINY))).any()  # operands, too


@pytest.mark.parametrize("streams", [1, 2])
def test_a_program_of_both_switches_between_them(streams: int) -> None:
    def both(x: Any, y: Any) -> Any:
        first = x * x
        wide = nnp.sum(y * y)
        return first, wide, nnp.cumsum(x * x), nnp.flip(y * y)

    first, wide, sums, flipped = map(np.asarray, nnc.compile(both, streams=streams)(SMALL, WIDE))
    assert not first.any() and not sums.any()
    assert wide > 0 and flipped.all()


@pytest.mark.parametrize("wanted", [True, False])
def test_the_option_decides_for_all(wanted: bool) -> None:
    square = nnc.compile(lambda x: x * x, flush_denormals=wanted)
    assert np.asarray(square(SMALL)).any() == np.asarray(square(WIDE)).any() == (not wanted)


def test_the_option_is_checked() -> None:
    with pytest.raises(ArgumentTypeError, match="flush_denormals is 'no'"):
        nnc.compile(lambda x: x, flush_denormals="no")


def test_parts_of_loops_in_other_threads_flush_as_their_caller_does() -> None:
    x = np.full(1 << 20, 1e-20, np.float32)
    for wanted in (True, False, True):
        got = np.asarray(nnc.compile(lambda x: nnp.exp(x) * 0 + x * x, flush_denormals=wanted)(x))
        assert (got == 0).all() == wanted and (got == 0).any() == wanted


def test_calls_back_into_python_run_in_the_callers_mode() -> None:
    found: list[float] = []

    def step(i: Any, c: Any) -> Any:
        nnc.debug.callback(lambda value: found.append(callers_product()), c[0])
        return c * c

    assert not np.asarray(nnc.compile(lambda x: nnc.fori_loop(0, 2, step, x))(SMALL)).any()
    assert len(found) == 2 and min(found) > 0


def test_an_error_leaves_the_callers_mode() -> None:
    def fails(value: Any) -> None:
        raise RuntimeError("on purpose")

    def function(x: Any) -> Any:
        y = x * x
        nnc.debug.callback(fails, y[0])
        return y

    with pytest.raises(RuntimeError, match="on purpose"):
        nnc.compile(function)(SMALL)


@pytest.mark.parametrize("size", [1, 7, 64])
def test_float16_keeps_its_denormal_numbers(size: int) -> None:
    x = np.full(size, 2.0**-24, np.float16)  # its smallest number, and a normal one of float32
    np.testing.assert_array_equal(np.asarray(nnc.compile(lambda x: x * 3)(x)), x * np.float16(3))
    np.testing.assert_array_equal(np.asarray(nnc.compile(lambda x: x.astype("float32"))(x)), x.astype(np.float32))
    np.testing.assert_array_equal(np.asarray(nnc.compile(lambda x: x.astype("float16"))(x.astype(np.float32))), x)


Function = Callable[..., Any]
LEAST = {"float32": 2.0**-140, "float64": 2.0**-1050}  # exact, as are their halves


@pytest.fixture
def threads() -> Iterator[Callable[[int], int]]:
    """Sets the number of threads; the one before returns after the test."""
    before = nnc.set_num_threads(1)
    yield nnc.set_num_threads
    nnc.set_num_threads(before)


def results(function: Function, operands: Sequence[Any], flush: bool | None, threads: Callable[[int], int]) -> Any:
    """The result of a compiled function, which must have the same bits with one and with two threads."""
    compiled = nnc.compile(function, flush_denormals=flush)
    found = []
    for number in (1, 2):
        threads(number)
        found.append(np.asarray(compiled(*operands)))
    assert found[0].tobytes() == found[1].tobytes()
    return found[0]


def tiny(n: int, dtype: str) -> Any:
    return np.full((n, n), LEAST[dtype], dtype)


def one(n: int, dtype: str) -> Any:
    return np.eye(n, dtype=dtype)


def diagonal(n: int, dtype: str) -> Any:
    return np.diag(tiny(n, dtype)[0])


def small_pivot(n: int, dtype: str) -> Any:
    x = one(n, dtype)
    x[1, 1] = LEAST[dtype]
    return x


# A function of matrices, its operands, and its result: of which a number, or a pivot on the way to it, is denormal.
BY_LAPACK: dict[str, tuple[Function, Function, Function]] = {
    "solve": (nnp.linalg.solve, lambda n, d: (2 * one(n, d), tiny(n, d)), lambda n, d: tiny(n, d) / 2),
    "det": (nnp.linalg.det, lambda n, d: (small_pivot(n, d),), lambda n, d: LEAST[d]),
    "slogdet": (lambda x: nnp.linalg.slogdet(x)[1], lambda n, d: (diagonal(n, d),), lambda n, d: n * np.log(LEAST[d])),
    "cholesky": (nnp.linalg.cholesky, lambda n, d: (one(n, d) + tiny(n, d),), lambda n, d: one(n, d) + np.tril(tiny(n, d), -1)),
    "small pivots": (nnp.linalg.cholesky, lambda n, d: (diagonal(n, d),), lambda n, d: np.sqrt(diagonal(n, d))),
    "qr": (lambda x: nnp.linalg.qr(x)[1], lambda n, d: (diagonal(n, d),), diagonal),
    "eigh": (lambda x: nnp.linalg.eigh(x)[0], lambda n, d: (diagonal(n, d),), lambda n, d: tiny(n, d)[0]),
    "svd": (lambda x: nnp.linalg.svd(x)[1], lambda n, d: (diagonal(n, d),), lambda n, d: tiny(n, d)[0]),
}  # fmt: skip
BY_NNC: dict[str, tuple[Function, Function, Function]] = {
    "matmul": (lambda x, y: x @ y, lambda n, d: (tiny(n, d), one(n, d)), tiny),
    "matmul and bias": (lambda x, y: nn.relu(x @ y + x), lambda n, d: (tiny(n, d), one(n, d)), lambda n, d: 2 * tiny(n, d)),
    "vector": (lambda x, y: x @ y, lambda n, d: (tiny(n, d), one(n, d)[0]), lambda n, d: tiny(n, d)[0]),
    "triangular": (nnp.linalg.solve_triangular, lambda n, d: (2 * one(n, d), tiny(n, d)), lambda n, d: tiny(n, d) / 2),
}  # fmt: skip


@pytest.mark.parametrize("flush", [None, True, False])
@pytest.mark.parametrize("n", [8, 300])
@pytest.mark.parametrize("dtype", LEAST)
@pytest.mark.parametrize("name", BY_LAPACK)
def test_lapack_keeps_denormal_numbers_under_any_option(
    name: str, dtype: str, n: int, flush: bool | None, threads: Callable[[int], int]
) -> None:
    function, operands, wanted = BY_LAPACK[name]
    got = results(function, operands(n, dtype), flush, threads)
    np.testing.assert_allclose(got, wanted(n, dtype), rtol=0.01, atol=0)  # they have few digits


@pytest.mark.parametrize("n", [8, 300])
@pytest.mark.parametrize("dtype", LEAST)
@pytest.mark.parametrize("name", BY_NNC)
def test_products_follow_the_option_with_any_number_of_threads(
    name: str, dtype: str, n: int, threads: Callable[[int], int]
) -> None:
    function, operands, wanted = BY_NNC[name]
    assert not results(function, operands(n, dtype), True, threads).any()
    np.testing.assert_array_equal(results(function, operands(n, dtype), False, threads), wanted(n, dtype))


@pytest.mark.parametrize("shape", [(1, 3, 5, 5), (4, 16, 32, 32)])
def test_convolutions_follow_the_option_with_any_number_of_threads(
    shape: tuple[int, ...], threads: Callable[[int], int]
) -> None:
    x, w = np.full(shape, LEAST["float32"], np.float32), np.zeros((16, shape[1], 3, 3), np.float32)
    w[:, 0, 1, 1] = 1

    def both(x: Any, w: Any) -> Any:
        y, pull = nnc.vjp(lambda x, w: nn.conv(x, w, padding=1), x, w)
        by_x, by_w = pull(y)
        return nnp.concat([nnp.ravel(y), nnp.ravel(by_x[:, 0]), nnp.ravel(by_w)])

    assert not results(both, (x, w), True, threads).any()
    got = results(both, (x, w), False, threads)
    pixels = x[:, 0].size
    assert got[: 17 * pixels].all()
    assert not got[17 * pixels :].any()  # for the weights: products of two denormal numbers each


def test_convolutions_of_python_threads_at_once_follow_the_option_of_each(threads: Callable[[int], int]) -> None:
    """While one of them has nnc's threads, oneDNN works in OpenMP's for the others."""
    threads(2)
    x, w = np.full((8, 32, 32, 32), LEAST["float32"], np.float32), np.zeros((32, 32, 3, 3), np.float32)
    w[:, 0, 1, 1] = 1
    settings = [nnc.compile(lambda x, w: nn.conv(x, w, padding=1), flush_denormals=flush) for flush in (True, False)]
    expected = [np.asarray(function(x, w)) for function in settings]

    def work(i: int) -> bool:
        return np.array_equal(np.asarray(settings[i % 2](x, w)), expected[i % 2])

    assert not expected[0].any() and expected[1].all()
    with ThreadPoolExecutor(3) as callers:
        assert all(callers.map(work, range(120)))


def test_a_solution_of_large_systems_is_the_same_for_both_settings(threads: Callable[[int], int]) -> None:
    function, operands, wanted = BY_LAPACK["solve"]
    for flush in (True, False):
        got = results(function, operands(1500, "float32"), flush, threads)
        np.testing.assert_array_equal(got, wanted(1500, "float32"))


@pytest.mark.parametrize(("dtype", "least"), [("float32", 2.0**-126), ("float64", 2.0**-1022)])
def test_roots_and_angles_of_the_smallest_normal_numbers_are_right(dtype: str, least: float) -> None:
    """Parts of the computation may not become denormal numbers, which would be 0."""
    rng = np.random.default_rng(0)
    x, y = (least * rng.uniform(1, 2, (2, 1000)) * 2.0 ** rng.integers(0, 60, (2, 1000))).astype(dtype)
    x[0], y[0], y[1], x[1] = least, least, least, 1.5 * least
    roots, angles = nnc.compile(lambda x, y: (nnp.cbrt(x), nnp.arctan2(x, y)), flush_denormals=True)(x, y)
    eps = float(np.finfo(dtype).eps)
    np.testing.assert_allclose(np.asarray(roots), np.cbrt(x), rtol=4 * eps, atol=0)
    np.testing.assert_allclose(np.asarray(angles), np.arctan2(x, y), rtol=4 * eps, atol=2 * least)
