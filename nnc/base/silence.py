"""NumPy's functions without its warnings of overflows and invalid operations: floating-point arithmetic goes on with inf and NaN.

`np.errstate` takes longer than a small command. It sets a context variable, so here each thread has contexts in which that
is set for good.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from typing import Any

import numpy as np


class _Contexts(threading.local):
    """`silent(function, *args)` and `strict(function, *args)` of the thread's contexts."""

    def __init__(self) -> None:
        self.silent = _context_with(all="ignore").run
        self.strict = _context_with(all="ignore", invalid="raise").run


def _context_with(**errors: Any) -> contextvars.Context:
    context = contextvars.copy_context()
    context.run(np.seterr, **errors)
    return context


_CONTEXTS = _Contexts()


def silently(function: Callable[..., Any], *args: Any) -> Any:
    """`function(*args)` without warnings of NumPy; the function must be one of NumPy's.

    Example:
        >>> silently(np.log, np.float32(0))
        np.float32(-inf)
    """
    try:
        return _CONTEXTS.silent(function, *args)
    except RuntimeError:  # something that Python does on the side, such as to free an object, runs commands within one
        with np.errstate(all="ignore"):
            return function(*args)


def strictly(function: Callable[..., Any], *args: Any) -> Any:
    """Calls `function(*args)` without NumPy's warnings; the function must be one of NumPy's.

    Raises:
        FloatingPointError: an operation is invalid, such as a conversion of NaN to an integer.
    """
    try:
        return _CONTEXTS.strict(function, *args)
    except RuntimeError:
        with np.errstate(all="ignore", invalid="raise"):
            return function(*args)
