"""Makes locks, threads and helper processes anew in a forked process, and lets forks wait for other threads.

`os.fork` copies the memory of a process, but of its threads only the one that called it. In the child, locks that other threads
held stay locked for ever, and the work of those threads is never finished. So

- a lock is made by `new_lock` or `new_rlock`: it is free in the child, unless the thread that forked holds it;
- an object with threads, processes or unfinished work gets `reset_after_fork`: its `after_fork` is called in the child;
- a block that calls a library with locks of its own is a `fork_waits` block: no other thread forks meanwhile;
- a fork waits for modules that another thread imports: importing one of them, the child would wait for ever.

This module alone registers with the system, which happens when it is imported; a sub-interpreter is refused there. Keys of
`nnc.random` are values, so a parent and its child draw the same numbers from the same key.
"""

from __future__ import annotations

import _thread
import concurrent.futures.thread  # noqa: F401  (registers with the system, which must not happen while a fork waits)
import ctypes
import importlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any, Protocol, TypeVar
from weakref import WeakSet

T = TypeVar("T")
_PATIENCE = 30.0  # seconds that a fork waits for other threads at most; then it goes on at its own risk
_PAUSE = 0.001  # seconds between two looks at modules that are imported
_PACKAGES = frozenset({"nnc", "numpy", "ml_dtypes", "optree", "llvmlite", "safetensors", *sys.stdlib_module_names})


def undisturbed(function: Callable[[], T]) -> T:
    """Runs a function that starts threads where no signal handler can interrupt it, and returns its result.

    `Thread.start` breaks if a handler raises within it: it forgets the thread twice, which raises a KeyError, or the thread
    dies. Handlers run in the main thread only, so another thread runs the function.

    Args:
        function: takes no arguments; the errors that it raises are raised here.

    Raises:
        RuntimeError: the system gives no more threads, or the interpreter ends.
    """
    if threading.current_thread() is not threading.main_thread():
        return function()
    done, found = threading.Event(), Future[T]()

    def run() -> None:
        try:
            found.set_result(function())
        except BaseException as error:
            found.set_exception(error)
        finally:
            done.set()

    _thread.start_new_thread(run, ())
    done.wait()
    return found.result()


class Resettable(Protocol):
    """An object that has something to make anew in a forked process."""

    def after_fork(self) -> None:
        """Is called in the child, where there is one thread."""


LockT = TypeVar("LockT", bound=Any)
_LOCKS: WeakSet[Any] = WeakSet()
_OWNERS: WeakSet[Any] = WeakSet()


def new_lock() -> threading.Lock:
    """Returns a lock that is free in a forked process. No code of the user's may run while it is held."""
    return _known(threading.Lock())


def new_rlock() -> Any:
    """Returns a lock that its thread may take again. In a forked process it is free, unless the thread that forked holds it."""
    return _known(threading.RLock())


def _known(lock: LockT) -> LockT:
    _LOCKS.add(lock)
    return lock


def reset_after_fork(owner: Resettable) -> None:
    """Has `owner.after_fork()` called in every process that is forked off while `owner` lives."""
    _OWNERS.add(owner)


class _Gate:
    """Counts the blocks that a fork waits for, by thread, and lets none begin while one thread forks."""

    def __init__(self) -> None:
        self.busy: dict[int, int] = {}
        self.forking: int | None = None  # the thread
        self.changed = threading.Condition()

    def __enter__(self) -> None:
        me = threading.get_ident()
        with self.changed:
            if me not in self.busy:  # a block within another one must not wait, since the fork waits for the outer one
                self.changed.wait_for(lambda: self.forking in (None, me))
            self.busy[me] = self.busy.get(me, 0) + 1

    def __exit__(self, *error: object) -> None:
        me = threading.get_ident()
        with self.changed:
            self.busy[me] -= 1
            if not self.busy[me]:
                del self.busy[me]
                self.changed.notify_all()

    def close(self) -> None:
        me = threading.get_ident()
        end = time.monotonic() + _PATIENCE
        while _imports(me) and time.monotonic() < end:
            time.sleep(_PAUSE)
        with self.changed:
            self.changed.wait_for(lambda: self.forking is None)
            self.forking = me
            self.changed.wait_for(lambda: self.busy.keys() <= {me}, _PATIENCE)

    def open(self) -> None:
        with self.changed:
            self.forking = None
            self.changed.notify_all()

    def reset(self) -> None:
        me = threading.get_ident()
        self.busy = {me: self.busy[me]} if me in self.busy else {}
        self.forking, self.changed = None, threading.Condition()


def _imports(me: int) -> bool:
    """Whether other threads than this one import modules that nnc may need."""
    locks = getattr(getattr(importlib, "_bootstrap", None), "_module_locks", {})  # nothing public tells
    for name, reference in list(locks.items()):
        lock = reference()
        if lock is not None and lock.owner not in (None, me) and name.partition(".")[0] in _PACKAGES:
            return True
    return False


_GATE = _Gate()


def fork_waits() -> AbstractContextManager[None]:
    """Returns a block during which no other thread forks: its end is waited for. It must be short, and run no code of the user's.

    Example:
        >>> with fork_waits():
        ...     pass
    """
    return _GATE


def _reset() -> None:
    """Makes everything anew, in a process that was just forked off."""
    _GATE.reset()
    for lock in [*_LOCKS, *_locks_of_properties()]:
        is_owned = getattr(lock, "_is_owned", None)
        if is_owned is None or not is_owned():
            lock._at_fork_reinit()
    for owner in list(_OWNERS):
        owner.after_fork()


def _locks_of_properties() -> Iterator[Any]:
    """Before Python 3.12, each `cached_property` has a lock."""
    if sys.version_info >= (3, 12):
        return
    for name, module in list(sys.modules.items()):
        if name.startswith("nnc."):
            for found in list(vars(module).values()):
                if isinstance(found, type) and found.__module__ == name:
                    for each in vars(found).values():
                        if isinstance(each, cached_property):
                            yield vars(each)["lock"]


def _refuse_sub_interpreters() -> None:
    """Raises ImportError in a sub-interpreter, where NumPy and compiled code would wait for the main one's lock for ever."""
    own, main = (getattr(ctypes.pythonapi, f"PyInterpreterState_{which}") for which in ("Get", "Main"))
    own.restype = main.restype = ctypes.c_void_p
    if own() != main():
        raise ImportError(
            "nnc: this is a sub-interpreter; NumPy and nnc's compiled code work in a process's main interpreter alone.\n"
            "Fix: import nnc in the main interpreter, and use threads, or processes, beside it."
        )


_refuse_sub_interpreters()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_GATE.close, after_in_parent=_GATE.open, after_in_child=_reset)
