"""Another library's arrays on the stand-in: each library has a stream of its own, and says by DLPack which work comes first."""

from __future__ import annotations

from typing import Any

import numpy as np

from nnc.base.dtypes import bfloat16
from nnc.device import Block
from nnc.device.dlpack import capsule_of, load
from nnc.testing.devices.sim import Use
from tests.devices.cuda.arrays import Owner
from tests.devices.cuda.machine import Host, Machine


class Library:
    """Another library that uses a device.

    Args:
        machine: has the device.
        handle: of its stream; by default one of its own.
    """

    def __init__(self, machine: Machine, handle: int | None = None) -> None:
        self.machine, sim = machine, machine.sim
        self.stream = sim.new_stream() if handle is None else sim.queues.streams[handle - 1]
        self.handle = self.stream.number + 1

    def order(self, first: int, second: int) -> None:
        """Lets the work of a stream wait for that of another."""
        driver = self.machine.sim.driver
        event = driver.new_event()
        driver.cuEventRecord(event, first)
        driver.cuStreamWaitEvent(second, event, 0)

    def array(self, values: Any, first: int = 0) -> Tensor:
        """Values that are written late; in front of them lie some bytes."""
        block = self.machine.sim.pool.allocate(first + values.nbytes, self.stream)
        lease = block.owner
        held = np.ndarray(values.shape, values.dtype, lease.bytes, first)
        self.stream.launch("write", lambda: lease.bytes.fill(0), [Use.whole(lease, writes=True)])
        self.stream.launch("write", lambda: np.copyto(held, values), [Use.whole(lease, writes=True)])
        return Tensor(self, held, block)

    def from_dlpack(self, x: Any, **options: Any) -> Tensor:
        """Takes over another library's array."""
        capsule = x.__dlpack__(stream=self.handle, **options)
        return Tensor(self, load(Host(capsule)))


class Tensor:
    """An array of another library.

    Args:
        library: uses it.
        held: the elements, on the bytes of the device.
        owner: a block of the device's memory, or another object that keeps the elements.
    """

    def __init__(self, library: Library, held: Any, owner: Any = None) -> None:
        self.library, self.held, self._owner = library, held, owner
        self.lease = library.machine.lease_of(held)

    def read(self) -> list[Any]:
        """A list to which the values are added late."""
        found: list[Any] = []
        held, use = self._elements(), Use.whole(self.lease, writes=False)
        self.library.stream.launch("read", lambda: found.append(held.copy()), [use])
        return found

    def fill(self, value: float) -> None:
        """Writes a number to all elements, late."""
        held = self._elements()
        self.library.stream.launch("fill", lambda: held.fill(value), [Use.whole(self.lease, writes=True)])

    def _elements(self) -> Any:
        """The elements for queued work, which does not keep the memory."""
        first = self.held.ctypes.data - self.lease.bytes.ctypes.data
        return np.ndarray(self.held.shape, self.held.dtype, self.lease.bytes, first, self.held.strides)

    def __del__(self) -> None:
        if isinstance(self._owner, Block):  # as PyTorch's pool does, which orders its own stream alone
            self.library.machine.sim.pool.free(self._owner, self.library.stream)

    def __dlpack__(self, *, stream: int, max_version: Any = None, copy: Any = None) -> Any:
        if stream != self.library.handle:
            self.library.order(self.library.handle, stream)
        is_bfloat16 = self.held.dtype == bfloat16
        words = Tensor(self.library, self.held.view(np.uint16), self) if is_bfloat16 else self
        return capsule_of(np.asarray(Owner(words)), is_bfloat16, max_version=max_version)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, int(self.library.machine.name.partition(":")[2])
