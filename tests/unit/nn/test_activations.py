"""Activation functions against their formulas, at the ends of the number line, and their derivatives."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from scipy import special

import nnc
from nnc import nn
from nnc.errors import ArgumentTypeError

RNG = np.random.default_rng(0)
X = np.array([-30.0, -6.5, -3.5, -1.5, -0.5, 0.25, 0.5, 1.5, 3.5, 6.5, 30.0])
SMOOTH = X[np.abs(X) < 10]


def softplus(x: Any) -> Any:
    return np.logaddexp(x, 0)


FORMULAS: dict[str, Callable[[Any], Any]] = {
    "relu": lambda x: np.maximum(x, 0),
    "relu6": lambda x: np.clip(x, 0, 6),
    "elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
    "celu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
    "selu": lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(np.minimum(x, 0))),
    "leaky_relu": lambda x: np.where(x > 0, x, 0.01 * x),
    "gelu": lambda x: x * special.ndtr(x),
    "sigmoid": special.expit,
    "log_sigmoid": lambda x: -softplus(-x),
    "silu": lambda x: x * special.expit(x),
    "tanh": np.tanh,
    "softplus": softplus,
    "mish": lambda x: x * np.tanh(softplus(x)),
    "soft_sign": lambda x: x / (1 + np.abs(x)),
    "hard_tanh": lambda x: np.clip(x, -1, 1),
    "hard_sigmoid": lambda x: np.clip(x + 3, 0, 6) / 6,
    "hard_silu": lambda x: x * np.clip(x + 3, 0, 6) / 6,
}


@pytest.mark.parametrize("name", FORMULAS)
def test_activations_are_their_formulas(name: str) -> None:
    out = getattr(nn, name)(X)
    np.testing.assert_allclose(np.asarray(out), FORMULAS[name](X), rtol=1e-12, atol=1e-3 if name == "gelu" else 1e-12)


@pytest.mark.parametrize("name", FORMULAS)
def test_activations_have_the_right_derivative(name: str) -> None:
    nnc.testing.check_grads(getattr(nn, name), (SMOOTH,), order=2)


@pytest.mark.parametrize("name", FORMULAS)
def test_activations_keep_the_dtype_and_pass_nan_on(name: str) -> None:
    for dtype in (np.float16, ml_dtypes.bfloat16, np.float32):
        assert getattr(nn, name)(np.ones(2, dtype)).dtype == np.dtype(dtype)
    assert np.isnan(np.asarray(getattr(nn, name)(np.array([np.nan])))).all()


@pytest.mark.parametrize("name", FORMULAS)
@pytest.mark.parametrize(("dtype", "far"), [(np.float32, 3e38), (np.float16, 6e4), (ml_dtypes.bfloat16, 3e38)])
def test_activations_have_finite_derivatives_far_out(name: str, dtype: Any, far: float) -> None:
    x = np.array([-far, -1e4, -200.0, 0.0, 200.0, 1e4, far], dtype)
    value, pull = nnc.vjp(getattr(nn, name), x)
    _, tangent = nnc.jvp(getattr(nn, name), (x,), (np.ones(7, dtype),))
    for found in (value, tangent, *pull(np.ones(7, dtype))):
        assert np.isfinite(np.asarray(found).astype(np.float32)).all()


def test_gelu_is_exact_on_request() -> None:
    np.testing.assert_allclose(np.asarray(nn.gelu(X, approximate=False)), X * special.ndtr(X), rtol=1e-12, atol=1e-14)
    inner, found = math.sqrt(2 / math.pi) * (X + 0.044715 * X**3), np.asarray(nn.gelu(X))
    np.testing.assert_allclose(found, 0.5 * X * (1 + np.tanh(inner)), rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(found, X * special.expit(2 * inner), rtol=1e-12)  # which has its digits far below 0


def test_the_derivative_of_relu_at_zero_is_zero() -> None:
    np.testing.assert_array_equal(
        np.asarray(nnc.grad(lambda x: nn.relu(x).sum())(np.array([-1.0, 0.0, 1.0]))), [0, 0, 1]
    )


def test_relu_keeps_integers() -> None:
    out = nn.relu(np.array([-2, 3]))
    assert (out.dtype, np.asarray(out).tolist()) == (np.int64, [0, 3])


def test_glu_gates_the_first_half_by_the_second() -> None:
    x = RNG.normal(size=(3, 4))
    np.testing.assert_allclose(np.asarray(nn.glu(x)), x[:, :2] * special.expit(x[:, 2:]))
    x = RNG.normal(size=(4, 3))
    np.testing.assert_allclose(np.asarray(nn.glu(x, axis=0)), x[:2] * special.expit(x[2:]))


@pytest.mark.parametrize("axis", [-1, 0, (0, 1), None])
def test_softmax_agrees_with_scipy(axis: Any) -> None:
    x = RNG.normal(size=(3, 4)) * 50
    np.testing.assert_allclose(np.asarray(nn.softmax(x, axis=axis)), special.softmax(x, axis=axis), rtol=1e-12)
    logs = np.asarray(nn.log_softmax(x, axis=axis))
    np.testing.assert_allclose(
        logs, special.log_softmax(x, axis=axis), rtol=1e-12, atol=1e-14
    )  # SciPy's lose digits near 0


def test_softmax_survives_great_logits_and_minus_infinity() -> None:
    x = np.array([[1e30, 1e30, -np.inf], [-1e30, 0, -np.inf], [-np.inf] * 3], np.float32)
    np.testing.assert_array_equal(np.asarray(nn.softmax(x)), [[0.5, 0.5, 0], [0, 1, 0], [0, 0, 0]])
    gradient = nnc.grad(lambda x: (nn.softmax(x) ** 2).sum())(x)
    np.testing.assert_array_equal(np.asarray(gradient), np.zeros((3, 3)))


def test_log_softmax_of_nothing_possible_is_minus_infinity() -> None:
    np.testing.assert_array_equal(np.asarray(nn.log_softmax(np.full(2, -np.inf))), [-np.inf, -np.inf])


def test_softmax_leaves_masked_elements_out() -> None:
    x, mask = RNG.normal(size=(2, 4)), np.array([[True, False, True, True], [False] * 4])
    out = np.asarray(nn.softmax(x, where=mask))
    np.testing.assert_allclose(out[0, mask[0]], special.softmax(x[0, mask[0]]))
    assert (out[~mask] == 0).all()
    gradient = np.asarray(nnc.grad(lambda x: (nn.softmax(x, where=mask) ** 2).sum())(x))
    assert np.isfinite(gradient).all()
    assert (gradient[~mask] == 0).all()


def test_softmax_has_the_right_derivatives() -> None:
    nnc.testing.check_grads(nn.softmax, (RNG.normal(size=(2, 3)),), order=2)
    nnc.testing.check_grads(nn.log_softmax, (RNG.normal(size=(2, 3)),), order=2)


def test_one_hot_marks_the_index() -> None:
    x = np.array([[0, 2], [1, 5]])
    want = np.eye(6)[x][..., :3]
    out = nn.one_hot(x, 3)
    assert out.dtype == np.float32
    np.testing.assert_array_equal(np.asarray(out), want)
    np.testing.assert_array_equal(np.asarray(nn.one_hot(x, 3, axis=0, dtype=int)), np.moveaxis(want, -1, 0))
    np.testing.assert_array_equal(np.asarray(nn.one_hot(np.uint8(1), 3)), [0, 1, 0])


def test_standardize_centres_and_scales() -> None:
    x = RNG.normal(size=(3, 8)) * 5 + 2
    out = np.asarray(nn.standardize(x, eps=0))
    np.testing.assert_allclose(out.mean(-1), 0, atol=1e-12)
    np.testing.assert_allclose(out.var(-1), 1)


@pytest.mark.parametrize(
    ("call", "fix"),
    [
        (lambda: nn.softmax(X, dim=0), "axis="),
        (lambda: nn.max_pool(np.ones((1, 1, 4, 4)), kernel_size=2), "window="),
        (lambda: nn.Conv(in_channels=1, out_channels=2, kernel_size=3, key=None), "in_features="),
        (lambda: nn.Linear(1, 2, key=None, bias=False), "use_bias="),
        (lambda: nn.LayerNorm(normalized_shape=3), "features="),
    ],
)
def test_other_libraries_names_are_answered_with_ours(call: Callable[[], Any], fix: str) -> None:
    with pytest.raises(ArgumentTypeError, match=f"it has no argument(.|\n)*Fix: write {fix}"):
        call()


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_one_slope_serves_all_channels(shape: tuple[int, ...]) -> None:
    x = np.array([[-1.0, 2.0, -3.0]])
    out = nn.prelu(x, np.full(shape, 0.5))
    np.testing.assert_array_equal(np.asarray(out), [[-0.5, 2.0, -1.5]])


def test_leaky_relu_has_the_lesser_slope_at_its_kink() -> None:
    for f in (lambda x: nn.leaky_relu(x, 0.25), lambda x: nn.prelu(x, 0.25)):
        assert nnc.vmap(nnc.grad(f))(nnc.asarray([-1.0, -0.0, 0.0, 1.0])).tolist() == [0.25, 0.25, 0.25, 1.0]
