"""How the tests of lowering make and run programs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import nnc  # noqa: F401  (registers every command)
from nnc.array.array import Array
from nnc.backends.choose import choose_kernel
from nnc.base.options import Options
from nnc.compiled.pipeline import lower
from nnc.graph import Graph
from nnc.run.background import WRITER
from nnc.run.program import Program

Compile = Callable[..., Program]


@pytest.fixture
def compile_graph() -> Compile:
    """Lowers a graph with every check switched on."""

    def compile_graph(graph: Graph, **changes: Any) -> Program:
        return lower(graph, Options(verify_passes=True, native=False, **changes), choose_kernel)

    return compile_graph


@pytest.fixture
def agree(compile_graph: Compile) -> Callable[..., list[Any]]:
    """Checks that a program agrees with its graph, writes no input, and returns memory of its own."""

    def agree(graph: Graph, *inputs: Any, tolerance: float = 1e-6) -> list[Any]:
        arrays = [np.asarray(x) for x in inputs]
        before = [x.copy() for x in arrays]
        expected = [np.asarray(x) for x in graph.evaluate([Array(x) for x in arrays])]
        program = compile_graph(graph)
        results = program.run(arrays)
        again = program.run(arrays)
        check_equal(results, expected, tolerance)
        check_equal(again, expected, tolerance)
        check_equal(arrays, before, 0)
        outside = [*arrays, *program.bound.constants, *(frame.arena for frame in program.idle), *again]
        for i, x in enumerate(results):
            assert x.flags.c_contiguous
            assert not any(np.shares_memory(x, y) for y in [*outside, *results[:i]])
        return results

    return agree


@pytest.fixture
def written() -> Callable[[], None]:
    """Waits until all that calls left for later is in files."""

    def written() -> None:
        for thread in threading.enumerate():
            if thread.name == WRITER:
                thread.join()

    return written


def check_equal(results: Sequence[Any], expected: Sequence[Any], tolerance: float) -> None:
    assert len(results) == len(expected)
    for x, y in zip(results, expected, strict=True):
        assert (x.shape, x.dtype) == (y.shape, y.dtype)
        np.testing.assert_allclose(x.astype(np.complex128), y.astype(np.complex128), rtol=tolerance, atol=tolerance)
