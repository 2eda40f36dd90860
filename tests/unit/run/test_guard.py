"""Guarded memory finds mistakes of kernels and plans with memory, and names the step and the user's line."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.backends.cpu.compiler.jit import compiler
from nnc.base import dtypes
from nnc.base.options import Options
from nnc.compiled.pipeline import lower
from nnc.device.cpu import aligned_bytes
from nnc.errors import InternalError
from nnc.graph import command, register
from nnc.graph.rules import Rules
from nnc.lower.kernels.builder import Code, Value
from nnc.lower.kernels.native import Native
from nnc.lower.plan.stages import Step
from nnc.run.program import Program
from tests.unit.lower.kernels.kernels import chooser, jit

pytestmark = pytest.mark.skipif(compiler() is None, reason="LLVM is not installed")

N = 5  # elements of a row
SIZE = 4  # bytes of a float32
Plant = Callable[[Code, Step], None]
NAME = "test_negative"  # of a command that is in no fused kernel
X = nnc.ShapeDtypeStruct((N,), np.float32)


@pytest.fixture(autouse=True)
def _known(own_registries: None) -> None:
    register(NAME, Rules(infer=lambda x: x, reference=np.negative))


def planted(mistake: Plant, first: int = 0, end: int = N, **native: Any) -> Callable[[Step], Native]:
    """The compiled kernel of the command NAME, for the elements first to end, and a mistake that it makes afterwards."""

    def make(step: Step) -> Native:
        state = [("ptr", "state")] if "state" in native else []
        code = Code("KERNEL", [("ptr", "x"), ("ptr", "out"), *state])
        with code.loop(first, end) as i:
            at = code.mul(i, code.integer(SIZE))
            code.store(code.offset("%out", at), code.neg(code.load(code.offset("%x", at), dtypes.float32)))
        mistake(code, step)
        code.ret(code.integer(0))
        return Native("\n".join([*sorted(code.declarations), code.text()]), **native)

    return make


def guarded(function: Callable[..., Any], make: Callable[[Step], Native], *specs: Any) -> Program:
    """The program of a function on guarded memory, with `make` as the kernel of the command NAME."""
    graph = nnc.make_graph(function)(*(specs or (X,)))
    return lower(graph, Options(guard=True, verify_passes=True), chooser({NAME: make}), jit())


def fails(program: Program, *problem: str, step: str = "(test_negative, test)") -> None:
    """A call finds the mistake, and names the step and the line of this file."""
    with pytest.raises(InternalError) as caught:
        program.run([np.arange(1, N + 1, dtype=np.float32)])
    for text in (*problem, step, "tests/unit/run/test_guard.py"):
        assert text in str(caught.value)


def nothing(code: Code, step: Step) -> None:
    """No mistake."""


def byte(code: Code, pointer: str, offset: int) -> None:
    code.store(code.offset(pointer, offset), Value("7", dtypes.int8))


def negative(x: Any) -> Any:
    return command(NAME)(x)


def test_a_kernel_without_a_mistake_passes() -> None:
    x = np.arange(1, N + 1, dtype=np.float32)
    for _ in range(2):
        np.testing.assert_array_equal(guarded(negative, planted(nothing)).run([x])[0], -x)


@pytest.mark.parametrize(
    ("offset", "where"),
    [(N * SIZE, "0 bytes behind the end"), (N * SIZE + 9, "9 bytes behind"), (-1, "the first 1 bytes in front")],
)
def test_a_byte_written_outside_of_a_buffer(offset: int, where: str) -> None:
    program = guarded(negative, planted(lambda code, step: byte(code, "%out", offset)))
    fails(program, "step 0", "wrote 1 bytes outside of all buffers", where, "output float32[5]")


def test_a_byte_written_behind_an_input() -> None:
    program = guarded(negative, planted(lambda code, step: byte(code, "%x", N * SIZE)))
    fails(program, "0 bytes behind the end", "input float32[5]")


def test_an_input_that_is_written_over() -> None:
    program = guarded(negative, planted(lambda code, step: byte(code, "%x", 0)))
    fails(program, "beside its part of buffer 0 (input float32[5]), the first at byte 0")


def test_a_byte_written_to_a_part_that_belongs_to_another_step() -> None:
    def two_parts(x: Any) -> Any:
        return nnp.concatenate([negative(x), x * x])

    program = guarded(two_parts, planted(lambda code, step: byte(code, "%out", N * SIZE)))
    fails(program, "wrote 1 bytes beside its part of", "the first at byte 20")


def test_an_element_that_is_not_written() -> None:
    fails(guarded(negative, planted(nothing, end=N - 1)), "did not write", "1 elements of", "(4,)")


def test_a_result_that_depends_on_memory_behind_an_input() -> None:
    def add_next(code: Code, step: Step) -> None:
        beyond = code.load(code.offset("%x", N * SIZE), dtypes.float32)
        code.store("%out", code.add(code.load("%out", dtypes.float32), beyond))

    fails(guarded(negative, planted(add_next)), "read memory that nothing was written to for them", "(0,)")


def test_a_result_that_depends_on_earlier_contents_of_memory() -> None:
    def make(step: Step) -> Native:
        code = Code("KERNEL", [("ptr", "x"), ("ptr", "out")])
        with code.loop(0, N) as i:
            x, out = (code.offset(p, code.mul(i, code.integer(SIZE))) for p in ("%x", "%out"))
            code.store(out, code.sub(code.load(out, dtypes.float32), code.load(x, dtypes.float32)))
        code.ret(code.integer(0))
        return Native(code.text())

    fails(guarded(negative, make), "5 elements of", "(0,), (1,)")


class _Scratch:
    """A state that holds where its scratch memory lies."""

    def __init__(self, scratch: int) -> None:
        self._held = (ctypes.c_int64 * 1)(scratch)

    @property
    def address(self) -> int:
        return ctypes.addressof(self._held)


@pytest.mark.parametrize("is_wrong", [False, True])
def test_a_byte_written_behind_scratch_memory(is_wrong: bool) -> None:
    def use(code: Code, step: Step) -> None:
        byte(code, code.let("load ptr, ptr %state"), 64 if is_wrong else 63)

    program = guarded(negative, planted(use, state=_Scratch, scratch=64))
    if is_wrong:
        fails(program, "0 bytes behind the end of its scratch memory")
    else:
        program.run([aligned_bytes(N * SIZE).view(np.float32)])


def test_scratch_memory_that_is_read_before_it_is_written() -> None:
    def use(code: Code, step: Step) -> None:
        value = code.load(code.let("load ptr, ptr %state"), dtypes.float32)
        code.store("%out", value)

    fails(
        guarded(negative, planted(use, state=_Scratch, scratch=64)), "read memory that nothing was written to for them"
    )


def test_a_mistake_in_the_body_of_a_loop() -> None:
    def iterations(x: Any) -> Any:
        return nnc.fori_loop(0, 3, lambda i, c: negative(c), x)

    program = guarded(iterations, planted(lambda code, step: byte(code, "%out", N * SIZE)))
    fails(program, "0 bytes behind the end", "in negative")


def test_a_live_range_that_ends_too_early() -> None:
    def read_twice(x: Any) -> Any:
        y = x * x
        z = negative(y + x)
        return z * y

    program = guarded(read_twice, planted(nothing))
    x = np.arange(1, N + 1, dtype=np.float32)
    np.testing.assert_array_equal(program.run([x])[0], -(x * x + x) * (x * x))
    parts = program.parts()
    bound = parts.planned.bound
    y = bound.steps[0].outputs[0].buffer
    ((first, end),) = bound.intervals[y]
    lives = tuple(((first, end - 1),) if i == y else life for i, life in enumerate(bound.intervals))
    wrong = replace(parts, planned=replace(parts.planned, bound=replace(bound, intervals=lives)))
    reads = f"step {len(bound.steps) - 1} (fused, cpu)"
    fails(
        replace(program, parts=lambda: wrong, idle=[]), "read memory that nothing was written to for them", step=reads
    )


def test_the_environment_switches_it_on(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not Options.from_environment({}).guard
    assert Options.from_environment({"NNC_GUARD": "1"}).guard
    monkeypatch.setenv("NNC_GUARD", "1")

    @nnc.compile
    def softmax_of_rows(x: Any) -> Any:
        return nnc.nn.softmax(nnp.tanh(x) @ x.T)

    x = np.random.default_rng(0).normal(size=(17, 5)).astype(np.float32)
    executable = softmax_of_rows.lower(x).compile()
    assert executable._program.guard and not executable._program.needs_no_python
    monkeypatch.delenv("NNC_GUARD")
    plain = nnc.compile(softmax_of_rows.__wrapped__).lower(x).compile()
    assert not plain._program.guard
    np.testing.assert_array_equal(np.asarray(executable(x)), np.asarray(plain(x)))
