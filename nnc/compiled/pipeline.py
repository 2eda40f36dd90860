"""Lowering: from a symbolic graph to a program."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from nnc.base.context import set_context, timed
from nnc.base.dtypes import TAPE
from nnc.base.options import Options
from nnc.base.size import hint
from nnc.base.target import Target
from nnc.compiled.device_kinds import aligned, check_schedule, frugal, queued_code, rematerializer
from nnc.device import CPU, machine_of, machine_of_device
from nnc.errors import InternalError
from nnc.graph import Command, Graph, Kernel, Node, TensorSpec, expect_kernels, find_kernel
from nnc.lower.alloc import ArenaPlan, Block, find_block_overlap, plan_blocks
from nnc.lower.kernels.native import Compiler, Function, Native
from nnc.lower.kernels.references import RunProgram, sub_graph_kernel, tape_program
from nnc.lower.phases import (
    DELAY,
    FUSE,
    JOIN,
    PLACING,
    SETTLING,
    run_phases,
)
from nnc.lower.plan.bind import bind_buffers, emit, no_workspace
from nnc.lower.plan.emit import Workspace
from nnc.lower.plan.liveness import walk
from nnc.lower.plan.schedule.assign import most_streams
from nnc.lower.plan.schedule.make import concurrent_lives, make_schedule
from nnc.lower.plan.stages import Bound, Kind, Planned, Step
from nnc.run.background import in_background
from nnc.run.kernel_queue import KernelQueue
from nnc.run.native_program import NativeCode, ProgramAbi, ProgramParts
from nnc.run.program import Program
from nnc.run.report import check_addresses, check_budget
from nnc.run.store.stored import find_place

if TYPE_CHECKING:
    from nnc.compiled.families import Kin
    from nnc.compiled.templates import Member

ChooseKernel = Callable[[Command, tuple[TensorSpec, ...], Mapping[str, Any], Target], Kernel]


def lower(
    graph: Graph,
    options: Options,
    choose_kernel: ChooseKernel,
    compiler: Compiler | None = None,
    expect: Callable[[ProgramAbi], None] | None = None,
    kin: Kin | None = None,
) -> Program:
    """Lowers `graph` to a program.

    Args:
        choose_kernel: returns the kernel for a command on inputs of some specs, and on some machine.
        compiler: compiles kernels and programs; without one, steps run from Python.
        expect: called with the memory needs of calls before code is compiled or loaded.
        kin: the programs of other sizes, which share their code (nnc.compiled.families).

    Raises:
        MemoryBudgetError: a call would allocate more than `options.memory_budget`.
    """
    compiler = compiler if options.native else None
    options = options.update(machine=machine_of(options))
    lowering = _Lowering(options, choose_kernel, compiler)
    expect_kernels({node.command for node in graph.walk()}, options.machine)
    if kin is not None and kin.families and compiler is not None:
        member = lowering.new_member(graph, expect, kin)
        member.load()
        return member
    place = find_place(graph, options, native=compiler is not None, choice=_name_of(choose_kernel))
    known = place.read() if place is not None else None
    if expect is not None and known is not None and known.outside is not None:
        expect(known.outside)
    made = known.program(lowering.step_kernel, compiler, lowering.machine) if known is not None else None
    if made is not None and options.device != CPU:
        made = made.in_form(queued_code())
    if made is not None:
        made.load()
        return made
    made = lowering.new_program(graph, expect if known is None else None)
    made.load()
    if place is not None and (compiler is None or compiler.works()):
        in_background(partial(place.keep, made))
    return made


def lower_member(
    member: Member,
    options: Options,
    choose_kernel: ChooseKernel,
    compiler: Compiler,
    expect: Callable[[ProgramAbi], None] | None,
    kin: Kin,
) -> Program:
    """Returns the program of a size whose steps a blueprint gives; the other arguments are those of `lower`."""
    options = options.update(machine=machine_of(options), sized=True)
    made = _Lowering(options, choose_kernel, compiler).new_program_of(member, expect, kin.bases)
    made.load()
    return made


class _NoCompiler:
    """Stands for a compiler where texts are wanted, not code."""

    def works(self) -> bool:
        return True

    def expect(self, wanted: Native | str | None = None) -> None:
        pass

    def load(self, natives: Sequence[Native]) -> Sequence[Function]:
        raise InternalError("texts are not compiled here")

    def load_entry(self, text: str, symbols: Mapping[str, int], held: Any) -> Function:
        raise InternalError("texts are not compiled here")


def lower_to_parts(graph: Graph, options: Options, choose_kernel: ChooseKernel) -> ProgramParts:
    """Lowers `graph` as far as its plan and the texts of its kernels.

    Raises:
        MemoryBudgetError: a call would allocate more than `options.memory_budget`.
    """
    options = options.update(machine=machine_of(options))
    expect_kernels({node.command for node in graph.walk()}, options.machine)
    return _Lowering(options, choose_kernel, _NoCompiler()).new_parts(graph)


def _name_of(choose_kernel: ChooseKernel) -> str:
    """Returns the name of the function that chooses kernels, or of the class of the object that does."""
    named = choose_kernel if hasattr(choose_kernel, "__qualname__") else type(choose_kernel)
    return f"{named.__module__}.{named.__qualname__}"


class _Lowering:
    """Lowers a graph to a program, and the sub-graphs that its steps run.

    Args:
        options: the options of the whole graph.
        choose_kernel: returns the kernel for a command on inputs of some specs, and on some machine.
        compiler: compiles kernels and programs; None: steps run from Python.
    """

    def __init__(self, options: Options, choose_kernel: ChooseKernel, compiler: Compiler | None) -> None:
        self.options, self.compiler, self.machine = options, compiler, machine_of(options)
        self._choose_kernel = choose_kernel
        native = options.native and self.machine.kind == CPU
        self._inner = options.update(
            memory_budget=None,
            donated=(),
            streams=1,
            device=CPU,
            native=native,
            machine=self.machine if options.device == CPU else machine_of_device(),
        )  # programs that references run, on arrays that the host reads
        self._inner_native = native and compiler is not None

    def new_program(self, graph: Graph, expect: Callable[[ProgramAbi], None] | None) -> Program:
        """Returns the program of the graph; `expect` is told the memory needs of calls once memory is planned."""
        queue = self._queue(self.options)
        queue.begin()
        planned = plan(graph, self.options, self.workspace, queue)
        check_budget(planned, self.options.memory_budget)
        if expect is not None:
            expect(ProgramAbi.of(planned))
        return self._program(planned, self.options, queue)

    def new_member(self, graph: Graph, expect: Callable[[ProgramAbi], None] | None, kin: Kin) -> Program:
        """Returns the program of the graph; its kernels are printed when its steps are known, as if for other sizes, too."""
        options = self.options.update(sized=True)

        def lowered(given: Graph) -> Bound:
            return plan(given, options, self.workspace).bound

        queue = self._queue(options)
        queue.begin()
        is_free = options.memory_budget is None
        member = kin.member(graph, lowered) if is_free else None
        if member is not None:
            return self.new_program_of(member, expect, kin.bases)
        planned = plan(graph, options, self.workspace)
        if is_free:
            kin.note(graph, planned.bound, lowered)
        check_budget(planned, self.options.memory_budget)
        return self._sized_program(planned, options, queue, expect, kin.bases)

    def new_program_of(
        self, member: Member, expect: Callable[[ProgramAbi], None] | None, bases: Sequence[Program]
    ) -> Program:
        """Returns the program of a size whose steps a blueprint gives, and whose text a template knows, if there is one."""
        options = self.options.update(sized=True)
        queue = self._queue(options)
        queue.begin()
        with timed("planning memory"):
            blocks = member.templates.blocks(member.values)
            # With several streams it depends on sizes how long buffers live; the other case is an error.
            if most_streams(options) > 1 or sum(block.size for block in blocks) > sys.maxsize:
                planned = plan_memory(member.bound(), options)
                return self._sized_program(planned, options, queue, expect, bases)
            arena = _place(blocks, options, member.blueprint.bound.name)
            place = member.templates.place(arena.offsets, arena.peak)
        with timed("printing kernels"):
            found = member.templates.at(member.values, place)

        def printed(bases: Sequence[Program]) -> Program:
            planned = _planned(member.bound(), place.offsets, arena, options)
            return self._sized_program(planned, options, queue, expect, bases)

        if found is None:
            made = printed(bases)
            member.templates.note(member.values, made, self._print_sized)
            return made
        assert self.compiler is not None
        if expect is not None:
            expect(found.outside)
            expect = None
        parts = cache(lambda: printed([found.base]).parts())
        code = NativeCode(found.outside, parts, self.compiler, {False: found.printed})
        return Program(parts, False, like=found.base, code=code)

    def _sized_program(
        self,
        planned: Planned,
        options: Options,
        queue: KernelQueue,
        expect: Callable[[ProgramAbi], None] | None,
        bases: Sequence[Program],
    ) -> Program:
        """Returns the program of a plan, with the code of the base that it is like, if there is one."""
        if expect is not None:
            expect(ProgramAbi.of(planned))
        for base in bases:
            steps = aligned(planned.bound.steps, base.bound.steps)
            if steps is not None:
                alike = replace(planned, bound=replace(planned.bound, steps=steps))
                return self._program(alike, options, queue, base)
        return self._program(planned, options, queue)

    def _print_sized(self, planned: Planned) -> NativeCode:
        """Returns the code of steps with sizes that are not known yet; nothing is compiled."""
        kernels = {id(step): self.step_kernel(step) for step in walk(planned.bound.steps) if step.region is None}
        queue = KernelQueue(_NoCompiler(), self.step_kernel, self.workspace, self.machine)
        natives = {key: each for key, each in queue.of(planned, kernels).items() if isinstance(each, Native)}
        parts = ProgramParts(planned, make_schedule(planned, self.options), kernels, natives, sized=True)
        return NativeCode(ProgramAbi.of(planned), lambda: parts, _NoCompiler())

    def new_parts(self, graph: Graph) -> ProgramParts:
        """Returns the plan of the graph, and the kernels of its steps."""
        queue = self._queue(self.options)
        planned = plan(graph, self.options, self.workspace, queue)
        check_budget(planned, self.options.memory_budget)
        found = Program.of(planned, make_schedule(planned, self.options), self.step_kernel).parts()
        texts = queue.of(planned, found.kernels).items()
        return replace(found, natives={key: text for key, text in texts if isinstance(text, Native)})

    def workspace(self, node: Node) -> int:
        """Bytes that the kernel of a node needs while it runs."""
        specs = tuple(symbol.spec for symbol in node.inputs)
        if node.graphs:
            params = {**node.params, "graphs": node.graphs}
            printed = find_kernel(node.command, specs, params, self.machine)
            return printed.workspace(specs, params) if printed is not None else 0
        with set_context(source=node.source):
            return self._choose_kernel(node.command, specs, node.params, self.machine).workspace(specs, node.params)

    def step_kernel(self, step: Step) -> Kernel:
        """Returns the kernel of a step. Sub-graphs without a kernel become programs of their own."""
        if not step.graphs:
            with set_context(source=step.source):
                return self._choose_kernel(step.command, step.input_specs, step.params, self.machine)
        printed = find_kernel(step.command, step.input_specs, {**step.params, "graphs": step.graphs}, self.machine)
        if printed is None:
            return sub_graph_kernel(step, self._inner_program, self._inner_native)
        one_by_one = self._inner.update(native=False, guard=False)
        return replace(
            printed, run=sub_graph_kernel(step, partial(self._sub_program, options=one_by_one), native=False).run
        )

    def _inner_program(self, graph: Graph) -> RunProgram:
        if any(s.dtype == TAPE for s in (*graph.inputs, *graph.outputs)):
            return tape_program(graph, self._inner_program, self._inner_native)
        return self._sub_program(graph, self._inner.update(donated=graph.attrs.get("donated", ())))

    def _sub_program(self, graph: Graph, options: Options) -> RunProgram:
        planned = _plan_rewritten(graph, options, self.workspace, KernelQueue())
        return self._program(planned, options, self._queue(options)).run

    def _queue(self, options: Options) -> KernelQueue:
        return KernelQueue(self.compiler if options.native else None, self.step_kernel, self.workspace, self.machine)

    def _program(self, planned: Planned, options: Options, queue: KernelQueue, like: Program | None = None) -> Program:
        """Makes the program of a memory plan; `queue` may hold some of its compiled kernels. `like`: the program of another size
        that its steps are like.
        """
        with timed("scheduling"):
            schedule = make_schedule(planned, options)
        if options.verify_passes:
            check_schedule(planned, schedule)
        with timed("choosing kernels"):
            program = Program.of(planned, schedule, self.step_kernel, like)
        form = NativeCode if options.device == CPU else queued_code()
        return replace(program.compiled(queue, form), guard=options.guard, idle=[])


def plan(
    graph: Graph, options: Options, workspace: Workspace = no_workspace, queue: KernelQueue | None = None
) -> Planned:
    """Plans the memory of `graph`; this needs neither kernels nor memory.

    Where the plan exceeds `options.memory_budget`, values are rematerialized. If no plan fits, the smallest one is returned.

    Args:
        workspace: returns the bytes that the kernel of a node needs while it runs.
        queue: prints kernels meanwhile.
    """
    queue, silent = queue or KernelQueue(), KernelQueue()
    rewritten = run_phases(graph, SETTLING, options)
    queue.after("layout", rewritten)
    rewritten = run_phases(rewritten, PLACING, options)
    budget = options.memory_budget
    planned = _plan_rewritten(rewritten, options, workspace, queue)
    if budget is None or planned.peak <= budget:
        return planned
    compact = options.update(compact=True)
    rewritten = run_phases(rewritten, (DELAY,), compact)
    planned = _plan_rewritten(rewritten, compact, workspace, silent)
    if planned.peak <= budget:
        return planned
    kernels = run_phases(rewritten, (FUSE,), compact)
    forms = kernels, rewritten, frugal(rewritten, compact)
    remat = rematerializer(forms, compact, workspace, lambda graph: _plan_rewritten(graph, compact, workspace, silent))
    fitting: Planned = remat.fit(planned, budget)
    return fitting


def _plan_rewritten(graph: Graph, options: Options, workspace: Workspace, queue: KernelQueue) -> Planned:
    """Plans a graph that has been through the earlier phases; sub-graphs are rewritten with their graph."""
    kept = graph.attrs.get("kept", ())
    graph = run_phases(graph, (FUSE,), options)
    queue.after("fuse", graph)
    graph = run_phases(graph, (JOIN,), options)
    with timed("binding buffers"):
        emitted = emit(graph, workspace)
    queue.add(emitted)

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
    arena = _place([Block(hint(bound.buffers[i].nbytes), lives[i]) for i in inside], options, bound.name)
    offsets: dict[int, int] = dict(zip(inside, arena.offsets, strict=True))
    return _planned(bound, tuple(map(offsets.get, range(len(bound.buffers)))), arena, options)


def _place(blocks: Sequence[Block], options: Options, name: str) -> ArenaPlan:
    """Gives each block its offset."""
    arena = plan_blocks(blocks, algorithm=options.allocator)
    if options.verify_passes:
        clash = find_block_overlap(blocks, arena.offsets)
        if clash is not None:
            raise InternalError(f"{name}: arena buffers {clash[0]} and {clash[1]} overlap in the memory plan")
    return arena


def _planned(bound: Bound, offsets: tuple[int | None, ...], arena: ArenaPlan, options: Options) -> Planned:
    return Planned(
        bound,
        offsets,
        arena.peak,
        arena.lower_bound,
        flush_denormals=options.flush_denormals,
        precision=options.precision,
        machine=machine_of(options),
    )
