"""Runs references on CuPy's arrays, which take part in NumPy's functions by its protocols: linear algebra by cuSOLVER, Fourier
transforms by cuFFT, products by cuBLAS.

Of a command with the column `any_arrays` no kernel is printed; its work is queued in the program's stream. CuPy computes nothing in
bfloat16, so such operands are widened to float32, and results are rounded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from nnc.base import dtypes
from nnc.base.dtypes import DType
from nnc.device import CUDA
from nnc.errors import NncError
from nnc.graph import Command, Kernel, add_kernel, reference
from nnc.graph.registry import any_arrays
from nnc.lower.kernels.references import store
from nnc.lower.plan.stages import Step, View
from nnc.run.executor import explain

BACKEND = "CuPy"

_QUIET_NAN = 0x7FC0  # of bfloat16


def _add(command: Command) -> None:
    """Adds the kernel of a command whose reference takes any arrays."""

    def run(inputs: Sequence[Any], outputs: Sequence[Any], params: Mapping[str, Any]) -> None:
        store(command, reference[command](*inputs, **params), outputs)

    add_kernel(command, Kernel(BACKEND, run, priority=1, device=CUDA, queue=queue))


def queue(step: Step, device: Any, precision: str) -> Callable[[Sequence[int], int], None]:
    """Returns the function that runs the reference of a step's command on CuPy's arrays.

    Args:
        precision: not used: CuPy computes in the operands' dtypes.
    """
    return queue_function(step, device, reference[step.command], step.outputs[: step.command.outputs])


def queue_function(
    step: Step, device: Any, function: Callable[..., Any], results: Sequence[View]
) -> Callable[[Sequence[int], int], None]:
    """Returns the function that runs a function of arrays on a step's operands, as CuPy's arrays.

    Args:
        function: a function of the step's inputs and parameters.
        results: the views that the function's results are written to: the step's outputs, without a workspace behind them.
    """
    return partial(_run, step, device, function, results)


def _run(
    step: Step, device: Any, function: Callable[..., Any], results: Sequence[View], addresses: Sequence[int], stream: int
) -> None:  # fmt: skip
    count = len(step.inputs)

    def compute(inputs: Sequence[Any], outputs: Sequence[Any], params: Mapping[str, Any]) -> None:
        found = function(*(widened(x, view.spec.dtype) for x, view in zip(inputs, step.inputs, strict=True)), **params)
        values = found if isinstance(found, tuple) else (found,)
        for view, out, value in zip(results, outputs, values, strict=True):
            out[...] = narrowed(value, view.spec.dtype)

    with device.arrays_in(stream):
        arrays = [array_of(device, view, at) for view, at in zip((*step.inputs, *results), addresses, strict=False)]
        try:
            compute(arrays[:count], arrays[count:], step.params)
        except NncError:
            explain(step, (compute, arrays[:count], arrays[count:], step.params))
            raise


def array_of(device: Any, view: View, address: int) -> Any:
    """Returns an operand as CuPy's array; the bits of bfloat16 as integers."""
    return device.view(address, view.spec.shape, bits_of(view), view.strides)


def bits_of(view: View) -> Any:
    """Returns the dtype as which CuPy moves the elements of a view."""
    return "u2" if view.spec.dtype == dtypes.bfloat16 else view.spec.dtype


def widened(x: Any, dtype: DType) -> Any:
    """Returns an array of this dtype in one that CuPy computes in."""
    return (x.astype(np.uint32) << np.uint32(16)).view(np.float32) if dtype == dtypes.bfloat16 else x


def narrowed(x: Any, dtype: DType) -> Any:
    """Returns the elements of a result in memory of this dtype; of bfloat16 the bits: of two neighbours the nearer, else the
    even one.
    """
    if dtype != dtypes.bfloat16:
        return x
    bits = x.astype(np.float32, order="C", copy=False).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    return np.where(x == x, rounded, np.uint32(_QUIET_NAN)).astype(np.uint16)


any_arrays.follow(_add)
