"""Sample inputs of the linear algebra commands: well-conditioned, also with their elements in another order."""

from __future__ import annotations

import numpy as np

from tests.contract.commands.sample import Sample

_RNG = np.random.default_rng(19)


def _normal(*shape: int) -> np.ndarray:
    return _RNG.normal(size=shape)


_SQUARE = np.array([[2.0, -0.5, 0.8], [0.3, -1.5, 0.4], [-0.7, 0.9, 3.0]])
_BATCH = np.stack([_SQUARE, np.array([[1.2, 0.4, -0.3], [0.8, 2.4, 0.1], [0.2, -0.9, 1.7]])])
_TALL = np.array([[1.5, 0.2], [-0.4, 2.1], [0.7, 0.9]])
_REAL_SPECTRUM = np.array([[1.0, 0.4, -0.2], [0.3, 3.0, 0.5], [-0.1, 0.2, 6.0]])
_TRIANGLE = np.array([[2.0, 0.5, -0.8], [0.0, 3.0, 0.4], [0.0, 0.0, 5.0]])
_TURNING = np.array([[2.0, 0.9, 0.3], [-1.5, 2.0, 0.4], [0.0, 0.0, 5.0]])  # with eigenvalues that are a complex pair
# positive definite, and still so in the order of test_vmap_agrees_with_a_loop
_DEFINITE_2 = np.array([[3.4, -2.9], [3.0, 4.9]])
_DEFINITE_3 = np.array([[4.8, -1.2, 0.6], [5.3, 3.3, 2.6], [-1.2, -1.7, 2.1]])

SAMPLES: list[Sample] = [
    *(
        Sample("triangular_solve", (_SQUARE, _normal(3, 2)), {"lower": low, "transpose_a": t, "unit_diagonal": unit}, tolerance=20)
        for low in (False, True)
        for t in (False, True)
        for unit in (False, True)
    ),
    Sample("triangular_solve", (_BATCH, _normal(2, 3, 1)), {"lower": True}, tolerance=20),
    Sample("triangular_solve", (_normal(0, 0), _normal(0, 2)), {"lower": True}),
    Sample("solve", (_SQUARE, _normal(3, 2)), tolerance=20),
    Sample("solve", (_BATCH, _normal(2, 3, 2)), tolerance=20),
    Sample("solve", (_SQUARE * (1 + 0.2j), _normal(3, 1) + 1j * _normal(3, 1)), dtypes=("float64",), tolerance=20),
    Sample("slogdet", (_SQUARE,), tolerance=10),
    Sample("slogdet", (_BATCH,), tolerance=10),
    Sample("det", (_SQUARE,), tolerance=20),
    Sample("det", (_BATCH,), tolerance=20),
    Sample("det", (_BATCH * (1 + 0.2j),), dtypes=("float64",), tolerance=20),
    Sample("slogdet", (_BATCH * (1 + 0.2j),), dtypes=("float64",), tolerance=20),
    Sample("cofactor", (_SQUARE,), tolerance=20),
    Sample("cofactor", (_BATCH,), tolerance=20),
    Sample("cofactor", (_SQUARE, _SQUARE.T), tolerance=20),
    Sample("cofactor", (np.ones((3, 3)), _SQUARE, _SQUARE.T), tolerance=20),
    Sample("cofactor", (_BATCH, _BATCH + 1), tolerance=20),
    Sample("cholesky", (_DEFINITE_2,), tolerance=10),
    Sample("cholesky", (_DEFINITE_3,), tolerance=10),
    Sample("cholesky", (np.full((2, 1, 1), 4.0),)),
    Sample("cholesky", (_DEFINITE_2 * (1 + 0.1j),), dtypes=("float64",), tolerance=10),
    Sample("eigh", (_SQUARE,), tolerance=10),
    Sample("eigh", (_BATCH,), tolerance=10),
    Sample("eigh", (_BATCH * (1 + 0.2j),), differentiable=(), dtypes=("float64",)),
    Sample("eig", (_REAL_SPECTRUM,), tolerance=20),
    Sample("eig", (_BATCH,), differentiable=()),
    Sample("eig", (_BATCH * (1 + 0.2j),), differentiable=(), dtypes=("float64",)),
    Sample("svd", (_SQUARE,), tolerance=20),
    Sample("svd", (_TALL * (1 + 0.2j),), differentiable=(), dtypes=("float64",)),
    Sample("qr", (_TALL * (1 + 0.2j),), dtypes=("float64",), tolerance=20),
    Sample("pinv", (_TALL * (1 + 0.2j),), {"rtol": 1e-6}, dtypes=("float64",), tolerance=20),
    Sample("svd", (_TALL,), tolerance=20),
    Sample("svd", (_TALL.T,), tolerance=20),
    Sample("svd", (_BATCH,), {"full_matrices": True}, tolerance=20),
    Sample("svd", (_TALL,), {"full_matrices": True}, differentiable=(), tolerance=20),
    Sample("qr", (_SQUARE,), tolerance=20),
    Sample("qr", (_TALL,), tolerance=20),
    Sample("qr", (_TALL.T,), tolerance=20),
    Sample("qr", (_BATCH,), tolerance=20),
    Sample("qr", (_TALL,), {"full_matrices": True}, differentiable=(), tolerance=20),
    Sample("pinv", (_TALL,), {"rtol": 1e-6}, tolerance=20),
    Sample("pinv", (_TALL.T,), {"rtol": 1e-6}, tolerance=20),
    Sample("pinv", (_BATCH,), {"rtol": 1e-6}, tolerance=20),
    Sample("lu", (_SQUARE,), tolerance=20),
    Sample("lu", (_TALL,), tolerance=20),
    Sample("lu", (_TALL.T,), tolerance=20),
    Sample("lu", (_BATCH * (1 + 0.2j),), dtypes=("float64",), tolerance=20),
    Sample("schur", (_BATCH,), dtypes=("float32", "float64"), tolerance=20),
    Sample("schur", (_BATCH * (1 + 0.2j),), dtypes=("float64",), tolerance=20),
    Sample("sylvester", (_BATCH, _BATCH[..., 1:, 1:] + 4 * np.eye(2), _normal(2, 3, 2)), tolerance=20),
    Sample("sylvester", (_TRIANGLE * 1j, _TRIANGLE * (1 + 0.2j), _normal(3, 3) * 1j), dtypes=("float64",), tolerance=20),
    Sample("triangular_root", (_TRIANGLE,), tolerance=20),
    Sample("triangular_root", (np.stack([_TURNING, _TRIANGLE]),), tolerance=20),
    Sample("triangular_root", (np.triu(_BATCH * (1 + 0.2j)),), dtypes=("float64",), tolerance=20),
]  # fmt: skip
