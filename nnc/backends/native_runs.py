"""Runs native kernels on NumPy arrays, without a program: those of all backends that call or print code for the CPU.

The record of the device (`nnc/compiled/device_kinds.py`) hands the compiler of the CPU in, so that no backend imports another one.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from nnc.backends.numpy_ref import Arrays, Params, Run, reference_kernel
from nnc.device import load_kernels
from nnc.device.cpu import aligned_bytes
from nnc.errors import InternalError
from nnc.graph import TensorSpec, command, infer_specs, reference
from nnc.lower.kernels.native import KernelState, Native
from nnc.lower.plan.stages import NDArray, Step, View

_PACKED = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)
_RUNS_KEPT = 1024  # of one command; then all are dropped


def cpu_compiler() -> Any:
    """Returns the CPU's compiler; None where LLVM cannot be loaded."""
    return load_kernels().compiler()


def run_native(native: Callable[[Step], Native | None], command_name: str) -> Run:
    """Turns the `native` of a kernel into its `run`, on NumPy arrays: `run(inputs, outputs, params)`.

    Machine code is made for the shapes and strides of the first call and used for all that follow. Inputs that `native` does not
    take, and everything where there is no compiler, is run by NumPy.
    """
    runs: dict[Any, tuple[Run, Params]] = {}  # holds the parameters, so that no other object gets their id

    def run(inputs: Arrays, outputs: Arrays, params: Params) -> None:
        inputs = [x if type(x) is np.ndarray else np.asarray(x) for x in inputs]  # NumPy's scalars have another layout
        layouts = tuple([(x.shape, x.strides, x.dtype) for x in (*inputs, *outputs)])
        found = runs.get((id(params), layouts))
        if found is None:
            if len(runs) >= _RUNS_KEPT:
                runs.clear()
            found = runs[id(params), layouts] = _make_run(native, command_name, inputs, outputs, params, run), params
        found[0](inputs, outputs, params)

    return run


def _make_run(
    native: Callable[[Step], Native | None],
    command_name: str,
    inputs: Arrays,
    outputs: Arrays,
    params: Params,
    again: Run,
) -> Run:
    """Makes the function that runs a command on arrays of these shapes and strides. Where elements of some lie at addresses that
    are no multiples of their size, `again` runs it on copies.
    """
    wanted = command(command_name)
    step = Step(wanted, tuple(map(_view, inputs)), tuple(map(_view, outputs)), params)
    # Tapes hold Python's objects, whose references compiled code does not count.
    jit = None if any(x.dtype.hasobject for x in (*inputs, *outputs)) else cpu_compiler()
    made = native(step) if jit is not None else None
    if jit is None or made is None:
        refer = reference_kernel(wanted, step.input_specs, params).run
        results = len(infer_specs(wanted, step.input_specs, params))  # workspace may follow the results
        return lambda inputs, outputs, params: refer(inputs, outputs[:results], params)
    (function,) = jit.load([made])
    arrays, numbers = len(inputs) + len(outputs), made.numbers
    call = (
        functools.partial(_call_packed, arrays)
        if made.packed
        else jit.caller(arrays, made.state is not None, len(numbers))
    )
    states = _States(made.state, made.scratch) if made.state is not None else None

    def run(inputs: Arrays, outputs: Arrays, params: Params) -> None:
        state = 0 if states is None else states.address()
        if not call(function.address, state, *inputs, *outputs, *numbers):
            return
        if all(x.flags.aligned for x in (*inputs, *outputs)):
            reference[wanted](*inputs, **params)
            raise InternalError(f"{command_name}: the native kernel refused operands that the reference takes")
        results = [x.copy() for x in outputs]
        again([x.copy() for x in inputs], results, params)
        for output, result in zip(outputs, results, strict=True):
            np.copyto(output, result)

    return run


def _call_packed(arrays: int, address: int, state: int, *operands: Any) -> int:
    """Calls a kernel that takes a table; `operands` are so many arrays, then numbers. Returns its status, 1 as `Jit.caller`."""
    if not all(array.flags.aligned for array in operands[:arrays]):
        return 1
    words = [*operands[arrays:], *(array.ctypes.data for array in operands[:arrays])]
    return int(_PACKED(address)((ctypes.c_int64 * len(words))(*words)))


def _view(array: NDArray) -> View:
    return View(0, TensorSpec(array.shape, array.dtype), 0, array.strides)


class _States(threading.local):
    """The state of a kernel, one for each thread."""

    def __init__(self, make: Callable[[int], KernelState], scratch: int) -> None:
        self._scratch = aligned_bytes(scratch)
        self._state = make(self._scratch.ctypes.data)

    def address(self) -> int:
        """Returns the address of this thread's state."""
        return self._state.address
