"""grid_sample: places, dtypes, transforms and mistakes; test_layer_oracles.py has PyTorch's numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import nn
from nnc.errors import ArgumentError, ArgumentTypeError, ShapeError
from nnc.testing import check_grads

RNG = np.random.default_rng(0)
IMAGES = RNG.normal(size=(2, 3, 4, 5)).astype(np.float32)


def grid_of(*sizes: int, align_corners: bool) -> Any:
    """The grid that samples each element at its centre."""
    axes = [np.linspace(-1, 1, n) if align_corners else (2 * np.arange(n) + 1) / n - 1 for n in sizes]
    return np.stack(np.meshgrid(*axes, indexing="ij")[::-1], -1)[None].astype(np.float32)


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding_mode", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align_corners", [False, True])
def test_the_grid_of_centres_gives_the_image(mode: str, padding_mode: str, align_corners: bool) -> None:
    grid = np.repeat(grid_of(4, 5, align_corners=align_corners), 2, 0)
    found = nn.grid_sample(IMAGES, grid, mode, padding_mode, align_corners)
    np.testing.assert_allclose(found, IMAGES, atol=1e-5)
    turned = nn.grid_sample(IMAGES, grid.swapaxes(1, 2), mode, padding_mode, align_corners)
    np.testing.assert_allclose(turned, IMAGES.swapaxes(2, 3), atol=1e-5)


def test_volumes_are_sampled_along_three_axes() -> None:
    volume = RNG.normal(size=(1, 2, 2, 3, 4)).astype(np.float32)
    np.testing.assert_allclose(nn.grid_sample(volume, grid_of(2, 3, 4, align_corners=False)), volume, atol=1e-5)


def test_places_that_are_no_numbers_are_outside() -> None:
    grid = np.array([[[[np.nan, 0], [np.inf, 0], [0, -np.inf], [1e30, 0], [0, 0]]]], np.float32)
    found = nn.grid_sample(IMAGES[:1], grid)
    assert (np.asarray(found)[..., :4] == 0).all() and (np.asarray(found)[..., 4] != 0).all()
    gradient = nnc.grad(lambda x: nnp.sum(nn.grid_sample(x, grid)))(IMAGES[:1])
    assert np.isfinite(gradient).all() and float(nnp.sum(gradient)) == pytest.approx(3)


def test_dtypes_are_those_of_the_image() -> None:
    grid = grid_of(4, 5, align_corners=True)[:, :2]
    for dtype in ("float16", "bfloat16", "float32", "float64"):
        found = nn.grid_sample(nnp.asarray(IMAGES[:1], dtype), grid)
        assert found.dtype == dtype and found.shape == (1, 3, 2, 5)
    assert nn.grid_sample(np.ones((1, 1, 2, 2), np.int32), np.zeros((1, 1, 1, 2))).dtype == np.float32
    assert nn.grid_sample(IMAGES, np.zeros((2, 0, 3, 2), np.float32)).shape == (2, 3, 0, 3)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_derivatives_of_both_orders_agree_with_differences(mode: str) -> None:
    x, grid = IMAGES[:1, :1].astype(np.float64), RNG.uniform(-0.8, 0.8, (1, 2, 2, 2))
    check_grads(lambda x, grid: nn.grid_sample(x, grid, mode, "border"), (x, grid), 2)


def test_it_compiles_and_maps_over_rows() -> None:
    grids = RNG.uniform(-1, 1, (3, 2, 2, 2, 2)).astype(np.float32)
    mapped = nnc.compile(nnc.vmap(nn.grid_sample, (None, 0)))(IMAGES, grids)
    assert mapped.shape == (3, 2, 3, 2, 2)
    for row, grid in zip(mapped, grids, strict=True):
        np.testing.assert_allclose(row, nn.grid_sample(IMAGES, grid), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: nn.grid_sample(IMAGES, IMAGES), ShapeError, r"the grid does not fit x(.|\n)*\(2, H_out, W_out, 2\)"),
        (lambda: nn.grid_sample(IMAGES, np.zeros((1, 2, 2, 2))), ShapeError, "the grid does not fit"),
        (lambda: nn.grid_sample(IMAGES[None], np.zeros((1, 2, 2, 2))), ShapeError, "the grid does not fit"),
        (lambda: nn.grid_sample(IMAGES[0], np.zeros((2, 2, 2))), ShapeError, "x has 3 axes"),
        (lambda: nn.grid_sample(IMAGES[:, :, :0], np.zeros((2, 2, 2, 2))), ShapeError, "no elements"),
        (lambda: nn.grid_sample(IMAGES[None], np.zeros((1, 2, 2, 2, 3)), "bicubic"), ArgumentError, "for images alone"),
        (lambda: nn.grid_sample(IMAGES, IMAGES, "linear"), ArgumentError, "mode is 'linear'(.|\n)*\"bilinear\""),
        (lambda: nn.grid_sample(IMAGES, IMAGES, padding_mode="wrap"), ArgumentError, "padding_mode is 'wrap'"),
        (lambda: nn.grid_sample(IMAGES, IMAGES, align_corners="no"), ArgumentTypeError, "not a bool"),
    ],
)  # fmt: skip
def test_mistakes_are_named(call: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        call()
