from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnc.lower.plan.ordering import OperationGraph, _Placed, _Reordering, improve_order

INSTANCES = Path(__file__).parents[1] / "alloc" / "instances"


def load(name: str) -> Any:
    return json.loads(gzip.decompress((INSTANCES / f"{name}.json.gz").read_bytes()))


def training_step(name: str) -> OperationGraph:
    """Forward, backward and an update of each parameter, which reads its gradient and follows the parameter's readers."""
    data = load(f"{name}.train")
    nbytes = [-(-n // 64) * 64 if kind == "tmp" else 0 for n, kind in data["storages"]]
    reads = [tuple(read) for _, read, _ in data["nodes"]]
    writes = [tuple(written) for _, _, written in data["nodes"]]
    after: list[tuple[int, ...]] = [()] * len(reads)
    readers: dict[int, list[int]] = {}
    for i, read in enumerate(reads):
        for s in read:
            readers.setdefault(s, []).append(i)
    for gradient, parameter in data["grads"]:
        reads.append((gradient, parameter))
        writes.append(())
        after.append(tuple(readers.get(parameter, ())))
    return OperationGraph(nbytes, reads, writes, after, [()] * len(reads), frozenset({data["loss"]}))


def any_order_bound(graph: OperationGraph) -> int:
    """Bytes that must be live while some operation runs, in every order: made before it and read after it, by need."""
    n = len(graph.reads)
    earlier, later = [1 << i for i in range(n)], [1 << i for i in range(n)]
    for i in range(n):
        for j in graph.before[i]:
            earlier[i] |= earlier[j]
    for i in reversed(range(n)):
        for j in graph.following[i]:
            later[i] |= later[j]
    readers = [sum(1 << i for i in found) for found in graph.readers]
    written = [(s, i) for s, i in enumerate(graph.writer) if i >= 0 and graph.nbytes[s]]

    def needed(i: int) -> int:
        return sum(
            graph.nbytes[s]
            for s, writer in written
            if writer == i or (earlier[i] >> writer & 1 and (s in graph.kept or readers[s] & later[i]))
        )

    return max(map(needed, range(n)))


@pytest.mark.parametrize(
    ("name", "factor"),
    [("mlp", 0.428), ("lenet", 0.786), ("resnet18", 0.948), ("resnet50", 0.986), ("transformer12", 0.976)],
)
def test_training_steps_of_real_networks_reach_the_bound_of_any_order(name: str, factor: float) -> None:
    graph = training_step(name)
    given_order = graph.peak(range(len(graph.reads)))
    peak = graph.peak(improve_order(graph))
    assert peak <= 1.01 * any_order_bound(graph)
    assert peak / given_order == pytest.approx(factor, abs=0.001)


def test_the_training_step_of_an_unrolled_lstm_takes_two_thirds() -> None:
    graph = training_step("lstm64")
    assert graph.peak(improve_order(graph)) <= 0.68 * graph.peak(range(len(graph.reads)))


ELEMENTWISE = (
    "add.Tensor",
    "mul.Tensor",
    "tanh.default",
    "sigmoid.default",
    "gelu.default",
    "_softmax.default",
    "clone.default",
)


@pytest.mark.parametrize(("name", "in_place", "ordered"), [("transformer12", 0.667, 0.667), ("lstm64", 0.8, 0.734)])
def test_writing_over_inputs_saves_the_expected_bytes_and_order_no_less(
    name: str, in_place: float, ordered: float
) -> None:
    data = load(f"{name}.infer")
    nbytes = [-(-n // 64) * 64 if kind == "tmp" else 0 for n, kind in data["storages"]]
    reads, writes = ([tuple(node[column]) for node in data["nodes"]] for column in (1, 2))
    pairs = [
        tuple((a, b) for b in written for a in read if op in ELEMENTWISE and nbytes[a] == nbytes[b])
        for op, read, written in data["nodes"]
    ]
    nothing = [()] * len(reads)
    kept = frozenset(data["outputs"])
    apart = OperationGraph(nbytes, reads, writes, nothing, nothing, kept)
    graph = OperationGraph(nbytes, reads, writes, nothing, pairs, kept)
    before = apart.peak(range(len(reads)))
    assert graph.peak(range(len(reads))) / before == pytest.approx(in_place, abs=0.001)
    assert graph.peak(improve_order(graph)) <= ordered * before


@st.composite
def operation_graphs(draw: Any) -> OperationGraph:
    n = draw(st.integers(1, 14))
    count = draw(st.integers(0, 3))  # storages that are given
    nbytes = [1] * count
    reads, writes, after, overwrites = [], [], [], []
    for i in range(n):
        read = draw(st.lists(st.integers(0, len(nbytes) - 1), max_size=3)) if nbytes else []
        written = tuple(range(len(nbytes), len(nbytes) + draw(st.integers(0, 2))))
        nbytes += [draw(st.integers(0, 5)) for _ in written]
        reads.append(tuple(read))
        writes.append(written)
        after.append(tuple(draw(st.lists(st.integers(0, i - 1), max_size=2))) if i else ())
        pairs = [(a, b) for a in read for b in written if nbytes[a] == nbytes[b]]
        overwrites.append(tuple(draw(st.lists(st.sampled_from(pairs), max_size=1)) if pairs else []))
    kept = frozenset(draw(st.lists(st.integers(0, len(nbytes) - 1), max_size=3)) if nbytes else [])
    return OperationGraph(nbytes, reads, writes, after, overwrites, kept)


def simulated_peak(graph: OperationGraph, order: list[int]) -> int:
    """The largest live set, by sets of storages."""
    live: set[int] = set()
    peak = 0
    for place, i in enumerate(order):
        rest = {s for j in order[place + 1 :] for s in graph.reads[j]} | graph.kept
        dying = {s for s in graph.reads[i] if s in live and s not in rest}
        taken: set[int] = set()
        for read, written in graph.overwrites[i]:
            if read in dying and written not in taken:
                dying.remove(read)
                taken.add(written)
                live.remove(read)
        live |= set(graph.writes[i])
        peak = max(peak, sum(graph.nbytes[s] for s in live))
        live = {s for s in live if s in rest}
    return peak


@given(operation_graphs())
def test_an_order_is_valid_and_never_worse_than_the_given_one(graph: OperationGraph) -> None:
    order = improve_order(graph)
    place = {i: k for k, i in enumerate(order)}
    assert sorted(order) == list(range(len(graph.reads)))
    for i, before in enumerate(graph.before):
        assert all(place[j] < place[i] for j in before)
    assert simulated_peak(graph, order) == graph.peak(order)
    assert graph.peak(order) <= graph.peak(range(len(order)))


@given(operation_graphs(), st.data())
def test_a_moved_part_of_an_order_changes_the_live_set_as_the_whole_order_does(
    graph: OperationGraph, data: Any
) -> None:
    n = len(graph.reads)
    placed = _Placed.of(graph, range(n))
    assert placed is not None
    for _ in range(2):  # the second move starts from the result of the first one
        first = data.draw(st.integers(0, n - 1))
        end = data.draw(st.integers(first + 1, n))
        chosen = set(data.draw(st.lists(st.sampled_from(placed.order[first:end]), max_size=4)))
        move = _Reordering(first, end, chosen, in_front=data.draw(st.booleans()))
        moved = placed.moved(move)
        assert moved is not None
        place = {i: k for k, i in enumerate(moved.order)}
        if any(place[j] > place[i] for i, before in enumerate(graph.before) for j in before):
            continue  # no order of this graph
        assert moved == _Placed.of(graph, moved.order)
        now, then = ((max(of.live), of.live.count(max(placed.live))) for of in (placed, moved))
        if now[0] in placed.live[first:end]:
            assert placed.moved(move, most=now[0]) == (moved if then < now else None)
        placed = moved


@given(operation_graphs(), st.data())
def test_an_order_is_given_up_where_its_peak_is_not_below_a_limit(graph: OperationGraph, data: Any) -> None:
    asked: list[int] = []
    live = graph.live_bytes(range(len(graph.reads)))
    limit = data.draw(st.integers(1, max(live) + 1))
    found = _Placed.of(graph, (asked.append(i) or i for i in range(len(live))), below=limit)
    assert (found is not None) == (max(live) < limit)
    assert len(asked) == next((i + 1 for i, nbytes in enumerate(live) if nbytes >= limit), len(live))


def test_an_update_runs_as_soon_as_its_gradient_is_there_and_all_readers_of_the_parameter_are_done() -> None:
    """Storages 0, 1: parameters; operations 0, 1 make gradients, 2 reads parameter 0, 3, 4 update."""
    graph = OperationGraph(
        nbytes=[0, 0, 64, 64],
        reads=[(), (), (0,), (0, 2), (1, 3)],
        writes=[(2,), (3,), (), (), ()],
        after=[(), (), (), (2,), ()],
        overwrites=[()] * 5,
    )
    order = improve_order(graph)
    assert graph.peak(order) == 64
    assert order.index(3) > order.index(2)


def test_a_graph_without_operations_and_one_without_bytes_keep_their_order() -> None:
    assert improve_order(OperationGraph([], [], [], [], [])) == []
    assert improve_order(OperationGraph([0, 0], [(), (0,)], [(0,), (1,)], [(), ()], [(), ()])) == [0, 1]


def test_results_share_the_memory_of_operands_that_end() -> None:
    pairs = ((0, 3), (1, 3), (2, 4))
    graph = OperationGraph([8, 8, 2, 8, 2], [(), (0, 1, 2)], [(0, 1, 2), (3, 4)], [(), ()], [(), pairs])
    assert graph.shared(1, [0, 0, 0, 0, 0]) == 10  # 3 lies on 0 and 4 on 2
    assert graph.shared(1, [1, 0, 1, 0, 0]) == 8  # 3 lies on 1
    assert graph.shared(1, [1, 1, 1, 0, 0]) == 0
