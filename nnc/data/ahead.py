"""A thread that makes the next elements of an iterator while the last is used."""

from __future__ import annotations

import queue
import threading
import weakref
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Generic, Self

from nnc.base.fork import reset_after_fork, undisturbed
from nnc.errors import BackendError, user_error
from nnc.typing import B


class Prefetch(Generic[B]):
    """The elements of an iterator, up to `size` of them made in advance by a thread of their own.

    An error of the iterator is raised where its element was due. The thread ends with the last element, with `close`, or when
    this object is no longer used. As a context manager it closes itself.

    Args:
        make: gives the iterator; called in the thread.
        size: how many elements are made in advance.
        where: the public function for which errors speak, and the name of the thread.

    Example:
        >>> list(nnc.data.prefetch(iter([1, 2, 3]), 2))
        [1, 2, 3]
    """

    def __init__(self, make: Callable[[], Iterator[B]], size: int, where: str) -> None:
        self._items: queue.Queue[tuple[str, Any]] = queue.Queue(size)
        self._where = where
        stop = threading.Event()
        self._thread = threading.Thread(target=_fill, args=(make, self._items, stop), name=where, daemon=True)
        self._close = weakref.finalize(self, _end, self._thread, self._items, stop)
        undisturbed(self._thread.start)
        reset_after_fork(self)

    def after_fork(self) -> None:
        """The thread is not there, so no element will come."""
        self._items = queue.Queue()
        problem = "this process was forked off the one that makes the batches ahead."
        error = user_error(BackendError, self._where, problem, fix="make the batches in the process that uses them.")
        self._items.put(("error", error))

    def __iter__(self) -> Iterator[B]:
        return self

    def __next__(self) -> B:
        if not self._close.alive:
            raise StopIteration
        kind, value = self._items.get()
        if kind == "item":
            item: B = value
            return item
        self.close()
        if kind == "error":
            raise value
        raise StopIteration

    def close(self) -> None:
        """Ends the thread and waits for that."""
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


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
