from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnc.base.options import Options
from nnc.compiled.pipeline import plan
from nnc.errors import UnsupportedError
from nnc.graph import GraphBuilder
from nnc.lower.alloc import Block, article, find_block_overlap, plan_arena, plan_blocks
from nnc.lower.alloc.article import Groups, plan_groups
from nnc.lower.alloc.instances import read_instance
from nnc.lower.alloc.problem import block_rows, make_problem

INSTANCES = Path(__file__).parent / "instances"


def groups_of(blocks: list[Block], size_first: bool = False) -> tuple[Groups, list[int]]:
    problem, placed = make_problem(*block_rows(blocks))
    return plan_groups(problem, size_first=size_first), placed.tolist()


def tensor(first: int, end: int, size: int) -> Block:
    return Block(size, ((first, end),))


def test_the_chain_of_the_article_takes_two_groups_and_no_more_than_is_live() -> None:
    groups, placed = groups_of([tensor(0, 2, 4), tensor(1, 3, 8), tensor(2, 4, 4)])
    assert placed == [0, 1, 2]
    assert groups.sizes == (8, 4)
    assert groups.offsets.tolist() == [8, 0, 8]
    assert groups.group.tolist() == [1, 0, 1]
    assert groups.total == 12


def test_an_edge_with_one_open_end_is_used() -> None:
    """Both dummies at once would be a whole group, but only source and sink are there before the second tensor."""
    groups, _ = groups_of([tensor(0, 1, 8), tensor(1, 2, 8), tensor(2, 3, 4)])
    assert groups.sizes == (8,)


def test_the_bytes_of_a_tensor_pass_to_several_smaller_ones() -> None:
    groups, placed = groups_of([tensor(0, 1, 8), tensor(1, 2, 4), tensor(1, 2, 3), tensor(2, 3, 8)], size_first=True)
    assert groups.sizes == (8,)
    assert dict(zip(placed, groups.offsets.tolist(), strict=True)) == {0: 0, 1: 0, 2: 4, 3: 0}


def test_companions_are_inserted_as_one_tuple() -> None:
    """The carried values of a loop, at its begin and at its end, with a larger value between them."""
    blocks = [Block(100, ((0, 2), (5, 7))), tensor(1, 3, 100), tensor(2, 5, 100), tensor(4, 6, 100)]
    for algorithm in ("article", "article-size"):
        placed = plan_blocks(blocks, 1, algorithm=algorithm)
        assert find_block_overlap(blocks, placed.offsets) is None
        assert placed.peak == 200


def test_a_larger_tensor_is_tried_with_one_of_most_conflicts() -> None:
    """0 and 3 never meet: 0 has the most conflicts, and 3 is larger, so both open one group of the size of 3."""
    blocks = [tensor(0, 4, 2), tensor(0, 1, 1), tensor(2, 3, 1), tensor(4, 5, 8)]
    groups, _ = groups_of(blocks)
    assert groups.sizes[0] == 8
    assert groups.group[0] == groups.group[3] == 0
    assert groups.offsets[0] == groups.offsets[3] == 0


@pytest.mark.parametrize(
    ("name", "article", "size_first"),
    [
        ("mlp.infer", 1.5, 1.0),
        ("mlp.step", 1.0, 1.0),
        ("lenet.infer", 1.0, 1.0),
        ("lenet.step", 1.215, 1.0),
        ("resnet18.infer", 1.5, 1.0),
        ("resnet18.step", 1.32, 1.0),
        ("resnet50.infer", 1.33, 1.0),
        ("transformer12.infer", 1.78, 1.0),
    ],
)
def test_real_networks_take_the_bytes_published_for_the_algorithm(name: str, article: float, size_first: float) -> None:
    instance = read_instance(INSTANCES / f"{name}.csv")
    for algorithm, ratio in (("article", article), ("article-size", size_first)):
        placed = plan_arena(instance.lower, instance.upper, instance.size, algorithm=algorithm)
        assert placed.peak / placed.lower_bound == pytest.approx(ratio, abs=0.005)


rows = st.lists(st.tuples(st.integers(0, 12), st.integers(1, 8)), min_size=1, max_size=3)
blocks_strategy = st.lists(st.builds(lambda n, r: Block(n, tuple((a, a + d) for a, d in r)), st.integers(0, 9), rows))


@given(blocks_strategy, st.booleans())
def test_live_blocks_never_overlap_and_groups_are_apart(blocks: list[Block], size_first: bool) -> None:
    problem, placed = make_problem(*block_rows(blocks))
    if not len(placed):
        return
    groups = plan_groups(problem, size_first=size_first)
    offsets = np.zeros(len(blocks), np.int64)
    offsets[placed] = groups.offsets
    assert find_block_overlap(blocks, offsets.tolist()) is None
    base = np.concatenate([[0], np.cumsum(groups.sizes)])
    assert (groups.offsets >= base[groups.group]).all()
    assert (groups.offsets + problem.size <= base[groups.group + 1]).all()
    assert problem.bound <= groups.total


def test_more_tensors_than_pairs_of_can_be_tried_are_refused_with_a_way_out() -> None:
    blocks = [tensor(i, i + 2, 64) for i in range(2001)]
    with pytest.raises(UnsupportedError, match=r"(?s)2001 tensors.*Fix: choose .article-size."):
        plan_blocks(blocks, algorithm="article")
    assert plan_blocks(blocks[:200], algorithm="article-size").peak == 128


def test_a_graph_is_planned_by_the_algorithm_that_its_options_name() -> None:
    """Five layers; the rest of the first is split, and flow never joins again."""
    b = GraphBuilder()
    x, width = b.input((64, 64), "float32"), 64
    for following in (128, 64, 64, 128, 1):
        x = b.add("dot", x, b.input((width, following), "float32"), contract=((1,), (0,)))
        width = following
    graph = b.build(x)
    matrix = 64 * 64 * 4
    assert plan(graph, Options(streams=1)).arena_bytes == 3 * matrix
    assert plan(graph, Options(allocator="article", streams=1)).arena_bytes == 4 * matrix


@given(blocks_strategy, st.booleans())
def test_the_first_candidate_that_fits_on_an_edge_is_inserted(blocks: list[Block], size_first: bool) -> None:
    """Tuples that groups refused once need not be tried again: the plan is the same as if all were tried."""
    problem, placed = make_problem(*block_rows(blocks))
    if not len(placed):
        return
    found = plan_groups(problem, size_first=size_first)

    def try_all(edges: Any, candidates: Any) -> int | None:
        for at in range(len(candidates.first)):
            edges._refused[:] = 0
            one = type(candidates)(candidates.first[at : at + 1], candidates.second[at : at + 1])
            if first_fit(edges, one) is not None:
                return at
        return None

    first_fit = article._Edges.first_fit
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(article._Edges, "first_fit", try_all)
        wanted = plan_groups(problem, size_first=size_first)
    assert found.sizes == wanted.sizes and (found.offsets == wanted.offsets).all()
