"""Elements of arrays on a device, and their way there and back."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from nnc.base.fork import new_lock
from nnc.device.protocol import SENT_AT_ONCE, Accelerator, Block, Event, NDArray

STAGED_BYTES = 8 << 20  # of one buffer: copies of fewer bytes do not reach the speed of the bus
_BUFFERS = 2  # one is filled while the other is sent


class DeviceMemory:
    """A block of a device's memory with the elements of one array. It is freed with the last reference.

    Args:
        block: a block of the device's pool.

    Attributes:
        is_shared: whether another library shares the memory, and may write to it.
    """

    __slots__ = ("_host", "block", "device", "is_shared")

    def __init__(self, device: Accelerator, block: Block) -> None:
        self.device, self.block, self.is_shared = device, block, False
        self._host: NDArray | None = None  # the elements, once the host has asked for them

    def fetch(self, shape: tuple[int, ...], dtype: Any) -> NDArray:
        """Waits for the elements, and returns them as a read-only host array."""
        if self._host is None:
            host = np.empty(shape, dtype)
            self.device.transfer.to_host(self.block, host, self.device.stream).wait()
            host.flags.writeable = False
            if self.is_shared:
                return host
            self._host = host
        return self._host

    def share(self) -> None:
        """Notes that another library has the memory, too: the host's copy may be out of date at any time, and no program writes
        over it.
        """
        self.is_shared, self._host = True, None

    def forget(self) -> None:
        """Drops the copy that the host has: the elements will be others."""
        self._host = None

    def __del__(self) -> None:
        self.device.drop(self.block)


class Staging:
    """Sends host arrays to a device through staging memory, which the device can read at any time: the caller need not wait."""

    def __init__(self, device: Accelerator) -> None:
        self._device, self._lock = device, new_lock()
        self._buffers: deque[tuple[NDArray, Event | None]] = deque()

    def send(self, source: NDArray, label: object) -> DeviceMemory:
        """Copies a host array to the device. The caller may write to the array as soon as this returns.

        The copy of a large array waits only for work on the staging memory. Later work in the device's own stream sees the
        elements.

        Args:
            source: an array of any layout.
            label: describes the memory's content in messages.

        Returns:
            the memory in which the elements will be.

        Raises:
            OutOfMemoryError: the device has none left.
        """
        device, data = self._device, np.ascontiguousarray(source).reshape(-1).view(np.uint8)
        if data.nbytes <= SENT_AT_ONCE:
            memory = DeviceMemory(device, device.pool.allocate(data.nbytes, device.stream, label))
            device.send_few(data, memory.block)
            return memory
        with self._lock:
            memory = DeviceMemory(device, device.pool.allocate(data.nbytes, device.sending, label))
            for first in range(0, data.nbytes, STAGED_BYTES):
                part = data[first : first + STAGED_BYTES]
                buffer = self._idle_buffer()
                buffer[: part.nbytes] = part
                event = device.transfer.to_device(buffer[: part.nbytes], memory.block, device.sending, first)
                self._buffers.append((buffer, event))
                device.stream.wait_for(event)
        return memory

    def finish(self) -> None:
        """Waits until all copies are done, after which the buffers may be dropped."""
        with self._lock:
            for _, event in self._buffers:
                if event is not None:
                    event.wait()

    def _idle_buffer(self) -> NDArray:
        """Returns a buffer that nobody reads any more."""
        if len(self._buffers) < _BUFFERS:
            return self._device.host_memory(STAGED_BYTES)
        buffer, event = self._buffers.popleft()
        if event is not None:
            event.wait()
        return buffer
