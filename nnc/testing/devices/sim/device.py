"""Simulated devices, `sim:0` and others.

They are for tests, and for machines without a GPU: a program that is right here moves all its data, and waits in all places
where a GPU would have it wait. Kernels are the CPU's, on the bytes behind the device's addresses, so that values are equal to the
CPU's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

import numpy as np

from nnc.base.source import SourceLine
from nnc.device.protocol import Block, Elements, NDArray
from nnc.errors import DeviceError, user_error
from nnc.testing.devices.sim.driver import SimDriver
from nnc.testing.devices.sim.memory import Lease, SimPool
from nnc.testing.devices.sim.streams import Queues, SimEvent, SimStream, Use

CAPACITY = 4 << 30  # bytes


class SimTransfer:
    """Copies between the host and a simulated device."""

    def to_device(self, source: NDArray, block: Block, stream: SimStream, first: int = 0) -> SimEvent:
        """Copies a host array to a block.

        Args:
            source: a contiguous array; it must not change until the copy is done.
            stream: the stream in which the copy is queued.
            first: the byte of the block at which the elements begin.
        """
        lease, data = block.owner, _bytes_of(source)
        end = first + data.nbytes

        def copy() -> None:
            lease.bytes[first:end] = data

        stream.launch("copy to the device", copy, [Use(lease, first, end, writes=True)])
        return stream.record()

    def to_host(self, block: Block, target: NDArray, stream: SimStream) -> SimEvent:
        """Copies the beginning of a block over a host array.

        Args:
            target: a contiguous array; its elements are known when the event is reached.
            stream: the stream in which the copy is queued.

        Raises:
            DeviceError: nothing was ever written to the block.
        """
        lease, data = block.owner, _bytes_of(target)
        lease.check(stream.queues, "copy to the host", None)
        with stream.queues.lock:
            is_filled = lease.uses.is_filled(0, data.nbytes)
        if data.nbytes and not is_filled:
            fix = "queue the work that writes it first."
            raise user_error(DeviceError, "copy to the host", f"nothing was written to {lease.describe()}.", fix=fix)

        def copy() -> None:
            data[...] = lease.bytes[: data.nbytes]

        outcome = stream.launch("copy to the host", copy, [Use(lease, 0, data.nbytes, writes=False)])
        return stream.record(outcome)


def _view(x: Elements) -> NDArray:
    """Returns the elements as an array of the host."""
    lease: Lease = x.block.owner
    elements: NDArray = lease.bytes.view(x.dtype).reshape(x.shape)
    return elements


def _bytes_of(array: NDArray) -> NDArray:
    """Returns the memory of a contiguous array, which the result shares."""
    return array.reshape(-1).view("u1")


class SimDevice:
    """A simulated device.

    Args:
        name: the device's name, such as "sim:0".
        seed: the seed of the order in which streams run.
        capacity: bytes of its memory.

    Example:
        >>> device = SimDevice("sim:7", capacity=1024)
        >>> device.pool.allocate(2048, device.stream)
        Traceback (most recent call last):
        ...
        nnc.errors.OutOfMemoryError: sim:7: 2,048 bytes do not fit: 0 of 1,024 are in use.
        ...
    """

    def __init__(self, name: str = "sim:0", seed: int = 0, capacity: int = CAPACITY) -> None:
        self.name = name
        self.queues = Queues(name, seed)
        self.pool = SimPool(self.queues, capacity)
        self.stream, self.sending = self.queues.new_stream(), self.queues.new_stream()
        self.transfer = SimTransfer()
        self.driver = SimDriver(self.queues, self.pool)

    def new_stream(self) -> SimStream:
        """Another stream."""
        return self.queues.new_stream()

    def synchronize(self) -> None:
        """Waits until all work is done."""
        self.queues.run_all()

    def current(self) -> AbstractContextManager[None]:
        """Does nothing: functions of the driver know their device."""
        return nullcontext()

    def host_memory(self, nbytes: int) -> NDArray:
        """Memory of the host that the device reads and writes.

        Args:
            nbytes: how many bytes.
        """
        return np.empty(nbytes, np.uint8)

    def wait(self, block: Block) -> None:
        """Waits until the work on a block is done.

        Args:
            block: a block of the pool.

        Raises:
            Exception: the work that should have written the block failed.
        """
        use = Use(block.owner, 0, block.nbytes, writes=False, has_gaps=True)  # it need not hold anything
        outcome = self.stream.launch("wait", lambda: None, [use])
        self.stream.record(outcome).wait()

    def allocate_all(self, sizes: Sequence[tuple[int, object]]) -> list[Block]:
        """Returns blocks for work in the device's own stream.

        Args:
            sizes: the bytes of each block, and a description of its content for messages.

        Raises:
            OutOfMemoryError: the device has none left; nothing is lost.
        """
        return [self.pool.allocate(nbytes, self.stream, label) for nbytes, label in sizes]

    def send_few(self, source: NDArray, block: Block) -> None:
        """Copies a host array, which may be changed as soon as this returns, to the beginning of a block.

        Args:
            source: contiguous.
            block: a block of the pool.
        """
        self.transfer.to_device(source.copy(), block, self.stream)

    def drop(self, block: Block) -> None:
        """Gives a block back behind all work on it, before the next allocation.

        Args:
            block: a block of the pool.
        """
        self.pool.drop(block, self.stream)

    def launch(
        self, name: str, function: Callable[[Sequence[NDArray]], Sequence[NDArray]], operands: Sequence[Elements],
        results: Sequence[Elements], source: SourceLine | None = None,
    ) -> None:  # fmt: skip
        """Queues a function of arrays in the device's own stream: it gets the bytes behind the addresses.

        Args:
            name: the work's name in messages.
            function: computes the results.
            operands: elements that it reads.
            results: elements that it computes.
            source: the user's line.
        """

        def run() -> None:
            for out, computed in zip(results, function([_view(x) for x in operands]), strict=True):
                _view(out)[...] = computed

        uses = [Use.whole(x.block.owner, writes=False) for x in operands]
        self.stream.launch(name, run, [*uses, *(Use.whole(x.block.owner, writes=True) for x in results)], source)

    def unplug(self) -> None:
        """Loses the device: any later use is an error."""
        self.queues.is_lost = True
