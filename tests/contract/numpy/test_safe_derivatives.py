"""Derivatives where a formula has a pole or a tie but the function has a derivative, or a documented one.

One table of functions of one array, each with its gradient; every row is run in reverse and forward mode, compiled, mapped, and
to second order.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp

la = nnp.linalg
EYE = np.eye(3)
ROTATION = np.linalg.qr(np.random.default_rng(3).normal(size=(3, 3)))[0]
WEIGHTS = np.random.default_rng(4).normal(size=(3, 3))
SYMMETRIC = (WEIGHTS + WEIGHTS.T) / 2
TIED = ROTATION @ np.diag([1.0, 1.0, 3.0]) @ ROTATION.T  # equal eigenvalues, up to rounding
TALL = np.linalg.qr(np.random.default_rng(5).normal(size=(4, 3)))[0]  # equal singular values
ANY = None  # only finite
POLE = "not finite, or not defined"


def safe_projection(x):
    """On the space of the two smaller eigenvalues."""
    v = la.eigh(x)[1][:, :2]
    return nnp.sum(v @ v.T * WEIGHTS)


def derivative_of_projection(w, v):
    """Its gradient by perturbation theory."""
    inner = v.T @ SYMMETRIC @ v * 2
    shares = np.zeros((3, 3))
    for i in (0, 1):
        shares[i, 2] = shares[2, i] = inner[i, 2] / (w[i] - w[2]) / 2
    return v @ shares @ v.T


def polar(x):
    u, _, vh = la.svd(x, full_matrices=False)
    return nnp.sum(u @ vh * WEIGHTS)


def antisymmetric(x):
    return (x - x.T) / 2


# name: function, point, gradient, Hessian
TABLE: dict[str, tuple[Any, Any, Any, Any]] = {
    # branches that are not taken
    "where sqrt": (lambda x: nnp.sum(nnp.where(x > 0, nnp.sqrt(x), 0)), [0.0, -1, 4], [0, 0, 0.25], [0, 0, -1 / 32]),
    "where log": (lambda x: nnp.sum(nnp.where(x > 0, nnp.log(x), 0)), [0.0, -1, 2], [0, 0, 0.5], [0, 0, -0.25]),
    "where x log x": (lambda x: nnp.sum(nnp.where(x > 0, x * nnp.log(x), 0)), [0.0, -1, 1], [0, 0, 1], [0, 0, 1]),
    "where division": (lambda x: nnp.sum(nnp.where(x != 0, 1 / x, 0)), [0.0, 2], [0, -0.25], [0, 0.25]),
    "where sin(x)/x": (lambda x: nnp.sum(nnp.where(x == 0, 1, nnp.sin(x) / x)), [0.0], [0], [0]),
    "where power": (lambda x: nnp.sum(nnp.where(x > 0, x**0.5, 0)), [0.0, -1, 4], [0, 0, 0.25], [0, 0, -1 / 32]),
    "where variable power": (lambda x: nnp.sum(nnp.where(x > 0, x**x, 0)), [0.0, -1, 1], [0, 0, 1], [0, 0, 2]),
    "where arccos": (lambda x: nnp.sum(nnp.where(abs(x) < 1, nnp.acos(x), 0)), [1.0, -1, 3, 0], [0, 0, 0, -1], [0, 0, 0, 0]),
    "where atan2": (lambda x: nnp.sum(nnp.where(x == 0, 0, nnp.atan2(x, 0 * x))), [0.0], [0], [0]),
    "where overflow": (lambda x: nnp.sum(nnp.where(x < 9, nnp.exp(x), 0)), [0.0, 1e4], [1, 0], [1, 0]),
    "where rsqrt": (lambda x: nnp.sum(nnp.where(x > 0, 1 / nnp.sqrt(x), 0)), [0.0, 1], [0, -0.5], [0, 0.75]),
    "where norm": (lambda x: nnp.where(x[0] > 0, x[0] / la.norm(x), 0), [0.0, 0], [0, 0], [[0, 0], [0, 0]]),
    "where log1p, expm1": (lambda x: nnp.sum(nnp.where(x > -1, nnp.log1p(x), 0)), [-1.0, -2, 0], [0, 0, 1], [0, 0, -1]),
    "where atanh, acosh": (
        lambda x: nnp.sum(nnp.where(x < 1, nnp.atanh(x), nnp.where(x > 1, nnp.acosh(x), 0))), [1.0, 0], [0, 1], [0, 0],
    ),
    "where solve": (lambda x: nnp.where(x[0] > 0, 1 / la.det(nnp.diag(x)), 0.0), [0.0, 1], [0, 0], POLE),
    "sqrt of where": (lambda x: nnp.sum(nnp.sqrt(nnp.where(x > 0, x, 0))), [-1.0, 4], [0, 0.25], [0, -1 / 32]),
    "sqrt of maximum": (lambda x: nnp.sum(nnp.sqrt(nnp.maximum(x, 0))), [-1.0, 4], [0, 0.25], [0, -1 / 32]),
    "sqrt of clip": (lambda x: nnp.sum(nnp.sqrt(nnp.clip(x, 0, 9))), [-1.0, 4], [0, 0.25], [0, -1 / 32]),
    # norms
    "norm at 0": (la.norm, [0.0, 0], [0, 0], ANY),
    "1-norm at 0": (lambda x: la.norm(x, 1), [0.0, -2], [0, -1], [0, 0]),
    "3-norm at 0": (lambda x: la.norm(x, 3), [0.0, 0], [0, 0], ANY),
    "3-norm with a 0": (lambda x: la.norm(x, 3), [0.0, -2], [0, -1], [0, 0]),
    "1.5-norm with a 0": (lambda x: la.norm(x, 1.5), [0.0, -2], [0, -1], POLE),
    "largest of 0": (lambda x: la.norm(x, np.inf), [0.0, 0], [0, 0], ANY),
    "norm of one row at 0": (lambda x: nnp.sum(la.norm(x, axis=1)), [[0.0, 0], [3, 4]], [[0, 0], [0.6, 0.8]], ANY),
    "Frobenius norm at 0": (la.matrix_norm, 0 * EYE, 0 * EYE, ANY),
    "nuclear norm at 0": (lambda x: la.matrix_norm(x, ord="nuc"), 0 * EYE, ANY, ANY),
    "spectral norm at 0": (lambda x: la.matrix_norm(x, ord=2), 0 * EYE, ANY, ANY),
    "hypot at 0": (lambda x: nnp.hypot(x[0], x[1]), [0.0, 0], [0, 0], ANY),
    "hypot": (lambda x: nnp.hypot(x[0], x[1]), [3.0, 4], [0.6, 0.8], ANY),
    "abs at 0": (lambda x: nnp.sum(nnp.abs(x)), [0.0, -1], [0, -1], [0, 0]),
    # powers at 0
    "x**2": (lambda x: nnp.sum(x**2), [0.0], [0], [2]),
    "x**2.0": (lambda x: nnp.sum(x ** np.float64(2)), [0.0, -3], [0, -6], [2, 2]),
    "x**1": (lambda x: nnp.sum(x ** nnp.asarray([1.0])), [0.0], [1], [0]),
    "x**0": (lambda x: nnp.sum(x ** nnp.asarray([0.0])), [0.0], [0], [0]),
    "x**3": (lambda x: nnp.sum(x ** nnp.asarray([3.0])), [0.0, -1], [0, 3], [0, -6]),
    "x**1.5": (lambda x: nnp.sum(x**1.5), [0.0, 4], [0, 3], POLE),
    "x**2.5": (lambda x: nnp.sum(x**2.5), [0.0], [0], [0]),
    "0**y": (lambda y: nnp.sum(nnp.asarray(0.0, dtype="float64") ** y), [2.0, 0.5], [0, 0], [0, 0]),
    "x**y": (lambda z: z[0] ** z[1], [0.0, 2], [0, 0], [[2, 0], [0, 0]]),
    "x**-1 not taken": (lambda x: nnp.sum(nnp.where(x != 0, x**-1.0, 0)), [0.0, 1], [0, -1], [0, 2]),
    "prod with zeros": (nnp.prod, [0.0, 2, 3], [6, 0, 0], [[0, 3, 2], [3, 0, 0], [2, 0, 0]]),
    "prod with two zeros": (nnp.prod, [0.0, 0, 3], [0, 0, 0], [[0, 3, 0], [3, 0, 0], [0, 0, 0]]),
    "cumprod with zeros": (lambda x: nnp.sum(nnp.cumulative_prod(x)), [0.0, 2], [3, 0], [[0, 1], [1, 0]]),
    "sinc": (lambda x: nnp.sum(nnp.sinc(x)), [0.0], [0], [-np.pi**2 / 3]),
    "logaddexp of -inf": (lambda x: nnp.logaddexp(x[0], -np.inf), [1.0], [1], [[0]]),
    "logaddexp of equal ones": (lambda x: nnp.logaddexp(x[0], x[1]), [2.0, 2], [0.5, 0.5], [[0.25, -0.25], [-0.25, 0.25]]),
    "softplus at 0": (lambda x: nnp.sum(nnc.nn.softplus(x)), [0.0, -0.0], [0.5, 0.5], [0.25, 0.25]),
    "xlogy at 0": (lambda y: nnp.sum(nnp.xlogy(0.0, y)), [0.0, 2], [0, 0], [0, 0]),
    # ties are shared by all, but sorts keep the order
    "max of equal ones": (nnp.max, [2.0, 2, 1], [0.5, 0.5, 0], ANY),
    "min of equal ones": (nnp.min, [1.0, 2, 1, 1], [1 / 3, 0, 1 / 3, 1 / 3], ANY),
    "maximum": (lambda x: nnp.sum(nnp.maximum(x, 1)), [1.0, 2, 0], [0.5, 1, 0], [0, 0, 0]),
    "minimum": (lambda x: nnp.sum(nnp.minimum(x, 1)), [1.0, 2, 0], [0.5, 0, 1], [0, 0, 0]),
    "infinite equal ones": (nnp.max, [np.inf, np.inf], [0.5, 0.5], ANY),
    "sort": (lambda x: nnp.sum(nnp.sort(x) * np.arange(3)), [1.0, 1, 0], [1, 2, 0], ANY),
    "sort downwards": (lambda x: nnp.sum(nnp.sort(x, descending=True) * np.arange(3)), [1.0, 1, 0], [0, 1, 2], ANY),
    "top_k": (lambda x: nnp.sum(nnp.top_k(x, 2)[0] * np.arange(2)), [1.0, 1, 0], [0, 1, 0], ANY),
    # equal eigenvalues and singular values
    "trace of eigenvalues": (lambda x: nnp.sum(la.eigvalsh(x)), 2 * EYE, EYE, ANY),
    "sum of squared eigenvalues": (lambda x: nnp.sum(la.eigvalsh(x) ** 2), TIED, 2 * TIED, ANY),
    "logarithm of a determinant by eigenvalues": (
        lambda x: nnp.sum(nnp.log(la.eigh(x)[0])), TIED, np.linalg.inv(TIED), ANY,
    ),
    "projection on a single vector": (lambda x: (lambda v: v @ WEIGHTS @ v)(la.eigh(x)[1][:, 2]), TIED, ANY, ANY),
    "projection on two": (safe_projection, TIED, derivative_of_projection(*np.linalg.eigh(TIED)), ANY),
    "projection on two of a diagonal": (
        safe_projection, np.diag([1.0, 1, 3]), derivative_of_projection(np.array([1.0, 1, 3]), EYE), ANY,
    ),
    "sum of singular values": (lambda x: nnp.sum(la.svdvals(x)), TIED, EYE, ANY),
    "nuclear norm, equal": (lambda x: la.matrix_norm(x, ord="nuc"), TALL, TALL, ANY),
    "Frobenius norm, equal": (la.matrix_norm, EYE, EYE / np.sqrt(3), ANY),
    "Frobenius norm by singular values": (lambda x: la.norm(la.svdvals(x)), EYE, EYE / np.sqrt(3), ANY),
    "squared singular values": (lambda x: nnp.sum(la.svd(x, full_matrices=False)[1] ** 2), TALL, 2 * TALL, ANY),
    "spectral norm, equal": (lambda x: la.matrix_norm(x, ord=2), EYE, EYE / 3, ANY),
    "polar factor of 1": (polar, EYE, antisymmetric(WEIGHTS), ANY),
    "polar factor, equal": (polar, 2 * ROTATION, ROTATION @ antisymmetric(ROTATION.T @ WEIGHTS) / 2, ANY),
    "pseudo-inverse": (lambda x: nnp.sum(la.pinv(x) * WEIGHTS), EYE, -WEIGHTS, ANY),
    "least squares": (lambda x: nnp.sum(la.lstsq(x, EYE)[0] * WEIGHTS), EYE, -WEIGHTS, ANY),
    "determinant, singular": (la.det, np.diag([0.0, 2, 3]), np.diag([6.0, 0, 0]), POLE),
    "exponential of 0": (lambda x: nnp.sum(la.expm(x) * WEIGHTS), 0 * EYE, WEIGHTS, ANY),
    "matrix_power of 0": (lambda x: nnp.sum(la.matrix_power(x, 2) * WEIGHTS), 0 * EYE, 0 * EYE, ANY),
}  # fmt: skip
rows = pytest.mark.parametrize("name", TABLE)


def row(name: str) -> tuple[Any, Any, Any, Any]:
    function, x, gradient, hessian = TABLE[name]
    return function, np.asarray(x, np.float64), gradient, hessian


def check(found: Any, expected: Any) -> None:
    found = np.asarray(found)
    assert np.isfinite(found).all()
    if expected is not ANY:
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


@rows
def test_gradients_are_right_at_once_compiled_and_mapped(name: str) -> None:
    function, x, gradient, _ = row(name)
    slope = nnc.grad(function)
    check(slope(x), gradient)
    check(nnc.compile(slope)(x), gradient)
    for mapped in np.asarray(nnc.vmap(slope)(np.stack([x, x]))):
        check(mapped, gradient)


@rows
def test_forward_mode_agrees_with_the_gradient(name: str) -> None:
    function, x, gradient, _ = row(name)
    check(nnc.jacfwd(function)(x), gradient)
    check(nnc.compile(nnc.jacfwd(function))(x), gradient)


@pytest.mark.parametrize("name", [name for name, (*_, hessian) in TABLE.items() if hessian is not POLE])
def test_second_derivatives_are_right_in_every_mixture_of_modes(name: str) -> None:
    function, x, _, hessian = row(name)
    if hessian is not ANY:
        hessian = np.asarray(hessian, np.float64)
        hessian = np.diag(hessian) if hessian.ndim == 1 and x.ndim == 1 else hessian
    for outer in (nnc.jacfwd, nnc.jacrev):
        for inner in (nnc.grad, nnc.jacfwd):
            check(outer(inner(function))(x), hessian)
    check(nnc.compile(nnc.hessian(function))(x), hessian)


def test_a_cotangent_of_zero_stays_zero_through_a_pole() -> None:
    x = np.asarray([0.0, 4])
    for function in (nnp.sqrt, nnp.log, lambda x: 1 / x, lambda x: x**-0.5, nnp.cbrt):
        slope = nnc.grad(lambda x, f=function: nnp.sum(f(x) * np.asarray([0.0, 1])))
        for run in (slope, nnc.compile(slope)):
            found = np.asarray(run(x))
            assert found[0] == 0 and np.isfinite(found).all() and found[1]


def test_absolute_values_of_complex_zeros_have_derivative_zero() -> None:
    slope = nnc.grad(lambda x: nnp.sum(nnp.abs(x)))
    for run in (slope, nnc.compile(slope), nnc.vmap(slope)):
        x = np.zeros((1, 2), np.complex128)
        np.testing.assert_array_equal(np.asarray(run(x)), 0 * x)
    assert np.isfinite(np.asarray(nnc.jvp(slope, (x,), (x + 1,))[1])).all()
    norms = nnc.grad(lambda x: la.norm(x))
    np.testing.assert_array_equal(np.asarray(norms(x)), 0 * x)
