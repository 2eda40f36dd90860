"""Elementwise functions: operands of any dtypes and shapes are promoted and broadcast, then one command does the work."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar, overload

from nnc.array.array import Array
from nnc.array.operators import power as _power
from nnc.array.promote import (
    as_operands,
    astype,
    broadcast,
    compare_beyond,
    promote,
    shown_spec,
    weakness_of_result,
    with_weakness,
)
from nnc.base import dtypes
from nnc.calls.specialise import specialised
from nnc.calls.spelling import spelled
from nnc.commands import constants
from nnc.commands import elementwise as ew
from nnc.commands import trigonometry as trig
from nnc.commands.elementwise import ANY, BITS, FLOAT, INEXACT, INTEGER, NUMERIC, ORDERED, REAL, Accepts
from nnc.commands.rules import check_dtype
from nnc.graph import Command, spec_of
from nnc.numpy.elementwise_examples import EXAMPLES
from nnc.numpy.operands import keeps_weakness, static_int, to_value
from nnc.typing import ArrayLike

__all__ = [
    "abs", "absolute", "acos", "acosh", "add", "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctan2", "arctanh",
    "around", "asin", "asinh", "atan", "atan2", "atanh", "bitwise_and", "bitwise_invert", "bitwise_left_shift", "bitwise_not",
    "bitwise_or", "bitwise_right_shift", "bitwise_xor", "cbrt", "ceil", "clip", "conj", "conjugate", "copysign", "cos", "cosh",
    "divide", "divmod", "equal", "exp", "exp2", "expm1", "fabs", "fix", "float_power", "floor", "floor_divide", "fmax", "fmin",
    "fmod", "greater", "greater_equal", "heaviside", "hypot", "imag", "invert", "isfinite", "isinf", "isnan", "left_shift",
    "less", "less_equal", "log", "log1p", "log2", "log10", "logaddexp", "logaddexp2", "logical_and", "logical_not",
    "logical_or", "logical_xor", "maximum", "minimum", "mod", "multiply", "negative", "nextafter", "not_equal", "positive",
    "pow", "power", "real", "reciprocal", "remainder", "right_shift", "rint", "round", "sign", "signbit", "sin", "sinh", "sqrt",
    "square", "subtract", "tan", "tanh", "true_divide", "trunc", "where",
]  # fmt: skip

F = TypeVar("F", bound=Callable[..., Any])
Unary = Callable[[ArrayLike], Array]
Binary = Callable[[ArrayLike, ArrayLike], Array]
ToDtype = Callable[[dtypes.DType], dtypes.DType] | None
to_float = dtypes.to_float

_KINDS = {  # of operands, in docstrings
    ANY: "any dtype",
    NUMERIC: "numeric",
    REAL: "real",
    ORDERED: "bool or real",
    BITS: "bool or integer",
    INTEGER: "integer",
}


def call(where: str, command: Command, accepts: Accepts, to: ToDtype, *xs: Any) -> Array:
    """Returns an elementwise command on promoted and broadcast operands; errors name the function `where`."""
    operands = as_operands(xs, where)
    decided = compare_beyond(command, operands)
    if decided is not None:
        return decided
    promoted = promote(*operands, where=where, to=to)
    if accepts is not ANY:
        check_dtype(where, shown_spec(promoted[0]), *accepts)
    result = command(*broadcast(*promoted, where=where))
    return with_weakness(result, weakness_of_result(result.spec.dtype, operands))


def _unary(name: str, command: Command, doc: str, accepts: Accepts, to: ToDtype = None) -> Unary:
    def function(x: ArrayLike, /) -> Array:
        return call(name, command, accepts, to, x)

    return _named(function, name, doc, _kind(accepts, to))


def _binary(name: str, command: Command, doc: str, accepts: Accepts, to: ToDtype = None) -> Binary:
    def function(x1: ArrayLike, x2: ArrayLike, /) -> Array:
        return call(name, command, accepts, to, x1, x2)

    return _named(function, name, doc, _kind(accepts, to))


def _kind(accepts: Accepts, to: ToDtype) -> str:
    """Returns the words for operands that are accepted, once `to` has converted their dtypes."""
    if to is to_float:
        return f"{'real' if accepts is FLOAT else 'real or complex'}, any shape; integers become float32"
    return f"{_KINDS[accepts]}, any shape"


def _named(function: F, name: str, doc: str, kind: str) -> F:
    """Gives a function its name and docstring, in which each operand is described as of that kind, and an example."""
    function.__name__ = function.__qualname__ = name
    operands = function.__code__.co_varnames[: function.__code__.co_argcount]
    broadcast_too = "" if len(operands) == 1 else "; broadcasts with `x2`"
    lines = [f"{doc}\n", "Args:", f"    {operands[0]}: {kind}{broadcast_too}."]
    lines += [f"    {operand}: {kind}." for operand in operands[1:]]
    values, result = EXAMPLES[name]
    lines += ["", "Example:", f"    >>> nnp.{name}({values})", f"    {result}"]
    function.__doc__ = "\n".join([*lines, ""])
    return specialised(len(operands))(function)


# -- arithmetic --------------------------------------------------------------------------------------------------------

add = _binary("add", ew.add, "Returns `x1 + x2`; of bools the logical or.", ANY)
subtract = _binary("subtract", ew.sub, "Returns `x1 - x2`.", NUMERIC)
multiply = _binary("multiply", ew.mul, "Returns `x1 * x2`; of bools the logical and.", ANY)
divide = true_divide = _binary("divide", ew.div, "Returns `x1 / x2`.", INEXACT, to_float)
floor_divide = _binary("floor_divide", ew.floor_divide, "Returns the largest integers not above `x1 / x2`.", REAL)
remainder = mod = _binary(
    "remainder", ew.remainder, "Returns the remainder of `x1 // x2`; it has the sign of x2.", REAL
)
fmod = _binary("fmod", ew.fmod, "Returns the remainder of the truncated division; it has the sign of x1.", REAL)
negative = _unary("negative", ew.neg, "Returns `-x`.", NUMERIC)
square = _unary("square", ew.square, "Returns `x * x`.", NUMERIC)
reciprocal = _unary("reciprocal", ew.reciprocal, "Returns `1 / x`.", INEXACT, to_float)
sign = _unary("sign", ew.sign, "Returns -1, 0 or 1 by the sign of x; x / |x| of complex numbers.", NUMERIC)


@spelled
def power(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Returns `x1 ** x2`. A Python integer as exponent is static, so that derivatives are right at 0, too.

    Args:
        x1: base, any shape; broadcasts with `x2`.
        x2: exponent, any shape.

    Raises:
        DTypeError: an integer array to a negative static power.

    Example:
        >>> power(np.asarray([1.0, 3.0]), 2)
        Array([1., 9.], dtype=float64)
    """
    result: Array = _power(x1, x2)
    return result


pow = power


@spelled
def positive(x: ArrayLike, /) -> Array:
    """Returns `x` itself.

    Args:
        x: any shape.

    Example:
        >>> positive(nnp.asarray([-1, 2]))
        Array([-1,  2], dtype=int64)
    """
    return to_value(x, "positive")


@specialised(1)
def abs(x: ArrayLike, /) -> Array:
    """Returns the absolute value; it is real for complex numbers.

    Args:
        x: any shape.

    Example:
        >>> abs(np.asarray([-1, 2])), abs(3 + 4j)
        (Array([1, 2], dtype=int64), Array(5., dtype=float32))
    """
    x = to_value(x, "abs")
    return x if dtypes.is_bool(x.spec.dtype) else call("abs", ew.abs_, NUMERIC, None, x)


absolute = abs
fabs = _unary("fabs", ew.abs_, "Returns the absolute value as a float.", FLOAT, to_float)


@spelled
def divmod(x1: ArrayLike, x2: ArrayLike, /) -> tuple[Array, Array]:
    """Returns `(x1 // x2, x1 % x2)`.

    Args:
        x1: dividend, real, any shape; broadcasts with `x2`.
        x2: divisor, real, any shape.

    Example:
        >>> nnp.divmod(nnp.asarray([7, -7]), 3)
        (Array([ 2, -3], dtype=int64), Array([1, 2], dtype=int64))
    """
    return floor_divide(x1, x2), remainder(x1, x2)


@spelled
def float_power(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Returns `x1 ** x2` in floating point, also of integers. float32 stays float32, where NumPy computes in float64.

    Args:
        x1: base, any shape; broadcasts with `x2`.
        x2: exponent, any shape.

    Example:
        >>> nnp.float_power(2, 3)
        Array(8., dtype=float32)
    """
    x1, x2 = promote(x1, x2, where="float_power", to=to_float)
    return power(x1, x2)


# -- exponentials, logarithms, roots -----------------------------------------------------------------------------------

sqrt = _unary("sqrt", ew.sqrt, "Returns the square root.", INEXACT, to_float)
cbrt = _unary("cbrt", ew.cbrt, "Returns the cube root, negative for negative x.", FLOAT, to_float)
exp = _unary("exp", ew.exp, "Returns e to the power x.", INEXACT, to_float)
exp2 = _unary("exp2", ew.exp2, "Returns 2 to the power x.", INEXACT, to_float)
expm1 = _unary("expm1", ew.expm1, "Returns `exp(x) - 1`, exact for small x.", INEXACT, to_float)
log = _unary("log", ew.log, "Returns the natural logarithm.", INEXACT, to_float)
log2 = _unary("log2", ew.log2, "Returns the logarithm to base 2.", INEXACT, to_float)
log10 = _unary("log10", ew.log10, "Returns the logarithm to base 10.", INEXACT, to_float)
log1p = _unary("log1p", ew.log1p, "Returns `log(1 + x)`, exact for small x.", INEXACT, to_float)
logaddexp = _binary("logaddexp", ew.logaddexp, "Returns `log(exp(x1) + exp(x2))` without overflow.", FLOAT, to_float)


@spelled
def logaddexp2(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Returns `log2(2**x1 + 2**x2)` without overflow.

    Args:
        x1: any shape; broadcasts with `x2`.
        x2: any shape; broadcasts with `x1`.

    Example:
        >>> nnp.logaddexp2(1.0, 1.0)
        Array(2., dtype=float32)
    """
    x1, x2 = promote(x1, x2, where="logaddexp2", to=to_float)
    return logaddexp(multiply(x1, math.log(2)), multiply(x2, math.log(2))) / math.log(2)


# -- trigonometry ------------------------------------------------------------------------------------------------------

sin = _unary("sin", trig.sin, "Returns the sine of an angle in radians.", INEXACT, to_float)
cos = _unary("cos", trig.cos, "Returns the cosine of an angle in radians.", INEXACT, to_float)
tan = _unary("tan", trig.tan, "Returns the tangent of an angle in radians.", INEXACT, to_float)
asin = arcsin = _unary("asin", trig.asin, "Returns the angle in [-π/2, π/2] whose sine is x.", INEXACT, to_float)
acos = arccos = _unary("acos", trig.acos, "Returns the angle in [0, π] whose cosine is x.", INEXACT, to_float)
atan = arctan = _unary("atan", trig.atan, "Returns the angle in [-π/2, π/2] whose tangent is x.", INEXACT, to_float)
atan2 = arctan2 = _binary("atan2", trig.atan2, "Returns the angle of the point (x2, x1), in [-π, π].", FLOAT, to_float)
sinh = _unary("sinh", trig.sinh, "Returns the hyperbolic sine.", INEXACT, to_float)
cosh = _unary("cosh", trig.cosh, "Returns the hyperbolic cosine.", INEXACT, to_float)
tanh = _unary("tanh", trig.tanh, "Returns the hyperbolic tangent.", INEXACT, to_float)
asinh = arcsinh = _unary("asinh", trig.asinh, "Returns the number whose hyperbolic sine is x.", INEXACT, to_float)
acosh = arccosh = _unary(
    "acosh", trig.acosh, "Returns the number >= 0 whose hyperbolic cosine is x.", INEXACT, to_float
)
atanh = arctanh = _unary("atanh", trig.atanh, "Returns the number whose hyperbolic tangent is x.", INEXACT, to_float)
hypot = _binary("hypot", trig.hypot, "Returns the length of the hypotenuse, sqrt(x1² + x2²).", FLOAT, to_float)


# -- rounding ----------------------------------------------------------------------------------------------------------


def _rounding(name: str, command: Command, doc: str) -> Unary:
    def function(x: ArrayLike, /) -> Array:
        x = to_value(x, name)
        return call(name, command, FLOAT, None, x) if dtypes.is_inexact(x.spec.dtype) else x

    return _named(function, name, doc, "real, any shape")


floor = _rounding("floor", ew.floor, "Returns the largest whole number not above x; integers stay.")
ceil = _rounding("ceil", ew.ceil, "Returns the smallest whole number not below x; integers stay.")
trunc = fix = _rounding("trunc", ew.trunc, "Returns x without its fraction; integers stay.")


@specialised(1)
def round(x: ArrayLike, /, decimals: int = 0) -> Array:
    """Returns `x` rounded to `decimals` places, halves to even.

    Args:
        x: any shape.
        decimals: number of places behind the point; negative ones round to tens, hundreds, ….

    Example:
        >>> round(nnp.asarray([0.5, 1.5, 2.26]), 1)
        Array([0.5, 1.5, 2.3], dtype=float32)
    """
    x = to_value(x, "round")
    decimals = static_int(decimals, "round", "decimals")
    if not dtypes.is_inexact(x.spec.dtype):
        if decimals >= 0:
            return x
        scale = 10**-decimals
        return astype(ew.round_(astype(x, dtypes.float64) / scale) * scale, x.spec.dtype)
    if not decimals:
        return ew.round_(x)
    if decimals < 0:
        return ew.round_(x / 10.0**-decimals) * 10.0**-decimals
    return ew.round_(x * 10.0**decimals) / 10.0**decimals


around = round
rint = _unary("rint", ew.round_, "Returns the nearest whole number, halves to even, as a float.", INEXACT, to_float)

# -- comparison, logic, bits -------------------------------------------------------------------------------------------

equal = _binary("equal", ew.equal, "Returns `x1 == x2`.", ANY)
not_equal = _binary("not_equal", ew.not_equal, "Returns `x1 != x2`.", ANY)
less = _binary("less", ew.less, "Returns `x1 < x2`.", ORDERED)
less_equal = _binary("less_equal", ew.less_equal, "Returns `x1 <= x2`.", ORDERED)
greater = _binary("greater", ew.greater, "Returns `x1 > x2`.", ORDERED)
greater_equal = _binary("greater_equal", ew.greater_equal, "Returns `x1 >= x2`.", ORDERED)

bitwise_and = _binary("bitwise_and", ew.bitwise_and, "Returns `x1 & x2`.", BITS)
bitwise_or = _binary("bitwise_or", ew.bitwise_or, "Returns `x1 | x2`.", BITS)
bitwise_xor = _binary("bitwise_xor", ew.bitwise_xor, "Returns `x1 ^ x2`.", BITS)
bitwise_invert = bitwise_not = invert = _unary("bitwise_invert", ew.bitwise_not, "Returns `~x`.", BITS)
bitwise_left_shift = left_shift = _binary("bitwise_left_shift", ew.shift_left, "Returns `x1 << x2`.", INTEGER)
bitwise_right_shift = right_shift = _binary("bitwise_right_shift", ew.shift_right, "Returns `x1 >> x2`.", INTEGER)


def _logical(name: str, command: Command, doc: str) -> Callable[..., Array]:
    def function(x1: ArrayLike, x2: ArrayLike, /) -> Array:
        return call(name, command, ANY, None, as_bool(x1, name), as_bool(x2, name))

    return _named(function, name, doc, _kind(ANY, None))


def as_bool(x: Any, where: str) -> Array:
    """`x` as bool: whether each element differs from 0."""
    return astype(to_value(x, where), dtypes.bool_, where)


logical_and = _logical("logical_and", ew.bitwise_and, "Returns whether both x1 and x2 are true (not 0).")
logical_or = _logical("logical_or", ew.bitwise_or, "Returns whether x1 or x2 is true (not 0).")
logical_xor = _logical("logical_xor", ew.bitwise_xor, "Returns whether just one of x1 and x2 is true (not 0).")


@spelled
def logical_not(x: ArrayLike, /) -> Array:
    """Returns whether x is false (0).

    Args:
        x: any shape.

    Example:
        >>> logical_not(nnp.asarray([0, 3]))
        Array([ True, False], dtype=bool)
    """
    return ew.bitwise_not(as_bool(x, "logical_not"))


def _float_test(name: str, command: Command, doc: str, exact: bool) -> Unary:
    """Returns a predicate that has the answer `exact` for all integers and bools."""

    def function(x: ArrayLike, /) -> Array:
        x = to_value(x, name)
        if dtypes.is_inexact(x.spec.dtype):
            return command(x)
        return constants.full(shape=x.spec.shape, dtype=dtypes.bool_, value=exact)

    return _named(function, name, doc, _kind(ANY, None))


isnan = _float_test("isnan", ew.isnan, "Returns whether x is not a number.", False)
isinf = _float_test("isinf", ew.isinf, "Returns whether x is infinite.", False)
isfinite = _float_test("isfinite", ew.isfinite, "Returns whether x is neither infinite nor not a number.", True)


@spelled
def signbit(x: ArrayLike, /) -> Array:
    """Returns whether x has a minus sign; -0.0 has one.

    Args:
        x: any shape.

    Example:
        >>> signbit(nnp.asarray([-1.0, -0.0, 0.0]))
        Array([ True,  True, False], dtype=bool)
    """
    x = to_value(x, "signbit")
    return call("signbit", ew.signbit, FLOAT, None, x) if dtypes.is_inexact(x.spec.dtype) else less(x, 0)


# -- choice ------------------------------------------------------------------------------------------------------------

maximum = _binary(
    "maximum", ew.maximum, "Returns the larger of x1 and x2, NaN where one is. Ties share the derivative.", ORDERED
)
minimum = _binary(
    "minimum", ew.minimum, "Returns the smaller of x1 and x2, NaN where one is. Ties share the derivative.", ORDERED
)
copysign = _binary("copysign", ew.copysign, "Returns |x1| with the sign of x2.", FLOAT, to_float)
nextafter = _binary("nextafter", ew.nextafter, "Returns the next float after x1 towards x2.", FLOAT, to_float)


@spelled
def fmax(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Returns the larger of x1 and x2, and the number where just one is NaN.

    Args:
        x1: any shape; broadcasts with `x2`.
        x2: any shape; broadcasts with `x1`.

    Example:
        >>> nnp.fmax(nnp.asarray([1.0, nnp.nan]), 0.0)
        Array([1., 0.], dtype=float32)
    """
    return where(isnan(x1), x2, where(isnan(x2), x1, maximum(x1, x2)))


@spelled
def fmin(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Returns the smaller of x1 and x2, and the number where just one is NaN.

    Args:
        x1: any shape; broadcasts with `x2`.
        x2: any shape; broadcasts with `x1`.

    Example:
        >>> nnp.fmin(nnp.asarray([1.0, nnp.nan]), 0.0)
        Array([0., 0.], dtype=float32)
    """
    return where(isnan(x1), x2, where(isnan(x2), x1, minimum(x1, x2)))


@overload
def where(condition: ArrayLike, x: ArrayLike, y: ArrayLike, /) -> Array: ...
@overload
def where(
    condition: ArrayLike, x: None = None, y: None = None, /, *, size: int | None = None, fill_value: ArrayLike = 0
) -> tuple[Array, ...]: ...
@specialised(3)
def where(
    condition: ArrayLike,
    x: ArrayLike | None = None,
    y: ArrayLike | None = None,
    /,
    *,
    size: int | None = None,
    fill_value: ArrayLike = 0,
) -> Any:
    """Returns elements of `x` where `condition` is true (not 0), else of `y`.

    The branch that is not taken has derivative 0, also where its own derivative is infinite.

    Args:
        condition: bools, any shape; the three broadcast together.
        x: elements where the condition is true. Without `x` and `y` the result is `nonzero(condition)`.
        y: elements where it is false; promoted with `x`.
        size: without `x` and `y`, how many indices to return; see `nonzero`.
        fill_value: stands for missing indices; see `nonzero`.

    Example:
        >>> where(np.asarray([True, False]), 1.0, np.zeros(2, "float32"))
        Array([1., 0.], dtype=float32)
    """
    if x is None and y is None:
        return to_value(condition, "where").nonzero(size=size, fill_value=fill_value)
    x, y = as_operands((x, y), "where", "xy")
    result = ew.select(*broadcast(as_bool(condition, "where"), *promote(x, y, where="where"), where="where"))
    return with_weakness(result, weakness_of_result(result.spec.dtype, (x, y)))


@specialised(1)
def clip(x: ArrayLike, /, min: ArrayLike | None = None, max: ArrayLike | None = None) -> Array:
    """Returns `x` limited to [min, max]; it keeps the dtype of x, unless the limits are of a higher kind (floats for integers).

    Args:
        x: any shape.
        min: least value, a number or an array that broadcasts with x; None is no limit.
        max: greatest value, a number or an array that broadcasts with x; None is no limit.

    Example:
        >>> clip(np.asarray([-1, 5, 9]), 0, 6)
        Array([0, 5, 6], dtype=int64)
    """
    x = to_value(x, "clip")
    result = x
    if min is not None:
        result = call("clip", ew.maximum, ORDERED, None, result, min)
    if max is not None:
        result = call("clip", ew.minimum, ORDERED, None, result, max)
    return astype(result, x.spec.dtype) if dtypes.same_kind(result.spec.dtype, x.spec.dtype) else result


@keeps_weakness
def heaviside(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Returns 0 where x1 < 0, x2 where it is 0, and 1 where it is positive; NaN stays.

    Args:
        x1: any shape; broadcasts with `x2`.
        x2: value at 0, any shape.

    Example:
        >>> nnp.heaviside(nnp.asarray([-1.0, 0.0, 2.0]), 0.5)
        Array([0. , 0.5, 1. ], dtype=float32)
    """
    x1, x2 = promote(x1, x2, where="heaviside", to=to_float)
    return where(equal(x1, 0), x2, where(isnan(x1), x1, where(less(x1, 0), zero_like(x1), zero_like(x1) + 1)))


def zero_like(x: Any) -> Array:
    """Zeros of the spec of `x`."""
    return constants.full(shape=spec_of(x).shape, dtype=spec_of(x).dtype, value=0)


# -- complex numbers ---------------------------------------------------------------------------------------------------


@spelled
def real(x: ArrayLike, /) -> Array:
    """Returns the real part; real arrays stay.

    Args:
        x: any shape.

    Example:
        >>> nnp.real(1 + 2j)
        Array(1., dtype=float32)
    """
    return to_value(x, "real").real


@spelled
def imag(x: ArrayLike, /) -> Array:
    """Returns the imaginary part; zeros for real arrays.

    Args:
        x: any shape.

    Example:
        >>> nnp.imag(1 + 2j)
        Array(2., dtype=float32)
    """
    return to_value(x, "imag").imag


@spelled
def conj(x: ArrayLike, /) -> Array:
    """Returns the complex conjugate; real arrays stay.

    Args:
        x: any shape.

    Example:
        >>> nnp.conj(1 + 2j)
        Array(1.-2.j, dtype=complex64)
    """
    x = to_value(x, "conj")
    return ew.conj(x) if dtypes.is_complex(x.spec.dtype) else x


conjugate = conj
