"""Prefetches memory: threads touch the pages that the first call of a program writes to, while the program is being made.

The first write to a page of memory waits for the system, and in a virtual machine for its host, too: a first call may wait longer
for pages than it computes. Memory that was made as zeros costs still more where a program reads it before it writes to it, since
its pages are faulted twice. So the donated arrays of a call are touched while its function is traced, and with them an arena of the
size that the last call like this one needed, if a file tells it. The rest of its frame's memory is touched once its size is known:
while code is compiled or loaded, and while the program runs, ahead of its own writes.

A program may not overwrite memory that others see, such as parameters that lie in memory of NumPy's. Donated arrays whose memory
others see are copied meanwhile.
"""

from __future__ import annotations

import _thread
import ctypes
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from nnc.array.array import Array
from nnc.base.fork import reset_after_fork
from nnc.base.machine import available_memory, usable_threads
from nnc.base.target import Memory
from nnc.device.cpu import aligned_bytes
from nnc.lower.plan.stages import NDArray
from nnc.run.background import in_background
from nnc.run.native_frame import CallMemory
from nnc.run.native_program import ProgramAbi
from nnc.run.packed_weights import is_alone
from nnc.run.store.cache import CacheEntry


class _Work(NamedTuple):
    """The work of one thread: it copies arrays whose elements are `seen` by others to memory of their own, and
    touches other arrays.
    """

    copied: Sequence[Array]
    seen: Sequence[NDArray]
    touched: Sequence[NDArray]

    @property
    def nbytes(self) -> int:
        """The bytes that are written to."""
        return sum(array.nbytes for array in (*self.seen, *self.touched))

    def fetch(self, address: int, stop: ctypes.c_int32) -> None:
        """Copies and touches until it is done or stopped."""
        copies = [np.empty(source.shape, source.dtype) for source in self.seen]
        pairs = [*zip(copies, self.seen, strict=True), *zip(self.touched, self.touched, strict=True)]
        words = [word for to, source in pairs for word in (to.ctypes.data, source.ctypes.data, to.nbytes)]
        function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)(address)
        done = function((ctypes.c_int64 * len(words))(*words), len(pairs), ctypes.addressof(stop))
        for array, copied in list(zip(self.copied, copies, strict=True))[:done]:
            array.move(copied)


class Preparing:
    """Touches and copies memory in threads of its own until it is told to stop.

    Args:
        find: returns the address of the compiled function `nnc_prepare`, for which it may wait; None where there is none.
    """

    def __init__(self, find: Callable[[], int | None], memory: Memory) -> None:
        self._find, self._memory, self._stop = find, memory, ctypes.c_int32(0)
        self._changed = threading.Condition()
        self._waiting: list[_Work] = []  # one item for each thread, which may start too late
        self._running = 0
        reset_after_fork(self)

    def after_fork(self) -> None:
        """Drops the threads, which a forked process does not have."""
        self._changed = threading.Condition()
        self._waiting.clear()
        self._running = 0

    def begin(self, touched: Sequence[NDArray], copied: Sequence[Array] = ()) -> None:
        """Touches contiguous arrays that lie in memory of Python's own, and gives others such memory, unless memory is short."""
        work = _Work(copied, [array.data for array in copied], touched)
        if _is_worth_it(work.nbytes, self._memory):
            self._waiting.append(work)
            # In this context: files that it has to write wait, too. Threads of `threading` are waited for until they have come.
            _thread.start_new_thread(copy_context().run, (self._fetch,))

    def stop(self) -> None:
        """Stops all threads, which then hold no array."""
        with self._changed:
            self._stop.value = 1
            self._waiting.clear()
            self._changed.wait_for(lambda: not self._running)
            self._stop.value = 0

    def _fetch(self) -> None:
        address = self._find()  # nothing is held meanwhile
        with self._changed:
            if address is None or not self._waiting:
                self._waiting.clear()
                return
            work = self._waiting.pop(0)
            self._running += 1
        try:
            work.fetch(address, self._stop)
        finally:
            del work
            with self._changed:
                self._running -= 1
                self._changed.notify_all()


def _is_worth_it(nbytes: int, memory: Memory) -> bool:
    """Whether to prefetch so many bytes, beside the caller: neither too few nor too many for the free memory."""
    if nbytes < memory.least_prefetched_bytes or usable_threads() == 1:
        return False
    available = available_memory()
    return available is not None and nbytes <= available // memory.prefetched_share


class Prefetcher:
    """Prefetches the memory that a program's call will write to while the program is made, within a block.

    Donated and returned arrays must not be held by threads when the call runs, so their prefetch ends with the block.
    The arena is touched further beside the run, unless there will be none.
    """

    def __init__(self, find: Callable[[], int | None], memory: Memory) -> None:
        self.room: CallMemory | None = None
        self._memory = memory
        self.arrays, self.arena = Preparing(find, memory), Preparing(find, memory)
        self._entry: CacheEntry | None = None  # the bytes of the arena that calls like this one write to
        self._told = 0
        self._likely: NDArray | None = None  # an arena of so many bytes

    def __enter__(self) -> Prefetcher:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        self.room = None
        self.arrays.stop()
        if kind is not None or self._likely is not None:
            self.arena.stop()

    def recall(self, entry: CacheEntry) -> None:
        """Reads from a cache the size of the arena that the last call like this one needed; the entry is updated for the next."""
        self._entry, told = entry, entry.read()
        if isinstance(told, int):
            self._told = told
            if _is_worth_it(told, self._memory):
                with suppress(MemoryError):  # this call may need less
                    self._likely = aligned_bytes(told)
                    self.arena.begin([self._likely])

    def prefetch_donated(self, arrays: Sequence[Array]) -> None:
        """Prefetches donated arrays: the call overwrites arrays that nobody else sees, and copies of the others."""
        alone = [array.data for array in arrays if is_alone(array)]
        seen = [x for x in arrays if not x.is_deleted() and not is_alone(x) and x.data.flags.c_contiguous]
        self.arrays.begin(alone, seen)

    def expect(self, outside: ProgramAbi) -> None:
        """Allocates the memory of the call, and touches it; an arena only where it surely will be written to, which is all or
        nothing.
        """
        needed = outside.arena_bytes if outside.runs_all else 0
        likely, self._likely = self._likely, None
        if likely is not None and needed != likely.nbytes:
            self.arena.stop()
            likely = None
        try:
            self.room = CallMemory.of(outside, likely)
        except MemoryError:  # the call itself will raise
            return
        self.arrays.begin(self.room.made)
        if outside.runs_all and likely is None:
            self.arena.begin([self.room.arena])
        if (
            self._entry is not None
            and needed != self._told
            and max(needed, self._told) >= self._memory.least_prefetched_bytes
        ):
            in_background(partial(self._entry.write, needed))
