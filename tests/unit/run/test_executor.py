"""Memory of calls whose steps run from Python."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import Array
from nnc.backends.numpy_ref import reference_kernel
from nnc.base.options import Options
from nnc.compiled.pipeline import lower
from nnc.run.program import Program


def _running_sums(xs: Array) -> Array:
    return nnc.scan(lambda total, x: (total + x, total * x), nnp.zeros(3), xs)[1]


def _program() -> Program:
    graph = nnc.compile(_running_sums).lower(nnp.ones((4, 3))).graph
    return lower(
        graph, Options(native=False), lambda command, specs, params, machine: reference_kernel(command, specs, params)
    )


@pytest.mark.unguarded
def test_arguments_are_let_go_after_a_call_and_memory_with_the_frame_without_the_collector() -> None:
    program, xs = _program(), np.arange(12, dtype=np.float32).reshape(4, 3)
    expected = (np.cumsum(xs, axis=0) - xs) * xs
    gc.collect()
    gc.disable()
    try:
        np.testing.assert_array_equal(program.run([xs])[0], expected)
        (frame,) = program.idle
        given, arena, held = weakref.ref(xs), weakref.ref(frame.arena), weakref.ref(frame)
        del xs
        assert given() is None
        program.idle.clear()
        del frame
        assert held() is None and arena() is None
    finally:
        gc.enable()


def test_moving_views_of_a_second_call_lie_in_its_own_arguments() -> None:
    program = _program()
    for seed in (0, 1):
        xs = np.random.default_rng(seed).normal(size=(4, 3)).astype(np.float32)
        np.testing.assert_array_equal(
            program.run([xs])[0], np.array([sum(xs[:i], np.zeros(3, np.float32)) * xs[i] for i in range(4)])
        )
