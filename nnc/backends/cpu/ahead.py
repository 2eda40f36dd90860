"""What the first call of a program writes to, touched by threads while the program is being made.

The first write to a page of memory waits for the system, and in a virtual machine for its host, too: a first call may wait longer
for that than it computes. What was made as zeros is dearer still where a program reads it before it writes to it, since its pages
are found twice. So the arrays that a call gives away are touched while its function is traced, and what its frame needs once that
is known: while code is compiled or loaded, and while the program runs, as far as it has not come there itself.
"""

from __future__ import annotations

import _thread
import ctypes
import threading
from collections.abc import Callable, Sequence
from typing import Any

from nnc.lower.native_frame import Room
from nnc.lower.native_program import Outside
from nnc.lower.stages import NDArray
from nnc.machine import available_memory

TOUCH = "nnc_touch"
_PAGE = 4096  # where pages are larger, more touches than pages cost little
_LEAST = 1 << 20  # bytes; fewer are found sooner than a thread
_SHARE = 4  # of what memory is available one part may be touched

# nnc_touch(ranges, count, stop): writes to all pages of memory what stands there, range by range (address, bytes), until the word
# `stop` is not 0. What others write meanwhile stays.
TOUCH_TEXT = f"""
define void @{TOUCH}(ptr %ranges, i64 %count, ptr %stop) nounwind {{
entry:
  %some = icmp sgt i64 %count, 0
  br i1 %some, label %range, label %done
range:
  %i = phi i64 [ 0, %entry ], [ %next, %end ]
  %begin.at = getelementptr [2 x i64], ptr %ranges, i64 %i
  %bytes.at = getelementptr i8, ptr %begin.at, i64 8
  %begin = load ptr, ptr %begin.at
  %bytes = load i64, ptr %bytes.at
  br label %page
page:
  %offset = phi i64 [ 0, %range ], [ %further, %touch ]
  %left = icmp slt i64 %offset, %bytes
  br i1 %left, label %ask, label %end
ask:
  %word = load atomic i32, ptr %stop monotonic, align 4
  %goes.on = icmp eq i32 %word, 0
  br i1 %goes.on, label %touch, label %done
touch:
  %at = getelementptr i8, ptr %begin, i64 %offset
  %same = cmpxchg ptr %at, i8 0, i8 0 monotonic monotonic
  %further = add i64 %offset, {_PAGE}
  br label %page
end:
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %count
  br i1 %more, label %range, label %done
done:
  ret void
}}
"""


class Touching:
    """Touches memory in threads of its own until it is told to stop.

    Args:     find: gives the address of the compiled function `nnc_touch`, for which it may wait; None where there is none.
    """

    def __init__(self, find: Callable[[], int | None]) -> None:
        self._find, self._stop = find, ctypes.c_int32(0)
        self._changed = threading.Condition()
        self._waiting: list[Sequence[NDArray]] = []  # each for a thread, which may come too late
        self._running = 0

    def begin(self, arrays: Sequence[NDArray]) -> None:
        """Touches contiguous arrays that lie in memory of Python's own, unless memory is short."""
        nbytes, available = sum(array.nbytes for array in arrays), available_memory()
        if nbytes >= _LEAST and available is not None and nbytes <= available // _SHARE:
            self._waiting.append(arrays)
            _thread.start_new_thread(self._run, ())  # that of `threading` waits until it has come

    def stop(self) -> None:
        """Ends it: no array is held any more."""
        self._stop.value = 1
        with self._changed:
            self._waiting.clear()
            self._changed.wait_for(lambda: not self._running)

    def _run(self) -> None:
        address = self._find()  # nothing is held meanwhile
        with self._changed:
            if address is None or not self._waiting:
                self._waiting.clear()
                return
            arrays = self._waiting.pop(0)
            self._running += 1
        try:
            words = [word for array in arrays for word in (array.ctypes.data, array.nbytes)]
            function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)(address)
            function((ctypes.c_int64 * len(words))(*words), len(arrays), ctypes.addressof(self._stop))
        finally:
            del arrays
            with self._changed:
                self._running -= 1
                self._changed.notify_all()


class Ahead:
    """Touches what the call of a program writes to: a block within which that is made.

    Arrays that the call gives away or returns must not be held by threads when it runs, so the end of the block is the end of that.
    The arena is touched further beside the run, unless there will be none.
    """

    def __init__(self, find: Callable[[], int | None]) -> None:
        self.room: Room | None = None
        self.arrays, self.arena = Touching(find), Touching(find)

    def __enter__(self) -> Ahead:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        self.room = None
        self.arrays.stop()
        if kind is not None:
            self.arena.stop()

    def expect(self, outside: Outside) -> None:
        """Makes room for the call, and touches that; of an arena only what surely will be written to, which is all or nothing."""
        self.room = Room.of(outside)
        self.arrays.begin(self.room.made)
        if outside.runs_all:
            self.arena.begin([self.room.arena])
