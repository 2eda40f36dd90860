"""Printing and calling back from anywhere: eager, traced, differentiated, batched or compiled code."""

from __future__ import annotations

import builtins
import string
from collections.abc import Callable
from typing import Any

from nnc.array.array import Array
from nnc.array.promote import as_shown
from nnc.commands.debug import callback as callback_command
from nnc.errors import ArgumentError, ArgumentTypeError, user_error
from nnc.errors.tracebacks import api_boundary
from nnc.trace.core.flat import FlatTree, call_function


@api_boundary
def callback(callback: Callable[..., object], *args: Any, ordered: bool = True, **kwargs: Any) -> None:
    """Calls a Python function with the values of traced arguments, whenever the program gets there.

    Calls happen in the order of the program, in loops once for each iteration. Under `vmap` there is one call for each row; under
    `grad` the function sees the values and is differentiated past. Code that runs twice (a checkpointed function) calls twice.
    Use `nnc.pure_callback` for a function whose result is wanted.

    Args:
        callback: takes the arguments with arrays in place of tracers; its result is ignored.
        *args: pytrees.
        ordered: accepted for other frameworks' sake; calls are always in order.
        **kwargs: pytrees.

    Raises:
        ArgumentTypeError: `callback` is no function.

    Example:
        >>> seen = []
        >>> f = nnc.compile(lambda x: (nnc.debug.callback(seen.append, x), 2 * x)[1])
        >>> f(3.0), seen
        (Array(6., dtype=float32), [Array(3., dtype=float32)])
    """
    if not callable(callback):
        problem = f"its first argument is {callback!r}, which cannot be called."
        fix = "pass a function, then its arguments: nnc.debug.callback(f, x)."
        raise user_error(ArgumentTypeError, "nnc.debug.callback", problem, fix=fix)
    flat = FlatTree((args, kwargs))
    skeleton = flat.skeleton()

    def run(*arrays: Any) -> None:
        values, named = skeleton.build([Array(x) for x in arrays])
        call_function(callback, values, named, where="nnc.debug.callback")

    callback_command(*map(as_shown, flat.dynamic), function=run)


@api_boundary
def print(fmt: str, *args: Any, ordered: bool = True, **kwargs: Any) -> None:
    """Prints values of traced arguments, formatted as `fmt.format(*args, **kwargs)`; see `callback` for when.

    Args:
        fmt: a format string, such as "loss {} at {step}".
        *args: pytrees of arrays and anything else, by position.
        ordered: accepted for other frameworks' sake.
        **kwargs: pytrees of arrays and anything else, by name.

    Raises:
        ArgumentError: `fmt` names other arguments than are given (as an f-string does, which names none).

    Example:
        >>> @nnc.compile
        ... def f(x):
        ...     nnc.debug.print("x is {x:.2f}", x=x)
        ...     return x * 2
        >>> y = f(1.5)
        x is 1.50
    """
    _check_format(fmt, args, kwargs)
    callback(lambda *values, **named: builtins.print(fmt.format(*values, **named)), *args, **kwargs)


def _check_format(fmt: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raises where values would not be printed, or are missing."""
    try:
        fields = [str(name) for _, name, _, _ in string.Formatter().parse(fmt) if name is not None]
    except (ValueError, TypeError) as error:
        problem = f"{fmt!r} is no format string: {error}."
        raise user_error(ArgumentError, "nnc.debug.print", problem, fix='write "x = {}", and then x.') from None
    first = [name.partition(".")[0].partition("[")[0] for name in fields]
    numbered = {int(name) for name in first if name.isdigit()} | set(range(first.count("")))
    named = {name for name in first if name and not name.isdigit()}
    if numbered != set(range(len(args))) or named != set(kwargs):
        problem = f"{fmt!r} names {len(numbered | named)} values, {len(args) + len(kwargs)} were given."
        fix = 'name each value once: nnc.debug.print("x = {}, y = {y}", x, y=y); write no f-string, which has the tracer in it.'
        raise user_error(ArgumentError, "nnc.debug.print", problem, fix=fix)
