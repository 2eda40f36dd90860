"""Compiled programs take denormal numbers as 0 in what computes nothing in float64; callers keep their own mode."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.backends.cpu.float_mode import flushes_denormals
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


def test_products_of_matrices_flush_too() -> None:
    x = np.full((64, 64), 1e-20, np.float32)
    assert not np.asarray(nnc.compile(lambda x: x @ x)(x)).any()


_SOLVES = """
import numpy as np
import nnc
import nnc.numpy as nnp

a, b = 2 * np.eye(1500, dtype=np.float32), np.full((1500, 1500), 1e-39, np.float32)
for threads, flush in ((1, True), (2, True), (2, False), (1, True)):
    nnc.set_num_threads(threads)
    got = np.asarray(nnc.compile(nnp.linalg.solve, flush_denormals=flush)(a, b))
    print(threads, flush, bool(got.any()), bool(got.all()))
"""


def test_solutions_flush_in_one_thread_and_keep_in_threads_of_blas_after_it() -> None:
    """Threads of BLAS take no mode over, so with two of them a flushed solution may be of either kind."""
    done = subprocess.run([sys.executable, "-c", _SOLVES], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    first, _, kept, last = done.stdout.splitlines()
    assert (first, kept, last) == ("1 True False False", "2 False True True", "1 True False False")


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
