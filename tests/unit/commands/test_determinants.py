"""Derivatives of determinants, which are polynomials: right at singular matrices, too, of every order."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.commands import determinants
from nnc.errors import LinAlgError
from nnc.graph import reference

NDArray = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)


def leibniz(x: Any) -> Any:
    """The determinant as the sum of products over permutations: no division, so every derivative is right."""
    n = x.shape[-1]
    total = 0.0 * nnp.sum(x)
    for order in itertools.permutations(range(n)):
        swaps = sum(a > b for a, b in itertools.combinations(order, 2))
        product: Any = 1.0
        for i, j in enumerate(order):
            product = product * x[..., i, j]
        total = total + (-1) ** swaps * product
    return total


def of_rank(n: int, rank: int, complex_: bool = False) -> NDArray:
    left, right = RNG.normal(size=(2, n, rank)) + (1j * RNG.normal(size=(2, n, rank)) if complex_ else 0)
    return left @ right.T


MATRICES = {
    **{f"rank {rank} of {n}": of_rank(n, rank) for n in (1, 2, 3, 4) for rank in range(n + 1)},
    "zeros": np.zeros((3, 3)),
    "nearly singular": of_rank(3, 2) + 1e-13 * RNG.normal(size=(3, 3)),
    "scaled": np.diag([1e-200, 1.0, 1e150]) @ RNG.normal(size=(3, 3)),
    "equal singular values": np.eye(4),
    "batch": np.stack([of_rank(3, 3), of_rank(3, 1), np.zeros((3, 3))]),
}


def derivative_of_order(f: Callable[[Any], Any], order: int) -> Callable[[Any], Any]:
    for i in range(order):
        f = nnc.jacfwd(f) if i % 2 else nnc.jacrev(f)
    return f


@pytest.mark.parametrize(
    ("name", "order"),
    [(name, order) for name in MATRICES for order in (1, 2, 3) if order < 3 or MATRICES[name].size < 10],
)
def test_derivatives_of_det_are_those_of_the_polynomial(name: str, order: int) -> None:
    x = MATRICES[name]
    wanted = np.asarray(derivative_of_order(leibniz, order)(x))
    got = derivative_of_order(nnp.linalg.det, order)
    natural = np.linalg.norm(x) ** max(x.shape[-1] - order, 0)  # of sums that cancel
    scale = max(np.max(np.abs(wanted)), natural if name != "scaled" else 0.0, 1e-300)
    np.testing.assert_allclose(np.asarray(got(x)) / scale, wanted / scale, atol=1e-12)
    if order == 2:
        np.testing.assert_allclose(np.asarray(nnc.compile(got)(x)) / scale, wanted / scale, atol=1e-12)


def along(f: Callable[[Any], Any], ts: Any) -> Callable[[Any], Any]:
    """The derivative of f along one direction after the other."""
    for t in ts:
        f = lambda x, f=f, t=t: nnc.jvp(f, (x,), (t,))[1]
    return f


def test_the_fourth_derivative_is_right_where_no_product_is_left() -> None:
    x, ts = np.zeros((4, 4)), RNG.normal(size=(4, 4, 4))
    np.testing.assert_allclose(float(along(nnp.linalg.det, ts)(x)), float(along(leibniz, ts)(x)), rtol=1e-12)
    np.testing.assert_allclose(float(along(nnp.linalg.det, [*ts, ts[0]])(x)), 0, atol=1e-12)


def test_the_gradient_of_a_large_float32_matrix_does_not_vanish() -> None:
    q = np.linalg.qr(RNG.normal(size=(200, 200)))[0]
    got = np.asarray(nnc.grad(nnp.linalg.det)(q.astype(np.float32)))  # of an orthogonal one it is det · q
    np.testing.assert_allclose(got, np.linalg.det(q) * q, atol=1e-5)


def test_the_hessian_of_a_complex_singular_matrix_is_right() -> None:
    x, t, v = of_rank(3, 1, True), of_rank(3, 3, True), of_rank(3, 3, True)
    got, wanted = (along(f, (t, v))(x) for f in (nnp.linalg.det, leibniz))
    np.testing.assert_allclose(np.asarray(got), np.asarray(wanted), atol=1e-12)


def test_a_loop_over_vmapped_hessians_agrees() -> None:
    batch = MATRICES["batch"]
    hessian = nnc.hessian(nnp.linalg.det)
    each = np.stack([np.asarray(hessian(x)) for x in batch])
    np.testing.assert_allclose(np.asarray(nnc.vmap(hessian)(batch)), each, atol=1e-12)
    mixed = lambda x, t: nnc.jvp(nnc.grad(nnp.linalg.det), (x,), (t,))[1]  # tangents alone are batched
    got = nnc.vmap(mixed, in_axes=(None, 0))(batch[1], batch)
    np.testing.assert_allclose(np.asarray(got), np.stack([mixed(batch[1], t) for t in batch]), atol=1e-12)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_derivatives_of_slogdet_are_those_of_its_logarithm(order: int) -> None:
    for x in (of_rank(3, 3), np.diag([1.0, -2.0, 3.0]), np.eye(2)):
        logarithm = derivative_of_order(lambda x: nnp.log(abs(leibniz(x))), order)
        got = np.asarray(derivative_of_order(lambda x: nnp.linalg.slogdet(x)[1], order)(x))
        wanted = np.asarray(logarithm(x))
        np.testing.assert_allclose(got, wanted, rtol=1e-8, atol=1e-8 * np.abs(wanted).max())
    with pytest.raises(LinAlgError, match="singular"):
        nnc.grad(lambda x: nnp.linalg.slogdet(x)[1])(np.zeros((2, 2)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
def test_gradients_by_the_inverse_are_those_by_singular_values(dtype: Any) -> None:
    """A batch of matrices from well conditioned to singular; each is computed in the way that is right for it."""
    for n in (1, 2, 3, 5, 17):
        drawn = RNG.normal(size=(2, 7, n, n))
        q, _ = np.linalg.qr(drawn[0] + 1j * drawn[1] if np.dtype(dtype).kind == "c" else drawn[0])
        x = q * np.asarray([1, 0.5, 1e-3, 1e-6, 1e-12, 1e-30, 0])[:, None, None] ** (np.arange(n) > 0)
        x = x.astype(dtype)
        for some in (x, x[:-1], x[:1], x[0]):  # NumPy refuses to invert exactly singular ones
            wanted = determinants._by_singular_values(some.astype(np.result_type(dtype, np.float64)))
            got = reference[determinants.cofactor](some)
            scale = np.abs(wanted).max((-2, -1), keepdims=True) + np.finfo(dtype).tiny
            assert (
                got.dtype == dtype and np.abs((got - wanted) / scale).max() < 64 * n * np.finfo(dtype).eps ** 0.5 / 16
            )


def test_gradients_of_determinants_that_leave_the_range_of_their_dtype_do_not() -> None:
    x = np.diag([1e-30, 1e-30, 1e20, 1e20]).astype(np.float32)  # the determinant is 1e-20, that of the half 1e-60
    np.testing.assert_allclose(
        np.diag(np.asarray(nnc.grad(nnp.linalg.det)(x))), [1e10, 1e10, 1e-40, 1e-40], rtol=1e-5, atol=1e-38
    )
