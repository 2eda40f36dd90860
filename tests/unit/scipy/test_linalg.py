"""nnc.scipy.linalg agrees with SciPy at once, compiled and mapped; its derivatives, with differences."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import scipy.linalg

import nnc
import nnc.numpy as nnp
import nnc.scipy.linalg as la
from nnc.errors import ArgumentError, LinAlgError, ShapeError, TraceError
from nnc.testing import check_grads

RNG = np.random.default_rng(7)
A = RNG.normal(size=(3, 4, 4)) + 4 * np.eye(4)  # eigenvalues to the right of 0
S = A @ A.swapaxes(-1, -2)
B = RNG.normal(size=(3, 2, 2))
C = RNG.normal(size=(3, 4, 2))
TALL, WIDE = RNG.normal(size=(3, 5, 3)), RNG.normal(size=(3, 3, 5))

# name: nnc's function, SciPy's function of one matrix of each batch, operands
CASES: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[np.ndarray, ...]]] = {
    "cholesky": (la.cholesky, scipy.linalg.cholesky, (S,)),
    "cholesky lower": (lambda x: la.cholesky(x, lower=True), lambda x: scipy.linalg.cholesky(x, lower=True), (S,)),
    "lu": (la.lu, scipy.linalg.lu, (A,)),
    "lu tall": (la.lu, scipy.linalg.lu, (TALL,)),
    "lu wide": (la.lu, scipy.linalg.lu, (WIDE,)),
    "lu permuted": (lambda x: la.lu(x, permute_l=True), lambda x: scipy.linalg.lu(x, permute_l=True), (A,)),
    "lu_factor": (la.lu_factor, scipy.linalg.lu_factor, (A,)),
    **{
        f"lu_solve {trans}": (
            lambda a, b, trans=trans: la.lu_solve(la.lu_factor(a), b, trans=trans),
            lambda a, b, trans=trans: scipy.linalg.lu_solve(scipy.linalg.lu_factor(a), b, trans=trans),
            (A, C),
        )
        for trans in (0, 1, 2)
    },
    "solve": (la.solve, scipy.linalg.solve, (A, C)),
    "solve definite": (
        lambda a, b: la.solve(a, b, assume_a="pos"),
        lambda a, b: scipy.linalg.solve(a, b, assume_a="pos"),
        (S, C),
    ),
    "solve_sylvester": (la.solve_sylvester, scipy.linalg.solve_sylvester, (A, B, C)),
    "det": (la.det, scipy.linalg.det, (A,)),
    "inv": (la.inv, scipy.linalg.inv, (A,)),
    "svdvals": (lambda x: la.svd(x, compute_uv=False), scipy.linalg.svdvals, (TALL,)),
    "eigvalsh": (lambda x: la.eigh(x, eigvals_only=True), scipy.linalg.eigvalsh, (S,)),
    "eigvalsh upper": (
        lambda x: la.eigh(x, lower=False, eigvals_only=True),
        lambda x: scipy.linalg.eigvalsh(x, lower=False),
        (A,),
    ),
    "eigvalsh of two": (lambda x, y: la.eigh(x, y, eigvals_only=True), scipy.linalg.eigvalsh, (A, S)),
    "eigh_tridiagonal": (
        lambda d, e: la.eigh_tridiagonal(d, e, eigvals_only=True),
        lambda d, e: scipy.linalg.eigh_tridiagonal(d, e, eigvals_only=True),
        (A[:, 0], A[:, 1, :3]),
    ),
    "polar": (la.polar, scipy.linalg.polar, (TALL,)),
    "polar left": (lambda x: la.polar(x, side="left"), lambda x: scipy.linalg.polar(x, side="left"), (WIDE,)),
    "expm": (la.expm, scipy.linalg.expm, (A,)),
    "expm_frechet": (la.expm_frechet, scipy.linalg.expm_frechet, (A, S)),
    "sqrtm": (la.sqrtm, scipy.linalg.sqrtm, (A,)),
    "sqrtm symmetric": (la.sqrtm, scipy.linalg.sqrtm, (S,)),
    "logm": (la.logm, scipy.linalg.logm, (A,)),
    "toeplitz": (la.toeplitz, scipy.linalg.toeplitz, (A[:, 0], B[:, 0])),
    "hankel": (la.hankel, scipy.linalg.hankel, (A[:, 0], B[:, 0])),
    "circulant": (la.circulant, scipy.linalg.circulant, (A[:, 0],)),
    "companion": (la.companion, scipy.linalg.companion, (A[:, 0],)),
    "fiedler": (la.fiedler, scipy.linalg.fiedler, (A[:, 0],)),
    "fiedler_companion": (la.fiedler_companion, scipy.linalg.fiedler_companion, (TALL[:, :, 0],)),
    "leslie": (la.leslie, scipy.linalg.leslie, (A[:, 0], A[:, 1, :3])),
    **{
        f"convolution_matrix {mode}": (
            lambda a, mode=mode: la.convolution_matrix(a, 3, mode),
            lambda a, mode=mode: scipy.linalg.convolution_matrix(a, 3, mode),
            (A[:, 0],),
        )
        for mode in ("full", "same", "valid")
    },
    "hessenberg": (
        lambda a: la.hessenberg(a, calc_q=True),
        lambda a: scipy.linalg.hessenberg(a, calc_q=True),
        (A,),
    ),
    "qr pivoted": (
        lambda a: la.qr(a, mode="economic", pivoting=True),
        lambda a: scipy.linalg.qr(a, mode="economic", pivoting=True),
        (WIDE,),
    ),
    "qr_multiply": (la.qr_multiply, scipy.linalg.qr_multiply, (TALL, WIDE)),
    "qr_multiply left": (
        lambda a, c: la.qr_multiply(a, c, "left", pivoting=True),
        lambda a, c: scipy.linalg.qr_multiply(a, c, "left", pivoting=True),
        (TALL, WIDE),
    ),
    "funm": (lambda a: la.funm(a, nnp.sin), lambda a: scipy.linalg.funm(a, np.sin), (S,)),
}
cases = pytest.mark.parametrize("name", CASES)
NO_DERIVATIVE = {"lu_factor", "qr pivoted", "qr_multiply left", "funm"}  # of integers, and of Schur factors
LESS_EXACT = {"logm": 1e-12}  # roots double the rounding errors


def wanted(name: str, *operands: np.ndarray) -> Any:
    """SciPy's results, matrix by matrix."""
    results = [CASES[name][1](*xs) for xs in zip(*operands, strict=True)]
    return tuple(map(np.stack, zip(*results, strict=True))) if isinstance(results[0], tuple) else np.stack(results)


def check(got: Any, want: Any, tolerance: float) -> None:
    for one, other in zip(nnc.tree.leaves(got), want if isinstance(want, tuple) else (want,), strict=True):
        assert one.shape == other.shape
        size = np.abs(other).max()
        np.testing.assert_allclose(np.asarray(one), other, rtol=0, atol=tolerance * max(size, 1))


@cases
def test_functions_agree_with_scipy_at_once_compiled_and_mapped(name: str) -> None:
    ours, _, operands = CASES[name]
    want, tolerance = wanted(name, *operands), LESS_EXACT.get(name, 5e-14)
    check(ours(*operands), want, tolerance)
    check(nnc.compile(ours)(*operands), want, tolerance)
    check(nnc.vmap(ours)(*operands), want, tolerance)


@cases
def test_functions_agree_with_scipy_in_float32(name: str) -> None:
    ours, _, operands = CASES[name]
    got = ours(*(x.astype(np.float32) for x in operands))
    check(got, wanted(name, *operands), 3e-4 if name in ("solve_sylvester", "lu_solve 0") else 1e-4)
    assert all(x.dtype in (np.float32, np.complex64, np.int32) for x in nnc.tree.leaves(got))


@pytest.mark.parametrize("name", [name for name in CASES if name not in NO_DERIVATIVE])
def test_derivatives_agree_with_differences_to_second_order(name: str) -> None:
    ours, _, operands = CASES[name]
    check_grads(ours, operands, order=2, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["sqrtm", "logm", "solve_sylvester", "lu_solve 0", "lu"])
def test_compiled_gradients_agree_with_those_at_once(name: str) -> None:
    ours, _, operands = CASES[name]

    def total(*xs: Any) -> Any:
        return sum((y * y).sum() for y in nnc.tree.leaves(ours(*xs)))

    check(nnc.compile(nnc.grad(total))(*operands), np.asarray(nnc.grad(total)(*operands)), 1e-11)


# -- LU ----------------------------------------------------------------------------------------------------------------


def test_systems_of_permuted_rows_are_solved_for_vectors_and_broadcast_batches() -> None:
    rows = np.eye(5)[[3, 0, 4, 1, 2]] * np.arange(1.0, 6)
    b = np.arange(5.0)
    for trans in (0, 1):
        got = la.lu_solve(la.lu_factor(rows), b, trans=trans)
        np.testing.assert_allclose(np.asarray(got), np.linalg.solve(rows.T if trans else rows, b), rtol=1e-14)
    got = la.lu_solve(la.lu_factor(A[0]), C)
    np.testing.assert_allclose(np.asarray(got), np.linalg.solve(A[0], C), rtol=1e-11)


def test_a_singular_matrix_has_factors_and_its_system_is_refused() -> None:
    packed, pivots = la.lu_factor(np.ones((3, 3)))
    np.testing.assert_array_equal(np.asarray(packed), [[1, 1, 1], [1, 0, 0], [1, 0, 0]])
    with pytest.raises(LinAlgError):
        la.lu_solve((packed, pivots), np.ones(3))


def test_complex_matrices_have_complex_factors() -> None:
    x = A[0] + 1j * S[0] / 9
    p, lower, upper = la.lu(x)
    check((p, lower, upper), scipy.linalg.lu(x), 1e-14)
    check(la.sqrtm(x), scipy.linalg.sqrtm(x), 1e-13)
    check(la.logm(x), scipy.linalg.logm(x), 1e-13)
    check_grads(la.logm, (x,), order=1, rtol=1e-4)
    check_grads(lambda a, b: la.lu_solve(la.lu_factor(a), b, trans=2), (x, C[0] * 1j), order=1, rtol=1e-4)


# -- Schur, Sylvester, functions ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("output", ["real", "complex"])
def test_schur_factors_make_up_the_matrix(output: str) -> None:
    t, z = (np.asarray(y) for y in la.schur(RNG.normal(size=(2, 6, 6)), output=output))
    x = (z @ t @ z.conj().swapaxes(-1, -2)).real
    t2, z2 = (np.asarray(y) for y in nnc.compile(lambda x: la.schur(x, output=output))(x))
    np.testing.assert_allclose(z2 @ t2 @ z2.conj().swapaxes(-1, -2), x, atol=1e-13)
    np.testing.assert_allclose(z.conj().swapaxes(-1, -2) @ z, np.broadcast_to(np.eye(6), (2, 6, 6)), atol=1e-13)
    below = np.tril(t, -1 if output == "complex" else -2)
    assert not below.any() and np.iscomplexobj(t) == (output == "complex")


def test_common_eigenvalues_leave_no_solution_of_sylvesters_equation() -> None:
    for run in (la.solve_sylvester, nnc.compile(la.solve_sylvester)):
        assert np.isnan(np.asarray(run(A[0], -A[0], S[0]))).all()


def test_real_roots_and_logarithms_that_do_not_exist_are_nan_and_complex_ones_are_found() -> None:
    negative = np.diag([-4.0, 9.0])
    for function in (la.sqrtm, la.logm):
        assert np.isnan(np.asarray(function(negative))).all()
        assert np.isnan(np.asarray(nnc.grad(lambda x, f=function: f(x).sum())(negative))).all()
    check(la.sqrtm(negative.astype(complex)), np.diag([2j, 3]), 1e-15)
    check(la.logm(negative.astype(complex)), np.diag([np.log(4) + 1j * np.pi, np.log(9)]), 1e-14)
    mixed = la.sqrtm(np.stack([negative, np.eye(2)]))  # a batch's other matrices keep their roots
    check(mixed[1], np.eye(2), 0)


def test_singular_matrices_have_roots_and_no_logarithms() -> None:
    x = np.diag([4.0, 0.0])
    check(la.sqrtm(x), np.diag([2.0, 0.0]), 0)
    assert np.isnan(np.asarray(la.logm(x))).all()


def test_rotations_have_real_roots_and_logarithms_whose_powers_lead_back() -> None:
    angle = 3.0
    x = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    check(la.logm(x), np.array([[0, -angle], [angle, 0]]), 1e-13)
    root = la.sqrtm(x)
    check(root @ root, x, 1e-14)


@pytest.mark.parametrize("scale", [1e-8, 1e8, 1e-150])
def test_logarithms_of_large_and_small_matrices(scale: float) -> None:
    check(la.expm(la.logm(A[0] * scale)) / scale, A[0], 1e-9 * abs(np.log(scale)))
    check(la.logm(A[0] * scale) - np.log(scale) * np.eye(4), scipy.linalg.logm(A[0]), 1e-11)


def test_vectors_of_two_matrices_are_scaled_by_the_second() -> None:
    w, v = (np.asarray(x) for x in la.eigh(S, S[::-1] + np.eye(4)))
    b = S[::-1] + np.eye(4)
    np.testing.assert_allclose(S @ v, b @ v * w[:, None, :], atol=1e-10)
    np.testing.assert_allclose(v.swapaxes(-1, -2) @ b @ v, np.broadcast_to(np.eye(4), b.shape), atol=1e-11)


def test_the_derivative_of_a_polar_factor_holds_where_singular_values_are_equal() -> None:
    check_grads(la.polar, (np.eye(3),), order=1, rtol=1e-4)


# -- matrices of few numbers -------------------------------------------------------------------------------------------


def test_matrices_of_few_numbers_agree_with_scipy() -> None:
    for n in (0, 1, 5):
        check(la.hilbert(n), scipy.linalg.hilbert(n), 1e-7) if n else None
        check(la.invhilbert(n), scipy.linalg.invhilbert(n), 1e-7) if n else None
        for kind in ("symmetric", "lower", "upper"):
            check(la.pascal(n, kind), scipy.linalg.pascal(n, kind).reshape(n, n), 0) if n else None
            check(la.invpascal(n, kind), scipy.linalg.invpascal(n, kind).reshape(n, n), 0) if n else None
    for scale in (None, "sqrtn", "n"):
        check(la.dft(7, scale, dtype="complex128"), scipy.linalg.dft(7, scale), 1e-14)
    assert la.dft(3).dtype == np.complex64
    for full in (False, True):
        check(la.helmert(5, full), scipy.linalg.helmert(5, full), 1e-7)
    check(la.hadamard(8), scipy.linalg.hadamard(8), 0)
    assert la.hadamard(4, dtype="float32").dtype == np.float32
    assert la.hilbert(0).shape == la.pascal(0).shape == la.invhilbert(0).shape == la.dft(0).shape == (0, 0)
    for n in (2, 3, 4, 7, 8):
        check(la.fiedler_companion(np.arange(1.0, n + 1)), scipy.linalg.fiedler_companion(np.arange(1.0, n + 1)), 0)
    one = np.array([1, 2j, 3])
    check(la.toeplitz(one), scipy.linalg.toeplitz(one), 0)
    check(la.hankel(one), scipy.linalg.hankel(one), 0)
    blocks = (np.ones((2, 3)), np.array([4.0, 5]), np.float64(6))
    check(la.block_diag(*blocks), scipy.linalg.block_diag(*blocks), 0)
    assert la.block_diag().shape == (1, 0)
    check_grads(la.block_diag, blocks, order=1)


@pytest.mark.parametrize("mode", ["full", "economic", "r"])
def test_orthogonal_factors_agree_with_scipy_but_for_signs(mode: str) -> None:
    got, want = la.qr(TALL[0], mode=mode), scipy.linalg.qr(TALL[0], mode=mode)
    check(tuple(map(abs, got)), tuple(map(np.abs, want)), 1e-13)


def test_pivoted_factors_agree_with_scipy_for_all_modes_and_for_dependent_columns() -> None:
    dependent = np.stack([TALL[0, :, 0], 2 * TALL[0, :, 0], TALL[0, :, 1]], axis=1)
    for x in (TALL[0], WIDE[0], dependent, TALL[0] + 1j * TALL[1]):
        for mode in ("full", "economic", "r"):
            got, want = la.qr(x, mode=mode, pivoting=True), scipy.linalg.qr(x, mode=mode, pivoting=True)
            check(got[-2:], want[-2:], 1e-14)
        q, r, p = map(np.asarray, la.qr(x, pivoting=True))
        check(q @ r, x[:, p], 1e-14)


@pytest.mark.parametrize("conjugate", [False, True])
def test_products_with_orthogonal_factors_agree_with_scipy(conjugate: bool) -> None:
    x = TALL[0] + 1j * TALL[1]
    for c, mode in ((WIDE[0], "right"), (WIDE[0, 0], "right"), (WIDE[0], "left"), (WIDE[0, :, 0], "left")):
        check(
            la.qr_multiply(x, c, mode, conjugate=conjugate),
            scipy.linalg.qr_multiply(x, c, mode, conjugate=conjugate),
            1e-14,
        )


@pytest.mark.parametrize("scale", [1.0, 1e-200, 1e200])
def test_hessenberg_matrices_agree_with_scipy(scale: float) -> None:
    for x in (A[0], A[0] + 1j * S[0], np.triu(A[0]), np.zeros((3, 3)), np.eye(2), np.ones((1, 1))):
        h, q = la.hessenberg(x * scale, calc_q=True)
        want = scipy.linalg.hessenberg(x, calc_q=True)
        check((h / scale, q), want, 1e-13)
        check(la.hessenberg(x * scale) / scale, want[0], 1e-13)
    assert la.hessenberg(np.zeros((2, 0, 0))).shape == (2, 0, 0)


def test_functions_of_matrices_agree_with_scipy_and_real_schur_factors_become_complex() -> None:
    x = RNG.normal(size=(2, 5, 5))
    for ours, function in ((nnp.exp, np.exp), (nnp.sin, np.sin), (lambda w: w**3 - w, lambda w: w**3 - w)):
        want = np.stack([scipy.linalg.funm(y, function) for y in x])
        check(nnc.compile(la.funm, static_argnums=1)(x, ours), want, 1e-10)
    check(la.funm(np.diag([2.0, 2, 3]), nnp.exp).real, np.diag(np.exp([2.0, 2, 3])), 1e-14)
    t, z = (np.asarray(y) for y in la.rsf2csf(*la.schur(x)))
    check((z @ t @ z.conj().swapaxes(-1, -2)).real, x, 1e-13)
    assert not np.tril(t, -1).any()


def test_a_range_of_eigenvalues_is_selected() -> None:
    d, e = A[0, 0], A[0, 1, :3]
    got = la.eigh_tridiagonal(d, e, select="i", select_range=(1, 2))
    want = scipy.linalg.eigh_tridiagonal(d, e, select="i", select_range=(1, 2))
    check(tuple(map(abs, got)), tuple(map(np.abs, want)), 1e-13)
    lowest = la.eigh_tridiagonal(d, e, eigvals_only=True, select="i", select_range=(0, 0))
    check(lowest, scipy.linalg.eigvalsh_tridiagonal(d, e)[:1], 1e-13)


@pytest.mark.parametrize(("span", "count"), [((-10.0, 10.0), 4), ((0.0, 2.0), 2), ((50.0, 60.0), 0)])
def test_eigenvalues_of_a_tridiagonal_matrix_between_two_values(span: tuple[float, float], count: int) -> None:
    d, e = np.arange(-1.0, 3.0), np.asarray([0.3, -0.2, 0.1])
    got = la.eigh_tridiagonal(d, e, select="v", select_range=span)
    want = scipy.linalg.eigh_tridiagonal(d, e, select="v", select_range=span)
    for ours, theirs in zip(got, want, strict=True):
        assert ours.shape == theirs.shape and ours.shape[-1] == count
        assert np.allclose(abs(ours), abs(theirs), rtol=1e-13, atol=1e-13)


def test_the_upper_one_of_two_values_is_included() -> None:
    values = la.eigh_tridiagonal(np.arange(4.0), np.zeros(3), eigvals_only=True, select="v", select_range=(1, 3))
    assert np.array_equal(values, [2.0, 3.0])


# -- mistakes ----------------------------------------------------------------------------------------------------------

MISTAKES = {
    "sqrtm of no square": (lambda: la.sqrtm(TALL), ShapeError, "A must be square"),
    "sqrtm of nan": (lambda: la.sqrtm(np.full((2, 2), np.nan)), LinAlgError, "infinite or NaN"),
    "compiled schur of nan": (lambda: nnc.compile(la.schur)(np.full((2, 2), np.nan)), LinAlgError, "infinite or NaN"),
    "sylvester of inf": (lambda: la.solve_sylvester(A / 0.0, B, C), LinAlgError, "infinite or NaN"),
    "sylvester of other sizes": (lambda: la.solve_sylvester(A, B, C.swapaxes(1, 2)), ShapeError, "C must be 4 by 2"),
    "sylvester of other batches": (lambda: la.solve_sylvester(A, B[:2], C), ShapeError, "do not broadcast"),
    "lu_solve of other sizes": (lambda: la.lu_solve(la.lu_factor(A), np.ones(3)), ShapeError, "has 4 rows"),
    "lu_solve without pivots": (lambda: la.lu_solve((A, A), C), ShapeError, "one pivot for each row"),
    "lu_solve trans": (lambda: la.lu_solve(la.lu_factor(A), C, trans=3), ArgumentError, "trans is 3"),
    "solve assumption": (lambda: la.solve(A, C, assume_a="upper"), ArgumentError, "assume_a is 'upper'"),
    "qr mode": (lambda: la.qr(A, mode="raw"), ArgumentError, "mode is 'raw'"),
    "schur output": (lambda: la.schur(A, output="quaternion"), ArgumentError, "output is"),
    "polar side": (lambda: la.polar(A, side="top"), ArgumentError, "side is 'top'"),
    "pascal kind": (lambda: la.pascal(3, kind="other"), ArgumentError, "kind is 'other'"),
    "hilbert size": (lambda: la.hilbert(-1), ArgumentError, "n is -1"),
    "tridiagonal sizes": (lambda: la.eigh_tridiagonal(np.ones(3), np.ones(3)), ShapeError, "one element less"),
    "frechet shapes": (lambda: la.expm_frechet(A[0], S), ShapeError, "differ in shape"),
    "toeplitz of nothing": (lambda: la.toeplitz(np.ones(0)), ShapeError, "c is empty"),
    "toeplitz batches": (lambda: la.toeplitz(np.ones((2, 3)), np.ones(3)), ShapeError, "leading axes"),
    "fiedler of nothing": (lambda: la.fiedler(np.ones(0)), ShapeError, "a is empty"),
    "fiedler_companion of one": (lambda: la.fiedler_companion(np.ones(1)), ShapeError, "one coefficient"),
    "leslie sizes": (lambda: la.leslie(np.ones(3), np.ones(3)), ShapeError, "one element less than f"),
    "convolution_matrix mode": (lambda: la.convolution_matrix(np.ones(3), 2, "all"), ArgumentError, "mode is 'all'"),
    "convolution_matrix size": (lambda: la.convolution_matrix(np.ones(3), 0), ArgumentError, "n is 0"),
    "hadamard size": (lambda: la.hadamard(6), ArgumentError, "n is 6, which is no power of 2"),
    "helmert size": (lambda: la.helmert(0), ArgumentError, "n is 0"),
    "dft scale": (lambda: la.dft(3, "half"), ArgumentError, "scale is 'half'"),
    "invpascal kind": (lambda: la.invpascal(3, "other"), ArgumentError, "kind is 'other'"),
    "hessenberg of no square": (lambda: la.hessenberg(TALL), ShapeError, "a must be square"),
    "funm of nan": (lambda: la.funm(np.full((2, 2), np.nan), np.exp), LinAlgError, "infinite or NaN"),
    "rsf2csf of no square": (lambda: la.rsf2csf(TALL, TALL), ShapeError, "T must be square"),
    "qr_multiply mode": (lambda: la.qr_multiply(A, A, "top"), ArgumentError, "mode is 'top'"),
    "qr_multiply sizes": (lambda: la.qr_multiply(TALL, TALL), ShapeError, "c must have 5 columns"),
    "tridiagonal choice": (
        lambda: la.eigh_tridiagonal(np.ones(3), np.ones(2), select="v"),
        ArgumentError,
        "select is 'v'",
    ),
    "tridiagonal values of many": (
        lambda: la.eigh_tridiagonal(A[:, 0], A[:, 1, :3], select="v", select_range=(0, 1)),
        ShapeError,
        "takes one matrix",
    ),
    "traced tridiagonal values": (
        lambda: nnc.compile(partial(la.eigh_tridiagonal, select="v", select_range=(0, 1)))(np.ones(3), np.ones(2)),
        TraceError,
        "no values yet",
    ),
    "tridiagonal range of fractions": (
        lambda: la.eigh_tridiagonal(np.ones(3), np.ones(2), select="i", select_range=(0.0, 1.5)),
        ArgumentError,
        "two numbers from 0 to 2",
    ),
    "tridiagonal range": (
        lambda: la.eigh_tridiagonal(np.ones(3), np.ones(2), select="i", select_range=(1, 3)),
        ArgumentError,
        "is \\(1, 3\\)",
    ),
    "companion of one": (lambda: la.companion(np.ones(1)), ShapeError, "one coefficient"),
    "block_diag axes": (lambda: la.block_diag(A), ShapeError, "array 0 has 3 axes"),
}


@pytest.mark.parametrize("name", MISTAKES)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_mistakes_are_worded(name: str) -> None:
    call, error, text = MISTAKES[name]
    with pytest.raises(error, match=text) as found:
        call()
    assert "Fix:" in str(found.value)


@pytest.mark.parametrize("shape", [(2, 5), (5, 2), (3, 3), (1, 4), (2, 3, 4), (0, 3)])
def test_factors_of_matrices_of_any_shape_have_derivatives(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(3).normal(size=shape)
    for part in (1, 2):
        check_grads(lambda x, part=part: la.lu(x)[part], (x,), order=2, rtol=1e-5, atol=1e-5)
