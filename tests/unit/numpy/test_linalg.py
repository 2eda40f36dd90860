from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg

import nnc
import nnc.numpy as nnp
from nnc.errors import (
    ArgumentError,
    ArgumentTypeError,
    DTypeError,
    LinAlgError,
    ShapeError,
    TraceError,
    UnsupportedError,
)
from nnc.testing import check_grads

la = nnp.linalg
RNG = np.random.default_rng(23)
A = RNG.normal(size=(4, 3, 3)) + 2 * np.eye(3)
B = RNG.normal(size=(4, 3, 2))
S = A @ A.swapaxes(-1, -2)
TALL, WIDE = RNG.normal(size=(2, 5, 3)), RNG.normal(size=(2, 3, 5))
X = RNG.normal(size=(3, 4, 5))
SINGULAR = np.array([[1.0, 2.0], [2.0, 4.0]])

# functions of one batch of positive definite matrices, each with its counterpart in NumPy
OF_DEFINITE = {
    "cholesky": (la.cholesky, np.linalg.cholesky),
    "inv": (la.inv, np.linalg.inv),
    "det": (la.det, np.linalg.det),
    "slogdet": (lambda x: tuple(la.slogdet(x)), lambda x: tuple(np.linalg.slogdet(x))),
    "eigh": (lambda x: tuple(la.eigh(x)), lambda x: tuple(np.linalg.eigh(x))),
    "eigvalsh": (la.eigvalsh, np.linalg.eigvalsh),
    "svd": (lambda x: tuple(la.svd(x)), lambda x: tuple(np.linalg.svd(x))),
    "svdvals": (la.svdvals, np.linalg.svdvals),
    "qr": (lambda x: tuple(la.qr(x)), lambda x: tuple(np.linalg.qr(x))),
    "pinv": (la.pinv, np.linalg.pinv),
    "matrix_power": (lambda x: la.matrix_power(x, 3), lambda x: np.linalg.matrix_power(x, 3)),
    "negative power": (lambda x: la.matrix_power(x, -2), lambda x: np.linalg.matrix_power(x, -2)),
    "expm": (lambda x: la.expm(x / 4), lambda x: scipy.linalg.expm(x / 4)),
    "solve": (lambda x: la.solve(x, B), lambda x: np.linalg.solve(x, B)),
    "matrix_norm": (la.matrix_norm, np.linalg.matrix_norm),
    "trace": (la.trace, np.linalg.trace),
    "diagonal": (lambda x: la.diagonal(x, offset=1), lambda x: np.linalg.diagonal(x, offset=1)),
}
of_definite = pytest.mark.parametrize("name", OF_DEFINITE)


@of_definite
def test_functions_agree_with_numpy_at_once_and_compiled(name, same):
    ours, theirs = OF_DEFINITE[name]
    same(ours(S), theirs(S), 1e-9)
    same(nnc.compile(ours)(S), theirs(S), 1e-9)


@of_definite
def test_vmap_agrees_with_batches(name, same):
    if name == "solve":
        same(nnc.vmap(la.solve)(S, B), np.linalg.solve(S, B), 1e-9)
        same(nnc.vmap(la.solve, in_axes=(0, None))(S, B[0]), np.linalg.solve(S, B[0]), 1e-9)
    else:
        ours, theirs = OF_DEFINITE[name]
        same(nnc.vmap(ours)(S), theirs(S), 1e-9)


@of_definite
def test_derivatives_agree_with_differences_to_second_order(name):
    ours, _ = OF_DEFINITE[name]
    if name == "solve":
        check_grads(la.solve, (S, B), order=2, rtol=1e-4, atol=1e-4)
    else:
        check_grads(ours, (S / 4,), order=2, rtol=1e-4, atol=1e-4)


@of_definite
def test_compiled_gradients_agree_with_those_at_once(name, same):
    ours, _ = OF_DEFINITE[name]

    def total(x):
        return sum((y * y).sum() for y in nnc.tree.leaves(ours(x)))

    same(nnc.compile(nnc.grad(total))(S), np.asarray(nnc.grad(total)(S)), 1e-9)


# -- linear systems ----------------------------------------------------------------------------------------------------


def test_right_hand_sides_may_be_vectors_and_batches_broadcast(same):
    v = RNG.normal(size=3)
    same(la.solve(A, v), np.linalg.solve(A, v), 1e-10)
    same(la.solve(A[0], B), np.linalg.solve(A[0], B), 1e-10)
    same(la.solve(A[:, None], B[:2]), np.linalg.solve(A[:, None], B[:2]), 1e-10)


@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("unit", [False, True])
def test_triangular_systems_agree_with_scipy_and_read_one_triangle(lower, transpose_a, unit, same):
    want = scipy.linalg.solve_triangular(A[0], B[0], lower=lower, trans=int(transpose_a), unit_diagonal=unit)
    options = {"lower": lower, "trans": int(transpose_a), "unit_diagonal": unit}
    same(la.solve_triangular(A[0], B[0], **options), want, 1e-10)
    spoilt = np.where((np.tril if lower else np.triu)(np.ones((3, 3))) > 0, A[0], np.nan)
    same(la.solve_triangular(spoilt, B[0], **options), want, 1e-10)
    gradient = np.asarray(nnc.grad(lambda a: la.solve_triangular(a, B[0], **options).sum())(A[0]))
    unread = np.triu(gradient, 1) if lower else np.tril(gradient, -1)
    assert not unread.any() and gradient.any()


@pytest.mark.parametrize("solver", [la.solve, la.solve_triangular], ids=["solve", "solve_triangular"])
def test_mapped_right_hand_sides_of_one_matrix_factorise_it_once(solver, same):
    stack = RNG.normal(size=(7, 4, 3, 2))
    graph = str(nnc.make_graph(nnc.vmap(solver, in_axes=(None, 0)))(A, stack))
    assert "float64[4,3,14] = " in graph and "float64[7,4,3,3]" not in graph
    same(nnc.vmap(solver, in_axes=(None, 0))(A, stack), np.asarray(solver(A, stack)), 1e-10)


def test_a_long_triangular_system_is_solved_by_substitution():
    n = 200  # ones on and below the diagonal: every step of the substitution is exact
    x = np.asarray(la.solve_triangular(np.tril(np.ones((n, n))), np.arange(1.0, n + 1), lower=True))
    np.testing.assert_array_equal(x, np.ones(n))


def test_complex_systems_and_determinants_agree_with_numpy(same):
    a, b = A + 1j * S, B + 0.5j
    same(la.solve(a, b), np.linalg.solve(a, b), 1e-9)
    same(la.det(a), np.linalg.det(a), 1e-9)
    same(la.inv(a), np.linalg.inv(a), 1e-9)
    check_grads(la.solve, (a, b), order=1, rtol=1e-4)


@pytest.mark.parametrize("x", [TALL, WIDE], ids=["tall", "wide"])
def test_pseudo_inverses_agree_with_numpy_and_have_derivatives(x, same):
    same(la.pinv(x), np.linalg.pinv(x), 1e-9)
    check_grads(la.pinv, (x,), order=2, rtol=1e-4, atol=1e-4)
    same(la.pinv(SINGULAR, rtol=1e-8), np.linalg.pinv(SINGULAR, rtol=1e-8), 1e-9)


def test_the_derivative_of_a_pseudo_inverse_holds_where_singular_values_are_equal():
    t = RNG.normal(size=(3, 3))
    np.testing.assert_allclose(np.asarray(nnc.jvp(la.pinv, (np.eye(3),), (t,))[1]), -t, atol=1e-12)


# -- determinants, powers ----------------------------------------------------------------------------------------------


def test_the_gradient_of_a_determinant_holds_at_singular_matrices():
    np.testing.assert_allclose(np.asarray(nnc.grad(la.det)(SINGULAR)), [[4, -2], [-2, 1]], atol=1e-12)
    np.testing.assert_array_equal(np.asarray(nnc.grad(la.det)(np.zeros((3, 3)))), np.zeros((3, 3)))


def test_the_logarithm_of_a_singular_determinant_is_minus_infinity():
    sign, logarithm = la.slogdet(np.zeros((2, 2)))
    assert sign.item() == 0 and logarithm.item() == -np.inf


def test_the_zeroth_power_is_the_identity(same):
    same(la.matrix_power(A, 0), np.linalg.matrix_power(A, 0))
    same(la.matrix_power(np.array([[1, 1], [0, 1]]), 10), np.array([[1, 10], [0, 1]]))


@pytest.mark.parametrize("size", [0.0, 1e-8, 0.1, 3.0, 40.0])
def test_matrix_exponentials_agree_with_scipy_at_every_size(size, same):
    x = A * size / np.abs(A).sum(-2).max()
    same(la.expm(x), scipy.linalg.expm(x), 1e-8 * max(1.0, np.exp(size / 2)))
    check_grads(lambda x: la.expm(x) / np.exp(size), (x,), order=1, rtol=1e-4)


def test_matrix_exponentials_of_other_dtypes_and_beyond_the_squarings():
    generator = np.array([[0.0, -np.pi], [np.pi, 0.0]])
    for dtype, bound in ((np.float32, 1e-5), (np.float16, 4e-3), (np.complex128, 1e-12)):
        result = la.expm(generator.astype(dtype))
        assert result.dtype == dtype
        np.testing.assert_allclose(np.asarray(result), -np.eye(2), atol=bound)
    assert np.isnan(np.asarray(la.expm(generator * 4, max_squarings=1))).all()


def test_products_of_several_matrices_agree_with_numpy_and_choose_the_cheap_order(same):
    parts = [RNG.normal(size=shape) for shape in [(2, 30), (30, 3), (3, 40), (40, 1)]]
    same(la.multi_dot(parts), np.linalg.multi_dot(parts), 1e-9)
    same(la.multi_dot([parts[0][0], *parts[1:3]]), np.linalg.multi_dot([parts[0][0], *parts[1:3]]), 1e-9)
    graph = nnc.make_graph(lambda *xs: la.multi_dot(xs))(np.ones((50, 50)), np.ones((50, 50)), np.ones(50))
    assert str(graph).count("float64[50] = dot(") == 2 and "float64[50,50] = dot(" not in str(graph)


# -- factorisations ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("x", [TALL, WIDE], ids=["tall", "wide"])
def test_factors_of_rectangles_agree_with_numpy(x, same):
    for full in (False, True):
        same(tuple(la.svd(x, full_matrices=full)), tuple(np.linalg.svd(x, full_matrices=full)), 1e-9)
    same(la.svd(x, compute_uv=False), np.linalg.svd(x, compute_uv=False), 1e-9)
    for mode in ("reduced", "complete"):
        same(tuple(la.qr(x, mode=mode)), tuple(np.linalg.qr(x, mode=mode)), 1e-9)
    same(la.qr(x, "r"), np.linalg.qr(x, "r"), 1e-9)
    check_grads(la.qr, (x,), order=2, rtol=1e-4, atol=1e-4)
    check_grads(lambda x: la.svd(x, full_matrices=False), (x,), order=2, rtol=1e-4, atol=1e-4)


def test_results_have_numpys_names():
    assert la.eigh(S)._fields == ("eigenvalues", "eigenvectors")
    assert la.svd(S)._fields == ("U", "S", "Vh")
    assert la.qr(S)._fields == ("Q", "R")
    assert la.slogdet(S)._fields == ("sign", "logabsdet")
    assert isinstance(nnc.compile(la.eigh)(S), la.EighResult)


def test_the_upper_cholesky_factor_is_the_transposed_lower_one(same):
    same(la.cholesky(S, upper=True), np.linalg.cholesky(S, upper=True), 1e-10)


@pytest.mark.parametrize("function", [la.eigvalsh, la.svdvals], ids=["eigvalsh", "svdvals"])
def test_gradients_where_values_are_equal_are_finite_and_right(function):
    gradient = np.asarray(nnc.grad(lambda x: function(x).sum())(2 * np.eye(3)))
    np.testing.assert_allclose(gradient, np.eye(3), atol=1e-12)
    twice = nnc.grad(lambda x: (nnc.grad(lambda y: function(y).sum())(x) ** 2).sum())(2 * np.eye(3))
    assert np.isfinite(np.asarray(twice)).all()


def test_vectors_of_equal_values_have_a_finite_derivative():
    for function in (lambda x: la.eigh(x)[1].sum(), lambda x: la.svd(x, full_matrices=False)[0].sum()):
        assert np.isfinite(np.asarray(nnc.grad(function)(np.eye(3)))).all()
        assert np.isfinite(np.asarray(nnc.grad(function)(np.zeros((3, 3))))).all()


@pytest.mark.parametrize("shape", [(0, 0), (2, 0, 0), (0, 3, 3)])
def test_empty_matrices_and_batches_agree_with_numpy(shape, same):
    x = np.zeros(shape) + np.eye(shape[-1])
    for name in ("inv", "det", "cholesky", "eigvalsh", "pinv"):
        same(getattr(la, name)(x), getattr(np.linalg, name)(x))
    same(la.matrix_rank(x), np.linalg.matrix_rank(x) if shape[-1] else np.zeros(shape[:-2], np.int64))


def test_ranks_agree_with_numpy(same):
    x = np.stack([SINGULAR, np.eye(2), np.zeros((2, 2))])
    same(la.matrix_rank(x), np.array([1, 2, 0]))
    same(la.matrix_rank(np.diag([1.0, 1e-3]), rtol=1e-2), np.array(1))


def test_one_triangle_of_a_hermitian_matrix_is_read_where_that_is_asked_for(same):
    lower, upper = np.tril(S), np.triu(S)
    same(la.eigvalsh(lower, symmetrize_input=False), np.linalg.eigvalsh(S), 1e-10)
    same(la.eigvalsh(upper, "U", symmetrize_input=False), np.linalg.eigvalsh(S), 1e-10)
    same(tuple(la.eigh(lower, "L", False)), tuple(np.linalg.eigh(lower)), 1e-10)
    spoilt = np.where(np.tri(3, k=-1).T > 0, np.nan, S)
    same(la.eigvalsh(spoilt, symmetrize_input=False), np.linalg.eigvalsh(S), 1e-10)


def test_general_eigenvalues_and_vectors_solve_their_equation(same):
    rotation = np.array([[0.0, 1.0], [-1.0, 0.0]])
    for x in (A, rotation, A.astype(np.float32)):
        w, v = la.eig(x)
        assert w.dtype == v.dtype == (np.complex64 if x.dtype == np.float32 else np.complex128)
        np.testing.assert_allclose(x @ np.asarray(v), np.asarray(v * w[..., None, :]), atol=1e-5)
        np.testing.assert_allclose(np.asarray(la.vector_norm(v, axis=-2)), 1, atol=1e-5)
    same(nnc.compile(la.eigvals)(A), np.asarray(la.eig(A)[0]))
    check_grads(lambda x: nnp.sort(la.eigvals(x)), (A,), order=2, rtol=1e-4, atol=1e-4)
    check_grads(lambda x: nnp.abs(la.eig(x)[1]), (A,), order=1, rtol=1e-4, atol=1e-4)


def test_singular_values_of_symmetric_matrices_come_from_their_eigenvalues(same):
    x = S - 4 * np.eye(3)
    u, s, vh = la.svd(x, hermitian=True)
    same(s, np.linalg.svd(x)[1], 1e-9)
    same((u * s[..., None, :]) @ vh, x, 1e-9)
    same(la.svd(x, compute_uv=False, hermitian=True), np.linalg.svd(x, compute_uv=False), 1e-9)
    same(la.matrix_rank(x, hermitian=True), np.linalg.matrix_rank(x, hermitian=True))
    same(la.pinv(x, hermitian=True), np.linalg.pinv(x, hermitian=True), 1e-9)
    same(la.pinv(x + np.triu(x, 1) - np.tril(x, -1), hermitian=True), np.linalg.pinv(x), 1e-9)


# -- least squares, tensors, conditions --------------------------------------------------------------------------------


@pytest.mark.parametrize("x", [TALL[0], WIDE[0], np.outer([1.0, 2, 3], [1.0, 1])], ids=["tall", "wide", "rank 1"])
@pytest.mark.parametrize("columns", [(), (2,)])
def test_least_squares_agree_with_numpy(x, columns, same):
    b = np.random.default_rng(5).normal(size=(len(x), *columns))
    want = np.linalg.lstsq(x, b, rcond=None)
    expected = (want[0], np.atleast_1d(((b - x @ want[0]) ** 2).sum(0)), np.asarray(np.int64(want[2])), want[3])
    same(tuple(la.lstsq(x, b)), expected, 1e-9)
    same(tuple(nnc.compile(la.lstsq)(x, b)), expected, 1e-9)
    same(la.lstsq(x, b, numpy_resid=True).residuals, want[1], 1e-9)
    same(nnc.vmap(la.lstsq)(np.stack([x, x]), np.stack([b, b]))[0][1], want[0], 1e-9)


def test_least_squares_have_derivatives_also_where_singular_values_are_equal():
    check_grads(lambda a, b: la.lstsq(a, b)[:2], (TALL, RNG.normal(size=(2, 5, 2))), order=2, rtol=1e-4, atol=1e-4)
    check_grads(lambda a, b: la.lstsq(a, b)[:2], (np.eye(4)[:, :3], RNG.normal(size=4)), order=2, rtol=1e-4, atol=1e-4)


def test_the_rank_of_least_squares_follows_rcond():
    a = np.diag([1.0, 1e-3])
    assert la.lstsq(a, np.ones(2)).rank.item() == 2
    x, _, rank, _ = la.lstsq(a, np.ones(2), 1e-2)
    assert rank.item() == 1 and np.asarray(x).tolist() == [1, 0]
    assert la.lstsq(np.diag([1.0, 5e-16]), np.ones(2), -1).rank.item() == 2


def test_least_squares_name_their_mistakes():
    with pytest.raises(ShapeError, match=r"lstsq: a has 5 rows, b of shape \(4,\) has not"):
        la.lstsq(TALL[0], np.ones(4))
    with pytest.raises(TraceError, match="depends on the rank"):
        nnc.compile(lambda a, b: la.lstsq(a, b, numpy_resid=True))(TALL[0], np.ones(5))


def test_maps_of_tensors_are_inverted_and_solved_as_in_numpy(same):
    a = RNG.normal(size=(2, 3, 6))
    same(la.tensorinv(a), np.linalg.tensorinv(a), 1e-9)
    same(la.tensorinv(a.reshape(6, 2, 3), 1), np.linalg.tensorinv(a.reshape(6, 2, 3), 1), 1e-9)
    same(la.tensorsolve(a, np.ones((2, 3))), np.linalg.tensorsolve(a, np.ones((2, 3))), 1e-9)
    moved = a.reshape(2, 3, 2, 3).transpose(0, 2, 1, 3)
    same(la.tensorsolve(moved, np.ones((2, 3)), (1, 3)), np.linalg.tensorsolve(moved, np.ones((2, 3)), (1, 3)), 1e-9)
    check_grads(la.tensorinv, (a,), order=1, rtol=1e-4, atol=1e-4)
    with pytest.raises(ShapeError, match="have not the same number of elements"):
        la.tensorinv(a, 1)
    with pytest.raises(ArgumentError, match="ind is 0"):
        la.tensorinv(a, 0)
    with pytest.raises(ShapeError, match="is no square map"):
        la.tensorsolve(a, np.ones(2))


@pytest.mark.parametrize("p", [None, 1, -1, 2, -2, np.inf, -np.inf, "fro", "nuc"])
def test_conditions_agree_with_numpy_also_of_singular_matrices(p, same):
    x = np.stack([A[0], np.eye(3)])
    same(la.cond(x, p), np.linalg.cond(x, p), 1e-9)
    same(nnc.compile(lambda x: la.cond(x, p))(x), np.linalg.cond(x, p), 1e-9)
    assert la.cond(np.zeros((3, 3)), p).item() == np.inf
    check_grads(lambda x: la.cond(x, p), (A,), order=1, rtol=1e-4, atol=1e-4)


def test_cholesky_factors_solve_systems(same):
    for lower in (False, True):
        same(la.cho_solve(la.cho_factor(S[0], lower), B[0]), np.linalg.solve(S[0], B[0]), 1e-9)
        same(la.cho_solve(la.cho_factor(S[0] + 0j, lower), B[0]), np.linalg.solve(S[0], B[0]) + 0j, 1e-9)


# -- norms -------------------------------------------------------------------------------------------------------------

VECTOR_ORDERS = [None, 0, 1, 2, 3, 0.5, -1, -2, np.inf, -np.inf]
MATRIX_ORDERS = [None, "fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf]


@pytest.mark.parametrize("keepdims", [False, True])
def test_norms_agree_with_numpy_for_every_order(keepdims, same):
    for order in VECTOR_ORDERS:
        for axis in (0, -1):
            same(la.norm(X, order, axis, keepdims), np.linalg.norm(X, order, axis, keepdims), 1e-10)
    for order in MATRIX_ORDERS:
        for axis in ((0, 1), (2, 0), (-1, -2)):
            same(la.norm(X, order, axis, keepdims), np.linalg.norm(X, order, axis, keepdims), 1e-10)
    same(la.norm(X, np.float64(3), 1, keepdims), np.linalg.norm(X, 3, 1, keepdims), 1e-10)
    same(la.norm(X, keepdims=keepdims), np.linalg.norm(X, keepdims=keepdims), 1e-10)
    same(la.norm(X + 1j, axis=1, keepdims=keepdims), np.linalg.norm(X + 1j, axis=1, keepdims=keepdims), 1e-10)
    for order in VECTOR_ORDERS[1:]:
        want = np.linalg.vector_norm(X, axis=(0, 2), ord=order, keepdims=keepdims)
        same(la.vector_norm(X, axis=(0, 2), ord=order, keepdims=keepdims), want, 1e-10)
    for order in MATRIX_ORDERS[1:]:
        want = np.linalg.matrix_norm(X, ord=order, keepdims=keepdims)
        same(la.matrix_norm(X, ord=order, keepdims=keepdims), want, 1e-10)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (2, 0, 3)])
def test_norms_of_nothing_are_0_and_least_ones_do_not_exist(shape, same):
    for order in ("fro", "nuc", 1, 2, np.inf):
        same(la.matrix_norm(np.zeros(shape), ord=order), np.zeros(shape[:-2]))
    with pytest.raises(ShapeError, match="over an axis of size 0"):
        la.matrix_norm(np.zeros(shape), ord=-2)


@pytest.mark.parametrize("order", [1, 2, 3, 1.5, np.inf])
def test_norms_have_derivatives_also_at_zero(order):
    check_grads(lambda x: la.norm(x, order, axis=1), (X,), order=2, rtol=1e-4, atol=1e-4)
    assert not np.asarray(nnc.grad(lambda x: la.norm(x, order))(np.zeros(3))).any()
    second = nnc.jacfwd(nnc.grad(lambda x: la.norm(x, order)))(np.array([0.0, 0.0]))
    assert np.isfinite(np.asarray(second)).all()


@pytest.mark.parametrize("order", ["fro", "nuc", 1, 2, np.inf])
def test_matrix_norms_have_finite_derivatives_at_zero(order):
    check_grads(lambda x: la.matrix_norm(x, ord=order), (TALL,), order=1, rtol=1e-4, atol=1e-4)
    assert np.isfinite(np.asarray(nnc.grad(lambda x: la.matrix_norm(x, ord=order))(np.zeros((3, 2))))).all()


# -- dtypes, mistakes --------------------------------------------------------------------------------------------------


def test_integers_become_float32_and_16_bit_floats_stay(same):
    x = np.array([[4, 2], [2, 5]])
    same(la.cholesky(x), np.linalg.cholesky(x))
    assert la.inv(x).dtype == np.float32 and la.norm(x).dtype == np.float32
    half = la.solve(x.astype(np.float16), np.ones(2, np.float16))
    assert half.dtype == np.float16
    np.testing.assert_allclose(np.asarray(half), np.linalg.solve(x, np.ones(2)), atol=1e-3)


def test_functions_that_need_square_matrices_say_so():
    for name in ("cholesky", "inv", "det", "slogdet", "eigh", "eigvalsh", "expm"):
        with pytest.raises(ShapeError, match=f"{name}: x must be square, its matrices are 5 by 3"):
            getattr(la, name)(TALL)
        with pytest.raises(ShapeError, match=f"{name}: x must be a matrix, it has 1 axes"):
            getattr(la, name)(np.ones(3))
    with pytest.raises(ShapeError, match="matrix_power: x must be square"):
        la.matrix_power(TALL, 2)


def test_matrices_that_are_not_positive_definite_or_singular_raise_also_compiled():
    for run in (la.cholesky, nnc.compile(la.cholesky)):
        with pytest.raises(LinAlgError, match=r"cholesky: a matrix is not positive definite"):
            run(-np.eye(2))
    for run in (la.inv, nnc.compile(la.inv)):
        with pytest.raises(LinAlgError, match=r"inv \(solve with the identity\): a matrix is singular"):
            run(SINGULAR)
    with pytest.raises(LinAlgError, match="triangular_solve: a matrix is singular"):
        la.solve_triangular(np.zeros((2, 2)), np.ones(2))
    with pytest.raises(LinAlgError, match="svd: LAPACK's iteration did not converge"):
        la.svd(np.full((2, 2), np.nan))


def test_right_hand_sides_that_do_not_fit_are_named():
    with pytest.raises(ShapeError, match=r"solve: a has 3 rows, b of shape \(2,\) has not"):
        la.solve(A, np.ones(2))
    with pytest.raises(ShapeError, match="solve: the leading axes do not broadcast"):
        la.solve(A, np.ones((3, 3, 1)))
    with pytest.raises(ShapeError, match="solve_triangular: a must be square"):
        la.solve_triangular(TALL, np.ones(3))


def test_other_mistakes_name_the_argument():
    with pytest.raises(ArgumentError, match="norm: vectors have no norm of order 'fro'"):
        la.norm(np.ones(3), "fro")
    with pytest.raises(ArgumentError, match="norm: matrices have no norm of order 3"):
        la.norm(np.ones((3, 3)), 3)
    with pytest.raises(ArgumentError, match="norm: 3 axes are neither vectors nor matrices"):
        la.norm(X, 2)
    with pytest.raises(ArgumentError, match="solve_triangular: trans is 'X'"):
        la.solve_triangular(A, B, "X")
    with pytest.raises(ArgumentTypeError, match=r"it has no argument 'upper'(?s:.)*write lower=not upper"):
        la.solve_triangular(A, B, upper=True)
    with pytest.raises(ArgumentTypeError, match=r"it has no argument 'rcond'(?s:.)*write rtol="):
        la.pinv(A, rcond=1e-3)
    with pytest.raises(ArgumentError, match="qr: mode is 'raw'"):
        la.qr(X, mode="raw")
    with pytest.raises(ArgumentTypeError, match="matrix_power: n is 0.5"):
        la.matrix_power(A, 0.5)
    with pytest.raises(ArgumentError, match="multi_dot: it got 1 arrays"):
        la.multi_dot([A])
    with pytest.raises(ArgumentTypeError, match=r"pinv: rtol is \[\]"):
        la.pinv(A, rtol=[])
    with pytest.raises(ArgumentError, match="eigh: UPLO is 'X'"):
        la.eigh(A, "X")


def test_factors_that_are_not_unique_have_no_derivative_and_name_the_way_out():
    with pytest.raises(UnsupportedError, match=r"full_matrices=False"):
        nnc.grad(lambda x: la.svd(x)[0].sum())(TALL)
    with pytest.raises(UnsupportedError, match='mode="reduced"'):
        nnc.grad(lambda x: la.qr(x, mode="complete")[0].sum())(TALL)


def test_each_matrix_may_have_a_tolerance_of_its_own():
    rng = np.random.default_rng(3)
    x = np.stack([rng.normal(size=(4, 1)) @ rng.normal(size=(1, 3)) + 1e-3 * rng.normal(size=(4, 3)) for _ in range(3)])
    rtol = np.array([0.1, 1e-9, 1e-9])
    want = np.linalg.pinv(x, rtol=rtol)
    for found in (
        la.pinv(x, rtol=rtol), la.pinv(x, rtol=nnp.asarray(rtol)), nnc.compile(la.pinv)(x, rtol), nnc.vmap(la.pinv)(x, rtol),
    ):  # fmt: skip
        np.testing.assert_allclose(found, want, rtol=1e-6)
    np.testing.assert_allclose(la.pinv(x, rtol=np.array([0.1])), np.linalg.pinv(x, rtol=0.1), rtol=1e-6)
    np.testing.assert_allclose(la.pinv(x[0], rtol=nnp.asarray(0.1)), np.linalg.pinv(x[0], rtol=0.1), rtol=1e-6)
    np.testing.assert_allclose(nnc.compile(la.pinv)(x[0], 0.1), np.linalg.pinv(x[0], rtol=0.1), rtol=1e-6)
    assert la.matrix_rank(x, rtol=rtol).tolist() == [1, 3, 3] == nnc.compile(la.matrix_rank)(x, rtol).tolist()
    assert la.pinv(np.ones((2, 0, 3)), rtol=np.ones(2)).shape == (2, 3, 0)
    check_grads(
        lambda x: la.pinv(x, rtol=np.full(2, 1e-9)), (rng.normal(size=(2, 3, 3)),), order=2, rtol=1e-4, atol=1e-4
    )
    for wrong, kind in ((np.ones(3) * 1j, DTypeError), (np.ones(4), ShapeError), (np.ones((2, 3)), ShapeError)):
        with pytest.raises(kind, match=r"rtol|broadcast"):
            la.pinv(x, rtol=wrong)


@pytest.mark.parametrize("n", [2, 8])
def test_a_zero_on_the_diagonal_is_refused_beside_a_nan(n: int) -> None:
    a = np.eye(n, dtype=np.float32)
    a[0, 0], a[-1, -1] = np.nan, 0
    with pytest.raises(LinAlgError, match="triangular_solve"):
        nnp.linalg.solve_triangular(a, a)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("n", "at"), [(1, 0), (2, 1), (9, 4), (40, 39), (40, 33), (70, 48)])
def test_a_pivot_of_exactly_0_is_not_positive(n: int, at: int, dtype: str) -> None:
    matrix = np.eye(n, dtype=dtype)
    for run in (nnp.linalg.cholesky, nnc.compile(nnp.linalg.cholesky)):
        for pivot in (np.finfo(dtype).tiny, 1.0):
            matrix[at, at] = pivot
            assert float(run(matrix)[at, at]) == np.sqrt(matrix[at, at])
        for pivot in (0.0, -0.0, -1.0):
            matrix[at, at] = pivot
            with pytest.raises(nnc.errors.LinAlgError, match="not positive definite"):
                run(matrix)
