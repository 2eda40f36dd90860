"""Pooling against windows written out, ties, NaN and padding, and refused operands."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nnc
from nnc.commands.pool import max_pool, max_pool_places, pick_pool, sum_pool, sum_pool_input_grad
from nnc.errors import ArgumentError, DTypeError, ShapeError
from tests.contract.commands.samples_pool import GEOMETRIES

RNG = np.random.default_rng(0)
PAIRS: dict[str, Any] = {"window": (2,), "stride": (1,), "padding": ((0, 0),), "dilation": (1,)}


def written_out(
    x: Any, function: Callable[..., Any], fill: float, *, window: Any, stride: Any, padding: Any, dilation: Any
) -> Any:
    """`function` of each window, one after the other."""
    at = x.ndim - len(window)
    x = np.pad(x, [(0, 0)] * at + list(padding), constant_values=fill)
    out = [(n - d * (k - 1) - 1) // s + 1 for n, k, s, d in zip(x.shape[at:], window, stride, dilation, strict=True)]
    result = np.zeros((*x.shape[:at], *out))
    for place in itertools.product(*map(range, out)):
        index = tuple(
            slice(a * s, a * s + d * (k - 1) + 1, d) for a, s, k, d in zip(place, stride, window, dilation, strict=True)
        )
        result[(..., *place)] = function(x[(..., *index)], axis=tuple(range(at, x.ndim)))
    return result


@pytest.mark.parametrize(("shape", "params"), GEOMETRIES)
def test_pooling_is_the_maximum_or_sum_of_each_window(shape: Any, params: Any) -> None:
    x = RNG.normal(size=shape)
    np.testing.assert_array_equal(np.asarray(max_pool(x, **params)), written_out(x, np.max, -np.inf, **params))
    np.testing.assert_allclose(np.asarray(sum_pool(x, **params)), written_out(x, np.sum, 0, **params), atol=1e-12)


@pytest.mark.parametrize(("shape", "params"), GEOMETRIES)
def test_picking_the_places_of_the_maximum_gives_the_maximum(shape: Any, params: Any) -> None:
    x = RNG.normal(size=shape)
    places = max_pool_places(x, **params)
    assert places.dtype == np.uint8
    np.testing.assert_array_equal(np.asarray(pick_pool(x, places, **params)), np.asarray(max_pool(x, **params)))


@pytest.mark.parametrize(("window", "dtype"), [(256, np.uint8), (257, np.int32), (300, np.int32)])
def test_places_of_large_windows_take_more_than_a_byte(window: int, dtype: Any) -> None:
    """The last of 257 places is the first that a byte does not hold."""
    x = np.arange(float(window))
    places = max_pool_places(x, **{**PAIRS, "window": (window,)})
    assert (places.dtype, int(places[0])) == (dtype, window - 1)
    gradient = nnc.compile(nnc.grad(lambda x: nnc.nn.max_pool(x.reshape((1, 1, window)), (window,)).sum()))(x)
    np.testing.assert_array_equal(np.asarray(gradient), x == window - 1)


@pytest.mark.parametrize(("shape", "params"), [g for g in GEOMETRIES if len(g[0]) > len(g[1]["window"])])
def test_windows_move_on_the_axes_before_the_channels_where_these_are_last(shape: Any, params: Any) -> None:
    x = RNG.normal(size=shape)
    at = len(shape) - len(params["window"]) - 1
    last = np.moveaxis(x, at, -1)
    for pool in (max_pool, max_pool_places, sum_pool):
        expected = np.moveaxis(np.asarray(pool(x, **params)), at, -1)
        np.testing.assert_array_equal(np.asarray(pool(last, **params, channels_last=True)), expected)


def test_nan_wins_and_the_first_of_equal_elements_is_named() -> None:
    x = np.array([1, np.nan, 2, 2, -np.inf, -np.inf])
    np.testing.assert_array_equal(np.asarray(max_pool(x, **PAIRS)), [np.nan, np.nan, 2, 2, -np.inf])
    np.testing.assert_array_equal(np.asarray(max_pool_places(x, **PAIRS)), [1, 0, 0, 0, 0])


def test_padding_never_wins() -> None:
    params = {**PAIRS, "padding": ((1, 1),)}
    lowest = np.full(2, -np.inf)
    np.testing.assert_array_equal(np.asarray(max_pool_places(lowest, **params)), [1, 0, 0])
    np.testing.assert_array_equal(np.asarray(max_pool(np.array([-5, -3], np.int8), **params)), [-5, -3, -3])
    np.testing.assert_array_equal(np.asarray(max_pool_places(np.full(2, -128, np.int8), **params)), [1, 0, 0])


def test_the_gradient_of_the_maximum_goes_to_the_winners() -> None:
    x = np.array([3.0, 1.0, 2.0, 2.0])
    gradient = nnc.grad(lambda x: max_pool(x, **PAIRS).sum())(x)
    np.testing.assert_array_equal(np.asarray(gradient), [1, 0, 2, 0])


@pytest.mark.parametrize(("shape", "params"), GEOMETRIES)
def test_sum_pool_and_its_gradient_are_adjoint(shape: Any, params: Any) -> None:
    x = RNG.normal(size=shape)
    out = np.asarray(sum_pool(x, **params))
    ct = RNG.normal(size=out.shape)
    dx = np.asarray(sum_pool_input_grad(ct, spatial=shape[len(shape) - len(params["window"]) :], **params))
    assert dx.shape == x.shape
    np.testing.assert_allclose(np.vdot(dx, x), np.vdot(ct, out), atol=1e-9)


@pytest.mark.parametrize("dtype", [np.int16, np.float16, ml_dtypes.bfloat16, np.float32])
def test_pooling_keeps_the_dtype_and_accumulates_wide(dtype: Any) -> None:
    x = np.ones(4096, dtype)
    params = {**PAIRS, "window": (4096,)}
    out = sum_pool(x, **params)
    assert (out.dtype, float(out[0])) == (np.dtype(dtype), 4096)
    assert max_pool(x, **params).dtype == np.dtype(dtype)
    assert sum_pool_input_grad(np.ones(1, dtype), spatial=(4096,), **params).dtype == np.dtype(dtype)


@pytest.mark.parametrize(
    ("shape", "changes", "kind", "message"),
    [
        ((3,), {"window": (5,)}, ShapeError, "the window covers 5 elements, the padded input has 3"),
        ((3,), {"padding": ((2, 0),)}, ArgumentError, "a window lies in the padding \\(2, 0\\) alone"),
        ((1,), {"padding": ((1, 1),), "dilation": (2,)}, ArgumentError, "lies in the padding"),
        ((3,), {"stride": (0,)}, ArgumentError, "stride \\(0,\\) has an entry below 1"),
        ((3,), {"stride": (1, 1)}, ArgumentError, "stride \\(1, 1\\) has 2 entries, the input has 1 spatial axes"),
        ((), {}, ShapeError, "window \\(2,\\) has 1 axes, the input has 0"),
    ],
)
def test_max_pool_names_operands_that_do_not_fit(shape: Any, changes: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message) as caught:
        max_pool(np.ones(shape, np.float32), **{**PAIRS, **changes})
    assert "\nFix: " in str(caught.value)


def test_max_pool_takes_real_numbers_only() -> None:
    with pytest.raises(DTypeError, match="x must be a real number type, it is complex64"):
        max_pool(np.ones(3, np.complex64), **PAIRS)


def test_the_gradient_of_sum_pool_refuses_a_cotangent_of_another_shape() -> None:
    with pytest.raises(ShapeError, match=r"does not end in \(3,\)"):
        sum_pool_input_grad(np.ones(4, np.float32), spatial=(4,), **PAIRS)


def test_picking_refuses_places_of_other_windows() -> None:
    with pytest.raises(ShapeError, match=r"the places are int32\[3\], those of these windows are uint8\[3\]") as caught:
        pick_pool(np.ones(4, np.float32), np.zeros(3, np.int32), **PAIRS)
    assert "Fix: pass the result of max_pool_places" in str(caught.value)
