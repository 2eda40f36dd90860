"""Boxes against plain loops: overlaps, suppression, and the features of an image in them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import nn
from nnc.errors import ShapeError, TraceError

RNG = np.random.default_rng(0)


def random_boxes(count: int, size: float = 10.0) -> Any:
    low = RNG.random((count, 2)) * size
    return np.concatenate([low, low + RNG.random((count, 2)) * size / 2], -1)


def overlap(a: Any, b: Any) -> float:
    width, height = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    shared = max(width, 0) * max(height, 0)
    return shared / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - shared)


def suppressed(boxes: Any, scores: Any, threshold: float) -> list[int]:
    kept: list[int] = []
    for i in np.argsort(-scores, kind="stable"):
        if all(overlap(boxes[i], boxes[j]) <= threshold for j in kept):
            kept.append(int(i))
    return kept


def test_overlaps_are_those_of_each_pair() -> None:
    a, b = random_boxes(5), random_boxes(4)
    want = [[overlap(x, y) for y in b] for x in a]
    np.testing.assert_allclose(np.asarray(nn.box_iou(a, b)), want)
    empty = np.zeros((1, 4))
    assert np.asarray(nn.box_iou(empty, empty)).tolist() == [[0]]


@pytest.mark.parametrize("threshold", [0.0, 0.3, 0.7])
def test_suppression_keeps_the_best_of_those_that_overlap(threshold: float) -> None:
    boxes, scores = random_boxes(40), RNG.random(40)
    want = suppressed(boxes, scores, threshold)
    np.testing.assert_array_equal(np.asarray(nn.nms(boxes, scores, threshold)), want)
    for size in (1, len(want), 50):
        got = nnc.compile(lambda b, s, size=size: nn.nms(b, s, threshold, max_output_size=size))(boxes, scores)
        np.testing.assert_array_equal(np.asarray(got), (want + [-1] * 50)[:size])


def test_suppression_of_a_batch_and_of_nothing() -> None:
    boxes, scores = np.stack([random_boxes(12) for _ in range(3)]), RNG.random((3, 12))
    got = nnc.vmap(lambda b, s: nn.nms(b, s, 0.2, max_output_size=12))(boxes, scores)
    for row, b, s in zip(np.asarray(got), boxes, scores, strict=True):
        assert [i for i in row if i >= 0] == suppressed(b, s, 0.2)
    assert nn.nms(np.zeros((0, 4)), np.zeros(0), 0.5).shape == (0,)
    ties = np.repeat(random_boxes(1), 3, 0)
    assert np.asarray(nn.nms(ties, np.array([0.5, 0.5, -np.inf]), 0.5)).tolist() == [0]


def interpolated(image: Any, y: float, x: float) -> Any:
    height, width = image.shape[1:]
    if not (-1 <= y <= height and -1 <= x <= width):
        return np.zeros(len(image))
    y, x = min(max(y, 0), height - 1), min(max(x, 0), width - 1)
    top, left = int(y), int(x)
    bottom, right = min(top + 1, height - 1), min(left + 1, width - 1)
    dy, dx = y - top, x - left
    upper = image[:, top, left] * (1 - dx) + image[:, top, right] * dx
    lower = image[:, bottom, left] * (1 - dx) + image[:, bottom, right] * dx
    return upper * (1 - dy) + lower * dy


def aligned_regions(x: Any, boxes: Any, size: tuple[int, int], scale: float, ratio: int | None, aligned: bool) -> Any:
    out = np.zeros((len(boxes), x.shape[1], *size))
    for k, (image, *corners) in enumerate(boxes):
        x1, y1, x2, y2 = (c * scale - (0.5 if aligned else 0) for c in corners)
        height, width = (y2 - y1, x2 - x1) if aligned else (max(y2 - y1, 1), max(x2 - x1, 1))
        rows, columns = (ratio or math.ceil(n / s) for n, s in zip((height, width), size, strict=True))
        for i, j in np.ndindex(*size):
            samples = [
                interpolated(
                    x[int(image)], y1 + (i + (a + 0.5) / rows) * height / size[0], x1 + (j + (b + 0.5) / columns) * width / size[1]
                )
                for a in range(rows)
                for b in range(columns)
            ]  # fmt: skip
            out[k, :, i, j] = sum(samples) / max(1, rows * columns)
    return out


BOXES = np.array([[1, 0.3, 1.2, 5.1, 6.8], [0, 2, 2, 9, 13], [0, 4.1, 3.0, 4.2, 3.1], [1, -3, -2, 1, 2.5]])


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("ratio", [None, 1, 2, 3])
@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_regions_are_means_of_interpolated_samples(aligned: bool, ratio: int | None, scale: float) -> None:
    x = RNG.normal(size=(2, 3, 7, 8))
    want = aligned_regions(x, BOXES, (2, 3), scale, ratio, aligned)
    np.testing.assert_allclose(np.asarray(nn.roi_align(x, BOXES, (2, 3), scale, ratio, aligned)), want, atol=1e-12)
    last = nn.roi_align(np.moveaxis(x, 1, -1), BOXES, (2, 3), scale, ratio, aligned, layout="NHWC")
    np.testing.assert_allclose(np.moveaxis(np.asarray(last), -1, 1), want, atol=1e-12)


def test_regions_are_differentiable_in_the_image_and_in_the_boxes() -> None:
    x = RNG.normal(size=(2, 2, 7, 8))
    nnc.testing.check_grads(lambda x: nn.roi_align(x, BOXES, 2), (x,), order=1)
    corners = BOXES[:2, 1:]
    whole = lambda c: nnp.concatenate([BOXES[:2, :1], c], axis=1)
    nnc.testing.check_grads(lambda c: nn.roi_align(x, whole(c), 2, 1.0, 2), (corners,), order=1)


def test_no_boxes_give_no_regions() -> None:
    assert nn.roi_align(np.ones((1, 2, 4, 4)), np.zeros((0, 5)), 3).shape == (0, 2, 3, 3)


def test_mistakes_are_named() -> None:
    x = np.ones((1, 2, 4, 4))
    with pytest.raises(ShapeError, match=r"boxes have shape \(2, 4\), the last axis must be 5"):
        nn.roi_align(x, np.ones((2, 4)), 2)
    with pytest.raises(TraceError, match="Fix: pass sampling_ratio=2"):
        nnc.compile(lambda b: nn.roi_align(x, b, 2))(BOXES)
    with pytest.raises(TraceError, match="Fix: pass max_output_size=100"):
        nnc.compile(lambda b: nn.nms(b, b[:, 0], 0.5))(random_boxes(3))
    with pytest.raises(ShapeError, match=r"scores \(2,\)"):
        nn.nms(random_boxes(3), np.ones(2), 0.5)
    with pytest.raises(ShapeError, match="the last axis must be 4"):
        nn.box_iou(np.ones((2, 5)), np.ones((2, 4)))


def test_overlaps_of_batches_are_those_of_each_part() -> None:
    corners = np.random.default_rng(0).uniform(size=(2, 3, 5, 2, 2))
    boxes = np.concatenate([corners.min(-2), corners.max(-2) + 0.1], -1)
    got = np.asarray(nn.box_iou(boxes, boxes[:, :, :2]))
    assert got.shape == (2, 3, 5, 2)
    np.testing.assert_allclose(got[1, 2], np.asarray(nn.box_iou(boxes[1, 2], boxes[1, 2, :2])))
    with pytest.raises(ShapeError, match="the last axis must be 4"):
        nn.box_iou(np.ones((2, 4, 5)), np.ones((2, 4)))


def test_samples_on_the_border_of_an_image_count_whole_and_beyond_it_not_at_all() -> None:
    """From -1 to n a sample takes the nearest elements, outside nothing, which is torchvision's rule."""
    image = np.array([[2.0, 3.0], [5.0, 7.0]])[None, None]

    def at(y: float, x: float) -> float:
        box = np.array([[0, x - 0.5, y - 0.5, x + 0.5, y + 0.5]])  # one bin of size 1 with one sample
        return float(nn.roi_align(image, box, 1, sampling_ratio=1)[0, 0, 0, 0])

    inside, beyond = 2.0**-20, 1 + 2.0**-20
    assert [at(-1, 0), at(0, -1), at(-1, -1), at(-inside, 0)] == [2, 2, 2, 2]
    assert [at(2, 0), at(0, 2), at(2, 2), at(1 + inside, 1)] == [5, 3, 7, 7]
    assert [at(-beyond, 0), at(0, -beyond), at(1 + beyond, 0), at(0, 1 + beyond)] == [0, 0, 0, 0]
    assert at(1, 0.5) == 6
