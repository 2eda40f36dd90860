"""Commands of random draws: functions whose bits are the same in eager and in compiled code, fused with any others."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nnc.base import dtypes
from nnc.commands import portable
from nnc.commands.constants import full_like, ones_like
from nnc.commands.elementwise import FLOAT, add, elementwise, exp, mul, neg, select, square, sub
from nnc.commands.lanes import OnArrays
from nnc.commands.rules import same_bits
from nnc.commands.special import erfc
from nnc.graph import Command
from nnc.graph.rules import Value


def _draw(name: str, *, call: str | None = None, arity: int = 1, **columns: Any) -> Command:
    """Registers a command whose reference is the function of `portable` that its scalar expression calls."""
    call, columns = call or name, {"accepts": FLOAT} | columns
    function = (portable.FUNCTIONS | portable.OF_WORDS)[call]
    command = elementwise(name, OnArrays(function), f"{call}({', '.join('xyz'[:arity])})", arity=arity, **columns)
    same_bits.set(command, True)
    return command


product: Command = elementwise(
    "product", np.multiply, "x * y", arity=2, accepts=FLOAT, partials=(lambda x, y, out: y, lambda x, y, out: x)
)
"""x · y, rounded to its dtype also where `nnc.compile(contract=True)` joins products with sums."""

portable_log: Command = _draw("portable_log", flops=20, singular=True, partials=(lambda x, out: 1 / x,))
portable_log1p: Command = _draw("portable_log1p", flops=25, singular=True, partials=(lambda x, out: 1 / (x + 1),))
portable_exp: Command = _draw("portable_exp", flops=20, partials=(lambda x, out: out,))


def _inverse_density(x: Value) -> Value:
    """1 / φ(x) of the standard normal density φ."""
    return mul(exp(mul(square(x), full_like(x, 0.5))), full_like(x, math.sqrt(2 * math.pi)))


normal_quantile: Command = _draw(
    "normal_quantile",
    flops=40,
    singular=True,
    partials=(lambda u, out: mul(_inverse_density(out), full_like(out, 0.5)),),
)
"""The number that a standard normal one is below with probability (1 + x) / 2."""


def _between_slope(u: Value, low: Value, high: Value, out: Value) -> Value:
    """(Φ(high) − Φ(low)) / φ(out), from the tails on the side of 0 where most of the interval lies."""
    above = add(low, high) > 0
    near, far = select(above, low, neg(high)), select(above, high, neg(low))
    root = full_like(u, 1 / math.sqrt(2))
    between = sub(erfc(mul(near, root)), erfc(mul(far, root)))
    return mul(mul(between, full_like(u, 0.5)), _inverse_density(out))


def _bound_slope(share: Value, bound: Value, out: Value) -> Value:
    """share · φ(bound) / φ(out)."""
    return mul(share, exp(mul(mul(sub(out, bound), add(out, bound)), full_like(out, 0.5))))


truncated_normal_quantile: Command = _draw(
    "truncated_normal_quantile",
    call="truncated_normal",
    arity=3,
    flops=150,
    singular=True,
    partials=(
        _between_slope,
        lambda u, low, high, out: _bound_slope(sub(ones_like(u), u), low, out),
        lambda u, low, high, out: _bound_slope(u, high, out),
    ),
)
"""The number between two bounds that a standard normal one between them is below with probability x."""

tan_of_turns: Command = _draw(
    "tan_of_turns",
    flops=30,
    singular=True,
    partials=(lambda t, out: mul(add(square(out), ones_like(out)), full_like(out, math.pi)),),
)
"""tan(πx)."""

unit_of_words: Command = _draw(
    "unit_of_words",
    accepts=(lambda dtype: dtype == dtypes.uint64, "uint64"),
    result=lambda dtype: dtypes.float64,
    flops=8,
)
"""Words of 64 random bits as uniform numbers of 52 bits in (0, 1), in float64."""

geometric_quantile: Command = _draw("geometric_quantile", arity=2, flops=25, partials=(None, None))
"""The number of the first trial that succeeds, of a uniform number x, where each fails with probability e^-y."""

poisson_log_mass: Command = _draw("poisson_log_mass", arity=2, flops=100)
"""The logarithm of the probability of x events where y are expected."""
binomial_log_mass: Command = _draw("binomial_log_mass", arity=3, flops=250)
"""The logarithm of the probability that x of y trials succeed, each with probability z."""
