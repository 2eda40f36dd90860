"""Checks of arguments that users pass to optimizers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import optree

from nnc import tree
from nnc.array.promote import as_operand, dtype_of
from nnc.base import dtypes
from nnc.errors import ArgumentError, ArgumentTypeError, TreeError, user_error
from nnc.errors.errors import shorten
from nnc.graph import spec_of

Scalar = Any  # a number, or an array or tracer of shape ()
Mask = Any  # a tree of bools like the parameters or a part of it from the root, or a function from parameters to one


def check_scalar(
    where: str, name: str, value: Any, *, low: float = 0.0, below: float = math.inf, positive: bool = False,
    infinite: bool = False,
) -> None:  # fmt: skip
    """Raises unless `value` is a scalar; Python numbers must lie in [low, below), and be above `low` where `positive`.

    With `infinite` they may be infinite, too.
    """
    if not tree.is_array(value) or isinstance(value, complex):
        problem = f"{name} is a {type(value).__name__}, it must be a number."
        fix = f"write {where}({name}=0.1), with a number or a 0-d array."
        raise user_error(ArgumentTypeError, where, problem, operands={name: shorten(value)}, fix=fix)
    if hasattr(value, "shape") and value.shape != ():
        problem = f"{name} must be one number, it has shape {tuple(value.shape)}."
        fix = "the parameters go to init(params), the gradients to update(grads, state)."
        raise user_error(ArgumentTypeError, where, problem, operands={name: spec_of(value)}, fix=fix)
    if not isinstance(value, (int, float)):
        return
    if infinite and value == math.inf:
        return
    if not (low < value if positive else low <= value) or not value < below:
        start = f"above {low:g}" if positive else f"at least {low:g}"
        end = f" and below {below:g}" if below < math.inf else ""
        problem = f"{name} is {value!r}; it must be {start}{end}."
        raise user_error(ArgumentError, where, problem, fix=f"choose another {name}.")


def check_scalars(where: str, **values: Any) -> None:
    """Raises unless all are scalars; Python numbers must be at least 0."""
    for name, value in values.items():
        check_scalar(where, name, value)


def check_rate(where: str, learning_rate: Any) -> None:
    """Raises unless `learning_rate` is a scalar or a schedule."""
    if not callable(learning_rate):
        check_scalar(where, "learning_rate", learning_rate)


def check_state(where: str, state: Any, kind: type) -> None:
    """Raises ArgumentTypeError unless `state` came from this transformation's init."""
    if not isinstance(state, kind):
        problem = f"its state is a {type(state).__name__}, not the {kind.__name__} that its init returned."
        fix = "call update(grads, state, params) with state = optimizer.init(params) or the state of the last update."
        raise user_error(ArgumentTypeError, where, problem, fix=fix)


def check_function(where: str, value: Any, grad: Any, value_fn: Any) -> None:
    """Raises ArgumentTypeError where a function, its value or its gradient was not given to `update`."""
    if value is None or grad is None or not callable(value_fn):
        problem = "its update needs the function and its value and gradient at the parameters."
        fix = "call optimizer.update(grads, state, params, value=value, grad=grads, value_fn=loss)."
        raise user_error(ArgumentTypeError, where, problem, fix=fix)


def check_params(where: str, params: Any) -> None:
    """Raises ArgumentTypeError where `params` was left out."""
    if params is None:
        fix = "call optimizer.init(params) and optimizer.update(grads, state, params)."
        raise user_error(ArgumentTypeError, where, "it reads the parameters, which were not given.", fix=fix)


def is_trainable(leaf: Any) -> bool:
    """Whether an optimizer moves this leaf: floating-point and complex arrays and numbers.

    Raises:
        DTypeError: an array of a dtype that nnc does not have.
    """
    spec = getattr(leaf, "spec", None)
    if spec is not None:
        return dtypes.is_inexact(spec.dtype)
    return tree.is_array(leaf) and dtypes.is_inexact(dtype_of(as_operand(leaf, "nnc.optim", "a leaf")))


def mask_leaves(where: str, mask: Mask, params: Any) -> list[bool]:
    """Returns the mask's bool for each leaf of `params`; a bool higher up holds for all below it.

    Raises:
        TreeError: the mask has none for a trainable leaf.
    """
    values = spread(
        where, "the mask", mask, params, lambda here: isinstance(here, (bool, np.bool_)), "True or False",
        "give a bool for each leaf of the parameters, or for a whole sub-tree: "
        "mask=lambda params: nnc.tree.map(lambda p: p.ndim > 1, params).",
    )  # fmt: skip
    return [bool(value) for value in values]


def spread(
    where: str, name: str, chosen: Any, params: Any, is_choice: Callable[[Any], bool], wanted: str, fix: str
) -> list[Any]:
    """Returns the choices for each leaf of `params`, from a tree that ends where choices stand, or a function from parameters to
    one.

    Raises:
        TreeError: there is no choice for a trainable leaf.
    """
    if callable(chosen) and tree.structure(chosen).is_leaf():  # a module can be called, but is a tree
        chosen = chosen(params)
    result = []
    for accessor, leaf in zip(optree.treespec_accessors(tree.structure(params)), tree.leaves(params), strict=True):
        here = chosen
        for entry in accessor:
            if is_choice(here):
                break
            try:
                here = entry(here)
            except (KeyError, IndexError, AttributeError, TypeError):
                here = None
        if is_trainable(leaf) and not is_choice(here):
            problem = f"{name} holds {here!r} at {accessor.codify('params')}, not {wanted}."
            raise user_error(TreeError, where, problem, fix=fix)
        result.append(here if is_choice(here) else None)
    return result
