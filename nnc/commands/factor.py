"""Factorisations of the matrices in the last two axes; all axes before them are batches.

Where the derivative of a factor is not unique (equal eigenvalues or singular values), the undefined part of it is taken as 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nnc.commands.contract import matmul
from nnc.commands.elementwise import FLOAT, equal, full_like, greater, greater_equal, mul, reciprocal, select
from nnc.commands.linalg import (
    NO_CONVERGENCE,
    NDArray,
    batch_leading,
    check_matrix,
    cubic,
    infer_square,
    keep,
    matrix_transpose,
    run_lapack,
    triangular_solve,
)
from nnc.commands.reduce import reduce_sum
from nnc.commands.rules import Derivative, Tangents, Value, check_dtype
from nnc.commands.shape import broadcast_to, slice_axis
from nnc.errors import UnsupportedError, user_error
from nnc.graph import Command, TensorSpec, register


def _symmetric(x: Value) -> Value:
    return (x + matrix_transpose(x)) * 0.5


def _diagonal(x: Value) -> Value:
    return reduce_sum(keep(x, equal), axes=(x.spec.ndim - 1,))


def _columns(s: Value, shape: tuple[int, ...]) -> Value:
    """Matrices of `shape` with s[j] all along column j."""
    return broadcast_to(s, shape=shape, axes=(*range(len(shape) - 2), len(shape) - 1))


def _safe_reciprocal(x: Value) -> Value:
    """1 / x, and 0 (with derivative 0) where x is 0."""
    zero = full_like(x, 0)
    at = equal(x, zero)
    return select(at, zero, reciprocal(select(at, full_like(x, 1), x)))


def _cholesky_reference(x: NDArray) -> Any:
    def run(x: NDArray) -> NDArray:
        return np.linalg.cholesky((x + x.swapaxes(-1, -2)) / 2)

    fix = "add a multiple of the identity, such as x + 1e-6 * nnp.eye(n)."
    return run_lapack("cholesky", run, (x,), "a matrix is not positive definite.", fix)


def _cholesky_jvp(primals: tuple[Value, ...], tangents: Tangents, outputs: tuple[Value, ...]) -> Tangents:
    """dL = L Φ(L⁻¹ dX L⁻ᵀ), where Φ takes the lower triangle and half of the diagonal (Murray, 2016)."""
    lower = outputs[0]
    half = triangular_solve(lower, _symmetric(tangents[0]), lower=True)
    inner = triangular_solve(lower, matrix_transpose(half), lower=True)
    return (matmul(lower, (keep(inner, greater_equal) + keep(inner, greater)) * 0.5),)


cholesky: Command = register(
    "cholesky",
    infer=infer_square("cholesky", FLOAT),
    reference=_cholesky_reference,
    derivative=Derivative(_cholesky_jvp),
    batch=batch_leading("cholesky"),
    cost=lambda x: x.size * x.shape[-1] // 3,
)


def _eigh_infer(x: TensorSpec) -> tuple[TensorSpec, TensorSpec]:
    x = infer_square("eigh", FLOAT)(x)
    return x.update(shape=x.shape[:-1]), x


def _eigh_reference(x: NDArray) -> Any:
    def run(x: NDArray) -> tuple[NDArray, ...]:
        return tuple(np.linalg.eigh((x + x.swapaxes(-1, -2)) / 2))

    return run_lapack("eigh", run, (x,), NO_CONVERGENCE, "check the matrix with nnp.isfinite.")


def _eigh_jvp(primals: tuple[Value, ...], tangents: Tangents, outputs: tuple[Value, ...]) -> Tangents:
    """dw = diag(G), dV = V (F ∘ G) with G = Vᵀ dX V and F[i, j] = 1 / (w[j] − w[i])."""
    w, v = outputs
    inner = matmul(matrix_transpose(v), matmul(_symmetric(tangents[0]), v))
    of_columns = _columns(w, v.spec.shape)
    gap = of_columns - matrix_transpose(of_columns)
    return _diagonal(inner), matmul(v, mul(inner, _safe_reciprocal(gap)))


eigh: Command = register(
    "eigh",
    1,
    2,
    infer=_eigh_infer,
    reference=_eigh_reference,
    derivative=Derivative(_eigh_jvp),
    batch=batch_leading("eigh"),
    cost=lambda x: 5 * cubic(x),
)


def _svd_infer(x: TensorSpec, *, full_matrices: bool = False) -> tuple[TensorSpec, TensorSpec, TensorSpec]:
    check_dtype("svd", x, *FLOAT)
    check_matrix("svd", x, square=False)
    *batch, m, n = x.shape
    k = min(m, n)
    left, right = (m, n) if full_matrices else (k, k)
    return x.update(shape=(*batch, m, left)), x.update(shape=(*batch, k)), x.update(shape=(*batch, right, n))


def _svd_reference(x: NDArray, *, full_matrices: bool = False) -> Any:
    def run(x: NDArray) -> tuple[NDArray, ...]:
        return tuple(np.linalg.svd(x, full_matrices=full_matrices))

    return run_lapack("svd", run, (x,), NO_CONVERGENCE, "check the matrix with nnp.isfinite.")


def _check_reduced(where: str, x: TensorSpec, full: bool, fix: str) -> None:
    if full and x.shape[-1] != x.shape[-2]:
        raise user_error(
            UnsupportedError, where, "the columns that complete a factor are arbitrary, so they have no derivative.",
            operands={"x": x}, fix=fix,
        )  # fmt: skip


def _svd_jvp(
    primals: tuple[Value, ...], tangents: Tangents, outputs: tuple[Value, ...], *, full_matrices: bool = False
) -> Tangents:
    """Townsend, "Differentiating the singular value decomposition" (2016)."""
    _check_reduced("svd", primals[0].spec, full_matrices, "use nnp.linalg.svd(x, full_matrices=False).")
    (u, s, vh), t = outputs, tangents[0]
    m, n = primals[0].spec.shape[-2:]
    ut, v, tt = matrix_transpose(u), matrix_transpose(vh), matrix_transpose(t)
    inner = matmul(ut, matmul(t, v))
    s_columns = _columns(s, inner.spec.shape)
    s_rows = matrix_transpose(s_columns)
    gap = _safe_reciprocal((s_columns + s_rows) * (s_columns - s_rows))
    du = matmul(u, mul(gap, _twice_symmetric(mul(inner, s_columns))))
    dv = matmul(v, mul(gap, _twice_symmetric(mul(inner, s_rows))))
    if m > n:
        tv = matmul(t, v)
        du = du + mul(tv - matmul(u, matmul(ut, tv)), _columns(_safe_reciprocal(s), tv.spec.shape))
    if n > m:
        tu = matmul(tt, u)
        dv = dv + mul(tu - matmul(v, matmul(vh, tu)), _columns(_safe_reciprocal(s), tu.spec.shape))
    return du, _diagonal(inner), matrix_transpose(dv)


def _twice_symmetric(x: Value) -> Value:
    return x + matrix_transpose(x)


svd: Command = register(
    "svd",
    1,
    3,
    infer=_svd_infer,
    reference=_svd_reference,
    derivative=Derivative(_svd_jvp),
    batch=batch_leading("svd"),
    cost=lambda x, **params: 10 * cubic(x),
)


def _qr_infer(x: TensorSpec, *, full_matrices: bool = False) -> tuple[TensorSpec, TensorSpec]:
    check_dtype("qr", x, *FLOAT)
    check_matrix("qr", x, square=False)
    *batch, m, n = x.shape
    k = m if full_matrices else min(m, n)
    return x.update(shape=(*batch, m, k)), x.update(shape=(*batch, k, n))


def _qr_reference(x: NDArray, *, full_matrices: bool = False) -> Any:
    def run(x: NDArray) -> tuple[NDArray, ...]:
        return tuple(np.linalg.qr(x, "complete" if full_matrices else "reduced"))

    return run_lapack("qr", run, (x,), NO_CONVERGENCE, "")


def _qr_jvp(
    primals: tuple[Value, ...], tangents: Tangents, outputs: tuple[Value, ...], *, full_matrices: bool = False
) -> Tangents:
    """Walter and Lehmann, "Algorithmic differentiation of linear algebra functions" (2018).

    Of a wide matrix, the first columns alone fix Q; the others only turn with it.
    """
    x, t = primals[0], tangents[0]
    (m, n), axis = x.spec.shape[-2:], x.spec.ndim - 1
    if m > n:
        _check_reduced("qr", x.spec, full_matrices, 'use nnp.linalg.qr(x, mode="reduced").')
    q, r = outputs
    first, t_first = (slice_axis(y, axis, 0, m) for y in (r, t)) if n > m else (r, t)
    t_by_r = matrix_transpose(triangular_solve(first, matrix_transpose(t_first), lower=False, transpose_a=True))
    inner = matmul(matrix_transpose(q), t_by_r)
    below = keep(inner, greater)
    turn = below - matrix_transpose(below)
    dq = matmul(q, turn - inner) + t_by_r
    if n > m:
        return dq, matmul(matrix_transpose(q), t) - matmul(turn, r)
    return dq, matmul(inner - turn, r)


qr: Command = register(
    "qr",
    1,
    2,
    infer=_qr_infer,
    reference=_qr_reference,
    derivative=Derivative(_qr_jvp),
    batch=batch_leading("qr"),
    cost=lambda x, **params: 2 * cubic(x),
)


def _pinv_infer(x: TensorSpec, *, rtol: float) -> TensorSpec:
    check_dtype("pinv", x, *FLOAT)
    check_matrix("pinv", x, square=False)
    return x.update(shape=(*x.shape[:-2], x.shape[-1], x.shape[-2]))


def _pinv_reference(x: NDArray, *, rtol: float) -> Any:
    return run_lapack(
        "pinv", lambda x: np.linalg.pinv(x, rtol=rtol), (x,), NO_CONVERGENCE, "check it with nnp.isfinite."
    )


def _pinv_jvp(primals: tuple[Value, ...], tangents: Tangents, outputs: tuple[Value, ...], *, rtol: float) -> Tangents:
    """Golub and Pereyra (1973), at constant rank: dP = −P dX P + P Pᵀ dXᵀ (I − X P) + (I − P X) dXᵀ Pᵀ P."""
    x, t, p = primals[0], tangents[0], outputs[0]
    pt, tt = matrix_transpose(p), matrix_transpose(t)
    left, right = matmul(p, matmul(pt, tt)), matmul(matmul(tt, pt), p)
    total = left - matmul(matmul(left, x), p) + right - matmul(p, matmul(x, right))
    return (total - matmul(p, matmul(t, p)),)


pinv: Command = register(
    "pinv",
    infer=_pinv_infer,
    reference=_pinv_reference,
    derivative=Derivative(_pinv_jvp),
    batch=batch_leading("pinv"),
    cost=lambda x, **params: 12 * cubic(x),
)
