"""Recognises arrays of other libraries (PyTorch, JAX, CuPy, pandas …) by their class."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import is_dataclass
from functools import lru_cache

import numpy as np

_CLASSES = 4096  # classes of which the answer is kept: more than a program has


def _is_foreign(kind: type) -> bool:
    """Whether objects of a class are arrays of another library: they have `__dlpack__` or `__array__`.

    A dataclass is a container of arrays, even if it has such methods.

    Example:
        >>> is_foreign(memoryview), is_foreign(np.ndarray)
        (False, False)
    """
    if issubclass(kind, (np.ndarray, np.generic)) or hasattr(kind, "spec") or is_dataclass(kind):
        return False
    return hasattr(kind, "__dlpack__") or hasattr(kind, "__array__")


is_foreign: Callable[[type], bool] = lru_cache(maxsize=_CLASSES)(_is_foreign)
