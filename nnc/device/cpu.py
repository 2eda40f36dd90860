"""The CPU as a device: its memory is the process's own, and all work is done when the function that was called returns."""

from __future__ import annotations

import numpy as np

from nnc.base.machine import check_memory
from nnc.base.options import CPU
from nnc.device.protocol import NDArray

ALIGNMENT = 64  # bytes: a cache line, and the widest vector


def aligned_bytes(nbytes: int, alignment: int = ALIGNMENT) -> NDArray:
    """Returns uninitialised bytes that begin at a multiple of `alignment`.

    Raises:
        MemoryError: the system does not give them.
    """
    check_memory(nbytes)
    memory = np.empty(nbytes + alignment, np.uint8)
    skipped = -memory.ctypes.data % alignment
    return memory[skipped : skipped + nbytes]


class Cpu:
    """The CPU. All of its threads are one device; a program's schedule and kernels decide how many it uses."""

    name = CPU
