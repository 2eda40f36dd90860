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

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

from nnc.base.options import Options
from nnc.compiled.dims import DynamicAxes
from nnc.compiled.signature import Key, is_spec
from nnc.device import CPU

if TYPE_CHECKING:
    from nnc.compiled.executable import Executable

_BASES = 8  # of one kind of calls; the latest ones


class Family:
    """The programs whose steps are those of `base`.

    Args:
        number: the family's number, from 1.
        base: the first program.
    """

    def __init__(self, number: int, base: Executable) -> None:
        self.number, self.base, self.members = number, base, 1


class Families:
    """The families of a compiled function.

    Args:
        fun: the function.
        axes: the axes whose sizes vary; None: any may.
    """

    def __init__(self, fun: Callable[..., Any], axes: DynamicAxes | None) -> None:
        self._fun, self._axes = fun, axes
        self._kinds: dict[Hashable, list[Family]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def bases(self, key: Key, options: Options) -> list[Executable]:
        """Returns the programs that may share code with a new one for this key, the latest first.

        Raises:
            AxisError: an array has no such axis as is named.
            ShapeError: axes of one name have two sizes, or a size is larger than it may be.
        """
        may_share = self._axes is None or self._axes.check(key, self._fun)
        is_plain = options.native and options.device == CPU and not options.guard and not options.autotune
        if not (may_share and is_plain and options.families):
            return []
        return [family.base for family in reversed(self._kinds.get(self._kind(key), []))]

    def add(self, key: Key, executable: Executable) -> Family:
        """Notes a new program, and returns its family, which it may be the first of."""
        known = self._kinds.setdefault(self._kind(key), [])
        for family in known:
            if executable.like is family.base.program:
                family.members += 1
                return family
        self._count += 1
        known.append(Family(self._count, executable))
        del known[:-_BASES]
        return known[-1]

    def clear(self) -> None:
        """Forgets all families."""
        self._kinds.clear()
        self._count = 0

    def _kind(self, key: Key) -> Hashable:
        """Returns what calls of one kind have in common: all of their keys but the sizes that vary."""
        places = None if self._axes is None else self._axes.places(key, self._fun)
        leaves: list[Any] = []
        for i, leaf in enumerate(key.leaves):
            if is_spec(leaf):
                spec, weak = leaf
                varies = [places is None or (i, axis) in places for axis in range(spec.ndim)]
                shape = tuple([None if v else n for n, v in zip(spec.shape, varies, strict=True)])
                leaf = shape, spec.dtype, spec.layout, weak
            leaves.append(leaf)
        return key._replace(leaves=tuple(leaves))
