"""Tracebacks without the frames of nnc: a mistake is shown in the lines that its author wrote.

Public functions stand behind a boundary. An exception of any class that crosses the outermost one loses the frames of nnc,
no matter where it was raised; all other frames stay, in their order. `NNC_TRACEBACK=full` and `nnc.debug.trace_errors` keep all.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType, TracebackType
from typing import Any, TypeVar, cast

import numpy as np

from nnc.base.context import LOCATORS, get_context, where_arguments_are
from nnc.base.options import wants_full_tracebacks
from nnc.base.source import is_internal, is_ours, short_path
from nnc.errors import ArgumentTypeError, InternalError, NncError, OutOfMemoryError, user_error

_NUMPY = os.path.dirname(np.__file__) + os.sep
_TOO_BIG = ("array is too big", "Maximum allowed dimension exceeded")  # NumPy, which does not even ask the system
F = TypeVar("F", bound=Callable[..., Any])


def api_boundary(function: F) -> F:
    """Lets exceptions leave `function`, which users call, without the frames of nnc.

    Example:
        >>> @api_boundary
        ... def apply(f, x):
        ...     return f(x)
        >>> apply(abs, -1)
        1
    """

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            if LOCATORS:
                with where_arguments_are(args, kwargs):
                    return function(*args, **kwargs)
            return function(*args, **kwargs)
        except BaseException as error:
            other = leave(error, function, getattr(call, "__name__", "function"), args, kwargs)
            if other is None:
                raise
            try:
                raise other from None
            except NncError as worded:
                cut_traceback(worded)
                raise

    return cast(F, call)


def leave(
    error: BaseException, function: Callable[..., Any], name: str, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> NncError | None:
    """Prepares `error` to leave a boundary around `function(*args, **kwargs)`.

    Returns:
        the error to raise instead, where the arguments do not fit the function's signature or nnc found no memory; else None:
            the boundary then writes `raise` without an operand, which adds no frame of its own.
    """
    other = arguments_misfit(error, function, name, args, kwargs) or _no_memory(error, name, sys._getframe(2))
    if other is None:
        _cut(error, sys._getframe(2))
    return other


def _no_memory(error: BaseException, name: str, caller: FrameType) -> OutOfMemoryError | None:
    """Returns the error for memory that nnc itself asked for in vain; None for other errors, and where an outer boundary words
    it.
    """
    is_too_big = isinstance(error, ValueError) and str(error).startswith(_TOO_BIG)
    if (
        not (isinstance(error, MemoryError) or is_too_big)
        or isinstance(error, NncError)
        or is_ours(caller)
        or is_users(error)
    ):
        return None
    problem = f"the system gives no memory for it: {str(error) or 'it is all taken'}."
    fix = (
        "work on fewer elements at a time, for example with nnc.map or nnc.vmap(..., chunk_size=n); a function compiled by "
        "nnc.compile keeps fewer values at once than its commands one by one."
    )
    return user_error(OutOfMemoryError, name, problem, fix=fix)


def is_users(error: BaseException) -> bool:
    """Whether `error` arose in the user's program, below the function that caught it, and not in nnc or in NumPy called by nnc."""
    traceback = error.__traceback__
    while traceback is not None:
        if not is_ours(traceback.tb_frame) and not traceback.tb_frame.f_code.co_filename.startswith(_NUMPY):
            return True
        traceback = traceback.tb_next
    return False


def arguments_misfit(
    error: BaseException,
    function: Callable[..., Any],
    name: str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    where: str | None = None,
    fix: str | None = None,
) -> ArgumentTypeError | None:
    """Returns the error for arguments that do not fit the signature of `function`; None where `error` has another cause.

    Args:
        error: the error that the caller caught around `function(*args, **kwargs)`.
        where: the caller, where that was not the user.
        fix: the remedy; by default, to call the function as its signature says.
    """
    traceback = error.__traceback__
    if not isinstance(error, TypeError) or isinstance(error, NncError) or traceback is None:
        return None
    if traceback.tb_next and not hasattr(function, "__signature__"):  # such a function passes its arguments on
        return None  # raised in the body of the function
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return None
    try:
        signature.bind(*args, **kwargs)
    except TypeError as reason:
        count = f"{len(args)} positional argument{'' if len(args) == 1 else 's'}"
        given = ", ".join([count, *(f"{name}=" for name in kwargs)])
        takes = str(signature.replace(return_annotation=inspect.Signature.empty))
        problem = f"{name if where else 'it'} does not take the arguments that it is called with: {reason}."
        operands = {"signature": f"{name}{takes}", "given": given}
        advice = fix or "call it with the arguments of its signature."
        return user_error(ArgumentTypeError, where or name, problem, operands=operands, fix=advice)
    return None


def cut_traceback(error: BaseException) -> None:
    """Drops the frames of nnc from the traceback of `error` and of all errors chained to it, where the caller's caller is the user.

    For boundaries that do without a frame of their own; they then write `raise`.
    """
    _cut(error, sys._getframe(2))


def _cut(error: BaseException, caller: FrameType) -> None:
    if caller.f_code.co_filename == "<string>" and caller.f_back is not None:  # the __init__ of a dataclass
        caller = caller.f_back
    if is_ours(caller) or "trace_errors" in get_context().modes or wants_full_tracebacks():
        return
    chained = list(_chain(error))
    for one in chained:
        if not isinstance(one, InternalError):
            _note_place(one)
            one.__traceback__ = users_frames(one.__traceback__)
    for one in chained:
        context = one.__context__
        if isinstance(one, NncError) and context is not None and context.__traceback__ is None:
            one.__suppress_context__ = True  # nothing but frames of nnc saw it, and `one` words it


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An error and all that are chained to it or grouped in it, each once."""
    seen: set[int] = set()
    pending: list[BaseException | None] = [error]
    while pending:
        one = pending.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            yield one
            pending += [one.__cause__, one.__context__]
            if isinstance(one, BaseExceptionGroup):
                pending += one.exceptions


def users_frames(traceback: TracebackType | None) -> TracebackType | None:
    """Returns a traceback without the frames of nnc and of helpers (contextlib, functools, optree) that nnc called."""
    kept: list[TracebackType] = []
    is_inside = False
    while traceback is not None:
        frame = traceback.tb_frame
        is_inside = is_ours(frame) or (is_inside and is_internal(frame.f_code.co_filename))
        if not is_inside:
            kept.append(traceback)
        traceback = traceback.tb_next
    result: TracebackType | None = None
    for one in reversed(kept):
        result = TracebackType(result, one.tb_frame, one.tb_lasti, one.tb_lineno)
    return result


def _note_place(error: BaseException) -> None:
    """Notes where in nnc an error arose that nnc did not word: it may be a bug of nnc, and its place is about to be cut."""
    if isinstance(error, (NncError, StopIteration, StopAsyncIteration)) or not isinstance(error, Exception):
        return
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    if last is not None and is_ours(last.tb_frame):
        code = last.tb_frame.f_code
        place = f"{short_path(code.co_filename)}:{last.tb_lineno} in {code.co_name}"
        error.add_note(f"It arose within nnc, at {place}. NNC_TRACEBACK=full shows nnc's frames, too.")
