"""A thread that makes the next elements of an iterator while the last is used."""

from __future__ import annotations

import queue
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from nnc.errors import BackendError, user_error
from nnc.fork import reset_after_fork


class Prefetch:
    """The elements of an iterator, up to `size` of them made in advance by a thread of their own.

    An error of the iterator is raised where its element was due. The thread ends with the last element, with `close`, or when
    this object is no longer used.
    """

    def __init__(self, make: Callable[[], Iterator[Any]], size: int) -> None:
        self._items: queue.Queue[tuple[str, Any]] = queue.Queue(size)
        stop = threading.Event()
        self._thread = threading.Thread(
            target=_fill, args=(make, self._items, stop), name="nnc.data.batches", daemon=True
        )
        self._close = weakref.finalize(self, _end, self._thread, self._items, stop)
        self._thread.start()
        reset_after_fork(self)

    def after_fork(self) -> None:
        """The thread is not there, so no element will come."""
        self._items = queue.Queue()
        error = user_error(
            BackendError, "nnc.data.batches", "this process was forked off the one that makes the batches ahead.",
            fix="make the batches in the process that uses them.",
        )  # fmt: skip
        self._items.put(("error", error))

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if not self._close.alive:
            raise StopIteration
        kind, value = self._items.get()
        if kind == "item":
            return value
        self.close()
        if kind == "error":
            raise value
        raise StopIteration

    def close(self) -> None:
        """Ends the thread and waits for that."""
        self._close()


def _fill(make: Callable[[], Iterator[Any]], items: queue.Queue[tuple[str, Any]], stop: threading.Event) -> None:
    """Runs the thread; it knows the queue, but not its owner, which may be forgotten meanwhile."""
    try:
        for item in make():
            if stop.is_set():
                return
            items.put(("item", item))
    except BaseException as error:
        items.put(("error", error))
    else:
        items.put(("end", None))


def _end(thread: threading.Thread, items: queue.Queue[tuple[str, Any]], stop: threading.Event) -> None:
    stop.set()
    while thread.is_alive():
        while not items.empty():  # the batch that the thread waits to put finds room, then it sees the flag
            items.get_nowait()
        if thread is threading.current_thread():
            return
        thread.join(0.01)
