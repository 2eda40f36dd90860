"""Families: the programs of one function at several sizes, which share machine code.

A new size is traced and lowered as any other, by the same passes and planners, so that its program is right whatever the sizes
decide: Python's `if`s on shapes, thresholds of passes, tails of loops. What a member saves is the longest part, printing and
compiling: where its steps are those of a program that is known at another size, the *base*,

- kernels are printed as if from both: sizes, strides and constants in which the two differ are numbers, which a call hands over
  (`Step.like`), so that the texts of further members are equal, and code is compiled for the second size alone;
- the text of the program itself reads offsets, lengths of loops and the kernels' numbers from its frame.

So a program never depends on what was observed at other sizes: every number of it is found from its own graph, and a text that
turns out different, as where a size decides between two kinds of loops, is compiled. Where steps differ, the program is compiled
as the first one of its kind, and becomes a base of its own.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

from nnc.base.options import Options
from nnc.compiled.signature import Key, is_spec
from nnc.device import CPU

if TYPE_CHECKING:
    from nnc.compiled.executable import Executable

_BASES = 8  # of one kind of calls; the latest ones


def without_sizes(key: Key) -> Hashable:
    """Returns what calls of one kind have in common: all of their keys but the sizes of axes."""
    leaves = [
        (leaf[0].ndim, leaf[0].dtype, leaf[0].layout, leaf[1]) if is_spec(leaf) else leaf for leaf in key.leaves
    ]
    return key._replace(leaves=tuple(leaves))


class Families:
    """The families of a compiled function: for each kind of calls the bases, which have steps of their own each."""

    def __init__(self) -> None:
        self._bases: dict[Hashable, list[Executable]] = {}

    def bases(self, key: Key, options: Options) -> list[Executable]:
        """Returns the programs that may share code with a new one for this key, the latest first."""
        if not options.families or not options.native or options.device != CPU or options.guard or options.autotune:
            return []
        return self._bases.get(without_sizes(key), [])[::-1]

    def add(self, key: Key, executable: Executable) -> None:
        """Notes a new program. It is a base unless it is like one."""
        if executable.is_member:
            return
        known = self._bases.setdefault(without_sizes(key), [])
        known.append(executable)
        del known[:-_BASES]

    def clear(self) -> None:
        """Forgets all families."""
        self._bases.clear()

    def __len__(self) -> int:
        return sum(map(len, self._bases.values()))
