"""The rows of a mapped function in lockstep, so that collectives over named axes are plain sums, maxima and stacks of a list.

Each row runs in a thread of its own, one at a time and in order, up to its next collective; there it hands in its value. Once
all rows stand at one, each gets its answer.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextvars import copy_context
from time import process_time
from typing import Any

from nnc.errors import NncError
from nnc.testing.fuzz.patience import Patience

Meet = Callable[[list[Any]], list[Any]]  # the values of all rows -> the answer for each row


class RowsDisagreeError(NncError):
    """The rows of a generated function meet at different collectives: such a program has no meaning."""


class _AbandonedError(BaseException):
    """Ends the thread of a row, since another row has raised an error."""


class _Row:
    """A row: a thread that runs only while `turn` is given to it."""

    def __init__(self, lockstep: Lockstep, index: int, function: Callable[[], Any]) -> None:
        self.lockstep, self.index, self.function = lockstep, index, function
        self.turn, self.back = threading.Event(), threading.Event()
        self.request: tuple[str, Meet, Any] | None = None
        self.answer: Any = None
        self.result: Any = None
        self.error: BaseException | None = None
        self.done = self.abandoned = False
        context = copy_context()
        self.thread = threading.Thread(target=context.run, args=(self._run,), daemon=True)

    def _run(self) -> None:
        self.turn.wait()
        self.lockstep.rows_of_threads[threading.get_ident()] = self
        try:
            if not self.abandoned:
                self.result = self.function()
        except BaseException as error:
            self.error = error
        self.done = True
        del self.lockstep.rows_of_threads[threading.get_ident()]
        self.back.set()

    def advance(self) -> None:
        """Runs up to the next collective, or to the end."""
        self.request = None
        if not self.thread.is_alive():
            self.thread.start()
        self.turn.set()
        patience = Patience(self.lockstep.patience, process_time)
        while not self.back.wait(min(self.lockstep.patience, 1.0)):
            if patience.is_over():
                self.done = True  # nobody waits for it again
                raise RowsDisagreeError(f"row {self.index} comes to no collective within {self.lockstep.patience:g} s")
        self.back.clear()

    def meet(self, name: str, meet: Meet, value: Any) -> Any:
        """Hands in a value, and waits for the answer; called by the row itself."""
        self.turn.clear()
        self.request = (name, meet, value)
        self.back.set()
        self.turn.wait()
        if self.abandoned:
            raise _AbandonedError
        return self.answer


class Lockstep:
    """The named axes around the code that runs, by its thread; a row that takes longer than `patience` seconds of
    processor time is given up.
    """

    def __init__(self, patience: float = 30.0) -> None:
        self.patience = patience
        self.rows_of_threads: dict[int, _Row] = {}
        # axes within which a function is made, without rows: all places have equal values
        self.sizes: dict[str, int] = {}

    @property
    def row(self) -> _Row | None:
        """The row that runs; None outside all of them."""
        return self.rows_of_threads.get(threading.get_ident())

    def run(self, name: str | None, functions: Sequence[Callable[[], Any]]) -> list[Any]:
        """The results of rows along an axis with this name."""
        around = self.row
        rows = [_Row(self, i, function) for i, function in enumerate(functions)]
        try:
            while True:
                for row in rows:
                    row.advance()
                    if row.error is not None:
                        raise row.error
                if all(row.done for row in rows):
                    return [row.result for row in rows]
                self._answer(name, rows, around)
        finally:
            for row in rows:
                if not row.done and row.thread.is_alive():
                    row.abandoned = True
                    row.advance()
                if row.thread.is_alive():
                    row.thread.join(0.1)  # it ends at once, but for one that was given up

    def _answer(self, name: str | None, rows: Sequence[_Row], around: _Row | None) -> None:
        requests = [row.request for row in rows if row.request is not None]
        axis, meet, _ = requests[0]
        if len(requests) < len(rows) or any(other != axis for other, _, _ in requests):
            raise RowsDisagreeError("rows meet at different collectives")
        values = [value for _, _, value in requests]
        if axis == name:
            answers = meet(values)
        elif around is None:
            raise RowsDisagreeError(f"no axis {axis!r}")
        else:  # of an axis further out: each of its places has a list of values, and gets a list of answers

            def each(lists: list[Any]) -> list[Any]:
                found = [meet(list(column)) for column in zip(*lists, strict=True)]
                return [list(answers) for answers in zip(*found, strict=True)]

            answers = around.meet(axis, each, values)
        for row, answer in zip(rows, answers, strict=True):
            row.answer = answer

    def meet(self, name: str, meet: Meet, value: Any) -> Any:
        """The answer that this row gets of a collective."""
        row = self.row
        if row is not None and name not in self.sizes:
            return row.meet(name, meet, value)
        if name not in self.sizes:
            raise RowsDisagreeError(f"no axis {name!r}")
        return meet([value] * self.sizes[name])[0]

    def place(self, name: str) -> int:
        """The place of this row along an axis."""
        return int(self.meet(name, lambda values: list(range(len(values))), None))

    def size(self, name: str) -> int:
        """The number of places."""
        return int(self.meet(name, lambda values: [len(values)] * len(values), None))
