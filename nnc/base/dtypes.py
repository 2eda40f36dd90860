"""Dtypes, their kinds, and the promotion lattice.

A dtype is a `numpy.dtype`; bfloat16 comes from ml_dtypes. The lattice is the Array API standard's, completed where that is
silent: an integer with a float gives the float's dtype, and float16 with bfloat16 gives float32. Python scalars are weak:
they take the dtype of the array they meet, and only their kind (bool < int < float < complex) can raise it. Until then they
have 64 bits in memory (`exact_dtype`), and show the default dtype of their kind (`scalar_dtype`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import ml_dtypes
import numpy as np

DType = np.dtype[Any]

bool_ = np.dtype(np.bool_)
int8, int16, int32, int64 = (np.dtype(f"i{n}") for n in (1, 2, 4, 8))
uint8, uint16, uint32, uint64 = (np.dtype(f"u{n}") for n in (1, 2, 4, 8))
float16, float32, float64 = (np.dtype(f"f{n}") for n in (2, 4, 8))
bfloat16: DType = np.dtype(ml_dtypes.bfloat16)
complex64, complex128 = np.dtype("c8"), np.dtype("c16")

SIGNED = (int8, int16, int32, int64)
UNSIGNED = (uint8, uint16, uint32, uint64)
FLOATS = (float16, bfloat16, float32, float64)
COMPLEX = (complex64, complex128)
ALL = (bool_, *SIGNED, *UNSIGNED, *FLOATS, *COMPLEX)
BY_NAME = {dtype.name: dtype for dtype in ALL}

TAPE = np.dtype(object)  # of the tapes that loops of unknown length write: inside nnc only, no array of a user has it

DEFAULT_FLOAT, DEFAULT_INT, DEFAULT_COMPLEX = float32, int64, complex64

_NAMED: dict[Any, DType] = {**BY_NAME, float: DEFAULT_FLOAT, int: DEFAULT_INT, complex: DEFAULT_COMPLEX}
_KINDS = {
    dtype: kind for kind, group in enumerate(((bool_,), (*SIGNED, *UNSIGNED), FLOATS, COMPLEX)) for dtype in group
}
_NARROW = frozenset({float16, bfloat16})
_REAL_PARTS = {complex64: float32, complex128: float64}
_WEAK_DEFAULT = (bool_, DEFAULT_INT, DEFAULT_FLOAT, DEFAULT_COMPLEX)
_EXACT_DEFAULT = (bool_, int64, float64, complex128)
_LARGEST_INT, _LARGEST_UINT = (1 << 63) - 1, (1 << 64) - 1


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class NamedDType:
    """A dtype's name in `nnc.numpy`: it equals the dtype, and stands for it wherever one is taken."""

    dtype: DType

    @property
    def name(self) -> str:
        """The name of the dtype."""
        return self.dtype.name

    @property
    def itemsize(self) -> int:
        """The bytes of an element."""
        return self.dtype.itemsize

    @property
    def kind(self) -> str:
        """NumPy's letter for the kind of the dtype."""
        return self.dtype.kind

    def __eq__(self, other: object) -> bool:
        return bool(self.dtype == (other.dtype if isinstance(other, NamedDType) else other))

    def __hash__(self) -> int:
        return hash(self.dtype)

    def __repr__(self) -> str:
        return f"nnp.{self.dtype.name}"


def as_dtype(value: Any) -> DType:
    """Returns the dtype that `value` names: a dtype, a NumPy scalar type, a Python type or a string.

    Python's `float`, `int` and `complex` name nnc's defaults (float32, int64, complex64).

    Raises:
        TypeError: nnc has no such dtype.

    Example:
        >>> as_dtype("bfloat16").itemsize, as_dtype(float).name
        (2, 'float32')
    """
    if isinstance(value, NamedDType):
        return value.dtype
    if isinstance(value, (str, type)) and value in _NAMED:
        return _NAMED[value]
    dtype: DType = np.dtype(value).newbyteorder("=")
    if dtype not in _KINDS:
        raise TypeError(f"nnc has no dtype {dtype.name}; it has {', '.join(BY_NAME)}")
    return dtype


def plain_dtype(value: Any) -> Any:
    """Returns the dtype of a name of `nnc.numpy`; anything else as it is."""
    return value.dtype if isinstance(value, NamedDType) else value


def is_known(dtype: DType) -> bool:
    """Whether arrays can have this dtype."""
    return dtype in _KINDS


def is_bool(dtype: DType) -> bool:
    """Whether `dtype` is bool."""
    return dtype == bool_


def is_integer(dtype: DType) -> bool:
    """Whether `dtype` is a signed or unsigned integer (not bool)."""
    return _KINDS[dtype] == 1


def is_float(dtype: DType) -> bool:
    """Whether `dtype` is a real floating-point type."""
    return _KINDS[dtype] == 2


def is_complex(dtype: DType) -> bool:
    """Whether `dtype` is complex."""
    return _KINDS[dtype] == 3


def is_inexact(dtype: DType) -> bool:
    """Whether `dtype` is real or complex floating-point, that is, differentiable."""
    return dtype == TAPE or _KINDS[dtype] >= 2


def same_kind(a: DType, b: DType) -> bool:
    """Whether both are bool, integers, real floats or complex."""
    return _KINDS[a] == _KINDS[b]


def real_dtype(dtype: DType) -> DType:
    """Returns the dtype of the real part."""
    return _REAL_PARTS.get(dtype, dtype)


def complex_dtype(dtype: DType) -> DType:
    """Returns the complex dtype whose parts hold `dtype`."""
    return dtype if is_complex(dtype) else complex128 if dtype == float64 else complex64


def accumulator(dtype: DType) -> DType:
    """Returns the dtype in which sums and products of `dtype` are accumulated: float32 for the 16-bit floats."""
    return float32 if dtype in _NARROW else dtype


def to_float(dtype: DType) -> DType:
    """Returns the dtype of a function that leaves the integers (division, sqrt …): itself where inexact, else the default float."""
    return dtype if is_inexact(dtype) else DEFAULT_FLOAT


def promote_types(a: DType, b: DType) -> DType:
    """Returns the dtype that `a` and `b` promote to.

    Raises:
        TypeError: uint64 with a signed integer, which no integer dtype holds.

    Example:
        >>> promote_types(int32, float16).name, promote_types(uint8, int8).name
        ('float16', 'int16')
    """
    if a == b:
        return a
    kind_a, kind_b = _KINDS[a], _KINDS[b]
    if kind_a > kind_b:
        a, b, kind_a, kind_b = b, a, kind_b, kind_a
    if kind_b == 3 and kind_a == 2:
        return complex128 if float64 in (a, b) or b == complex128 else complex64
    if kind_a != kind_b:
        return b
    if kind_a == 1:
        return _promote_integers(a, b)
    if kind_a == 2 and a.itemsize == b.itemsize:
        return float32
    return a if a.itemsize > b.itemsize else b


def _promote_integers(a: DType, b: DType) -> DType:
    if (a in SIGNED) == (b in SIGNED):
        return a if a.itemsize > b.itemsize else b
    signed, unsigned = (a, b) if a in SIGNED else (b, a)
    if signed.itemsize > unsigned.itemsize:
        return signed
    if unsigned == uint64:
        raise TypeError(f"no integer dtype holds both {unsigned.name} and {signed.name}")
    return SIGNED[UNSIGNED.index(unsigned) + 1]


def promote_weak(dtype: DType, scalar: bool | int | float | complex) -> DType:
    """Returns the dtype of an array of `dtype` after it met a Python scalar, which raises only the kind."""
    return raise_kind(dtype, scalar_dtype(scalar))


def raise_kind(dtype: DType, weak: DType) -> DType:
    """Returns the dtype of an array of `dtype` after it met a weak value of dtype `weak`: the array's, unless its kind is
    lower.

    Example:
        >>> raise_kind(float32, float64).name, raise_kind(float32, complex128).name, raise_kind(int32, float64).name
        ('float32', 'complex64', 'float64')
    """
    if _KINDS[weak] <= _KINDS[dtype]:
        return dtype
    if is_complex(weak) and is_float(dtype):
        return complex_dtype(dtype)
    return weak


def is_scalar(value: Any) -> bool:
    """Whether `value` is a plain Python number: weak. NumPy's scalars are not, though `numpy.float64` is a Python float."""
    return isinstance(value, (bool, int, float, complex)) and not isinstance(value, np.generic)


def plain_number(value: Any) -> Any:
    """`value`, where a NumPy scalar whose type is a Python type, too, is a plain Python number.

    Example:
        >>> plain_number(np.float64(0.5)), plain_number(np.float32(0.5))
        (0.5, np.float32(0.5))
    """
    return value.item() if isinstance(value, (np.float64, np.complex128)) else value


class Weak(Enum):
    """The weakness of floats that come only from Python numbers; all other weak values have the weakness `True`."""

    NUMBER = "number"


# float64 or complex128 in memory; shows float32 or complex64, and meets integers and bools as these
NUMBER = Weak.NUMBER
Weakness = bool | Weak  # whether a value takes the dtype of the arrays that it meets


def joint_weakness(values: Iterable[tuple[DType, Weakness]]) -> Weakness:
    """Returns the weakness of a value that is one of several, by their dtypes in memory: a branch's result, a carry.

    Example:
        >>> joint_weakness([(float64, NUMBER), (float32, True)]) is NUMBER, joint_weakness([(float64, True), (float64, NUMBER)])
        (True, True)
    """
    kinds = list(values)
    if not all(weak for _, weak in kinds):
        return False
    wide = [weak for dtype, weak in kinds if dtype in (float64, complex128)]
    return NUMBER if wide and all(weak is NUMBER for weak in wide) else True


def shown_dtype(dtype: DType, weak: Weakness) -> DType:
    """Returns the dtype that a value of `dtype` in memory shows.

    Example:
        >>> shown_dtype(float64, NUMBER).name, shown_dtype(float64, True).name
        ('float32', 'float64')
    """
    return dtype if weak is not NUMBER else DEFAULT_COMPLEX if is_complex(dtype) else DEFAULT_FLOAT


def exact_dtype(scalar: bool | int | float | complex) -> DType:
    """Returns the dtype of a Python scalar in memory, which holds all of its digits; that of an integer beyond 64 bits is
    int64.

    Example:
        >>> exact_dtype(0.5).name, exact_dtype(2**63).name
        ('float64', 'uint64')
    """
    return uint64 if _is_uint64(scalar) else _EXACT_DEFAULT[_kind_of(scalar)]


def weakness_of(scalar: bool | int | float | complex) -> Weakness:
    """Returns the weakness of a Python scalar."""
    return True if isinstance(scalar, int) else NUMBER


def scalar_dtype(scalar: bool | int | float | complex) -> DType:
    """Returns the dtype of a Python scalar that meets no array.

    Example:
        >>> scalar_dtype(3).name, scalar_dtype(0.5).name
        ('int64', 'float32')
    """
    return uint64 if _is_uint64(scalar) else _WEAK_DEFAULT[_kind_of(scalar)]


def _is_uint64(scalar: bool | int | float | complex) -> bool:
    """Whether a scalar is an integer that uint64 holds, but int64 does not."""
    return isinstance(scalar, int) and _LARGEST_INT < scalar <= _LARGEST_UINT


def _kind_of(scalar: bool | int | float | complex) -> int:
    return 0 if isinstance(scalar, bool) else 1 if isinstance(scalar, int) else 2 if isinstance(scalar, float) else 3
