"""How far a loop is: on a terminal a bar of tqdm or rich where one of them is installed, else a line of text now and then.

The libraries are looked up when a bar is made, so that `import nnc` neither needs them nor waits for them.
"""

from __future__ import annotations

import importlib
import importlib.util
import operator
import sys
import time
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, Literal, Protocol, TextIO

from nnc.calls.spelling import spelled
from nnc.errors import ArgumentError, user_error

Style = Literal["tqdm", "rich", "plain"]


class _Display(Protocol):
    """One way to show progress."""

    def advance(self, n: int, text: str) -> None:
        """`n` more are done; `text` shows the last values."""

    def describe(self, description: str) -> None:
        """Shows a description of the work."""

    def close(self) -> None:
        """Leaves the last state standing."""


class _Tqdm:
    def __init__(self, total: int | None, description: str, unit: str, file: TextIO | None) -> None:
        bar = importlib.import_module("tqdm").tqdm
        self._bar = bar(total=total, desc=description or None, unit=f" {unit}", smoothing=0.05, file=file)

    def advance(self, n: int, text: str) -> None:
        if text:
            self._bar.set_postfix_str(text, refresh=False)
        self._bar.update(n)

    def describe(self, description: str) -> None:
        self._bar.set_description(description)

    def close(self) -> None:
        self._bar.close()


class _Rich:
    def __init__(self, total: int | None, description: str, unit: str, file: TextIO | None) -> None:
        parts = importlib.import_module("rich.progress")
        console = importlib.import_module("rich.console").Console(file=file or sys.stderr)
        columns = [
            *(parts.TextColumn("{task.description}"), parts.BarColumn(), parts.MofNCompleteColumn()),
            *(parts.TextColumn(unit), parts.TimeRemainingColumn(), parts.TextColumn("{task.fields[text]}")),
        ]
        self._progress = parts.Progress(*columns, console=console)
        self._task = self._progress.add_task(description, total=total, text="")
        self._progress.start()

    def advance(self, n: int, text: str) -> None:
        self._progress.update(self._task, advance=n, **({"text": text} if text else {}))

    def describe(self, description: str) -> None:
        self._progress.update(self._task, description=description)

    def close(self) -> None:
        self._progress.stop()


class _Plain:
    """A line at the start of each tenth, and at the end; without a total, after each tenth of the time that has passed.
    At most one a second.
    """

    def __init__(self, total: int | None, description: str, unit: str, file: TextIO | None) -> None:
        self._total, self._description, self._unit, self._file = total, description, unit, file or sys.stderr
        self._done, self._text = 0, ""
        self._start = self._last = time.monotonic()

    def advance(self, n: int, text: str) -> None:
        before, self._done = self._done, self._done + n
        self._text = text or self._text
        now = time.monotonic()
        if self._total is None:
            is_due = now - self._last >= 0.1 * (now - self._start)
        else:
            is_due = self._done * 10 // max(self._total, 1) > before * 10 // max(self._total, 1)
        if is_due and now - self._last >= 1:
            self._last = now
            self._write()

    def describe(self, description: str) -> None:
        self._description = description

    def close(self) -> None:
        self._write()

    def _write(self) -> None:
        share = "" if self._total is None else f"/{self._total} ({100 * self._done // max(self._total, 1)}%)"
        seconds = time.monotonic() - self._start
        rate = f"{self._done / seconds:.1f} {self._unit}/s" if seconds else ""
        parts = [f"{self._description}: {self._done}{share} {self._unit}".removeprefix(": "), rate, self._text]
        print(", ".join(part for part in parts if part), file=self._file, flush=True)


DISPLAYS: dict[str, type[_Tqdm] | type[_Rich] | type[_Plain]] = {"tqdm": _Tqdm, "rich": _Rich, "plain": _Plain}


class Progress:
    """The result of `nnc.debug.progress`: iterate over it, or call `update` in a `with` block.

    Args:
        iterable: iterated over, or None.
        display: draws the bar.

    Example:
        >>> import io
        >>> with nnc.debug.progress(total=2, style="plain", file=io.StringIO()) as bar:
        ...     bar.update(2, loss=0.5)
    """

    def __init__(self, iterable: Iterable[Any] | None, display: _Display) -> None:
        self._iterable, self._display = iterable, display

    def __iter__(self) -> Iterator[Any]:
        with self:
            for item in self._iterable if self._iterable is not None else ():
                yield item
                self._display.advance(1, "")

    def update(self, n: int = 1, **values: Any) -> None:
        """`n` more are done; values (a loss, an accuracy) are shown beside the bar. `update(0, loss=...)` only shows.

        Args:
            n: how many more are done.
            **values: numbers to show beside the bar.
        """
        self._display.advance(n, ", ".join(f"{name}={_short(value)}" for name, value in values.items()))

    def describe(self, description: str) -> None:
        """Changes the shown description of the work.

        Args:
            description: the description of the work.
        """
        self._display.describe(description)

    def close(self) -> None:
        """Ends the bar, which stays on the screen."""
        self._display.close()

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _short(value: Any) -> str:
    if isinstance(value, (str, bool, int)):
        return str(value)
    number = float(value)
    return f"{number:.4g}" if abs(number) < 1e-3 or abs(number) >= 1e5 else f"{number:.4f}"


@spelled
def progress(
    iterable: Iterable[Any] | None = None, total: int | None = None, description: str = "", *, unit: str = "steps",
    style: Style | None = None, file: TextIO | None = None,
) -> Progress:  # fmt: skip
    """Shows how far a loop is, how fast it goes and when it ends, on the standard error stream.

    Args:
        iterable: the elements to iterate over; None to call `update` instead.
        total: how many there will be; default the length of the iterable, if it has one.
        description: the description of the work.
        unit: the name of the things that are counted by `total`.
        style: "tqdm", "rich" or "plain"; default the first that is installed where the stream is a terminal, else "plain", which
            writes some ten lines into a file or a pipe.
        file: where to, in place of standard error.

    Returns:
        an iterable over the same elements, also a context manager with `update(n=1, **values)`.

    Raises:
        ArgumentError: the style is none of the three, or not installed.

    Example:
        >>> import sys
        >>> total = 0
        >>> for i in nnc.debug.progress(range(3), description="adding", style="plain", file=sys.stdout):
        ...     total += i
        adding: 3/3 (100%) steps...
        >>> with nnc.debug.progress(total=2, style="plain", file=sys.stdout) as bar:
        ...     bar.update(2, loss=0.25)
        2/2 (100%) steps...loss=0.2500
    """
    where = "nnc.debug.progress"
    installed = [name for name in DISPLAYS if name == "plain" or importlib.util.find_spec(name) is not None]
    stream = sys.stderr if file is None else file
    chosen = style or (installed[0] if stream.isatty() else "plain")
    if chosen not in installed:
        fix = "leave it out, or install the library: pip install tqdm."
        raise user_error(ArgumentError, where, f"style is {style!r}; here there are {', '.join(installed)}.", fix=fix)
    if total is None and iterable is not None:
        length = operator.length_hint(iterable, -1)
        total = None if length < 0 else length
    return Progress(iterable, DISPLAYS[chosen](total, description, unit, file))
