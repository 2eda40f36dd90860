"""The CPU as a device: its memory is Python's own, and all work is done when the function that was called returns."""

from __future__ import annotations

import numpy as np

from nnc.base.machine import check_memory
from nnc.base.options import CPU
from nnc.device.protocol import Block, Event, NDArray, Stream

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


class CpuEvent:
    """An event that is reached already."""

    def is_done(self) -> bool:
        """Returns True: the work before it was done when it was recorded."""
        return True

    def wait(self) -> None:
        """Returns at once."""


class CpuStream:
    """The calling thread."""

    def record(self) -> CpuEvent:
        """Returns an event that is reached."""
        return _DONE

    def wait_for(self, event: Event) -> None:
        """Waits for an event of another device."""
        event.wait()

    def synchronize(self) -> None:
        """Returns at once."""


class CpuPool:
    """Memory of this process, which the system gives and takes back."""

    def allocate(self, nbytes: int, stream: Stream, label: object = "") -> Block:
        """Returns a block of uninitialised bytes."""
        memory = aligned_bytes(max(nbytes, 1))  # NumPy gives an array without elements another address
        return Block(memory.ctypes.data, nbytes, memory)

    def free(self, block: Block, stream: Stream) -> None:
        """Does nothing: the block's owner frees it with its last reference."""


class CpuTransfer:
    """Copies within the memory of this process."""

    def to_device(self, source: NDArray, block: Block, stream: Stream, first: int = 0) -> CpuEvent:
        """Copies an array to a block."""
        block.owner[first : first + source.nbytes] = _as_bytes(source)
        return _DONE

    def to_host(self, block: Block, target: NDArray, stream: Stream) -> CpuEvent:
        """Copies the beginning of a block over an array."""
        _as_bytes(target)[:] = block.owner[: target.nbytes]
        return _DONE


def _as_bytes(array: NDArray) -> NDArray:
    """Returns the memory of a contiguous array, which the result shares."""
    return array.reshape(-1).view(np.uint8)


class Cpu:
    """The CPU. All of its threads are one device; a program's schedule and kernels decide how many it uses."""

    def __init__(self) -> None:
        self.name = CPU
        self.pool, self.stream, self.transfer = CpuPool(), CpuStream(), CpuTransfer()


_DONE = CpuEvent()
