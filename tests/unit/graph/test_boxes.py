"""Boxes against masks of cells, and in sizes that no mask could have."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnc.errors import ShapeError
from nnc.graph import Box, covers, first_overlap, uncovered

SHAPE = (4, 5, 3)


def mask(*boxes: Box, shape: tuple[int, ...] = SHAPE) -> np.ndarray:
    """Counts, for each cell, the boxes that hold it."""
    cells = np.zeros(shape, int)
    for box in boxes:
        cells[tuple(slice(a, b) for a, b in zip(box.start, box.limit, strict=True))] += 1
    return cells


@st.composite
def boxes(draw: st.DrawFn, shape: tuple[int, ...] = SHAPE) -> Box:
    corners = [sorted((draw(st.integers(0, n)), draw(st.integers(0, n)))) for n in shape]
    return Box(tuple(a for a, _ in corners), tuple(b - a for a, b in corners))


@given(boxes(), boxes())
def test_overlap_intersection_and_containment_are_those_of_the_cells(a: Box, b: Box) -> None:
    common = (mask(a) * mask(b)).astype(bool)
    assert a.overlaps(b) == b.overlaps(a) == common.any()
    assert a.contains(b) == (mask(a) >= mask(b)).all()
    intersection = a.intersection(b)
    assert (intersection is None) == (not common.any())
    if intersection is not None:
        assert (mask(intersection) == common).all()


def test_rows_of_cells_hold_those_that_begin_and_end_within_them() -> None:
    rows = [Box((a,), (b - a,)) for a in range(5) for b in range(a, 5)]
    for a in rows:
        for b in rows:
            cells, others = (set(range(x.start[0], x.limit[0])) for x in (a, b))
            assert a.contains(b) == (cells >= others)
            assert a.overlaps(b) == bool(cells & others)


@given(boxes(), boxes())
def test_the_remainder_is_disjoint_and_holds_the_cells_of_a_that_are_not_in_b(a: Box, b: Box) -> None:
    remainder = a.subtract(b)
    assert (mask(*remainder) == mask(a) * (1 - mask(b))).all()
    assert all(box.size for box in remainder)
    assert len(remainder) <= 2 * len(SHAPE)


@given(st.lists(boxes(), max_size=12))
def test_uncovered_boxes_are_the_cells_that_no_box_holds(parts: list[Box]) -> None:
    rest = uncovered(parts, SHAPE)
    assert (mask(*rest) == (mask(*parts) == 0)).all()
    assert covers(parts, SHAPE) == (not rest)


@given(st.lists(boxes(), max_size=12))
def test_first_overlap_is_the_first_box_that_meets_an_earlier_one(parts: list[Box]) -> None:
    pairs = [(j, i) for j in range(len(parts)) for i in range(j) if parts[i].overlaps(parts[j])]
    assert first_overlap(parts) == (min(pairs)[::-1] if pairs else None)


def test_cutting_a_tensor_recursively_covers_it_without_overlap() -> None:
    pieces = [Box.whole((8, 8, 8))]
    for cut in range(40):
        box = pieces.pop(cut * 7 % len(pieces))
        axis = cut % 3
        half = box.shape[axis] // 2
        cut_shape = (*box.shape[:axis], half, *box.shape[axis + 1 :])
        pieces += [Box(box.start, cut_shape), *box.subtract(Box(box.start, cut_shape))]
    assert first_overlap(pieces) is None
    assert covers(pieces, (8, 8, 8))
    largest = max(pieces, key=lambda box: box.size)
    assert uncovered([box for box in pieces if box is not largest], (8, 8, 8)) == [largest]


def test_a_box_without_elements_overlaps_nothing_and_covers_nothing() -> None:
    empty = Box((1, 1), (0, 3))
    assert not empty.overlaps(Box((0, 0), (4, 4))) and not Box((0, 0), (4, 4)).overlaps(empty)
    assert first_overlap([Box((0, 0), (4, 4)), empty]) is None
    assert uncovered([empty], (4, 4)) == [Box((0, 0), (4, 4))]
    assert empty.subtract(Box((0, 0), (4, 4))) == []


def test_a_tensor_without_elements_is_covered_by_nothing_and_a_scalar_by_one_box() -> None:
    assert covers([], (3, 0))
    assert not covers([], ())
    assert covers([Box((), ())], ())
    assert first_overlap([Box((), ()), Box((), ())]) == (0, 1)


def test_thirty_three_axes_and_sizes_beyond_32_bits_are_ordinary() -> None:
    shape = (3,) * 32 + (2**40,)
    first = Box((0,) * 33, (1,) * 32 + (2**39,))
    rest = uncovered([first], shape)
    assert sum(box.size for box in rest) == 3**32 * 2**40 - 2**39
    assert covers([first, *rest], shape)
    assert first_overlap([first, *rest]) is None
    assert first_overlap([*rest, Box((2,) * 32 + (2**40 - 1,), (1,) * 33)]) is not None


@pytest.mark.slow
def test_a_hundred_thousand_parts_in_a_row_or_a_grid_are_checked_quickly() -> None:
    row = [Box((2**33 * i, 0), (2**33, 5)) for i in reversed(range(100_000))]
    assert first_overlap(row) is None and covers(row, (2**33 * 100_000, 5))
    grid = [Box((i, j), (1, 1)) for j in range(150) for i in range(150)]
    assert first_overlap(grid) is None and covers(grid, (150, 150))
    assert first_overlap([*grid, Box((149, 149), (1, 1))]) == (len(grid) - 1, len(grid))


def test_a_box_within_a_tensor_is_checked_against_its_bounds() -> None:
    assert Box.within((4, 4), [np.int64(1), 0], (2, 4)) == Box((1, 0), (2, 4))
    for start, shape in [((3, 0), (2, 4)), ((-1, 0), (1, 1)), ((0, 0), (1, -1)), ((4, 1), (1, 1))]:
        with pytest.raises(ShapeError, match="is not within 0:4"):
            Box.within((4, 4), start, shape)
    with pytest.raises(ShapeError, match="the tensor has 2 axes, start 1 and shape 2"):
        Box.within((4, 4), (0,), (1, 1))


def test_boxes_print_as_slices_and_shift() -> None:
    assert str(Box((0, 3), (2, 2)).shift((1, -1))) == "[1:3, 2:4]"
    assert str(Box((), ())) == "[]"
