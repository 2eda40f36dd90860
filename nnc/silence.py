"""NumPy's functions without its warnings of overflows and invalid operations: floating-point arithmetic goes on with inf and NaN.

`np.errstate` takes longer than a small command. What it sets is a context variable, so here each thread has one context in which it
is set for good.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from typing import Any

import numpy as np


class _Silent(threading.local):
    """`run(function, *args)` of the thread's context."""

    def __init__(self) -> None:
        context = contextvars.copy_context()
        context.run(np.seterr, all="ignore")
        self.run = context.run


_SILENT = _Silent()


def silently(function: Callable[..., Any], *args: Any) -> Any:
    """`function(*args)` without warnings of NumPy; the function must be one of NumPy's.

    Example:
        >>> silently(np.log, np.float32(0))
        np.float32(-inf)
    """
    try:
        return _SILENT.run(function, *args)
    except RuntimeError:  # something that Python does on the side, such as to free an object, runs commands within one
        with np.errstate(all="ignore"):
            return function(*args)
