"""Interpolation and pixel shuffles against numbers worked out by hand and NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nnc
from nnc import nn
from nnc.errors import ArgumentError, ArgumentTypeError, ShapeError

RNG = np.random.default_rng(0)
RAMP = np.array([[[1.0, 2.0, 4.0]]])


@pytest.mark.parametrize(
    ("options", "want"),
    [
        ({"scale": 2}, [1, 1, 2, 2, 4, 4]),
        ({"size": 5}, [1, 1, 2, 2, 4]),
        ({"size": 2}, [1, 2]),
        ({"size": 2, "method": "nearest-exact"}, [1, 4]),
        ({"scale": 2, "method": "linear"}, [1, 1.25, 1.75, 2.5, 3.5, 4]),
        ({"size": 5, "method": "linear", "align_corners": True}, [1, 1.5, 2, 3, 4]),
        ({"size": 1, "method": "linear", "align_corners": True}, [1]),
        ({"scale": 1, "method": "cubic"}, [1, 2, 4]),
    ],
)
def test_interpolation_along_one_axis(options: dict[str, Any], want: list[float]) -> None:
    np.testing.assert_allclose(np.asarray(nn.upsample(RAMP, **options))[0, 0], want)


@pytest.mark.parametrize("method", ["linear", "cubic"])
def test_interpolation_keeps_planes(method: str) -> None:
    y, x = np.mgrid[:6.0, :5.0]
    out = np.asarray(nn.upsample((2 * y - x)[None, None], size=(11, 9), method=method, align_corners=True))[0, 0]
    y, x = np.mgrid[:11.0, :9.0] / 2
    inner = (slice(2, -2),) * 2 if method == "cubic" else (slice(None),) * 2
    np.testing.assert_allclose(out[inner], (2 * y - x)[inner], atol=1e-12)


def test_axes_are_resized_one_by_one_in_any_layout() -> None:
    x = RNG.normal(size=(2, 3, 4, 5))
    out = nn.upsample(x, (2.0, 1.6), method="bilinear")
    assert out.shape == (2, 3, 8, 8)
    last = nn.upsample(np.moveaxis(x, 1, -1), (2.0, 1.6), method="linear", layout="NHWC")
    np.testing.assert_allclose(np.moveaxis(np.asarray(last), -1, 1), np.asarray(out))


def test_the_nearest_keeps_integers_and_others_the_float() -> None:
    assert nn.upsample(np.array([[[1, 2]]]), 2).dtype == np.int64
    assert nn.upsample(RAMP.astype(np.float16), 2, method="linear").dtype == np.float16


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_pixel_shuffle_moves_channels_into_blocks(layout: str) -> None:
    x = RNG.normal(size=(2, 12, 2, 3))
    want = x.reshape(2, 3, 2, 2, 2, 3).transpose(0, 1, 4, 2, 5, 3).reshape(2, 3, 4, 6)
    move = (lambda v: np.moveaxis(np.asarray(v), 1, -1)) if layout == "NHWC" else np.asarray
    out = nn.pixel_shuffle(move(x), 2, layout=layout)
    np.testing.assert_array_equal(np.asarray(out), move(want))
    np.testing.assert_array_equal(np.asarray(nn.pixel_unshuffle(out, 2, layout=layout)), move(x))


def test_pixel_shuffle_takes_any_rank() -> None:
    x = RNG.normal(size=(1, 8, 2, 3, 2))
    out = nn.pixel_shuffle(x, 2, layout="NCDHW")
    assert out.shape == (1, 1, 4, 6, 4)
    np.testing.assert_array_equal(np.asarray(nn.pixel_unshuffle(out, 2, layout="NCDHW")), x)
    assert nn.pixel_shuffle(x[..., 0, 0], 2, layout="NCW").shape == (1, 4, 4)


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda x: nn.upsample(x), ArgumentError, "pass either scale or size"),
        (lambda x: nn.upsample(x, 2, size=4), ArgumentError, "pass either scale or size"),
        (lambda x: nn.upsample(x, -1), ArgumentError, "scale=-1 is no positive number"),
        (lambda x: nn.upsample(x, 0.1), ArgumentError, r"\(4, 4\) become \(0, 0\)"),
        (lambda x: nn.upsample(x, 2, method="area"), ArgumentError, "method='area' is unknown"),
        (lambda x: nn.upsample(x, 2, align_corners=True), ArgumentError, "align_corners=True has no meaning"),
        (lambda x: nn.upsample(x, scale_factor=2), ArgumentTypeError, "Fix: write scale="),
        (lambda x: nn.upsample(x, 2, mode="bilinear"), ArgumentTypeError, "Fix: write method="),
        (lambda x: nn.pixel_shuffle(x, 2), ShapeError, "needs a multiple of 4 channels, there are 3"),
        (lambda x: nn.pixel_unshuffle(x, 3), ShapeError, "factor=3 does not divide"),
    ],
)
def test_mistakes_are_named(call: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        call(np.ones((1, 3, 4, 4)))


def test_resized_images_can_be_compiled() -> None:
    f = lambda x: nn.upsample(x, 1.5, method="linear")
    np.testing.assert_allclose(np.asarray(nnc.compile(f)(RAMP)), np.asarray(f(RAMP)))
