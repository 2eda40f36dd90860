"""Turns of the search for low plans in machine code: the same numbers as NumPy's, ten to twenty times as fast.

The CPU's kernels come with a compiler that makes a function of a kernel. Where there is none, `ArrayTurns` serve.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import numpy as np

from nnc.device import CPU, load_kernels
from nnc.lower.alloc.problem import Ints
from nnc.lower.alloc.turns import LiveSets, Moves, Plans, Style
from nnc.lower.alloc.turns_code import turns_native
from nnc.lower.alloc.turns_words import WORDS

SPEED = 16  # array cells that take as long as one does in NumPy
_PLACE = {name: i for i, name in enumerate(WORDS)}


def native_turns(sets: LiveSets) -> NativeTurns | None:
    """Turns in machine code; None where there is no compiler."""
    function = load_kernels(CPU).load_function(turns_native())
    return None if function is None else NativeTurns(sets, function)


class NativeTurns:
    """Turns by a compiled function; not for several threads at once."""

    calls: ClassVar[int] = 400_000

    def __init__(self, sets: LiveSets, function: Callable[[int], int]) -> None:
        self.sets, self._function = sets, function
        self._words = np.zeros(len(WORDS), np.int64)
        self._held: dict[str, Ints] = {}
        self._style: Style | None = None
        p, count = sets.problem, sets.count
        # each block's sets as ranges
        changes = np.diff(sets.inside, axis=0, prepend=False, append=False).T
        owner, edge = np.nonzero(changes)
        block, near = np.nonzero(sets.together)
        self._number("blocks", sets.blocks)
        self._number("count", count)
        self._number("stride", sets.stride)
        for name, array in (
            ("size", p.size), ("names", sets.names), ("places", sets.places), ("begin", sets.begin),
            ("members", sets.members), ("first_set", edge[::2]), ("end_set", edge[1::2]),
            ("near_begin", np.searchsorted(block, np.arange(sets.blocks + 1))), ("near", near),
            ("ranges", np.searchsorted(owner[::2], np.arange(sets.blocks + 1))), ("sums", np.zeros(2)),
            ("valley", np.zeros(2)), ("marked", np.zeros(count)), ("is_marked", np.zeros(count)),
            ("row", np.zeros(sets.stride)),
        ):  # fmt: skip
            self._array(name, array.astype(np.int64))
        self._row = int(self._words[_PLACE["row"]])

    def moves(self, plans: Plans, style: Style) -> Moves:
        """See `Turns`."""
        self._use(style)
        room = len(plans.name) * (style.children + 1)
        found = Moves(*(np.empty(room, np.int64) for _ in range(4)))
        self._plans(plans)
        self._number("row", self._row)
        self._array("parent", found.parent)
        self._array("move", found.move)
        self._array("next_penalty", found.penalty)
        self._array("next_name", found.name)
        many = self._run(len(plans.name), making=False)
        return Moves(found.parent[:many], found.move[:many], found.penalty[:many], found.name[:many])

    def made(self, plans: Plans, moves: Moves, style: Style) -> Plans:
        """See `Turns`."""
        self._use(style)
        rows = np.empty((len(moves.move), self.sets.stride), np.int64)
        self._plans(plans)
        self._array("parent", moves.parent)
        self._array("move", moves.move)
        self._array("next_rows", rows)
        self._run(len(moves.move), making=True)
        return Plans(rows, moves.penalty, moves.name)

    def _run(self, given: int, *, making: bool) -> int:
        self._number("given", given)
        self._number("making", int(making))
        return self._function(self._words.ctypes.data)

    def _plans(self, plans: Plans) -> None:
        for name, array in (("rows", plans.rows), ("penalty", plans.penalty), ("name", plans.name)):
            self._array(name, array)

    def _use(self, style: Style) -> None:
        if style is self._style:
            return
        self._style = style
        self._number("cap", style.cap)
        self._number("scale", int(np.float64(style.scale).view(np.int64)))
        self._number("children", style.children)
        self._number("tight", int(style.tight))
        self._array("rank", style.rank)
        self._array("table", style.table())
        self._array("choices", np.zeros(2 * style.children + 2, np.int64))

    def _number(self, name: str, value: int) -> None:
        self._words[_PLACE[name]] = value

    def _array(self, name: str, array: Ints) -> None:
        self._held[name] = array = np.ascontiguousarray(array)
        self._number(name, array.__array_interface__["data"][0])
