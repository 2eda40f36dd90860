"""Losses against NumPy, at their edges, and refused operands."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import special

import nnc
from nnc import nn
from nnc.errors import ArgumentError, ArgumentTypeError, ShapeError

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_cross_entropy_takes_indices_or_probabilities(axis: int) -> None:
    logits = RNG.normal(size=(4, 5, 6)) * 10
    size = logits.shape[axis]
    labels = RNG.integers(0, size, [n for i, n in enumerate(logits.shape) if i != axis % 3])
    log_p = np.asarray(
        special.log_softmax(logits.astype(np.longdouble), axis=axis)
    )  # float64 loses digits of small losses
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


def test_reductions_sum_or_keep_the_terms() -> None:
    x, y = RNG.normal(size=(3, 4)), RNG.normal(size=(3, 4))
    np.testing.assert_allclose(np.asarray(nn.mse(x, y, reduction="none")), (x - y) ** 2)
    np.testing.assert_allclose(float(nn.mse(x, y, reduction="sum")), ((x - y) ** 2).sum())
    np.testing.assert_allclose(
        float(nn.squared_hinge(x, np.sign(y), reduction="mean")), (np.maximum(0, 1 - x * np.sign(y)) ** 2).mean()
    )
    with pytest.raises(ArgumentError, match="reduction is 'avg'"):
        nn.mse(x, y, reduction="avg")  # type: ignore[arg-type]


def test_smoothed_weighted_and_ignored_labels() -> None:
    logits, labels, weights = RNG.normal(size=(4, 3)), np.array([0, 2, -1, 1]), np.array([1.0, 2.0, 0.5])
    log_p = special.log_softmax(logits, -1)
    smooth = 0.7 * np.eye(3)[labels] + 0.1
    want = -(smooth * weights * log_p).sum(-1) * (labels >= 0)
    options: Any = {"label_smoothing": 0.3, "weights": weights, "ignore_index": -1}
    np.testing.assert_allclose(np.asarray(nn.softmax_cross_entropy(logits, labels, **options)), want)
    mean = nn.softmax_cross_entropy(logits, labels, **options, reduction="mean")
    np.testing.assert_allclose(float(mean), want.sum() / weights[labels[labels >= 0]].sum())
    np.testing.assert_allclose(
        np.asarray(nn.nll(log_p, labels, weights=weights, ignore_index=-1)),
        -log_p[np.arange(4), labels] * weights[labels] * (labels >= 0),
    )


def test_an_ignored_example_costs_nothing_for_any_logits() -> None:
    logits, labels = np.array([[0.0, -np.inf], [0.0, 0.0]]), np.array([-1, 1])
    loss = lambda x: nn.softmax_cross_entropy(x, labels, ignore_index=-1, label_smoothing=0.5, reduction="sum")
    value, gradient = nnc.value_and_grad(loss)(logits)
    np.testing.assert_allclose(float(value), np.log(2))
    np.testing.assert_allclose(np.asarray(gradient), [[0, 0], [0.25, -0.25]])


def test_classes_that_do_not_exist_take_no_part() -> None:
    logits, labels = RNG.normal(size=(2, 4)), np.array([0, 2])
    allowed = np.array([True, False, True, True])
    part = special.log_softmax(logits[:, allowed], -1)
    np.testing.assert_allclose(
        np.asarray(nn.softmax_cross_entropy(logits, labels, where=allowed)), -part[[0, 1], [0, 1]]
    )
    smoothed = nn.softmax_cross_entropy(logits, labels, where=allowed, label_smoothing=0.3)
    np.testing.assert_allclose(np.asarray(smoothed), -(0.7 * part[[0, 1], [0, 1]] + 0.1 * part.sum(-1)))
    gradient = nnc.grad(lambda x: nn.softmax_cross_entropy(x, labels, where=allowed, label_smoothing=0.3).sum())(logits)
    assert (np.asarray(gradient)[:, 1] == 0).all()


@pytest.mark.parametrize("scale", [1e4, 1e30])
def test_cross_entropies_of_large_logits_are_exact(scale: float) -> None:
    logits, labels = np.array([[scale, -scale], [-scale, scale]], np.float32), np.array([0, 0])
    value, gradient = nnc.value_and_grad(lambda x: nn.softmax_cross_entropy(x, labels).sum())(logits)
    np.testing.assert_allclose(float(value), 2 * scale, rtol=1e-6)
    np.testing.assert_allclose(np.asarray(gradient), [[0, 0], [-1, 1]])
    value, gradient = nnc.value_and_grad(lambda x: nn.sigmoid_cross_entropy(x, 1.0).sum())(logits[:, 0])
    np.testing.assert_allclose(float(value), scale, rtol=1e-6)
    np.testing.assert_allclose(np.asarray(gradient), [0, -1])


def test_losses_of_16_bit_floats_are_summed_in_float32() -> None:
    x = np.full(1000, 200.0, np.float16)  # squares and their sum overflow float16
    assert float(nn.mse(x, x - 100)) == 10000
    logits = np.zeros((1, 100_000), np.float16)
    np.testing.assert_allclose(np.asarray(nn.softmax_cross_entropy(logits, np.array([3]))), [np.log(1e5)], rtol=1e-3)
    assert nn.softmax(logits).dtype == np.float16
    assert float(nn.softmax(logits).max()) > 0


ZEROS = np.zeros((2, 3))


@pytest.mark.parametrize(
    "loss",
    [
        lambda x: nn.cosine_similarity(x, x),
        lambda x: nn.cosine_distance(x, ZEROS + 1),
        lambda x: nn.cosine_embedding(x, x, np.array([1.0, -1.0])),
        lambda x: nn.triplet_margin(x, x, x),
        lambda x: nn.triplet_margin(x, x + 1, x, norm_degree=1),
        lambda x: nn.huber(x, x),
        lambda x: nn.smooth_l1(x, x, 0),
        lambda x: nn.log_cosh(x, x),
        lambda x: nn.kl_div(nn.log_softmax(x), np.eye(2, 3)),
        lambda x: nn.kl_div(nn.log_softmax(x), np.array([[0.0, -np.inf, -np.inf]] * 2), log_targets=True),
        lambda x: nn.gaussian_nll(x, x, x),
        lambda x: nn.poisson_nll(x, x, log_input=False, full=True),
    ],
)  # fmt: skip
def test_derivatives_at_zero_are_finite(loss: Any) -> None:
    assert np.isfinite(np.asarray(nnc.grad(lambda x: loss(x).sum())(ZEROS))).all()


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64"])
def test_labels_of_small_dtypes_choose_among_many_classes(dtype: str) -> None:
    logits = np.random.default_rng(0).normal(size=(2, 300))
    loss = nnc.compile(nn.softmax_cross_entropy)(logits, np.array([3, 120], dtype))
    np.testing.assert_allclose(np.asarray(loss), np.asarray(-nn.log_softmax(logits))[[0, 1], [3, 120]])


def test_log_cosh_of_large_differences_is_linear() -> None:
    np.testing.assert_allclose(
        np.asarray(nn.log_cosh(np.array([1e4, 0.5]), np.zeros(2))), [1e4 - np.log(2), np.log(np.cosh(0.5))]
    )


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda x, y: nn.softmax_cross_entropy(x, y, label_smoothing=2), ArgumentError, "label_smoothing=2 is not in"),
        (lambda x, y: nn.softmax_cross_entropy(x, y, weights=np.ones(3)), ShapeError, "there are 4 classes"),
        (
            lambda x, y: nn.softmax_cross_entropy(x, x, ignore_index=0),
            ArgumentError,
            "ignore_index goes with integer labels",
        ),
        (lambda x, y: nn.softmax_cross_entropy(x, -y), IndexError, "labels hold -1, the classes are 0 to 3"),
        (lambda x, y: nnc.compile(nn.softmax_cross_entropy)(x, -y), IndexError, "index -1, 1 before the first element"),
        (lambda x, y: nn.nll(x, y + 3), IndexError, "labels hold 4"),
        (lambda x, y: nn.nll(x, x), ShapeError, "labels must be integers"),
        (
            lambda x, y: nn.sigmoid_cross_entropy(x, x[:, :1]),
            ShapeError,
            r"logits have shape \(2, 4\), labels \(2, 1\)",
        ),
        (lambda x, y: nn.cosine_embedding(x, x, x), ShapeError, r"targets \(2, 4\)"),
        (lambda x, y: nn.sigmoid_cross_entropy(x, x, pos_weight=1), ArgumentTypeError, "Fix: write positive_weights="),
        (lambda x, y: nn.gelu(x, approximate="none"), ArgumentTypeError, "approximate='none' is no bool"),
        (lambda x, y: nn.prelu(x, np.ones(3)), ShapeError, r"negative_slope has shape \(3,\), axis 1 of x has 4"),
    ],
)
def test_mistakes_are_named(call: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        call(np.ones((2, 4)), np.array([0, 1]))


NAN = np.array([[np.nan, 1.0, 2.0], [0.1, 0.2, 0.3]])
SIGNS, ROWS = np.array([[1.0, -1.0, 1.0], [1.0, 1.0, -1.0]]), np.array([1.0, -1.0])
WITH_NAN = {
    "mse": lambda x: nn.mse(x, SIGNS),
    "mae": lambda x: nn.mae(x, SIGNS),
    "huber": lambda x: nn.huber(x, SIGNS),
    "smooth_l1": lambda x: nn.smooth_l1(x, SIGNS),
    "log_cosh": lambda x: nn.log_cosh(x, SIGNS),
    "hinge": lambda x: nn.hinge(x, SIGNS),
    "squared_hinge": lambda x: nn.squared_hinge(x, SIGNS),
    "hinge_embedding, alike": lambda x: nn.hinge_embedding(x, SIGNS),
    "hinge_embedding, apart": lambda x: nn.hinge_embedding(x, -SIGNS),
    "margin_ranking": lambda x: nn.margin_ranking(x, SIGNS, SIGNS),
    "margin_ranking, second": lambda x: nn.margin_ranking(SIGNS, x, SIGNS),
    "poisson_nll": lambda x: nn.poisson_nll(x, abs(SIGNS), full=True),
    "gaussian_nll": lambda x: nn.gaussian_nll(x, SIGNS, abs(SIGNS)),
    "gaussian_nll, variance": lambda x: nn.gaussian_nll(SIGNS, SIGNS, x),
    "cosine_similarity": lambda x: nn.cosine_similarity(x, SIGNS),
    "cosine_distance": lambda x: nn.cosine_distance(SIGNS, x),
    "cosine_embedding, alike": lambda x: nn.cosine_embedding(x, SIGNS, ROWS),
    "cosine_embedding, apart": lambda x: nn.cosine_embedding(SIGNS, x, -ROWS),
    "triplet_margin": lambda x: nn.triplet_margin(x, SIGNS, -SIGNS),
    "triplet_margin, positive": lambda x: nn.triplet_margin(SIGNS, x, -SIGNS),
    "triplet_margin, swapped": lambda x: nn.triplet_margin(SIGNS, SIGNS, x, swap=True),
    "softmax_cross_entropy": lambda x: nn.softmax_cross_entropy(x, np.array([1, 1])),
    "nll": lambda x: nn.nll(x, np.array([0, 1])),
    "sigmoid_cross_entropy": lambda x: nn.sigmoid_cross_entropy(x, abs(SIGNS)),
    "kl_div, impossible class": lambda x: nn.kl_div(x, np.array([[0.0, 0.5, 0.5], [0.2, 0.3, 0.5]])),
    "kl_div, target": lambda x: nn.kl_div(SIGNS, x),
    "ctc": lambda x: nn.ctc(x, np.array([1])),
}


@pytest.mark.parametrize("name", WITH_NAN)
def test_nan_goes_through_every_loss(name: str) -> None:
    loss = WITH_NAN[name]
    for run in (loss, nnc.compile(loss)):
        assert np.isnan(np.asarray(run(NAN))).any()
        assert np.isfinite(np.asarray(run(NAN[1:].repeat(2, 0)))).all()  # it is the NaN that gives one


def test_every_loss_is_held_against_nan() -> None:
    losses = {f.__name__ for f in vars(nn).values() if getattr(f, "__module__", "") in MODULES and callable(f)}
    assert losses == {name.split(",")[0] for name in WITH_NAN}


MODULES = ("nnc.nn.losses", "nnc.nn.classification", "nnc.nn.alignment")


def test_stirlings_approximation_begins_above_one() -> None:
    counts = np.array([0.0, 0.5, 1.0, 1.5, 2.0])
    stirling = [0, 0, 0, *(y * np.log(y) - y + 0.5 * np.log(2 * np.pi * y) for y in (1.5, 2.0))]
    np.testing.assert_allclose(np.asarray(nn.poisson_nll(np.zeros(5), counts, full=True)), 1 + np.array(stirling))
