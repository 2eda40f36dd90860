"""Integers that take the dtype of an array that they meet: they must fit into it, where conversions wrap around."""

from __future__ import annotations

from typing import Any

import numpy as np

from nnc.base import dtypes
from nnc.commands.rules import batch_leading
from nnc.errors import DTypeError, NumberRangeError, user_error
from nnc.graph import Command, TensorSpec, register
from nnc.graph.rules import Rules


def misfit(where: str, number: Any, dtype: dtypes.DType, reason: Exception) -> DTypeError:
    """Makes the error for a number that a dtype cannot hold.

    Args:
        where: the function that the user called.
        dtype: the dtype that the number was to take.
        reason: why it does not fit, in NumPy's words; an OverflowError where it is too large.
    """
    problem = f"the number {number!r} does not fit into {dtype.name}: {reason}."
    fix = "use a wider dtype, or convert the array first."
    return user_error(NumberRangeError if isinstance(reason, OverflowError) else DTypeError, where, problem, fix=fix)


def bounds(source: dtypes.DType, target: dtypes.DType) -> tuple[int, int]:
    """Returns the smallest and the largest integer that two dtypes both hold."""
    a, b = np.iinfo(source), np.iinfo(target)
    return max(int(a.min), int(b.min)), min(int(a.max), int(b.max))


def _infer(x: TensorSpec, *, dtype: Any, where: str) -> TensorSpec:
    return x.update(dtype=dtypes.as_dtype(dtype))


def _reference(x: Any, *, dtype: Any, where: str) -> Any:
    target = dtypes.as_dtype(dtype)
    lower, upper = bounds(x.dtype, target)
    outside = x[(x < lower) | (x > upper)]
    if outside.size:
        number = outside.reshape(-1)[0].item()
        raise misfit(where, number, target, OverflowError(f"Python integer {number} out of bounds for {target.name}"))
    return x.astype(target)


# where: the function that the user called, for the error
fit: Command = register(
    "fit",
    Rules(
        infer=_infer,
        reference=_reference,
        batch=batch_leading("fit"),
        refuses=lambda x, dtype, where: not np.can_cast(x.dtype, dtype),
        exact=True,
        cost=lambda x, dtype, where: 0,
    ),
)
