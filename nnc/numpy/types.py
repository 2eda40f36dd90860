"""Dtypes by name, facts about them, and the constants of mathematics."""

from __future__ import annotations

import builtins
import math
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from numpy import iterable

from nnc.array.array import Array, asarray
from nnc.array.operators import ArrayMethods
from nnc.array.promote import as_operand, to_dtype
from nnc.array.promote import result_dtype as _result_dtype
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.errors import ArgumentError, DTypeError, user_error
from nnc.typing import ArrayLike, DTypeLike

__all__ = [
    "bfloat16", "bool", "bool_", "can_cast", "cdouble", "complex64", "complex128", "complex_", "complexfloating", "csingle",
    "double", "dtype", "e", "euler_gamma", "finfo", "float16", "float32", "float64", "float_", "floating", "generic", "half",
    "iinfo", "inexact", "inf", "int8", "int16", "int32", "int64", "int_", "integer", "isdtype", "issubdtype", "iterable",
    "nan", "ndarray", "newaxis", "number", "pi", "promote_types", "result_type", "signedinteger", "single", "uint", "uint8",
    "uint16", "uint32", "uint64", "unsignedinteger",
]  # fmt: skip


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

bool = bool_
pi = math.pi
"""The circumference of a circle of diameter 1.

Example:
    >>> nnp.pi
    3.141592653589793
"""
e = math.e
"""The base of the natural logarithm.

Example:
    >>> nnp.e
    2.718281828459045
"""
inf = math.inf
"""Infinity.

Example:
    >>> nnp.inf
    inf
"""
nan = math.nan
"""Not a number: equal to nothing, not even itself.

Example:
    >>> nnp.nan == nnp.nan
    False
"""
euler_gamma = 0.5772156649015329
"""Euler's constant: the limit of 1 + 1/2 + … + 1/n - log(n).

Example:
    >>> -nnc.scipy.special.digamma(1.0)
    Array(0.5772157, dtype=float32)
"""
newaxis = None
"""In an index, a new axis of size 1.

Example:
    >>> nnp.ones(3)[:, nnp.newaxis].shape
    (3, 1)
"""
generic = np.generic
"""The kind of all dtypes.

Example:
    >>> nnp.issubdtype(nnp.bool_, nnp.generic), nnp.issubdtype(nnp.complex64, nnp.generic)
    (True, True)
"""
number = np.number
"""The kind of all dtypes but bool.

Example:
    >>> nnp.issubdtype(nnp.int8, nnp.number), nnp.issubdtype(nnp.bool_, nnp.number)
    (True, False)
"""
integer = np.integer
"""The kind of all integers.

Example:
    >>> nnp.issubdtype(nnp.uint8, nnp.integer), nnp.issubdtype(nnp.float32, nnp.integer)
    (True, False)
"""
signedinteger = np.signedinteger
"""The kind of integers with a sign.

Example:
    >>> nnp.issubdtype(nnp.int8, nnp.signedinteger), nnp.issubdtype(nnp.uint8, nnp.signedinteger)
    (True, False)
"""
unsignedinteger = np.unsignedinteger
"""The kind of integers without a sign.

Example:
    >>> nnp.issubdtype(nnp.uint8, nnp.unsignedinteger), nnp.issubdtype(nnp.int8, nnp.unsignedinteger)
    (True, False)
"""
inexact = np.inexact
"""The kind of floats and complex numbers.

Example:
    >>> nnp.issubdtype(nnp.complex64, nnp.inexact), nnp.issubdtype(nnp.int32, nnp.inexact)
    (True, False)
"""
floating = np.floating
"""The kind of all floats.

Example:
    >>> nnp.issubdtype(nnp.bfloat16, nnp.floating), nnp.issubdtype(nnp.complex64, nnp.floating)
    (True, False)
"""
complexfloating = np.complexfloating
"""The kind of complex numbers.

Example:
    >>> nnp.issubdtype(nnp.complex64, nnp.complexfloating), nnp.issubdtype(nnp.float32, nnp.complexfloating)
    (True, False)
"""
int_, uint, float_, complex_ = int64, uint64, float32, complex64
half, single, double, csingle, cdouble = float16, float32, float64, complex64, complex128
dtype = np.dtype
ndarray = ArrayMethods  # the common base of arrays and tracers: isinstance(x, nnp.ndarray)
ABSTRACT = (generic, number, integer, signedinteger, unsignedinteger, inexact, floating, complexfloating)

KINDS = {
    "bool": (dtypes.bool_,),
    "signed integer": dtypes.SIGNED,
    "unsigned integer": dtypes.UNSIGNED,
    "integral": (*dtypes.SIGNED, *dtypes.UNSIGNED),
    "real floating": dtypes.FLOATS,
    "complex floating": dtypes.COMPLEX,
    "numeric": (*dtypes.SIGNED, *dtypes.UNSIGNED, *dtypes.FLOATS, *dtypes.COMPLEX),
}


@dataclass(frozen=True, slots=True)
class FloatInfo:
    """The limits of a float dtype, as Python floats. `eps` is the gap above 1, `smallest_normal` the least full-precision one."""

    dtype: dtypes.DType
    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float

    @property
    def tiny(self) -> float:
        """NumPy's older name of `smallest_normal`."""
        return self.smallest_normal


@dataclass(frozen=True, slots=True)
class IntegerInfo:
    """The limits of an integer dtype."""

    dtype: dtypes.DType
    bits: int
    max: int
    min: int


def _dtype_of(type: Any, where: str) -> dtypes.DType:
    return type.dtype if hasattr(type, "dtype") and hasattr(type, "shape") else to_dtype(type, where)


@spelled
def finfo(type: ArrayLike | DTypeLike, /) -> FloatInfo:
    """Returns the limits of a float dtype; of a complex one the limits of its parts.

    Args:
        type: a dtype or an array.

    Raises:
        DTypeError: it is no float.

    Example:
        >>> finfo("bfloat16").eps
        0.0078125
    """
    dtype = dtypes.real_dtype(_dtype_of(type, "finfo"))
    if not dtypes.is_float(dtype):
        raise user_error(DTypeError, "finfo", f"{dtype.name} is no float dtype.", fix="use iinfo for integers.")
    info: Any = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    return FloatInfo(
        dtype, int(info.bits), float(info.eps), float(info.max), float(info.min), float(info.smallest_normal)
    )


@spelled
def iinfo(type: ArrayLike | DTypeLike, /) -> IntegerInfo:
    """Returns the limits of an integer dtype.

    Args:
        type: a dtype, or an array of it.

    Raises:
        DTypeError: it is no integer.

    Example:
        >>> iinfo("uint8").max
        255
    """
    dtype = _dtype_of(type, "iinfo")
    if not dtypes.is_integer(dtype):
        raise user_error(DTypeError, "iinfo", f"{dtype.name} is no integer dtype.", fix="use finfo for floats.")
    info = np.iinfo(dtype)
    return IntegerInfo(dtype, int(info.bits), int(info.max), int(info.min))


@spelled
def isdtype(dtype: DTypeLike, kind: DTypeLike | tuple[DTypeLike, ...]) -> builtins.bool:
    """Returns whether `dtype` is of a kind.

    Args:
        dtype: a dtype.
        kind: a dtype; "bool", "signed integer", "unsigned integer", "integral", "real floating", "complex floating" or
            "numeric"; or a tuple of such.

    Raises:
        ArgumentError: there is no such kind.

    Example:
        >>> isdtype(float32, ("integral", "real floating"))
        True
    """
    if isinstance(kind, tuple):
        return any(isdtype(dtype, one) for one in kind)
    if isinstance(kind, str) and kind in KINDS:
        return to_dtype(dtype, "isdtype") in KINDS[kind]
    if isinstance(kind, str) and kind not in dtypes.BY_NAME:
        raise user_error(ArgumentError, "isdtype", f"there is no kind {kind!r}.", fix=f"use one of {', '.join(KINDS)}.")
    return to_dtype(dtype, "isdtype") == to_dtype(kind, "isdtype")


@spelled
def issubdtype(arg1: DTypeLike, arg2: DTypeLike) -> builtins.bool:
    """Returns whether the dtype `arg1` is `arg2`, or of the kind `arg2`: floating, integer, inexact, number ….

    Args:
        arg1: a dtype.
        arg2: a dtype or a kind of dtypes.

    Example:
        >>> issubdtype("bfloat16", nnp.floating), issubdtype(int32, nnp.floating)
        (True, False)
    """
    if arg2 not in ABSTRACT:
        return arg1 not in ABSTRACT and to_dtype(arg1, "issubdtype") == to_dtype(arg2, "issubdtype")
    one = arg1 if arg1 in ABSTRACT else to_dtype(arg1, "issubdtype")
    return np.issubdtype(dtypes.float32 if one == dtypes.bfloat16 else one, arg2)


@spelled
def result_type(*arrays_and_dtypes: ArrayLike | DTypeLike) -> dtypes.DType:
    """Returns the dtype that an operation on these operands has; Python numbers only raise the kind.

    Args:
        *arrays_and_dtypes: arrays, numbers and dtypes.

    Raises:
        DTypeError: no dtype holds them all.

    Example:
        >>> result_type("float16", 1.5), result_type(int8, uint8)
        (dtype('float16'), dtype('int16'))
    """
    if not arrays_and_dtypes:
        raise user_error(ArgumentError, "result_type", "there is no operand.", fix="pass at least one array or dtype.")
    return _result_dtype(*map(_witness, arrays_and_dtypes), where="result_type")


def _witness(x: Any) -> Any:
    """Returns an operand of the dtype that `x` is or has."""
    if (
        dtypes.is_scalar(x)
        or hasattr(x, "spec")
        or (hasattr(x, "dtype") and hasattr(x, "shape") and not isinstance(x, type))
    ):
        return as_operand(x, "result_type")
    return np.empty((), to_dtype(x, "result_type"))


@spelled
def promote_types(type1: DTypeLike, type2: DTypeLike) -> dtypes.DType:
    """Returns the dtype that two dtypes promote to.

    Args:
        type1: a dtype.
        type2: a dtype.

    Example:
        >>> promote_types("int32", "float16").name
        'float16'
    """
    return result_type(to_dtype(type1, "promote_types"), to_dtype(type2, "promote_types"))


@spelled
def can_cast(from_: ArrayLike | DTypeLike, to: DTypeLike, /) -> builtins.bool:
    """Returns whether promotion takes `from_` to `to`: no kind is lowered and no value is narrowed.

    Args:
        from_: a dtype or an array.
        to: a dtype.

    Example:
        >>> can_cast("int8", "int32"), can_cast("float32", "int32")
        (True, False)
    """
    target = to_dtype(to, "can_cast")
    try:
        return dtypes.promote_types(_dtype_of(from_, "can_cast"), target) == target
    except TypeError:
        return False
