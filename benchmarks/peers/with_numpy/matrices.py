"""Factorisations in NumPy."""

from __future__ import annotations

import numpy as np

from benchmarks.peers.row import Case, Inputs, without_signs


def factorise(inputs: Inputs, *, function: str) -> Case:
    """A function of np.linalg."""
    function_of = getattr(np.linalg, function)
    return Case(lambda: function_of(inputs["x"]), without_signs)
