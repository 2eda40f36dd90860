"""Linear algebra as in numpy.linalg: matrices are the last two axes, all before them are batches.

Integers become float32; 16-bit floats are computed in float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from nnc import dtypes
from nnc.commands import elementwise as ew
from nnc.commands import factor
from nnc.commands import linalg as commands
from nnc.commands.contract import matmul
from nnc.commands.linalg import check_matrix, identity_like
from nnc.commands.linalg import matrix_transpose as swap
from nnc.commands.promote import astype, broadcast_to_shape, promote
from nnc.commands.reduce import reduce_max, reduce_sum
from nnc.commands.rules import Value
from nnc.commands.shape import reshape
from nnc.errors import ArgumentError, ArgumentTypeError, LinAlgError, ShapeError, user_error
from nnc.numpy import elementwise as el
from nnc.numpy import manipulation
from nnc.numpy import reductions as re
from nnc.numpy.contractions import outer, tensordot, vecdot
from nnc.numpy.manipulation import matrix_transpose
from nnc.numpy.norms import matrix_norm, norm, vector_norm
from nnc.numpy.operands import static_int, to_value
from nnc.numpy.statistics import cross
from nnc.numpy.types import finfo
from nnc.spelling import spelled

__all__ = [
    "EighResult",
    "LinAlgError",
    "QRResult",
    "SVDResult",
    "SlogdetResult",
    "cholesky",
    "cross",
    "det",
    "diagonal",
    "eigh",
    "eigvalsh",
    "expm",
    "inv",
    "matmul",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "matrix_transpose",
    "multi_dot",
    "norm",
    "outer",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "solve_triangular",
    "svd",
    "svdvals",
    "tensordot",
    "trace",
    "vecdot",
    "vector_norm",
]


class EighResult(NamedTuple):
    """What `eigh` returns."""

    eigenvalues: Any
    eigenvectors: Any


class QRResult(NamedTuple):
    """What `qr` returns."""

    Q: Any
    R: Any


class SVDResult(NamedTuple):
    """What `svd` returns."""

    U: Any
    S: Any
    Vh: Any


class SlogdetResult(NamedTuple):
    """What `slogdet` returns."""

    sign: Any
    logabsdet: Any


def _matrix(where: str, x: Any, *, square: bool = True, name: str = "x") -> Value:
    (x,) = promote(x, where=where, to=dtypes.to_float)
    x = to_value(x, where, name)
    check_matrix(where, x.spec, square=square, name=name)
    return x


def _real(x: Value) -> Value:
    return ew.real(x) if dtypes.is_complex(x.spec.dtype) else x


# -- linear systems ----------------------------------------------------------------------------------------------------


def _solve(where: str, run: Callable[[Value, Value], Value], a: Any, b: Any) -> Value:
    """Promotes, broadcasts the batches, and treats a vector as a column."""
    a, b = (to_value(x, where) for x in promote(a, b, where=where, to=dtypes.to_float))
    check_matrix(where, a.spec, name="a")
    n, vector = a.spec.shape[-1], b.spec.ndim == 1
    if b.spec.ndim == 0 or b.spec.shape[0 if vector else -2] != n:
        raise user_error(
            ShapeError, where, f"a has {n} rows, b of shape {b.spec.shape} has not.", operands={"a": a.spec, "b": b.spec},
            fix=f"pass b of shape ({n},) or (..., {n}, k).",
        )  # fmt: skip
    columns = reshape(b, shape=(n, 1)) if vector else b
    try:
        batch = np.broadcast_shapes(a.spec.shape[:-2], columns.spec.shape[:-2])
    except ValueError:
        raise user_error(
            ShapeError, where, "the leading axes do not broadcast.", operands={"a": a.spec, "b": b.spec},
            fix="make sizes equal or 1, counted from the last of them.",
        ) from None  # fmt: skip
    result = run(broadcast_to_shape(a, (*batch, n, n)), broadcast_to_shape(columns, (*batch, *columns.spec.shape[-2:])))
    return reshape(result, shape=result.spec.shape[:-1]) if vector else result


def solve(a: Any, b: Any, /) -> Value:
    """Returns the solution x of a x = b.

    Args:     a: (..., n, n). b: (n,), or (..., n, k) where each column is a right-hand side; leading axes broadcast.
    Raises:   LinAlgError: a matrix is singular. ShapeError: the shapes do not fit.
    Example:
        >>> solve(np.asarray([[2.0, 0.0], [1.0, 1.0]]), np.asarray([4.0, 5.0]))
        Array([2., 3.], dtype=float64)
    """
    return _solve("solve", commands.solve, a, b)


@spelled
def solve_triangular(
    a: Any, b: Any, /, *, lower: bool = False, transpose_a: bool = False, unit_diagonal: bool = False
) -> Value:
    """Returns the solution x of a x = b, where only one triangle of `a` is read.

    Args:     a, b: as in `solve`. lower: which triangle. transpose_a: solve aᵀ x = b. unit_diagonal: take the diagonal of `a`
              as ones.
    Raises:   LinAlgError: an element of the diagonal is 0. ShapeError: the shapes do not fit.
    Example:
        >>> solve_triangular(np.asarray([[2.0, 9.0], [1.0, 1.0]]), np.asarray([4.0, 5.0]), lower=True)
        Array([2., 3.], dtype=float64)
    """

    def run(a: Value, b: Value) -> Value:
        return commands.triangular_solve(a, b, lower=lower, transpose_a=transpose_a, unit_diagonal=unit_diagonal)

    return _solve("solve_triangular", run, a, b)


def inv(x: Any, /) -> Value:
    """Returns the inverse matrix; `solve` is faster and more exact where it is multiplied by something.

    Raises:   LinAlgError: a matrix is singular. ShapeError: x is not square.
    Example:
        >>> inv(np.asarray([[2.0, 0.0], [0.0, 4.0]]))
        Array([[0.5 , 0.  ],
               [0.  , 0.25]], dtype=float64)
    """
    x = _matrix("inv", x)
    return commands.solve(x, identity_like(x.spec))


def _rtol(x: Value, rtol: float | None, where: str) -> float:
    """How small, of the largest, a singular value counts as 0."""
    if rtol is None:
        return float(max(x.spec.shape[-2:])) * float(finfo(x.spec.dtype).eps)
    try:
        return float(rtol)
    except TypeError:
        raise user_error(
            ArgumentTypeError, where, f"rtol is {rtol!r}, not a number.", fix="pass a Python float for rtol."
        ) from None


@spelled
def pinv(x: Any, /, *, rtol: float | None = None) -> Value:
    """Returns the Moore-Penrose pseudo-inverse.

    Its derivative takes the rank as constant.

    Args:     x: (..., m, n). rtol: singular values at most rtol times the largest count as 0; default max(m, n) · eps.
    Returns:  (..., n, m).
    Example:
        >>> pinv(np.asarray([[2.0], [0.0]]))
        Array([[0.5, 0. ]], dtype=float64)
    """
    x = _matrix("pinv", x, square=False)
    return factor.pinv(x, rtol=_rtol(x, rtol, "pinv"))


# -- determinants, powers ----------------------------------------------------------------------------------------------


def det(x: Any, /) -> Value:
    """Returns the determinant. Its gradient also holds at singular matrices, its second derivative at invertible ones.

    Raises:   ShapeError: x is not square.
    Example:
        >>> det(np.asarray([[2.0, 0.0], [1.0, 3.0]]))
        Array(6., dtype=float64)
    """
    return commands.det(_matrix("det", x))


def slogdet(x: Any, /) -> SlogdetResult:
    """Returns the sign of the determinant and the logarithm of its size: 0 and -inf for a singular matrix.

    Raises:   ShapeError: x is not square.
    Example:
        >>> slogdet(np.asarray([[0.0, 1.0], [1.0, 0.0]]))
        SlogdetResult(sign=Array(-1., dtype=float64), logabsdet=Array(0., dtype=float64))
    """
    return SlogdetResult(*commands.slogdet(_matrix("slogdet", x)))


def matrix_power(x: Any, n: int, /) -> Value:
    """Returns the product of n matrices `x`: the identity for 0, powers of the inverse for negative n.

    Raises:   LinAlgError: n is negative and a matrix singular. ShapeError: x is not square.
    Example:
        >>> matrix_power(np.asarray([[1.0, 1.0], [0.0, 1.0]]), 5)
        Array([[1., 5.],
               [0., 1.]], dtype=float64)
    """
    n = static_int(n, "matrix_power", "n")
    x = to_value(x, "matrix_power")
    check_matrix("matrix_power", x.spec)
    if n < 0:
        x, n = inv(x), -n
    result = None
    while n:  # by squaring, from the lowest bit of n
        if n & 1:
            result = x if result is None else matmul(result, x)
        n >>= 1
        if n:
            x = matmul(x, x)
    return identity_like(x.spec) if result is None else result


def expm(x: Any, /, *, max_squarings: int = 16) -> Value:
    """Returns the exponential of a matrix, the sum of xᵏ / k!.

    Padé's approximation of x / 2ˢ, squared s times (Higham, 2005). So that the graph does not depend on values, it holds
    `max_squarings` squarings, of which s are used; where more are needed the result is NaN.

    Raises:   ShapeError: x is not square.
    Example:
        >>> expm(np.asarray([[0.0, 2.0], [0.0, 0.0]]))
        Array([[1., 2.],
               [0., 1.]], dtype=float64)
    """
    x = _matrix("expm", x)
    if x.spec.shape[-1] == 0:
        return x
    own = x.spec.dtype
    x = to_value(astype(x, dtypes.accumulator(own)), "expm")
    wide = x.spec.dtype in (dtypes.float64, dtypes.complex128)
    degree, limit = (13, 5.371920351148152) if wide else (7, 3.925724783138660)
    size = reduce_max(reduce_sum(ew.abs_(ew.stop_gradient(x)), axes=(x.spec.ndim - 2,)), axes=(x.spec.ndim - 2,))
    rounds = el.clip(ew.ceil(ew.log2(el.maximum(size, limit / 2) / limit)), 0, None)
    scaled = x * ew.exp2(-rounds)[..., None, None]
    result = _pade(scaled, degree)
    for i in range(static_int(max_squarings, "expm", "max_squarings")):
        result = el.where((rounds > i)[..., None, None], matmul(result, result), result)
    return astype(el.where((rounds <= max_squarings)[..., None, None], result, math.nan), own)


def _pade(x: Value, degree: int) -> Value:
    """The rational approximation of exp: (V − U)⁻¹ (V + U), U the odd and V the even terms of its numerator."""
    even, odd, power = None, None, identity_like(x.spec)
    square = matmul(x, x)
    for k in range(degree + 1):
        factor = math.comb(degree, k) * math.factorial(2 * degree - k) / math.factorial(2 * degree)
        if k % 2 == 0:
            power = power if k == 0 else square if k == 2 else matmul(power, square)
            even = power * factor if even is None else even + power * factor
        else:
            odd = power * factor if odd is None else odd + power * factor
    odd = matmul(x, odd)
    return commands.solve(even - odd, even + odd)


def multi_dot(arrays: Any, /) -> Value:
    """Returns the product of two or more matrices, in the order that takes the fewest multiplications.

    The first and the last may be vectors.

    Raises:   ArgumentError: there are fewer than two. ShapeError: the sizes do not fit.
    Example:
        >>> multi_dot([np.ones((2, 9)), np.ones((9, 3)), np.ones(3)]).shape
        (2,)
    """
    parts = [to_value(x, "multi_dot") for x in arrays]
    if len(parts) < 2:
        raise user_error(ArgumentError, "multi_dot", f"it got {len(parts)} arrays.", fix="pass at least two.")
    sizes = [1 if parts[0].spec.ndim == 1 else parts[0].spec.shape[0]]
    for i, x in enumerate(parts):
        if x.spec.ndim != 2 and not (x.spec.ndim == 1 and i in (0, len(parts) - 1)):
            raise user_error(
                ShapeError, "multi_dot", f"array {i} has {x.spec.ndim} axes.", operands={f"array {i}": x.spec},
                fix="pass matrices; only the first and the last may be vectors.",
            )  # fmt: skip
        sizes.append(x.spec.shape[-1] if x.spec.ndim == 2 or i == 0 else 1)
    best: dict[tuple[int, int], tuple[int, int]] = {(i, i): (0, i) for i in range(len(parts))}
    for length in range(1, len(parts)):
        for i in range(len(parts) - length):
            j = i + length
            best[i, j] = min(
                (best[i, k][0] + best[k + 1, j][0] + sizes[i] * sizes[k + 1] * sizes[j + 1], k) for k in range(i, j)
            )

    def product(i: int, j: int) -> Value:
        at = best[i, j][1]
        return parts[i] if i == j else matmul(product(i, at), product(at + 1, j))

    return product(0, len(parts) - 1)


# -- factorisations ----------------------------------------------------------------------------------------------------


@spelled
def cholesky(x: Any, /, *, upper: bool = False) -> Value:
    """Returns the lower triangle L with L Lᵀ = x, for a symmetric positive definite matrix; of others (x + xᵀ) / 2 is taken.

    Args:     upper: return Lᵀ.
    Raises:   LinAlgError: a matrix is not positive definite. ShapeError: x is not square.
    Example:
        >>> cholesky(np.asarray([[4.0, 2.0], [2.0, 5.0]]))
        Array([[2., 0.],
               [1., 2.]], dtype=float64)
    """
    lower = factor.cholesky(_matrix("cholesky", x))
    return swap(lower) if upper else lower


@spelled
def qr(x: Any, /, *, mode: str = "reduced") -> Any:
    """Returns Q with orthonormal columns and the upper triangle R, with Q R = x.

    Args:     x: (..., m, n). mode: "reduced": Q is m by k and R k by n, k = min(m, n); "complete": m by m and m by n, without
              a derivative where m > n; "r": R alone.
    Raises:   ArgumentError: there is no such mode.
    Example:
        >>> q, r = qr(np.ones((3, 2)))
        >>> q.shape, r.shape
        ((3, 2), (2, 2))
    """
    if mode not in ("reduced", "complete", "r"):
        raise user_error(ArgumentError, "qr", f"mode is {mode!r}.", fix='use "reduced", "complete" or "r".')
    result = QRResult(*factor.qr(_matrix("qr", x, square=False), full_matrices=mode == "complete"))
    return result.R if mode == "r" else result


def eigh(x: Any, /) -> EighResult:
    """Returns the eigenvalues, in rising order, and eigenvectors (columns) of a symmetric matrix; of others of (x + xᵀ) / 2.

    Vectors of equal eigenvalues are not unique; the part of their derivative that is undefined is 0.

    Raises:   LinAlgError: an element is NaN or infinite. ShapeError: x is not square.
    Example:
        >>> eigh(np.asarray([[3.0, 0.0], [0.0, 1.0]])).eigenvalues
        Array([1., 3.], dtype=float64)
    """
    return EighResult(*factor.eigh(_matrix("eigh", x)))


def eigvalsh(x: Any, /) -> Value:
    """Returns the eigenvalues of a symmetric matrix in rising order; see `eigh`."""
    return factor.eigh(_matrix("eigvalsh", x))[0]


@spelled
def svd(x: Any, /, *, full_matrices: bool = True, compute_uv: bool = True) -> Any:
    """Returns U, the singular values S in falling order, and Vh, with U diag(S) Vh = x.

    Args:     x: (..., m, n). full_matrices: complete U and Vh to square matrices; these have no derivative where m and n differ.
              compute_uv: False returns S alone.
    Raises:   LinAlgError: an element is NaN or infinite.
    Example:
        >>> u, s, vh = svd(np.ones((3, 2)), full_matrices=False)
        >>> u.shape, s.shape, vh.shape
        ((3, 2), (2,), (2, 2))
    """
    if not compute_uv:
        return svdvals(x)
    return SVDResult(*factor.svd(_matrix("svd", x, square=False), full_matrices=bool(full_matrices)))


def svdvals(x: Any, /) -> Value:
    """Returns the singular values in falling order.

    Example:
        >>> svdvals(np.asarray([[3.0, 0.0], [0.0, -4.0]]))
        Array([4., 3.], dtype=float64)
    """
    return factor.svd(_matrix("svdvals", x, square=False), full_matrices=False)[1]


@spelled
def matrix_rank(x: Any, /, *, rtol: float | None = None) -> Value:
    """Returns the number of singular values above `rtol` (by default max(m, n) · eps) times the largest.

    Example:
        >>> matrix_rank(np.ones((3, 3)))
        Array(1, dtype=int64)
    """
    x = _matrix("matrix_rank", x, square=False)
    s = svdvals(x)
    if s.spec.shape[-1] == 0:
        return ew.full(shape=s.spec.shape[:-1], dtype=dtypes.int64, value=0)
    return re.count_nonzero(s > re.max(s, axis=-1, keepdims=True) * _rtol(x, rtol, "matrix_rank"), axis=-1)


# -- parts -------------------------------------------------------------------------------------------------------------


@spelled
def diagonal(x: Any, /, *, offset: int = 0) -> Value:
    """Returns the diagonals of the matrices in the last two axes.

    Example:
        >>> diagonal(np.ones((5, 2, 3))).shape
        (5, 2)
    """
    return manipulation.diagonal(x, offset, -2, -1)


@spelled
def trace(x: Any, /, *, offset: int = 0, dtype: Any = None) -> Value:
    """Returns the sums of the diagonals of the matrices in the last two axes.

    Example:
        >>> trace(np.ones((5, 2, 3))).shape
        (5,)
    """
    return manipulation.trace(x, offset, -2, -1, dtype)
