"""Memory of CUDA's devices, in blocks of CuPy's pool, which other users of CuPy share.

A block of CuPy's pool belongs to the stream for which it was allocated: a freed block is taken again by later work in that stream
alone. Blocks for arrays that are sent from the host are read in the device's own stream, too. They go back to the pool once
that work is done.

Work that refuses its operands, an index that is out of range for instance, says so in a status word, which the host reads later. So
each block knows the calls on whose success its content depends: `Completion`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from nnc.base.fork import new_rlock
from nnc.device.cuda.context import Context, CudaEvent, CudaStream, Handle
from nnc.device.protocol import Block, Event, NDArray
from nnc.errors import OutOfMemoryError, user_error

ALIGNMENT = 256
"""Bytes of which addresses of blocks are multiples, and of the smallest block: it is never empty, so that each has an address.

Example:
    >>> ALIGNMENT
    256
"""
UNKNOWN = -1
"""The handle, as `__dlpack__` is told, of a stream that another library keeps for itself.

Example:
    >>> UNKNOWN
    -1
"""
_DEFAULT = 1  # the handle of the stream that CUDA uses by itself
_NOBODY: frozenset[int | None] = frozenset()
# Streams of other libraries that are never destroyed: those of CUDA by itself.
_LASTING = frozenset((None, 0, _DEFAULT, 2))


class Completion:
    """Tells whether a call succeeded, by its status words.

    Args:
        event: an event behind the call, and behind the copy of its status words to the host.
        words: the copy; each is 0 where all is well.
        word_error: makes the error, given the number of the first other word.

    Example:
        >>> from nnc.device import find_device
        >>> event = find_device("sim:0", "example").stream.record()
        >>> event.wait()
        >>> Completion(event, np.zeros(2), lambda i: ValueError(f"word {i}")).is_known_fine()
        True
    """

    def __init__(self, event: Event, words: NDArray, word_error: Callable[[int], BaseException]) -> None:
        self._event, self._words, self._word_error = event, words, word_error
        self._is_fine = False
        self._error: BaseException | None = None

    def is_known_fine(self) -> bool:
        """Whether the call is known to be right, without waiting."""
        if not self._is_fine and self._error is None and self._event.is_done():
            self._is_fine = not self._words.any()
        return self._is_fine

    def check(self) -> None:
        """Waits for the call.

        Raises:
            Exception: it refused an operand.
        """
        if self._is_fine:
            return
        self._event.wait()
        if self._error is None and self._words.any():
            self._error = self._word_error(int(self._words.argmax()))
        if self._error is not None:
            raise self._error.with_traceback(None)
        self._is_fine = True


class Lease:
    """The memory of one block.

    Args:
        pointer: keeps the memory: CuPy's pointer, or another library's array.
        stream: for which CuPy allocated it; None for memory of another library.

    Example:
        >>> Lease(None, None).pending()  # nothing has written the block yet
        ()
    """

    __slots__ = ("completions", "pointer", "readers", "stream")

    def __init__(self, pointer: Any, stream: CudaStream | None) -> None:
        self.pointer, self.stream = pointer, stream
        self.readers = _NOBODY  # streams in which other libraries work on it, as `__dlpack__` is told
        self.completions: tuple[Completion, ...] = ()  # calls on which it depends, which may be done by now

    def depend_on(self, completions: Iterable[Completion]) -> None:
        """Notes the calls that write the block, and those on which their operands depend.

        Args:
            completions: the completions of the calls.
        """
        self.completions = tuple(completions)

    def pending(self) -> tuple[Completion, ...]:
        """Returns the calls that are not known to be right."""
        if self.completions:
            self.completions = tuple(each for each in self.completions if not each.is_known_fine())
        return self.completions

    def check(self) -> None:
        """Waits for the calls on which the block depends.

        Raises:
            Exception: one of them refused an operand.
        """
        for each in self.completions:
            each.check()


class CudaPool:
    """Memory of a device.

    Args:
        stream: the device's own stream, in which all blocks are used.
    """

    def __init__(self, context: Context, stream: CudaStream) -> None:
        self._context, self._stream, self._lock = context, stream, new_rlock()
        self._memory = context.cupy.get_default_memory_pool()
        self._exhaustion = context.cupy.cuda.memory.OutOfMemoryError
        self._dropped: deque[Lease] = deque()
        self._waiting: deque[tuple[CudaEvent, Lease]] = deque()

    def allocate(self, nbytes: int, stream: CudaStream, label: object = "") -> Block:
        """Returns a block for work in a stream.

        Args:
            stream: the stream in which work on the block begins.
            label: describes the block's content in messages.

        Raises:
            OutOfMemoryError: the device has none left; nothing is lost.
        """
        with self._context.current("allocate"):
            (block,) = self.allocate_all([(nbytes, label)], stream)
        return block

    def allocate_all(self, sizes: Sequence[tuple[int, object]], stream: CudaStream) -> list[Block]:
        """Returns blocks for work in a stream. The device must be current.

        Args:
            sizes: the bytes of each block, and a description of its content for messages.
            stream: the stream in which work on the blocks begins.

        Raises:
            OutOfMemoryError: the device has none left; nothing is lost.
        """
        with self._lock, stream.stream:
            if self._dropped or self._waiting:
                self._free_dropped()
            return [self._allocate(nbytes, label, stream) for nbytes, label in sizes]

    def _allocate(self, nbytes: int, label: object, stream: CudaStream) -> Block:
        size = max(nbytes, ALIGNMENT)
        try:
            pointer = self._memory.malloc(size)
        except self._exhaustion:
            self._wait_for_all()
            try:
                pointer = self._memory.malloc(size)
            except self._exhaustion:
                raise self._exhausted(nbytes, label) from None
        return Block(int(pointer.ptr), nbytes, Lease(pointer, stream))

    @property
    def capacity(self) -> int:
        """All bytes of the device, free or not."""
        with self._context.current():
            return int(self._context.cupy.cuda.runtime.memGetInfo()[1])

    def free(self, block: Block, stream: CudaStream) -> None:
        """Frees a block; the work that is in the stream now may still use it."""
        self._stream.wait_for(stream.record())
        self.drop(block)

    def drop(self, block: Block) -> None:
        """Frees a block before the next allocation, behind all work that is in the device's own stream by then."""
        self.hold(block.owner)

    def hold(self, lease: Lease) -> None:
        """Holds a lease of memory until all work is done that is in the device's own stream before the next allocation."""
        self._dropped.append(lease)

    def _free_dropped(self) -> None:
        """Hands dropped blocks back: those of the device's own stream at once, as later work there comes behind their last use,
        also by other libraries; others when their last use is over.
        """
        mark: CudaEvent | None = None
        while self._dropped:
            lease = self._dropped.popleft()
            if lease.readers:
                self._wait_behind(lease.readers)
                mark = None
            if lease.stream is not self._stream:
                mark = mark or self._stream.record()
                self._waiting.append((mark, lease))
        while self._waiting and self._waiting[0][0].is_done():
            self._waiting.popleft()

    def _wait_behind(self, streams: Collection[int | None]) -> None:
        """Makes the device's own stream wait for work of other libraries.

        Args:
            streams: their numbers, as `__dlpack__` takes them. For a stream that may have been destroyed since, the host waits
                for the whole device instead.
        """
        cuda = self._context.cupy.cuda
        if not _LASTING.issuperset(streams):
            cuda.runtime.deviceSynchronize()
            return
        for stream in streams:
            self._stream.stream.wait_event(
                cuda.Stream.from_external(Handle(stream or _DEFAULT)).record(cuda.Event(disable_timing=True))
            )

    def _wait_for_all(self) -> None:
        for event, _ in self._waiting:
            event.wait()
        self._waiting.clear()
        with self._context.current():
            self._memory.free_all_blocks()

    def _exhausted(self, nbytes: int, label: object) -> OutOfMemoryError:
        with self._context.current():
            free, total = self._context.cupy.cuda.runtime.memGetInfo()
            used = self._memory.used_bytes()
        problem = (
            f"{nbytes:,} bytes for {label or 'a block'} do not fit: {used:,} are in use by this process, and {free:,} of {total:,} "
            "are free."
        )
        fix = "drop arrays that are no longer needed, or compile with donate_argnums= or memory_budget=."
        return user_error(OutOfMemoryError, self._context.name, problem, fix=fix)
