"""Draws that move with the parameter of their distribution: identities of the draw, whose derivative is the implicit one.

A draw x of the distribution with the function F(x; a) moves so that F stays constant: dx/da = −(∂F/∂a) / (∂F/∂x)
(Figurnov et al., "Implicit reparameterization gradients", 2018). How it was drawn does not matter.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from nnc.base import dtypes
from nnc.commands.constants import full_like, ones_like
from nnc.commands.elementwise import (
    FLOAT,
    abs_,
    elementwise,
    exp,
    expm1,
    log,
    log1p,
    maximum,
    minimum,
    mul,
    select,
    sqrt,
    stop_gradient,
)
from nnc.commands.reduce import reduce_sum
from nnc.commands.shape import reshape
from nnc.commands.special import polygamma
from nnc.graph import Command
from nnc.graph.rules import Value

NDArray = np.ndarray[Any, Any]
_finfo: Any = ml_dtypes.finfo  # which knows bfloat16, too


def _quadrature(count: int, low: float, high: float) -> tuple[NDArray, NDArray]:
    """Nodes and weights of the double-exponential rule for ∫₀^∞ f(y) dy (Takahasi and Mori, 1974): y = exp(s − exp(−s))."""
    s = np.linspace(low, high, count)
    nodes = np.exp(s - np.exp(-s))
    return nodes, (s[1] - s[0]) * nodes * (1 + np.exp(-s))


_FINE, _COARSE = _quadrature(100, -4.0, 4.2), _quadrature(64, -3.6, 4.0)
_FURTHEST = 80.0  # of y; beyond it the integrand is 0, and its exponential would be infinite
_LEAST = 1e-30


def _log_gamma_slope(log_x: Value, a: Value) -> Value:
    """d log x / da of a draw x of the gamma distribution with shape parameter a.

    −(∂F/∂a) / (x ∂F/∂x) = ∫₀^∞ (±(log x − ψ(a)) + y) exp(±a y − x (e^±y − 1)) dy, with + for x > a, from the tail above x, and −
    from that below. Nothing cancels in it, nor in its derivatives. It is exact to 1e-6 (float64: 1e-9) of itself, but for draws
    that are larger than a small `a`, which hardly happen: there 1e-3.
    """
    dtype, shape = a.spec.dtype, a.spec.shape
    nodes, weights = (w.astype(dtype) for w in (_FINE if dtype == dtypes.float64 else _COARSE))
    x = exp(log_x)
    above = x > a
    sign = select(above, ones_like(a), full_like(a, -1))
    distance, size = stop_gradient(abs_(x - a)), stop_gradient(x)
    length = 2 / (distance + sqrt(distance * distance + size * 2))  # within which the integrand falls
    near = log1p(1 / maximum(size, full_like(size, _LEAST)))
    length = select(above & (x < 1), minimum(length, near), length)

    def column(value: Value) -> Value:
        return reshape(value, shape=(*shape, 1))

    y = column(length) * nodes
    turned = column(sign) * y
    turned = minimum(turned, full_like(turned, _FURTHEST))
    factor = column(sign * (log_x - polygamma(a, n=0))) + y
    terms = factor * exp(column(a) * turned - column(x) * expm1(turned)) * weights
    return mul(reduce_sum(terms, axes=(len(shape),)), length)


def _gamma_slope(x: Value, a: Value, out: Value) -> Value:
    """dx/da, from the draw that moves, so that the slope moves with it."""
    least = full_like(out, float(_finfo(out.spec.dtype).tiny))
    return out * _log_gamma_slope(log(maximum(out, least)), a)


gamma_draw: Command = elementwise(
    "gamma_draw", lambda x, a: np.array(x), "x", arity=2, accepts=FLOAT, partials=(None, _gamma_slope), singular=True, flops=0,
)  # fmt: skip
"""The draw x of a gamma distribution with shape parameter a."""
log_gamma_draw: Command = elementwise(
    "log_gamma_draw", lambda x, a: np.array(x), "x", arity=2, accepts=FLOAT, singular=True, flops=0,
    partials=(None, lambda x, a, out: _log_gamma_slope(out, a)),
)  # fmt: skip
"""The logarithm x of a draw."""
