"""Lowering: from a symbolic graph to a program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import nnc.lower.passes  # noqa: F401  (registers the passes of the pipeline)
from nnc.commands.loop import run_graph
from nnc.context import set_context
from nnc.dtypes import TAPE
from nnc.errors import InternalError
from nnc.graph import Command, Graph, Kernel, TensorSpec, run_passes
from nnc.lower.alloc import find_overlap, live_ranges, plan_arena
from nnc.lower.bind import bind_buffers
from nnc.lower.kernels import RunProgram, sub_graph_kernel
from nnc.lower.program import Program
from nnc.lower.report import check_budget
from nnc.lower.stages import Bound, Kind, Placement, Planned, Step
from nnc.options import Options

ChooseKernel = Callable[[Command, tuple[TensorSpec, ...], Mapping[str, Any]], Kernel]

PIPELINE = ("inline_calls", "inline_barriers", "dce", "copy_outputs", "views", "inplace")


def lower(graph: Graph, options: Options, choose_kernel: ChooseKernel) -> Program:
    """The program that computes `graph`.

    Args:     graph: any graph; its inputs are the program's. options: see Options. choose_kernel: the kernel for a
              command on inputs of these specs.
    Raises:   MemoryBudgetError: a call would allocate more than `options.memory_budget`.
    """
    planned = plan(graph, options)
    check_budget(planned, options.memory_budget)
    inner = options.update(memory_budget=None, donated=())

    def lower_inner(sub_graph: Graph) -> RunProgram:
        if any(s.dtype == TAPE for s in (*sub_graph.inputs, *sub_graph.outputs)):  # tapes pass through: nothing to plan
            return lambda values: run_graph(sub_graph, values)
        return lower(sub_graph, inner, choose_kernel).run

    return Program.of(planned, [_step_kernel(step, choose_kernel, lower_inner) for step in planned.bound.steps])


def plan(graph: Graph, options: Options) -> Planned:
    """The memory plan of `graph`, for which neither kernels nor memory are needed."""
    rewritten = run_passes(graph, PIPELINE, options, verify=options.verify_passes)
    return plan_memory(bind_buffers(rewritten), options)


def plan_memory(bound: Bound, options: Options) -> Planned:
    """Gives each buffer its live range and those of the arena their offsets."""
    ranges = live_ranges(bound)
    inside = [i for i, buffer in enumerate(bound.buffers) if buffer.kind is Kind.ARENA]
    first, end = [ranges[i][0] for i in inside], [ranges[i][1] for i in inside]
    sizes = [bound.buffers[i].nbytes for i in inside]
    arena = plan_arena(first, end, sizes)
    if options.verify_passes:
        clash = find_overlap(first, end, sizes, arena.offsets)
        if clash is not None:
            raise InternalError(f"{bound.name}: arena buffers {clash[0]} and {clash[1]} overlap in the memory plan")
    offsets: dict[int, int] = dict(zip(inside, arena.offsets, strict=True))
    placements = tuple(Placement(*ranges[i], offsets.get(i)) for i in range(len(bound.buffers)))
    return Planned(bound, placements, arena.peak, arena.lower_bound)


def _step_kernel(step: Step, choose_kernel: ChooseKernel, lower_inner: Callable[[Graph], RunProgram]) -> Kernel:
    if step.graphs:
        return sub_graph_kernel(step, lower_inner)
    with set_context(source=step.source):
        return choose_kernel(step.command, step.input_specs, step.params)
