"""Checks for users' own functions, commands and rules, and the machine that looks for wrong answers (`nnc.testing.fuzz`)."""

from nnc.testing import fuzz
from nnc.testing.grads import central_difference, check_grads, inner_product

__all__ = ["central_difference", "check_grads", "fuzz", "inner_product"]


def __dir__() -> list[str]:
    return sorted(__all__)
