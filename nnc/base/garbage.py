"""Puts Python's garbage collection off while nnc makes many objects that stay.

Tracing and lowering make some hundred thousand objects, few of them garbage. The collector would go through all of them, and
through the program's other objects, time and again. Three programs, compiled beside 300,000 objects of the user, take 480 ms
without a pause and 400 ms with one; found in a file, 150 ms and 64 ms (beside no objects 119 ms and 70 ms).

A pause alone gains nothing: the first new object after it starts the full collection that was put off (75 to 95 ms). So the
objects made meanwhile count as old afterwards, which `gc.freeze` and `gc.unfreeze` do in some microseconds.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections import Counter
from contextlib import AbstractContextManager

from nnc.base.fork import new_lock, reset_after_fork

_OF_PYTHON = 1000  # frozen objects: Python 3.12 begins with 375, a program that freezes its own has tens of thousands


class _Pauses:
    """The number of blocks that pause the collection now, by thread, and whether it goes on when the last one ends."""

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()
        self.goes_on = False
        self.lock = new_lock()
        reset_after_fork(self)

    def __enter__(self) -> None:
        """One more block."""
        with self.lock:
            if not self.counts:
                self.goes_on = gc.isenabled()
                gc.disable()
            self.counts[threading.get_ident()] += 1

    def __exit__(self, *error: object) -> None:
        """One block less."""
        me = threading.get_ident()
        with self.lock:
            self.counts[me] -= 1
            if not self.counts[me]:
                del self.counts[me]
            if not self.counts and self.goes_on:
                if gc.get_freeze_count() < _OF_PYTHON:  # else the program keeps its own out of all collections
                    gc.freeze()
                    gc.unfreeze()  # to the oldest generation
                gc.enable()

    def after_fork(self) -> None:
        """The blocks of other threads never end in a forked process."""
        if self.counts:
            me = threading.get_ident()
            self.counts = Counter({me: self.counts[me]} if me in self.counts else {})
            if not self.counts and self.goes_on:
                gc.enable()


_PAUSES = _Pauses()


def collection_paused() -> AbstractContextManager[None]:
    """Returns a block that collects no garbage. Where the program switched the collection off itself, it stays off.

    Example:
        >>> import gc
        >>> with collection_paused():
        ...     gc.isenabled()
        False
    """
    return _PAUSES


# NumPy keeps no list of an array's views, so that only the count of references shows that a result has no other reader. Without it
# each donated array is copied (64 MB: 8 ms a call rather than 2.3, and 60 MB more at the peak), and so is each operand of an eager
# `vjp`.
def _count() -> int:
    alone = object()
    return sys.getrefcount(alone)


IN_VARIABLE = _count()  # measured: 2, but 1 from CPython 3.14 on, where a call borrows references of variables
