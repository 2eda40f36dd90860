"""Pages of the memory that a first call writes to: small ones at first, large ones soon after.

NumPy asks the system for large pages (2 MiB) where an array takes 4 MiB or more, on which programs run some percent faster. But
where a virtual machine gives memory that nobody uses back to its host, that is memory of the very form that large pages are made
of, and the host has to find it again: 2.6 ms/MiB were measured, for which the first call waited. With small pages it was 0.4, since
for those there is memory that was in use before. So small ones are taken first. A thread puts them together after the first call,
slowly, since that takes as long.
"""

from __future__ import annotations

import _thread
import contextlib
import ctypes
import mmap
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

from nnc.devices.cpu import cpu_target
from nnc.lower.plan.stages import NDArray
from nnc.machine import read_text

_MEMORY = cpu_target().memory

_COLLAPSE = 25  # Linux's number for: make a large page of these (6.1 and later)
_SETTING = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_PACE = 10  # the thread works for one part in so many of its time


def take_small_pages(array: NDArray) -> bool:
    """Has the system find small pages for an array to which nobody has written yet; returns whether it would have found others."""
    if not _MEMORY.least_paged_bytes <= array.nbytes <= _MEMORY.most_paged_bytes or not are_for_who_asks():
        return False
    return _advise(*_large_pages(array), mmap.MADV_NOHUGEPAGE)


def join_pages(array: NDArray) -> None:
    """Puts the small pages of an array together: a thread does it, or the system by and by, where it cannot be told when."""
    if _advise(*_large_pages(array), mmap.MADV_HUGEPAGE):
        with contextlib.suppress(RuntimeError):  # there can be no more threads, or the interpreter ends
            _thread.start_new_thread(_join, (array,))  # for which the interpreter does not wait


def _join(array: NDArray) -> None:
    """Puts the pages of an array together, one after the other, as far as the system obeys."""
    begin, end = _large_pages(array)
    for at in range(begin, end, _MEMORY.large_page_bytes):
        start = time.perf_counter()
        _advise(at, at + _MEMORY.large_page_bytes, _COLLAPSE)
        time.sleep((_PACE - 1) * (time.perf_counter() - start))


@cache
def are_for_who_asks(setting: Path = _SETTING) -> bool:
    """Whether the system gives large pages to programs that ask for them, and to no others."""
    return sys.platform == "linux" and "[madvise]" in read_text(setting)


def _large_pages(array: NDArray) -> tuple[int, int]:
    """The begin and the end of the large pages that fit into an array."""
    begin, page = array.ctypes.data, _MEMORY.large_page_bytes
    return -(-begin // page) * page, (begin + array.nbytes) // page * page


def _advise(begin: int, end: int, advice: int) -> bool:
    """Tells the system something about memory; returns whether it obeys."""
    return _madvise()(begin, end - begin, advice) == 0


@cache
def _madvise() -> Callable[[int, int, int], int]:
    function = ctypes.CDLL(None).madvise
    function.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    return function
