"""Sample inputs of sums over bins: fewer bins than places and more, of one size and of several."""

from __future__ import annotations

import numpy as np

from tests.contract.commands.sample import Sample

_RNG = np.random.default_rng(11)
SIZES = [(1, 1), (1, 4), (5, 1), (7, 3), (6, 3), (13, 9), (4, 11), (9, 9)]  # places and bins

SAMPLES: list[Sample] = [
    *(Sample("bin_sums", (_RNG.normal(size=(2, n, 3)),), {"axis": 1, "bins": k}) for n, k in SIZES),
    *(Sample("bin_sums_input_grad", (_RNG.normal(size=(k, 2)),), {"axis": 0, "places": n}) for n, k in SIZES),
    Sample("bin_sums", (_RNG.normal(size=(0, 5)),), {"axis": 1, "bins": 2}),
]
