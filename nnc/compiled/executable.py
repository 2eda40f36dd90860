"""The results of a trace: a graph that is lowered, and a program that runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nnc.array.array import Array, as_value, new_array
from nnc.array.promote import astype, is_weak
from nnc.base.context import activity, get_context, set_context
from nnc.base.dtypes import Weakness
from nnc.base.garbage import collection_paused
from nnc.base.html import show_text
from nnc.base.later import later
from nnc.base.machine import LARGE
from nnc.base.options import Options
from nnc.commands.pack import PACKABLE
from nnc.compiled.bindings import Inputs, Outputs
from nnc.compiled.device_kinds import device_program, kernel_tuner, make_schedule_report, schedule_watch
from nnc.compiled.pipeline import lower, lower_member
from nnc.compiled.retraces import difference
from nnc.compiled.signature import Call, CallPattern, Key, Signature, device_of, is_spec, leaf_keys, setting
from nnc.compiled.toolchain import toolchain
from nnc.device import CPU, CUDA, find_device, interpreter_of, kind_of, machine_of
from nnc.errors import ArgumentTypeError, DeviceError, NncError, OutOfMemoryError, TraceError, user_error
from nnc.errors.tracebacks import api_boundary, is_users
from nnc.graph import Graph, TensorSpec, run_passes, spec_of
from nnc.lower.plan.liveness import walk
from nnc.lower.plan.stages import Step
from nnc.run.background import in_background
from nnc.run.direct import ArrayLayout, Direct, load_direct
from nnc.run.frame import NoRoomError
from nnc.run.packed_weights import PackedWeights, is_alone
from nnc.run.program import Program
from nnc.run.report import Cost, MemoryPlan, Timings
from nnc.run.store.cache import Cache, CacheEntry
from nnc.trace.core.captures import Snapshot, take_snapshot
from nnc.trace.core.flat import FlatFunction, FlatTree, definition_of, name_of
from nnc.trace.core.staging import Staged, stage

if TYPE_CHECKING:
    from nnc.compiled.device_program import DeviceProgram
    from nnc.compiled.families import Kin
    from nnc.compiled.replay import ReplayedSize
    from nnc.lower.plan.schedule.report import ScheduleReport, Watch
    from nnc.run.prefetch import Prefetch

bytes_by_purpose, memory_of, out_of_memory_error = (
    later(f"{__package__}.memory", name) for name in ("bytes_by_purpose", "memory_of", "out_of_memory_error")
)

Run = Callable[[tuple[Any, ...], dict[str, Any]], Any]  # of a call's arguments


@dataclass(frozen=True, slots=True)
class Lowered:
    """A traced function: its graph, not yet lowered, in spite of the name, which is JAX's; `compile` lowers it."""

    _signature: Signature
    _key: Key
    _staged: Staged
    _snapshot: Snapshot
    _options: Options
    _out: FlatTree
    _weak: tuple[Weakness, ...]
    _donated: frozenset[int]
    _lasting: frozenset[int]  # leaves whose packed forms can be kept between calls
    _seconds: float  # of tracing

    @classmethod
    def of(cls, call: Call, options: Options) -> Lowered:
        """Traces the function for a call; nothing of the call's arrays is kept."""
        fun, flat, specs = call.signature.fun, call.flat_function(), call.key.specs()
        name, start = name_of(fun), perf_counter()
        if options.native:
            toolchain(options.device).compiler()  # the compiler starts up meanwhile
        with collection_paused():
            with set_context(program=options, call=call), activity(f"tracing {name} for compile"):
                staged = stage(flat, [spec for spec, _ in specs], weak=[weak for _, weak in specs], name=name)
            hidden = [value.data for value in staged.captured if type(value) is Array]
            snapshot = take_snapshot(fun, call.objects(), hidden)
        weak_results = tuple(map(is_weak, flat.result.dynamic))
        donated = call.donated_leaves() if call.signature.donates else frozenset()
        lasting = cls._lasting_leaves(call, donated)
        seconds = perf_counter() - start
        out = flat.result.skeleton()
        return cls(call.signature, call.key, staged, snapshot, options, out, weak_results, donated, lasting, seconds)

    @staticmethod
    def _lasting_leaves(call: Call, donated: frozenset[int]) -> frozenset[int]:
        return frozenset(i for i, x in enumerate(call.arguments.dynamic) if i not in donated and _may_last(x))

    def traced_as(self, staged: Staged, flat: FlatFunction) -> Lowered | None:
        """Returns the trace with the graph of another one of the same function; None where captured arrays or results differ."""
        own, other = self._out, flat.result
        settings = [[setting(leaf) for leaf in each.skeleton().leaves] for each in (own, other)]
        same = (
            (own.treedef, own.where, settings[0]) == (other.treedef, other.where, settings[1])
            and self._weak == tuple(map(is_weak, other.dynamic))
            and len(self._staged.captured) == len(staged.captured)
            and all(map(_are_same, self._staged.captured, staged.captured))
        )
        return replace(self, _staged=staged) if same else None

    @property
    def captures_tracers(self) -> bool:
        """Whether the function captures values of an enclosing trace, so that it can only run as a part of that trace."""
        return not all(isinstance(value, Array) for value in self._staged.captured)

    @property
    def snapshot(self) -> Snapshot:
        """The captured Python values."""
        return self._snapshot

    @property
    def captured(self) -> tuple[Any, ...]:
        """The captured arrays, the last inputs of the graph."""
        return self._staged.captured

    def build(self, outputs: Sequence[Any]) -> Any:
        """Builds the function's result from values of the outputs of the graph."""
        return Outputs.of(self._out, self.graph.output_specs, self._weak).build(outputs)

    @property
    def graph(self) -> Graph:
        """The symbolic graph. Its last inputs are the arrays that the function captures."""
        return self._staged.graph

    @property
    def options(self) -> Options:
        """The options of the compilation."""
        return self._options

    @property
    def num_explicit(self) -> int:
        """The number of the graph's inputs that are leaves of the arguments."""
        return self._staged.num_explicit

    def captured_arrays(self) -> list[np.ndarray[Any, Any]]:
        """Returns the memory of the arrays that the function captures.

        Raises:
            TraceError: it captures values of an enclosing trace.
        """
        if self.captures_tracers:
            problem = "it captures a value of an enclosing trace."
            raise user_error(TraceError, name_of(self._signature.fun), problem, fix="pass the value as an argument.")
        return [value.data for value in self._staged.captured]

    def operands(self) -> tuple[list[tuple[str, TensorSpec]], list[tuple[str, TensorSpec]]]:
        """Returns the path and the spec of each array among the arguments, and of each array of the result."""
        named = zip(self._key.paths(self._signature.fun), self._key.leaves, strict=True)
        paths = [path for path, leaf in named if is_spec(leaf)]
        inputs = zip(paths, self.graph.input_specs, strict=False)  # behind them come captured arrays
        return list(inputs), list(zip(self._out.paths(), self.graph.output_specs, strict=True))

    def as_text(self) -> str:
        """Returns the graph as text."""
        return str(self._staged.graph)

    def __repr__(self) -> str:
        return f"<Lowered for {self._options.device}: {self.graph!r}>"

    def __str__(self) -> str:
        return self.as_text()

    def _repr_html_(self) -> str:
        return show_text(repr(self), str(self))

    @api_boundary
    def compile(self, prefetch: Prefetch | None = None, kin: Kin | None = None) -> Executable:
        """Plans memory and binds kernels.

        Args:
            prefetch: prefetches the memory of the first call meanwhile.
            kin: the programs of other sizes.

        Raises:
            MemoryBudgetError: the plan does not fit.
            TraceError: the function captures values of an enclosing trace.
        """
        if self.captures_tracers:
            problem = "it captures a value of an enclosing trace."
            raise user_error(TraceError, name_of(self._signature.fun), problem, fix="pass the value as an argument.")
        _check_places(self._staged.captured, self._options.device, name_of(self._signature.fun))
        clock = {"tracing": self._seconds}
        with set_context(clock=clock), collection_paused():
            graph, used = self.wanted()
            graph, values = kin.open(graph) if kin is not None else (graph, [])
            program = self._make_program(graph, used, lambda *given: lower(graph, *given), prefetch, kin)
        specs = self._staged.graph.input_specs
        return self._executable(_Made(lambda: graph, graph.output_specs, program, used, specs, values), clock)

    def lasts_as(self, call: Call) -> bool:
        """Whether packed forms of the same leaves can be kept for another call."""
        return self._lasting == self._lasting_leaves(call, self._donated)

    def replayed(self, size: ReplayedSize, call: Call, kin: Kin) -> Executable:
        """Makes the program of another call, whose size needs no trace."""
        own = replace(self, _key=call.key)
        clock, replay = {"tracing": 0.0}, size.replay
        with set_context(clock=clock), collection_paused():
            member, used = size.member(), replay.used

            def lowered(*given: Any) -> Program:
                return lower_member(member, *given) if member is not None else lower(kin.open_replayed(size), *given)

            program = own._make_program(replay.graph, used, lowered, None, kin)
            values = [x for i, x in enumerate(size.constants) if i in replay.line.places]
        inputs, outputs = [spec for spec, _ in call.key.specs()], size.specs(replay.graph.output_specs)
        return own._executable(_Made(cache(size.graph), outputs, program, used, inputs, values), clock)

    def _executable(self, made: _Made, clock: dict[str, float]) -> Executable:
        program, used, specs = made.program, made.used, made.inputs
        explicit, opened = self._staged.num_explicit, [new_array(x, spec_of(x), weak=False) for x in made.constants]
        outside, reads = program.outside, tuple((i, specs[i]) for i in used if i < explicit)
        inputs = Inputs(
            reads=reads,
            reads_all=len(reads) == explicit,
            captured=(*(self._staged.captured[i - explicit] for i in used if i >= explicit), *opened),
            donated=self._donated,
            written=outside.donated,
            spared=tuple(self._donated.difference(reads[place][0] for place in outside.donated)),
        )
        outputs = Outputs.of(self._out, made.outputs, self._weak)
        name, interpreter = name_of(self._signature.fun), interpreter_of(find_device(self._options.device, "compile"))
        choose, machine = toolchain(self._options.device).choose_kernel, machine_of(self._options)
        queued = device_program(name, program, inputs, outputs, interpreter) if interpreter is not None else None
        return Executable(
            make_graph=made.graph,
            snapshot=self._snapshot,
            timings=Timings(tuple(clock.items())),
            options=self._options,
            queued=queued,
            _signature=self._signature,
            _key=self._key,
            _program=program,
            _inputs=inputs,
            _outputs=outputs,
            _kept=PackedWeights(outside, choose, machine) if outside.kept else None,
        )

    def wanted(self) -> tuple[Graph, list[int]]:
        """Returns the graph without nodes and inputs that no output needs, and the numbers of the inputs that it keeps."""
        wanted = ("dce", "check_finite") if self._options.check_finite else ("dce",)
        graph = run_passes(self._staged.graph, wanted, self._options, verify=self._options.verify_passes)
        read = graph.reads
        used = [i for i, symbol in enumerate(graph.inputs) if symbol in read]  # the program never sees the others
        graph = graph.update(inputs=tuple(graph.inputs[i] for i in used))
        return graph, used

    def _make_program(
        self, graph: Graph, used: list[int], lowered: Callable[..., Program], prefetch: Prefetch | None, kin: Kin | None
    ) -> Program:
        """Makes the program of a graph of wanted outputs.

        Args:
            graph: the graph.
            used: which inputs of the trace it has.
            lowered: lowers it; takes the arguments of `lower` but the first.
            prefetch: prefetches the memory of the first call meanwhile.
            kin: the programs of other sizes.
        """
        explicit = self._staged.num_explicit
        donated = tuple(place for place, i in enumerate(used) if i < explicit and i in self._donated)
        options = self._options.update(donated=donated)
        if options.device == CPU and any(node.command.name in PACKABLE for node in graph.walk()):
            last = self._lasting.union(i + explicit for i, x in enumerate(self._staged.captured) if _may_last(x))
            options = options.update(keeps=tuple(place for place, i in enumerate(used) if i in last))
        tools = toolchain(options.device)
        choose = kernel_tuner(tools.candidate_kernels, options) if options.autotune else tools.choose_kernel
        compiler = tools.compiler() if options.native else None
        expect = prefetch.expect if prefetch is not None else None
        program = lowered(options, choose, compiler, expect, kin)
        if compiler is not None and program.needs_no_python:
            in_background(partial(load_direct, compiler))  # the third call can use it
        if prefetch is not None and prefetch.room is not None:
            program.make_ready(prefetch.room)
        return program


class _Made(NamedTuple):
    """The parts of an executable that depend on sizes: a function that returns its graph, the specs of its outputs, its program,
    which inputs of the trace this reads, the specs of all of them, and the constants that are further inputs.
    """

    graph: Callable[[], Graph]
    outputs: tuple[TensorSpec, ...]
    program: Program
    used: list[int]
    inputs: Sequence[TensorSpec]
    constants: Sequence[np.ndarray[Any, Any]]


def _are_same(x: Any, y: Any) -> bool:
    """Whether captured arrays are the same memory, or have the same elements."""
    if not (isinstance(x, Array) and isinstance(y, Array)) or (x.spec, x.weak) != (y.spec, y.weak):
        return False
    return x is y or (x.device == y.device == CPU and np.array_equal(x.data.view(np.uint8), y.data.view(np.uint8)))


def _check_places(captured: Sequence[Any], device: str, name: str) -> None:
    """Raises DeviceError where a function captures an array of another device than the one that it runs on."""
    for value in captured:
        if isinstance(value, Array) and value.device not in (device, CPU):
            problem = f"it runs on {device} and captures an array on {value.device}."
            fix = f"pass the array as an argument, or compile with device={value.device!r}."
            raise user_error(DeviceError, name, problem, operands={"array": value.spec}, fix=fix)


def prefetching(call: Call, options: Options) -> AbstractContextManager[Prefetch | None]:
    """Opens a block that makes the program of a call and prefetches memory meanwhile: at once the donated arrays, and an arena as
    large as the last call of the function with such arguments needed.
    """
    compiler = toolchain(options.device).compiler() if options.native else None
    if compiler is None or options.device != CPU:
        return nullcontext()
    prefetch = compiler.prefetch()
    if options.cache_folder is not None:
        prefetch.recall(_arena_entry(call, options, options.cache_folder))
    if call.signature.donates:
        given = (call.arguments.dynamic[i] for i in call.donated_leaves())
        prefetch.prefetch_donated([leaf for leaf in given if isinstance(leaf, Array)])
    return prefetch


def _arena_entry(call: Call, options: Options, folder: Path) -> CacheEntry:
    """Returns the cache entry of the size of arena that calls like this one need. The place is found before the function is
    traced, so that it knows the function by where it is defined, and arguments by how many there are of each spec.
    """
    fun, counts = call.signature.fun, Counter(spec for spec, _ in call.key.specs())
    arguments = {str(spec): count for spec, count in counts.items()}
    key = {"function": f"{name_of(fun)} {definition_of(fun)}", "arguments": arguments, "options": repr(options)}
    return CacheEntry(Cache(folder), "arenas", key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Executable:
    """A program ready to run, with its graph, memory plan, schedule and costs.

    Attributes:
        make_graph: returns the graph of the outputs that are used.
        snapshot: the captured Python values, which must not change.
        timings: the seconds of each part of the compilation.
        options: the options of the compilation.
        queued: runs the program on a device other than the CPU.
    """

    make_graph: Callable[[], Graph]
    snapshot: Snapshot
    timings: Timings
    options: Options
    queued: DeviceProgram | None
    _signature: Signature
    _key: Key
    _program: Program
    _inputs: Inputs
    _outputs: Outputs
    _kept: PackedWeights | None  # packed forms of inputs that last from call to call

    @property
    def graph(self) -> Graph:
        """The graph of the outputs that are used."""
        return self.make_graph()

    @property
    def program(self) -> Program:
        """The lowered program."""
        return self._program

    @property
    def memory_plan(self) -> MemoryPlan:
        """The address of each tensor, and the bytes that a call takes."""
        read = [i for i, _ in self._inputs.reads]
        captured = [value.spec for value in self._inputs.captured]
        purposes = bytes_by_purpose(self._key, read, captured, self.graph.output_specs)
        return replace(self._program.memory_plan, purposes=purposes)

    def fits(self, where: str | int) -> bool:
        """Whether a call fits into memory, with its arguments, the arrays that the function captures, and its results.

        Nothing else may lie there: give the number of bytes that are left where something does. A GPU's driver and its libraries
        take memory besides, which this does not count.

        Args:
            where: a device, such as "cuda:0", or the bytes of one that is not there, such as "80GiB".

        Raises:
            UnsupportedError: there is no such device, or its libraries are not installed.
            ArgumentError: it is neither a device's name nor a number of bytes.

        Example:
            >>> step = nnc.compile(lambda x: x @ x.T).lower(nnp.ones((512, 512))).compile()
            >>> step.fits("80GiB"), step.fits(1_000_000)
            (True, False)
        """
        memory = memory_of(where)
        return memory is None or bool(self.memory_plan.total <= memory)

    @property
    def cost(self) -> Cost:
        """Floating-point operations and bytes, node by node."""
        return self._program.cost

    @property
    def schedule(self) -> ScheduleReport:
        """The times and streams of all steps, by estimates; `print` shows it, `save("trace.json")` writes it for Perfetto."""
        return self._report(self._program)

    def _report(self, program: Program, watch: Watch | None = None) -> ScheduleReport:
        def backend(step: Step) -> str:
            return program.kernel_of(step).backend

        spans = watch.spans if watch is not None else None
        report: ScheduleReport = make_schedule_report(program.bound, program.schedule, backend, spans)
        return report

    @property
    def unprinted(self) -> dict[str, Counter[str]]:
        """The commands for which the device has no printed kernel, and how many steps they are, by where they run instead; none on
        devices that run the CPU's kernels.
        """
        program, found = self._program, dict[str, Counter[str]]()
        if kind_of(self.options.device) == CPU:
            return found
        has_libraries = self.options.device.startswith(CUDA)  # the interpreter of PTX has none
        for step in walk(program.bound.steps, program.printed):
            if step.region is None and id(step) not in program.printed:
                kernel = program.kernel_of(step)
                where = (
                    f"by {kernel.backend}"
                    if has_libraries and kernel.queue is not None
                    else "by their references on the host"
                )
                found.setdefault(where, Counter())[step.command.name] += 1
        return found

    @property
    def loops(self) -> list[str]:
        """The way in which a device with kernels of its own runs each loop and branch, in words; none on other devices."""
        code = self._program.code
        return [] if code is None or kind_of(self.options.device) == CPU else code.regions()

    def as_text(self) -> str:
        """Returns the program as text: steps with their kernels and buffers."""
        return self._program.as_text()

    def __repr__(self) -> str:
        return f"<Executable for {self.options.device}: {self.graph!r}>"

    def __str__(self) -> str:
        return self.as_text()

    def _repr_html_(self) -> str:
        return show_text(repr(self), str(self))

    @api_boundary
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the program on arguments of the lowered structure, shapes and dtypes, without static arguments.

        Raises:
            ArgumentTypeError: structure, shapes or dtypes differ.
            TraceError: a captured Python value changed since the trace.
        """
        fun, key = self._signature.fun, self._key
        name = name_of(fun)
        arguments = FlatTree(self._signature.by_position(args, kwargs, key.positions), fun, key.positions)
        leaves = leaf_keys(arguments, name)
        given = Key(
            arguments.treedef, leaves, key.static, key.positions, device_of(arguments.dynamic, name, key.device)
        )
        if not given.is_served_by(key):
            problem = f"it was lowered for other arguments: {difference(fun, key, given)}."
            fix = "lower it again for these arguments; static ones are left out of the call."
            raise user_error(ArgumentTypeError, name, problem, fix=fix)
        if not self.snapshot.unchanged():
            fix = "lower it again, or pass the value as an argument."
            raise user_error(TraceError, name, f"{'; '.join(self.snapshot.changes())}, after it was lowered.", fix=fix)
        specs = zip(arguments.dynamic, given.specs(), key.specs(), strict=True)
        return self.run([x if own == spec else astype(as_value(x), spec.dtype) for x, (own, _), (spec, _) in specs])

    def run(self, leaves: Sequence[Any]) -> Any:
        """Runs the program on dynamic leaves that are known to fit, and returns the function's result."""
        if self.queued is not None:
            return self.queued.run(leaves)
        if get_context().device is not None:  # which steps in Python would run on
            with set_context(device=None):
                return self.run(leaves)
        memory = self._inputs.memory(leaves, self._kept)
        try:
            outputs = self._program.run(memory)
        except MemoryError as error:
            if is_users(error) or isinstance(error, NncError):
                raise
            if isinstance(error, NoRoomError):
                self._inputs.give_back(leaves, memory)
            raise self._out_of_memory(str(error)) from None
        return self._outputs.result(self._inputs.end(leaves, outputs))

    def runner(self, pattern: CallPattern) -> Run:
        """Makes the fast path of one pattern of calls: a function that returns NotImplemented for other calls, and where a
        captured value changed.
        """
        unchanged, direct = self.snapshot.unchanged, self._direct(pattern)

        def run(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            leaves = pattern.leaves_of(args, kwargs)
            return self.run(leaves) if leaves is not None and unchanged() else NotImplemented

        if direct is None:
            return run
        order = self._program.outside.order
        idle, bind, build = direct.idle, direct.bind, self._outputs.builder(order)
        is_flat, is_pure, captured = pattern.take is None, self.snapshot.is_empty, self._inputs.captured

        def run_directly(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            leaves = [*args] if is_flat and not kwargs else pattern.taken(args, kwargs)
            if leaves is None or not (is_pure or unchanged()):
                return NotImplemented
            leaves += captured
            try:
                frame = idle.pop()
            except IndexError:  # other threads have taken all of them
                return run(args, kwargs)
            try:
                result = (frame.direct or bind(frame))(leaves)
            finally:
                idle.append(frame)
            if result is NotImplemented:
                return run(args, kwargs)
            return result if build is None else build(result)

        return run_directly

    def _direct(self, pattern: CallPattern) -> Direct | None:
        """Returns the function that calls the program on the dynamic leaves of calls without Python in between; None where that
        cannot be.
        """
        if self.queued is not None:
            return None
        compiler, boxes, arrays = toolchain(self.options.device).compiler(), _boxes(), pattern.arrays
        outside = self._program.outside
        order, made = outside.order, sum(spec.nbytes for spec in outside.made)
        is_special = self._kept is not None or not self._inputs.is_plain or made >= LARGE
        if compiler is None or boxes is None or arrays is None or order is None or is_special:
            return None
        arrays += tuple((value.spec, value.weak) for value in self._inputs.captured)
        return Direct.of(self._program, compiler, boxes, arrays, self._outputs.in_order(order))

    def _out_of_memory(self, reason: str) -> OutOfMemoryError:
        """Returns the error for a call that the system has no memory for."""
        error: OutOfMemoryError = out_of_memory_error(name_of(self._signature.fun), self._program, reason)
        return error

    def profile(self, leaves: Sequence[Any]) -> ScheduleReport:
        """Returns the begin and end of each step of one run on these dynamic leaves, which are known to fit."""
        watch = schedule_watch(len(self._program.bound.steps))
        watched = replace(self, _program=self._program.watched(watch))
        watched.run(leaves)
        return self._report(self._program, watch)

    def run_arrays(self, arrays: Sequence[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
        """Runs the program on inputs of the graph, and returns its outputs."""
        made = self._kept.arrays(arrays) if self._kept is not None else ()
        return self._program.run([*arrays, *made])

    def operands(self, leaves: Sequence[Any]) -> list[Any]:
        """Returns values for the inputs of the graph, for another trace: dynamic leaves that it reads, and captured arrays."""
        return self._inputs.operands(leaves)

    def build(self, outputs: Sequence[Any]) -> Any:
        """Builds the function's result from values of the outputs of the graph."""
        return self._outputs.build(outputs)


@cache
def _boxes() -> ArrayLayout | None:
    """Returns the layout of `Array` objects; None where it is not known."""
    data = np.zeros(1, np.float32)
    return ArrayLayout.like(new_array(data, TensorSpec(data.shape, data.dtype), weak=True))


def _may_last(leaf: Any) -> bool:
    """Whether packed forms of an argument like this one can be kept for the next call: of arrays, unless others can write to their
    memory, and of arguments that only have a spec, since nothing is known against them.
    """
    return is_alone(leaf) or (hasattr(leaf, "spec") and not isinstance(leaf, Array))
