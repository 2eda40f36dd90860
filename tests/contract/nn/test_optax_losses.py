"""Losses of nnc.nn that Optax has by the same name, beside its stored values and gradients.

python -m tests.contract.nn.test_optax_losses        stores Optax's numbers in optax_losses.npz: Optax must be installed
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import nn
from nnc.errors import ArgumentError, ArgumentTypeError, OutOfBoundsError, ShapeError

STORED = Path(__file__).with_name("optax_losses.npz")
_RNG = np.random.default_rng(11)
LOGITS, CLASSES = _RNG.normal(size=(6, 5)) * 2, _RNG.integers(0, 5, 6)
SOFT = np.abs(_RNG.normal(size=(6, 5)))
SOFT /= SOFT.sum(-1, keepdims=True)
BINARY, SIGNS = _RNG.integers(0, 2, (6, 5)).astype(float), np.where(_RNG.normal(size=(6, 5)) > 0, 1.0, -1.0)
MASK = np.arange(30).reshape(6, 5) % 4 != 1
MASK[4] = False
IMAGE, TRUTH = _RNG.normal(size=(2, 4, 3, 3)), np.eye(3)[_RNG.integers(0, 3, (2, 4, 3))]
EMBEDDINGS, PAIRS = _RNG.normal(size=(7, 4)), np.array([0, 1, 0, 2, 1, 0, 3])


class Row(NamedTuple):
    """A loss of the module `o`, nnc.nn or optax.losses, of its first operand; the others are constants."""

    make: Callable[[Any], Callable[[Any], Any]]
    operand: np.ndarray[Any, Any]


ROWS: dict[str, Row] = {
    "perceptron_loss": Row(lambda o: lambda x: o.perceptron_loss(x, SIGNS), LOGITS),
    "multiclass_hinge_loss": Row(lambda o: lambda x: o.multiclass_hinge_loss(x, CLASSES), LOGITS),
    "multiclass_perceptron_loss": Row(lambda o: lambda x: o.multiclass_perceptron_loss(x, CLASSES), LOGITS),
    "sparsemax_loss": Row(lambda o: lambda x: o.sparsemax_loss(x, BINARY), LOGITS),
    "multiclass_sparsemax_loss": Row(lambda o: lambda x: o.multiclass_sparsemax_loss(x, CLASSES), LOGITS),
    "make_fenchel_young_loss": Row(
        lambda o: lambda x: o.make_fenchel_young_loss(lambda row: (row * row).sum() / 2)(x, SOFT), LOGITS
    ),
    "sigmoid_focal_loss": Row(lambda o: lambda x: o.sigmoid_focal_loss(x, BINARY), LOGITS),
    "sigmoid_focal_loss, weighted": Row(
        lambda o: lambda x: o.sigmoid_focal_loss(x, SOFT, alpha=0.3, gamma=1.5), LOGITS
    ),
    "poly_loss_cross_entropy": Row(lambda o: lambda x: o.poly_loss_cross_entropy(x, SOFT), LOGITS),
    "poly_loss_cross_entropy, other axis": Row(
        lambda o: lambda x: o.poly_loss_cross_entropy(x, SOFT, epsilon=0.5, axis=0), LOGITS
    ),
    "generalized_kl_divergence": Row(lambda o: lambda x: o.generalized_kl_divergence(x, SOFT), LOGITS),
    "generalized_kl_divergence, masked": Row(
        lambda o: lambda x: o.generalized_kl_divergence(x, SOFT, axis=0, where=MASK), LOGITS
    ),
    "smooth_labels": Row(lambda o: lambda x: o.smooth_labels(x, 0.3), SOFT),
    "smooth_labels, masked": Row(lambda o: lambda x: o.smooth_labels(x, 0.3, where=MASK[:4]), SOFT[:4]),
    "ranking_softmax_loss": Row(lambda o: lambda x: o.ranking_softmax_loss(x, SOFT), LOGITS),
    "ranking_softmax_loss, masked": Row(lambda o: lambda x: o.ranking_softmax_loss(x, SOFT[:4], where=MASK[:4]), LOGITS[:4]),
    "ranking_softmax_loss, of each list": Row(
        lambda o: lambda x: o.ranking_softmax_loss(x, SOFT, weights=BINARY, reduce_fn=None), LOGITS
    ),
    "ntxent": Row(lambda o: lambda x: o.ntxent(x, PAIRS), EMBEDDINGS),
    "ntxent, warm": Row(lambda o: lambda x: o.ntxent(x, PAIRS, temperature=0.5), EMBEDDINGS),
    "dice_loss": Row(lambda o: lambda x: o.dice_loss(x, TRUTH), IMAGE),
    "dice_loss, weighted": Row(
        lambda o: lambda x: o.dice_loss(
            x, TRUTH, class_weights=SOFT[0, :3], smooth=0.5, alpha=0.3, beta=0.7, reduction="none", ignore_background=True
        ),
        IMAGE,
    ),
    "dice_loss, of rows": Row(lambda o: lambda x: o.dice_loss(x, TRUTH, reduction="sum", axis=1), IMAGE),
    "multiclass_generalized_dice_loss": Row(lambda o: lambda x: o.multiclass_generalized_dice_loss(x, TRUTH), IMAGE),
    "binary_dice_loss": Row(lambda o: lambda x: o.binary_dice_loss(x, TRUTH[..., 0]), IMAGE[..., 0]),
    "binary_dice_loss, of probabilities": Row(
        lambda o: lambda x: o.binary_dice_loss(x, TRUTH[..., :1], apply_sigmoid=True), IMAGE[..., :1]
    ),
}  # fmt: skip


def weights_of(shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    return np.cos(np.arange(np.prod(shape, dtype=int))).reshape(shape) + 1.5


def computed(row: Row, dtype: Any, wrap: Callable[[Any], Any] = lambda f: f) -> tuple[Any, Any]:
    loss = row.make(nn)
    x = nnp.asarray(row.operand.astype(dtype))
    value = wrap(loss)(x)
    return value, wrap(nnc.grad(lambda x: nnp.sum(loss(x) * weights_of(value.shape).astype(dtype))))(x)


@pytest.mark.parametrize("name", ROWS)
def test_values_and_gradients_are_those_of_optax(name: str) -> None:
    with np.load(STORED) as file:
        wanted = file[f"{name}/value"], file[f"{name}/gradient"]
    plain = lambda f: f
    for dtype, wrap, tolerance in (
        (np.float64, plain, 1e-9),
        (np.float64, nnc.compile, 1e-9),
        (np.float32, plain, 2e-4),
    ):
        for ours, theirs in zip(computed(ROWS[name], dtype, wrap), wanted, strict=True):
            np.testing.assert_allclose(ours, theirs, tolerance, tolerance)


def test_lists_without_items_do_not_count() -> None:
    alone = nn.ranking_softmax_loss(LOGITS[:4], SOFT[:4], where=MASK[:4])
    mask = MASK.copy()
    mask[5] = False
    assert np.isclose(nn.ranking_softmax_loss(LOGITS, SOFT, where=mask), alone)
    assert np.array_equal(nn.ranking_softmax_loss(LOGITS, SOFT, where=mask, reduce_fn=None)[4:], [0, 0])
    gradient = nnc.grad(lambda x: nn.ranking_softmax_loss(x, SOFT, where=mask))(LOGITS)
    assert np.isfinite(gradient).all() and not np.any(np.asarray(gradient)[~mask])


def test_the_gradient_of_the_sparsemax_loss_is_sparse_probabilities_minus_the_label() -> None:
    gradient = np.asarray(nnc.grad(lambda x: nnp.sum(nn.multiclass_sparsemax_loss(x, CLASSES)))(LOGITS))
    p = gradient + np.eye(5)[CLASSES]
    assert np.allclose(p.sum(-1), 1) and np.all(p >= -1e-12) and np.any(np.isclose(p, 0))


def test_focal_losses_do_not_overflow_and_have_gradients_of_hard_labels() -> None:
    x = np.array([-1000.0, 1000.0, 0.0])
    for labels in (np.zeros(3), np.ones(3)):
        total = lambda x, labels: nnp.sum(nn.sigmoid_focal_loss(x, labels))
        assert np.isfinite(total(x, labels)) and np.isfinite(nnc.grad(total)(x, labels)).all()
    assert np.allclose(nn.sigmoid_focal_loss(LOGITS, BINARY, gamma=0.0), nn.sigmoid_cross_entropy(LOGITS, BINARY))


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_losses_have_the_dtype_of_their_operands(dtype: str) -> None:
    x, soft, signs, image, truth = (nnp.asarray(a, dtype=dtype) for a in (LOGITS, SOFT, SIGNS, IMAGE, TRUTH))
    for value in (
        nn.perceptron_loss(x, signs), nn.multiclass_hinge_loss(x, CLASSES), nn.multiclass_sparsemax_loss(x, CLASSES),
        nn.sparsemax_loss(x, BINARY), nn.sigmoid_focal_loss(x, soft), nn.poly_loss_cross_entropy(x, soft),
        nn.generalized_kl_divergence(x, soft), nn.smooth_labels(soft, 0.1), nn.ranking_softmax_loss(x, soft), nn.ntxent(x, CLASSES),
        nn.dice_loss(image, truth), nn.binary_dice_loss(image[..., 0], truth[..., 0]),
        nn.multiclass_generalized_dice_loss(image, truth), nn.make_fenchel_young_loss(nnp.max)(x, soft),
    ):  # fmt: skip
        assert str(value.dtype) == dtype


def test_probabilities_are_taken_as_they_are() -> None:
    p = np.full((1, 4, 2), 0.5)
    assert np.allclose(nn.dice_loss(p, TRUTH[:1, :, 0, :2], apply_softmax=False, smooth=0.0).shape, (1,))
    assert np.isclose(nn.binary_dice_loss(np.ones((1, 4)), np.ones((1, 4)), apply_sigmoid=False)[0], 0.0)


MISTAKES: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "labels of another shape": (lambda: nn.multiclass_hinge_loss(LOGITS, CLASSES[:3]), ShapeError, "labels must be integers"),
    "labels that are floats": (lambda: nn.multiclass_perceptron_loss(LOGITS, SOFT), ShapeError, "labels must be integers"),
    "a label that is no class": (lambda: nn.multiclass_hinge_loss(LOGITS, CLASSES + 5), OutOfBoundsError, "labels hold"),
    "no function": (lambda: nn.make_fenchel_young_loss(1.0), ArgumentTypeError, "max_fun is 1.0"),  # type: ignore[arg-type]
    "a reduction by its verb": (lambda: nn.dice_loss(IMAGE, TRUTH, reduction="average"), ArgumentError, "average"),  # type: ignore[arg-type]
    "weights for other classes": (
        lambda: nn.dice_loss(IMAGE, TRUTH, class_weights=np.ones(4)), ShapeError, "for 3 classes",
    ),
    "masks of another shape": (lambda: nn.dice_loss(IMAGE, TRUTH[:1]), ShapeError, "predictions have shape"),
    "labels of fewer embeddings": (lambda: nn.ntxent(EMBEDDINGS, PAIRS[:3]), ShapeError, "embeddings must have shape"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_the_mistake_is_named_with_a_remedy(name: str) -> None:
    call, kind, text = MISTAKES[name]
    with pytest.raises(kind, match=f"{text}(.|\n)*Fix:"):
        call()


def record() -> None:
    import jax  # noqa: PLC0415  an optional peer
    import optax  # noqa: PLC0415  an optional peer

    numbers: dict[str, Any] = {}
    with jax.enable_x64(True):
        for name, row in ROWS.items():
            loss, x = row.make(optax.losses), jax.numpy.asarray(row.operand)
            value = loss(x)
            weights = weights_of(value.shape)
            numbers[f"{name}/value"] = np.asarray(value)
            numbers[f"{name}/gradient"] = np.asarray(jax.grad(lambda x, f=loss, w=weights: (f(x) * w).sum())(x))
    np.savez_compressed(STORED, **numbers)


if __name__ == "__main__":
    record()
