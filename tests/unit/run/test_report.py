from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from nnc.base.options import Options
from nnc.compiled.pipeline import plan
from nnc.errors import MemoryBudgetError
from nnc.graph import Graph, GraphBuilder
from nnc.run.program import Program
from nnc.run.report import make_memory_plan

Compile = Callable[..., Program]


def layers(size: int = 64) -> Graph:
    b = GraphBuilder("layers")
    x, w = b.input((size, size), "float32"), b.constant(np.ones((size, size)), "float32")
    a = b.add("dot", x, w, contract=((1,), (0,)))
    c = b.add("dot", a, w, contract=((1,), (0,)))
    return b.build(b.add("reduce_sum", b.add("dot", c, a, contract=((1,), (0,))), axes=(1,)))


def test_the_plan_counts_arena_inputs_outputs_and_constants_apart(compile_graph: Compile) -> None:
    report = compile_graph(layers()).memory_plan
    matrix = 64 * 64 * 4
    assert report.arena_bytes == report.lower_bound == 3 * matrix
    assert report.ratio == 1.0
    assert (report.input_bytes, report.constant_bytes, report.output_bytes) == (matrix, matrix, 64 * 4)
    assert report.peak == 3 * matrix + 64 * 4
    inside = [row for row in report.rows if row.kind == "arena"]
    assert [(row.first, row.last) for row in inside] == [(0, 2), (1, 2), (2, 3)]
    assert all(row.source is not None and row.source.file == __file__ for row in inside)
    assert "test_report.py" in str(report)


def test_a_budget_below_the_peak_is_refused_with_the_largest_tensors(compile_graph: Compile) -> None:
    peak = compile_graph(layers()).memory_plan.peak
    assert compile_graph(layers(), memory_budget=peak).memory_plan.peak == peak
    with pytest.raises(MemoryBudgetError, match=f"raise memory_budget to {peak}") as caught:
        compile_graph(layers(), memory_budget=peak - 1)
    assert "float32[64,64] (16.00 KiB)" in str(caught.value)
    assert "test_report.py" in str(caught.value)


def test_tensors_beyond_2_to_31_elements_are_planned_without_memory(compile_graph: Compile) -> None:
    b = GraphBuilder("large")
    x = b.input((2**20, 2**13), "float32")
    a = b.add("exp", x)
    t = b.add(
        "transpose", b.add("dot", a, b.input((2**13, 2**13), "float32"), contract=((1,), (0,))), permutation=(1, 0)
    )
    graph = b.build(b.add("reduce_sum", b.add("neg", t), axes=(0, 1)))
    report = make_memory_plan(plan(graph, Options(verify_passes=True)))
    assert report.arena_bytes == report.lower_bound == 2 * 2**35
    with pytest.raises(MemoryBudgetError, match=r"arena 64\.00 GiB"):
        compile_graph(graph, memory_budget=2**35)


def test_cost_counts_operations_and_bytes_of_each_step(compile_graph: Compile) -> None:
    cost = compile_graph(layers()).cost
    assert [row.command for row in cost.rows] == ["dot", "dot", "dot", "reduce_sum"]
    assert cost.rows[0].flops == 2 * 64**3
    assert cost.rows[0].nbytes == 3 * 64 * 64 * 4
    assert cost.flops == sum(row.flops for row in cost.rows)
    assert "reduce_sum" in str(cost)


def test_costs_are_summed_by_command(compile_graph: Compile) -> None:
    cost = compile_graph(layers()).cost
    groups = {group.command: group for group in cost.by_command}
    assert (groups["dot"].steps, groups["dot"].flops, groups["dot"].nbytes) == (3, 3 * 2 * 64**3, 9 * 64 * 64 * 4)
    assert sum(group.flops for group in cost.by_command) == cost.flops
    assert sum(group.nbytes for group in cost.by_command) == cost.nbytes
    assert [group.command for group in cost.by_command] == ["dot", "reduce_sum"]
    assert str(cost).splitlines()[1].split() == ["command", "steps", "flops", "%", "bytes", "%", "about", "ms"]
