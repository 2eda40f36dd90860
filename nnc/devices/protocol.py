"""The interface of a device: memory, streams of work, events between them, and copies.

A memory plan gives offsets within an arena, and a schedule gives streams and signals; neither knows where the arena lies. An
executor binds both to a device: it takes a block of the device's pool, puts the steps of each stream into one of the device's
streams, and turns signals into events. Work is asynchronous: a function that takes a stream returns before the work is done,
and the order between streams is set by events, and by nothing else. On a CPU all work is done when the function returns.

Kernels and compilers are chosen by the *kind* of a device, and stand in `nnc.backends`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

NDArray = np.ndarray[Any, Any]

CPU = "cpu"  # the kind and the name of the device whose memory Python reads; the only place that spells it


@dataclass(frozen=True, slots=True)
class Block:
    """Contiguous memory of one device.

    Attributes:
        address: of the first byte, as the device's own code sees it.
        nbytes: how many bytes.
        owner: keeps the memory as long as it lives.
    """

    address: int
    nbytes: int
    owner: Any


def kind_of(device: str) -> str:
    """Returns the kind of a device, by which kernels and compilers are chosen: its name without the number.

    Args:
        device: its name.
    """
    return device.partition(":")[0]


class Event(Protocol):
    """A mark in a stream, reached when all the work before it is done."""

    def is_done(self) -> bool:
        """Returns whether the mark is reached, without waiting."""
        ...

    def wait(self) -> None:
        """Waits, on the calling thread, until the mark is reached."""
        ...


class Stream(Protocol):
    """A queue of work, done in its order."""

    def record(self) -> Event:
        """Marks the place behind the work that is in the queue now."""
        ...

    def wait_for(self, event: Event) -> None:
        """Lets the work that follows begin only when the event is reached; the calling thread goes on.

        Args:
            event: of this stream or another one.
        """
        ...

    def synchronize(self) -> None:
        """Waits until the queue is empty."""
        ...


class Pool(Protocol):
    """The memory of a device, in blocks."""

    def allocate(self, nbytes: int, stream: Stream) -> Block:
        """Returns a block for work in a stream, aligned for any element.

        Args:
            nbytes: its size.
            stream: where work on it will be.

        Raises:
            MemoryError: the device has none left.
        """
        ...

    def free(self, block: Block, stream: Stream) -> None:
        """Gives a block back.

        Args:
            block: of this pool.
            stream: work that is in it now may still use the block; later work may get it anew.
        """
        ...


class Transfer(Protocol):
    """Copies between the host and the device. The host's array must stay as it is until the copy is done."""

    def to_device(self, source: NDArray, block: Block, stream: Stream) -> Event:
        """Copies the elements of a host array to the beginning of a block.

        Args:
            source: contiguous.
            block: of the device.
            stream: where the copy takes its turn.
        """
        ...

    def to_host(self, block: Block, target: NDArray, stream: Stream) -> Event:
        """Copies the beginning of a block over a host array.

        Args:
            block: of the device.
            target: contiguous.
            stream: where the copy takes its turn.
        """
        ...


class Device(Protocol):
    """A place where programs run."""

    @property
    def name(self) -> str:
        """The name as users write it: "cpu", "cuda:0"."""
        ...

    @property
    def pool(self) -> Pool:
        """Its memory."""
        ...

    @property
    def stream(self) -> Stream:
        """The stream that work goes to by default."""
        ...

    @property
    def transfer(self) -> Transfer:
        """Its copies."""
        ...
