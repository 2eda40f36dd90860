"""Compiled functions that Python calls by themselves, such as the search of the memory planner."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass

from nnc.backends.cpu.compiler.jit import Loaded, compiler
from nnc.lower.kernels.native import Native


@dataclass(frozen=True, slots=True)
class _Held:
    """A compiled function, loaded as long as this is held."""

    function: Loaded
    call: Callable[[int], int]

    def __call__(self, address: int) -> int:
        return self.call(address)


def load_function(native: Native) -> Callable[[int], int] | None:
    """A kernel of one pointer as a function of an address; None where there is no compiler."""
    jit = compiler()
    if jit is None:
        return None
    (function,) = jit.load([native])
    return _Held(function, ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(function.address))
