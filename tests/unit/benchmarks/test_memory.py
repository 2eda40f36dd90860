"""The benchmark of memory is not run in tests; that its parts hold together is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from benchmarks import memory
from benchmarks.eager_memory import fill, hollow_arrays, hollow_peak, measured_peak
from benchmarks.networks import all_networks
from benchmarks.tables import print_table
from nnc.array.array import Array
from nnc.lower.alloc import Block
from nnc.run.report import MemoryRow

MLP = next(network for network in all_networks(quick=True) if network.name == "MLP")


def test_plans_of_a_network_meet_their_bound_and_beat_greedy() -> None:
    for _, blocks, _, ratio, greedy, *_ in memory.network_rows(MLP):
        assert isinstance(blocks, int) and blocks > 0
        assert ratio == 1.0 <= greedy  # type: ignore[operator]


def test_tensors_of_one_name_and_size_are_blocks_of_their_own_unless_they_lie_at_one_place() -> None:
    plan = nnc.compile(lambda x: x).lower(np.ones(4, np.float32)).compile().memory_plan
    first, *_ = plan.rows

    def life(offset: int, step: int) -> MemoryRow:
        return first._replace(name="workspace", kind="arena", offset=offset, size=64, first=step, last=step)

    plan = replace(plan, rows=(life(0, 1), life(0, 4), life(128, 6), first._replace(offset=None)))
    assert memory.blocks_of(plan) == [Block(64, ((1, 2), (4, 5))), Block(64, ((6, 7),))]


def test_random_tensors_are_planned_no_worse_than_by_size() -> None:
    [[_, _, _, ratio, greedy, _]] = memory.random_rows(200)
    assert 1.0 <= ratio <= greedy  # type: ignore[operator]


def test_loops_copy_nothing_between_rounds() -> None:
    rows = memory.loop_rows()
    assert [row[3] for row in rows] == [0] * len(rows)
    assert [row[4] for row in rows[:-1]] == [0] * (
        len(rows) - 1
    )  # the last keeps the states of its rounds for the derivative
    assert {row[0]: row[2] for row in rows}["x[c] = f(x[c-4])"] >= 4  # type: ignore[operator]


def test_hollow_arrays_foretell_the_memory_of_eager_execution() -> None:
    model = MLP.model()
    arguments = model, nnc.eval_shape(MLP.optimizer.init, model), MLP.x, MLP.labels
    filled = [fill(argument, lambda spec: np.ones(spec.shape, spec.dtype)) for argument in arguments]
    given = sum(leaf.nbytes for leaf in nnc.tree.leaves(filled) if isinstance(leaf, Array))
    MLP.step(*filled)  # programs of the first call stay
    measured = given + measured_peak(lambda: MLP.step(*filled))
    assert measured == pytest.approx(hollow_peak(MLP.step, *arguments), rel=0.05)


def test_hollow_arrays_are_counted_until_nobody_holds_them() -> None:
    with hollow_arrays() as meter:
        x = nnp.exp(nnp.ones((1000, 1000), np.float32))
        view = nnp.reshape(x, (1000, 10, 100))
        del x
        assert meter.live == 4_000_000
        del view
        assert (meter.live, meter.peak) == (0, 8_000_000)


def test_tables_are_markdown(capsys: pytest.CaptureFixture[str]) -> None:
    print_table("Sizes", ("name", "bytes"), [["a", 12345], ["long", 6]])
    assert capsys.readouterr().out.splitlines()[-4:] == [
        "| name |  bytes |",
        "| ---- | -----: |",
        "| a    | 12,345 |",
        "| long |      6 |",
    ]
