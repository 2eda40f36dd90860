"""How long to wait for code that may never end: by its own processor time, so that a busy machine does not make it look stuck."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from time import monotonic

SLOWEST = 5.0  # seconds by the clock for one of the code's own: beyond this it waits for something that never comes


class Patience:
    """A limit in seconds of processor time; code that uses none is given `SLOWEST` times as long by the clock.

    Example:
        >>> Patience(60.0, lambda: 0.0).is_over()
        False
    """

    def __init__(self, seconds: float, used: Callable[[], float]) -> None:
        self.seconds, self._used = seconds, used
        self._clock, self._begin = monotonic(), used()

    def is_over(self) -> bool:
        """Whether the limit is reached."""
        waited = monotonic() - self._clock
        return waited >= self.seconds and (
            waited >= SLOWEST * self.seconds or self._used() - self._begin >= self.seconds
        )


def seconds_of(pid: int) -> float:
    """Returns the processor time of a process and its threads; the clock's where the system does not tell, or it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, AttributeError):
        return monotonic()
