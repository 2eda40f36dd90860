"""Sorting in NumPy."""

from __future__ import annotations

import numpy as np

from benchmarks.peers.row import Inputs, Step


def sort(inputs: Inputs) -> Step:
    """The numbers in order."""
    x = inputs["x"]
    return lambda: np.sort(x)


def argsort(inputs: Inputs) -> Step:
    """The places of the numbers in order."""
    x = inputs["x"]
    return lambda: np.argsort(x)
