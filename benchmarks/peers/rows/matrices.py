"""Factorisations of many small matrices."""

from __future__ import annotations

from functools import partial

import numpy as np

from benchmarks.peers.row import TORCH, Inputs, Row, Work, draw

ELEMENTS = 1 << 16  # of all matrices of a row
OPERATIONS = {"eigh": 9.0, "svd": 20.0, "qr": 3.0, "det": 0.7, "inv": 2.0}  # n³ of them, about


def _matrices(n: int) -> Inputs:
    """Symmetric matrices with the eigenvalues 1 … n, so that their vectors are well determined."""
    vectors, _ = np.linalg.qr(draw().standard_normal((ELEMENTS // (n * n), n, n)))
    x = vectors * np.arange(1.0, n + 1) @ vectors.swapaxes(-1, -2)
    return {"x": x.astype(np.float32)}


ROWS = tuple(
    Row(
        f"{function}-{n}",
        f"{function} of {ELEMENTS // (n * n)} matrices {n} x {n}",
        "matrices.factorise",
        partial(_matrices, n),
        Work(flops=factor * n * ELEMENTS),
        "matrices",
        {"function": function},
        frameworks=("nnc", "jax", TORCH[0], "numpy"),
        rtol=1e-3,
    )
    for function, factor in OPERATIONS.items()
    for n in (4, 8, 16, 32)
)
