"""Linear algebra of complex matrices: values against NumPy, derivatives against differences, conventions against JAX.

Factors are fixed but for phases, so derivatives are checked of functions that do not see those.
"""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg

import nnc
import nnc.numpy as nnp
from nnc.testing import check_grads

la = nnp.linalg
RNG = np.random.default_rng(41)


def noise(*shape):
    return RNG.normal(size=shape) + 1j * RNG.normal(size=shape)


A = noise(2, 3, 3) + 2 * np.eye(3)
H = A @ A.swapaxes(-1, -2).conj() + np.eye(3)
TALL, WIDE = noise(2, 4, 3), noise(2, 3, 4)
C, B = noise(2, 3, 3), noise(2, 3, 2)


def adjoint(x):
    return nnp.conj(nnp.matrix_transpose(x))


def size(x):
    return nnp.abs(x) ** 2


def function_of_hermitian(x):
    w, v = la.eigh(x)
    return (v * nnp.log(w)[..., None, :]) @ adjoint(v)


def function_of_singular(x):
    u, s, vh = la.svd(x, full_matrices=False)
    return (u * nnp.sin(s)[..., None, :]) @ vh


def function_of_any(x):
    w, v = la.eig(x)
    return (v * nnp.exp(w)[..., None, :]) @ la.inv(v)


def projections(x):
    q, r = la.qr(x)
    return q @ adjoint(q), adjoint(r) @ r, size(r)


VALUES = {
    "cholesky": (la.cholesky, np.linalg.cholesky, H),
    "upper cholesky": (lambda x: la.cholesky(x, upper=True), lambda x: np.linalg.cholesky(x, upper=True), H),
    "eigvalsh": (la.eigvalsh, np.linalg.eigvalsh, H),
    "eigh": (lambda x: tuple(la.eigh(x)), lambda x: tuple(np.linalg.eigh(x)), H),
    "svd": (lambda x: tuple(la.svd(x)), lambda x: tuple(np.linalg.svd(x)), TALL),
    "reduced svd": (lambda x: tuple(la.svd(x, False)), lambda x: tuple(np.linalg.svd(x, False)), WIDE),
    "svdvals": (la.svdvals, np.linalg.svdvals, WIDE),
    "qr": (lambda x: tuple(la.qr(x)), lambda x: tuple(np.linalg.qr(x)), TALL),
    "wide qr": (lambda x: tuple(la.qr(x)), lambda x: tuple(np.linalg.qr(x)), WIDE),
    "complete qr": (lambda x: tuple(la.qr(x, mode="complete")), lambda x: tuple(np.linalg.qr(x, "complete")), TALL),
    "r": (lambda x: la.qr(x, mode="r"), lambda x: np.linalg.qr(x, "r"), TALL),
    "slogdet": (lambda x: tuple(la.slogdet(x)), lambda x: tuple(np.linalg.slogdet(x)), A),
    "det": (la.det, np.linalg.det, A),
    "inv": (la.inv, np.linalg.inv, A),
    "pinv": (la.pinv, np.linalg.pinv, TALL),
    "solve": (lambda x: la.solve(x, B), lambda x: np.linalg.solve(x, B), A),
    "matrix_power": (lambda x: la.matrix_power(x, -3), lambda x: np.linalg.matrix_power(x, -3), A),
    "expm": (lambda x: la.expm(x / 4), lambda x: scipy.linalg.expm(x / 4), A),
    "matrix_rank": (la.matrix_rank, np.linalg.matrix_rank, TALL),
    "cond": (la.cond, np.linalg.cond, TALL),
    "cond 1": (lambda x: la.cond(x, 1), lambda x: np.linalg.cond(x, 1), A),
    "nuc": (lambda x: la.matrix_norm(x, ord="nuc"), lambda x: np.linalg.matrix_norm(x, ord="nuc"), TALL),
    "fro": (la.matrix_norm, np.linalg.matrix_norm, TALL),
    "vector 3": (lambda x: la.vector_norm(x, ord=3), lambda x: np.linalg.vector_norm(x, ord=3), TALL),
    "eigvals": (lambda x: nnp.sort(la.eigvals(x)), lambda x: np.sort(np.linalg.eigvals(x)), A),
}


@pytest.mark.parametrize("name", VALUES)
def test_values_agree_with_numpy_at_once_compiled_and_mapped(name, same):
    ours, theirs, x = VALUES[name]
    same(ours(x), theirs(x), 1e-9)
    same(nnc.compile(ours)(x), theirs(x), 1e-9)
    if name not in ("solve", "vector 3"):
        same(nnc.vmap(ours)(x), theirs(x), 1e-9)
    narrow = nnc.tree.leaves(ours(x.astype(np.complex64)))
    for found, want in zip(narrow, nnc.tree.leaves(theirs(x.astype(np.complex64))), strict=True):
        assert found.dtype == want.dtype


# functions that are not changed by the phases that factors leave open
DERIVATIVES = {
    "cholesky": (la.cholesky, H),
    "upper cholesky": (lambda x: la.cholesky(x, upper=True), H),
    "eigvalsh": (la.eigvalsh, H),
    "function of a Hermitian matrix": (function_of_hermitian, H),
    "sizes of eigenvectors": (lambda x: size(la.eigh(x)[1]), H),
    "svdvals": (la.svdvals, TALL),
    "singular function, tall": (function_of_singular, TALL),
    "singular function, wide": (function_of_singular, WIDE),
    "singular function, square": (function_of_singular, A),
    "sizes of singular vectors": (lambda x: (size(la.svd(x, False)[0]), size(la.svd(x, False)[2])), TALL),
    "qr, tall": (projections, TALL),
    "qr, wide": (projections, WIDE),
    "qr": (lambda x: tuple(la.qr(x)), A),
    "slogdet": (lambda x: tuple(la.slogdet(x)), A),
    "det": (la.det, A),
    "inv": (la.inv, A),
    "pinv, tall": (la.pinv, TALL),
    "pinv, wide": (la.pinv, WIDE),
    "matrix_power": (lambda x: la.matrix_power(x, 3), A),
    "expm": (lambda x: la.expm(x / 4), A),
    "eigvals": (lambda x: nnp.sort(la.eigvals(x)), A),
    "function of any matrix": (function_of_any, A),
    "sizes of general eigenvectors": (lambda x: size(la.eig(x)[1]), A),
    "nuc": (lambda x: la.matrix_norm(x, ord="nuc"), TALL),
    "spectral": (lambda x: la.matrix_norm(x, ord=2), TALL),
    "rows": (lambda x: la.matrix_norm(x, ord=1), TALL),
    "vector 3": (lambda x: la.vector_norm(x, ord=3, axis=-1), TALL),
    "cond": (la.cond, A),
}


@pytest.mark.parametrize("name", DERIVATIVES)
def test_derivatives_agree_with_differences_in_real_and_imaginary_directions(name):
    function, x = DERIVATIVES[name]
    check_grads(function, (x[0] / 2,), order=2, rtol=1e-4, atol=1e-4)
    check_grads(function, (x,), order=1, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "name", ["cholesky", "function of a Hermitian matrix", "singular function, tall", "qr", "slogdet"]
)
def test_compiled_and_mapped_gradients_agree_with_those_at_once(name, same):
    function, x = DERIVATIVES[name]

    def loss(y):
        return sum(nnp.sum(size(leaf) + nnp.real(leaf)) for leaf in nnc.tree.leaves(function(y)))

    gradient = np.asarray(nnc.grad(loss)(x))
    same(nnc.compile(nnc.grad(loss))(x), gradient, 1e-9)
    same(nnc.vmap(nnc.grad(loss))(x), gradient, 1e-9)


@pytest.mark.parametrize("trans", [0, 1, 2])
@pytest.mark.parametrize("lower", [False, True])
def test_triangular_systems_agree_with_scipy_also_conjugated(trans, lower, same):
    ours = la.solve_triangular(A[0], B[0], trans, lower)
    same(ours, scipy.linalg.solve_triangular(A[0], B[0], trans, lower), 1e-9)
    same(la.solve_triangular(A[0], B[0], "NTC"[trans], lower=lower), np.asarray(ours))
    check_grads(lambda a, b: la.solve_triangular(a, b, trans, lower), (A, B), order=1, rtol=1e-5, atol=1e-5)


def test_least_squares_of_complex_systems_agree_with_numpy(same):
    x, residuals, rank, s = np.linalg.lstsq(TALL[0], C[0, 0, 0] * np.ones((4, 2)), rcond=None)
    same(tuple(la.lstsq(TALL[0], C[0, 0, 0] * np.ones((4, 2)))), (x, residuals, np.asarray(np.int64(rank)), s), 1e-9)
    check_grads(lambda a, b: la.lstsq(a, b)[:2], (TALL, noise(2, 4, 2)), order=1, rtol=1e-4, atol=1e-4)


def holomorphic_losses(library, linalg):
    return {
        "det": lambda x: linalg.det(x),
        "inv": lambda x: library.sum(linalg.inv(x) * C[0]),
        "solve": lambda x: library.sum(linalg.solve(x, B[0])),
        "power": lambda x: linalg.matrix_power(x, 3)[0, 1],
    }


def real_losses(library, linalg):
    def loss(y):
        return library.sum(library.abs(y - C[0, : y.shape[0], : y.shape[1]]) ** 2)

    return {
        "cholesky": (lambda x: loss(linalg.cholesky(x)), H[0]),
        "eigvalsh": (lambda x: library.sum(linalg.eigvalsh(x) ** 3), H[0]),
        "r": (lambda x: loss(linalg.qr(x)[1]), A[0]),
        "q": (lambda x: loss(linalg.qr(x)[0]), A[0]),
        "nuc": (lambda x: linalg.norm(x, "nuc"), TALL[0]),
        "svd": (lambda x: loss(linalg.svd(x)[0] @ linalg.svd(x)[2]), A[0]),
        "logabsdet": (lambda x: linalg.slogdet(x)[1], A[0]),
        "sign": (lambda x: library.imag(linalg.slogdet(x)[0]), A[0]),
        "eigvals": (lambda x: library.sum(library.abs(linalg.eigvals(x))), A[0]),
        "pinv": (lambda x: loss(linalg.pinv(x)[:, :3]), TALL[0]),
        "vector norm": (lambda x: linalg.norm(x[0], 3), TALL[0]),
    }


@pytest.mark.parametrize("name", list(holomorphic_losses(nnp, la)))
def test_holomorphic_gradients_are_complex_derivatives(name):
    function = holomorphic_losses(nnp, la)[name]
    gradient = np.asarray(nnc.grad(function, holomorphic=True)(A[0]))
    step, t = 1e-6, noise(3, 3)
    difference = (np.asarray(function(A[0] + step * t)) - np.asarray(function(A[0] - step * t))) / (2 * step)
    np.testing.assert_allclose(np.sum(gradient * t), difference, rtol=1e-6)


def test_gradients_follow_the_convention_of_jax(same):
    jax = pytest.importorskip("jax")
    with jax.enable_x64(True):
        theirs = real_losses(jax.numpy, jax.numpy.linalg)
        for name, (function, x) in real_losses(nnp, la).items():
            want = np.asarray(jax.grad(theirs[name][0])(x))
            np.testing.assert_allclose(np.asarray(nnc.grad(function)(x)), want, rtol=1e-7, atol=1e-9, err_msg=name)
