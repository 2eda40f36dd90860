"""Searches for low plans breadth first: many partial plans at once; each turn keeps the most promising ones.

A partial plan is judged by how high each set of blocks that live together must become at least: its top, or the lowest place
that an unplaced block of it has, and all that is left on it. High sets count most. Partial plans that place the same blocks below
the same tops are one. `turns` finds the moves that may come next; this file chooses the plans to keep.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from nnc.lower.alloc.greedy import order_rank
from nnc.lower.alloc.problem import Ints
from nnc.lower.alloc.turns import CALLS, LiveSets, Moves, Plans, Style, Turns, nothing_placed, penalties

_CELLS = 8_000_000  # of the partial plans that are kept
_WIDEST = 4096
_RISES = 16  # of the cap, at most
_MOVE = 500  # cells that take as long as to compare a move with others
_NOISE = (0.0, 0.1, 0.3, 0.6)  # of orders: the spread of the logarithm of their first key
_KEEN = (30.0, 60.0, 120.0, 200.0, 500.0)
_BULK = (0.0, 0.5, 1.0, 2.0)
_CHILDREN = (3, 5, 8)


def drawn_style(
    rng: np.random.Generator, turn: int, keys: Sequence[tuple[Ints, ...]], width: int, cap: int, *, tight: bool
) -> Style:
    """Returns a random style: the turn says by which keys blocks are ranked, and how far their order may be disturbed."""
    first, *others = keys[turn % len(keys)]
    noise = _NOISE[turn // len(keys) % len(_NOISE)]
    rank = order_rank(first * rng.lognormal(0, noise, len(first)), *others)
    children, keen, bulk = int(rng.choice(_CHILDREN)), float(rng.choice(_KEEN)), float(rng.choice(_BULK))
    return Style(rank, width, children, keen, bulk, cap, tight)


class BeamSearch:
    """Searches for plans of one problem; all searches share a budget of array cells to visit."""

    def __init__(self, sets: LiveSets, budget: int) -> None:
        self.sets, self.turns, self.budget = sets, Turns(sets), budget
        spans = np.bincount(sets.members, minlength=sets.blocks)
        self.volumes = np.log(sets.problem.size * spans)

    @property
    def widest(self) -> int:
        """The largest number of partial plans whose arrays stay small."""
        return max(1, min(_WIDEST, _CELLS // self.sets.stride))

    @property
    def cost(self) -> int:
        """About how much a run costs for each partial plan that it keeps."""
        return 4 * self.sets.blocks * (self.sets.cells + _MOVE)

    def search(self, style: Style, limit: int | None = None) -> Ints | None:
        """Offsets below the cap; None where none are found, or not within the budget.

        Args:
            limit: how far the cap may rise. It rises where no block fits below it; placed blocks stay, so that a search with
                too low a goal still ends with a plan.
        """
        limit = style.cap if limit is None else limit
        rise = max(1, (limit - style.cap) // _RISES)
        plans = nothing_placed(self.sets, style)
        volume, placed = np.zeros(1), np.zeros(1, np.int64)
        history: list[tuple[Ints, Ints]] = []
        while True:
            moves = self.turns.moves(plans, style)
            self.budget -= CALLS + (len(moves.move) + len(plans.name)) * (self.sets.cells + _MOVE)
            is_block = moves.move >= 0
            all_placed = placed[moves.parent] + is_block
            all_volume = volume[moves.parent] + np.where(is_block, self.volumes[np.maximum(moves.move, 0)], 0)
            done = np.flatnonzero(all_placed == self.sets.blocks)
            if done.size:
                return self._offsets([*history, (moves.parent, moves.move)], int(done[0]))
            _, kept = np.unique(moves.name, return_index=True)
            kept.sort()
            score = np.log1p(moves.penalty[kept]) - style.bulk * all_volume[kept] / np.maximum(all_placed[kept], 1)
            kept = kept[np.argsort(score, kind="stable")[: style.width]]
            if self.budget < 0 or (not kept.size and style.cap >= limit):
                return None
            if not kept.size:
                style = replace(style, cap=min(style.cap + rise, limit))
                plans = Plans(plans.rows, penalties(self.sets, plans.rows, style), plans.name)
                continue
            chosen = Moves(*(column[kept] for column in (moves.parent, moves.move, moves.penalty, moves.name)))
            plans = self.turns.made(plans, chosen)
            volume, placed = all_volume[kept], all_placed[kept]
            history.append((chosen.parent, chosen.move))

    def _offsets(self, history: list[tuple[Ints, Ints]], last: int) -> Ints:
        """Puts the blocks of a plan, from its last turn back to the first, on top of each other."""
        order = []
        for parent, move in reversed(history):
            if move[last] >= 0:
                order.append(int(move[last]))
            last = int(parent[last])
        top, offsets = np.zeros(self.sets.count, np.int64), np.zeros(self.sets.blocks, np.int64)
        inside, size = self.sets.inside, self.sets.problem.size
        for t in reversed(order):
            spans = inside[:, t]
            offsets[t] = top[spans].max()
            top[spans] = offsets[t] + size[t]
        return offsets
