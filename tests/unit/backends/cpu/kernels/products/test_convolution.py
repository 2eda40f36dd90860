"""Printed convolutions against the reference: windows, strides, gradients, dtypes, layouts of memory, infinities at the padding."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import nnc
from nnc.backends.cpu.kernels.products.convolution import _box_product, _sums_of
from nnc.backends.products import product_of
from nnc.base.target import Target
from nnc.commands.pack import Blocks
from nnc.commands.windows import is_narrow
from nnc.graph import TensorSpec, command, find_kernel, infer_specs, spec_of
from nnc.lower.plan.stages import Step, View
from tests.figures import HERE
from tests.unit.backends.cpu.against_reference import LAYOUTS, Layout, check, dense

ALONE = replace(HERE, backends=("cpu",))
BETWEEN_ZEROS = replace(
    ALONE,
    convolutions=ALONE.convolutions._replace(most_boxes=0),
)
# shape of x, shape of w, stride, padding, dilation, groups
CASES = {
    "plain": ((2, 3, 7, 8), (4, 3, 3, 3), (1, 1), ((0, 0), (0, 0)), (1, 1), 1),
    "padded": ((2, 3, 6, 5), (4, 3, 3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 1),
    "strided": ((1, 2, 11, 9), (3, 2, 3, 3), (2, 2), ((1, 1), (1, 1)), (1, 1), 1),
    "uneven": ((1, 2, 9, 12), (3, 2, 2, 4), (3, 1), ((2, 0), (0, 3)), (1, 1), 1),
    "dilated": ((2, 2, 10, 11), (3, 2, 3, 2), (2, 1), ((2, 1), (1, 2)), (2, 3), 1),
    "groups": ((2, 6, 7, 7), (4, 3, 3, 3), (1, 2), ((1, 1), (1, 1)), (1, 1), 2),
    "depthwise": ((1, 5, 8, 8), (5, 1, 3, 3), (2, 2), ((1, 1), (1, 1)), (1, 1), 5),
    "one axis": ((2, 3, 30), (5, 3, 7), (2,), ((3, 3),), (1,), 1),
    "three axes": ((1, 2, 4, 5, 6), (3, 2, 2, 3, 3), (1, 2, 1), ((0, 1), (1, 1), (1, 0)), (1, 1, 2), 1),
    "all padding": ((1, 1, 1, 2), (2, 1, 2, 2), (1, 1), ((4, 4), (3, 3)), (1, 1), 1),
    "wide stride": ((1, 2, 9, 9), (2, 2, 2, 2), (4, 4), ((0, 0), (1, 1)), (1, 1), 1),
    "one place": ((3, 4, 5, 5), (2, 4, 1, 1), (1, 1), ((0, 0), (0, 0)), (1, 1), 1),
    "many channels": ((2, 5, 7, 7), (17, 5, 3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 1),
    "many channels in groups": ((2, 6, 9, 8), (36, 3, 3, 2), (2, 1), ((1, 0), (2, 1)), (1, 2), 2),
    "blocks": ((2, 16, 5, 6), (64, 16, 3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 1),
    "blocks in groups": ((2, 8, 6, 5), (64, 4, 2, 3), (2, 1), ((1, 0), (1, 1)), (1, 1), 2),
    "empty": ((0, 2, 5, 5), (3, 2, 3, 3), (1, 1), ((0, 0), (0, 0)), (1, 1), 1),
}


def draw(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    if dtype.startswith("int"):
        return rng.integers(-5, 5, shape).astype(dtype)
    return np.round(rng.normal(size=shape), 1).astype(np.dtype(dtype))


def compare(
    name: str, dtype: str, layout: Layout = dense, channels_last: bool = False, machine: Target = ALONE
) -> None:
    x_shape, w_shape, stride, padding, dilation, groups = CASES[name]
    windows: dict[str, Any] = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    rng = np.random.default_rng(0)
    x, w = draw(rng, x_shape, dtype), draw(rng, w_shape, dtype)
    (out,) = infer_specs(command("conv"), (spec_of(x), spec_of(w)), windows)
    ct = draw(rng, out.shape, dtype)
    if channels_last:
        windows["channels_last"] = True
        x, ct = np.moveaxis(x, 1, -1), np.moveaxis(ct, 1, -1)
    x, w, ct = map(layout, (x, w, ct))
    tolerance = 0 if dtype.startswith("int") else 1e-12 if dtype == "float64" else 1e-4
    check("conv", [x, w], windows, layout, tolerance, machine)
    check("conv_input_grad", [ct, w], {**windows, "spatial": x_shape[2:]}, layout, tolerance, machine)
    check("conv_weight_grad", [x, ct], {**windows, "kernel": w_shape[2:]}, layout, tolerance, machine)


@pytest.mark.parametrize("name", CASES)
def test_convolutions_and_gradients_agree_with_the_reference(name: str) -> None:
    compare(name, "float64")


@pytest.mark.parametrize("dtype", ["float32", "int32", "int8"])
@pytest.mark.parametrize("name", ["strided", "dilated", "groups", "many channels"])
def test_other_dtypes_agree_with_the_reference(name: str, dtype: str) -> None:
    compare(name, dtype)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("channels_last", [False, True])
def test_operands_may_lie_in_any_way(layout: Layout, channels_last: bool) -> None:
    compare("uneven", "float64", layout, channels_last)
    compare("many channels in groups", "float64", layout, channels_last)


@pytest.mark.parametrize("special", [np.inf, np.nan])
@pytest.mark.parametrize("channels", [2, 16])
def test_padding_is_no_term_of_a_sum(special: float, channels: int) -> None:
    x, w = np.ones((1, 1, 4, 4)), np.ones((channels, 1, 3, 3))
    w[0, 0, 0, 0] = special
    windows: dict[str, Any] = {"stride": (1, 1), "padding": ((1, 1), (1, 1)), "dilation": (1, 1), "groups": 1}
    for machine in (ALONE, BETWEEN_ZEROS):
        check("conv", [x, w], windows, dense, 1e-12, machine)
        ct = np.ones((1, channels, 4, 4))
        check("conv_input_grad", [ct, w], {**windows, "spatial": (4, 4)}, dense, 1e-12, machine)


@pytest.mark.parametrize("name", CASES)
def test_images_are_copied_between_zeros_where_a_large_weight_would_be_read_for_each_box(name: str) -> None:
    compare(name, "float64", machine=BETWEEN_ZEROS)


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("name", ["groups", "many channels", "blocks", "blocks in groups", "one axis", "empty"])
def test_packed_weights_give_the_same(name: str, channels_last: bool) -> None:
    x_shape, w_shape, stride, padding, dilation, groups = CASES[name]
    windows: dict[str, Any] = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    rng = np.random.default_rng(0)
    x, w = draw(rng, x_shape, "float64"), draw(rng, w_shape, "float64")
    (out,) = infer_specs(command("conv"), (spec_of(x), spec_of(w)), windows)
    ct = draw(rng, out.shape, "float64")
    if channels_last:
        windows["channels_last"] = True
        x, ct = np.moveaxis(x, 1, -1), np.moveaxis(ct, 1, -1)
    for name_, left, more in (("conv", x, {}), ("conv_input_grad", ct, {"spatial": x_shape[2:]})):
        params = {**windows, **more}
        kernel = find_kernel(command(name_), (spec_of(left), spec_of(w)), params, ALONE)
        assert kernel is not None
        layout = kernel.layouts((spec_of(left), spec_of(w)), params, True)[1]
        assert ("blocks" in name and name_ == "conv") <= bool(Blocks.of(layout).blocks)
        check("pack", [w], {"layout": layout}, dense, 0, ALONE)
        packed = Blocks.of(layout).pack(w)
        check(name_, [left, packed], {**params, "packed": layout}, dense, 1e-12, ALONE)


@pytest.mark.parametrize("channels_last", [False, True])
def test_a_block_of_columns_is_a_matrix_however_many_blocks_there_are(channels_last: bool) -> None:
    short = replace(ALONE, vector_bytes=16)
    x, w = spec_of(np.zeros((1, 4, 4, 4), np.float32)), spec_of(np.zeros((128, 4, 3, 3), np.float32))
    params: dict[str, Any] = {"stride": (1, 1), "padding": ((1, 1), (1, 1)), "dilation": (1, 1), "groups": 1}
    params["channels_last"] = channels_last
    (out,) = infer_specs(command("conv"), (x, w), params)
    kernel = find_kernel(command("conv"), (x, w), params, short)
    assert kernel is not None
    layout = kernel.layouts((x, w), params, True)[1]
    ((_, size),) = Blocks.of(layout).blocks
    assert 128 // size > size
    left, right, target = (View.whole(0, spec) for spec in (x, replace(w, shape=(w.size,)), out))
    step = Step(command("conv"), (left, right), (target,), {**params, "packed": layout})
    sums = _sums_of(step)
    for runs in itertools.product(*sums.cut):
        made = product_of(_box_product(step, sums.tensors, runs))
        assert size in (made.columns.size, made.rows.size)


# -- within programs that have oneDNN ----------------------------------------------------------------------------------

NARROW = {
    "windows of 3 x 3": ((1, 5, 9, 20), (3, 5, 3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 1),
    "wide windows": ((1, 3, 10, 40), (4, 3, 3, 21), (1, 1), ((1, 1), (10, 10)), (1, 1), 1),
    "wide and dilated": ((1, 2, 30, 30), (2, 2, 5, 5), (1, 1), ((4, 2), (6, 6)), (2, 3), 1),
    "one axis, strided": ((1, 1, 200), (1, 1, 32), (2,), ((20, 31),), (1,), 1),
}


@pytest.mark.parametrize("special", [0.5, np.inf, np.nan])
@pytest.mark.parametrize("name", NARROW)
def test_one_image_to_few_channels_is_printed(name: str, special: float) -> None:
    x_shape, w_shape, stride, padding, dilation, groups = NARROW[name]
    windows: dict[str, Any] = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    x, w = (draw(np.random.default_rng(0), shape, "float32") for shape in (x_shape, w_shape))
    w[(0,) * w.ndim] = special
    assert is_narrow(spec_of(x), spec_of(w), windows, HERE.convolutions)
    check("conv", [x, w], windows, dense, 1e-5, HERE)
    for shape, changed in (((2, *x_shape[1:]), {}), (x_shape, {"channels_last": True})):
        assert not is_narrow(TensorSpec(shape, x.dtype), spec_of(w), {**windows, **changed}, HERE.convolutions)


def test_a_narrow_convolution_reads_rows() -> None:
    """Activations whose channels are last are turned once."""
    x = np.random.default_rng(0).normal(size=(1, 9, 30, 4)).astype(np.float32)
    w = np.random.default_rng(1).normal(size=(2, 4, 3, 3)).astype(np.float32)
    f = nnc.compile(lambda x: nnc.nn.conv(nnc.numpy.transpose(x, (0, 3, 1, 2)), w, padding=1))
    np.testing.assert_allclose(f(x), nnc.nn.conv(x.transpose(0, 3, 1, 2), w, padding=1), rtol=1e-4, atol=1e-5)
    commands = [row.command for row in nnc.debug.profile(f, x).rows]
    assert commands == ["reorder", "conv"]
