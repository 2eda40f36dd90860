"""How many threads work at once: one number for nnc's kernels, NumPy's BLAS and oneDNN."""

from __future__ import annotations

import atexit
import ctypes
import functools
import operator
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nnc.backends.cpu.threads.pool import Pool, is_supported
from nnc.base.fork import fork_waits, new_lock, reset_after_fork
from nnc.base.machine import ABSENT, allowed_threads, read_text, usable_threads
from nnc.base.options import Options, variable_set
from nnc.calls.spelling import spelled
from nnc.errors import ArgumentError, ArgumentTypeError, BackendError, user_error

WHERE = "set_num_threads"
_MOST = 64  # or as many as the machine has processors; threads that cannot be created would end the process
_SETTERS = (
    "scipy_openblas_set_num_threads64_",
    "scipy_openblas_set_num_threads",
    "openblas_set_num_threads64_",
    "openblas_set_num_threads",
)


@dataclass(eq=False)
class Threads:
    """The number, where compiled code reads it, and the libraries and threads that it governs.

    `forked`: the process was forked off one whose threads it does not have, so it must do without.
    """

    count: ctypes.c_int32
    openmp: Openmp
    blas: tuple[Callable[[int], object], ...]
    pool: Pool | None = None
    forked: bool = False

    def set(self, number: int) -> int:
        """Sets the number, and returns the one before."""
        before, self.count.value = self.count.value, number
        if self.pool is not None:
            self.pool.resize(number)
        for set_blas in self.blas:
            set_blas(number)
        if self.openmp.library is not None:
            self.openmp.library.omp_set_num_threads(ctypes.c_int(number))
        return before

    def after_fork(self) -> None:
        """Sets one thread in a forked process: it has none of the threads, and would wait for OpenMP's for ever."""
        self.forked = self.openmp.library is not None or self.pool is not None
        if self.pool is not None:
            self.pool.after_fork()
        if self.forked:
            self.set(1)

    def describe(self) -> str:
        """Returns the number, and whose threads they are."""
        if self.pool is None and self.openmp.library is None:
            return "1: nnc has no threads of its own on this system, and OpenMP is absent"
        whose = "OpenMP's, for oneDNN alone" if self.pool is None else "nnc's own"
        return f"{self.count.value}, {whose}" + (", and as many of NumPy's BLAS" if self.blas else "")


_FINDING = new_lock()


def threads() -> Threads:
    """Returns the number of threads of this process, and the libraries that it governs."""
    with _FINDING:
        return _find()


@functools.cache
def _find() -> Threads:
    count = ctypes.c_int32(first_number())
    pool = Pool(count) if is_supported() else None
    found = Threads(count, find_openmp(), tuple(find_blas_setters()), pool)
    if usable_threads() < allowed_threads() and not Options.from_environment().kernel_threads:
        for set_blas in found.blas:  # the limit of a container, which OpenBLAS does not see
            set_blas(count.value)
    if pool is not None:
        atexit.register(pool.close)  # before compiled code is unloaded
    reset_after_fork(found)
    return found


@spelled
def set_num_threads(n: int) -> int:
    """Sets how many threads kernels may use, in this process: threads of nnc, NumPy's BLAS and oneDNN.

    Until it is called, they use all processors that the process may run on, or as many as OPENBLAS_NUM_THREADS, MKL_NUM_THREADS or
    OMP_NUM_THREADS say. Small arrays are worked on by one thread in any case. A process that was forked off (as by
    `multiprocessing` with "fork") works with one thread.

    Args:
        n: how many; 1 for none but the thread of the caller.

    Returns:
        the number before.

    Raises:
        ArgumentTypeError: n is no int.
        ArgumentError: n is below 1, or more than any machine has use for.
        BackendError: the process was forked off another, and n is not 1.

    Example:
        >>> before = nnc.set_num_threads(1)
        >>> nnc.set_num_threads(before)
        1
    """
    number = _checked(n)
    found = threads()
    if found.forked and number > 1:
        problem = "this process was forked off another, so nnc's threads are missing in it."
        fix = 'start processes with multiprocessing.get_context("spawn") to use threads in them.'
        raise user_error(BackendError, WHERE, problem, fix=fix)
    return found.set(number)


def first_number() -> int:
    """Returns the number of threads before one is set."""
    return min(Options.from_environment().kernel_threads or usable_threads(), most_threads())


def most_threads() -> int:
    """Returns the largest number that may be set."""
    return max(os.cpu_count() or 1, _MOST)


def _checked(n: Any) -> int:
    try:
        number = operator.index(n)
    except TypeError:
        problem = f"n is a {type(n).__name__}, it must be an int."
        raise user_error(ArgumentTypeError, WHERE, problem, fix="write nnc.set_num_threads(4).") from None
    if isinstance(n, bool) or not 1 <= number <= most_threads():
        problem = f"n is {n!r}; it must be between 1 and {most_threads()}."
        raise user_error(ArgumentError, WHERE, problem, fix=f"this process may use {usable_threads()} processors.")
    return number


def find_blas_setters(libraries: Iterable[Path] | None = None) -> list[Callable[[int], object]]:
    """Finds the functions that set the number of OpenBLAS's threads, in the library that NumPy brought or is linked to.

    Args:
        libraries: the shared libraries to search; by default those that lie beside NumPy or are loaded.
    """
    found: dict[int, Callable[[int], object]] = {}
    for path in _blas_libraries() if libraries is None else libraries:
        try:
            library = ctypes.CDLL(str(path))
        except OSError:
            continue  # not for this machine, or not a library: then NumPy does not use it either
        for name in _SETTERS:
            setter = getattr(library, name, None)
            if setter is not None:
                setter.argtypes, setter.restype = (ctypes.c_int,), None
                found[ctypes.cast(setter, ctypes.c_void_p).value or 0] = setter
                break
    return list(found.values())


def _blas_libraries() -> list[Path]:
    package = Path(np.__file__).parent
    folders = [folder for folder in (package.parent / "numpy.libs", package / ".dylibs") if folder.is_dir()]
    bundled = [folder / name for folder in folders for name in os.listdir(folder) if "openblas" in name]
    return bundled or [Path(name) for name in loaded_libraries("openblas")]


# -- OpenMP's runtime --------------------------------------------------------------------------------------------------

# GCC's OpenMP runtime, in whose threads oneDNN works where nnc has none of its own (`pool.py`), or those are busy or too few
# (`team.py`).
#
# After a loop its threads look out for the next one, for milliseconds by default, on processors that nnc's own threads could use by
# then. So they are told to look only for some microseconds, if the user has not said how long.


LIBRARY = "libgomp.so.1"
MAPS = Path("/proc/self/maps")
_SPINS = ("GOMP_SPINCOUNT", "2000")
_WAIT_POLICY = "OMP_WAIT_POLICY"


class Openmp(NamedTuple):
    """The library and where it was found; without one, the reason."""

    library: ctypes.CDLL | None
    origin: str

    def describe(self) -> str:
        """Returns the path of the library, or the reason for its absence."""
        return self.origin if self.library is not None else f"{ABSENT}: {self.origin}"


def find_openmp(name: str = LIBRARY, maps: Path = MAPS) -> Openmp:
    """Returns the runtime that is loaded already, else the system's.

    Copies that packages of other projects bring along are used only where they are loaded anyway, as `maps` tells: two runtimes
    would have two pools of threads.
    """
    try:
        with fork_waits(), variable_set(*_SPINS, unless=[_WAIT_POLICY]):
            return Openmp(ctypes.CDLL(name), name)
    except OSError as error:
        reason = str(error)
    for path in loaded_libraries("libgomp", maps):
        try:
            return Openmp(ctypes.CDLL(path), path)
        except OSError as error:
            reason = str(error)
    return Openmp(None, reason)


def loaded_libraries(stem: str, maps: Path = MAPS) -> list[str]:
    """Returns the shared libraries in this process whose file name contains `stem`; none where the system does not tell."""
    return list(dict.fromkeys(re.findall(rf"(/.*/[^/\n]*{re.escape(stem)}[^/\n]*\.so[^/\n]*)\n", read_text(maps))))
