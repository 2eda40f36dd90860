"""Convolutions against sums written out, their gradients against each other, and refused operands."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nnc
from nnc.commands import conv as module
from nnc.commands.conv import conv, conv_input_grad, conv_weight_grad
from nnc.errors import ArgumentError, DTypeError, ShapeError
from nnc.graph import TensorSpec, attribute, command, infer, reference
from tests.contract.commands.samples_conv import GEOMETRIES

RNG = np.random.default_rng(0)
PLAIN: dict[str, Any] = {"stride": (1,), "padding": ((0, 0),), "dilation": (1,), "groups": 1}


def written_out(x: Any, w: Any, *, stride: Any, padding: Any, dilation: Any, groups: int) -> Any:
    """The definition, element by element."""
    x = np.pad(x, [(0, 0), (0, 0), *padding])
    kernel = w.shape[2:]
    out = [(n - d * (k - 1) - 1) // s + 1 for n, k, s, d in zip(x.shape[2:], kernel, stride, dilation, strict=True)]
    result = np.zeros((x.shape[0], w.shape[0], *out))
    for o, place, k in itertools.product(
        range(w.shape[0]), itertools.product(*map(range, out)), itertools.product(*map(range, kernel))
    ):
        group = o // (w.shape[0] // groups)
        channels = slice(group * w.shape[1], (group + 1) * w.shape[1])
        at = tuple(a * s + b * d for a, s, b, d in zip(place, stride, k, dilation, strict=True))
        result[(slice(None), o, *place)] += x[(slice(None), channels, *at)] @ w[(o, slice(None), *k)]
    return result


@pytest.mark.parametrize("column_elements", [1 << 23, 16])
@pytest.mark.parametrize(("x_shape", "w_shape", "params"), GEOMETRIES)
def test_conv_is_the_sum_it_says(
    x_shape: Any, w_shape: Any, params: Any, column_elements: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "COLUMN_ELEMENTS", column_elements)
    x, w = RNG.normal(size=x_shape), RNG.normal(size=w_shape)
    out = conv(x, w, **params)
    want = written_out(x, w, **params)
    assert out.shape == want.shape
    np.testing.assert_allclose(np.asarray(out), want, atol=1e-12)


@pytest.mark.parametrize("column_elements", [1 << 23, 16])
@pytest.mark.parametrize(("x_shape", "w_shape", "params"), GEOMETRIES)
def test_the_gradients_are_the_adjoints_of_conv(
    x_shape: Any, w_shape: Any, params: Any, column_elements: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "COLUMN_ELEMENTS", column_elements)
    x, w = RNG.normal(size=x_shape), RNG.normal(size=w_shape)
    out = np.asarray(conv(x, w, **params))
    ct = RNG.normal(size=out.shape)
    dx = np.asarray(conv_input_grad(ct, w, spatial=x_shape[2:], **params))
    dw = np.asarray(conv_weight_grad(x, ct, kernel=w_shape[2:], **params))
    assert dx.shape == x.shape
    assert dw.shape == w.shape
    np.testing.assert_allclose([np.vdot(dx, x), np.vdot(dw, w)], np.vdot(ct, out), atol=1e-9)


@pytest.mark.parametrize("batched", [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize(("x_shape", "w_shape", "params"), GEOMETRIES[:3])
def test_vmap_folds_the_batch_into_one_convolution(x_shape: Any, w_shape: Any, params: Any, batched: Any) -> None:
    x, w = (RNG.normal(size=(3,) * lead + shape) for lead, shape in zip(batched, (x_shape, w_shape), strict=True))
    mapped = nnc.vmap(lambda x, w: conv(x, w, **params), in_axes=tuple(0 if lead else None for lead in batched))
    rows = [np.asarray(conv(x[i] if batched[0] else x, w[i] if batched[1] else w, **params)) for i in range(3)]
    np.testing.assert_allclose(np.asarray(mapped(x, w)), np.stack(rows), atol=1e-12)
    names = [node.command.name for node in nnc.make_graph(mapped)(x, w).nodes]
    assert names.count("conv") == 1


def test_the_gradient_of_conv_is_one_command_for_each_operand() -> None:
    x, w = RNG.normal(size=(1, 2, 5)), RNG.normal(size=(3, 2, 2))
    graph = nnc.make_graph(nnc.grad(lambda x, w: conv(x, w, **PLAIN).sum(), argnums=(0, 1)))(x, w)
    names = [node.command.name for node in graph.nodes]
    assert (names.count("conv_input_grad"), names.count("conv_weight_grad")) == (1, 1)


@pytest.mark.parametrize("dtype", [np.int8, np.float16, ml_dtypes.bfloat16, np.float32, np.complex64])
def test_convolutions_keep_the_dtype(dtype: Any) -> None:
    x, w, ct = np.ones((1, 2, 4), dtype), np.ones((3, 2, 2), dtype), np.ones((1, 3, 3), dtype)
    out = conv(x, w, **PLAIN)
    assert (out.dtype, np.asarray(out).real.astype(int).tolist()) == (np.dtype(dtype), [[[4, 4, 4]] * 3][0:1])
    assert conv_input_grad(ct, w, spatial=(4,), **PLAIN).dtype == np.dtype(dtype)
    assert conv_weight_grad(x, ct, kernel=(2,), **PLAIN).dtype == np.dtype(dtype)


def test_sixteen_bit_convolutions_accumulate_in_float32() -> None:
    x, w = np.ones((1, 4096, 1), ml_dtypes.bfloat16), np.ones((1, 4096, 1), ml_dtypes.bfloat16)
    assert float(conv(x, w, **PLAIN)[0, 0, 0]) == 4096
    ones = np.ones((4096, 1, 1), ml_dtypes.bfloat16)
    assert float(conv_weight_grad(ones, ones, kernel=(1,), **PLAIN)[0, 0, 0]) == 4096


def test_the_cost_of_the_three_convolutions_is_the_same() -> None:
    x, w, ct = TensorSpec((2, 4, 9), "float32"), TensorSpec((6, 2, 3), "float32"), TensorSpec((2, 6, 7), "float32")
    params = {**PLAIN, "groups": 2}
    cost = attribute("cost")
    assert cost[conv](x, w, **params) == 2 * (2 * 6 * 7) * (2 * 3)
    assert cost[conv_input_grad](ct, w, spatial=(9,), **params) == cost[conv](x, w, **params)
    assert cost[conv_weight_grad](x, ct, kernel=(3,), **params) == cost[conv](x, w, **params)


@pytest.mark.parametrize(
    ("x_shape", "w_shape", "changes", "kind", "message"),
    [
        ((1, 3, 8), (4, 2, 3), {}, ShapeError, "channels differ: input axis 1 is 3, weight axis 1 is 2."),
        ((1, 4, 8), (4, 4, 3), {"groups": 2}, ShapeError, "input axis 1 is 4, weight axis 1 is 4 of groups=2."),
        (
            (1, 3, 8),
            (4, 1, 3),
            {"groups": 3},
            ArgumentError,
            "groups=3 does not divide the 3 input and 4 output channels",
        ),
        ((1, 2, 2), (4, 2, 3), {}, ShapeError, "spatial axis 0: the window covers 3 elements, the padded input has 2"),
        ((1, 2, 2), (4, 2, 2), {"dilation": (2,)}, ShapeError, "the window covers 3 elements"),
        ((1, 2), (4, 2), {}, ShapeError, "both need two axes and the spatial ones"),
        ((1, 2, 8), (4, 2, 3, 3), {}, ShapeError, "the input has 3 axes and the weight 4"),
        ((1, 2, 8), (4, 2, 3), {"stride": (1, 1)}, ArgumentError, "stride \\(1, 1\\) has 2 entries"),
        ((1, 2, 8), (4, 2, 3), {"stride": (0,)}, ArgumentError, "stride \\(0,\\) has an entry below 1"),
        ((1, 2, 8), (4, 2, 3), {"padding": ((-1, 0),)}, ArgumentError, "negative entry"),
    ],
)
def test_conv_names_operands_that_do_not_fit(
    x_shape: Any, w_shape: Any, changes: Any, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message) as caught:
        conv(np.ones(x_shape, np.float32), np.ones(w_shape, np.float32), **{**PLAIN, **changes})
    assert "\nFix: " in str(caught.value)


def test_convolutions_take_numbers_of_one_dtype_only() -> None:
    with pytest.raises(DTypeError, match="dtypes differ: float32, float64"):
        conv(np.ones((1, 1, 2), np.float32), np.ones((1, 1, 2)), **PLAIN)
    with pytest.raises(DTypeError, match="x must be numeric, it is bool"):
        conv(np.ones((1, 1, 2), bool), np.ones((1, 1, 2), bool), **PLAIN)


def test_the_gradients_refuse_a_cotangent_of_another_shape() -> None:
    f32 = "float32"
    with pytest.raises(
        ShapeError, match=r"cotangent has shape \(1, 3, 4\), the convolution's output has shape \(1, 3, 3\)"
    ):
        infer[conv_input_grad](TensorSpec((1, 3, 4), f32), TensorSpec((3, 2, 2), f32), spatial=(4,), **PLAIN)
    with pytest.raises(ShapeError, match=r"cotangent has shape \(2, 3, 3\)"):
        infer[conv_weight_grad](TensorSpec((1, 2, 4), f32), TensorSpec((2, 3, 3), f32), kernel=(2,), **PLAIN)


def terms(x_shape: Any, w_shape: Any, y_shape: Any, params: dict[str, Any]) -> Iterator[tuple[Any, Any, Any]]:
    """The places of x, w and y that stand together in a term of a convolution."""
    groups = params["groups"]
    for w_place in np.ndindex(*w_shape):
        for y_place in np.ndindex(*y_shape[:1], *y_shape[2:]):
            inner = tuple(
                p * stride + k * dilation - low
                for p, k, stride, dilation, (low, _) in zip(
                    y_place[1:], w_place[2:], params["stride"], params["dilation"], params["padding"], strict=True
                )
            )
            if all(0 <= i < n for i, n in zip(inner, x_shape[2:], strict=True)):
                channel = w_place[0] // (w_shape[0] // groups) * w_shape[1] + w_place[1]
                yield (y_place[0], channel, *inner), w_place, (y_place[0], w_place[0], *y_place[1:])


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("name", ["conv", "conv_input_grad", "conv_weight_grad"])
def test_places_of_the_padding_are_no_terms_of_a_sum(name: str, value: float) -> None:
    """Else 0 times an infinity would be NaN there."""
    rng = np.random.default_rng(0)
    params = {"stride": (2, 1), "padding": ((1, 2), (0, 1)), "dilation": (1, 2), "groups": 2}
    shapes = {"x": (2, 4, 4, 4), "w": (2, 2, 3, 2), "y": (2, 2, 3, 3)}
    more = {"conv": {}, "conv_input_grad": {"spatial": (4, 4)}, "conv_weight_grad": {"kernel": (3, 2)}}[name]
    first, second, sought = {"conv": "xwy", "conv_input_grad": "ywx", "conv_weight_grad": "xyw"}[name]
    for position in (0, 1):
        for place in range(3):
            tensors = {key: rng.integers(1, 4, shape).astype(np.float32) for key, shape in shapes.items()}
            tensors[(first, second)[position]].reshape(-1)[place] = value
            expected = np.zeros(shapes[sought], np.float32)
            for row in terms(*shapes.values(), params):
                places = dict(zip("xwy", row, strict=True))
                expected[places[sought]] += tensors[first][places[first]] * tensors[second][places[second]]
            found = reference[command(name)](tensors[first], tensors[second], **params, **more)
            np.testing.assert_array_equal(found, expected)


def test_the_gradient_of_a_grouped_weight_takes_no_padding_times_infinity() -> None:
    rng = np.random.default_rng(5)
    x, ct = rng.normal(size=(2, 6, 4, 5)), rng.normal(size=(2, 4, 4, 5))
    ct[1, 3, 0, 0] = np.inf  # padding lies beside it
    padding = ((1, 1), (1, 1))
    params = {"kernel": (3, 3), "stride": (1, 1), "padding": padding, "dilation": (1, 1), "groups": 2}
    found = reference[command("conv_weight_grad")](x, ct, **params)
    wanted = np.zeros((4, 3, 3, 3))
    with np.errstate(invalid="ignore"):
        for o, c, i, j, n, row, column in np.ndindex(4, 3, 3, 3, 2, 4, 5):
            y, z = row + i - 1, column + j - 1
            if 0 <= y < 4 and 0 <= z < 5:
                wanted[o, c, i, j] += ct[n, o, row, column] * x[n, o // 2 * 3 + c, y, z]
    assert not np.isnan(wanted).any() and np.isinf(wanted).any()
    np.testing.assert_allclose(found, wanted, rtol=1e-12)
