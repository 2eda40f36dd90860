"""Values that a linear part reads: no more than it needs is kept of a compiled function, or of a loop's iterations."""

from __future__ import annotations

from typing import Any

import numpy as np

import nnc
import nnc.numpy as nnp
from nnc.commands.loop import ITERATION
from nnc.graph import TensorSpec
from nnc.trace.dynamic.linear import split
from nnc.trace.loops.iterations import Iteration, linearize_iteration

ROW = np.arange(3, dtype=np.float32) + 1
SPEC = TensorSpec((3,), "float32")


def test_the_linear_part_reads_arrays_and_values_that_follow_them() -> None:
    graph = nnc.make_graph(lambda x, y: nnp.sum(ROW * nnp.sin(x) * y))(ROW, ROW)
    parts = split(graph, (True, True))
    assert parts is not None
    forward, linear = parts
    assert linear.moving == (True, True)
    assert [type(x) for x in linear.values] == [int, nnc.Array, int, int]
    assert len(forward.graph.outputs) == 3


def test_only_active_floats_have_tangents_and_only_their_residuals_are_kept() -> None:
    graph = nnc.make_graph(lambda x, y: nnp.sum(nnp.sin(x) * y))(ROW, ROW)
    for active, residuals in (((True, False), 1), ((False, True), 1), ((True, True), 2)):
        parts = split(graph, active)
        assert parts is not None
        assert parts[1].moving == active
        assert len(parts[0].graph.outputs) == 1 + residuals
    integers = nnc.make_graph(lambda n, y: nnp.sum(nnp.sin(y) * n))(np.arange(3), ROW)
    parts = split(integers, (True, True))
    assert parts is not None and parts[1].moving == (False, True)


def test_iterations_keep_rows_only_of_values_that_depend_on_the_carry() -> None:
    def run(i: Any, x: Any, c: Any, held: Any) -> list[Any]:
        a = nnp.sin(c) * x
        b = a * nnp.exp(held)
        return [b * nnp.cos(nnp.asarray(i, "float32")), b]

    found = linearize_iteration(Iteration(run, (ITERATION, SPEC, SPEC, SPEC), 1, 1), (True,), (True,), (True,))
    assert found.kept == 3  # sin and cos of the carried value, and their product with the element
    assert found.again == (0,) and found.shared == (0,)
