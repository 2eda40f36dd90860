"""Views of views show the elements that their strides say, and loops end with the copy that ran last."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided

from nnc.graph import TensorSpec, command
from nnc.lower.plan.stages import Loop, Strides, View, row_major
from nnc.lower.plan.views import restride, within

ITEM = 4  # bytes of a float32


def addresses(view: View) -> list[int]:
    """The first byte of each element, in row-major order."""
    indices = product(*map(range, view.spec.shape))
    return [view.offset + sum(i * s for i, s in zip(index, view.strides, strict=True)) for index in indices]


def spec(shape: tuple[int, ...]) -> TensorSpec:
    return TensorSpec(shape, "float32")


@st.composite
def places(draw: st.DrawFn) -> View:
    """A tensor within a buffer, dense or with gaps and transposed."""
    shape = tuple(draw(st.lists(st.sampled_from([1, 2, 3, 4]), min_size=1, max_size=3)))
    room = [n + draw(st.integers(0, 2)) for n in shape]
    order = draw(st.permutations(range(len(shape))))
    strides, step = [0] * len(shape), ITEM
    for axis in order:
        strides[axis], step = step, step * room[axis]
    return View(5, spec(shape), ITEM * draw(st.integers(0, 3)), tuple(strides))


@st.composite
def views(draw: st.DrawFn, shape: tuple[int, ...]) -> View:
    """Some elements of a dense tensor of a shape: a slice with steps, some of its axes joined or left out, or any strides."""
    total = ITEM
    for n in shape:
        total *= n
    ndim = draw(st.integers(0, 3))
    shown = tuple(draw(st.integers(1, 3)) for _ in range(ndim))
    steps: list[int] = [draw(st.sampled_from([0, ITEM, *row_major(spec(shape)), 2 * ITEM])) for _ in shown]
    reach = sum((n - 1) * s for n, s in zip(shown, steps, strict=True))
    if reach >= total:
        shown, steps, reach = (), [], 0
    offset = ITEM * draw(st.integers(0, (total - ITEM - reach) // ITEM))
    return View(1, spec(shown), offset, tuple(steps))


@given(st.data())
def test_a_view_within_a_place_shows_the_elements_that_it_shows_of_a_dense_tensor(data: st.DataObject) -> None:
    place = data.draw(places())
    view = data.draw(views(place.spec.shape))
    where: dict[int, int] = dict(zip(range(0, place.spec.nbytes, ITEM), addresses(place), strict=True))
    got = within(view, place)
    if got is not None:
        assert got.buffer == place.buffer and got.spec == view.spec
        assert addresses(got) == [where[address] for address in addresses(view)]


def test_views_along_the_axes_of_a_place_with_gaps_need_no_copy() -> None:
    place = View(5, spec((4, 3)), 8, (32, ITEM))
    cases: list[tuple[tuple[int, ...], int, Strides, Strides | None]] = [
        ((2, 3), 12, (24, ITEM), (64, ITEM)),
        ((4,), 4, (12,), (32,)),
        ((3, 4), 0, (ITEM, 12), (ITEM, 32)),
        ((2,), 8, (ITEM,), None),  # runs on into the next row
        ((3,), 12, (12,), (32,)),
        ((4,), 12, (12,), None),  # one row too many
    ]
    for shape, offset, strides, want in cases:
        got = within(View(1, spec(shape), offset, strides), place)
        assert (got.strides if got else None) == want


def test_the_copy_that_runs_last_is_the_one_a_count_gives() -> None:
    copies: Any = tuple(range(5))
    for number, first, length in product((1, 2, 4, 5), range(4), (1, 2, 3, 5, 8, 13)):
        if first < number:
            position = 0
            for _ in range(length - 1):
                position = position + 1 if position + 1 < number else first
            assert Loop(0, copies[:number], first, length=length).last == position
    assert Loop(0, copies, 1).last is None


SHAPES = [(24,), (1, 24), (24, 1), (4, 6), (2, 2, 6), (2, 1, 12), (1, 8, 3), (4, 1, 2, 3), (2, 3, 4), (1, 1, 24, 1)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_reshaped_tensor_is_a_view_where_numpy_finds_one(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    dense = rng.normal(size=shape).astype(np.float32)
    turned = rng.normal(size=shape[::-1]).astype(np.float32).T
    gaps = rng.normal(size=(*shape[:-1], 2 * shape[-1])).astype(np.float32)[..., ::2]
    spread = np.broadcast_to(np.float32(3), shape)
    for x, after in product((dense, turned, gaps, np.flip(dense), spread), SHAPES):
        moved = restride[command("reshape")](spec(shape), spec(after), x.strides, shape=after)
        assert (moved is None) == (not np.shares_memory(x.reshape(after), x))
        if moved is not None:
            assert moved[0] == 0
            np.testing.assert_array_equal(as_strided(x, after, moved[1]), x.reshape(after))
