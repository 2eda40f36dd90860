"""Machine code for the memory planner's search: hands the compiler of this process down to lowering."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass

from nnc.backends.cpu.compiler.jit import Loaded, compiler
from nnc.lower.alloc.compiled import LOADER
from nnc.lower.kernels.native import Native


@dataclass(frozen=True, slots=True)
class _Held:
    """A compiled function, loaded as long as this is held."""

    function: Loaded
    call: Callable[[int], int]

    def __call__(self, address: int) -> int:
        return self.call(address)


def load(native: Native) -> Callable[[int], int] | None:
    """A kernel of one pointer as a function of an address; None where there is no compiler."""
    jit = compiler()
    if jit is None:
        return None
    (function,) = jit.load([native])
    return _Held(function, ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(function.address))


LOADER.load = load
