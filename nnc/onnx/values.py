"""Values of a model while it runs: known ones are NumPy arrays, the others arrays or tracers of nnc.

A sequence is a list of values, an optional value without content None, a string tensor a NumPy array of objects.
"""

from __future__ import annotations

from typing import Any

import numpy as np


class ValueNeeded(Exception):  # noqa: N818  (a request to the loader, which answers it)
    """Tells the loader that an operator needs a number of a value that the trace does not know."""

    def __init__(self, value: Any, what: str) -> None:
        super().__init__(what)
        self.value = value
        self.what = what


def is_known(value: Any) -> bool:
    """Tells whether the value is known: a NumPy array, nothing, or a sequence of known values."""
    return value is None or isinstance(value, np.ndarray) or (isinstance(value, list) and all(map(is_known, value)))


def known(value: Any, what: str) -> np.ndarray:
    """Returns a value as NumPy array; raises ValueNeeded with `what` ("the axes of Squeeze") where it is not known."""
    if isinstance(value, np.ndarray):
        return value
    raise ValueNeeded(value, what)


def integers(value: Any, what: str) -> list[int]:
    """Returns a known value's elements as Python ints."""
    return [int(number) for number in known(value, what).reshape(-1)]
