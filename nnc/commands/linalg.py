"""Linear algebra on the matrices in the last two axes; all axes before them are batches.

References run LAPACK through NumPy, 16-bit floats in float32. Rules are written with ordinary commands. Where the derivative
of a factor is not unique (equal eigenvalues or singular values), the undefined part of it is taken as 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nnc import dtypes
from nnc.commands.contract import matmul
from nnc.commands.elementwise import (
    FLOAT,
    INEXACT,
    Accepts,
    convert,
    equal,
    full_like,
    greater,
    greater_equal,
    iota,
    less,
    less_equal,
    mul,
    reciprocal,
    select,
)
from nnc.commands.reduce import reduce_sum
from nnc.commands.rules import (
    BatchRule,
    Cotangents,
    Derivative,
    Linear,
    Tangents,
    Value,
    add_tangents,
    batch_with,
    check_dtype,
)
from nnc.commands.shape import broadcast_to, slice_axis, transpose
from nnc.errors import LinAlgError, ShapeError, UnsupportedError, user_error
from nnc.graph import Command, TensorSpec, check_same_dtype, register
from nnc.graph import command as get_command

NDArray = np.ndarray[Any, Any]

# -- shared ------------------------------------------------------------------------------------------------------------


def check_matrix(where: str, x: TensorSpec, *, square: bool = True, name: str = "x") -> None:
    """Raises ShapeError unless the last two axes of `x` are a matrix, a square one where `square`."""
    if x.ndim < 2:
        raise user_error(
            ShapeError, where, f"{name} must be a matrix, it has {x.ndim} axes.", operands={name: x},
            fix="pass at least two axes; the last two are the matrix.",
        )  # fmt: skip
    if square and x.shape[-1] != x.shape[-2]:
        raise user_error(
            ShapeError, where, f"{name} must be square, its matrices are {x.shape[-2]} by {x.shape[-1]}.",
            operands={name: x}, fix="make the last two axes of one size.",
        )  # fmt: skip


def _batched(name: str) -> BatchRule:
    return batch_with(name, lambda params: params)


def _run(name: str, function: Callable[..., Any], xs: tuple[NDArray, ...], problem: str, fix: str) -> Any:
    """`function` in the dtype to accumulate in; LAPACK's failure becomes a user's error."""
    dtype = xs[0].dtype
    try:
        with np.errstate(all="ignore"):
            result = function(*(x.astype(dtypes.accumulator(dtype), copy=False) for x in xs))
            outputs = [
                np.asarray(y).astype(dtype, copy=False) for y in (result if isinstance(result, tuple) else (result,))
            ]
    except np.linalg.LinAlgError:
        specs = {f"input {i}" if len(xs) > 1 else "x": TensorSpec(x.shape, x.dtype) for i, x in enumerate(xs)}
        raise user_error(LinAlgError, name, problem, operands=specs, fix=fix) from None
    return tuple(outputs) if isinstance(result, tuple) else outputs[0]


def matrix_transpose(x: Value) -> Value:
    """`x` with its last two axes swapped."""
    n = x.spec.ndim
    return transpose(x, permutation=(*range(n - 2), n - 1, n - 2))


def keep(x: Value, compare: Command) -> Value:
    """`x` with zeros where `compare(row, column)` does not hold."""
    return select(_where(x.spec, compare), x, full_like(x, 0))


def _where(spec: TensorSpec, compare: Command) -> Value:
    rows, columns = (iota(shape=spec.shape[-2:], dtype=dtypes.int64, axis=axis) for axis in (0, 1))
    inside = compare(rows, columns)
    return inside if spec.ndim == 2 else broadcast_to(inside, shape=spec.shape)


def identity_like(spec: TensorSpec) -> Value:
    """Identity matrices of the shape and dtype of `spec`."""
    return convert(_where(spec, equal), dtype=spec.dtype)


def _symmetric(x: Value) -> Value:
    return (x + matrix_transpose(x)) * 0.5


def _diagonal(x: Value) -> Value:
    return reduce_sum(keep(x, equal), axes=(x.spec.ndim - 1,))


def _trace(x: Value) -> Value:
    return reduce_sum(keep(x, equal), axes=(x.spec.ndim - 2, x.spec.ndim - 1))


def _scale(x: Value, s: Value) -> Value:
    """Each matrix of `x` times its number in `s`."""
    return mul(x, broadcast_to(s, shape=x.spec.shape, axes=tuple(range(s.spec.ndim))))


def _columns(s: Value, shape: tuple[int, ...]) -> Value:
    """Matrices of `shape` with s[j] all along column j."""
    return broadcast_to(s, shape=shape, axes=(*range(len(shape) - 2), len(shape) - 1))


def _safe_reciprocal(x: Value) -> Value:
    """1 / x, and 0 (with derivative 0) where x is 0."""
    zero = full_like(x, 0)
    at = equal(x, zero)
    return select(at, zero, reciprocal(select(at, full_like(x, 1), x)))


def _infer_square(name: str, accepts: Accepts) -> Callable[..., TensorSpec]:
    def infer(x: TensorSpec) -> TensorSpec:
        check_dtype(name, x, *accepts)
        check_matrix(name, x)
        return x

    return infer


def _cubic(x: TensorSpec, *others: TensorSpec, **params: Any) -> int:
    return 2 * x.size * min(x.shape[-2:])


_SINGULAR = "a matrix is singular."
_NO_CONVERGENCE = "LAPACK's iteration did not converge; an element may be infinite or NaN."

# -- linear systems ----------------------------------------------------------------------------------------------------


def _check_system(name: str, a: TensorSpec, b: TensorSpec) -> TensorSpec:
    check_same_dtype(name, (a, b))
    check_dtype(name, a, *INEXACT, name="a")
    check_matrix(name, a, name="a")
    check_matrix(name, b, square=False, name="b")
    if a.shape[:-1] != b.shape[:-1]:
        raise user_error(
            ShapeError, name, f"a of shape {a.shape} and b of shape {b.shape} differ in batches or rows.",
            operands={"a": a, "b": b}, fix="give b the leading axes of a, and as many rows.",
        )  # fmt: skip
    return b


def _solver(name: str, matrix: Callable[..., Value], opposite: Callable[..., Value]) -> Derivative:
    """X = A⁻¹B is linear in B, and dX = A⁻¹(dB − dA X). `matrix(a, **params)` is A, `opposite` solves with Aᵀ."""

    def jvp(primals: tuple[Value, ...], tangents: Tangents, outputs: tuple[Value, ...], **params: Any) -> Tangents:
        (a, _), (ta, right) = primals, tangents
        if ta is not None:
            right = add_tangents(right, -matmul(matrix(ta, **params), outputs[0]))
        return (get_command(name)(a, right, **params),)

    def rule(cotangents: Cotangents, operands: tuple[Value | Linear, ...], **params: Any) -> Tangents:
        a = operands[0]
        if isinstance(a, Linear):
            raise user_error(
                UnsupportedError, name, "it is not linear in the matrix a.", operands={"a": a.spec},
                fix="make the function given to linear_transpose, or the rule given to custom_jvp, linear in its argument.",
            )  # fmt: skip
        return None, opposite(a, cotangents[0], **params)

    return Derivative(jvp, rule)


def _triangular_infer(
    a: TensorSpec, b: TensorSpec, *, lower: bool, transpose_a: bool = False, unit_diagonal: bool = False
) -> TensorSpec:
    return _check_system("triangular_solve", a, b)


def _triangular_reference(
    a: NDArray, b: NDArray, *, lower: bool, transpose_a: bool = False, unit_diagonal: bool = False
) -> Any:
    """LU of an upper triangle eliminates nothing, so what remains is back substitution; lower ones are turned round."""

    def run(a: NDArray, b: NDArray) -> NDArray:
        a = np.tril(a) if lower else np.triu(a)
        if unit_diagonal:
            np.einsum("...ii->...i", a)[...] = 1
        a = a.swapaxes(-1, -2) if transpose_a else a
        if lower == transpose_a:
            return np.linalg.solve(a, b)
        return np.linalg.solve(a[..., ::-1, ::-1], b[..., ::-1, :])[..., ::-1, :]

    fix = "make sure that no element on the diagonal is 0."
    return _run("triangular_solve", run, (a, b), _SINGULAR, fix)


def _triangle(ta: Value, *, lower: bool, transpose_a: bool = False, unit_diagonal: bool = False) -> Value:
    """What of a tangent of `a` is read: without the diagonal where that is not."""
    inside, strict = (greater_equal, greater) if lower else (less_equal, less)
    moved = keep(ta, strict if unit_diagonal else inside)
    return matrix_transpose(moved) if transpose_a else moved


def _triangular_opposite(a: Value, ct: Value, *, transpose_a: bool = False, **params: Any) -> Value:
    return triangular_solve(a, ct, transpose_a=not transpose_a, **params)


triangular_solve: Command = register(
    "triangular_solve",
    2,
    infer=_triangular_infer,
    reference=_triangular_reference,
    derivative=_solver("triangular_solve", _triangle, _triangular_opposite),
    batch=_batched("triangular_solve"),
    cost=lambda a, b, **params: b.size * a.shape[-1],
)
solve: Command = register(
    "solve",
    2,
    infer=lambda a, b: _check_system("solve", a, b),
    reference=lambda a, b: _run(
        "solve", np.linalg.solve, (a, b), _SINGULAR, "use nnp.linalg.pinv, or add a multiple of the identity."
    ),
    derivative=_solver("solve", lambda ta: ta, lambda a, ct: solve(matrix_transpose(a), ct)),
    batch=_batched("solve"),
    cost=lambda a, b: _cubic(a) + 2 * b.size * a.shape[-1],
)

# -- determinants ------------------------------------------------------------------------------------------------------


def _number_infer(name: str, accepts: Accepts, outputs: int) -> Callable[..., Any]:
    def infer(x: TensorSpec) -> Any:
        number = _infer_square(name, accepts)(x).update(shape=x.shape[:-2])
        return (number,) * outputs if outputs > 1 else number

    return infer


def _slogdet_jvp(primals: tuple[Value, ...], tangents: Tangents, outputs: tuple[Value, ...]) -> Tangents:
    return None, _trace(solve(primals[0], tangents[0]))


def _det_jvp(primals: tuple[Value, ...], tangents: Tangents, outputs: tuple[Value, ...]) -> Tangents:
    """By the cofactors, which singular matrices have, too."""
    x, t = primals[0], tangents[0]
    return (reduce_sum(mul(t, cofactor(x)), axes=(x.spec.ndim - 2, x.spec.ndim - 1)),)


def _cofactor_reference(x: NDArray) -> Any:
    """det(X) X⁻ᵀ from the singular values: that of each pair of vectors is the product of the others."""

    def run(x: NDArray) -> NDArray:
        u, s, vh = np.linalg.svd(x)
        others = np.where(np.eye(s.shape[-1], dtype=bool), s.dtype.type(1), s[..., None, :]).prod(-1)
        signs: NDArray = np.asarray(np.linalg.det(u) * np.linalg.det(vh))
        return signs[..., None, None] * ((u * others[..., None, :]) @ vh).conj()

    return _run("cofactor", run, (x,), _NO_CONVERGENCE, "check the matrix with nnp.isfinite.")


def _cofactor_jvp(primals: tuple[Value, ...], tangents: Tangents, outputs: tuple[Value, ...]) -> Tangents:
    """dC = tr(Y) C − C Yᵀ with Y = X⁻¹ dX; it exists for invertible matrices."""
    y, c = solve(primals[0], tangents[0]), outputs[0]
    return (_scale(c, _trace(y)) - matmul(c, matrix_transpose(y)),)


slogdet: Command = register(
    "slogdet",
    1,
    2,
    infer=_number_infer("slogdet", FLOAT, 2),
    reference=lambda x: _run("slogdet", lambda x: tuple(np.linalg.slogdet(x)), (x,), _SINGULAR, ""),
    derivative=Derivative(_slogdet_jvp),
    batch=_batched("slogdet"),
    cost=_cubic,
)
det: Command = register(
    "det",
    infer=_number_infer("det", INEXACT, 1),
    reference=lambda x: _run("det", np.linalg.det, (x,), _SINGULAR, ""),
    derivative=Derivative(_det_jvp),
    batch=_batched("det"),
    cost=_cubic,
)
cofactor: Command = register(
    "cofactor",
    infer=_infer_square("cofactor", INEXACT),
    reference=_cofactor_reference,
    derivative=Derivative(_cofactor_jvp),
    batch=_batched("cofactor"),
    cost=lambda x: 10 * _cubic(x),
)

# -- factorisations ----------------------------------------------------------------------------------------------------


def _cholesky_reference(x: NDArray) -> Any:
    def run(x: NDArray) -> NDArray:
        return np.linalg.cholesky((x + x.swapaxes(-1, -2)) / 2)

    fix = "add a multiple of the identity, such as x + 1e-6 * nnp.eye(n)."
    return _run("cholesky", run, (x,), "a matrix is not positive definite.", fix)


def _cholesky_jvp(primals: tuple[Value, ...], tangents: Tangents, outputs: tuple[Value, ...]) -> Tangents:
    """dL = L Φ(L⁻¹ dX L⁻ᵀ), where Φ takes the lower triangle and half of the diagonal (Murray, 2016)."""
    lower = outputs[0]
    half = triangular_solve(lower, _symmetric(tangents[0]), lower=True)
    inner = triangular_solve(lower, matrix_transpose(half), lower=True)
    return (matmul(lower, (keep(inner, greater_equal) + keep(inner, greater)) * 0.5),)


cholesky: Command = register(
    "cholesky",
    infer=_infer_square("cholesky", FLOAT),
    reference=_cholesky_reference,
    derivative=Derivative(_cholesky_jvp),
    batch=_batched("cholesky"),
    cost=lambda x: x.size * x.shape[-1] // 3,
)


def _eigh_infer(x: TensorSpec) -> tuple[TensorSpec, TensorSpec]:
    x = _infer_square("eigh", FLOAT)(x)
    return x.update(shape=x.shape[:-1]), x


def _eigh_reference(x: NDArray) -> Any:
    def run(x: NDArray) -> tuple[NDArray, ...]:
        return tuple(np.linalg.eigh((x + x.swapaxes(-1, -2)) / 2))

    return _run("eigh", run, (x,), _NO_CONVERGENCE, "check the matrix with nnp.isfinite.")


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
    batch=_batched("eigh"),
    cost=lambda x: 5 * _cubic(x),
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

    return _run("svd", run, (x,), _NO_CONVERGENCE, "check the matrix with nnp.isfinite.")


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
    batch=_batched("svd"),
    cost=lambda x, **params: 10 * _cubic(x),
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

    return _run("qr", run, (x,), _NO_CONVERGENCE, "")


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
    batch=_batched("qr"),
    cost=lambda x, **params: 2 * _cubic(x),
)


def _pinv_infer(x: TensorSpec, *, rtol: float) -> TensorSpec:
    check_dtype("pinv", x, *FLOAT)
    check_matrix("pinv", x, square=False)
    return x.update(shape=(*x.shape[:-2], x.shape[-1], x.shape[-2]))


def _pinv_reference(x: NDArray, *, rtol: float) -> Any:
    return _run("pinv", lambda x: np.linalg.pinv(x, rtol=rtol), (x,), _NO_CONVERGENCE, "check it with nnp.isfinite.")


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
    batch=_batched("pinv"),
    cost=lambda x, **params: 12 * _cubic(x),
)
