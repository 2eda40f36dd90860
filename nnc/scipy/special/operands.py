"""How special functions read their orders."""

from __future__ import annotations

from typing import Any

from nnc.errors import ArgumentError, user_error
from nnc.numpy.operands import static_int


def order_of(where: str, n: Any, name: str = "n") -> int:
    """Returns a static order of 0 or more.

    Raises:
        ArgumentError: it is negative.
        TraceError, ArgumentTypeError: it is traced, or no integer.
    """
    order = static_int(n, where, name)
    if order < 0:
        raise user_error(ArgumentError, where, f"{name} is {order}.", fix=f"give an integer {name} of 0 or more.")
    return order
