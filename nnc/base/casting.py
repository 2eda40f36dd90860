"""Conversions of NumPy arrays to another dtype, by one rule for eager calls, references and folded constants.

A float that becomes an integer is cut off towards 0 and then limited to the range of the dtype; NaN becomes 0. C leaves such
conversions undefined, so NumPy's results differ between processors and between the lengths of vectors; LLVM's `fptosi.sat` and
XLA follow the same rule as nnc. All other conversions are NumPy's.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import numpy as np

from nnc.base import dtypes
from nnc.base.silence import silently, strictly

NDArray = np.ndarray[Any, Any]


def cast_array(x: NDArray | np.generic, dtype: dtypes.DType) -> NDArray:
    """Returns a new array with the elements of `x` in `dtype`, without NumPy's warnings.

    Args:
        x: an array or a NumPy scalar.
        dtype: a dtype of nnc.

    Returns:
        an array (a scalar for a scalar) of that dtype.

    Example:
        >>> cast_array(np.array([-1.5, 300, np.nan]), dtypes.uint8)
        array([  0, 255,   0], dtype=uint8)
    """
    return caster(x.dtype, dtype)(x)


@lru_cache(maxsize=256)
def caster(source: dtypes.DType, target: dtypes.DType) -> Callable[[Any], NDArray]:
    """Returns the function that converts arrays and scalars of one dtype to another."""
    if not saturates(source, target):
        return lambda x: silently(x.astype, target)
    return partial(_convert_strictly if _is_noticed(source, target) else _convert_limited, target)


def _convert_strictly(dtype: dtypes.DType, x: Any) -> NDArray:
    """Converts to dtypes for which NumPy itself notices numbers that do not fit, so that none need be searched for."""
    try:
        converted: NDArray = strictly(x.astype, dtype)
    except FloatingPointError:
        return _convert_limited(dtype, x)
    return converted


def _is_noticed(source: dtypes.DType, target: dtypes.DType) -> bool:
    """Whether NumPy raises for each float that does not fit an integer dtype.

    Processors note such a conversion where they have an instruction for the pair of dtypes; it is tried, in NumPy's loops for
    contiguous and for other arrays, in vectors and behind them.
    """
    if source not in (dtypes.float32, dtypes.float64) or target not in (dtypes.int32, dtypes.int64):
        return False
    for value in (np.nan, *limits(source, target)):
        for place in (0, 20, 40):
            memory = np.zeros((41, 2), source)
            memory[place] = value
            for x in (memory[:, 0], memory[:, 0].copy(), memory[place, 0]):
                try:
                    strictly(x.astype, target)
                except FloatingPointError:
                    continue
                return False
    return True


def _convert_limited(dtype: dtypes.DType, x: NDArray) -> NDArray:
    """Returns the conversion of floats to integers, for all numbers."""
    x = x.astype(dtypes.accumulator(x.dtype), copy=False)
    lower, upper = limits(x.dtype, dtype)
    if not x.size or (lower < x.min() and x.max() < upper):  # False for NaN
        return x.astype(dtype)
    info = np.iinfo(dtype)
    last = np.nextafter(upper, x.dtype.type(0))  # int(last) is less than the largest integer, where floats are sparse
    inside = np.asarray(np.clip(x, x.dtype.type(info.min), last))
    np.copyto(inside, 0, where=np.isnan(inside))
    out = inside.astype(dtype)
    np.copyto(out, info.max, where=x >= upper)
    return out


def saturates(source: dtypes.DType, target: dtypes.DType) -> bool:
    """Whether a conversion limits values to the range of the target: of floats to integers."""
    return dtypes.is_float(source) and dtypes.is_integer(target)


@lru_cache(maxsize=256)
def limits(source: dtypes.DType, target: dtypes.DType) -> tuple[Any, Any]:
    """Returns the largest float below and the smallest above all floats that fit an integer dtype once they are cut off towards
    0.
    """
    info = np.iinfo(target)
    with np.errstate(over="ignore"):  # float16 has no number beyond the range of most integers, but infinities
        lower, upper = source.type(info.min - 1), source.type(info.max + 1)
    return (lower if lower < info.min else np.nextafter(lower, source.type(-np.inf))), upper
