"""Calls one compiled kernel from Python, on arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

from nnc.errors import InternalError
from nnc.lower.kernels.native import Function, KernelState, Native

Kernel = Callable[..., None]


class NativeCall:
    """A compiled kernel with its state.

    Args:
        function: the kernel's machine code.
        scratch: the address of as much scratch memory as the kernel needs.
    """

    def __init__(self, native: Native, function: Function, scratch: int) -> None:
        self._native, self._function = native, function
        self._state: KernelState | None = native.state(scratch) if native.state is not None else None

    def __call__(self, kernel: Kernel, inputs: Sequence[Any], outputs: Sequence[Any], params: Any) -> None:
        """Runs it on arrays; where it refuses them, Python's kernel words the error."""
        pointers = [x.ctypes.data for x in (*inputs, *outputs)]
        state = [] if self._state is None else [self._state.address]
        if self._call(pointers, state, self._native.numbers):
            kernel(inputs, outputs, params)
            raise InternalError("a compiled kernel refused operands that Python's kernel takes")

    def _call(self, pointers: list[int], state: list[int], numbers: Sequence[int]) -> int:
        if self._native.packed:
            table = (ctypes.c_int64 * (len(numbers) + len(pointers)))(*numbers, *pointers)
            pointers, numbers = [ctypes.addressof(table)], ()
        given = [*pointers, *state, *numbers]  # addresses and sizes are words alike
        return int(ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * len(given))(self._function.address)(*given))
