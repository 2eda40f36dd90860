"""Determinants of the matrices in the last two axes, and their derivatives, of every order, at singular matrices, too.

The determinant is a polynomial of the elements, so all its derivatives exist everywhere. They are one command: `cofactor(x)` is the
gradient of det at x, `cofactor(x, t1, …, tk)` the gradient's derivative of order k along the matrices t1 … tk. It is linear in each
of these and the same for each order of them, so the command is its own derivative and its own transpose.
"""

from __future__ import annotations

import itertools
import math
import string

import numpy as np

from nnc.base import dtypes
from nnc.commands.elementwise import INEXACT, mul, real
from nnc.commands.linalg import (
    SINGULAR,
    MatrixRules,
    NDArray,
    cubic,
    imaginary_part,
    infer_square,
    lapack,
    register_matrix,
    solve,
    trace,
)
from nnc.commands.reduce import reduce_sum
from nnc.commands.rules import add_tangents, batch_leading, check_linear_in_one, check_same_spec, not_linear
from nnc.graph import Command, TensorSpec, register
from nnc.graph.rules import Cotangents, Derivative, Linear, Tangents, Value


def _det_infer(x: TensorSpec) -> TensorSpec:
    return infer_square("det", INEXACT)(x).update(shape=x.shape[:-2])


def _slogdet_infer(x: TensorSpec) -> tuple[TensorSpec, TensorSpec]:
    sign = infer_square("slogdet", INEXACT)(x).update(shape=x.shape[:-2])
    return sign, sign.update(dtype=dtypes.real_dtype(x.dtype))


def _slogdet_jvp(primals: tuple[Value, ...], tangents: Tangents, outputs: tuple[Value, ...]) -> Tangents:
    """d log det X = tr(X⁻¹ dX): the real part changes the size, the imaginary part turns the sign."""
    moved = trace(solve(primals[0], tangents[0]))
    if not dtypes.is_complex(moved.spec.dtype):
        return None, moved
    return mul(imaginary_part(moved), outputs[0]), real(moved)


def _det_jvp(primals: tuple[Value, ...], tangents: Tangents, outputs: tuple[Value, ...]) -> Tangents:
    x, t = primals[0], tangents[0]
    return (reduce_sum(mul(t, cofactor(x)), axes=(x.spec.ndim - 2, x.spec.ndim - 1)),)


# -- derivatives of the determinant ------------------------------------------------------------------------------------


def _cofactor_infer(x: TensorSpec, *ts: TensorSpec) -> TensorSpec:
    return infer_square("cofactor", INEXACT)(check_same_spec("cofactor", (x, *ts)))


def _cofactor(x: NDArray, *ts: NDArray) -> NDArray:
    """Evaluates `cofactor`: the gradient at matrices far from singular ones by their inverse, all else by singular values."""
    if not x.size:
        return x.copy()
    return _by_singular_values(x, *ts) if ts else _by_inverse(x.reshape(-1, *x.shape[-2:])).reshape(x.shape)


def _by_inverse(x: NDArray) -> NDArray:
    """Evaluates det(x) · x⁻ᵀ of a row of matrices, in a tenth of the time of singular values, which take the other matrices.

    The relative error is a number's rounding error times the condition; it is used up to a condition of a quarter of 1 / √ε. All is
    computed in double precision, so that few matrices are left over.
    """
    wide = x.astype(np.result_type(x.dtype, np.float64), copy=False)
    try:
        inverse = np.linalg.inv(wide)
    except np.linalg.LinAlgError:  # one of the matrices is singular
        return _by_singular_values(x)
    info, determinant = np.finfo(wide.dtype), np.linalg.det(wide)
    condition = np.linalg.norm(wide, 1, (-2, -1)) * np.linalg.norm(inverse, 1, (-2, -1))
    size = np.abs(determinant)
    is_exact = (condition < 0.25 / np.sqrt(info.eps)) & (size > info.tiny / info.eps) & (size < np.inf)
    result: NDArray = (determinant[..., None, None] * inverse.swapaxes(-1, -2)).astype(x.dtype, copy=False)
    is_exact = is_exact & np.isfinite(result).all((-2, -1))
    if not is_exact.all():
        result[~is_exact] = _by_singular_values(x[~is_exact])
    return result


def _by_singular_values(x: NDArray, *ts: NDArray) -> NDArray:
    """Evaluates `cofactor` anywhere: x = U S Vᴴ, so det(x + t) is det(U) det(Vᴴ) det(S + Uᴴ t V), with S diagonal."""
    u, s, vh = np.linalg.svd(x)
    to_left, to_right = u.conj().swapaxes(-1, -2), vh.conj().swapaxes(-1, -2)
    inner = _derivative_at_diagonal(s, [to_left @ t @ to_right for t in ts])
    signs = (np.linalg.det(u) * np.linalg.det(vh))[..., None, None]
    product: NDArray = signs * (u.conj() @ inner @ vh.conj())
    return product


def _derivative_at_diagonal(s: NDArray, ts: list[NDArray]) -> NDArray:
    """`cofactor` at a diagonal matrix.

    The part of det(S + ε₁T₁ + … + εₘTₘ) that has all ε takes one row from each T and the others from S:
    Σ over different rows a₁ … aₘ of  (Π of the other s) · Σ over permutations π of  sgn(π) · Π Tⱼ[aⱼ, aπ(j)].
    The derivative by Tₘ leaves its factor out. Time and memory: O(n^(k + 1)) for each of (k + 1)! permutations.
    """
    n, m = s.shape[-1], len(ts) + 1
    rows = string.ascii_letters[:m]
    others = _products_of_others(s, m)
    result = np.zeros_like(s, ts[0].dtype if ts else s.dtype, shape=(*s.shape[:-1], n, n))
    diagonal = result.reshape((*s.shape[:-1], n * n))[..., :: n + 1]
    for order in itertools.permutations(range(m)):
        factors = [f"...{rows[j]}{rows[order[j]]}" for j in range(m - 1)]
        is_diagonal = order[-1] == m - 1
        out = rows[-1] + ("" if is_diagonal else rows[order[-1]])
        term = np.einsum(",".join([f"...{rows}", *factors]) + f"->...{out}", others, *ts)
        (diagonal if is_diagonal else result)[...] += _sign(order) * term
    return result


def _sign(order: tuple[int, ...]) -> int:
    swaps = sum(a > b for a, b in itertools.combinations(order, 2))
    return -1 if swaps % 2 else 1


def _products_of_others(s: NDArray, m: int) -> NDArray:
    """[..., a₁, …, aₘ]: the product of all s but those at m different places; 0 where two places are the same.

    A quotient of the whole product: zeros counted, mantissas (in float64) and exponents by themselves, so that nothing overflows.
    """
    n, lead = s.shape[-1], s.shape[:-1]
    zeros = s == 0
    mantissas, exponents = np.frexp(np.where(zeros, 1, s.astype(np.float64)))
    whole = (*lead, *(1,) * m)
    mantissa = np.prod(mantissas, -1).reshape(whole)
    exponent, left = (np.sum(x, -1, dtype=np.int64).reshape(whole) for x in (exponents, zeros))
    for j in range(m):
        shape = (*lead, *(n if i == j else 1 for i in range(m)))
        mantissa = mantissa / mantissas.reshape(shape)
        exponent, left = exponent - exponents.reshape(shape), left - zeros.reshape(shape)
    nothing = left != 0
    for i, j in itertools.combinations(range(m), 2):
        nothing = nothing | np.eye(n, dtype=bool, like=s).reshape([n if k in (i, j) else 1 for k in range(m)])
    return np.where(nothing, 0, np.ldexp(mantissa, exponent)).astype(s.dtype)


def _cofactor_jvp(primals: tuple[Value, ...], tangents: Tangents, outputs: tuple[Value, ...]) -> Tangents:
    x, *ts = primals
    total = None if tangents[0] is None else cofactor(x, *ts, tangents[0])
    for i, t in enumerate(tangents[1:]):
        if t is not None:
            total = add_tangents(total, cofactor(x, *ts[:i], t, *ts[i + 1 :]))
    return (total,)


def _cofactor_transpose(cotangents: Cotangents, operands: tuple[Value | Linear, ...]) -> Tangents:
    check_linear_in_one("cofactor", operands)
    x, *ts = operands
    if isinstance(x, Linear):
        raise not_linear("cofactor", "in the matrix", {"x": x.spec})
    return (
        None,
        *(
            cofactor(x, *ts[:i], cotangents[0], *ts[i + 1 :]) if isinstance(t, Linear) else None
            for i, t in enumerate(ts)
        ),
    )


slogdet: Command = register_matrix(
    "slogdet", _slogdet_infer, lapack("slogdet", np.linalg.slogdet, SINGULAR), _slogdet_jvp, cubic, outputs=2
)
det: Command = register_matrix("det", _det_infer, lapack("det", np.linalg.det, SINGULAR), _det_jvp, cubic)
cofactor: Command = register(
    "cofactor",
    MatrixRules(
        infer=_cofactor_infer,
        reference=lapack("cofactor", _cofactor),
        derivative=Derivative(_cofactor_jvp, _cofactor_transpose),
        batch=batch_leading("cofactor"),
        cost=lambda x, *ts: (
            (10 + 4 * len(ts)) * cubic(x) + math.factorial(len(ts) + 1) * x.size * x.shape[-1] ** len(ts)
        ),
    ),
    arity=None,
)
