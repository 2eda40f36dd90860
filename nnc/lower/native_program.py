"""What a program becomes where there is a compiler: machine code for its kernels, and one function that runs all its steps."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from nnc.context import timed
from nnc.dtypes import TAPE, DType
from nnc.graph import Kernel
from nnc.lower.codegen.arguments import Words, is_layout_known, make_table
from nnc.lower.codegen.entry import EntryText, print_entry
from nnc.lower.codegen.native import Compiler, Function, Native
from nnc.lower.liveness import walk
from nnc.lower.stages import Kind, Loop, Planned, Step, Steps, View

_ENTRY = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)
_ENTRY_OF_PARTS = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)


@dataclass(frozen=True, eq=False)
class Entry:
    """A compiled program. `call(frame[, part])` runs it on the words of a frame (nnc.lower.codegen.arguments).

    `table` is what inputs must be like, `blocks` are the steps that run in Python, `shapes` and `dtypes` those of fresh results.
    """

    planned: Planned
    kernels: Mapping[int, Kernel]
    words: Words
    call: Callable[..., int]
    held: Any  # what is called, compiled
    table: Any
    states: tuple[Native, ...]
    blocks: tuple[Steps, ...]
    steps: Steps  # all, those within regions included, as they are numbered
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[DType, ...]
    apart: bool  # whether `call` takes the number of a part

    @cached_property
    def returns_made(self) -> bool:
        """Whether the outputs are the arrays made for them, one for one."""
        buffers = self.planned.bound.buffers
        outputs = [(buffers[view.buffer], view) for view in self.planned.bound.outputs]
        return len(outputs) == len(self.shapes) and all(
            buffer.kind is Kind.OUTPUT and buffer.index == i and view == View.whole(view.buffer, buffer.symbol.spec)
            for i, (buffer, view) in enumerate(outputs)
        )


class NativeCode:
    """The compiled kernels of a program, by identity of the step, and the entries made of them: one that runs in one go, one that
    runs step by step. Each is made when it is first wanted; `texts` are those that were printed, by whether they run step by step.
    """

    def __init__(
        self,
        planned: Planned,
        kernels: Mapping[int, Kernel],
        natives: Mapping[int, Native],
        compiler: Compiler,
        texts: Mapping[bool, EntryText] | None = None,
    ) -> None:
        self.planned, self.kernels, self.natives = planned, kernels, natives
        self.texts = dict(texts or {})
        self._compiler = compiler
        self._entries: dict[bool, Entry] = {}
        self._lock = threading.Lock()

    @classmethod
    def of(cls, planned: Planned, kernels: Mapping[int, Kernel], compiler: Compiler) -> NativeCode | None:
        """The native kernels of a program; None where it has none, so that nothing is won."""
        natives: dict[int, Native] = {}
        with timed("printing kernels"):
            for step in walk(planned.bound.steps):
                native = _native_of(planned, kernels.get(id(step)), step)
                if native is not None:
                    natives[id(step)] = native
                    if not native.inline:  # others become part of the program's own text, as a rule
                        compiler.expect(native)
        return cls(planned, kernels, natives, compiler) if natives and is_layout_known() else None

    def entry(self, apart: bool) -> Entry:
        """The compiled program.

        Args:     apart: whether each step can be called by itself.
        """
        with self._lock:
            if apart not in self._entries:
                self._entries[apart] = self._compile(apart)
            return self._entries[apart]

    def _compile(self, apart: bool) -> Entry:
        bound = self.planned.bound
        with timed("printing kernels"):
            with_state = [step for step in walk(bound.steps) if self._has_state(step)]
            states = {id(step): i for i, step in enumerate(with_state)}
            words = Words.of(bound, _loops(bound.steps), len(states))
            printed = self.texts.get(apart)
            if printed is None:
                printed = self.texts[apart] = print_entry(self.planned, words, self.natives, states, apart)
        with timed("compiling kernels"):
            functions = self._compiler.load(printed.called)
            function = self._compiler.load_entry(printed.text, _symbols(printed, functions), functions)
        made = [buffer.symbol.spec for buffer in bound.buffers if buffer.kind is Kind.OUTPUT]
        return Entry(
            planned=self.planned,
            kernels=self.kernels,
            words=words,
            call=(_ENTRY_OF_PARTS if apart else _ENTRY)(function.address),
            held=function,
            table=make_table(bound),
            states=tuple(self.natives[i] for i in states),
            blocks=printed.blocks,
            steps=tuple(walk(bound.steps)),
            shapes=tuple(spec.shape for spec in made),
            dtypes=tuple(spec.dtype for spec in made),
            apart=apart,
        )

    def _has_state(self, step: Step) -> bool:
        native = self.natives.get(id(step))
        return native is not None and native.state is not None


def _native_of(planned: Planned, kernel: Kernel | None, step: Step) -> Native | None:
    """The compiled kernel of a step. Tapes hold Python's objects, which compiled code does not touch."""

    def is_tape(view: View) -> bool:
        return view.spec.dtype == TAPE or planned.bound.buffers[view.buffer].kind is Kind.TAPE

    if kernel is None or kernel.native is None or any(map(is_tape, (*step.inputs, *step.outputs))):
        return None
    native: Native | None = kernel.native(step)
    return native


def _loops(steps: Steps) -> int:
    """How many numbers of loops there are."""
    return 1 + max((step.region.number for step in walk(steps) if isinstance(step.region, Loop)), default=-1)


def _symbols(printed: EntryText, functions: Sequence[Function]) -> dict[str, int]:
    symbols = {native.name: function.address for native, function in zip(printed.called, functions, strict=True)}
    for native in printed.held:
        symbols |= native.symbols
    return symbols
