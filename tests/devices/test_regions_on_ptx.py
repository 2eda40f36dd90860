"""Loops and branches that are one kernel, in the interpreter of PTX: the CPU's results in one launch, and its errors."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
import nnc.testing.devices
from nnc.errors import ArgumentError, OutOfBoundsError
from nnc.run.program import Program

Y = np.linspace(-1, 1, 16, dtype=np.float32)
ROWS = np.random.default_rng(0).normal(size=(5, 48)).astype(np.float32)
MATRIX = np.random.default_rng(1).normal(size=(8, 8)).astype(np.float32)


def newton(x: Any) -> Any:
    return nnc.while_loop(lambda y: abs(y * y - x) > 1e-3, lambda y: 0.5 * (y + x / y), x)


def runge_kutta(y: Any) -> Any:
    def step(y: Any, _: Any) -> Any:
        f, h = lambda y: nnp.sin(y) - 0.1 * y, 0.1
        k1 = f(y)
        k2 = f(y + h / 2 * k1)
        k3 = f(y + h / 2 * k2)
        return y + h / 6 * (k1 + 2 * k2 + 2 * k3 + f(y + h * k3)), None

    return nnc.scan(step, y, None, length=6)[0]


def norms(y: Any) -> Any:
    """A test that all threads compute, on rows that several warps share."""
    return nnc.while_loop(lambda y: nnp.sum(y * y) > 1.0, lambda y: y * 0.6, y)


def running(y: Any, rows: Any) -> Any:
    def step(c: Any, x: Any) -> Any:
        c = nnp.tanh(c + x)
        return c, (nnp.sum(c), c * 2)

    return nnc.scan(step, y, rows, reverse=True)


def nested(y: Any) -> Any:
    def step(c: Any, k: Any) -> Any:
        c = nnc.while_loop(lambda c: nnp.max(c) < 3.0 + k, lambda c: c * 1.5 + 1, c)
        return nnc.cond(nnp.sum(c) > 60, lambda c: c - 1, lambda c: c + 1, c), c[0]

    return nnc.scan(step, y, np.arange(4, dtype=np.float32))


def switched(y: Any) -> Any:
    ways = [lambda y: y + 1, lambda y: y * 2, nnp.sin]
    return nnc.fori_loop(0, 5, lambda i, y: nnc.switch(i % 3, ways, y), y)


def counted(n: Any) -> Any:
    return nnc.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, s[1] + s[0] * s[0]), (0, 0))


def collatz(n: Any) -> Any:
    step = lambda s: (nnp.where(s[0] % 2 == 0, s[0] // 2, 3 * s[0] + 1), s[1] + 1)
    return nnc.while_loop(lambda s: s[0] != 1, step, (n, 0))


def sorted_in_turn(y: Any) -> Any:
    return nnc.fori_loop(0, 3, lambda i, y: nnp.sort(nnp.cos(y * (i + 1))), y)


def updated(y: Any) -> Any:
    return nnc.fori_loop(0, 6, lambda i, y: y.at[i * 2].set(y[i] + y[i + 1]), y)


def power(a: Any) -> Any:
    """A product of small matrices, written as a sum."""
    step = lambda i, v: (lambda w: w / nnp.sqrt(nnp.sum(w * w)))(nnp.sum(a * v[None, :], axis=1))
    return nnc.fori_loop(0, 5, step, nnp.ones(8, "float32"))


def swapped(x: Any, y: Any) -> Any:
    return nnc.fori_loop(0, 7, lambda i, s: (s[1], s[0] + s[1]), (x, y))


def gradient(y: Any) -> Any:
    return nnc.grad(lambda y: nnp.sum(runge_kutta(y)))(y)


def gradient_of_unknown_length(y: Any) -> Any:
    loop = lambda y: nnc.while_loop(lambda c: nnp.sum(c) < 40.0, lambda c: c * c + 1.1, y, max_steps=9)
    return nnc.value_and_grad(lambda y: nnp.sum(loop(y)))(y)


def branch(y: Any) -> Any:
    return nnc.cond(nnp.sum(y) > 100, lambda y: y + 1, lambda y: nnp.exp(y) * 2, y)


def halved(y: Any) -> Any:
    return nnc.fori_loop(0, 4, lambda i, y: nnp.abs(y) * 0.5, y.astype("bfloat16")).astype("float32")


FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "newton": (newton, (np.float32(7),)),
    "newton without an iteration": (newton, (np.float32(1),)),
    "Runge-Kutta": (runge_kutta, (Y,)),
    "Runge-Kutta of a scalar": (runge_kutta, (np.float64(0.3),)),
    "Runge-Kutta of many": (runge_kutta, (np.linspace(0, 1, 3000, dtype=np.float32),)),
    "norms": (norms, (np.ones(900, np.float32),)),
    "running": (running, (ROWS[0], ROWS)),
    "nested": (nested, (Y,)),
    "nested on a scalar": (nested, (Y[:1],)),
    "switched": (switched, (Y,)),
    "counted": (counted, (np.int64(9),)),
    "collatz": (collatz, (np.int64(27),)),
    "sorted": (sorted_in_turn, (ROWS[0],)),
    "updated": (updated, (Y,)),
    "power": (power, (MATRIX,)),
    "swapped": (swapped, (Y, Y * 2)),
    "gradient": (gradient, (Y,)),
    "gradient of unknown length": (gradient_of_unknown_length, (Y,)),
    "branch": (branch, (Y,)),
    "bfloat16": (halved, (Y,)),
}


def program_of(f: Any, *args: Any) -> Program:
    executable, _ = f.find(*nnc.device_put(args, "ptx:0"))
    assert executable is not None
    return executable._program


@pytest.mark.parametrize(("fun", "args"), FUNCTIONS.values(), ids=FUNCTIONS)
def test_a_loop_is_one_kernel_with_the_results_of_the_cpu(fun: Callable[..., Any], args: tuple[Any, ...]) -> None:
    wanted = nnc.compile(fun)(*args)
    f = nnc.compile(fun)
    for _ in range(3):  # the third call may be a captured graph
        found = f(*nnc.device_put(args, "ptx:0"))
        for x, y in zip(nnc.tree.leaves(found), nnc.tree.leaves(wanted), strict=True):
            assert x.dtype == y.dtype
            np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=3e-5, atol=1e-5)
    program = program_of(f, *args)
    regions = [step for step in program.bound.steps if step.region is not None]
    assert regions and all(id(step) in program.printed for step in regions)
    assert all(len(program.printed[id(step)].launches) == 1 for step in regions)
    assert "is one kernel" in nnc.debug.explain(f)


def test_a_loop_on_scalars_is_the_work_of_one_thread_that_keeps_them_in_registers() -> None:
    program = program_of(nnc.compile(newton), np.float32(7))
    (step,) = [step for step in program.bound.steps if step.region is not None]
    kernel = program.printed[id(step)]
    assert kernel.launches[0].block == (1, 1, 1)
    assert program.code is not None
    ptx = program.code.compiler.assemble([kernel], "sm_90")  # type: ignore[attr-defined]
    loop = ptx.partition("_1:\n")[2].partition("bra")[0]
    assert "div" in loop and "ld." not in loop and "st." not in loop and ".local" not in ptx


def test_values_that_warps_share_lie_in_shared_memory() -> None:
    program = program_of(nnc.compile(norms), np.ones(900, np.float32))
    (step,) = [step for step in program.bound.steps if step.region is not None]
    kernel = program.printed[id(step)]
    assert kernel.launches[0].block[0] > 32 and "addrspace(3)" in kernel.text


def test_a_program_whose_end_depends_on_data_is_captured() -> None:
    def f(x: Any) -> Any:
        for _ in range(6):  # as many kernels as a graph has at least
            x = nnp.sum(norms(x * 2) * nnp.ones((4, 1), "float32"), axis=0)
        return x

    program = program_of(nnc.compile(f), np.ones(900, np.float32))
    assert program.code is not None and program.code.launches.can_be_captured  # type: ignore[attr-defined]


REASONS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], str]] = {
    "a product": (
        lambda y: nnc.while_loop(lambda y: nnp.sum(y) < 90.0, lambda y: y @ y + 1, y),
        (np.ones((64, 64), np.float32),),
        "while at .* is run by the host, as it has dot, for which no kernel is printed",
    ),
    "many elements": (
        lambda y: nnc.fori_loop(0, 4, lambda i, y: nnp.tanh(y), y),
        (np.ones(5000, np.float32),),
        "scan at .* launches all its iterations, as it has fused on 5000 elements, and one block takes 4096",
    ),
}


@pytest.mark.parametrize(("fun", "args", "reason"), REASONS.values(), ids=REASONS)
def test_other_loops_say_why_they_are_not_one_kernel(fun: Callable[..., Any], args: Any, reason: str) -> None:
    f = nnc.compile(fun)
    found = f(*nnc.device_put(args, "ptx:0"))
    np.testing.assert_allclose(np.asarray(found), np.asarray(nnc.compile(fun)(*args)), rtol=1e-4)
    assert re.search(reason, nnc.debug.explain(f))


# -- errors ------------------------------------------------------------------------------------------------------------


def too_long(y: Any) -> Any:
    return nnc.while_loop(lambda y: nnp.sum(y) < 1e9, lambda y: y + 1, y, max_steps=3)


def bad_branch(y: Any, i: Any) -> Any:
    return nnc.fori_loop(0, 3, lambda k, y: nnc.switch(k * i, [nnp.sin, nnp.cos], y, mode="error"), y)


def bad_index(y: Any) -> Any:
    return nnc.fori_loop(0, 4, lambda i, y: y + nnp.take(y, i * 9, mode="error"), y)


ERRORS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], type[Exception], str]] = {
    "too many iterations": (too_long, (Y,), ArgumentError, "the condition still holds after max_steps=3"),
    "no such branch": (bad_branch, (Y, np.int64(2)), OutOfBoundsError, "index 2 is out of range for 2 branches"),
    "an index out of range": (bad_index, (Y,), OutOfBoundsError, "18"),
}


@pytest.mark.parametrize(("fun", "args", "kind", "message"), ERRORS.values(), ids=ERRORS)
def test_errors_are_worded_as_on_the_cpu(
    fun: Callable[..., Any], args: Any, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message) as on_cpu:
        nnc.compile(fun)(*args)
    with pytest.raises(kind, match=message) as there:
        np.asarray(nnc.compile(fun)(*nnc.device_put(args, "ptx:0")))
    assert str(there.value).partition("\n")[0] == str(on_cpu.value).partition("\n")[0]
