"""Linear algebra as in numpy.linalg: matrices are the last two axes, all before them are batches.

Integers become float32; 16-bit floats are computed in float32. Linear systems and factorisations stand in files of their own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from nnc.array.array import Array
from nnc.array.matmul import matmul
from nnc.array.promote import astype
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.commands import constants, determinants
from nnc.commands import elementwise as ew
from nnc.commands import linalg as commands
from nnc.commands.linalg import check_matrix, identity_like
from nnc.commands.reduce import reduce_max, reduce_sum
from nnc.errors import ArgumentError, LinAlgError, ShapeError, user_error
from nnc.errors.names.lookup import public_names
from nnc.numpy import elementwise as el
from nnc.numpy import manipulation
from nnc.numpy.contractions import outer, tensordot, vecdot
from nnc.numpy.factorizations import (
    EighResult,
    EigResult,
    QRResult,
    SVDResult,
    cho_factor,
    cholesky,
    eig,
    eigh,
    eigvals,
    eigvalsh,
    qr,
    svd,
    svdvals,
)
from nnc.numpy.manipulation import matrix_transpose
from nnc.numpy.norms import matrix_norm, norm, vector_norm
from nnc.numpy.operands import keeps_weakness, static_int, to_value, to_values
from nnc.numpy.statistics import cross
from nnc.numpy.systems import (
    LstsqResult,
    cho_solve,
    count_above,
    inv,
    lstsq,
    pinv,
    relative_tolerances,
    solve,
    solve_triangular,
    tensorinv,
    tensorsolve,
    to_matrix,
)
from nnc.numpy.types import finfo
from nnc.typing import ArrayLike, DTypeLike

__all__ = [
    "EigResult",
    "EighResult",
    "LinAlgError",
    "LstsqResult",
    "QRResult",
    "SVDResult",
    "SlogdetResult",
    "cho_factor",
    "cho_solve",
    "cholesky",
    "cond",
    "cross",
    "det",
    "diagonal",
    "eig",
    "eigh",
    "eigvals",
    "eigvalsh",
    "expm",
    "inv",
    "lstsq",
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
    "tensorinv",
    "tensorsolve",
    "trace",
    "vecdot",
    "vector_norm",
]


class SlogdetResult(NamedTuple):
    """The result of `slogdet`.

    Attributes:
        sign: (...), -1, 0 or 1, or a complex number of size 1.
        logabsdet: (...), real; -inf for a singular matrix.

    Example:
        >>> nnp.linalg.slogdet(nnp.asarray([[-1.0, 0.0], [0.0, 1.0]])).sign
        Array(-1., dtype=float32)
    """

    sign: Array
    logabsdet: Array


# -- determinants, powers ----------------------------------------------------------------------------------------------


@spelled
def det(x: ArrayLike, /) -> Array:
    """Returns the determinant. Its derivatives of every order hold at singular matrices, too.

    Args:
        x: (..., n, n).

    Returns:
        (...).

    Raises:
        ShapeError: x is not square.

    Example:
        >>> det(np.asarray([[2.0, 0.0], [1.0, 3.0]]))
        Array(6., dtype=float64)
    """
    return determinants.det(to_matrix("det", x))


@spelled
def slogdet(x: ArrayLike, /) -> SlogdetResult:
    """Returns the sign of the determinant and the logarithm of its size: 0 and -inf for a singular matrix.

    Args:
        x: (..., n, n).

    Raises:
        ShapeError: x is not square.

    Example:
        >>> slogdet(np.asarray([[0.0, 1.0], [1.0, 0.0]]))
        SlogdetResult(sign=Array(-1., dtype=float64), logabsdet=Array(0., dtype=float64))
    """
    return SlogdetResult(*determinants.slogdet(to_matrix("slogdet", x)))


@keeps_weakness
def matrix_power(x: ArrayLike, n: int, /) -> Array:
    """Returns the product of n matrices `x`: the identity for 0, powers of the inverse for negative n.

    Args:
        x: (..., n, n).
        n: an integer, known while tracing.

    Raises:
        LinAlgError: n is negative and a matrix singular.
        ShapeError: x is not square.

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
    result: Array | None = None
    while n:  # by squaring, from the lowest bit of n
        if n & 1:
            result = x if result is None else matmul(result, x)
        n >>= 1
        if n:
            x = matmul(x, x)
    return identity_like(x.spec) if result is None else result


@keeps_weakness
def expm(x: ArrayLike, /, *, max_squarings: int = 16) -> Array:
    """Returns the exponential of a matrix, the sum of xᵏ / k!.

    Padé's approximation of x / 2ˢ, squared s times (Higham, 2005). So that the graph does not depend on values, it holds
    `max_squarings` squarings and uses s of them; where more are needed the result is NaN.

    Args:
        x: (..., n, n).
        max_squarings: how many squarings the graph holds; norms up to about 2 to this power are handled.

    Raises:
        ShapeError: x is not square.

    Example:
        >>> expm(np.asarray([[0.0, 2.0], [0.0, 0.0]]))
        Array([[1., 2.],
               [0., 1.]], dtype=float64)
    """
    x = to_matrix("expm", x)
    if x.spec.shape[-1] == 0:
        return x
    own = x.spec.dtype
    x = to_value(astype(x, dtypes.accumulator(own)), "expm")
    wide = x.spec.dtype in (dtypes.float64, dtypes.complex128)
    degree, limit = (13, 5.371920351148152) if wide else (7, 3.925724783138660)
    rounds = _squarings(ew.stop_gradient(x), degree, limit)
    scaled = x * ew.exp2(-rounds)[..., None, None]
    result = _pade(scaled, degree)
    for i in range(static_int(max_squarings, "expm", "max_squarings")):
        result = el.where((rounds > i)[..., None, None], matmul(result, result), result)
    return astype(result * el.where((rounds <= max_squarings)[..., None, None], 1.0, math.nan), own)


def _squarings(x: Array, degree: int, limit: float) -> Array:
    """Returns the number of times that the exponential of x / 2ˢ is squared (Al-Mohy and Higham, 2009).

    The powers of a matrix that is far from normal are smaller than those of its norm: their roots bound the error of the
    approximation, and the power 2 degree + 1 of |x| bounds that of rounding.
    """
    size = _one_norm(x)
    unit = x / el.where(size > 0, size, 1)[..., None, None]
    square = matmul(unit, unit)
    fourth = matmul(square, square)
    root = el.maximum(_one_norm(fourth) ** 0.25, _one_norm(matmul(fourth, square)) ** (1 / 6))
    rounds = el.clip(ew.ceil(ew.log2(el.maximum(size * root, limit / 2) / limit)), 0, None)
    sizes = ew.abs_(unit)
    fourth = matmul(matmul(sizes, sizes), matmul(sizes, sizes))
    row, count = constants.full_like(sizes[..., :1, :], 1), 2 * degree + 1
    for step in (*(sizes,) * (count % 4), *(fourth,) * (count // 4)):
        row = matmul(row, step)
    largest = reduce_max(row, axes=(row.spec.ndim - 2, row.spec.ndim - 1))
    coefficient = math.factorial(2 * degree) * math.factorial(count) / math.factorial(degree) ** 2
    excess = ew.log2(largest) - math.log2(coefficient * float(finfo(x.spec.dtype).eps) / 2)
    more = ew.ceil(excess / (2 * degree) + ew.log2(size) - rounds)
    return rounds + el.where(more > 0, more, 0)


def _one_norm(x: Array) -> Array:
    """Returns the largest sum of sizes of a column."""
    return reduce_max(reduce_sum(ew.abs_(x), axes=(x.spec.ndim - 2,)), axes=(x.spec.ndim - 2,))


def _pade(x: Array, degree: int) -> Array:
    """Returns the rational approximation of exp: (V − U)⁻¹ (V + U), U the odd and V the even terms of its numerator."""
    even: Any = None
    odd: Any = None
    power = identity_like(x.spec)
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


@spelled
def multi_dot(arrays: Sequence[ArrayLike], /) -> Array:
    """Returns the product of two or more matrices, in the order that takes the fewest multiplications.

    The first and the last may be vectors.

    Args:
        arrays: matrices whose sizes fit; the first and the last may be vectors.

    Raises:
        ArgumentError: there are fewer than two.
        ShapeError: the sizes do not fit.

    Example:
        >>> multi_dot([np.ones((2, 9)), np.ones((9, 3)), np.ones(3)]).shape
        (2,)
    """
    parts = to_values("multi_dot", **{f"array {i}": x for i, x in enumerate(arrays)})
    if len(parts) < 2:
        raise user_error(ArgumentError, "multi_dot", f"it got {len(parts)} arrays.", fix="pass at least two.")
    sizes = [1 if parts[0].spec.ndim < 2 else parts[0].spec.shape[0]]
    for i, x in enumerate(parts):
        if x.spec.ndim != 2 and not (x.spec.ndim == 1 and i in (0, len(parts) - 1)):
            problem = f"array {i} has {x.spec.ndim} axes."
            fix = "pass matrices; only the first and the last may be vectors."
            raise user_error(ShapeError, "multi_dot", problem, operands={f"array {i}": x.spec}, fix=fix)
        sizes.append(x.spec.shape[-1] if x.spec.ndim == 2 or i == 0 else 1)
    best: dict[tuple[int, int], tuple[int, int]] = {(i, i): (0, i) for i in range(len(parts))}
    for length in range(1, len(parts)):
        for i in range(len(parts) - length):
            j = i + length
            best[i, j] = min(
                (best[i, k][0] + best[k + 1, j][0] + sizes[i] * sizes[k + 1] * sizes[j + 1], k) for k in range(i, j)
            )

    def product(i: int, j: int) -> Array:
        at = best[i, j][1]
        return parts[i] if i == j else matmul(product(i, at), product(at + 1, j))

    return product(0, len(parts) - 1)


@spelled
def matrix_rank(x: ArrayLike, /, rtol: ArrayLike | None = None, hermitian: bool = False) -> Array:
    """Returns the number of singular values above `rtol` (by default max(m, n) · eps) times the largest.

    Args:
        x: (..., m, n).
        rtol: singular values up to this share of the largest count as 0; max(m, n) · eps by default.
        hermitian: x is Hermitian; the sizes of its eigenvalues are counted, which is faster.

    Example:
        >>> matrix_rank(np.ones((3, 3)))
        Array(1, dtype=int64)
    """
    x = to_matrix("matrix_rank", x, square=False)
    return count_above(svd(x, compute_uv=False, hermitian=hermitian), relative_tolerances(x, rtol, "matrix_rank"))


@spelled
def cond(x: ArrayLike, p: float | str | None = None) -> Array:
    """Returns the condition number |x| · |x⁻¹|: how much solving with `x` may magnify relative errors; inf for singular matrices.

    Args:
        x: square, or any shape where p is None, 2 or -2.
        p: the order of the norm, as in `norm`; None is 2, for which it is the ratio of the largest and the smallest
            singular value.

    Raises:
        ArgumentError: there is no such norm.
        ShapeError: x is not square.

    Example:
        >>> cond(np.asarray([[2.0, 0.0], [0.0, 0.5]]))
        Array(4., dtype=float64)
    """
    x = to_matrix("cond", x, square=p not in (None, 2, -2))
    if 0 in x.spec.shape[-2:]:
        problem = "an empty matrix has no condition."
        raise user_error(ShapeError, "cond", problem, operands={"x": x.spec}, fix="pass elements.")
    if p in (None, 2, -2):
        s = svdvals(x)
        largest, smallest = s[..., 0], s[..., -1]
        nothing = smallest == 0
        if p == -2:
            return el.where(largest == 0, math.inf, smallest / el.where(largest == 0, 1, largest))
        return el.where(nothing, math.inf, largest / el.where(nothing, 1, smallest))
    singular = ew.abs_(determinants.slogdet(x)[0]) == 0
    safe = el.where(singular[..., None, None], identity_like(x.spec), x)
    product = matrix_norm(x, ord=p) * matrix_norm(inv(safe), ord=p)
    return el.where(singular, math.inf, product)


# -- parts -------------------------------------------------------------------------------------------------------------


@spelled
def diagonal(x: ArrayLike, /, *, offset: int = 0) -> Array:
    """Returns the diagonals of the matrices in the last two axes.

    Args:
        x: (..., m, n).
        offset: number of the diagonal; positive ones lie above the main one.

    Example:
        >>> diagonal(np.ones((5, 2, 3))).shape
        (5, 2)
    """
    return manipulation.diagonal(x, offset, -2, -1)


@spelled
def trace(x: ArrayLike, /, *, offset: int = 0, dtype: DTypeLike | None = None) -> Array:
    """Returns the sums of the diagonals of the matrices in the last two axes.

    Args:
        x: (..., m, n).
        offset: number of the diagonal; positive ones lie above the main one.
        dtype: dtype of the sum; by default as in `nnp.sum`.

    Example:
        >>> trace(np.ones((5, 2, 3))).shape
        (5,)
    """
    return manipulation.trace(x, offset, -2, -1, dtype)


if not TYPE_CHECKING:  # to which a name that is not there would be one of type NoReturn
    __getattr__, __dir__ = public_names("nnc.numpy.linalg")
