"""Factorisations in nnc."""

from __future__ import annotations

import nnc
import nnc.numpy as nnp
from benchmarks.peers.row import Case, Inputs, without_signs


def factorise(inputs: Inputs, *, function: str) -> Case:
    """A function of nnp.linalg."""
    compiled, x = nnc.compile(getattr(nnp.linalg, function)), nnc.asarray(inputs["x"])
    return Case(lambda: compiled(x), without_signs)
