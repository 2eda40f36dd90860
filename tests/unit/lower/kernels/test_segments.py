"""Loops with tapes, run in segments: as iteration by iteration, at every place where a segment may end."""

from __future__ import annotations

import gc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.commands.tape import Spare, Tape
from nnc.errors import ArgumentError, OutOfBoundsError, OutOfMemoryError
from nnc.lower.kernels import references, segments

X = np.array([0.3, 0.8, -0.4])
Fun = Callable[..., Any]


@pytest.fixture(params=[1, 3, 1024])
def most_rows(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(segments, "MOST_ROWS", request.param)
    return int(request.param)


@pytest.fixture
def one_by_one(monkeypatch: pytest.MonkeyPatch) -> Fun:
    """Compiles and runs a function with each iteration a call from Python."""

    def run(f: Fun, *args: Any) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(references, "in_segments", {})
            return nnc.compile(lambda *xs: f(*xs))(*args)

    return run


def loop(n: int, dtype: str = "float64") -> Fun:
    """Carries integers and floats, and captures values."""

    def f(x: Any, a: Any) -> Any:
        def body(c: Any) -> Any:
            i, v, k = c
            v = nnc.cond(i % 2 == 0, lambda v: nnp.sin(v) * a + v, lambda v: v * v * 0.3 + x, v)
            return i + 1, v, k * 3 % 7

        i, v, k = nnc.while_loop(lambda c: c[0] < n, body, (0, x, nnp.asarray(2)))
        return nnp.sum(v * v.astype(dtype)) * i + k

    return f


@pytest.mark.parametrize("n", [0, 1, 2, 3, 4, 6, 7])
def test_gradients_are_those_of_iterations_one_by_one(n: int, most_rows: int, one_by_one: Fun) -> None:
    gradient = nnc.grad(loop(n), (0, 1))
    found, wanted = nnc.compile(gradient)(X, X[::-1]), one_by_one(gradient, X, X[::-1])
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-14)


def test_second_derivatives_are_those_of_iterations_one_by_one(most_rows: int, one_by_one: Fun) -> None:
    for transform in (lambda f: nnc.jacrev(nnc.grad(f)), nnc.hessian):
        found, wanted = nnc.compile(transform(loop(5)))(X, X[::-1]), one_by_one(transform(loop(5)), X, X[::-1])
        np.testing.assert_allclose(found, wanted, rtol=1e-13)


def test_iterations_run_together(most_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    lengths: list[int] = []
    keep = segments._keep

    def noted(tapes: Any, stacks: Any, results: Any, length: int) -> None:
        assert all(stack is result for stack, result in zip(stacks, results, strict=True))  # written in place
        lengths.append(length)
        keep(tapes, stacks, results, length)

    monkeypatch.setattr(segments, "_keep", noted)
    f = lambda x: nnc.while_loop(lambda c: c[0] < 7, lambda c: (c[0] + 1, nnp.sin(c[1])), (0, x))[1]
    nnc.compile(nnc.grad(f))(np.float64(1))
    ends = [*range(most_rows, 7, most_rows), 7]
    assert lengths[: len(ends)] == ends and set(lengths[len(ends) :]) <= {7}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_narrow_rows_keep_their_dtype(dtype: str, most_rows: int, one_by_one: Fun) -> None:
    x = X.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    found, wanted = nnc.compile(nnc.grad(loop(5, dtype)))(x, x), one_by_one(nnc.grad(loop(5, dtype)), x, x)
    assert found.dtype.name == dtype
    np.testing.assert_allclose(np.asarray(found, np.float64), np.asarray(wanted, np.float64), rtol=2e-2)


def stopping(x: Any) -> Any:
    """The loop of a row that stops on its own."""
    return nnc.while_loop(lambda v: v < 9, lambda v: v * v + v + x * x + 0.1, x)


def nested(x: Any) -> Any:
    def step(v: Any, n: Any) -> Any:
        v = nnc.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, nnp.sin(c[1]) + 0.1 * x), (0, v))[1]
        return v, v * v

    last, rows = nnc.scan(step, x, np.arange(6))
    return nnp.sum(last) + nnp.sum(rows)


def drawn(x: Any) -> Any:
    """Iterations that draw numbers."""

    def body(c: Any) -> Any:
        i, v, key = c
        key, own = nnc.random.split(key)
        return i + 1, v * nnp.cos(v) + nnc.random.normal(own, (3,), "float64"), key

    return nnp.sum(nnc.while_loop(lambda c: c[0] < 7, body, (0, x, nnc.random.key(0)))[1])


@pytest.mark.parametrize(
    "f", [lambda x: nnp.sum(nnc.vmap(stopping)(x)), nested, drawn], ids=["rows", "nested", "random"]
)
def test_batches_and_nests_of_loops_have_the_same_gradients(f: Fun, most_rows: int, one_by_one: Fun) -> None:
    np.testing.assert_allclose(nnc.compile(nnc.grad(f))(X), one_by_one(nnc.grad(f), X), rtol=1e-13)


def test_bounds_hold_within_segments(most_rows: int) -> None:
    def f(x: Any, n: Any) -> Any:
        body = lambda c: (c[0] + 1, nnp.sin(c[1]))
        return nnc.while_loop(lambda c: c[0] < n, body, (0, x), max_steps=4)[1]

    rows = nnc.compile(nnc.vmap(nnc.grad(f)))
    x, counts = np.ones(3), np.array([0, 4, 2])
    np.testing.assert_allclose(rows(x, counts), [nnc.grad(f)(np.float64(1), n) for n in counts])
    with pytest.raises(ArgumentError, match="max_steps=4"):
        rows(x, counts + 1)
    np.testing.assert_allclose(rows(x, counts)[0], 1)  # the next call finds everything in its place


def test_an_error_in_an_iteration_names_its_line_and_frees_the_tapes(most_rows: int) -> None:
    def f(x: Any) -> Any:
        def body(c: Any) -> Any:
            return c[0] + 1, nnp.sin(c[1]) * x[c[0]]  # the line of the error

        return nnc.while_loop(lambda c: c[0] < 5, body, (0, x[0]))[1]

    with nnc.debug.tape_memory() as memory, pytest.raises(OutOfBoundsError, match="the line of the error"):
        nnc.compile(nnc.grad(f))(X)
    gc.collect()
    assert memory.current == 0


def test_python_is_called_once_for_each_iteration(most_rows: int) -> None:
    calls: list[int] = []

    def f(x: Any) -> Any:
        def test(c: Any) -> Any:
            nnc.debug.callback(lambda i: calls.append(int(i)), c[0])
            return c[0] < 7

        return nnc.while_loop(test, lambda c: (c[0] + 1, nnp.sin(c[1])), (0, x))[1]

    nnc.compile(nnc.grad(f))(np.float64(1))
    assert calls == list(range(8))


def test_a_tape_without_memory_names_the_loops_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(nbytes: int) -> None:
        if nbytes > 10_000:
            raise MemoryError("no more")

    f = nnc.compile(
        nnc.grad(lambda x: nnc.while_loop(lambda c: c[0] < 5000, lambda c: (c[0] + 1, nnp.sin(c[1])), (0, x))[1])
    )
    monkeypatch.setattr("nnc.commands.tape.check_memory", refuse)
    with pytest.raises(OutOfMemoryError, match="residuals of .* iterations(.|\n)*checkpoint="):
        f(np.float64(1))
    monkeypatch.undo()
    assert np.isfinite(f(np.float64(1)))


def test_calls_use_the_memory_of_former_calls() -> None:
    spare = Spare()
    first = Tape((2,), np.dtype(np.float64), 8, spare)
    memory = first.room(0, 8)
    del first
    assert np.shares_memory(Tape((2,), np.dtype(np.float64), 4, spare).room(0, 8), memory)
    large = Tape((2,), np.dtype(np.float64), 16, spare)
    assert len(large.room(0, 16)) == 16 and not np.shares_memory(large.room(0, 16), memory)
    huge = np.broadcast_to(np.zeros(1), (Spare.MOST_BYTES, 1))
    spare.give(huge)
    assert not np.shares_memory(spare.take(1, (1,), np.dtype(np.float64)), huge)


def test_calls_at_the_same_time_do_not_share_memory() -> None:
    f = nnc.compile(nnc.grad(loop(50)))
    wanted = {k: np.asarray(f(X * k, X)) for k in range(1, 5)}
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda k: np.asarray(f(X * k, X)), [1, 2, 3, 4] * 25))
    for k, value in zip([1, 2, 3, 4] * 25, found, strict=True):
        np.testing.assert_array_equal(value, wanted[k])


def test_short_loops_within_others_keep_little_memory() -> None:
    def step(v: Any, _: Any) -> Any:
        return nnc.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, nnp.sin(c[1])), (0, v))[1], None

    with nnc.debug.tape_memory() as memory:
        nnc.compile(nnc.grad(lambda x: nnc.scan(step, x, None, length=50)[0]))(np.float64(1))
    rows = 50 * 3 * 8
    assert rows <= memory.peak <= 2 * rows + 50 * 8 + segments.STACK_BYTES and memory.current == 0
