"""Runs steps of a device's program from Python, on arrays of the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from nnc.device.cpu import aligned_bytes
from nnc.errors import NncError
from nnc.lower.plan.liveness import touched
from nnc.lower.plan.stages import Kind, NDArray, Step, View
from nnc.run.executor import Executor, PythonSteps, Run, as_bytes, explain
from nnc.run.program import Program


class Tapes:
    """The tapes of a program: lists of Python objects that grow, and lie in no device's memory."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._handles: dict[int, NDArray] = {}  # by buffer

    def array(self, view: View) -> NDArray:
        """Returns the array of a view of a tape."""
        spec = self._program.bound.buffers[view.buffer].symbol.spec
        handle = self._handles.setdefault(view.buffer, np.empty(spec.shape, spec.dtype))
        return as_strided(handle, view.spec.shape, view.strides)

    def clear(self) -> None:
        """Drops all elements."""
        for handle in self._handles.values():
            handle[...] = None


def run_region(step: Step, program: Program, arrays: Sequence[NDArray]) -> None:
    """Runs a loop or a branch that is one kernel by the references of its steps, for the error of a step that refuses its operands.

    Args:
        arrays: the buffers that it touches, in the order of their numbers; they stay as they are.

    Raises:
        NncError: a step refuses its operands; the message names the user's line.
    """
    bound, outside = program.bound, program.outside
    executor = Executor(outside, program.parts, aligned_bytes(program.arena_bytes))
    places: dict[Kind, list[Any]] = {
        Kind.INPUT: [None] * len(outside.inputs), Kind.OUTPUT: [None] * len(outside.made)
    }  # fmt: skip
    for number, array in zip(sorted(touched((step,))), arrays, strict=True):
        buffer, content = bound.buffers[number], as_bytes(np.ascontiguousarray(array))
        fixed = executor.fixed(number)
        if fixed is None:
            places[buffer.kind][buffer.index] = content.copy()
        elif buffer.kind is not Kind.CONSTANT:
            fixed[...] = content
    executor.made = places[Kind.OUTPUT]
    executor.begin(places[Kind.INPUT])
    with np.errstate(all="ignore"):
        PythonSteps(executor, (step,))()


def run_step(step: Step, kernel: Callable[..., None], arrays: Sequence[NDArray]) -> None:
    """Runs a step without NumPy's warnings of infinities and NaNs, as programs of the CPU do.

    Args:
        kernel: computes the step's outputs.
        arrays: the step's inputs, then its outputs.

    Raises:
        NncError: the step refuses its operands; the message names the user's line.
    """
    count = len(step.inputs)
    bound: Run = kernel, list(arrays[:count]), list(arrays[count:]), step.params
    with np.errstate(all="ignore"):
        try:
            kernel(*bound[1:])
        except NncError:
            explain(step, bound)
            raise
