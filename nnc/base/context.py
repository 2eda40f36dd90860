"""The one ambient value of nnc: the present trace, the transform that needs it, and the line of the user's program.

Everything else is passed as an argument. The value is frozen; a `with` block swaps it for another one and back, so threads
and coroutines never see each other's traces.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar, Token
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from nnc.base.source import SourceLine

if TYPE_CHECKING:
    from nnc.base.options import Options


class TracedCall(Protocol):
    """The call for which a compiled function is traced.

    Attributes:
        has_freed_numbers: whether numbers in fields of dataclasses are operands.
        is_running: whether the user's function runs now.
    """

    has_freed_numbers: bool
    is_running: bool

    def argument(self, position: int, count: int) -> tuple[str, Any]:
        """Returns the path and value of an argument; an empty path where there is none.

        Args:
            position: the position of an input of the trace.
            count: how many inputs the trace has.
        """


class Context(NamedTuple):
    """The circumstances of the command that runs now.

    `staging` is the innermost trace that records every command (none when running eagerly), `level` the level of
    the innermost trace (0: none), `source` the user's line on whose behalf a rule runs (a derivative points at the line that
    was differentiated), `activity` the transforms that the user asked for, outermost first, as in "tracing loss for grad", `meter`
    the counter of the bytes that loops keep for their reverse pass, `clock` the holder of the seconds of each part of a
    compilation, `background` the function that takes tasks that a call can do without (none: they are done at once), `modes` the
    modes that are switched on ("eager", "check_finite", "promotion" and "trace_errors" of nnc.debug; "watched" where a dynamic
    graph records a function's commands; "unspecialised" where functions run as they are, since nothing will be alike or a test
    wants it; a dynamic graph that records nothing stands for itself), `device` the interpreter of the device on which commands
    without operands run (none: of the CPU), `program` the options of the compiled function that is being traced, `call` its call,
    `axes` the named axes over which functions are mapped, outermost first, `dual` the level of the outermost derivative that is
    being taken of the commands that run (0: none).
    """

    staging: Any = None
    level: int = 0
    source: SourceLine | None = None
    activity: tuple[str, ...] = ()
    meter: Any = None
    clock: dict[str, float] | None = None
    background: Callable[[Callable[[], object]], None] | None = None
    modes: frozenset[Any] = frozenset()
    device: Any = None
    program: Options | None = None
    call: TracedCall | None = None
    axes: tuple[Any, ...] = ()
    dual: int = 0


# Returns a block within which commands without operands run where the arguments of a function are. Empty until a device other than
# the CPU is used, so that calls need not ask. A hook: every public function asks, and only tracing knows the kinds of arguments.
LOCATORS: list[Callable[[Sequence[Any], Mapping[str, Any]], AbstractContextManager[Any]]] = []

AT_REST = Context()  # nothing is going on, and nothing is switched on
_CONTEXT: ContextVar[Context] = ContextVar("nnc", default=AT_REST)

get_context = _CONTEXT.get
_LEVELS = itertools.count(1)


def where_arguments_are(args: Sequence[Any], kwargs: Mapping[str, Any]) -> AbstractContextManager[Any]:
    """A block within which commands without operands run on the device of a function's arguments, by default on the ambient one."""
    return LOCATORS[0](args, kwargs) if LOCATORS else nullcontext()


def new_level() -> int:
    """Returns a level above the levels of all traces so far. A later trace is nested deeper, also in another thread."""
    return next(_LEVELS)


class ContextChange:
    """A block within which fields of the ambient context have other values."""

    __slots__ = ("_changes", "_token")

    def __init__(self, changes: dict[str, Any]) -> None:
        self._changes = changes

    def __enter__(self) -> Context:
        context = _CONTEXT.get()._replace(**self._changes)
        self._token: Token[Context] = _CONTEXT.set(context)
        return context

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        _CONTEXT.reset(self._token)


def set_context(**changes: Any) -> ContextChange:
    """Replaces fields of the ambient context within the block."""
    return ContextChange(changes)


def with_mode(mode: Any) -> ContextChange:
    """Switches a mode on within the block."""
    return set_context(modes=_CONTEXT.get().modes | {mode})


def observes_commands(context: Context) -> bool:
    """Whether a mode is on that looks at each command, so that functions must run as they are.

    A dynamic graph among the modes records nothing, and so is none of these.
    """
    return not all(getattr(mode, "is_recorder", False) for mode in context.modes)


def activity(description: str) -> ContextChange:
    """Names the present work, for the messages of errors raised within the block."""
    return ContextChange({"activity": (*_CONTEXT.get().activity, description)})


def note_seconds(part: str, seconds: float) -> None:
    """Counts the seconds of a part of the compilation that goes on, if one does."""
    clock = _CONTEXT.get().clock
    if clock is not None:
        clock[part] = clock.get(part, 0.0) + seconds


@contextmanager
def timed(part: str) -> Iterator[None]:
    """Counts the seconds of the block for a part of the compilation."""
    start = perf_counter()
    yield
    note_seconds(part, perf_counter() - start)
