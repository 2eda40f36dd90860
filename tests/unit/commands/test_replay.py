"""The schedule that runs iterations again, and the states it keeps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nnc
from nnc.base.context import set_context
from nnc.commands.replay import places, split, walk_back


class Count:
    """Counts the most that was kept at a time."""

    def __init__(self) -> None:
        self.now = self.most = 0

    def add(self, nbytes: int) -> None:
        self.now += nbytes
        self.most = max(self.most, self.now)


def walk(iterations: int, room: int) -> tuple[list[int], int, int]:
    """Rounds in the order pulled, states kept at most, iterations run."""
    runs = 0

    def advance(step: int, state: list[np.ndarray]) -> list[np.ndarray]:
        nonlocal runs
        runs += 1
        assert int(state[0][0]) == step  # each round starts from the state before it
        return [state[0] + 1]

    count, visited = Count(), []
    with set_context(meter=count):
        for step, state in walk_back([np.zeros(1)], iterations, room, advance):
            assert int(state[0][0]) == step
            visited.append(step)
    assert count.now == 0
    return visited, count.most // 8, runs


@given(iterations=st.integers(0, 200), room=st.integers(1, 20))
def test_every_round_is_visited_once_from_the_last_to_the_first_with_no_more_states_than_there_is_room(
    iterations: int, room: int
) -> None:
    visited, most, _ = walk(iterations, room)
    assert visited == list(reversed(range(iterations)))
    assert most <= room


def test_with_room_for_the_square_root_of_the_rounds_none_runs_more_than_three_times_again() -> None:
    _, most, runs = walk(1024, places("sqrt", 1024))
    assert most <= 34 and runs <= 3 * 1024


def test_with_room_for_the_logarithm_the_work_grows_by_a_logarithm() -> None:
    _, most, runs = walk(1024, places("binomial", 1024))
    assert most <= 11 and runs <= 10 * 1024


def test_with_enough_room_no_round_runs_twice() -> None:
    assert walk(50, 50)[2] == 49


@given(iterations=st.integers(2, 10_000), room=st.integers(1, 40))
def test_a_split_leaves_rounds_on_both_sides(iterations: int, room: int) -> None:
    assert 1 <= split(iterations, room) <= iterations - 1


@pytest.mark.parametrize("checkpoint", [0, -1, True, "cube", 1.5])
def test_a_strategy_that_does_not_exist_is_refused(checkpoint: object) -> None:
    with pytest.raises(nnc.errors.ArgumentError, match="checkpoint is") as caught:
        nnc.while_loop(lambda c: c < 3, lambda c: c + 1, 0, checkpoint=checkpoint)  # type: ignore[arg-type]
    assert "Fix:" in str(caught.value)
