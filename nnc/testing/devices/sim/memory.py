"""Memory of a simulated device: bytes of the host behind addresses that the host cannot read."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import deque
from typing import Any, NoReturn

from nnc.base.source import SourceLine
from nnc.device.cpu import aligned_bytes
from nnc.device.protocol import Block, NDArray
from nnc.errors import DeviceError, OutOfMemoryError, user_error
from nnc.testing.devices.sim.order import Uses
from nnc.testing.devices.sim.streams import Queues, SimEvent, SimStream, Use

ALIGNMENT = 256  # bytes, as on GPUs
_BASE = 0x7D00_0000_0000_0000  # no process has memory there
# freed blocks of a size that other streams may still use: sent arrays are two or three ahead of their use
_MOST_WAITING = 4
_POISON = 0xCD  # in memory that is new or was freed


class _Region:
    """A range of addresses with its bytes and their uses, leased to one block after the other."""

    def __init__(self, address: int, nbytes: int, stream: SimStream) -> None:
        self.address, self.bytes, self.stream = address, aligned_bytes(nbytes, ALIGNMENT), stream
        self.bytes[...] = _POISON
        self.uses = Uses(nbytes)
        self.freed: SimEvent | None = None  # behind the work of the last block there


class Lease:
    """The memory of one block, from its allocation until it is freed.

    Args:
        pool: gives the block, and takes it back.
        region: the range of addresses.
        nbytes: how many bytes the block has.
        label: the content of the block, for messages.

    Example:
        >>> from nnc.testing.devices.sim import SimDevice
        >>> device = SimDevice()
        >>> device.pool.allocate(8, device.stream, "weights").owner.describe()
        'weights (8 bytes on sim:0)'
    """

    def __init__(self, pool: SimPool, region: _Region, nbytes: int, label: object) -> None:
        self.pool, self.region, self.nbytes, self.label = pool, region, nbytes, label
        self.is_free = False
        self.error: Exception | None = None  # of the work that should have written the bytes

    @property
    def uses(self) -> Uses:
        """The last uses of its bytes."""
        return self.region.uses

    @property
    def bytes(self) -> NDArray:
        """The bytes, for work on the device."""
        return self.region.bytes[: self.nbytes]

    def check(self, queues: Queues, who: str, source: SourceLine | None) -> None:
        """Checks that work on a device may use the memory.

        Args:
            queues: the streams of the device.
            who: the work, for messages.
            source: the user's line; None where it is the present one.

        Raises:
            DeviceError: the memory is another device's, or was freed.
        """
        if self.pool.queues is not queues:
            problem = f"it runs on {queues.device} and uses {self.describe()}."
            fix = f"copy the array first: nnc.device_put(x, {queues.device!r})."
            raise user_error(DeviceError, who, problem, fix=fix, source=source)
        if self.is_free:
            fix = "keep the array until the work is queued."
            raise user_error(DeviceError, who, f"it uses {self.describe()}, which was freed.", fix=fix, source=source)

    def check_range(self, who: str, first: int, end: int, source: SourceLine | None) -> None:
        """Checks that bytes lie within the block.

        Args:
            who: the work, for messages.
            first: the first byte.
            end: the byte behind the last one.
            source: the user's line.

        Raises:
            DeviceError: some lie outside.
        """
        if first < 0 or end > self.nbytes:
            problem = f"it uses bytes {first} to {end} of {self.describe()}."
            raise user_error(DeviceError, who, problem, fix="pass the address of a larger block.", source=source)

    def describe(self) -> str:
        """Returns the block in words."""
        return f"{self.label or 'a block'} ({self.nbytes:,} bytes on {self.pool.queues.device})"

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise user_error(
            DeviceError,
            "np.asarray",
            f"the host reads {self.describe()}.",
            fix="copy it to the host: np.asarray(array).",
        )


class SimPool:
    """Memory of a simulated device. A freed block is taken again at once by the next work in its stream.

    Args:
        queues: the streams of the device.
        capacity: bytes of the device.

    Example:
        >>> from nnc.testing.devices.sim import SimDevice
        >>> device = SimDevice()
        >>> block = device.pool.allocate(8, device.stream)
        >>> device.pool.free(block, device.stream)
        >>> device.pool.allocate(8, device.stream).address == block.address
        True
    """

    def __init__(self, queues: Queues, capacity: int) -> None:
        self.queues, self.capacity = queues, capacity
        self.used = 0
        self._next = _BASE
        self._idle: list[_Region] = []
        self._live: dict[int, Lease] = {}  # by address
        self._starts: list[int] = []  # the same addresses, sorted
        self._dropped: deque[tuple[Block, SimStream]] = deque()

    def allocate(self, nbytes: int, stream: SimStream, label: object = "") -> Block:
        """Returns a block for work in a stream.

        Args:
            nbytes: its size.
            stream: where work on it will be.
            label: the content of the block, for messages.

        Raises:
            OutOfMemoryError: the device has none left; nothing is lost.
        """
        with self.queues.lock:
            self.queues.check(f"allocate {label or nbytes}")
            self._free_dropped()
            size = max(-(-nbytes // ALIGNMENT) * ALIGNMENT, ALIGNMENT)
            region = self._reuse(size, stream) or self._grow(size, nbytes, stream)
            lease = self._live[region.address] = Lease(self, region, nbytes, label)
            insort(self._starts, region.address)
            region.uses.empty()
            return Block(region.address, nbytes, lease)

    def free(self, block: Block, stream: SimStream) -> None:
        """Gives a block back.

        Args:
            block: a block of this pool.
            stream: work that is in it now may still use the block; work that is queued later must not.

        Raises:
            DeviceError: it was freed before, or another stream may still be using it.
        """
        with self.queues.lock:
            lease: Lease = block.owner
            lease.check(self.queues, "free", None)
            stream.launch("free", lambda: None, [Use.whole(lease, writes=True)])
            self._give_back(lease, stream)

    def drop(self, block: Block, stream: SimStream) -> None:
        """Gives back a block that nothing refers to any more, before the next allocation. It may be called at any time, also by
        the garbage collector in the middle of other work.

        Args:
            block: a block of this pool.
            stream: frees it, behind the work of all streams on it.
        """
        self._dropped.append((block, stream))

    def find(self, address: int) -> tuple[Lease, int]:
        """Returns the block that an address lies in, and how many bytes from its beginning.

        Args:
            address: the address, as `Block.address`.

        Raises:
            DeviceError: no block lies there.
        """
        with self.queues.lock:
            i = bisect_right(self._starts, address) - 1
            if i >= 0:
                lease, offset = self._live[self._starts[i]], address - self._starts[i]
                if offset < max(lease.nbytes, 1):
                    return lease, offset
        problem = f"address {address:#x} lies in no block of {self.queues.device}."
        fix = "pass the address of memory on the device, not of the host's."
        raise user_error(DeviceError, "find", problem, fix=fix)

    def largest(self, count: int = 5) -> list[Lease]:
        """Returns the largest blocks.

        Args:
            count: how many of them.
        """
        with self.queues.lock:
            return sorted(self._live.values(), key=lambda lease: -lease.nbytes)[:count]

    def _give_back(self, lease: Lease, stream: SimStream) -> None:
        lease.is_free = True
        lease.region.stream, lease.region.freed = stream, stream.record()
        del self._live[lease.region.address]
        del self._starts[bisect_left(self._starts, lease.region.address)]
        self.used -= lease.region.bytes.nbytes
        self._idle.append(lease.region)

    def _free_dropped(self) -> None:
        """Frees dropped blocks, in streams that wait for the work of others on them."""
        while self._dropped:
            block, stream = self._dropped.popleft()
            if block.owner.is_free:
                continue
            others = {work.stream for work in block.owner.uses.unfinished(stream.known())}
            for number in others - {stream.number}:
                stream.wait_for(self.queues.streams[number].record())
            self.free(block, stream)

    def _reuse(self, size: int, stream: SimStream) -> _Region | None:
        """Returns the memory that was freed last, where its last work comes before the stream's next. Where there is none, but
        much that waits for other streams: the memory that was freed first, and the stream waits, too.
        """
        alike = [region for region in reversed(self._idle) if region.bytes.nbytes == size]
        known = stream.known()
        over = (region for region in alike if region.stream is stream or not region.uses.unfinished(known))
        region = next(over, alike[-1] if len(alike) >= _MOST_WAITING else None)
        if region is None:
            return None
        if region.stream is not stream and region.freed is not None:
            stream.wait_for(region.freed)
        self._idle.remove(region)
        self.used += size
        region.stream = stream
        return region

    def _grow(self, size: int, nbytes: int, stream: SimStream) -> _Region:
        if self.used + sum(region.bytes.nbytes for region in self._idle) + size > self.capacity:
            self.queues.run_all()
            self._idle.clear()
        if self.used + size > self.capacity:
            problem = f"{nbytes:,} bytes do not fit: {self.used:,} of {self.capacity:,} are in use."
            operands = {"the largest:": ", ".join(lease.describe() for lease in self.largest())}
            fix = "drop arrays that are no longer needed, or compile with donate_argnums= or memory_budget=."
            raise user_error(OutOfMemoryError, self.queues.device, problem, operands=operands, fix=fix)
        region = _Region(self._next, size, stream)
        self._next += size + ALIGNMENT
        self.used += size
        return region
