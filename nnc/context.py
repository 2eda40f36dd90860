"""The one ambient value of nnc: who is tracing, on whose behalf, and for which line of the user's program.

Everything else is passed as an argument. The value is frozen; a `with` block swaps it for another one and back, so threads
and coroutines never see each other's traces.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

from nnc.source import SourceLine


@dataclass(frozen=True, slots=True)
class Context:
    """What is going on around the command that runs now.

    `staging` is the innermost trace that records every command (none when running eagerly), `level` that of
    the innermost trace (0: none), `source` the user's line on whose behalf a rule runs (a derivative points at the line that
    was differentiated), `activity` what the user asked for, outermost first, as in "tracing loss for grad", `meter` what counts
    the bytes that loops keep for their reverse pass.
    """

    staging: Any = None
    level: int = 0
    source: SourceLine | None = None
    activity: tuple[str, ...] = ()
    meter: Any = None


_CONTEXT: ContextVar[Context] = ContextVar("nnc", default=Context())  # noqa: B039  (frozen, so sharing it is safe)

get_context = _CONTEXT.get
_LEVELS = itertools.count(1)


def new_level() -> int:
    """A level above those of all traces so far. What is traced later is nested deeper, also where another thread traces it."""
    return next(_LEVELS)


@contextmanager
def set_context(**changes: Any) -> Iterator[Context]:
    """Replaces fields of the ambient context within the block."""
    token = _CONTEXT.set(replace(_CONTEXT.get(), **changes))
    try:
        yield _CONTEXT.get()
    finally:
        _CONTEXT.reset(token)


@contextmanager
def activity(description: str) -> Iterator[None]:
    """Names what is being done, for the messages of errors raised within the block."""
    with set_context(activity=(*_CONTEXT.get().activity, description)):
        yield
