"""Assumptions of specialised calls: numbers lie in a range for which the short way to a result is right.

A function that has a short way asks `nnc.numpy.scaling.usual`. Where numbers are known, it looks at them. While a call is
specialised they are not known yet: then the range is noted, the commands are those of the short way, and each run of them
compares the numbers with the range. Where they lie outside, the commands of the other way run.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from nnc.base.context import get_context

NDArray = np.ndarray[Any, Any]


class Range(NamedTuple):
    """Sizes of numbers from `low` to below `high`."""

    low: float
    high: float

    def holds(self, numbers: NDArray) -> bool:
        """Whether the sizes of all numbers lie in the range."""
        if numbers.size == 1:
            return bool(self.low <= abs(numbers.item()) < self.high)
        if not numbers.size:
            return True
        sizes = np.abs(numbers)
        return bool(sizes.max() < self.high and self.low <= sizes.min())  # both false where one is NaN


class Assumptions:
    """The mode that traces a function for calls with usual numbers; it notes the range in which each number must lie."""

    def __init__(self) -> None:
        self.numbers: list[Any] = []
        self.ranges: list[Range] = []


def assumes() -> bool:
    """Whether a function is traced for calls whose numbers are usual."""
    return any(type(mode) is Assumptions for mode in get_context().modes)


def assume(numbers: Any, within: Range) -> bool:
    """Notes that the trace of a specialised call assumes a range of numbers; False where no trace assumes anything."""
    noted = [mode for mode in get_context().modes if type(mode) is Assumptions]
    for mode in noted:
        mode.numbers.append(numbers)
        mode.ranges.append(within)
    return bool(noted)
