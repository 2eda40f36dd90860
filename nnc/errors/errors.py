"""The errors of nnc, and the one function that words every error a user can cause.

A user error says which argument of which function is wrong and how, shows the operands, points at the user's line, and names the
activity of nnc and the fix. `InternalError` means a bug in nnc.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from nnc.base.context import get_context, set_context
from nnc.base.source import SourceLine, user_source

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
    "NumberRangeError",
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
    """Any mistake that nnc reports to its user.

    Example:
        >>> try:
        ...     nnp.ones(2) + nnp.ones(3)
        ... except nnc.errors.NncError as error:
        ...     print(type(error).__name__)
        ShapeError
    """


class ShapeError(NncError, ValueError):
    """Shapes do not fit together.

    Example:
        >>> nnp.ones(2) + nnp.ones(3)
        Traceback (most recent call last):
        ...
        nnc.errors.ShapeError: add: shapes (2,) and (3,) do not broadcast together.
        ...
    """


class AxisError(ShapeError, IndexError):
    """An axis does not exist.

    Example:
        >>> nnp.sum(nnp.ones(2), axis=3)
        Traceback (most recent call last):
        ...
        nnc.errors.AxisError: sum: axis 3 is out of range for an array of 1 axes.
        ...
    """


class DTypeError(NncError, TypeError):
    """An operand has a dtype that the operation does not take.

    Example:
        >>> nnp.bitwise_and(1.0, 2.0)
        Traceback (most recent call last):
        ...
        nnc.errors.DTypeError: bitwise_and: x must be bool or integer, it is float32.
        ...
    """


class NumberRangeError(DTypeError, OverflowError):
    """A Python integer does not fit into the dtype of the array that it meets.

    Example:
        >>> nnp.ones(1, "uint8") + 300
        Traceback (most recent call last):
        ...
        nnc.errors.NumberRangeError: add: the number 300 does not fit into uint8: Python integer 300 out of bounds for uint8.
        ...
    """


class ArgumentError(NncError, ValueError):
    """An argument has a value that the function does not take.

    Example:
        >>> nnc.scipy.linalg.hilbert(-1)
        Traceback (most recent call last):
        ...
        nnc.errors.ArgumentError: hilbert: n is -1.
        ...
    """


class ArgumentTypeError(NncError, TypeError):
    """An argument has a type that the function does not take, or a name that it does not know.

    Example:
        >>> nnp.sum(nnp.ones(2), axes=0)
        Traceback (most recent call last):
        ...
        nnc.errors.ArgumentTypeError: sum: it has no argument 'axes'.
        ...
    """


class MissingNameError(NncError, AttributeError):
    """A module has nothing of this name.

    Example:
        >>> nnp.clamp
        Traceback (most recent call last):
        ...
        nnc.errors.MissingNameError: nnc.numpy: it has no 'clamp'.
        ...
    """


class UnboundAxisError(NncError, NameError):
    """No function is mapped over an axis of this name here.

    Example:
        >>> nnc.psum(1.0, "i")
        Traceback (most recent call last):
        ...
        nnc.errors.UnboundAxisError: nnc.psum: there is no axis 'i' here; none is bound.
        ...
    """


class TreeError(NncError, ValueError):
    """Two pytrees that must have the same structure differ.

    Example:
        >>> nnc.tree.map(lambda x, y: x + y, [1], [1, 2])
        Traceback (most recent call last):
        ...
        nnc.errors.TreeError: tree.map: the first tree and tree 2 differ in structure:
        ...
    """


class TraceError(NncError, TypeError):
    """A tracer is used where only a value will do, or after its trace has ended.

    Example:
        >>> nnc.compile(lambda x: 1 if x > 0 else 2)(1.0)
        Traceback (most recent call last):
        ...
        nnc.errors.TraceError: bool: the value of bool[] ... is not known while the function is traced.
        ...
    """


class OutOfBoundsError(NncError, IndexError):
    """An index lies outside the axis that it indexes.

    Example:
        >>> nnp.arange(3)[5]
        Traceback (most recent call last):
        ...
        nnc.errors.OutOfBoundsError: getitem: index 5 is out of range for axis 0, which has size 3.
        ...
    """


class IndexingError(NncError, IndexError):
    """An index has a type, a shape or a number of parts that indexing does not take.

    Example:
        >>> nnp.arange(3)[1.5]
        Traceback (most recent call last):
        ...
        nnc.errors.IndexingError: getitem: 1.5 (float) is no index.
        ...
    """


class LinAlgError(NncError, ValueError):
    """A matrix lacks a property that an operation needs: it is singular, not positive definite, or holds NaN.

    Example:
        >>> nnp.linalg.inv(nnp.zeros((2, 2)))
        Traceback (most recent call last):
        ...
        nnc.errors.LinAlgError: inv (solve with the identity): a matrix is singular.
        ...
    """


class GraphError(NncError, ValueError):
    """A graph breaks one of its invariants.

    Example:
        >>> nnc.graph.from_json("{}")
        Traceback (most recent call last):
        ...
        nnc.errors.GraphError: from_json: ...
        ...
    """


class RegistryError(NncError, ValueError):
    """A command, attribute or backend is registered twice, or is not registered.

    Example:
        >>> nnc.graph.command("no_such")
        Traceback (most recent call last):
        ...
        nnc.errors.RegistryError: command: no command 'no_such' is registered.
        ...
    """


class UnsupportedError(NncError, NotImplementedError):
    """Something nnc does not do.

    Example:
        >>> nnc.device_put(1.0, "tpu:0")
        Traceback (most recent call last):
        ...
        nnc.errors.UnsupportedError: device_put: there is no device 'tpu:0'.
        ...
    """


class BackendError(NncError, RuntimeError):
    """No backend can run a command, or one failed.

    Example:
        >>> nnc.graph.find_kernel(nnc.graph.Command("new", 1, 1), (), {})
        Traceback (most recent call last):
        ...
        nnc.errors.BackendError: new: no backend runs it for these inputs, and it has no reference.
        ...
    """


class DeviceError(NncError, RuntimeError):
    """Arrays lie on the wrong device, work on a device is not ordered, or a device is lost.

    Example:
        >>> import nnc.testing.devices  # simulated ones
        >>> with nnc.debug.transfers("error"):
        ...     nnc.device_put(np.ones(3), "sim:0") + np.ones(3)
        Traceback (most recent call last):
        ...
        nnc.errors.DeviceError: transfer: 24 bytes (float64[3]) are copied from the host to sim:0.
        ...
    """


class ExportError(DeviceError, BufferError):
    """Another library asks for memory that lies on a device.

    Example:
        >>> import nnc.testing.devices  # simulated ones
        >>> np.from_dlpack(nnc.device_put(np.ones(3), "sim:0"))
        Traceback (most recent call last):
        ...
        nnc.errors.ExportError: ...
    """


class NotFiniteError(NncError, FloatingPointError):
    """A command made a NaN or an infinity, within `nnc.debug.check_finite()`.

    Example:
        >>> with nnc.debug.check_finite():
        ...     nnp.log(nnp.zeros(2))
        Traceback (most recent call last):
        ...
        nnc.errors.NotFiniteError: log: 2 of 2 elements of its result are not finite ...
        ...
    """


class MemoryBudgetError(NncError, MemoryError):
    """The memory plan does not fit into `memory_budget`.

    Example:
        >>> nnc.compile(lambda x: nnp.sort(x) @ x, memory_budget=10)(nnp.ones(1000))
        Traceback (most recent call last):
        ...
        nnc.errors.MemoryBudgetError: <lambda>: a call needs 3.94 KiB ...
        ...
    """


class OutOfMemoryError(NncError, MemoryError):
    """The system does not give the memory that a call needs.

    Example:
        >>> nnp.ones(1 << 50)
        Traceback (most recent call last):
        ...
        nnc.errors.OutOfMemoryError: ones: the system gives no memory for it: ...
        ...
    """


class FileFormatError(NncError, ValueError):
    """A file is damaged, or not of the expected kind.

    Example:
        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile() as file:
        ...     nnc.io.load(file.name)
        Traceback (most recent call last):
        ...
        nnc.errors.FileFormatError: nnc.io.load: ...
    """


class MissingFileError(NncError, FileNotFoundError):
    """There is no such file.

    Example:
        >>> nnc.io.load("missing.nnc")
        Traceback (most recent call last):
        ...
        nnc.errors.MissingFileError: nnc.io.load: there is no file missing.nnc.
        ...
    """


class FileAccessError(NncError, OSError):
    """The system does not let a file be read or written, or it is no regular file.

    Example:
        >>> nnc.io.load("/dev/null")
        Traceback (most recent call last):
        ...
        nnc.errors.FileAccessError: nnc.io.load: /dev/null is a device, not a regular file.
        ...
    """


class RetraceWarning(UserWarning):
    """A compiled function is traced time and again, which takes longer than running it.

    Example:
        >>> import warnings
        >>> with warnings.catch_warnings(record=True) as found:
        ...     warnings.simplefilter("always")
        ...     sizes = [nnc.compile(lambda x: x + 1)(nnp.ones(3)).size for i in range(9)]
        >>> found[0].category.__name__
        'RetraceWarning'
    """


class InternalError(Exception):
    """A bug in nnc: please report it.

    Example:
        >>> issubclass(InternalError, NncError)  # so that no `except NncError` hides it
        False
    """


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


def check_choice(where: str, name: str, value: Any, choices: Iterable[Any]) -> None:
    """Raises unless a value is one of the choices.

    Args:
        where: the function the user called.
        name: the name of its argument.
        choices: all values that are allowed.

    Raises:
        ArgumentError: the value is none of them.

    Example:
        >>> check_choice("resize", "method", "linear", ("linear", "nearest"))
    """
    known = tuple(choices)
    if getattr(value, "shape", ()) or value not in known:  # for example, an array equals a choice at some places
        *others, last = [f'"{each}"' if isinstance(each, str) else repr(each) for each in known]
        words = f"{', '.join(others)} or {last}" if others else last
        raise user_error(ArgumentError, where, f"{name} is {value!r}.", fix=f"use {words}.")


def check_count(where: str, name: str, value: Any, fix: str, least: int = 1) -> None:
    """Raises unless a value is a Python int that is large enough.

    Args:
        where: the function the user called.
        name: the name of its argument.
        fix: the remedy, a sentence.
        least: the smallest number that is allowed.

    Raises:
        ArgumentError: the value is no such int.

    Example:
        >>> check_count("sort", "k", 3, "give k=1.")
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise user_error(ArgumentError, where, f"{name} is {value!r}; it must be an int of at least {least}.", fix=fix)


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
    """Returns the repr of a value, cut to 60 characters, for messages."""
    try:
        text = repr(value)
    except RecursionError:  # a container of thousands of containers
        text = f"a deeply nested {type(value).__name__}"
    return text if len(text) <= 60 else text[:57] + "..."


def __dir__() -> list[str]:
    return sorted(__all__)


for _value in [*globals().values()]:
    if isinstance(_value, type) and issubclass(_value, (NncError, Warning)):
        _value.__module__ = "nnc.errors"  # tracebacks and pickles name the public module
