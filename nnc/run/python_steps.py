"""Runs steps of a device's program from Python, on arrays of the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.lib.stride_tricks import as_strided

from nnc.errors import NncError
from nnc.lower.plan.stages import NDArray, Step, View
from nnc.run.executor import Run, explain
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
