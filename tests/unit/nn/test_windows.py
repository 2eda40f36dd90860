"""Convolution and pooling as users call them: layouts, padding, any rank and number of batch axes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nnc
from nnc import nn
from nnc.errors import ArgumentError, ArgumentTypeError, ShapeError
from nnc.nn.windows import to_padding

RNG = np.random.default_rng(0)


def direct(x: Any, w: Any, stride: Any = (1, 1)) -> Any:
    """A 2-d convolution without padding, by windows."""
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], (2, 3))[:, :, :: stride[0], :: stride[1]]
    return np.einsum("nchwij,ocij->nohw", windows, w)


def test_conv_is_a_sum_over_windows() -> None:
    x, w = RNG.normal(size=(2, 3, 8, 7)), RNG.normal(size=(4, 3, 3, 2))
    np.testing.assert_allclose(np.asarray(nn.conv(x, w)), direct(x, w), atol=1e-12)
    padded = np.pad(x, [(0, 0), (0, 0), (1, 1), (2, 2)])
    np.testing.assert_allclose(
        np.asarray(nn.conv(x, w, stride=2, padding=(1, 2))), direct(padded, w, (2, 2)), atol=1e-12
    )
    padded = np.pad(x, [(0, 0), (0, 0), (1, 0), (0, 2)])
    np.testing.assert_allclose(np.asarray(nn.conv(x, w, padding=((1, 0), (0, 2)))), direct(padded, w), atol=1e-12)


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("pad", [0, 1])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_an_axis_of_one_element_may_stand_anywhere(stride: int, dilation: int, pad: int, layout: str) -> None:
    x, w = RNG.normal(size=(2, 4, 9, 1)), RNG.normal(size=(6, 2, 3, 1))
    channels_last = layout == "NHWC"

    def loss(x: Any, w: Any, axis: int) -> Any:
        """The sum of squares, and the convolution along the last axis but one."""
        places = (0, 1, 3, 2) if axis == 2 else (0, 1, 2, 3)
        x, w = nnc.numpy.transpose(x, places), nnc.numpy.transpose(w, places)
        sizes = {"stride": (stride, 3), "dilation": (dilation, 2), "padding": (pad, 0)}
        sizes = {name: pair if axis == 3 else pair[::-1] for name, pair in sizes.items()}
        x = nnc.numpy.moveaxis(x, 1, -1) if channels_last else x
        out = nn.conv(x, w, groups=2, layout=layout, **sizes)
        out = nnc.numpy.moveaxis(out, -1, 1) if channels_last else out
        return (out**2).sum(), nnc.numpy.transpose(out, places)

    for run in (lambda f: f, nnc.compile):
        found, other = (
            run(nnc.value_and_grad(lambda x, w, axis=axis: loss(x, w, axis), (0, 1), has_aux=True))(x, w)
            for axis in (3, 2)
        )
        for one, same in zip(nnc.tree.leaves(found), nnc.tree.leaves(other), strict=True):
            np.testing.assert_allclose(np.asarray(one), np.asarray(same), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("rank", "first", "last"), [(1, "NCW", "NWC"), (2, "NCHW", "NHWC"), (3, "NCDHW", "NDHWC"), (1, "NCHW", "NHWC")]
)
def test_layouts_say_where_the_channels_stand(rank: int, first: str, last: str) -> None:
    x, w = RNG.normal(size=(2, 4, 6, 5, 4)[: rank + 2]), RNG.normal(size=(6, 2, 3, 2, 2)[: rank + 2])
    out = nn.conv(x, w, stride=2, padding="SAME", groups=2, layout=first)
    moved = nn.conv(np.moveaxis(x, 1, -1), w, stride=2, padding="SAME", groups=2, layout=last)
    np.testing.assert_allclose(np.moveaxis(np.asarray(moved), -1, 1), np.asarray(out))
    pooled = nn.max_pool(x, 2, layout=first)
    np.testing.assert_array_equal(
        np.moveaxis(np.asarray(nn.max_pool(np.moveaxis(x, 1, -1), 2, layout=last)), -1, 1), np.asarray(pooled)
    )


def test_a_layout_may_name_the_axes_in_any_order() -> None:
    x, w = RNG.normal(size=(2, 3, 6, 5)), RNG.normal(size=(4, 3, 3, 2))
    out = nn.conv(x.transpose(0, 2, 1, 3), w, layout="NHCW")
    np.testing.assert_allclose(np.asarray(out).transpose(0, 2, 1, 3), direct(x, w), atol=1e-12)


@pytest.mark.parametrize("batch", [(), (3,), (2, 3), (0,)])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_any_number_of_batch_axes_may_stand_in_front(batch: tuple[int, ...], layout: str) -> None:
    x, w = RNG.normal(size=(*batch, *((2, 6, 6) if layout == "NCHW" else (6, 6, 2)))), RNG.normal(size=(4, 2, 3, 3))
    out = np.asarray(nn.conv(x, w, layout=layout))
    assert out.shape == (*batch, *((4, 4, 4)))
    flat = x.reshape(-1, *x.shape[-3:])
    rows = [np.asarray(nn.conv(row[None], w, layout=layout))[0] for row in flat]
    np.testing.assert_allclose(out.reshape(-1, 4, 4, 4), np.reshape(rows, (-1, 4, 4, 4)), atol=1e-12)
    assert nn.max_pool(x, (2, 2), layout=layout).shape == (*batch, *((2, 3, 3) if layout == "NCHW" else (3, 3, 2)))


@pytest.mark.parametrize("size", [5, 6, 7])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("dilation", [1, 2])
def test_same_padding_keeps_the_size_divided_by_the_stride(size: int, stride: int, dilation: int) -> None:
    x, w = RNG.normal(size=(1, 1, size)), RNG.normal(size=(1, 1, 3))
    out = nn.conv(x, w, stride=stride, dilation=dilation, padding="SAME")
    assert out.shape[-1] == -(-size // stride)
    back = nn.conv_transpose(out, w, stride=stride, dilation=dilation, padding="SAME")
    assert back.shape[-1] == out.shape[-1] * stride


def test_same_padding_puts_an_odd_element_after() -> None:
    assert to_padding("conv", "same", (6,), (4,), (1,), (1,)) == ((1, 2),)
    assert to_padding("conv", "valid", (6,), (4,), (1,), (1,)) == ((0, 0),)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"stride": 2},
        {"stride": (2, 3), "padding": 1},
        {"stride": 3, "padding": (1, 0), "output_padding": (2, 1)},
        {"dilation": 2, "groups": 2, "stride": 2, "output_padding": 1},
        {"padding": ((0, 1), (2, 0))},
    ],
)
def test_conv_transpose_is_the_adjoint_of_conv(options: dict[str, Any]) -> None:
    groups = options.get("groups", 1)
    y, w = RNG.normal(size=(2, 4, 4, 3)), RNG.normal(size=(4, 6 // groups, 3, 3))
    out = np.asarray(nn.conv_transpose(y, w, **options))
    x = RNG.normal(size=out.shape)
    forward = {name: value for name, value in options.items() if name != "output_padding"}
    np.testing.assert_allclose(np.vdot(out, x), np.vdot(np.asarray(nn.conv(x, w, **forward)), y))


def test_conv_transpose_scatters_the_kernel() -> None:
    out = nn.conv_transpose(np.array([[[1.0, 10.0]]]), np.array([[[1.0, 2.0, 3.0]]]), stride=2)
    np.testing.assert_array_equal(np.asarray(out), [[[1, 2, 13, 20, 30]]])


def test_convolutions_have_the_right_derivatives() -> None:
    x, w = RNG.normal(size=(1, 5, 4, 2)), RNG.normal(size=(2, 2, 3, 2))
    nnc.testing.check_grads(lambda x, w: nn.conv(x, w, stride=2, padding="SAME", layout="NHWC"), (x, w), order=2)
    nnc.testing.check_grads(lambda x, w: nn.conv_transpose(x, w, stride=2, layout="NHWC"), (x, w), order=2)


def test_pools_take_the_greatest_or_the_mean_of_blocks() -> None:
    x = RNG.normal(size=(2, 3, 6, 4))
    blocks = x.reshape(2, 3, 3, 2, 2, 2)
    np.testing.assert_array_equal(np.asarray(nn.max_pool(x, 2)), blocks.max((3, 5)))
    np.testing.assert_allclose(np.asarray(nn.avg_pool(x, 2)), blocks.mean((3, 5)))


def test_avg_pool_counts_the_padding_or_not() -> None:
    ones = np.ones((1, 1, 3))
    np.testing.assert_allclose(np.asarray(nn.avg_pool(ones, 3, stride=1, padding=1))[0, 0], [2 / 3, 1, 2 / 3])
    out = nn.avg_pool(ones, 3, stride=1, padding="SAME", count_include_pad=False)
    np.testing.assert_allclose(np.asarray(out)[0, 0], [1, 1, 1])


def test_pools_of_integers() -> None:
    x = np.arange(4).reshape(1, 1, 4)
    assert np.asarray(nn.max_pool(x, 2)).tolist() == [[[1, 3]]]
    assert np.asarray(nn.avg_pool(x, 2)).tolist() == [[[0.5, 2.5]]]


def test_pools_have_the_right_derivatives() -> None:
    x = RNG.permutation(24).reshape(1, 1, 6, 4) * 0.1
    nnc.testing.check_grads(lambda x: nn.max_pool(x, 3, stride=1, padding=1), (x,), order=1)
    nnc.testing.check_grads(lambda x: nn.avg_pool(x, 2, padding=1, count_include_pad=False), (x,), order=2)


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda x, w: nn.conv(x, w, layout="CHWN"), ArgumentError, "'CHWN' is no layout"),
        (lambda x, w: nn.conv(x, w, layout="NCW"), ArgumentError, "layout 'NCW' has 1 spatial axes, the window has 2"),
        (lambda x, w: nn.conv(x, w, padding="FULL"), ArgumentError, "padding='FULL' is unknown"),
        (lambda x, w: nn.conv(x, w, padding=(1, 2, 3)), ArgumentError, "has 3 entries, there are 2 spatial axes"),
        (lambda x, w: nn.conv(x, w, padding=((1, 2),)), ArgumentError, "has 1 pairs, there are 2 spatial axes"),
        (lambda x, w: nn.conv(x, w, stride=1.5), ArgumentTypeError, "stride=1.5 is no integer"),
        (lambda x, w: nn.conv(x[0, 0], w), ShapeError, "the input has 2 axes; channels and 2 spatial axes are needed"),
        (lambda x, w: nn.conv(x, w[:, :1]), ShapeError, "channels differ: input axis 1 is 2, weight axis 1 is 1"),
        (lambda x, w: nn.conv_transpose(x, w), ShapeError, "channels differ: the input has 2, weight axis 0 is 4"),
        (
            lambda x, w: nn.conv_transpose(x, w[:2], output_padding=1),
            ArgumentError,
            "output_padding=1 is not below stride=1",
        ),
        (lambda x, w: nn.max_pool(x, 9), ShapeError, "the window covers 9 elements, the padded input has 5"),
        (
            lambda x, w: nn.max_pool(x[0, 0], (2, 2)),
            ShapeError,
            "the input has 2 axes; channels and 2 spatial axes are needed",
        ),
    ],
)
def test_mistakes_are_named(call: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        call(np.ones((1, 2, 5, 5)), np.ones((4, 2, 3, 3)))
