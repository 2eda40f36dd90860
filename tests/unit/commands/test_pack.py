"""Blocked layouts by hand, and the reference of `pack`; tests/unit/backends holds the library against it."""

from __future__ import annotations

import numpy as np
import pytest

from nnc.commands.conv import conv
from nnc.commands.pack import Blocks, pack
from nnc.errors import ArgumentError, ShapeError
from nnc.graph import TensorSpec, infer_specs, reference

LAYOUTS = (
    "5x3:ab", "5x3:ba", "5x3:Ab4a", "5x3:bA4a", "5x3:aB2b", "5x3:AB2a2b", "5x7:AB2a4b2a", "2x5x3:aCb2c", "4x3x2x2:Acdb16a",
)  # fmt: skip
WINDOWS = {"stride": (1,), "padding": ((1, 1),), "dilation": (1,)}


def test_blocks_lie_behind_the_outer_axes_and_are_filled_up_with_zeros() -> None:
    x = np.arange(6, dtype=np.float32).reshape(3, 2) + 1
    np.testing.assert_array_equal(np.asarray(pack(x, layout="3x2:Ab2a")), [1, 3, 2, 4, 5, 0, 6, 0])
    np.testing.assert_array_equal(np.asarray(pack(x, layout="3x2:bA2a")), [1, 3, 5, 0, 2, 4, 6, 0])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_unpacking_inverts_packing(layout: str) -> None:
    blocks = Blocks.of(layout)
    x = np.random.default_rng(0).normal(size=blocks.sizes)
    row = blocks.pack(x)
    assert blocks.name == layout
    assert row.shape == (np.prod(blocks.padded),)
    assert np.count_nonzero(row) == x.size
    np.testing.assert_array_equal(blocks.unpack(row), x)


def test_the_spec_of_a_packed_tensor_names_the_layout_and_counts_the_padding() -> None:
    (spec,) = infer_specs(pack, (TensorSpec((5, 3), "float32"),), {"layout": "5x3:Ab4a"})
    assert str(spec) == "float32[24]:5x3:Ab4a"
    assert spec.nbytes == 96


def test_a_layout_may_have_groups_as_an_axis_of_their_own() -> None:
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    np.testing.assert_array_equal(reference[pack](x, layout="2x2x3:acb"), x.reshape(2, 2, 3).swapaxes(1, 2).reshape(-1))


@pytest.mark.parametrize("groups", [1, 2])
def test_a_convolution_reads_a_packed_weight(groups: int) -> None:
    rng = np.random.default_rng(1)
    x, w = rng.normal(size=(2, 4, 6)).astype(np.float32), rng.normal(size=(6, 4 // groups, 3)).astype(np.float32)
    layout = "6x4x3:AcB4a2b" if groups == 1 else "2x3x2x3:aBdc4b"
    found = conv(x, pack(w, layout=layout), groups=groups, packed=layout, **WINDOWS)
    np.testing.assert_array_equal(np.asarray(found), np.asarray(conv(x, w, groups=groups, **WINDOWS)))


@pytest.mark.parametrize("layout", ["", "3x2", "3x2:a", "3x2:aa", "3x2:aB", "3x2:ab2b", "3x2:aB0b", "3x2:ac"])
def test_unknown_layouts_are_refused(layout: str) -> None:
    with pytest.raises(ArgumentError, match="blocked layout"):
        pack(np.ones((3, 2), np.float32), layout=layout)


def test_the_layout_of_another_shape_is_refused() -> None:
    with pytest.raises(ShapeError, match="of shape"):
        pack(np.ones((3, 2), np.float32), layout="2x3:ab")


def test_a_weight_that_lies_otherwise_than_the_convolution_says_is_refused() -> None:
    spec, params = TensorSpec((2, 4, 6), "float32"), {"groups": 1, **WINDOWS}
    packed = TensorSpec((96,), "float32", "6x4x3:Acb4a")
    short = packed.update(shape=(72,))
    for weight, extra in ((packed, {}), (packed, {"packed": "6x4x3:Abc4a"}), (short, {"packed": packed.layout})):
        with pytest.raises(ShapeError, match="lies otherwise"):
            infer_specs(conv, (spec, weight), {**params, **extra})
