"""Pools against NumPy: incomplete windows, dilation, bins, layouts, norms; and their mistakes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nnc
from nnc import nn
from nnc.commands import bins
from nnc.errors import ArgumentError, ArgumentTypeError

RNG = np.random.default_rng(0)


def test_ceil_mode_adds_a_last_incomplete_window_that_begins_in_the_input() -> None:
    x = np.arange(5.0)[None, None]
    assert np.asarray(nn.max_pool(x, 2)).tolist() == [[[1, 3]]]
    assert np.asarray(nn.max_pool(x, 2, ceil_mode=True)).tolist() == [[[1, 3, 4]]]
    assert nn.max_pool(x, 2, stride=3, padding=1, ceil_mode=True).shape[-1] == 2  # a third would begin in the padding
    assert np.asarray(nn.avg_pool(x, 2, ceil_mode=True)).tolist() == [[[0.5, 2.5, 4.0]]]


def test_padding_of_ceil_mode_never_counts() -> None:
    x = np.arange(4.0)[None, None]  # padded 0 0 1 2 3 0: the windows 0 0 1, 1 2 3, and 3 0 with one element more
    options = {"stride": 2, "padding": 1, "ceil_mode": True}
    np.testing.assert_allclose(np.asarray(nn.avg_pool(x, 3, **options))[0, 0], [1 / 3, 2, 3 / 2])
    without = nn.avg_pool(x, 3, **options, count_include_pad=False)
    np.testing.assert_allclose(np.asarray(without)[0, 0], [1 / 2, 2, 3])


def test_dilated_windows_take_every_other_element() -> None:
    x = RNG.normal(size=(1, 1, 6))
    want = np.stack([x[..., i : i + 2] for i in (0, 2, 4)], -1)
    np.testing.assert_array_equal(np.asarray(nn.max_pool(x, 3, stride=1, dilation=2)), want.max(-1))
    np.testing.assert_allclose(np.asarray(nn.avg_pool(x, 3, stride=1, dilation=2)), want.mean(-1))


@pytest.mark.parametrize("sizes", [(1, 1), (2, 3), (5, 4), (7, 9)])
def test_bins_are_as_equal_as_can_be(sizes: tuple[int, int]) -> None:
    x = RNG.normal(size=(2, 3, 5, 4))
    bins = [[slice(i * n // o, -(-(i + 1) * n // o)) for i in range(o)] for n, o in zip((5, 4), sizes, strict=True)]
    for pool, reduce in ((nn.adaptive_avg_pool, np.mean), (nn.adaptive_max_pool, np.max)):
        want = [[reduce(x[:, :, a, b], axis=(2, 3)) for b in bins[1]] for a in bins[0]]
        np.testing.assert_allclose(np.asarray(pool(x, sizes)), np.moveaxis(np.array(want), (0, 1), (2, 3)))
        last = pool(np.moveaxis(x, 1, -1), sizes, layout="NHWC")
        np.testing.assert_allclose(np.moveaxis(np.asarray(last), -1, 1), np.asarray(pool(x, sizes)))


def test_global_pools_keep_the_channels() -> None:
    x = RNG.normal(size=(2, 3, 4, 5))
    np.testing.assert_allclose(np.asarray(nn.global_avg_pool(x)), x.mean((2, 3)))
    np.testing.assert_allclose(
        np.asarray(nn.global_max_pool(x, layout="NHWC", keepdims=True)), x.max((1, 2), keepdims=True)
    )
    np.testing.assert_allclose(np.asarray(nn.global_avg_pool(x[..., 0])), x[..., 0].mean(2))


def test_the_norm_of_a_window_has_a_derivative_at_zero() -> None:
    x = np.array([[[0.0, 0.0, 3.0, -4.0]]])
    value, pull = nnc.vjp(lambda x: nn.lp_pool(x, 2), x)
    assert np.asarray(value).tolist() == [[[0, 5]]]
    np.testing.assert_allclose(np.asarray(pull(np.ones((1, 1, 2)))[0]), [[[0, 0, 0.6, -0.8]]])


def test_means_of_16_bit_floats_are_summed_in_float32() -> None:
    x = np.full((1, 1, 64), 6e4, np.float16)
    np.testing.assert_array_equal(np.asarray(nn.avg_pool(x, 64)), [[[np.float16(6e4)]]])
    np.testing.assert_array_equal(np.asarray(nn.adaptive_avg_pool(x, 1)), [[[np.float16(6e4)]]])
    np.testing.assert_array_equal(np.asarray(nn.global_avg_pool(x)), [[np.float16(6e4)]])


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda x: nn.adaptive_avg_pool(x, 0), ArgumentError, "output_size=0"),
        (lambda x: nn.adaptive_max_pool(x, (2, 2.5)), ArgumentTypeError, "no integer"),
        (lambda x: nn.lp_pool(x, 2, 0.5), ArgumentError, "degree=0.5 is below 1"),
        (lambda x: nn.max_pool(x, 2, ceil_mod=True), ArgumentTypeError, "no argument 'ceil_mod'"),
        (lambda x: nn.lp_pool(x, 2, norm_type=2), ArgumentTypeError, "Fix: write degree="),
    ],
)
def test_mistakes_are_named(call: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        call(np.ones((1, 2, 5, 5)))


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 9])
def test_an_infinity_or_nan_stays_in_the_bins_that_hold_it(size: int) -> None:
    for special in (np.inf, -np.inf, np.nan):
        x = np.arange(14.0).reshape(1, 2, 7)
        x[0, 1, 3] = special
        starts, ends = np.arange(size) * 7 // size, -(-(np.arange(size) + 1) * 7 // size)
        want = np.stack([x[..., a:b].mean(-1) for a, b in zip(starts, ends, strict=True)], -1)
        for pool in (nn.adaptive_avg_pool, nnc.compile(nn.adaptive_avg_pool, static_argnums=1)):
            np.testing.assert_allclose(np.asarray(pool(x, size)), want, rtol=1e-14)


@pytest.mark.parametrize(("n", "size"), [(7, 3), (13, 9), (5, 11), (40, 12)])
def test_gradients_of_bins_are_local_and_the_same_compiled(n: int, size: int) -> None:
    """Derivatives of any order: the map is linear, so a second derivative of its square is the map and its transpose."""
    starts, ends = np.arange(size) * n // size, -(-(np.arange(size) + 1) * n // size)
    place = np.arange(n)[:, None]
    shares = ((place >= starts) & (place < ends)) / (ends - starts)
    x = np.random.default_rng(1).normal(size=(2, 3, n))
    square = lambda x: (nn.adaptive_avg_pool(x, size) ** 2).sum() / 2
    for grad in (nnc.grad(square), nnc.compile(nnc.grad(square))):
        np.testing.assert_allclose(np.asarray(grad(x)), x @ shares @ shares.T, rtol=1e-12, atol=1e-14)
        _, moved = nnc.jvp(grad, (x,), (x,))
        np.testing.assert_allclose(np.asarray(moved), x @ shares @ shares.T, rtol=1e-12, atol=1e-14)
    ct = np.ones((2, 3, size))
    ct[0, 1, size // 2] = np.inf
    pulled = np.asarray(nnc.vjp(lambda x: nn.adaptive_avg_pool(x, size), x)[1](ct)[0])
    inside = shares[:, size // 2] > 0
    assert np.isinf(pulled[0, 1, inside]).all() and np.isfinite(pulled[0, 1, ~inside]).all()
    rows = nnc.vmap(lambda x: nn.adaptive_avg_pool(x[None], size)[0])(x)
    np.testing.assert_allclose(np.asarray(rows), x @ shares, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(("n", "size"), [(7, 3), (13, 9), (5, 11), (300, 251)])
def test_sums_over_bins_by_a_product_are_those_one_by_one(n: int, size: int) -> None:
    x = np.random.default_rng(2).normal(size=(2, n, 3))
    for intervals in (bins.bin_intervals(n, size), bins._bins_of_places(size, n)):
        for axis, y in ((1, x), (2, x.swapaxes(1, 2)), (0, x[0])):
            wanted = bins._one_by_one(y, axis, intervals)
            np.testing.assert_allclose(bins._sums(y, axis, intervals), wanted, rtol=1e-12, atol=1e-14)
            np.testing.assert_allclose(bins._by_product(y, axis, intervals), wanted, rtol=1e-12, atol=1e-14)


def test_sums_over_bins_name_the_axis_or_size_that_they_refuse() -> None:
    for axis, size, shape in ((-1, 2, (3, 4)), (2, 2, (3, 4)), (0, 0, (3, 4)), (0, 2, (0, 4))):
        with pytest.raises(ArgumentError, match="bin_sums: there are no bins"):
            bins.bin_sums(np.ones(shape), axis=axis, bins=size)
