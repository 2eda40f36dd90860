"""Live ranges over structured control flow: by hand, and against all that can happen when random steps run."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import pytest

import nnc  # noqa: F401  (registers every command)
from nnc.base.dtypes import float32
from nnc.graph import TensorSpec, command
from nnc.lower.plan.liveness import Liveness, join
from nnc.lower.plan.stages import Branches, Intervals, Iteration, Loop, Step, Steps, View

VALUE, HALF = TensorSpec((4,), float32), TensorSpec((2,), float32)
NBYTES = VALUE.nbytes


def whole(tensor: int) -> View:
    return View.whole(tensor, VALUE)


def step(reads: Sequence[int], *writes: int, part: int | None = None) -> Step:
    """A step that reads and writes whole tensors, and perhaps a part of one."""
    outputs = [whole(t) for t in writes] + ([View.whole(part, HALF)] if part is not None else [])
    return Step(command("neg"), tuple(map(whole, reads)), tuple(outputs), {})


def region(inside: Loop | Branches) -> Step:
    return Step(command("while" if isinstance(inside, Loop) else "case_of"), (), (), {}, region=inside)


def lives(steps: Sequence[Step], *last: int, tensors: int = 8) -> tuple[Intervals, ...]:
    return tuple(Liveness(tuple(steps), [NBYTES] * tensors, last).intervals)


# -- by hand -----------------------------------------------------------------------------------------------------------


def test_a_tensor_lives_from_its_write_to_its_last_read() -> None:
    found = lives([step([0], 1), step([1], 2), step([1, 2], 3)], 3, tensors=5)
    assert found == (((0, 1),), ((0, 3),), ((1, 3),), ((2, 3),), ())


def test_unread_values_live_while_they_are_written() -> None:
    assert lives([step([], 0), step([], 1), step([], 2)], 2, tensors=3) == (((0, 1),), ((1, 2),), ((2, 3),))


def test_a_tensor_that_is_written_again_has_another_life() -> None:
    assert lives([step([], 0), step([0], 1), step([1], 0), step([0, 1], 2)], 2, tensors=3)[0] == ((0, 2), (2, 4))
    assert lives([step([], 0), step([0], 0), step([0], 1)], 1, tensors=2)[0] == ((0, 2), (1, 3))


def test_a_write_to_a_part_keeps_the_rest_alive() -> None:
    assert lives([step([], 0), step([], part=0), step([], 1), step([0, 1], 2)], 2, tensors=3)[0] == ((0, 4),)
    assert lives([step([], 1), step([], part=0), step([], 2)], tensors=3)[0] == ((0, 2),)  # its earlier value stays


def test_operands_of_one_branch_are_dead_in_the_others() -> None:
    # 0: enter; 1, 2: branch 0 and its end; 3, 4: branch 1 and its end; 5: after
    inside = Branches(whole(0), ((step([1], 3),), (step([2], 3),)))
    index, left, right, result = lives([region(inside), step([3], 4)], 4)[:4]
    assert index == ((0, 1),)
    assert left == ((0, 2),)
    assert right == ((0, 1), (3, 4))
    assert result == ((1, 3), (3, 6))


def test_values_read_after_branches_live_through_all_of_them() -> None:
    inside = Branches(whole(0), ((step([], 2),), (step([], 3),)))
    kept = lives([region(inside), step([1], 4)], 4)[1]
    assert join(kept) == ((0, 6),)


def loop(*copies: tuple[Steps, Steps, Steps], first: int = 0, length: int | None = None, counter: int | None = None,
         test: int = 7, begins: tuple[int, ...] = (), leave: Steps = ()) -> Step:  # fmt: skip
    """A loop whose copies are (head, tail, turn), that tests tensor `test` if its length is not known."""
    tested = whole(test) if length is None else None
    iterations = tuple(Iteration(head, tested, leave, tail, turn) for head, tail, turn in copies)
    return region(Loop(0, iterations, first, whole(counter) if counter is not None else None, length, begins=begins))


def test_captured_values_live_all_the_loop_and_carried_ones_until_they_are_read() -> None:
    # 0: enter; 1: begin; 2: head; 3: its end, where 7 is tested; 4: nothing to do where it leaves; 5, 6: tail; 7; 8: turn; 9
    body = ((step([], 7),), (step([0], 1), step([1, 2], 3)), (step([3], 0),))
    found = lives([loop(body)], tensors=8)
    assert join(found[2]) == ((0, 4), (5, 10))  # captured: needed by every round, but not where the loop leaves
    assert found[7] == ((2, 4),)
    assert join(found[0]) == ((0, 4), (5, 6), (8, 10))  # carried
    assert found[1] == ((5, 7),)
    assert join(found[3]) == ((6, 9),)


def test_results_of_a_loop_are_dead_where_it_only_goes_on() -> None:
    body = ((step([], 7),), (step([0], 1),), (step([1], 0),))
    found = lives([loop(body, leave=(step([0], 2),)), step([2], 3)], 3)
    assert join(found[2]) == ((4, 6), (10, 11))  # written at 4 where the loop leaves, read at 10


def test_a_stack_that_rounds_fill_part_by_part_begins_where_the_loop_does() -> None:
    body = ((), (step([0], 1, part=2),), (step([1], 0),))
    before = step([], 3)
    found = lives([before, loop(body, length=5, begins=(2,)), step([2], 4)], 4)
    assert found[2][0][0] == 1
    assert found[2][-1][1] == 10


def test_a_stack_that_is_filled_again_has_another_life() -> None:
    body = ((), (step([0], 1, part=2),), (step([1], 0),))
    found = lives([step([], 2), step([2], 3), loop(body, length=5, begins=(2,)), step([2], 4)], 4)
    assert found[2][0] == (0, 2) and found[2][1][0] == 2


def test_a_peeled_iteration_alone_reads_the_initial_carry() -> None:
    peeled = ((step([], 7),), (step([0], 1),), (step([1], 2),))
    ring = ((step([], 7),), (step([2], 1),), (step([1], 2),))
    found = lives([loop(peeled, ring, first=1)])
    assert max(end for _, end in found[0]) == 6  # its tail; the second copy begins at 9
    assert join(found[2])[0][0] > 6


def test_the_number_of_rounds_lives_until_the_loop_begins_and_on_where_it_is_wanted() -> None:
    counted = Loop(0, (Iteration((), None, (), (step([0], 1),), (step([1], 0),)),), 0, count=whole(2))
    found = lives([step([], 2), region(counted), step([], 3)])
    assert found[2] == ((0, 2),)
    found = lives([step([], 2), region(counted), step([2], 3)])
    assert join(found[2]) == ((0, 10),)


def test_writes_are_listed_with_counters_and_stacks() -> None:
    body = ((), (step([0], 1, part=2),), (step([1], 0),))
    live = Liveness((step([], 0), loop(body, length=5, counter=5, begins=(2,))), [NBYTES] * 8, ())
    assert live.writes[0] == [0, 7]
    assert live.writes[2] == [1, 5]
    assert live.writes[5] == [2]


# -- against possible executions ---------------------------------------------------------------------------------------

Event = tuple[int, set[int], set[int]]  # point, tensors that are read there, tensors that are written there as a whole


class Runner:
    """One way that steps may run: random branches, random numbers of iterations."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.spans: dict[int, int] = {}

    def span(self, steps: Steps) -> int:
        """The points that steps take: one each, one more for each block within and for each round that begins."""
        total = 0
        for one in steps:
            total += 1
            if isinstance(one.region, Branches):
                total += sum(1 + self.span(branch) for branch in one.region.branches)
            elif one.region is not None:
                for c in one.region.copies:
                    total += 1 + sum(1 + self.span(block) for block in (c.head, c.leave, c.tail, c.turn))
        return total

    def run(self, steps: Steps, at: int) -> Iterator[Event]:
        for one in steps:
            inside = one.region
            if isinstance(inside, Branches):
                yield at, {inside.index.buffer}, set()
                taken = self.rng.randrange(len(inside.branches))
                start = at + 1 + sum(1 + self.span(branch) for branch in inside.branches[:taken])
                yield from self.block(inside.branches[taken], start, set())
            elif inside is not None:
                yield at, set(), set(inside.begins)
                yield from self.loop(inside, at + 1)
            else:
                parts = {view.buffer for view in one.outputs if view.spec == HALF}
                reads = {view.buffer for view in one.inputs} | parts
                yield at, reads, {view.buffer for view in one.outputs} - parts
            at += self.span((one,))

    def block(self, steps: Steps, at: int, read: set[int]) -> Iterator[Event]:
        """Steps, then the point at their end, where something may be read."""
        yield from self.run(steps, at)
        yield at + self.span(steps), read, set()

    def loop(self, inside: Loop, at: int) -> Iterator[Event]:
        starts = [at]
        for c in inside.copies:
            starts.append(starts[-1] + 5 + self.span(c.steps))
        iterations = inside.length if inside.length is not None else self.rng.randrange(3 * len(inside.copies) + 1)
        copy = 0
        for done in range(iterations + 1):
            c, at = inside.copies[copy], starts[copy]
            yield at, set(), {inside.counter.buffer} if inside.counter is not None else set()
            yield from self.block(c.head, at + 1, {c.test.buffer} if c.test is not None else set())
            at += 2 + self.span(c.head)
            if inside.length is None and done == iterations:
                yield from self.block(c.leave, at, set())
                return
            at += 1 + self.span(c.leave)
            yield from self.block(c.tail, at, set())
            if done + 1 == inside.length:
                return
            yield from self.block(c.turn, at + 1 + self.span(c.tail), set())
            copy = copy + 1 if copy + 1 < len(inside.copies) else inside.first


def busy(events: Sequence[Event], last: Sequence[int]) -> set[tuple[int, int]]:
    """Returns the factor from the time of a timed call to the time of a step."""
    found: set[tuple[int, int]] = set()
    wanted = set(last)
    for at, reads, writes in reversed(events):
        found |= {(tensor, at) for tensor in wanted | reads | writes}
        wanted = (wanted - writes) | reads
    return found


class Maker:
    """Random steps; every tensor may be read and written anywhere."""

    tensors = 6

    def __init__(self, seed: int, lengths: bool) -> None:
        self.rng, self.lengths = random.Random(seed), lengths

    def steps(self, depth: int) -> Steps:
        return tuple(self.one(depth) for _ in range(self.rng.randrange(4)))

    def one(self, depth: int) -> Step:
        rng, kind = self.rng, self.rng.randrange(5 if depth else 3)
        pick = range(self.tensors)
        if kind == 3:
            return region(Branches(whole(rng.choice(pick)), (self.steps(depth - 1), self.steps(depth - 1))))
        if kind == 4:
            count = rng.randrange(1, 4)
            length = rng.randrange(count, 9) if self.lengths else None
            test = whole(rng.choice(pick)) if length is None else None
            copies = []
            for _ in range(count):
                head, leave = (self.steps(depth - 1) if length is None else () for _ in range(2))
                copies.append(Iteration(head, test, leave, self.steps(depth - 1), self.steps(depth - 1)))
            counter = whole(rng.choice(pick)) if rng.randrange(2) else None
            begins = (rng.choice(pick),) if rng.randrange(3) == 0 else ()
            return region(Loop(0, tuple(copies), rng.randrange(count), counter, length, begins=begins))
        reads = rng.sample(pick, rng.randrange(3))
        written = rng.choice(pick)
        return step(reads, part=written) if kind == 2 else step(reads, written)


@pytest.mark.parametrize("lengths", [False, True])
@pytest.mark.parametrize("seed", range(25))
def test_a_tensor_is_live_exactly_where_some_run_still_needs_it(seed: int, lengths: bool) -> None:
    maker = Maker(seed, lengths)
    steps, last = maker.steps(2) + maker.steps(2), (0, 1)
    end = Runner(random.Random(0)).span(steps)
    small = end < 60
    needed: set[tuple[int, int]] = set()
    for run in range(600 if small else 20):
        needed |= busy(list(Runner(random.Random(run)).run(steps, 0)), last)
    found = lives(steps, *last, tensors=maker.tensors)
    listed = {(tensor, at) for tensor, ranges in enumerate(found) for a, b in ranges for at in range(a, min(b, end))}
    assert needed <= listed
    if small and not lengths:  # all paths were taken; where lengths are known, some that are allowed for never are
        assert listed == needed
