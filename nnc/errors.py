"""The errors of nnc, and the one function that words every error a user can cause.

A user error says which argument of which function is wrong and how, shows the operands, points at the user's line, and names the
activity of nnc and the fix. `InternalError` means a bug in nnc.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from nnc.context import get_context, set_context
from nnc.source import SourceLine, user_source

__all__ = [
    "ArgumentError",
    "ArgumentTypeError",
    "AxisError",
    "BackendError",
    "DTypeError",
    "DeviceError",
    "FileAccessError",
    "FileFormatError",
    "GraphError",
    "IndexingError",
    "InternalError",
    "LinAlgError",
    "MemoryBudgetError",
    "MissingFileError",
    "MissingNameError",
    "NncError",
    "NotFiniteError",
    "OutOfBoundsError",
    "OutOfMemoryError",
    "RegistryError",
    "RetraceWarning",
    "ShapeError",
    "TraceError",
    "TreeError",
    "UnboundAxisError",
    "UnsupportedError",
    "user_error",
]


class NncError(Exception):
    """Any mistake that nnc reports to its user."""


class ShapeError(NncError, ValueError):
    """Shapes do not fit together."""


class AxisError(ShapeError, IndexError):
    """An axis does not exist."""


class DTypeError(NncError, TypeError):
    """An operand has a dtype that the operation does not take."""


class ArgumentError(NncError, ValueError):
    """An argument has a value that the function does not take."""


class ArgumentTypeError(NncError, TypeError):
    """An argument has a type that the function does not take, or a name that it does not know."""


class MissingNameError(NncError, AttributeError):
    """A module has nothing of this name."""


class UnboundAxisError(NncError, NameError):
    """No function is mapped over an axis of this name here."""


class TreeError(NncError, ValueError):
    """Two pytrees that must have the same structure differ."""


class TraceError(NncError, TypeError):
    """A tracer is used where only a value will do, or after its trace has ended."""


class OutOfBoundsError(NncError, IndexError):
    """An index lies outside the axis that it indexes."""


class IndexingError(NncError, IndexError):
    """An index has a type, a shape or a number of parts that indexing does not take."""


class LinAlgError(NncError, ValueError):
    """A matrix lacks a property that an operation needs: it is singular, not positive definite, or holds NaN."""


class GraphError(NncError, ValueError):
    """A graph breaks one of its invariants."""


class RegistryError(NncError, ValueError):
    """A command, attribute or backend is registered twice, or is not registered."""


class UnsupportedError(NncError, NotImplementedError):
    """Something nnc does not do."""


class BackendError(NncError, RuntimeError):
    """No backend can run a command, or one failed."""


class DeviceError(NncError, RuntimeError):
    """Arrays lie on the wrong device, work on a device is not ordered, or a device is lost."""


class ExportError(DeviceError, BufferError):
    """Another library asks for memory that lies on a device."""


class NotFiniteError(NncError, FloatingPointError):
    """A command made a NaN or an infinity, within `nnc.debug.check_finite()`."""


class MemoryBudgetError(NncError, MemoryError):
    """The memory plan does not fit into `memory_budget`."""


class OutOfMemoryError(NncError, MemoryError):
    """The system does not give the memory that a call needs."""


class FileFormatError(NncError, ValueError):
    """A file is damaged, or not of the expected kind."""


class MissingFileError(NncError, FileNotFoundError):
    """There is no such file."""


class FileAccessError(NncError, OSError):
    """The system does not let a file be read or written, or it is no regular file."""


class RetraceWarning(UserWarning):
    """A compiled function is traced time and again, which takes longer than running it."""


class InternalError(Exception):
    """A bug in nnc: please report it."""


ErrorT = TypeVar("ErrorT", bound=NncError)


def user_error(
    kind: type[ErrorT],
    where: str,
    problem: str,
    *,
    operands: Mapping[str, Any] | None = None,
    fix: str | None = None,
    source: SourceLine | None = None,
) -> ErrorT:
    """Builds the error `kind` in nnc's one format; the caller raises it.

    Args:
        kind: class of the error.
        where: the function the user called.
        problem: the mistake, with the values.
        operands: name -> spec or value, shown on a line of their own.
        fix: the remedy, a sentence.
        source: the user's line, where it is not the present one.

    Returns:
        the error.

    Example:
        >>> print(user_error(ShapeError, "add", "shapes differ.", operands={"x": "float32[2]"}, fix="reshape x."))
        ... # doctest: +ELLIPSIS
        add: shapes differ.
          x float32[2]
          at ...
        Fix: reshape x.
    """
    context = get_context()
    source = source or context.source or user_source()
    lines = [f"{where}: {problem}"]
    if operands:
        lines.append("  " + "   ".join(f"{name} {value}" for name, value in operands.items()))
    if source is not None:
        lines.append(f"  at {source.describe()}")
    lines += [f"  while {activity}" for activity in reversed(context.activity)]
    if fix:
        lines.append(f"Fix: {fix}")
    return kind("\n".join(lines))


def word_anew(run: Callable[[], Any], source: SourceLine | None) -> None:
    """Runs once more a function that has just failed, so that its error names the user's line `source`.

    To find the line beforehand would cost time in every call; only a failing one needs it.
    """
    with set_context(source=source):
        try:
            run()
        except NncError as error:
            raise error from None


def shorten(value: Any) -> str:
    """The repr of a value, cut to 60 characters, for messages."""
    try:
        text = repr(value)
    except RecursionError:  # a container of thousands of containers
        text = f"a deeply nested {type(value).__name__}"
    return text if len(text) <= 60 else text[:57] + "..."


def __dir__() -> list[str]:
    return sorted(__all__)
