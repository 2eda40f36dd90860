from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from nnc.view.layout import GAP, Layout, lay_out

PORT = 20.0


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[tuple[float, float]], list[list[int]], list[int]]:
    count = draw(st.integers(1, 40))
    sizes = [(float(draw(st.integers(20, 200))), float(draw(st.sampled_from([20, 36, 300])))) for _ in range(count)]
    reads = [draw(st.lists(st.integers(0, i - 1), max_size=4)) if i else [] for i in range(count)]
    given_boxes = [i for i, read in enumerate(reads) if not read and draw(st.booleans())]
    return sizes, reads, given_boxes


def check(layout: Layout, sizes: list[tuple[float, float]], reads: list[list[int]]) -> None:
    boxes = [(x, y, x + w, y + h) for (x, y), (w, h) in zip(layout.corners, sizes, strict=True)]
    for i, a in enumerate(boxes):
        assert a[0] >= -1e-6 and a[1] >= 0 and a[2] <= layout.width + 1e-6 and a[3] <= layout.height + 1e-6
        for b in boxes[:i]:
            assert a[2] <= b[0] + 1e-6 or b[2] <= a[0] + 1e-6 or a[3] <= b[1] or b[3] <= a[1]
        assert all(boxes[j][3] + GAP <= a[1] + 1e-6 for j in reads[i])
    assert sorted((wire.start, wire.end) for wire in layout.wires) == sorted(
        {(j, i) for i, read in enumerate(reads) for j in read}
    )
    for wire in layout.wires:
        start, end = boxes[wire.start], boxes[wire.end]
        assert abs(wire.points[0][0] - (start[0] + start[2]) / 2) < 1e-6 and wire.points[0][1] == start[1] + PORT
        assert abs(wire.points[-1][0] - (end[0] + end[2]) / 2) < 1e-6 and wire.points[-1][1] == end[1]
        assert all(a[1] <= b[1] for a, b in pairwise(wire.points[1:]))


@given(graphs())
def test_no_boxes_overlap_and_wires_lead_down_from_box_to_box(
    graph: tuple[list[tuple[float, float]], list[list[int]], list[int]],
) -> None:
    sizes, reads, given_boxes = graph
    layout = lay_out(sizes, reads, given_boxes, given_boxes, PORT)
    check(layout, sizes, reads)
    assert layout == lay_out(sizes, reads, given_boxes, given_boxes, PORT)


def test_wires_that_pass_many_rows_run_in_lanes_that_they_share_where_they_can() -> None:
    chain = [[], *([i] for i in range(29))]
    chain[10].append(0)
    chain[25].append(12)
    chain[28].append(1)
    sizes = [(80.0, 36.0)] * len(chain)
    layout = lay_out(sizes, chain, [0], [0], PORT)
    check(layout, sizes, chain)
    lanes = {(wire.start, wire.end): min(x for x, _ in wire.points) for wire in layout.wires if wire.in_lane}
    assert set(lanes) == {(0, 10), (12, 25), (1, 28)}
    assert lanes[0, 10] == lanes[12, 25] != lanes[1, 28]


def test_wide_rows_are_broken() -> None:
    layout = lay_out([(100.0, 36.0)] * 200, [[] for _ in range(200)], [], [], PORT)
    assert layout.width < 2000 and len(layout.rows) > 10


def test_nothing_takes_no_room() -> None:
    assert lay_out([], [], [], [], PORT).width == 0
