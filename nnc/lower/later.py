"""What a call of a compiled function leaves for later: keeping its program and its code in files.

Whoever has something to keep says so with `do_later`. Within the block that makes the program of a call it waits, and is done by a
thread beside the first run, for which the interpreter waits at its end; elsewhere it is done at once.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from nnc.context import get_context, set_context

Task = Callable[[], None]
WRITER = "nnc keeps"  # the name of the threads


def do_later(task: Task) -> None:
    """Does something at once, unless a block puts it off. What it reads must not change."""
    tasks = get_context().later
    if tasks is None:
        task()
    else:
        tasks.append(task)


@contextmanager
def putting_off() -> Iterator[None]:
    """A block whose tasks are done when it has ended, whether or not it raised, in a thread that lasts no longer than they do.

    No lock is held meanwhile, so a process that is forked off has neither the thread nor to wait for it.
    """
    tasks: deque[Task] = deque()
    try:
        with set_context(later=tasks):
            yield
    finally:
        if tasks:
            try:
                threading.Thread(target=_do_all, args=(tasks,), name=WRITER, daemon=False).start()
            except RuntimeError:  # there can be no more threads, or the interpreter ends
                _do_all(tasks)


def _do_all(tasks: deque[Task]) -> None:
    while tasks:
        tasks.popleft()()  # so that nothing holds what is done
