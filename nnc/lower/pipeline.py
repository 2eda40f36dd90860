"""Lowering: from a symbolic graph to a program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import nnc.lower.passes  # noqa: F401  (registers the passes of the pipeline)
from nnc.commands.loop import run_graph
from nnc.context import set_context, timed
from nnc.devices import kind_of
from nnc.dtypes import TAPE
from nnc.errors import InternalError
from nnc.graph import Command, Graph, Kernel, Node, TensorSpec, expect_kernels, find_kernel, run_passes
from nnc.lower.alloc import Block, find_block_overlap, plan_blocks
from nnc.lower.background import in_background
from nnc.lower.bind import bind_buffers, emit, no_workspace
from nnc.lower.codegen.native import Compiler
from nnc.lower.emit import Workspace
from nnc.lower.kernels import RunProgram, sub_graph_kernel
from nnc.lower.native_program import Outside
from nnc.lower.natives import Natives, fused_alone, settled
from nnc.lower.passes.remat import Remat, frugal
from nnc.lower.program import Program
from nnc.lower.report import check_addresses, check_budget
from nnc.lower.schedule.make import concurrent_lives, make_schedule
from nnc.lower.schedule.races import check_schedule
from nnc.lower.stages import Bound, Kind, Planned, Step
from nnc.lower.stored import find_place
from nnc.options import Options

ChooseKernel = Callable[[Command, tuple[TensorSpec, ...], Mapping[str, Any]], Kernel]

# Passes that make graphs small, in two rounds, since each finds more after the others; barriers keep values that are computed again
# on purpose from being merged with the original. Sub-graphs are rewritten along with their graph.
REWRITES = (
    "inline_calls", "dce", "fold", "simplify", "parts", "cse", "subpixel", "licm", "one_hot", "combine", "picks", "join_sums",
    "split_sums", "dce", "hoist_products", "sink_sums", "sink_products", "dce", "fewer_residuals",
    "fold", "simplify", "parts", "cse", "dce", "inline_barriers",
)  # fmt: skip
SETTLED = (*REWRITES, "layout")  # nodes that are not computed element by element have their form now
PIPELINE = (*SETTLED, "units", "order", "recompute", "pack", "keep")
# last, since values that are computed again to save memory may be chosen command by command; the first find no more to do in their
# results
FUSION = ("totals", "contract_products", "shifted_sums", "join_pools", "at_writers", "at_readers", "fuse")
# Passes that make one kernel of several: a product and its epilogue, and kernels that do the same.
JOINING = ("epilogue", "join_kernels", "interleave")


def lower(
    graph: Graph,
    options: Options,
    choose_kernel: ChooseKernel,
    compiler: Compiler | None = None,
    expect: Callable[[Outside], None] | None = None,
) -> Program:
    """The program that computes `graph`.

    Args:
        graph: any graph; its inputs are the program's.
        options: see Options.
        choose_kernel: the kernel for a command on inputs of these specs.
        compiler: of kernels and programs; without one, steps run from Python.
        expect: is told what calls need, before code is compiled or loaded.

    Raises:
        MemoryBudgetError: a call would allocate more than `options.memory_budget`.
    """
    device = kind_of(options.device)
    expect_kernels({node.command for node in graph.walk()}, device)

    def workspace(node: Node) -> int:
        specs = tuple(symbol.spec for symbol in node.inputs)
        if node.graphs:
            params = {**node.params, "graphs": node.graphs}
            printed = find_kernel(node.command, specs, params, device)
            return printed.workspace(specs, params) if printed is not None else 0
        with set_context(source=node.source):
            return choose_kernel(node.command, specs, node.params).workspace(specs, node.params)

    inner = options.update(memory_budget=None, donated=(), streams=1)

    one_by_one = inner.update(native=False, guard=False)

    def lower_inner(sub_graph: Graph) -> RunProgram:
        if any(s.dtype == TAPE for s in (*sub_graph.inputs, *sub_graph.outputs)):  # tapes pass through: nothing to plan
            return lambda values: run_graph(sub_graph, values)
        return program(_plan_rewritten(sub_graph, inner, workspace), inner).run

    def lower_fused(sub_graph: Graph) -> RunProgram:
        return program(_plan_rewritten(sub_graph, one_by_one, workspace), one_by_one).run

    def step_kernel(step: Step) -> Kernel:
        if step.graphs:
            printed = find_kernel(step.command, step.input_specs, {**step.params, "graphs": step.graphs}, device)
            if printed is None:
                return sub_graph_kernel(step, lower_inner)
            return replace(printed, run=sub_graph_kernel(step, lower_fused).run)
        with set_context(source=step.source):
            return choose_kernel(step.command, step.input_specs, step.params)

    def program(planned: Planned, options: Options, natives: Natives | None = None) -> Program:
        with timed("scheduling"):
            schedule = make_schedule(planned, options)
        if options.verify_passes:
            check_schedule(planned, schedule)
        with timed("choosing kernels"):
            chosen = Program.of(planned, schedule, step_kernel)
        if compiler is not None and options.native:
            chosen = chosen.compiled(compiler, natives or Natives(step_kernel, compiler))
        return replace(chosen, guard=options.guard, idle=[])

    chooser = choose_kernel if hasattr(choose_kernel, "__qualname__") else type(choose_kernel)
    choice = f"{chooser.__module__}.{chooser.__qualname__}"
    place = find_place(graph, options, native=compiler is not None and options.native, choice=choice)
    known = place.read() if place is not None else None
    if expect is not None and known is not None and known.outside is not None:
        expect(known.outside)
    made = known.program(step_kernel, compiler if options.native else None) if known is not None else None
    keeps = False
    if made is None:
        natives = Natives(step_kernel, compiler) if compiler is not None and options.native else None
        if natives is not None:
            natives.begin()
        planned = plan(graph, options, workspace, natives)
        check_budget(planned, options.memory_budget)
        if expect is not None and known is None:
            expect(Outside.of(planned))
        made = program(planned, options, natives)
        keeps = natives is None or natives.compiler.works()
    made.load()
    if keeps and place is not None:
        in_background(partial(place.keep, made))
    return made


def plan(
    graph: Graph, options: Options, workspace: Workspace = no_workspace, natives: Natives | None = None
) -> Planned:
    """The memory plan of `graph`, for which neither kernels nor memory are needed.

    Where it does not fit into `options.memory_budget`, values are computed again; the smallest plan found where that does not help.

    Args:
        workspace: bytes that the kernel of a node needs while it runs.
        natives: is told what kernels to expect.
    """
    rewritten = run_passes(graph, SETTLED, options, verify=options.verify_passes)
    if natives is not None:
        natives.expect(emit(settled(rewritten), workspace))
    rewritten = run_passes(rewritten, PIPELINE[len(SETTLED) :], options, verify=options.verify_passes)
    budget = options.memory_budget
    planned = _plan_rewritten(rewritten, options, workspace, natives)
    if budget is None or planned.peak <= budget:
        return planned
    compact = options.update(compact=True)
    rewritten = run_passes(rewritten, ("late",), compact, verify=options.verify_passes)
    planned = _plan_rewritten(rewritten, compact, workspace)
    if planned.peak <= budget:
        return planned
    kernels = run_passes(rewritten, FUSION, compact, verify=options.verify_passes)
    forms = kernels, rewritten, frugal(rewritten, compact)
    remat = Remat(forms, compact, workspace, lambda graph: _plan_rewritten(graph, compact, workspace))
    return remat.fit(planned, budget)


def _plan_rewritten(graph: Graph, options: Options, workspace: Workspace, natives: Natives | None = None) -> Planned:
    """The plan of a graph that has been through the passes before; sub-graphs go through them with their graph."""
    kept = graph.attrs.get("kept", ())
    graph = run_passes(graph, FUSION, options, verify=options.verify_passes)
    if natives is not None:
        natives.expect(emit(fused_alone(graph), workspace))
    graph = run_passes(graph, JOINING, options, verify=options.verify_passes)
    with timed("binding buffers"):
        emitted = emit(graph, workspace)
    if natives is not None:
        natives.expect(emitted)

    def place(join: bool) -> Planned:
        with timed("binding buffers"):
            bound = bind_buffers(graph, options, emitted=emitted, join=join, kept=kept)
        with timed("planning memory"):
            return plan_memory(bound, options)

    joined = place(join=True)
    if not joined.bound.joins:
        return joined
    apart = place(join=False)
    return joined if joined.arena_bytes <= apart.arena_bytes else apart


def plan_memory(bound: Bound, options: Options) -> Planned:
    """Gives each buffer of the arena its offset."""
    check_addresses(bound)
    inside = [i for i, buffer in enumerate(bound.buffers) if buffer.kind is Kind.ARENA]
    lives = concurrent_lives(bound, options)
    blocks = [Block(bound.buffers[i].nbytes, lives[i]) for i in inside]
    arena = plan_blocks(blocks, algorithm=options.allocator, native=options.native)
    if options.verify_passes:
        clash = find_block_overlap(blocks, arena.offsets)
        if clash is not None:
            raise InternalError(f"{bound.name}: arena buffers {clash[0]} and {clash[1]} overlap in the memory plan")
    offsets: dict[int, int] = dict(zip(inside, arena.offsets, strict=True))
    placed = tuple(map(offsets.get, range(len(bound.buffers))))
    return Planned(bound, placed, arena.peak, arena.lower_bound, flush_denormals=options.flush_denormals)
