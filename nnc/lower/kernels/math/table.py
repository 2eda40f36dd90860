"""Functions by the names that scalar expressions call them by."""

from __future__ import annotations

from collections.abc import Callable

from nnc.base.later import later
from nnc.commands import portable
from nnc.lower.kernels.math.terms import Term, absolute, fma, sqrt

# Functions of a file, which is imported when one of them is first printed.
_FILES = {
    "rounding": "safe_product sign signbit copysign nextafter floor ceil trunc round_even fmod remainder floor_divide",
    "exponents": "frexp_exponent ldexp",
    "exponential": "exp exp2 expm1 sigmoid logistic_density",
    "logarithm": "log log2 log10 log1p",
    "angles": "sin cos tan",
    "inverse_angles": "asin acos atan atan2",
    "hyperbolic": "sinh cosh asinh acosh atanh tanh",
    "power": "cbrt hypot logaddexp",
    "error": "erf erfc",
    "special": "erfinv lgamma",
    "bessel": "i0e i1e",
}

FUNCTIONS: dict[str, Callable[..., Term]] = {
    "abs": absolute,
    "sqrt": sqrt,
    "rsqrt": lambda x: 1 / sqrt(x),
    "fma": fma,
    **{name: later(f"{__package__}.{file}", name) for file, names in _FILES.items() for name in names.split()},
    "max": later(f"{__package__}.rounding", "maximum"),
    "min": later(f"{__package__}.rounding", "minimum"),
    "pow": later(f"{__package__}.power", "pow_"),
    **portable.FUNCTIONS,
}
"""Each takes and gives float32 or float64."""
