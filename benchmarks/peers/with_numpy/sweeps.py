"""Products in NumPy."""

from __future__ import annotations

import numpy as np

from benchmarks.peers.row import Inputs, Step


def product(inputs: Inputs) -> Step:
    """x · y, over leading batch axes where there are any."""
    x, y = inputs["x"], inputs["y"]
    return lambda: np.matmul(x, y)
