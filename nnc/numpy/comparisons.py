"""Comparisons that take several commands: nearly equal, equal as a whole, real, infinite; and numbers in place of infinities."""

from __future__ import annotations

from nnc.array.array import Array
from nnc.array.promote import broadcast, promote
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.commands import constants
from nnc.commands import elementwise as ew
from nnc.numpy.elementwise import (
    abs,
    add,
    equal,
    greater,
    imag,
    isfinite,
    isinf,
    isnan,
    less,
    less_equal,
    logical_and,
    logical_or,
    multiply,
    not_equal,
    subtract,
    to_float,
    where,
)
from nnc.numpy.operands import to_value, to_values
from nnc.numpy.types import finfo
from nnc.typing import ArrayLike

__all__ = [
    "allclose", "array_equal", "array_equiv", "isclose", "iscomplex", "isneginf", "isposinf", "isreal", "nan_to_num",
]  # fmt: skip


@spelled
def isposinf(x: ArrayLike, /) -> Array:
    """Returns whether x is +infinity.

    Args:
        x: any shape.

    Example:
        >>> isposinf(nnp.asarray([-nnp.inf, 1.0, nnp.inf]))
        Array([False, False,  True], dtype=bool)
    """
    return logical_and(isinf(x), greater(x, 0))


@spelled
def isneginf(x: ArrayLike, /) -> Array:
    """Returns whether x is -infinity.

    Args:
        x: any shape.

    Example:
        >>> isneginf(nnp.asarray([-nnp.inf, 1.0, nnp.inf]))
        Array([ True, False, False], dtype=bool)
    """
    return logical_and(isinf(x), less(x, 0))


@spelled
def nan_to_num(
    x: ArrayLike, /, nan: ArrayLike = 0.0, posinf: ArrayLike | None = None, neginf: ArrayLike | None = None
) -> Array:
    """Returns `x` with numbers for NaN and the infinities.

    Args:
        x: any shape.
        nan: replaces NaN.
        posinf: replaces infinity; by default the largest finite number.
        neginf: replaces minus infinity; by default the smallest finite number.

    Example:
        >>> nan_to_num(np.asarray([1.0, np.nan, np.inf], "float32"), posinf=9)
        Array([1., 0., 9.], dtype=float32)
    """
    x = to_value(x, "nan_to_num")
    dtype = x.spec.dtype
    if not dtypes.is_inexact(dtype):
        return x
    if dtypes.is_complex(dtype):
        return ew.complex_(*(nan_to_num(part, nan, posinf, neginf) for part in (ew.real(x), ew.imag(x))))
    largest = finfo(dtype).max
    x = where(ew.isnan(x), nan, x)
    x = where(isposinf(x), largest if posinf is None else posinf, x)
    return where(isneginf(x), -largest if neginf is None else neginf, x)


@spelled
def isreal(x: ArrayLike, /) -> Array:
    """Returns whether the imaginary part is 0.

    Args:
        x: any shape.

    Example:
        >>> nnp.isreal(nnp.asarray([1 + 1j, 2 + 0j]))
        Array([False,  True], dtype=bool)
    """
    return equal(imag(x), 0)


@spelled
def iscomplex(x: ArrayLike, /) -> Array:
    """Returns whether the imaginary part is not 0.

    Args:
        x: any shape.

    Example:
        >>> nnp.iscomplex(nnp.asarray([1 + 1j, 2 + 0j]))
        Array([ True, False], dtype=bool)
    """
    return not_equal(imag(x), 0)


@spelled
def isclose(a: ArrayLike, b: ArrayLike, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Array:
    """Returns whether `a` and `b` are equal up to rounding: |a - b| <= atol + rtol · |b|.

    Args:
        a: any shape; broadcasts with `b`.
        b: any shape, to which `rtol` relates.
        rtol: tolerated share of |b|.
        atol: tolerated difference, independent of b.
        equal_nan: NaNs are close to each other.

    Example:
        >>> isclose(np.asarray([1.0, 2.0]), np.asarray([1.0, 2.1]))
        Array([ True, False], dtype=bool)
    """
    a, b = broadcast(*promote(a, b, where="isclose", to=to_float), where="isclose")
    near = less_equal(abs(subtract(a, b)), add(multiply(abs(b), rtol), atol))
    close = where(logical_and(isfinite(a), isfinite(b)), near, equal(a, b))
    return logical_or(close, logical_and(isnan(a), isnan(b))) if equal_nan else close


@spelled
def allclose(a: ArrayLike, b: ArrayLike, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Array:
    """Returns whether all elements are close; see `isclose`.

    Args:
        a: any shape; broadcasts with `b`.
        b: any shape, to which `rtol` relates.
        rtol: tolerated share of |b|.
        atol: tolerated difference, independent of b.
        equal_nan: NaNs are close to each other.

    Example:
        >>> nnp.allclose(nnp.asarray([1.0]), 1.000001)
        Array(True, dtype=bool)
    """
    return isclose(a, b, rtol, atol, equal_nan).all()


@spelled
def array_equal(a1: ArrayLike, a2: ArrayLike, equal_nan: bool = False) -> Array:
    """Returns whether both have one shape and equal elements.

    Args:
        a1: any shape.
        a2: any shape.
        equal_nan: NaNs are equal to each other.

    Example:
        >>> bool(array_equal([1, 2], [1.0, 2.0])), bool(array_equal([1, 2], [1]))
        (True, False)
    """
    a1, a2 = to_values("array_equal", a1=a1, a2=a2)
    if a1.spec.shape != a2.spec.shape:
        return constants.full(shape=(), dtype=dtypes.bool_, value=False)
    same = equal(a1, a2)
    return (logical_or(same, logical_and(isnan(a1), isnan(a2))) if equal_nan else same).all()


@spelled
def array_equiv(a1: ArrayLike, a2: ArrayLike) -> Array:
    """Returns whether both broadcast to one shape and have equal elements there.

    Args:
        a1: any shape.
        a2: any shape.

    Example:
        >>> nnp.array_equiv([1, 1], [[1, 1], [1, 1]])
        Array(True, dtype=bool)
    """
    return equal(a1, a2).all()
