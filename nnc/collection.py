"""Puts Python's garbage collection off while nnc makes many objects that stay.

Tracing and lowering make some hundred thousand objects, few of them garbage. The collector would go through all of them, and
through what the program holds beside, time and again: a tenth of the seconds of a compilation, a third where the program is found
in a file. Nor does it go through them when it begins again: they count as old.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass(slots=True)
class _Pauses:
    """How many blocks pause the collection now, in all threads, and whether it goes on when the last one ends."""

    count: int = 0
    goes_on: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)


_PAUSES = _Pauses()


@contextmanager
def collection_paused() -> Iterator[None]:
    """Collects no garbage within the block. Where the program switched the collection off itself, it stays off.

    Example:
        >>> import gc
        >>> with collection_paused():
        ...     gc.isenabled()
        False
    """
    with _PAUSES.lock:
        if not _PAUSES.count:
            _PAUSES.goes_on = gc.isenabled()
            gc.disable()
        _PAUSES.count += 1
    try:
        yield
    finally:
        with _PAUSES.lock:
            _PAUSES.count -= 1
            if not _PAUSES.count and _PAUSES.goes_on:
                if not gc.get_freeze_count():  # else the program keeps objects of its own out of all collections
                    gc.freeze()
                    gc.unfreeze()  # to the oldest generation
                gc.enable()
