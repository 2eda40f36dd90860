"""Dtypes that convert when they are called, as NumPy's scalar types do: `float32` names a dtype, `float32(x)` is an array of it."""

from __future__ import annotations

from typing import Any

from nnc.array.array import Array, asarray
from nnc.base import dtypes


class ScalarType(dtypes.NamedDType):
    """A dtype by name, which is also the function that converts to it.

    Example:
        >>> nnp.float32(1), nnp.ones(2, dtype=nnp.int8).dtype == nnp.int8
        (Array(1., dtype=float32), True)
    """

    __slots__ = ()

    def __call__(self, x: Any = 0) -> Array:
        """Returns `x` as an array of this dtype; a traced `x` stays traced.

        Args:
            x: array, tracer, number or nested list.
        """
        return asarray(x, dtype=self.dtype)


bool_ = ScalarType(dtypes.bool_)
int8, int16, int32, int64 = (ScalarType(dtype) for dtype in dtypes.SIGNED)
uint8, uint16, uint32, uint64 = (ScalarType(dtype) for dtype in dtypes.UNSIGNED)
float16, bfloat16, float32, float64 = (ScalarType(dtype) for dtype in dtypes.FLOATS)
complex64, complex128 = (ScalarType(dtype) for dtype in dtypes.COMPLEX)
