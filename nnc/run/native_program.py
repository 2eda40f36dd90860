"""Compiled programs: machine code for a program's kernels, and one function that runs all its steps."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from nnc.base.context import timed
from nnc.base.fork import new_lock
from nnc.graph import Kernel, TensorSpec
from nnc.lower.kernels.launch import DeviceKernel
from nnc.lower.kernels.native import Compiler, Function, Native
from nnc.lower.plan.liveness import walk
from nnc.lower.plan.schedule.types import Schedule
from nnc.lower.plan.stages import Kind, Loop, NDArray, Planned, Steps, View
from nnc.run.arguments import FrameLayout, make_table
from nnc.run.entry import EntryText, print_alone, print_entry

_ENTRY = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)
_ENTRY_OF_PARTS = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)


@dataclass(frozen=True, slots=True)
class ProgramParts:
    """The parts of a program: its plan, its schedule, and the kernels of its steps, by identity: some of them are compiled for the
    CPU, or printed for another device. `sized`: the program's own text leaves out numbers that follow from sizes.
    """

    planned: Planned
    schedule: Schedule
    kernels: Mapping[int, Kernel]
    natives: Mapping[int, Native]
    printed: Mapping[int, DeviceKernel] = field(default_factory=dict)
    sized: bool = False


@dataclass(frozen=True, slots=True)
class Result:
    """The place of an output: in the argument, or in the fresh memory, with an index."""

    kind: Kind
    index: int
    view: View


class ProgramAbi(NamedTuple):
    """The interface of a compiled program, enough to call it: its inputs, which of them it overwrites and which are
    kept for it (`Bound.kept`), the specs of the fresh memory that it is given, its results, its constants, its arena, how many
    loops count iterations, and whether every step runs in every call: tests may leave much of the arena alone.
    """

    name: str
    inputs: tuple[TensorSpec, ...]
    donated: tuple[int, ...]
    kept: tuple[tuple[int, str], ...]
    made: tuple[TensorSpec, ...]
    results: tuple[Result, ...]
    constants: tuple[NDArray, ...]
    arena_bytes: int
    loops: int
    runs_all: bool

    @classmethod
    def of(cls, planned: Planned) -> ProgramAbi:
        """Reads the interface of a plan."""
        bound = planned.bound
        made = tuple(buffer.symbol.spec for buffer in bound.buffers if buffer.kind is Kind.OUTPUT)
        outputs = [(bound.buffers[view.buffer], view) for view in bound.outputs]
        regions = [step.region for step in walk(bound.steps) if step.region is not None]
        loops = [region for region in regions if isinstance(region, Loop)]
        return cls(
            name=bound.name,
            inputs=bound.inputs,
            donated=bound.donated,
            kept=bound.kept,
            made=made,
            results=tuple(Result(buffer.kind, buffer.index, view) for buffer, view in outputs),
            constants=bound.constants,
            arena_bytes=planned.arena_bytes,
            loops=1 + max((loop.number for loop in loops), default=-1),
            runs_all=len(loops) == len(regions) and all(loop.length is not None for loop in loops),
        )

    @property
    def order(self) -> tuple[int, ...] | None:
        """For each output the number of the array made for it, if each is another one; else None."""
        found = tuple(result.index for result in self.results)
        are_whole = all(
            result.kind is Kind.OUTPUT and result.view == View.whole(result.view.buffer, self.made[result.index])
            for result in self.results
        )
        return found if are_whole and sorted(found) == [*range(len(self.made))] else None

    @property
    def returns_made(self) -> bool:
        """Whether the outputs are the arrays made for them, one for one."""
        return self.order == (*range(len(self.made)),)

    def words(self, states: int, numbers: int = 0) -> FrameLayout:
        """Returns the layout of the program's frames."""
        return FrameLayout(len(self.inputs), len(self.made), len(self.constants), self.loops, states, numbers)


class Printed(NamedTuple):
    """A program for the compiler, and the kernels with a state, in the order of its words."""

    text: EntryText
    states: tuple[Native, ...]


@dataclass(frozen=True, eq=False)
class Entry:
    """A compiled program. `call(frame[, part])` runs it on the words of a frame (nnc.run.arguments).

    `table` describes the inputs, `blocks` are the steps that run in Python, `numbers` are read from the frame. The parts
    of the program are asked for where Python runs steps, and where something went wrong.
    """

    outside: ProgramAbi
    words: FrameLayout
    call: Callable[..., int]
    held: Any  # the compiled object of `call`
    table: Any
    states: tuple[Native, ...]
    blocks: tuple[Steps, ...]
    numbers: tuple[int, ...]
    apart: bool  # whether `call` takes the number of a part
    parts: Callable[[], ProgramParts]

    @cached_property
    def steps(self) -> Steps:
        """All steps, those within regions included, as they are numbered."""
        return tuple(walk(self.parts().planned.bound.steps))


class NativeCode:
    """The compiled kernels of a program, and the entries made of them: one that runs in one go, one that runs step by step. Each is
    made when it is first wanted; `printed` are the printed ones, by whether they run step by step.
    """

    is_queued = False

    def __init__(
        self,
        outside: ProgramAbi,
        parts: Callable[[], ProgramParts],
        compiler: Compiler,
        printed: Mapping[bool, Printed] | None = None,
    ) -> None:
        self.outside, self.parts, self.printed = outside, parts, dict(printed or {})
        self.compiler = compiler
        self._entries: dict[bool, Entry] = {}
        self._lock = new_lock()

    @property
    def natives(self) -> Mapping[int, Native]:
        """The compiled kernels, by identity of the step."""
        return self.parts().natives

    def entry(self, apart: bool) -> Entry:
        """Returns the compiled program.

        Args:
            apart: whether each step can be called by itself.
        """
        with self._lock:
            if apart not in self._entries:
                self._entries[apart] = self._compile(apart)
            return self._entries[apart]

    def load(self, apart: bool) -> None:
        """Waits for the machine code.

        Args:
            apart: whether each step can be called by itself.

        Raises:
            InternalError: the compiler refuses a text.
        """
        self.entry(apart)

    def functions(self) -> Mapping[int, Function]:
        """Returns the compiled kernels, each as a function of its own, by identity of the step: kernels in a program's own text
        are compiled as parts of them are.
        """
        held = {key: native for key, native in self.natives.items() if native.is_held}
        others = {key: native for key, native in self.natives.items() if key not in held}
        found = dict(zip(others, self.compiler.load([*others.values()]), strict=True))
        alone = {
            name: self.compiler.load_entry(print_alone(native), native.symbols, None) for name, native in _named(held)
        }
        return found | {key: alone[native.name] for key, native in held.items()}

    def regions(self) -> list[str]:
        """Returns how a device runs each loop and branch, in words; compiled code of the CPU runs them itself."""
        return []

    def expect(self, apart: bool) -> None:
        """Announces that an entry will be asked for: prints it, and has it compiled meanwhile."""
        with self._lock:
            self.compiler.expect(self._printed(apart).text.text)

    def _printed(self, apart: bool) -> Printed:
        if apart not in self.printed:
            with timed("printing kernels"):
                self.printed[apart] = self._print(apart)
        return self.printed[apart]

    def _compile(self, apart: bool) -> Entry:
        printed = self._printed(apart)
        with timed("compiling kernels"):
            for native in printed.states:
                native.begin()
            self.compiler.expect(printed.text.text)
            functions = self.compiler.load(printed.text.called)
            function = self.compiler.load_entry(printed.text.text, _symbols(printed.text, functions), functions)
        outside = self.outside
        return Entry(
            outside=outside,
            words=outside.words(len(printed.states), len(printed.text.numbers)),
            call=(_ENTRY_OF_PARTS if apart else _ENTRY)(function.address),
            held=function,
            table=make_table(outside.inputs, len(outside.made), outside.donated),
            states=printed.states,
            blocks=printed.text.blocks,
            numbers=printed.text.numbers,
            apart=apart,
            parts=self.parts,
        )

    def _print(self, apart: bool) -> Printed:
        parts = self.parts()
        natives = parts.natives
        found = (id(step) for step in walk(parts.planned.bound.steps))
        with_state = [key for key in found if key in natives and natives[key].state is not None]
        words = self.outside.words(len(with_state))
        positions = {key: i for i, key in enumerate(with_state)}
        text = print_entry(parts.planned, words, natives, positions, apart, parts.sized)
        return Printed(text, tuple(natives[key] for key in with_state))


def _named(natives: Mapping[int, Native]) -> Iterable[tuple[str, Native]]:
    """Each text once, with its name."""
    return {native.name: native for native in natives.values()}.items()


def _symbols(printed: EntryText, functions: Sequence[Function]) -> dict[str, int]:
    symbols = {native.name: function.address for native, function in zip(printed.called, functions, strict=True)}
    for native in printed.held:
        symbols |= native.symbols
    return symbols
