"""Values of a model while it runs: known ones are NumPy arrays, the others arrays or tracers of nnc.

A sequence is a list of values, a map a dict, an optional value without content None, a string tensor a NumPy array of objects.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nnc.array.array import Array
from nnc.errors import FileFormatError, user_error

_DTYPES = frozenset(
    ["bool", "bfloat16", "float16", "float32", "float64", "complex64", "complex128"]
    + [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
)


MOST_KNOWN = 64 << 20  # bytes of a value that follows from the model alone, if it is larger than its operands


class ValueNeeded(Exception):  # noqa: N818  (a request to the loader, which answers it)
    """Tells the loader that an operator needs the numbers of a value, which the trace does not know."""

    def __init__(self, value: Any, what: str) -> None:
        super().__init__(what)
        self.value, self.what = value, what


class InputsNeeded(Exception):  # noqa: N818  (a request to the caller)
    """Tells that a node needs numbers that depend on these inputs of the model."""

    def __init__(self, node: Any, what: str, inputs: frozenset[str]) -> None:
        super().__init__(what)
        self.node, self.what, self.inputs = node, what, inputs


def is_known(value: Any) -> bool:
    """Tells whether the value is known: a NumPy array, a map, nothing, or a sequence of known values."""
    return (
        value is None
        or isinstance(value, (np.ndarray, dict))
        or (isinstance(value, list) and all(map(is_known, value)))
    )


def known(value: Any, what: str) -> np.ndarray[Any, Any]:
    """Returns a value as NumPy array; raises ValueNeeded with `what` ("the axes of Squeeze") where it is not known."""
    if isinstance(value, (np.ndarray, Array)):
        return np.asarray(value)
    raise ValueNeeded(value, what)


def integers(value: Any, what: str) -> list[int]:
    """Returns a known value's elements as Python ints."""
    return [int(number) for number in known(value, what).reshape(-1)]


def as_known(value: Any) -> Any:
    """Returns the result of an operator on known values as a known value, in rows, as programs read constants."""
    if isinstance(value, list):
        return [as_known(part) for part in value]
    return value if value is None or isinstance(value, dict) else np.asarray(value, order="C")


def nnc_has(dtype: Any) -> bool:
    """Whether nnc has arrays of a dtype."""
    return np.dtype(dtype).name in _DTYPES


def check_known(nbytes: int, what: str, held: int = 0) -> None:
    """Raises where a value that follows from the model alone would have too many bytes: more than 4 times those of its operands."""
    if nbytes > max(MOST_KNOWN, 4 * held):
        fix = f"a value that follows from the file alone may have {MOST_KNOWN:,} bytes."
        raise user_error(FileFormatError, "nnc.onnx.load", f"{what} would have {nbytes:,} bytes.", fix=fix)
