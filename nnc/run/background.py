"""Background work of a call of a compiled function: keeping its program and its code in files.

`in_background` takes such work. Within the block of a call that makes its program it waits until the program
has run, which needs all processors, or for two seconds: a program may run for hours, and be broken off. It is done by a thread for
which the interpreter waits at its end. Elsewhere it is done at once.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from nnc.base.context import get_context, set_context
from nnc.base.fork import reset_after_fork, undisturbed
from nnc.base.source import SourceLine, user_source

Task = Callable[[], object]
WRITER = "nnc keeps"  # the name of the threads
_PATIENCE = 2.0  # seconds


def in_background(task: Task) -> None:
    """Does something at once, unless a block defers it. Values that it reads must not change."""
    put_off = get_context().background
    if put_off is None:
        task()
    else:
        put_off(task)


@contextmanager
def deferring() -> Iterator[None]:
    """A block whose tasks are done by a thread when it has ended, whether or not it raised, or some time after the first was put
    off. A block within another one is a part of that.

    A process that is forked off meanwhile has neither the thread nor its tasks.
    """
    if get_context().background is not None:
        yield
        return
    block = _TaskBlock()
    try:
        with set_context(background=block.add):
            yield
    finally:
        block.end()


class _TaskBlock:
    """The tasks of a block, and the thread that does them."""

    def __init__(self) -> None:
        self._tasks: deque[Task] = deque()
        self._ended = threading.Event()
        self._writer: threading.Thread | None = None
        self._source: SourceLine | None = None
        reset_after_fork(self)

    def after_fork(self) -> None:
        """The thread is not there, and its tasks are the parent's."""
        has_ended, self._ended = self._ended.is_set(), threading.Event()
        if has_ended:
            self._ended.set()
        self._tasks.clear()
        self._writer = None

    def add(self, task: Task) -> None:
        """Adds a task, from any thread."""
        if self._ended.is_set():  # another thread was not waited for
            task()
            return
        self._tasks.append(task)
        if self._writer is None:
            self._source = get_context().source or user_source()  # for warnings: the thread runs no line of the user
            writer = threading.Thread(target=self._work, name=WRITER, daemon=False)
            self._writer = writer
            try:
                undisturbed(writer.start)
            except RuntimeError:  # there can be no more threads, or the interpreter ends
                self._writer = None

    def end(self) -> None:
        """There will be no more."""
        self._ended.set()
        if self._writer is None or self._writer.ident is None:  # interrupted before it began
            self._do_all()

    def _work(self) -> None:
        self._ended.wait(_PATIENCE)
        is_last = False
        while not is_last:
            is_last = self._ended.is_set()
            with set_context(source=self._source):
                self._do_all()
            self._ended.wait()

    def _do_all(self) -> None:
        while True:
            try:
                task = self._tasks.popleft()
            except IndexError:  # there are none left
                return
            task()
            del task  # nothing holds a task that is done
