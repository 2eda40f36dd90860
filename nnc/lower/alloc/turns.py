"""One turn of the search for low plans: the moves that may come next on each of many partial plans.

Each block lies on the blocks placed before, so a partial plan is a skyline over the sets of blocks that live together: each has
a top, the lowest place that is left on it. A *valley* is a run of neighbouring sets with one top, and higher ones on both sides.
At either end of a valley few blocks can come next: blocks that live in the set at that end and nowhere beyond, since they would
lie higher. Or none of them does, and the valley is given up as far as the lower side. Of all valleys' ends the one with the fewest
choices is taken, as in searches for perfect packings of rectangles (Korf, 2003): where only one block fits nothing is guessed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from nnc.base.records import record
from nnc.lower.alloc.greedy import FAR, Numbers
from nnc.lower.alloc.problem import Ints, Problem, distinct

CALLS = 100_000  # array cells that take as long as the fixed calls of one turn, however few plans there are
STEPS = 4096  # of the table of penalties
_UNIT = float(1 << 40)  # the penalty of a set that is as high as may be
_CELLS = 1_000_000  # of the arrays that are worked on at a time


@dataclass(frozen=True)
class LiveSets:
    """The largest sets of blocks that live together, in time, and the members of each block and set."""

    problem: Problem
    members: Ints  # set after set
    begin: Ints  # of each set among the members, and the end
    names: Ints  # of blocks: random numbers, whose sums tell partial plans apart
    places: Ints  # of sets, likewise

    @classmethod
    def of(cls, p: Problem) -> LiveSets:
        """Finds the live sets of a problem."""
        times, ends = distinct(p.lo), distinct(p.hi)
        until = ends[np.searchsorted(ends, times, side="right")]  # the first death after each birth
        last_births = times[np.append(until[1:] != until[:-1], True)]
        sets = [p.owner[(p.lo <= step) & (p.hi > step)] for step in last_births]
        rng = np.random.default_rng(0)
        names, places = (rng.integers(1, 2**62, count) for count in (len(p.size), len(sets)))
        return cls(p, np.concatenate(sets), np.cumsum([0, *map(len, sets)]), names, places)

    @property
    def blocks(self) -> int:
        """The number of blocks."""
        return len(self.names)

    @property
    def count(self) -> int:
        """The number of sets."""
        return len(self.places)

    @property
    def stride(self) -> int:
        """Numbers that describe a partial plan: the lowest place of each block, top of each set, size that is left on it."""
        return self.blocks + 2 * self.count

    @property
    def cells(self) -> int:
        """Numbers that are looked at when one block is placed."""
        return self.stride + len(self.members) + 2 * self.count

    @cached_property
    def set_of(self) -> Ints:
        """The set of each member."""
        return np.asarray(np.repeat(np.arange(self.count), np.diff(self.begin)))

    @cached_property
    def inside(self) -> Numbers:
        """Whether a set (row) has a block (column)."""
        table = np.zeros((self.count, self.blocks), bool)
        table[self.set_of, self.members] = True
        return table

    @cached_property
    def together(self) -> Numbers:
        """Whether two blocks live together."""
        return np.asarray(self.inside.T.astype(np.float32) @ self.inside.astype(np.float32) > 0)

    @cached_property
    def load(self) -> Ints:
        """The size of each set."""
        return np.asarray(np.add.reduceat(self.problem.size[self.members], self.begin[:-1]))

    def split(self, rows: Ints) -> tuple[Ints, Ints, Ints]:
        """Splits rows of partial plans into the lowest places, the tops, and the bytes left."""
        ends = self.blocks, self.blocks + self.count
        return rows[:, : ends[0]], rows[:, ends[0] : ends[1]], rows[:, ends[1] :]


@record
class Style:
    """The settings by which one run decides.

    `rank`: the order in which blocks that can come next are chosen; the first `children` of them are tried. `width`: how many
    partial plans are kept. `keen`: the larger, the more the highest sets count. `bulk`: how much plans are preferred that have
    placed large blocks. `cap`: how high the plan may become. `tight`: blocks come next at the ends of valleys. Else, which is
    better where any plan wastes much room, each block that leaves no room below it for another may come next, the lowest first;
    no valley is given up.
    """

    rank: Ints
    width: int
    children: int
    keen: float
    bulk: float
    cap: int
    tight: bool

    @property
    def scale(self) -> float:
        """Steps of the table of penalties for a unit of size."""
        return STEPS / self.cap

    def table(self) -> Ints:
        """Returns the penalty of a set by how far it stays below the cap."""
        return np.asarray(np.exp(np.arange(STEPS) * (-self.keen / STEPS)) * _UNIT, np.int64)


@record
class Plans:
    """Partial plans, a row each, with the sum of penalties over sets and the name."""

    rows: Ints
    penalty: Ints
    name: Ints


@record
class Moves:
    """The moves that may come next: for each, its plan, the move, and the sum of penalties and the name after it.

    `move` is a block, or -1 - s: the valley with set s is given up.
    """

    parent: Ints
    move: Ints
    penalty: Ints
    name: Ints


def penalties(sets: LiveSets, rows: Ints, style: Style) -> Ints:
    """Returns the sum of penalties of each partial plan."""
    _, top, left = sets.split(rows)
    step = ((style.cap - top - left) * style.scale).astype(np.int64)
    return np.asarray(style.table()[np.minimum(step, STEPS - 1)].sum(axis=1))


def nothing_placed(sets: LiveSets, style: Style) -> Plans:
    """Returns the partial plan where all begins."""
    rows = np.concatenate([np.zeros(sets.blocks + sets.count, np.int64), sets.load])[None]
    return Plans(rows, penalties(sets, rows, style), np.zeros(1, np.int64))


class Turns:
    """Computes turns for all partial plans at once."""

    def __init__(self, sets: LiveSets) -> None:
        self.sets = sets

    def moves(self, plans: Plans, style: Style) -> Moves:
        """Finds the moves that may come next without leading above the cap, plan after plan, by rank; to give up a valley is
        last.
        """
        many = max(1, _CELLS // ((style.children + 1) * self.sets.cells))
        found = [self._some_moves(plans, slice(i, i + many), style) for i in range(0, len(plans.name), many)]
        return Moves(*(np.concatenate(column) for column in zip(*found, strict=True)))

    def made(self, plans: Plans, moves: Moves) -> Plans:
        """Returns the plans after these moves."""
        many = max(1, _CELLS // self.sets.cells)
        parts = [slice(i, i + many) for i in range(0, len(moves.move), many)]
        rows = [self._after(plans.rows[moves.parent[part]], moves.move[part]) for part in parts]
        return Plans(np.concatenate(rows), moves.penalty, moves.name)

    def _some_moves(self, plans: Plans, part: slice, style: Style) -> tuple[Ints, ...]:
        sets = self.sets
        rows = plans.rows[part]
        parent, move = self._choices(rows, style)
        after = self._after(rows[parent], move)
        _, top, left = sets.split(after)
        allowed = np.flatnonzero((top + left <= style.cap).all(axis=1))
        parent, move, after = parent[allowed], move[allowed], after[allowed]
        raised = after[:, sets.blocks : -sets.count] - rows[parent, sets.blocks : -sets.count]
        name = plans.name[part][parent] + np.where(move >= 0, sets.names[np.maximum(move, 0)], 0) + raised @ sets.places
        return parent + part.start, move, penalties(sets, after, style), name

    def _choices(self, rows: Ints, style: Style) -> tuple[Ints, Ints]:
        """Returns (plan, move) for blocks that may come next."""
        sets = self.sets
        lowest, top, left = sets.split(rows)
        many = min(style.children, sets.blocks)
        if not style.tight:
            allowed = lowest < (lowest + sets.problem.size).min(axis=1)[:, None]
            key = np.where(allowed, lowest * sets.blocks + style.rank, FAR)
            moves = np.argsort(key, axis=1)[:, :many]
            parent, place = np.nonzero(np.take_along_axis(key, moves, axis=1) < FAR)
            return parent, moves[parent, place]
        valleys = _Valleys(top, left)
        lies = lowest[:, sets.members] == top[:, sets.set_of]
        can_give_up = valleys.wall + valleys.most <= style.cap
        choices = np.add.reduceat(lies, sets.begin[:-1], axis=1, dtype=np.int64) + can_give_up
        choices[~valleys.is_end] = FAR
        fewest = choices == choices.min(axis=1, keepdims=True)
        chosen = np.where(fewest, top, FAR).argmin(axis=1)
        each = np.arange(len(rows))
        allowed = sets.inside[chosen] & (lowest == top[each, chosen][:, None])
        key = np.where(allowed, style.rank, FAR)
        move = np.argsort(key, axis=1)[:, :many]
        moves = np.concatenate([move, -1 - chosen[:, None]], axis=1)
        good = np.concatenate([np.take_along_axis(key, move, axis=1) < FAR, can_give_up[each, chosen][:, None]], axis=1)
        parent, place = np.nonzero(good)
        return parent, moves[parent, place]

    def _after(self, rows: Ints, move: Ints) -> Ints:
        """Partial plans after one move each."""
        sets, size = self.sets, self.sets.problem.size
        rows = rows.copy()
        lowest, top, left = sets.split(rows)
        placed = np.flatnonzero(move >= 0)
        t = move[placed]
        end = (lowest[placed, t] + size[t])[:, None]
        lowest[placed] = np.maximum(lowest[placed], np.where(sets.together[t], end, 0))
        lowest[placed, t] = FAR
        spans = sets.inside[:, t].T
        top[placed] = np.where(spans, end, top[placed])
        left[placed] -= spans * size[t][:, None]
        given_up = np.flatnonzero(move < 0)
        if given_up.size:
            valleys = _Valleys(top[given_up], left[given_up])
            each, at = np.arange(len(given_up)), -1 - move[given_up]
            valley = valleys.number == valleys.number[each, at][:, None]
            wall = valleys.wall[each, at][:, None]
            inside = valley @ sets.inside.astype(np.float32) > 0
            lowest[given_up] = np.maximum(lowest[given_up], np.where(inside, wall, 0))
            top[given_up] = np.where(valley, wall, top[given_up])
        least = np.minimum.reduceat(lowest[:, sets.members], sets.begin[:-1], axis=1)
        np.maximum(top, least, out=top, where=left > 0)
        return rows


class _Valleys:
    """The runs of sets with one top, in each row. Sets on which nothing is left are walls without end, as are both ends of time."""

    def __init__(self, top: Ints, left: Ints) -> None:
        height = np.where(left > 0, top, FAR)
        wall = np.full((len(height), 1), FAR)
        begins = np.diff(height, axis=1, prepend=wall - 1) != 0
        begins[:, 0] = True
        first = np.flatnonzero(begins)
        self.number: Any = np.cumsum(begins.ravel()).reshape(begins.shape) - 1
        sides = np.concatenate([wall, height, wall], axis=1)
        ends = np.concatenate([begins[:, 1:], np.ones_like(begins[:, :1])], axis=1)
        before = sides[:, :-2].ravel()[first]
        after = sides[:, 2:].ravel()[np.flatnonzero(ends)]
        is_valley = (np.minimum(before, after) > height.ravel()[first])[self.number]
        self.is_end = is_valley & (begins | ends)
        self.wall = np.minimum(before, after)[self.number]
        self.most = np.maximum.reduceat(left.ravel(), first)[self.number]
