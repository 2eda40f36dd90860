"""Elementwise commands: one row each, so the file is as long as the list. Operands have one shape and, but for `select` and
`convert`, one dtype.

A row gives the NumPy reference, the scalar expression for code generators, and the partial derivatives. Partials that can be
infinite are marked `singular`: they meet tangents through `safe_mul`, so that a tangent of exactly 0 stays 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from operator import methodcaller
from typing import Any

import numpy as np

from nnc.base import dtypes
from nnc.base.casting import cast_array, caster, saturates
from nnc.commands.constants import full_like, ones_like
from nnc.commands.rules import (
    Product,
    Quotient,
    Sum,
    add_tangents,
    batch_leading,
    check_dtype,
    check_same_spec,
    each,
    linear_in,
    linear_in_all,
    not_linear,
    of_tangent,
)
from nnc.errors import ArgumentError, DTypeError, user_error
from nnc.graph import Command, TensorSpec, register
from nnc.graph import command as get_command
from nnc.graph.registry import numpy_call, refuses
from nnc.graph.rules import Cotangents, Derivative, InPlace, Linear, Rules, Tangents, TransposeRule, Value

Partial = Callable[..., Value]
Accepts = tuple[Callable[[dtypes.DType], bool], str]

NUMERIC: Accepts = (lambda dtype: not dtypes.is_bool(dtype), "numeric")
REAL: Accepts = (lambda dtype: dtypes.is_integer(dtype) or dtypes.is_float(dtype), "a real number type")
ORDERED: Accepts = (lambda dtype: not dtypes.is_complex(dtype), "bool or real")
INEXACT: Accepts = (dtypes.is_inexact, "floating-point or complex")
FLOAT: Accepts = (dtypes.is_float, "floating-point")
COMPLEX: Accepts = (dtypes.is_complex, "complex")
BITS: Accepts = (lambda dtype: dtypes.is_bool(dtype) or dtypes.is_integer(dtype), "bool or integer")
INTEGER: Accepts = (dtypes.is_integer, "an integer type")
ANY: Accepts = (lambda dtype: True, "any dtype")


def elementwise(
    name: str,
    function: Callable[..., Any],
    scalar: str,
    *,
    arity: int = 1,
    accepts: Accepts = NUMERIC,
    partials: Sequence[Partial | None] | None = None,
    derivative: Derivative | None = None,
    singular: bool = False,
    result: Callable[[dtypes.DType], dtypes.DType] | None = None,
    flops: int = 1,
    widen: bool = True,
    identity: bool = False,
    complex_function: Callable[..., Any] | None = None,
    weight: int | None = None,
    commutes: bool = False,
    any_arrays: bool = False,
    **attributes: Any,
) -> Command:
    """Registers an elementwise command.

    Args:
        name: the command's name.
        function: the NumPy reference.
        scalar: an expression in x, y, z, one for each operand, in Python syntax.
        arity: the number of operands.
        accepts: the dtypes that operands may have, and the words for them in messages.
        partials: for each operand, a function (*operands, output) -> partial derivative, or None where it is 0.
        derivative: the derivative rule, where it does not follow from partials.
        singular: whether a partial derivative may be infinite.
        result: maps the operands' dtype to the output's, where these differ.
        flops: the floating-point operations for one element.
        widen: whether 16-bit floats are computed in float32.
        identity: whether the output equals the input.
        complex_function: the reference for complex operands, where it differs.
        weight: the weight of the command's rules.
        commutes: whether exchanging the two operands changes no bit.
        any_arrays: whether the reference takes arrays of other libraries.
        **attributes: cells of other columns.
    """

    def infer(*specs: TensorSpec) -> TensorSpec:
        spec = check_same_spec(name, specs)
        check_dtype(name, spec, *accepts)
        return spec.update(dtype=result(spec.dtype)) if result is not None else spec

    def reference(*arrays: Any) -> Any:
        dtype = arrays[0].dtype
        wide = dtypes.accumulator(dtype)
        if widen and wide != dtype:
            arrays = tuple(x.astype(wide) for x in arrays)
        with np.errstate(all="ignore"):
            out = as_array(functions[dtypes.is_complex(dtype)](*arrays))
            return out.astype(result(dtype) if result is not None else dtype, copy=False)

    def call_of(*specs: TensorSpec) -> Callable[..., Any] | None:
        return None if dtypes.is_complex(specs[0].dtype) else function

    functions = (function, complex_function or function)
    is_ufunc = isinstance(function, np.ufunc)
    called = function if is_ufunc and complex_function is None else call_of
    rule = derivative or (_from_partials(partials, "safe_mul" if singular else "mul") if partials is not None else None)
    return register(
        name,
        Rules(
            infer=infer,
            reference=reference,
            scalar=scalar,
            exact=identity or not widen,
            numpy_call=called if is_ufunc else None,
            derivative=rule,
            batch=batch_leading(name),
            inplace=InPlace(tuple((i, 0) for i in range(arity)), (0,) if identity else ()) if result is None else None,
            cost=lambda *specs: flops * specs[0].size,
            weight=weight,
            commutes=commutes,
            any_arrays=any_arrays,
        ),
        arity=arity,
        **attributes,
    )


def of_inexact(name: str, function: Callable[..., Any], slope: Partial, **columns: Any) -> Command:
    """Registers an elementwise command of one float or complex operand, whose scalar expression is a call of its name."""
    columns = {"any_arrays": True} | columns
    return elementwise(name, function, f"{name}(x)", accepts=INEXACT, partials=(slope,), **columns)


def as_array(x: Any) -> Any:
    """Returns an array for a number of NumPy or Python; arrays of other libraries stay theirs."""
    return x if hasattr(x, "__array_function__") else np.asarray(x)


def _from_partials(
    partials: Sequence[Partial | None], product: str, transpose: TransposeRule | None = None
) -> Derivative:
    def jvp(primals: tuple[Value, ...], tangents: Tangents, outputs: tuple[Value, ...]) -> Tangents:
        total: Value | None = None
        for slope, t in zip(partials, tangents, strict=True):
            if t is not None and slope is not None:
                total = add_tangents(total, _PRODUCTS[product](t, slope(*primals, outputs[0])))
        return (total,)

    return Derivative(jvp, transpose)


def _signed_sum(*signs: int) -> Derivative:
    """The rules of sums and differences: output = sum of sign_i · operand_i."""

    def jvp(primals: tuple[Value, ...], tangents: Tangents, outputs: tuple[Value, ...]) -> Tangents:
        total: Value | None = None
        for sign, t in zip(signs, tangents, strict=True):
            if t is not None:
                total = add_tangents(total, t if sign > 0 else neg(t)) if total is None or sign > 0 else sub(total, t)
        return (total,)

    def transpose(sign: int, ct: Value, *operands: Value | Linear) -> Value:
        return ct if sign > 0 else neg(ct)

    return Derivative(jvp, each({i: partial(transpose, sign) for i, sign in enumerate(signs)}))


# -- arithmetic --------------------------------------------------------------------------------------------------------


neg: Command = elementwise("neg", np.negative, "-x", derivative=_signed_sum(-1), weight=1, elements=Sum((-1,)))
add: Command = elementwise(
    "add", np.add, "x + y", arity=2, accepts=ANY, derivative=_signed_sum(1, 1), weight=1, commutes=True,
    elements=Sum((1, 1)),
)  # fmt: skip
sub: Command = elementwise(
    "sub", np.subtract, "x - y", arity=2, derivative=_signed_sum(1, -1), weight=1, elements=Sum((1, -1))
)
mul: Command = elementwise(
    "mul", np.multiply, "x * y", arity=2, accepts=ANY,
    derivative=linear_in("mul", {0: lambda ct, x, y: safe_mul(ct, y), 1: lambda ct, x, y: safe_mul(ct, x)}),
    weight=1, elements=Product(), commutes=True,
)  # fmt: skip


def _safe_product(x: Any, y: Any) -> Any:
    out = np.multiply(x, y)
    if dtypes.is_inexact(x.dtype) and np.isnan(np.dot(out.ravel(), out.ravel())):  # the cheapest look for a NaN
        return np.where(np.isnan(out) & ((x == 0) | (y == 0)), out.dtype.type(0), out)
    return out


safe_mul: Command = elementwise(
    "safe_mul",
    _safe_product,
    "safe_product(x, y)",  # as exact, but for the sign of 0
    arity=2,
    derivative=linear_in("safe_mul", {0: lambda ct, x, y: safe_mul(ct, y), 1: lambda ct, x, y: safe_mul(ct, x)}),
    weight=1,
    elements=Product(keeps_zero=True),
    any_arrays=True,
    commutes=True,
)
_PRODUCTS = {"mul": mul, "safe_mul": safe_mul}


div: Command = elementwise(
    "div", np.true_divide, "x / y", arity=2, accepts=INEXACT, elements=Quotient(),
    derivative=_from_partials(
        (lambda x, y, out: reciprocal(y), lambda x, y, out: -out / y),
        "safe_mul",
        transpose=lambda cotangents, operands: _div_transpose(cotangents, operands),
    ),
)  # fmt: skip
reciprocal: Command = elementwise(
    "reciprocal", np.reciprocal, "1 / x", accepts=INEXACT, partials=(lambda x, out: -(out * out),), singular=True
)


def _div_transpose(cotangents: Cotangents, operands: tuple[Value | Linear, ...]) -> Tangents:
    """Transposes a division, which is linear in the dividend."""
    y = operands[1]
    if isinstance(y, Linear):
        raise not_linear("div", "in the divisor", {"divisor": y.spec})
    return (safe_mul(cotangents[0], reciprocal(y)), None)


def _floor_divide(x: Any, y: Any) -> Any:
    """Rounds the quotient down; where an operand is infinite, as the Array API standard prefers, not as Python and NumPy do."""
    out = np.floor_divide(x, y)
    return np.where(np.isinf(x) | np.isinf(y), np.floor(x / y), out) if x.dtype.kind == "f" else out


floor_divide: Command = elementwise(
    "floor_divide", _floor_divide, "floor_divide(x, y)", arity=2, accepts=REAL, partials=(None, None)
)
remainder: Command = elementwise(
    "remainder", np.remainder, "remainder(x, y)", arity=2, accepts=REAL,
    partials=(lambda x, y, out: ones_like(x), lambda x, y, out: -floor(x / y)),
)  # fmt: skip
fmod: Command = elementwise(
    "fmod", np.fmod, "fmod(x, y)", arity=2, accepts=REAL,
    partials=(lambda x, y, out: ones_like(x), lambda x, y, out: -trunc(x / y)),
)  # fmt: skip
abs_: Command = elementwise(
    "abs", np.abs, "abs(x)", result=dtypes.real_dtype,
    derivative=of_tangent(lambda t, x, out: _tangent_of_abs(t, x, out)),
    weight=2, root_of=(2, lambda primals, tangents: _abs_square_jvp(primals[0], tangents[0])),
)  # fmt: skip
sign: Command = elementwise(
    "sign", np.sign, "sign(x)",
    derivative=of_tangent(lambda t, x, out: _tangent_of_sign(t, x, out)),
    weight=2,
)  # fmt: skip
square: Command = elementwise(
    "square", np.square, "x * x", complex_function=lambda x: _complex_square(x),
    derivative=of_tangent(lambda t, x, out: x * t * 2),  # keeps x, no double of it
    weight=2, elements=Product((0, 0)),
)  # fmt: skip


def _complex_square(x: Any) -> Any:
    """Squares complex numbers. The real part is a product, which does not overflow where the parts are alike. 0 has no sign."""
    out = np.empty_like(x)
    out.real[...] = (x.real - x.imag) * (x.real + x.imag) + 0
    out.imag[...] = x.real * (x.imag + x.imag)
    return out


def _tangent_of_sign(t: Value, x: Value, out: Value) -> Value | None:
    """0 for real numbers. A complex one moves along the unit circle by the part of t across x; at 0 it stays."""
    if not dtypes.is_complex(x.spec.dtype):
        return None
    length = abs_(x)
    at_zero = equal(length, length * 0)
    across = imag(conj(out) * t) / select(at_zero, ones_like(length), length)
    across = select(at_zero, length * 0, across)
    return complex_(-(imag(out) * across), real(out) * across)


def _tangent_of_abs(t: Value, x: Value, out: Value) -> Value:
    if not dtypes.is_complex(x.spec.dtype):
        return mul(t, sign(x))
    unit = select(equal(out, out * 0), complex_(out * 0, out * 0), x / complex_(out, out * 0))
    return real(conj(unit) * t)


def _abs_square_jvp(x: Value, t: Value) -> Value:
    return (real(conj(x) * t) if dtypes.is_complex(x.spec.dtype) else x * t) * 2


# -- powers, exponentials, logarithms ----------------------------------------------------------------------------------

sqrt: Command = of_inexact(
    "sqrt", np.sqrt, lambda x, out: 0.5 / out, singular=True, root_of=(2, lambda primals, tangents: tangents[0])
)
length: Command = elementwise(
    "length", np.sqrt, "sqrt(x)", accepts=FLOAT, any_arrays=True, partials=(lambda x, out: _slope_of_length(out),),
    root_of=(2, lambda primals, tangents: tangents[0]),
)  # fmt: skip
"""The square root of a sum of squares: the derivative at 0 is 0."""
rsqrt: Command = of_inexact(
    "rsqrt", lambda x: 1 / np.sqrt(x), lambda x, out: -0.5 * out / x, singular=True, any_arrays=False, flops=2
)
with_square: Command = elementwise(
    "with_square", lambda x, y: np.array(x), "x", arity=2, accepts=FLOAT, flops=0, identity=True, weight=2,
    derivative=Derivative(lambda primals, tangents, outputs: (tangents[0],)), root_of=(2, lambda primals, tangents: tangents[1]),
)  # fmt: skip
"""x, of which y is the square: derivatives of its powers are made of those of y."""
with_slope: Command = elementwise(
    "with_slope", lambda x, y: np.array(x), "x", arity=2, accepts=NUMERIC, flops=0, identity=True, weight=2,
    derivative=Derivative(lambda primals, tangents, outputs: (tangents[1],)),
)  # fmt: skip
"""x with the derivatives of y, another form of the same value, which compiled programs do not compute for this."""
cbrt: Command = elementwise(
    "cbrt", lambda x: _cbrt(x), "cbrt(x)", accepts=FLOAT, singular=True,
    partials=(lambda x, out: square(reciprocal(out)) * (1 / 3),),
    root_of=(3, lambda primals, tangents: tangents[0]),
)  # fmt: skip


def _cbrt(x: Any) -> Any:
    """Returns NumPy's cube root with a step of Newton's method for the exact error of the cube. Without AVX-512 NumPy's is the
    system's, 3 units of the last place off in float64; derivatives multiply that by as much as their power of it.
    """
    if x.dtype == np.float32:
        return np.cbrt(x.astype(np.float64)).astype(np.float32)
    tiny = abs(x) < 2.0**-900  # errors of its cube would be denormal numbers
    size = np.where(tiny, x * 2.0**162, x)
    y = np.cbrt(size)
    square, lost = _two_product(y, y)
    cube, more = _two_product(square, y)
    step = ((cube - size) + (more + lost * y)) / (3 * square)
    return np.where(np.isfinite(step), y - step, y) * np.where(tiny, 2.0**-54, 1)


def _slope_of_length(out: Value) -> Value:
    at_zero = equal(out, full_like(out, 0))
    return select(at_zero, full_like(out, 0), 0.5 / select(at_zero, full_like(out, 1), out))


# exponentials overflow, which makes their partials infinite
exp: Command = of_inexact("exp", np.exp, lambda x, out: out, singular=True)
exp2: Command = of_inexact("exp2", np.exp2, lambda x, out: _slope_of_exp2(x, out), singular=True, any_arrays=False)


def _slope_of_exp2(x: Value, out: Value) -> Value:
    """2^x · log 2, which is finite for x somewhat beyond the point where 2^x overflows."""
    if dtypes.is_complex(x.spec.dtype):
        return out * math.log(2)
    return select(equal(out, full_like(out, math.inf)), exp2(x - 1) * (2 * math.log(2)), out * math.log(2))


def _expm1(x: Any) -> Any:
    """exp(x) - 1. Of a complex number by real functions, as NumPy's loses no digits near 0, where CuPy's does.

    NumPy's is NaN at infinities where exp(x) - 1, which loses no digits there, is none. The real part of a complex result is 0 and
    never -0, as the Array API standard asks.
    """
    if x.dtype.kind != "c":
        return np.expm1(x)
    half, out = np.sin(x.imag / 2), np.empty_like(x)
    out.real[...] = np.expm1(x.real) * np.cos(x.imag) - 2 * half * half
    out.imag[...] = np.exp(x.real) * np.sin(x.imag)
    out = np.where(np.isfinite(x), out, np.exp(x) - 1)
    out.real[...] += 0
    return out


expm1: Command = of_inexact("expm1", _expm1, lambda x, out: exp(x), singular=True)
log: Command = of_inexact("log", np.log, lambda x, out: reciprocal(x), singular=True)
log2: Command = of_inexact("log2", np.log2, lambda x, out: 1 / (x * math.log(2)), singular=True)
log10: Command = of_inexact("log10", np.log10, lambda x, out: 1 / (x * math.log(10)), singular=True)


def _log1p(x: Any) -> Any:
    """log(1 + x). NumPy's of a complex number rounds 1 + x; here ½ log1p(2a + a² + b²) of a + bi keeps the errors of these sums."""
    if not dtypes.is_complex(x.dtype):
        return np.log1p(x)
    a, b = (part.astype(np.float64) for part in (x.real, x.imag))
    far = ~((abs(a) <= 4) & (abs(b) <= 4) & (abs(1 + a) + abs(b) >= 0.5))  # there 1 + x is as good
    near_a, near_b = (np.where(far, 0, part) for part in (a, b))
    (square_a, lost_a), (square_b, lost_b) = _two_product(near_a, near_a), _two_product(near_b, near_b)
    total, lost = _add_exactly(2 * near_a, square_a)
    total, lost_then = _add_exactly(total, square_b)
    out = np.empty_like(x)  # 1j times NaN would be NaN in both parts
    near = 0.5 * np.log1p(total + (lost + lost_then + lost_a + lost_b))
    out.real[...] = np.where(far, np.log(x.astype(np.complex128) + 1).real, near)
    out.imag[...] = np.arctan2(b, 1 + a)
    return out


def _add_exactly(x: Any, y: Any) -> tuple[Any, Any]:
    """Returns the rounded sum and its rounding error (Knuth)."""
    total = x + y
    part = total - x
    return total, (x - (total - part)) + (y - part)


def _two_product(x: Any, y: Any) -> tuple[Any, Any]:
    """Returns a product of float64 and its rounding error (T. J. Dekker, "A floating-point technique for extending the available
    precision", 1971).
    """
    product, (a, b), (c, d) = x * y, _halves(x), _halves(y)
    return product, ((a * c - product) + (a * d + b * c)) + b * d


def _halves(x: Any) -> tuple[Any, Any]:
    """Returns a number of 26 bits and the rest."""
    scaled = x * (2.0**27 + 1)
    high = scaled - (scaled - x)
    return high, x - high


log1p: Command = of_inexact("log1p", _log1p, lambda x, out: 1 / (x + 1), singular=True)


def _integer_pow_infer(x: TensorSpec, *, exponent: int) -> TensorSpec:
    check_dtype("integer_pow", x, *NUMERIC)
    if exponent < 0 and dtypes.is_integer(x.dtype):
        problem = f"an integer array to the power {exponent} is no integer."
        fix = "convert to a float first: x.astype('float32') ** exponent."
        raise user_error(DTypeError, "integer_pow", problem, operands={"x": x}, fix=fix)
    return x


def _integer_pow_reference(x: Any, *, exponent: int) -> Any:
    with np.errstate(all="ignore"):
        wide = x.astype(dtypes.accumulator(x.dtype), copy=False)
        integer = x.dtype if x.dtype == dtypes.uint64 else dtypes.int64  # these two would meet as float64
        return np.asarray(
            np.power(wide, np.asarray(exponent, integer if dtypes.is_integer(x.dtype) else wide.dtype))
        ).astype(x.dtype)


def _integer_pow_call(x: TensorSpec, *, exponent: int) -> Callable[..., Any] | None:
    if exponent == 2 and dtypes.is_inexact(x.dtype):
        return np.square
    return (lambda x: _integer_pow_reference(x, exponent=exponent)) if dtypes.is_complex(x.dtype) else None


def _tangent_of_integer_pow(t: Value, x: Value, exponent: int) -> Value | None:
    if not exponent:
        return None
    return (safe_mul if exponent < 1 else mul)(t, integer_pow(x, exponent=exponent - 1) * exponent)


integer_pow: Command = register(
    "integer_pow",
    Rules(
        infer=_integer_pow_infer,
        reference=_integer_pow_reference,
        numpy_call=_integer_pow_call,
        scalar="x ** exponent",
        derivative=of_tangent(lambda t, x, out, exponent: _tangent_of_integer_pow(t, x, exponent)),
        batch=batch_leading("integer_pow"),
        inplace=InPlace(((0, 0),)),
        cost=lambda x, exponent: x.size * max(1, abs(exponent).bit_length()),
    ),
)


def pow_slope_by_base(x: Value, y: Value, out: Value) -> Value:
    """y · x^(y-1), and 0 where y is 0 (also at x = 0)."""
    one = ones_like(y)
    return safe_mul(y, pow_(x, select(equal(y, y * 0), one, y - one)))


def pow_slope_by_exponent(x: Value, y: Value, out: Value) -> Value:
    """x^y · log x, which is 0 at x = 0 for positive y."""
    safe = select(equal(x, x * 0), ones_like(x), x)
    return safe_mul(out, log(safe))


def _pow(x: Any, y: Any) -> Any:
    """NumPy takes a square root where one exponent 0.5 stands for all, which is wrong at -inf and -0: so it gets a copy."""
    if dtypes.is_integer(y.dtype) and np.any(y < 0):
        fix = "convert to a float first: x.astype('float32') ** y."
        raise user_error(ArgumentError, "pow", f"an integer to the power {np.min(y)} is no integer.", fix=fix)
    return np.power(x.reshape(-1), np.array(y).reshape(-1)).reshape(x.shape)


pow_: Command = elementwise(
    "pow", _pow, "pow(x, y)", arity=2, accepts=NUMERIC, partials=(pow_slope_by_base, pow_slope_by_exponent), singular=True,
    flops=10, root_of=(2, lambda primals, tangents: _pow_square_jvp(*primals, *tangents)),
)  # fmt: skip


def _pow_square_jvp(x: Value, y: Value, t: Value | None, u: Value | None) -> Value | None:
    """Returns the tangent of x^(2 y)."""
    twice = y * 2
    by_base = None if t is None else safe_mul(t, pow_slope_by_base(x, twice, x))
    by_exponent = None if u is None else safe_mul(u, pow_slope_by_exponent(x, twice, pow_(x, twice)) * 2)
    return add_tangents(by_base, by_exponent)


refuses.set(pow_, lambda x, y: dtypes.is_integer(y.dtype))


def _sigmoid(x: Any) -> Any:
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, e) / (1 + e)


sigmoid: Command = elementwise(
    "sigmoid", _sigmoid, "sigmoid(x)", accepts=FLOAT, singular=True, flops=4,
    partials=(lambda x, out: logistic_density(x),),  # out · (1 - out) loses digits where out is near 1
)  # fmt: skip


def _logistic_density(x: Any) -> Any:
    e = np.exp(-np.abs(x))
    return e / np.square(1 + e)


logistic_density: Command = elementwise(
    "logistic_density", _logistic_density, "logistic_density(x)", accepts=FLOAT, singular=True, flops=5,
    partials=(lambda x, out: get_command("tanh")(x * -0.5) * out,),
)  # fmt: skip
"""The derivative of the sigmoid, symmetric about 0."""
soft_sign: Command = elementwise(
    "soft_sign", lambda x: x / (1 + np.abs(x)), "x / (1 + abs(x))", accepts=FLOAT, flops=3,
    partials=(lambda x, out: square(reciprocal(abs_(x) + 1)),),
)  # fmt: skip
logaddexp: Command = elementwise(
    "logaddexp", np.logaddexp, "logaddexp(x, y)", arity=2, accepts=FLOAT,
    partials=(lambda x, y, out: _share(x, y), lambda x, y, out: _share(y, x)), flops=6,
)  # fmt: skip


def _share(x: Value, y: Value) -> Value:
    """exp(x) / (exp(x) + exp(y)), which is one half where both are the same infinity."""
    same = bitwise_and(equal(x, y), isinf(y))
    return sigmoid(select(same, full_like(x, 0), x - y))


# -- rounding, order, selection ----------------------------------------------------------------------------------------

floor: Command = elementwise("floor", np.floor, "floor(x)", accepts=REAL, partials=(None,))
ceil: Command = elementwise("ceil", np.ceil, "ceil(x)", accepts=REAL, partials=(None,))
trunc: Command = elementwise("trunc", np.trunc, "trunc(x)", accepts=REAL, partials=(None,))
round_: Command = elementwise("round", np.round, "round_even(x)", accepts=NUMERIC, any_arrays=True, partials=(None,))


def _winner(x: Value, y: Value) -> Value:
    """1 where x > y, one half at ties, else 0: ties share the derivative equally.

    A loser has none, also where the cotangent is infinite, as in sqrt(maximum(x, 0)).
    """
    one = ones_like(x)
    return select(greater(x, y), one, select(equal(x, y), one * 0.5, one * 0))


maximum: Command = elementwise(
    "maximum", np.maximum, "max(x, y)", arity=2, accepts=ORDERED,
    partials=(lambda x, y, out: _winner(x, y), lambda x, y, out: _winner(y, x)), singular=True, weight=2,
)  # fmt: skip
minimum: Command = elementwise(
    "minimum", np.minimum, "min(x, y)", arity=2, accepts=ORDERED,
    partials=(lambda x, y, out: _winner(y, x), lambda x, y, out: _winner(x, y)), singular=True, weight=2,
)  # fmt: skip
copysign: Command = elementwise(
    "copysign", np.copysign, "copysign(x, y)", arity=2, accepts=FLOAT,
    partials=(lambda x, y, out: select(equal(signbit(x), signbit(y)), ones_like(x), -ones_like(x)), None),
)  # fmt: skip
nextafter: Command = elementwise("nextafter", np.nextafter, "nextafter(x, y)", arity=2, accepts=FLOAT, widen=False)


def _to_bool(dtype: dtypes.DType) -> dtypes.DType:
    return dtypes.bool_


_comparison = partial(elementwise, arity=2, accepts=ORDERED, result=_to_bool, weight=2)


equal: Command = _comparison("equal", np.equal, "x == y", accepts=ANY, commutes=True)
not_equal: Command = _comparison("not_equal", np.not_equal, "x != y", accepts=ANY, commutes=True)
less: Command = _comparison("less", np.less, "x < y")
less_equal: Command = _comparison("less_equal", np.less_equal, "x <= y")
greater: Command = _comparison("greater", np.greater, "x > y")
greater_equal: Command = _comparison("greater_equal", np.greater_equal, "x >= y")
isnan: Command = elementwise("isnan", np.isnan, "x != x", accepts=ANY, result=_to_bool, weight=2)
isinf: Command = elementwise("isinf", np.isinf, "abs(x) == inf", accepts=ANY, result=_to_bool, any_arrays=True)
isfinite: Command = elementwise(
    "isfinite", np.isfinite, "abs(x) < inf", accepts=ANY, result=_to_bool, weight=2, any_arrays=True
)
signbit: Command = elementwise("signbit", np.signbit, "signbit(x)", accepts=FLOAT, result=_to_bool)

bitwise_not: Command = elementwise("bitwise_not", np.invert, "~x", accepts=BITS, weight=2)
_bitwise = partial(elementwise, arity=2, accepts=BITS, weight=2, commutes=True)
bitwise_and: Command = _bitwise("bitwise_and", np.bitwise_and, "x & y")
bitwise_or: Command = _bitwise("bitwise_or", np.bitwise_or, "x | y")
bitwise_xor: Command = _bitwise("bitwise_xor", np.bitwise_xor, "x ^ y")


def _shift(function: Any) -> Any:
    """Returns a shift; by too many bits, or by a negative number, all go out, and the sign comes in from the left."""

    def shifted(x: Any, y: Any) -> Any:
        bits = x.dtype.itemsize * 8
        fits = (y >= 0) & (y < bits)
        if function is np.right_shift and x.dtype in dtypes.SIGNED:
            return x >> np.where(fits, y, bits - 1)
        return np.where(fits, function(x, np.where(fits, y, 0)), 0)

    return shifted


shift_left: Command = elementwise("shift_left", _shift(np.left_shift), "x << y", arity=2, accepts=INTEGER)
shift_right: Command = elementwise("shift_right", _shift(np.right_shift), "x >> y", arity=2, accepts=INTEGER)


def _select_infer(condition: TensorSpec, x: TensorSpec, y: TensorSpec) -> TensorSpec:
    check_dtype("select", condition, dtypes.is_bool, "bool", "condition")
    check_same_spec("select", (condition.update(dtype=x.dtype), x, y))
    return x


_WORDS = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}
_MANY = 1 << 12  # elements above which branches that are guessed wrong cost more than passes over memory


def _blend(condition: Any, x: Any, y: Any) -> Any:
    """np.where without branches: bits of x where the condition holds, else of y."""
    word = _WORDS[x.itemsize]
    bits = x.view(word) ^ y.view(word)
    bits &= np.negative(condition.view(np.int8)).astype(word)
    bits ^= y.view(word)
    return bits.view(x.dtype)


select: Command = register(
    "select",
    Rules(
        infer=_select_infer,
        reference=np.where,
        numpy_call=lambda condition, x, y: _blend if x.size > _MANY and x.dtype.itemsize in _WORDS else np.where,
        scalar="select(x, y, z)",
        exact=True,
        derivative=linear_in_all(
            "select",
            each(
                {
                    1: lambda ct, condition, x, y: select(condition, ct, full_like(ct, 0)),
                    2: lambda ct, condition, x, y: select(condition, full_like(ct, 0), ct),
                }
            ),
        ),
        batch=batch_leading("select"),
        inplace=InPlace(((1, 0), (2, 0))),
        weight=2,
        cost=lambda condition, x, y: x.size,
    ),
    arity=3,
)

# -- complex numbers, dtype, identity ----------------------------------------------------------------------------------

real: Command = elementwise(
    "real", np.real, "real(x)", result=dtypes.real_dtype, accepts=COMPLEX,
    derivative=linear_in("real", {0: lambda ct, x: complex_(ct, full_like(ct, 0))}),
)  # fmt: skip
imag: Command = elementwise(
    "imag", np.imag, "imag(x)", result=dtypes.real_dtype, accepts=COMPLEX,
    derivative=linear_in("imag", {0: lambda ct, x: complex_(full_like(ct, 0), neg(ct))}),
)  # fmt: skip
numpy_call.set(real, lambda x: np.real)
numpy_call.set(imag, lambda x: np.imag)
conj: Command = elementwise(
    "conj", np.conj, "conj(x)", accepts=COMPLEX, derivative=linear_in("conj", {0: lambda ct, x: conj(ct)})
)


def _complex_infer(re: TensorSpec, im: TensorSpec) -> TensorSpec:
    spec = check_same_spec("complex", (re, im))
    check_dtype(
        "complex", spec, lambda dtype: dtype in (dtypes.float32, dtypes.float64), "float32 or float64", "real part"
    )
    return spec.update(dtype=dtypes.complex_dtype(spec.dtype))


def _complex_reference(re: Any, im: Any) -> Any:
    out = np.empty(np.shape(re), dtypes.complex_dtype(re.dtype))
    out.real, out.imag = re, im
    return out


complex_: Command = register(
    "complex",
    Rules(
        infer=_complex_infer,
        reference=_complex_reference,
        numpy_call=lambda re, im: _complex_reference,
        scalar="complex(x, y)",
        derivative=linear_in_all(
            "complex", each({0: lambda ct, re, im: real(ct), 1: lambda ct, re, im: neg(imag(ct))})
        ),
        batch=batch_leading("complex"),
        cost=lambda re, im: 0,
    ),
    arity=2,
)


def _convert_infer(x: TensorSpec, *, dtype: Any) -> TensorSpec:
    target = dtypes.as_dtype(dtype)
    if dtypes.is_complex(x.dtype) and not dtypes.is_complex(target) and not dtypes.is_bool(target):
        problem = f"{x.dtype.name} to {target.name} would drop the imaginary part."
        raise user_error(DTypeError, "convert", problem, operands={"x": x}, fix="take nnp.real(x) or nnp.abs(x) first.")
    return x.update(dtype=target)


def _convert_reference(x: Any, *, dtype: Any) -> Any:
    return cast_array(x, dtypes.as_dtype(dtype))


def _convert_call(x: TensorSpec, *, dtype: Any) -> Any:
    target = dtypes.as_dtype(dtype)
    return caster(x.dtype, target) if saturates(x.dtype, target) else methodcaller("astype", target)


def _convert_into(x: TensorSpec, *, dtype: Any) -> Callable[..., Any] | None:
    """None where numbers may not fit, which NumPy leaves undefined."""
    if saturates(x.dtype, dtypes.as_dtype(dtype)):
        return None
    return lambda array, out: np.copyto(out, array, casting="unsafe")


def _convert_tangent(t: Value, x: Value, out: Value, *, dtype: Any) -> Value | None:
    return convert(t, dtype=dtype) if dtypes.is_inexact(dtypes.as_dtype(dtype)) else None


def _convert_transpose(ct: Value, x: Linear, *, dtype: Any) -> Value:
    target = x.spec.dtype
    if dtypes.is_complex(ct.spec.dtype) and not dtypes.is_complex(target):
        ct = real(ct)
    return in_dtype(ct, target)


convert: Command = register(
    "convert",
    Rules(
        infer=_convert_infer,
        reference=_convert_reference,
        numpy_call=_convert_call,
        scalar="convert(x)",
        exact=True,
        derivative=of_tangent(_convert_tangent, each({0: _convert_transpose})),
        batch=batch_leading("convert"),
        weight=1,
        cost=lambda x, dtype: 0,
    ),
    numpy_into=_convert_into,
)


def in_dtype(x: Value, dtype: dtypes.DType) -> Value:
    """`x` in a dtype; itself where it has that."""
    return x if x.spec.dtype == dtype else convert(x, dtype=dtype)


stop_gradient: Command = elementwise(
    "stop_gradient", np.array, "x", accepts=ANY, partials=(None,), flops=0, identity=True, weight=2
)
copy: Command = elementwise(
    "copy", np.array, "x", accepts=ANY, derivative=_signed_sum(1), flops=0, identity=True, weight=2
)
