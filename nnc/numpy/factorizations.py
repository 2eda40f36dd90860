"""Factorisations of matrices, which nnc.numpy.linalg shows."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, overload

from nnc.array.array import Array
from nnc.array.indexing import take_along_axis
from nnc.array.promote import broadcast_to_shape
from nnc.calls.spelling import spelled
from nnc.commands import elementwise as ew
from nnc.commands import factor
from nnc.commands.linalg import adjoint, keep
from nnc.commands.sort import argsort
from nnc.errors import ArgumentError, user_error
from nnc.errors.errors import check_choice
from nnc.numpy import elementwise as el
from nnc.numpy.operands import keeps_weakness
from nnc.numpy.systems import to_matrix
from nnc.typing import ArrayLike


class EighResult(NamedTuple):
    """The result of `eigh`.

    Attributes:
        eigenvalues: (..., n), real, in rising order.
        eigenvectors: (..., n, n), one in each column.

    Example:
        >>> nnp.linalg.eigh(nnp.asarray([[2.0, 0.0], [0.0, 3.0]])).eigenvalues
        Array([2., 3.], dtype=float32)
    """

    eigenvalues: Array
    eigenvectors: Array


class EigResult(NamedTuple):
    """The result of `eig`.

    Attributes:
        eigenvalues: (..., n), complex, in no order.
        eigenvectors: (..., n, n), complex, one of length 1 in each column.

    Example:
        >>> nnp.linalg.eig(nnp.asarray([[2.0, 0.0], [0.0, 3.0]])).eigenvalues
        Array([2.+0.j, 3.+0.j], dtype=complex64)
    """

    eigenvalues: Array
    eigenvectors: Array


class QRResult(NamedTuple):
    """The result of `qr`.

    Attributes:
        Q: (..., m, k), with orthonormal columns.
        R: (..., k, n), upper triangles.

    Example:
        >>> nnp.linalg.qr(nnp.ones((3, 2))).R.shape
        (2, 2)
    """

    Q: Array
    R: Array


class SVDResult(NamedTuple):
    """The result of `svd`.

    Attributes:
        U: (..., m, k), with orthonormal columns.
        S: (..., k), singular values in falling order.
        Vh: (..., k, n), with orthonormal rows.

    Example:
        >>> nnp.linalg.svd(nnp.asarray([[2.0, 0.0], [0.0, 3.0]])).S
        Array([3., 2.], dtype=float32)
    """

    U: Array
    S: Array
    Vh: Array


@spelled
def cholesky(x: ArrayLike, /, *, upper: bool = False) -> Array:
    """Returns the lower triangle L with L Lᴴ = x, for a Hermitian (real: symmetric) positive definite matrix.

    Of other matrices (x + xᴴ) / 2 is taken.

    Args:
        x: (..., n, n).
        upper: return Lᴴ.

    Raises:
        LinAlgError: a matrix is not positive definite.
        ShapeError: x is not square.

    Example:
        >>> cholesky(np.asarray([[4.0, 2.0], [2.0, 5.0]]))
        Array([[2., 0.],
               [1., 2.]], dtype=float64)
    """
    lower = factor.cholesky(to_matrix("cholesky", x))
    return adjoint(lower) if upper else lower


@overload
def qr(x: ArrayLike, /, mode: Literal["reduced", "complete"] = "reduced") -> QRResult: ...
@overload
def qr(x: ArrayLike, /, mode: Literal["r"]) -> Array: ...
@spelled
def qr(x: ArrayLike, /, mode: str = "reduced") -> Any:
    """Returns Q with orthonormal columns and the upper triangle R, with Q R = x.

    Args:
        x: (..., m, n).
        mode: "reduced": Q is m by k and R k by n, k = min(m, n); "complete": m by m and m by n, without a derivative
            where m > n; "r": R alone.

    Raises:
        ArgumentError: there is no such mode.

    Example:
        >>> q, r = qr(np.ones((3, 2)))
        >>> q.shape, r.shape
        ((3, 2), (2, 2))
    """
    check_choice("qr", "mode", mode, ("reduced", "complete", "r"))
    result = QRResult(*factor.qr(to_matrix("qr", x, square=False), full_matrices=mode == "complete"))
    return result.R if mode == "r" else result


@spelled
def eigh(a: ArrayLike, UPLO: str | None = None, symmetrize_input: bool = True) -> EighResult:  # noqa: N803  (NumPy's name)
    """Returns the eigenvalues, in rising order, and eigenvectors (columns) of a Hermitian (real: symmetric) matrix.

    Vectors of equal eigenvalues are not unique, and the part of their derivative that is undefined is 0. So at equal eigenvalues
    the derivative holds for sums of functions of them, for functions of the vectors of distinct ones, and on the space of the
    others. It does not hold for V f(w) Vᴴ, and second derivatives do not: these mix equal ones.

    Args:
        a: (..., n, n), Hermitian.
        UPLO: which triangle, "L" (the default) or "U".
        symmetrize_input: take (a + aᴴ) / 2; False reads one triangle.

    Raises:
        LinAlgError: an element is NaN or infinite.
        ShapeError: a is not square.
        ArgumentError: no such UPLO.

    Example:
        >>> eigh(np.asarray([[3.0, 0.0], [0.0, 1.0]])).eigenvalues
        Array([1., 3.], dtype=float64)
    """
    return EighResult(*factor.eigh(_triangle("eigh", a, UPLO, symmetrize_input)))


@spelled
def eigvalsh(a: ArrayLike, UPLO: str | None = None, *, symmetrize_input: bool = True) -> Array:  # noqa: N803
    """Returns the eigenvalues of a Hermitian matrix in rising order; see `eigh`.

    Args:
        a: (..., n, n), Hermitian.
        UPLO: which triangle is read without `symmetrize_input`, "L" (the default) or "U".
        symmetrize_input: take (a + aᴴ) / 2; False reads one triangle.

    Example:
        >>> eigvalsh(np.asarray([[0.0, 2.0j], [-2.0j, 0.0]]))
        Array([-2.,  2.], dtype=float64)
    """
    return factor.eigh(_triangle("eigvalsh", a, UPLO, symmetrize_input))[0]


def _triangle(where: str, a: Any, side: str | None, symmetrize: bool) -> Array:
    """Returns the Hermitian matrix that is meant: of one triangle where `symmetrize` is False, else left to the command."""
    x = to_matrix(where, a)
    if side not in (None, "L", "U"):
        problem = f"UPLO is {side!r}."
        raise user_error(ArgumentError, where, problem, fix='use "L" for the lower or "U" for the upper triangle.')
    if symmetrize:
        return x
    half = keep(x, ew.greater if side != "U" else ew.less)
    return half + adjoint(half) + keep(x, ew.equal)


@spelled
def eig(a: ArrayLike, /) -> EigResult:
    """Returns the eigenvalues, in no order, and eigenvectors (columns, of length 1) of any square matrix; both are complex.

    Vectors are fixed but for a factor of size 1; the derivative holds for results that do not depend on it, at distinct
    eigenvalues.

    Args:
        a: (..., n, n).

    Raises:
        LinAlgError: an element is NaN or infinite.
        ShapeError: a is not square.

    Example:
        >>> eig(np.asarray([[0.0, 1.0], [-1.0, 0.0]])).eigenvalues
        Array([0.+1.j, 0.-1.j], dtype=complex128)
    """
    return EigResult(*factor.eig(to_matrix("eig", a)))


@spelled
def eigvals(a: ArrayLike, /) -> Array:
    """Returns the eigenvalues of any square matrix, complex and in no order; see `eig`.

    Args:
        a: (..., n, n).

    Example:
        >>> eigvals(np.asarray([[2.0, 1.0], [0.0, 3.0]]))
        Array([2.+0.j, 3.+0.j], dtype=complex128)
    """
    return factor.eig(to_matrix("eigvals", a))[0]


@overload
def svd(
    x: ArrayLike, /, full_matrices: bool = True, compute_uv: Literal[True] = True, hermitian: bool = False
) -> SVDResult: ...
@overload
def svd(
    x: ArrayLike, /, full_matrices: bool = True, *, compute_uv: Literal[False], hermitian: bool = False
) -> Array: ...
@spelled
def svd(x: ArrayLike, /, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False) -> Any:
    """Returns U, the singular values S in falling order, and Vh, with U diag(S) Vh = x.

    The notes of `eigh` on the derivative at equal values hold here, too; the derivative of U Vh holds also there.

    Args:
        x: (..., m, n).
        full_matrices: complete U and Vh to square matrices; these have no derivative where m and n differ.
        compute_uv: False returns S alone.
        hermitian: x is Hermitian; its decomposition is taken from `eigh`.

    Raises:
        LinAlgError: an element is NaN or infinite.

    Example:
        >>> u, s, vh = svd(np.ones((3, 2)), full_matrices=False)
        >>> u.shape, s.shape, vh.shape
        ((3, 2), (2,), (2, 2))
    """
    if hermitian:
        return _svd_of_hermitian(to_matrix("svd", x), bool(compute_uv))
    if not compute_uv:
        return svdvals(x)
    return SVDResult(*factor.svd(to_matrix("svd", x, square=False), full_matrices=bool(full_matrices)))


def _svd_of_hermitian(x: Array, vectors: bool) -> Any:
    """Eigenvalues by falling size are singular values, whose signs go to the right vectors."""
    values, v = factor.eigh(x)
    s = ew.abs_(values)
    order = argsort(s, axis=-1, descending=True, stable=True)
    s = take_along_axis(s, order, -1)
    if not vectors:
        return s
    columns = broadcast_to_shape(order[..., None, :], v.spec.shape)
    u = take_along_axis(v, columns, -1)
    signs = take_along_axis(ew.sign(values), order, -1)
    return SVDResult(u, s, adjoint(u * el.where(signs == 0, 1, signs)[..., None, :]))


@spelled
def svdvals(x: ArrayLike, /) -> Array:
    """Returns the singular values in falling order.

    Args:
        x: (..., m, n).

    Returns:
        (..., min(m, n)).

    Example:
        >>> svdvals(np.asarray([[3.0, 0.0], [0.0, -4.0]]))
        Array([4., 3.], dtype=float64)
    """
    return factor.svd(to_matrix("svdvals", x, square=False), full_matrices=False)[1]


@keeps_weakness
def cho_factor(a: ArrayLike, lower: bool = False) -> tuple[Array, bool]:
    """Returns the Cholesky factor of a positive definite matrix and which triangle it is, for `cho_solve`.

    Args:
        a: (..., n, n), Hermitian positive definite.
        lower: return the lower triangle L with L Lᴴ = a; else the upper one.

    Raises:
        LinAlgError: a matrix is not positive definite.
        ShapeError: a is not square.

    Example:
        >>> c, lower = cho_factor(np.asarray([[4.0, 2.0], [2.0, 5.0]]), lower=True)
        >>> c
        Array([[2., 0.],
               [1., 2.]], dtype=float64)
    """
    return cholesky(a, upper=not lower), bool(lower)
