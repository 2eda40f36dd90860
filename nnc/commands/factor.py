"""Factorisations of the matrices in the last two axes; all axes before them are batches.

Where the derivative of a factor is not unique (equal eigenvalues or singular values), the undefined part of it is taken as 0.
The derivative is right for all results that do not depend on the choice of the vectors, nor on their values but alike: sums of
functions of the values, projections to the space of equal ones, U Vᴴ. A sum V f(w) Vᴴ over equal values, and second derivatives
there, would need derivatives that V and w do not have.
Complex matrices have complex factors; eigenvalues of Hermitian ones and singular values are real.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from nnc.base import dtypes
from nnc.commands.constants import full_like
from nnc.commands.contract import matrix_product
from nnc.commands.elementwise import (
    INEXACT,
    abs_,
    convert,
    equal,
    greater,
    greater_equal,
    less_equal,
    reciprocal,
    select,
    stop_gradient,
)
from nnc.commands.linalg import (
    NDArray,
    adjoint,
    check_matrix,
    cubic,
    imaginary_part,
    infer_square,
    keep,
    lapack,
    matrix_transpose,
    real_part,
    register_matrix,
    solve,
    triangular_solve,
)
from nnc.commands.reduce import reduce_max, reduce_sum
from nnc.commands.rules import check_dtype
from nnc.commands.shape import broadcast_to, slice_axis
from nnc.errors import UnsupportedError, user_error
from nnc.graph import Command, TensorSpec
from nnc.graph.rules import Tangents, Value

_finfo: Any = ml_dtypes.finfo  # which knows bfloat16, too


def _hermitian(x: Value) -> Value:
    return (x + adjoint(x)) * 0.5


def _hermitian_part(x: NDArray) -> NDArray:
    return (x + x.swapaxes(-1, -2).conj()) / 2


def _diagonal(x: Value) -> Value:
    return reduce_sum(keep(x, equal), axes=(x.spec.ndim - 1,))


def _columns(s: Value, shape: tuple[int, ...]) -> Value:
    """Matrices of `shape` with s[j] all along column j."""
    return broadcast_to(s, shape=shape, axes=(*range(len(shape) - 2), len(shape) - 1))


def _safe_reciprocal(x: Value, values: Value) -> Value:
    """1 / x, and 0 (with derivative 0) where x is 0 but for the rounding of `values`, the last axis of a batch of spectra.

    Differences as small as that are noise, and a derivative that does not need them would be noise, too.
    """
    n = max(x.spec.shape[-2:])
    if not x.spec.size:
        return x
    least = reduce_max(stop_gradient(abs_(values)), axes=(values.spec.ndim - 1,)) * (
        n * float(_finfo(values.spec.dtype).eps)
    )
    at = less_equal(stop_gradient(abs_(x)), broadcast_to(least, shape=x.spec.shape, axes=tuple(range(least.spec.ndim))))
    return select(at, full_like(x, 0), reciprocal(select(at, full_like(x, 1), x)))


def _cholesky_jvp(primals: tuple[Value, ...], tangents: Tangents, outputs: tuple[Value, ...]) -> Tangents:
    """dL = L Φ(L⁻¹ dX L⁻ᴴ), where Φ takes the lower triangle and half of the diagonal (Murray, 2016)."""
    lower = outputs[0]
    half = triangular_solve(lower, _hermitian(tangents[0]), lower=True)
    inner = triangular_solve(lower, adjoint(half), lower=True)
    return (matrix_product(lower, (keep(inner, greater_equal) + keep(inner, greater)) * 0.5),)


cholesky: Command = register_matrix(
    "cholesky",
    infer_square("cholesky", INEXACT),
    lapack(
        "cholesky",
        lambda x: np.linalg.cholesky(_hermitian_part(x)),
        "a matrix is not positive definite.",
        "add a multiple of the identity, such as x + 1e-6 * nnp.eye(n).",
    ),
    _cholesky_jvp,
    cost=lambda x: x.size * x.shape[-1] // 3,
)


def _eigh_infer(x: TensorSpec) -> tuple[TensorSpec, TensorSpec]:
    x = infer_square("eigh", INEXACT)(x)
    return x.update(shape=x.shape[:-1], dtype=dtypes.real_dtype(x.dtype)), x


def _eigh_jvp(primals: tuple[Value, ...], tangents: Tangents, outputs: tuple[Value, ...]) -> Tangents:
    """dw = diag(G), dV = V (F ∘ G) with G = Vᴴ dX V and F[i, j] = 1 / (w[j] − w[i])."""
    w, v = outputs
    inner = matrix_product(adjoint(v), matrix_product(_hermitian(tangents[0]), v))
    of_columns = _columns(w, v.spec.shape)
    gap = of_columns - matrix_transpose(of_columns)
    return real_part(_diagonal(inner)), matrix_product(v, inner * _safe_reciprocal(gap, w))


def _eigh(x: NDArray) -> Any:
    x = _hermitian_part(x)
    if not np.isfinite(x).all():  # of which LAPACK says so at some sizes only
        raise np.linalg.LinAlgError
    return np.linalg.eigh(x)


eigh: Command = register_matrix(
    "eigh",
    _eigh_infer,
    lapack("eigh", _eigh),
    _eigh_jvp,
    cost=lambda x: 5 * cubic(x),
    outputs=2,
)


def _eig_infer(x: TensorSpec) -> tuple[TensorSpec, TensorSpec]:
    x = infer_square("eig", INEXACT)(x).update(dtype=dtypes.complex_dtype(x.dtype))
    return x.update(shape=x.shape[:-1]), x


def _eig(x: NDArray) -> tuple[NDArray, ...]:
    return tuple(y.astype(dtypes.complex_dtype(x.dtype), copy=False) for y in np.linalg.eig(x))


def _eig_jvp(primals: tuple[Value, ...], tangents: Tangents, outputs: tuple[Value, ...]) -> Tangents:
    """dw = diag(G), dV = V (F ∘ G) with G = V⁻¹ dX V and F as for eigh, less the part that changes the vectors' length (Boeddeker,
    2017).
    """
    (w, v), t = outputs, tangents[0]
    inner = solve(v, matrix_product(convert(t, dtype=v.spec.dtype), v))
    of_columns = _columns(w, v.spec.shape)
    moved = matrix_product(v, inner * _safe_reciprocal(of_columns - matrix_transpose(of_columns), w))
    along = real_part(_diagonal(matrix_product(adjoint(v), moved)))
    return _diagonal(inner), moved - v * _columns(along, v.spec.shape)


eig: Command = register_matrix(
    "eig", _eig_infer, lapack("eig", _eig), _eig_jvp, cost=lambda x: 25 * cubic(x), outputs=2
)


def _svd_infer(x: TensorSpec, *, full_matrices: bool = False) -> tuple[TensorSpec, TensorSpec, TensorSpec]:
    check_dtype("svd", x, *INEXACT)
    check_matrix("svd", x, square=False)
    *batch, m, n = x.shape
    k = min(m, n)
    left, right = (m, n) if full_matrices else (k, k)
    s = x.update(shape=(*batch, k), dtype=dtypes.real_dtype(x.dtype))
    return x.update(shape=(*batch, m, left)), s, x.update(shape=(*batch, right, n))


def _check_reduced(where: str, x: TensorSpec, full: bool, fix: str) -> None:
    if full and x.shape[-1] != x.shape[-2]:
        problem = "the columns that complete a factor are arbitrary, so they have no derivative."
        raise user_error(UnsupportedError, where, problem, operands={"x": x}, fix=fix)


def _svd_jvp(
    primals: tuple[Value, ...], tangents: Tangents, outputs: tuple[Value, ...], *, full_matrices: bool = False
) -> Tangents:
    """Townsend, "Differentiating the singular value decomposition" (2016), with U⁻¹ dX V⁻ᴴ = H + N split.

    The Hermitian part H turns U and V alike, by H[i, j] / (s[j] − s[i]); the other part N against each other, by
    N[i, j] / (s[j] + s[i]). So functions like U Vᴴ, which see the second turn alone, have their derivative also where singular
    values are equal.
    """
    _check_reduced("svd", primals[0].spec, full_matrices, "use nnp.linalg.svd(x, full_matrices=False).")
    (u, s, vh), t = outputs, tangents[0]
    m, n = primals[0].spec.shape[-2:]
    uh, v, th = adjoint(u), adjoint(vh), adjoint(t)
    inner = matrix_product(uh, matrix_product(t, v))
    s_columns = _columns(s, inner.spec.shape)
    s_rows = matrix_transpose(s_columns)
    together = _hermitian(inner) * _safe_reciprocal(s_columns - s_rows, s)
    against = (inner - adjoint(inner)) * 0.5 * _safe_reciprocal(s_columns + s_rows, s)
    du = matrix_product(u, together + against)
    dv = matrix_product(v, together - against)
    if m > n:
        tv = matrix_product(t, v)
        du = du + (tv - matrix_product(u, matrix_product(uh, tv))) * _safe_reciprocal(_columns(s, tv.spec.shape), s)
    if n > m:
        tu = matrix_product(th, u)
        dv = dv + (tu - matrix_product(v, matrix_product(vh, tu))) * _safe_reciprocal(_columns(s, tu.spec.shape), s)
    return du, real_part(_diagonal(inner)), adjoint(dv)


svd: Command = register_matrix(
    "svd",
    _svd_infer,
    lapack("svd", lambda x, full_matrices=False: np.linalg.svd(x, full_matrices=full_matrices)),
    _svd_jvp,
    cost=lambda x, **params: 10 * cubic(x),
    outputs=3,
)


def _qr_infer(x: TensorSpec, *, full_matrices: bool = False) -> tuple[TensorSpec, TensorSpec]:
    check_dtype("qr", x, *INEXACT)
    check_matrix("qr", x, square=False)
    *batch, m, n = x.shape
    k = m if full_matrices else min(m, n)
    return x.update(shape=(*batch, m, k)), x.update(shape=(*batch, k, n))


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
    inner = matrix_product(adjoint(q), t_by_r)
    below = keep(inner, greater)
    turn = below - adjoint(below)
    if dtypes.is_complex(inner.spec.dtype):  # the diagonal of R stays real
        turn = turn + keep(imaginary_part(inner), equal)
    dq = matrix_product(q, turn - inner) + t_by_r
    if n > m:
        return dq, matrix_product(adjoint(q), t) - matrix_product(turn, r)
    return dq, matrix_product(inner - turn, r)


qr: Command = register_matrix(
    "qr",
    _qr_infer,
    lapack("qr", lambda x, full_matrices=False: np.linalg.qr(x, "complete" if full_matrices else "reduced")),
    _qr_jvp,
    cost=lambda x, **params: 2 * cubic(x),
    outputs=2,
)


def _pinv_infer(x: TensorSpec, *, rtol: float) -> TensorSpec:
    check_dtype("pinv", x, *INEXACT)
    check_matrix("pinv", x, square=False)
    return x.update(shape=(*x.shape[:-2], x.shape[-1], x.shape[-2]))


def _pinv_jvp(primals: tuple[Value, ...], tangents: Tangents, outputs: tuple[Value, ...], *, rtol: float) -> Tangents:
    return (pinv_tangent(primals[0], tangents[0], outputs[0]),)


def pinv_tangent(x: Value, t: Value, p: Value) -> Value:
    """Returns the tangent of the pseudo-inverse `p` of `x`, which moves along `t`, at constant rank (Golub and Pereyra, 1973).

    dP = −P dX P + P Pᴴ dXᴴ (I − X P) + (I − P X) dXᴴ Pᴴ P
    """
    ph, th = adjoint(p), adjoint(t)
    left, right = matrix_product(p, matrix_product(ph, th)), matrix_product(matrix_product(th, ph), p)
    total = left - matrix_product(matrix_product(left, x), p) + right - matrix_product(p, matrix_product(x, right))
    return total - matrix_product(p, matrix_product(t, p))


pinv: Command = register_matrix(
    "pinv", _pinv_infer, lapack("pinv", np.linalg.pinv), _pinv_jvp, cost=lambda x, **params: 12 * cubic(x)
)
