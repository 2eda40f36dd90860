"""Numbers taken apart and put together, elementwise: common divisors, bits, fraction and exponent."""

from __future__ import annotations

import numpy as np

from nnc.base import dtypes
from nnc.commands.elementwise import FLOAT, INTEGER, elementwise
from nnc.commands.rules import linear_in
from nnc.graph import Command

gcd: Command = elementwise("gcd", np.gcd, "gcd(x, y)", arity=2, accepts=INTEGER, flops=10)
lcm: Command = elementwise("lcm", np.lcm, "lcm(x, y)", arity=2, accepts=INTEGER, flops=10)
bit_count: Command = elementwise(
    "bit_count", np.bitwise_count, "popcount(abs(x))", accepts=INTEGER, result=lambda dtype: dtypes.uint8
)

exponent: Command = elementwise(
    "exponent", lambda x: np.frexp(x)[1], "frexp_exponent(x)", accepts=FLOAT, result=lambda dtype: dtypes.int32
)
ldexp: Command = elementwise(  # the second operand holds whole numbers; NaN counts as a small one on every processor
    "ldexp", lambda x, y: np.ldexp(x, np.fmin(np.fmax(y, -(2**14)), 2**14).astype(np.int32)), "ldexp(x, y)", arity=2, accepts=FLOAT,
    derivative=linear_in("ldexp", {0: lambda ct, x, y: ldexp(ct, y)}),
)  # fmt: skip
