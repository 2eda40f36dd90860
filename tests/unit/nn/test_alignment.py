"""CTC against the sum over all alignments, at its edges, and refused operands."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from scipy import special

import nnc
from nnc import nn
from nnc.errors import ArgumentError, DTypeError, ShapeError

RNG = np.random.default_rng(0)


def by_enumeration(logits: Any, labels: Any, blank: int) -> float:
    """-log of the sum over all paths that spell the labels."""
    log_p = special.log_softmax(logits, -1)
    steps, classes = log_p.shape
    total = -np.inf
    for path in itertools.product(range(classes), repeat=steps):
        merged = [c for i, c in enumerate(path) if i == 0 or c != path[i - 1]]
        if [c for c in merged if c != blank] == list(labels):
            total = np.logaddexp(total, sum(log_p[t, c] for t, c in enumerate(path)))
    return -total


@pytest.mark.parametrize("blank", [0, 2])
@pytest.mark.parametrize("labels", [[], [1], [1, 1], [1, 3], [3, 1, 3], [1, 1, 1]])
def test_it_is_the_sum_over_all_alignments(labels: list[int], blank: int) -> None:
    logits = RNG.normal(size=(5, 4)) * 2
    padded = np.array([labels + [1] * (3 - len(labels))])
    out = nn.ctc(logits[None], padded, label_lengths=np.array([len(labels)]), blank=blank)
    np.testing.assert_allclose(np.asarray(out), [by_enumeration(logits, labels, blank)])
    short = nn.ctc(np.concatenate([logits, logits])[None], padded, np.array([5]), np.array([len(labels)]), blank=blank)
    np.testing.assert_allclose(np.asarray(short), np.asarray(out))


def test_too_few_steps_cost_infinity_without_gradient() -> None:
    logits, labels = RNG.normal(size=(2, 2, 3)), np.array([[1, 1], [1, 2]])
    value, pull = nnc.vjp(lambda x: nn.ctc(x, labels), logits)
    assert np.asarray(value)[0] == np.inf
    (gradient,) = pull(np.ones(2))
    np.testing.assert_array_equal(np.asarray(gradient)[0], np.zeros((2, 3)))
    assert np.asarray(gradient)[1].any()


def test_an_empty_batch_axis_and_no_batch_axis_work() -> None:
    assert nn.ctc(np.zeros((4, 3)), np.array([1])).shape == ()
    assert nn.ctc(np.zeros((0, 4, 3)), np.zeros((0, 1), int)).shape == (0,)
    assert nn.ctc(np.zeros((2, 3, 4, 3)), np.ones((2, 3, 2), int), reduction="mean").shape == ()


@pytest.mark.parametrize("filler", [-1, 99])
def test_padding_of_a_row_of_labels_does_not_count(filler: int) -> None:
    logits, sizes = RNG.normal(size=(2, 6, 3)), np.array([2, 1])
    given = np.array([[1, 2], [2, filler]])
    want = nn.ctc(logits, np.where(given == filler, 1, given), None, sizes)
    np.testing.assert_array_equal(np.asarray(nn.ctc(logits, given, None, sizes)), np.asarray(want))
    traced = nnc.compile(lambda x, y, n: nn.ctc(x, y, None, n))(logits, given, sizes)
    np.testing.assert_allclose(np.asarray(traced), np.asarray(want))


def test_long_sequences_do_not_underflow() -> None:
    logits = RNG.normal(size=(1, 400, 30)).astype(np.float32) * 10
    labels = RNG.integers(1, 30, (1, 50))
    value, gradient = nnc.value_and_grad(lambda x: nn.ctc(x, labels, reduction="sum"))(logits)
    assert np.isfinite(float(value))
    assert float(value) > 100
    np.testing.assert_allclose(np.asarray(gradient).sum(-1), 0, atol=1e-4)


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: nn.ctc(np.zeros((2, 4, 3)), np.ones((3, 1), int)), ShapeError, r"logits have shape \(2, 4, 3\)"),
        (lambda: nn.ctc(np.zeros((2, 4, 3)), np.ones((2, 1))), DTypeError, "labels must be integers"),
        (lambda: nn.ctc(np.zeros((2, 4, 3)), np.ones((2, 1), int), blank=3), ArgumentError, "none of the 3 classes"),
        (lambda: nn.ctc(np.zeros((2, 4, 3)), np.ones((2, 1), int), 4), ShapeError, "logit_lengths must be integers"),
        (lambda: nn.ctc(np.zeros((2, 4, 3)), np.full((2, 1), 3)), IndexError, "labels hold 3, the classes are 0 to 2"),
        (lambda: nn.ctc(np.zeros((2, 4, 3)), np.full((2, 1), -1)), IndexError, "labels hold -1"),
        (lambda: nn.ctc(np.zeros((1, 4, 3)), np.ones((1, 1), int), np.array([5])), IndexError, "logit_lengths hold 5"),
        (
            lambda: nn.ctc(np.zeros((1, 4, 3)), np.ones((1, 1), int), None, np.array([2])),
            IndexError,
            "label_lengths hold 2",
        ),
    ],
)
def test_mistakes_are_named(call: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        call()
