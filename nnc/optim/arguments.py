"""Checks of what users pass to optimizers."""

from __future__ import annotations

import math
from typing import Any

from nnc import dtypes, tree
from nnc.commands.promote import as_operand, dtype_of
from nnc.errors import ArgumentError, ArgumentTypeError, shorten, user_error
from nnc.graph import spec_of

Scalar = Any  # a number, or an array or tracer of shape ()


def check_scalar(
    where: str, name: str, value: Any, *, low: float = 0.0, below: float = math.inf, positive: bool = False
) -> None:
    """Raises unless `value` is a scalar; Python numbers must lie in [low, below), and be above `low` where `positive`."""
    if not tree.is_array(value) or isinstance(value, complex):
        raise user_error(
            ArgumentTypeError, where, f"{name} is a {type(value).__name__}, it must be a number.",
            operands={name: shorten(value)}, fix=f"write {where}({name}=0.1), with a number or a 0-d array.",
        )  # fmt: skip
    if hasattr(value, "shape") and value.shape != ():
        raise user_error(
            ArgumentTypeError, where, f"{name} must be one number, it has shape {tuple(value.shape)}.",
            operands={name: spec_of(value)},
            fix="the parameters go to init(params), the gradients to update(grads, state).",
        )  # fmt: skip
    if not isinstance(value, (int, float)):
        return
    if not (low < value if positive else low <= value) or not value < below:
        start = f"above {low:g}" if positive else f"at least {low:g}"
        end = f" and below {below:g}" if below < math.inf else ""
        raise user_error(
            ArgumentError, where, f"{name} is {value!r}; it must be {start}{end}.", fix=f"choose another {name}."
        )


def check_rate(where: str, learning_rate: Any) -> None:
    """Raises unless `learning_rate` is a scalar or a schedule."""
    if not callable(learning_rate):
        check_scalar(where, "learning_rate", learning_rate)


def check_state(where: str, state: Any, kind: type) -> None:
    """Raises ArgumentTypeError unless `state` came from this transformation's init."""
    if not isinstance(state, kind):
        raise user_error(
            ArgumentTypeError, where, f"its state is a {type(state).__name__}, not the {kind.__name__} that its init returned.",
            fix="call update(grads, state, params) with state = optimizer.init(params) or the state of the last update.",
        )  # fmt: skip


def check_params(where: str, params: Any) -> None:
    """Raises ArgumentTypeError where `params` was left out of update."""
    if params is None:
        raise user_error(
            ArgumentTypeError, where, "its update reads the parameters, which were not given.",
            fix="call optimizer.update(grads, state, params).",
        )  # fmt: skip


def is_trainable(leaf: Any) -> bool:
    """Whether an optimizer moves this leaf: floating-point and complex arrays and numbers.

    Raises:   DTypeError: an array of a dtype that nnc does not have.
    """
    return tree.is_array(leaf) and dtypes.is_inexact(dtype_of(as_operand(leaf, "nnc.optim", "a leaf")))
