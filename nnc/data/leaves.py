"""Leaves of batches: arrays of other libraries, arrays for a device; and checks of counts."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from nnc import tree
from nnc.array.promote import as_operand
from nnc.base.dtypes import is_scalar
from nnc.device.dlpack import is_foreign
from nnc.errors import ArgumentError, ArgumentTypeError, user_error
from nnc.trace.core.on_device import device_put


def as_numpy(leaf: Any, where: str) -> Any:
    """Returns the leaf itself; of another library's array, NumPy's view of its memory.

    Args:
        leaf: a leaf of a pytree.
        where: the public function for which errors speak.
    """
    return as_operand(leaf, where, "arrays") if is_foreign(type(leaf)) else leaf


def owned(leaf: Any) -> Any:
    """Returns a copy of a NumPy array, whose maker may write to it again; another leaf as it is.

    Args:
        leaf: a leaf of a pytree.
    """
    return np.array(leaf, subok=not isinstance(leaf, np.memmap)) if isinstance(leaf, np.ndarray) else leaf


def send(leaf: Any, device: str) -> Any:
    """Returns an array on a device; a number or another object as it is.

    Args:
        leaf: a leaf of a pytree.
        device: name of a device.
    """
    return device_put(leaf, device) if tree.is_array(leaf) and not is_scalar(leaf) else leaf


def check_count(where: str, name: str, value: Any, low: int) -> None:
    """Raises for a count that is no int, or below its lowest value.

    Args:
        where: the public function for which errors speak.
        name: the name of the parameter.
        value: the count.
        low: the lowest value that is allowed.
    """
    try:
        number = operator.index(value)
    except TypeError:
        problem = f"{name} is a {type(value).__name__}, it must be an int."
        raise user_error(ArgumentTypeError, where, problem, fix=f"write {name}=32.") from None
    if number < low or isinstance(value, bool):
        problem = f"{name} is {value!r}; it must be at least {low}."
        raise user_error(ArgumentError, where, problem, fix=f"choose another {name}.")
