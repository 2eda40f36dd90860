"""One arena and everything bound to it: what a single call of a program runs on.

All that does not change from call to call is made once: views into the arena and the constants, and the argument lists
of the kernels. A call makes its outputs, puts the views of inputs and outputs into the lists, runs, and takes them out
again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from nnc.commands.rules import effect
from nnc.errors import NncError, word_anew
from nnc.graph import TensorSpec
from nnc.lower.stages import Kind, NDArray, Step, View, row_major

if TYPE_CHECKING:
    from nnc.lower.program import Program

_ALIGNMENT = 64

Arrays = list[Any]


class Frame:
    """The arena of one call at a time."""

    __slots__ = ("_patches", "_recipes", "_runs", "_tapes", "arena")

    def __init__(self, program: Program) -> None:
        self.arena = aligned_bytes(program.arena_bytes)
        self._tapes: dict[int, NDArray] = {}  # by buffer
        self._runs: list[tuple[Callable[..., None], Arrays, Arrays, Mapping[str, Any]]] = []
        self._recipes: list[tuple[bool, int, View | None]] = []  # (is an input, index, view or None for all)
        self._patches: list[tuple[Arrays, int, int]] = []  # (list, position, recipe)
        slots: dict[View, int] = {}
        constants = [as_bytes(x) for x in program.bound.constants]
        for step, kernel in zip(program.bound.steps, program.kernels, strict=True):
            inputs, outputs = (self._bind(program, views, slots, constants) for views in (step.inputs, step.outputs))
            self._runs.append((kernel.run, inputs, outputs, step.params))

    def _bind(
        self, program: Program, views: Sequence[View], slots: dict[View, int], constants: Sequence[NDArray]
    ) -> Arrays:
        arrays: Arrays = []
        for view in views:
            buffer = program.bound.buffers[view.buffer]
            if buffer.kind is Kind.ARENA:
                offset = program.placements[view.buffer].offset
                arrays.append(make_view(self.arena, view, offset or 0))
            elif buffer.kind is Kind.TAPE:
                spec = buffer.symbol.spec
                handle = self._tapes.setdefault(view.buffer, np.empty(spec.shape, spec.dtype))
                arrays.append(as_strided(handle, view.spec.shape, view.strides))
            elif buffer.kind is Kind.CONSTANT:
                arrays.append(make_view(constants[buffer.index], view))
            else:
                if view not in slots:
                    slots[view] = len(self._recipes)
                    is_whole = view == View(view.buffer, buffer.symbol.spec, 0, row_major(buffer.symbol.spec))
                    self._recipes.append((buffer.kind is Kind.INPUT, buffer.index, None if is_whole else view))
                self._patches.append((arrays, len(arrays), slots[view]))
                arrays.append(None)
        return arrays

    def run(self, program: Program, inputs: Sequence[NDArray]) -> list[NDArray]:
        """Runs all steps of the program that the frame was made for, on contiguous inputs; returns the outputs."""
        fresh = [np.empty(spec.shape, spec.dtype) for spec in program.fresh]
        values = []
        for is_input, index, view in self._recipes:
            memory = inputs[index] if is_input else fresh[index]
            values.append(memory if view is None else make_view(as_bytes(memory), view))
        for arrays, position, slot in self._patches:
            arrays[position] = values[slot]
        done = 0
        try:
            for run, arguments, results, params in self._runs:
                run(arguments, results, params)
                done += 1
        except NncError:
            self._explain(program.bound.steps[done], done)
            raise
        finally:
            for arrays, position, _ in self._patches:
                arrays[position] = None
            for handle in self._tapes.values():
                handle[...] = None
        return [_output(view, kind, index, inputs, fresh) for view, kind, index in program.returned]

    def _explain(self, step: Step, position: int) -> None:
        """Raises the error of a failed step once more, worded for the user's line that made the step."""
        if step.graphs or step.source is None or step.command in effect:
            return
        run, arguments, results, params = self._runs[position]
        word_anew(lambda: run(arguments, results, params), step.source)


def _output(view: View, kind: Kind, index: int, inputs: Sequence[NDArray], fresh: Sequence[NDArray]) -> NDArray:
    memory = inputs[index] if kind is Kind.INPUT else fresh[index]
    is_whole = memory.shape == view.spec.shape and memory.dtype == view.spec.dtype
    return memory if is_whole else make_view(as_bytes(memory), view)


def aligned_bytes(nbytes: int, alignment: int = _ALIGNMENT) -> NDArray:
    """Uninitialised bytes that begin at a multiple of `alignment`."""
    memory = np.empty(nbytes + alignment, np.uint8)
    skipped = -memory.ctypes.data % alignment
    return memory[skipped : skipped + nbytes]


def as_bytes(array: NDArray) -> NDArray:
    """The memory of a contiguous array as bytes."""
    return array.reshape(-1).view(np.uint8)


def make_view(memory: NDArray, view: View, offset: int = 0) -> NDArray:
    """The strided tensor `view` of bytes `memory`, from `offset` on."""
    spec: TensorSpec = view.spec
    if spec.size == 0:
        return np.empty(spec.shape, spec.dtype)
    return np.ndarray(spec.shape, spec.dtype, memory, offset + view.offset, view.strides)
