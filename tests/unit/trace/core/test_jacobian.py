"""jacfwd, jacrev, hessian: against finite differences and closed forms, on pytrees, in every dtype."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.errors import DTypeError

X = np.array([0.3, -1.2, 0.7])
A = np.arange(6.0).reshape(2, 3)
BOTH = pytest.mark.parametrize("jacobian", [nnc.jacfwd, nnc.jacrev])


def close(a: Any, b: Any) -> bool:
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    return a.shape == b.shape and np.allclose(a, b, rtol=1e-9, atol=1e-9)


@BOTH
@pytest.mark.parametrize("chunk_size", [None, 1, 2])
def test_rows_and_columns_stand_in_their_places(jacobian: Any, chunk_size: int | None) -> None:
    assert close(jacobian(lambda x: A @ x, chunk_size=chunk_size)(X), A)
    found = jacobian(lambda m: nnp.sum(m * m, axis=0), chunk_size=chunk_size)(A)
    assert close(found, np.einsum("ij,kj->kij", 2 * A, np.eye(3)))
    assert close(jacobian(lambda x: x * 2)(3.0), 2)


@BOTH
def test_trees_of_results_and_arguments_give_trees_of_blocks(jacobian: Any) -> None:
    def f(p: Any, s: Any) -> Any:
        return {"y": p["w"] * s, "z": (nnp.sum(p["w"]) * p["b"], None), "name": "n"}

    p = {"w": X, "b": np.float64(2), "note": "text", "none": None}
    found = jacobian(f, (1, 0))(p, np.float64(3))
    assert found["name"] == "n" and found["z"][1] is None
    to_s, to_p = found["y"]
    assert close(to_s, X) and close(to_p["w"], 3 * np.eye(3)) and close(to_p["b"], np.zeros(3))
    assert to_p["note"] == "text" and to_p["none"] is None
    assert close(found["z"][0][1]["w"], [2, 2, 2]) and close(found["z"][0][1]["b"], X.sum())
    assert close(jacobian(f, -1)(p, np.float64(3))["y"], X)


@BOTH
def test_integers_in_and_out_have_zero_blocks(jacobian: Any) -> None:
    found = jacobian(lambda t: (t["x"] ** 2 * t["i"], t["i"]))({"x": X, "i": np.arange(3)})
    assert close(found[0]["x"], np.diag(2 * X * np.arange(3)))
    assert not np.asarray(found[0]["i"]).any() and not np.asarray(found[1]["x"]).any()


@BOTH
def test_keyword_arguments_and_aux_pass_through(jacobian: Any) -> None:
    found, aux = jacobian(lambda x, k=1.0: (x * k, {"k": k, "s": "t"}), has_aux=True)(X, k=2.0)
    assert close(found, 2 * np.eye(3)) and aux == {"k": 2.0, "s": "t"}


@BOTH
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_a_jacobian_has_the_dtype_of_its_function(jacobian: Any, dtype: str) -> None:
    x = nnp.asarray(X, dtype=dtype)
    assert jacobian(lambda x: x * x)(x).dtype.name == dtype
    assert nnc.hessian(lambda x: nnp.sum(x**3))(x).dtype.name == dtype


@BOTH
def test_empty_arguments_and_results_give_empty_blocks(jacobian: Any) -> None:
    assert jacobian(lambda x: x * 2)(np.zeros((0, 2))).shape == (0, 2, 0, 2)
    assert jacobian(lambda x: x[:0])(X).shape == (0, 3)
    assert nnc.hessian(lambda x: nnp.sum(x**2))(np.zeros(0)).shape == (0, 0)


@BOTH
def test_holomorphic_functions_have_their_complex_derivative(jacobian: Any) -> None:
    z = np.array([1 + 2j, 0.5 - 1j])
    assert np.allclose(np.asarray(jacobian(lambda x: x * x, holomorphic=True)(z)), np.diag(2 * z))


def test_both_modes_agree_on_a_tangled_function_also_compiled_and_mapped() -> None:
    def f(x: Any) -> Any:
        return nnp.stack([nnp.sin(x[0] * x[1]), x[2] ** 3 / (1 + x[0] ** 2), nnp.sum(nnp.exp(x)), x[1]])

    forward, backward = nnc.jacfwd(f)(X), nnc.jacrev(f)(X)
    assert close(forward, backward)
    assert close(nnc.compile(nnc.jacrev(f))(X), forward)
    assert close(nnc.vmap(nnc.jacfwd(f))(np.stack([X, X]))[1], forward)
    steps = np.eye(3) * 1e-6
    numeric = np.stack([(np.asarray(f(X + h)) - np.asarray(f(X - h))) / 2e-6 for h in steps], axis=1)
    assert np.allclose(np.asarray(forward), numeric, atol=1e-7)


def test_the_hessian_of_a_softmax_regression_loss_equals_its_closed_form() -> None:
    rng = np.random.default_rng(0)
    n, d, k = 7, 3, 4
    x, w, y = rng.standard_normal((n, d)), rng.standard_normal((d, k)), np.eye(k)[rng.integers(0, k, n)]

    def loss(w: Any) -> Any:
        logits = x @ w
        top = nnp.max(logits, axis=1, keepdims=True)
        log_sum = nnp.log(nnp.sum(nnp.exp(logits - top), axis=1, keepdims=True)) + top
        return -nnp.sum(y * (logits - log_sum)) / n

    logits = x @ w
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    inner = np.einsum("nk,kl->nkl", p, np.eye(k)) - np.einsum("nk,nl->nkl", p, p)
    closed = np.einsum("nkl,ni,nj->ikjl", inner, x, x) / n
    assert close(nnc.grad(loss)(w), x.T @ (p - y) / n)
    for hessian in (
        nnc.hessian(loss), nnc.hessian(loss, chunk_size=5), nnc.jacfwd(nnc.grad(loss)), nnc.jacrev(nnc.grad(loss)),
        nnc.jacrev(nnc.jacfwd(loss)), nnc.compile(nnc.hessian(loss)), nnc.hessian(nnc.checkpoint(loss)),
    ):  # fmt: skip
        assert close(hessian(w), closed)
    v = rng.standard_normal((d, k))
    assert close(nnc.hvp(loss, (w,), (v,)), np.einsum("ikjl,jl->ik", closed, v))


def test_hessians_of_several_arguments_are_symmetric_trees() -> None:
    def f(p: Any, q: Any) -> Any:
        return nnp.sum(nnp.sin(p["a"]) * q) + nnp.sum(p["a"]) ** 2 * q[0]

    blocks = nnc.hessian(f, (0, 1))({"a": X}, X[::-1])
    assert close(blocks[0]["a"][1], np.asarray(blocks[1][0]["a"]).T)
    assert close(blocks[1][1], np.zeros((3, 3)))
    assert close(blocks[0]["a"][0]["a"], np.diag(-np.sin(X) * X[::-1]) + 2 * X[2])


@pytest.mark.parametrize("transform", [nnc.jacfwd, nnc.jacrev])
def test_complex_jacobians_of_holomorphic_functions(transform):
    z = np.array([1 + 2j, -0.5j])
    w = np.array([[1j, 2.0], [3.0, -1 + 1j]])
    jacobian = transform(lambda z: w @ nnp.exp(z), holomorphic=True)(z)
    np.testing.assert_allclose(jacobian, w * np.exp(z))
    np.testing.assert_allclose(nnc.hessian(lambda z: nnp.sum(z**3), holomorphic=True)(z), np.diag(6 * z))


@pytest.mark.parametrize(
    ("transform", "function", "x", "options", "message"),
    [
        (nnc.jacfwd, lambda z: z * 2, 1j * np.ones(2), {}, "nnc.jacfwd: the argument is complex"),
        (nnc.jacrev, lambda x: x * 2j, np.ones(2), {}, "nnc.jacrev: the result is complex"),
        (
            nnc.jacfwd,
            nnp.real,
            1j * np.ones(2),
            {"holomorphic": True},
            "nnc.jacfwd: holomorphic=True needs a complex result",
        ),
        (
            nnc.jacrev,
            nnp.abs,
            1j * np.ones(2),
            {"holomorphic": True},
            "nnc.jacrev: holomorphic=True needs a complex result",
        ),
        (nnc.jacfwd, nnp.sin, np.ones(2), {"holomorphic": True}, "needs complex input with holomorphic=True"),
    ],
)
def test_complex_numbers_and_the_holomorphic_flag_go_together(transform, function, x, options, message):
    with pytest.raises(DTypeError, match=message):
        transform(function, **options)(x)
