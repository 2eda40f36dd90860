"""Functions by the names that scalar expressions call them by."""

from __future__ import annotations

from collections.abc import Callable

from nnc.commands import portable
from nnc.lower.kernels.math import (
    angles,
    error,
    exponential,
    exponents,
    hyperbolic,
    inverse_angles,
    logarithm,
    power,
    rounding,
    special,
)
from nnc.lower.kernels.math.terms import Term, absolute, fma, sqrt

FUNCTIONS: dict[str, Callable[..., Term]] = {
    "abs": absolute,
    "safe_product": rounding.safe_product,
    "sign": rounding.sign,
    "signbit": rounding.signbit,
    "copysign": rounding.copysign,
    "nextafter": rounding.nextafter,
    "max": rounding.maximum,
    "min": rounding.minimum,
    "floor": rounding.floor,
    "ceil": rounding.ceil,
    "trunc": rounding.trunc,
    "round_even": rounding.round_even,
    "fmod": rounding.fmod,
    "remainder": rounding.remainder,
    "floor_divide": rounding.floor_divide,
    "sqrt": sqrt,
    "rsqrt": lambda x: 1 / sqrt(x),
    "fma": fma,
    "frexp_exponent": exponents.frexp_exponent,
    "ldexp": exponents.ldexp,
    "exp": exponential.exp,
    "exp2": exponential.exp2,
    "expm1": exponential.expm1,
    "sigmoid": exponential.sigmoid,
    "log": logarithm.log,
    "log2": logarithm.log2,
    "log10": logarithm.log10,
    "log1p": logarithm.log1p,
    "sin": angles.sin,
    "cos": angles.cos,
    "tan": angles.tan,
    "asin": inverse_angles.asin,
    "acos": inverse_angles.acos,
    "atan": inverse_angles.atan,
    "atan2": inverse_angles.atan2,
    "sinh": hyperbolic.sinh,
    "cosh": hyperbolic.cosh,
    "asinh": hyperbolic.asinh,
    "acosh": hyperbolic.acosh,
    "atanh": hyperbolic.atanh,
    "cbrt": power.cbrt,
    "hypot": power.hypot,
    "logaddexp": power.logaddexp,
    "tanh": hyperbolic.tanh,
    "pow": power.pow_,
    "erf": error.erf,
    "erfc": error.erfc,
    "erfinv": special.erfinv,
    "lgamma": special.lgamma,
    **portable.FUNCTIONS,
}
"""Each takes and gives float32 or float64."""
