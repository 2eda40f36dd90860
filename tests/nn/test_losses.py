"""Losses against NumPy, at their edges, and what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import special

import nnc
from nnc import nn
from nnc.errors import ShapeError

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_cross_entropy_takes_indices_or_probabilities(axis: int) -> None:
    logits = RNG.normal(size=(4, 5, 6)) * 10
    size = logits.shape[axis]
    labels = RNG.integers(0, size, [n for i, n in enumerate(logits.shape) if i != axis % 3])
    log_p = special.log_softmax(logits, axis=axis)
    want = -np.take_along_axis(log_p, np.expand_dims(labels, axis), axis).squeeze(axis)
    np.testing.assert_allclose(np.asarray(nn.softmax_cross_entropy(logits, labels, axis=axis)), want, rtol=1e-12)
    soft = np.moveaxis(np.eye(size)[labels], -1, axis)
    np.testing.assert_allclose(np.asarray(nn.softmax_cross_entropy(logits, soft, axis=axis)), want, rtol=1e-12)


def test_the_gradient_of_cross_entropy_is_probability_minus_label() -> None:
    logits, labels = RNG.normal(size=(3, 4)), np.array([0, 3, 1])
    gradient = nnc.grad(lambda x: nn.softmax_cross_entropy(x, labels).sum())(logits)
    np.testing.assert_allclose(np.asarray(gradient), special.softmax(logits, -1) - np.eye(4)[labels], atol=1e-12)


def test_an_impossible_class_costs_nothing_where_its_label_is_zero() -> None:
    logits, labels = np.array([[0.0, 0.0, -np.inf]]), np.array([[0.5, 0.5, 0.0]])
    value, gradient = nnc.value_and_grad(lambda x: nn.softmax_cross_entropy(x, labels).sum())(logits)
    np.testing.assert_allclose(float(value), np.log(2))
    np.testing.assert_allclose(np.asarray(gradient), [[0, 0, 0]], atol=1e-12)


def test_cross_entropy_keeps_the_dtype_of_the_logits() -> None:
    logits = np.ones((2, 3), np.float16)
    assert nn.softmax_cross_entropy(logits, np.array([0, 1])).dtype == np.float16


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.array([0, 1, 2]), r"integer labels must have shape \(2,\), they have shape \(3,\)"),
        (np.array([[0], [1]]), r"integer labels must have shape \(2,\)"),
        (np.array([0.0, 1.0]), "class probabilities must have the shape of the logits"),
    ],
)
def test_cross_entropy_refuses_labels_that_do_not_fit(labels: Any, message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        nn.softmax_cross_entropy(np.ones((2, 4)), labels)


def test_a_label_that_is_no_class_raises() -> None:
    with pytest.raises(IndexError):
        nn.softmax_cross_entropy(np.ones((2, 4)), np.array([0, 4]))


def test_sigmoid_cross_entropy_is_stable() -> None:
    logits, labels = np.array([-1e3, -1.0, 0.0, 2.0, 1e3]), np.array([0.0, 1.0, 0.5, 0.0, 1.0])
    want = np.logaddexp(0, logits) - logits * labels
    np.testing.assert_allclose(np.asarray(nn.sigmoid_cross_entropy(logits, labels)), want, atol=1e-12)
    gradient = nnc.grad(lambda x: nn.sigmoid_cross_entropy(x, labels).sum())(logits)
    np.testing.assert_allclose(np.asarray(gradient), special.expit(logits) - labels, atol=1e-12)


def test_differences_are_averaged() -> None:
    x, y = RNG.normal(size=(3, 4)) * 2, RNG.normal(size=(3, 4))
    d = np.abs(x - y)
    np.testing.assert_allclose(float(nn.mse(x, y)), (d**2).mean())
    np.testing.assert_allclose(float(nn.mae(x, y)), d.mean())
    huber = np.where(d <= 0.5, d**2 / 2, 0.5 * (d - 0.25))
    np.testing.assert_allclose(float(nn.huber(x, y, delta=0.5)), huber.mean())
    nnc.testing.check_grads(lambda x: nn.huber(x, y, delta=0.5), (x,), order=1)


@pytest.mark.parametrize("loss", [nn.mse, nn.mae, nn.huber])
def test_differences_are_not_broadcast(loss: Any) -> None:
    with pytest.raises(ShapeError, match=r"predictions have shape \(3, 1\), targets \(3,\)"):
        loss(np.ones((3, 1)), np.ones(3))
