"""Fromage: steps in proportion to the norms of the parameters, which cannot grow."""

from __future__ import annotations

from typing import Any

from nnc.calls.spelling import spelled
from nnc.optim.arguments import Scalar, check_rate
from nnc.optim.base import GradientTransformation, chain, scalar
from nnc.optim.schedules import Schedule
from nnc.optim.transforms import decay_weights, scale_by_learning_rate, scale_by_trust_ratio

__all__ = ["fromage"]


@spelled
def fromage(learning_rate: Scalar | Schedule, min_norm: Scalar = 1e-6) -> GradientTransformation:
    """Fromage (Bernstein et al., "On the distance between two neural networks and the stability of learning", 2020).

    p ← (p − learning_rate · ‖p‖ / ‖g‖ · g) / sqrt(1 + learning_rate²)

    Args:
        learning_rate: the share of its norm by which an array moves: a number, a 0-d array or a schedule.
        min_norm: least norm of parameters and gradients that counts.

    Raises:
        ArgumentTypeError (from update): params were not given.

    Example:
        >>> optimizer = nnc.optim.fromage(0.75)
        >>> nnp.round(optimizer.update(nnp.asarray([3.0]), optimizer.init(nnp.ones(1)), nnp.ones(1))[0], 3)
        Array([-0.8], dtype=float32)
    """
    check_rate("fromage", learning_rate)

    if callable(learning_rate):
        rate: Any = lambda count: _shares(learning_rate(count))[0]
        excess: Any = lambda count: _shares(learning_rate(count))[1]
    else:
        rate, excess = _shares(learning_rate)
    return chain(scale_by_trust_ratio(min_norm), scale_by_learning_rate(rate), decay_weights("fromage", excess, None))


def _shares(rate: Any) -> tuple[Any, Any]:
    """Returns r / sqrt(1 + r²), and 1 / sqrt(1 + r²) − 1 without cancellation."""
    if not isinstance(rate, (int, float)):
        rate = scalar(rate)
    root = (1 + rate * rate) ** 0.5
    return rate / root, -rate * rate / (root * (1 + root))
