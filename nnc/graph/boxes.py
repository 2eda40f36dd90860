"""The algebra of boxes: the part of a tensor that an alias views, the union of aliases, and the overlap of two of them.

Everything is computed on the corners, never on cells, so neither the number of axes nor the sizes matter.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from nnc.base.traced_size import as_index
from nnc.errors import ShapeError, user_error

__all__ = ["Box", "covers", "first_overlap", "uncovered"]


@dataclass(frozen=True, slots=True)
class Box:
    """The elements `start[i] <= index[i] < start[i] + shape[i]` of a tensor.

    Args:
        start: first index of each axis.
        shape: size along each axis.

    Example:
        >>> str(Box((0, 3), (2, 2))), Box((0, 3), (2, 2)).size
        ('[0:2, 3:5]', 4)
    """

    start: tuple[int, ...]
    shape: tuple[int, ...]

    @classmethod
    def within(
        cls, outer_shape: Sequence[int], start: Sequence[int], shape: Sequence[int], *, where: str = "alias"
    ) -> Box:
        """Returns the box of `shape` at `start` in a tensor of `outer_shape`; `where` names the caller in errors.

        Args:
            outer_shape: shape of the tensor.
            start: first index of each axis.
            shape: size of each axis.
            where: the caller, for messages.

        Raises:
            ShapeError: another rank, a negative start or size, or a part of the box is outside.

        Example:
            >>> str(Box.within((4, 4), (1, 0), (2, 4)))
            '[1:3, 0:4]'
        """
        outer, box = tuple(map(as_index, outer_shape)), cls(tuple(map(as_index, start)), tuple(map(as_index, shape)))
        operands = {"tensor": list(outer), "start": list(box.start), "shape": list(box.shape)}
        if not len(outer) == len(box.start) == len(box.shape):
            problem = f"the tensor has {len(outer)} axes, start {len(box.start)} and shape {len(box.shape)}."
            fix = "give one start and one size for each axis of the tensor."
            raise user_error(ShapeError, where, problem, operands=operands, fix=fix)
        for axis, (size, first, length) in enumerate(zip(outer, box.start, box.shape, strict=True)):
            if first < 0 or length < 0 or first + length > size:
                problem = f"axis {axis}: {first}:{first + length} is not within 0:{size}."
                fix = "choose start >= 0 and shape >= 0 with start + shape <= the tensor's shape."
                raise user_error(ShapeError, where, problem, operands=operands, fix=fix)
        return box

    @classmethod
    def whole(cls, shape: Sequence[int]) -> Box:
        """Returns the box of all elements of a tensor of `shape`.

        Args:
            shape: shape of the tensor.
        """
        return cls((0,) * len(shape), tuple(shape))

    @property
    def limit(self) -> tuple[int, ...]:
        """One past the last index of each axis."""
        return tuple(first + length for first, length in zip(self.start, self.shape, strict=True))

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    def shift(self, offset: Sequence[int]) -> Box:
        """This box moved by `offset`.

        Args:
            offset: a number for each axis.
        """
        return Box(tuple(first + by for first, by in zip(self.start, offset, strict=True)), self.shape)

    def overlaps(self, other: Box) -> bool:
        """Whether the boxes have an element in common; a box without elements overlaps nothing.

        Args:
            other: a box of the same rank.
        """
        sides = zip(self.start, self.shape, other.start, other.shape, strict=True)
        return all(a < b + m and b < a + n and n and m for a, n, b, m in sides)

    def contains(self, other: Box) -> bool:
        """Whether every element of `other` is one of this box; a box without elements is contained in every box.

        Args:
            other: a box of the same rank.
        """
        sides = zip(self.start, self.shape, other.start, other.shape, strict=True)
        return 0 in other.shape or all(a <= b and b + m <= a + n for a, n, b, m in sides)

    def intersection(self, other: Box) -> Box | None:
        """Returns the common elements; None where there are none.

        Args:
            other: a box of the same rank.
        """
        if not self.overlaps(other):
            return None
        start = tuple(map(max, self.start, other.start))
        return Box(start, tuple(min(a, b) - first for a, b, first in zip(self.limit, other.limit, start, strict=True)))

    def subtract(self, other: Box) -> list[Box]:
        """Returns the elements of this box that are not in `other`, as disjoint boxes: at most two for each axis.

        Args:
            other: a box of the same rank.

        Example:
            >>> [str(box) for box in Box((0, 0), (2, 4)).subtract(Box((0, 1), (2, 2)))]
            ['[0:2, 0:1]', '[0:2, 3:4]']
        """
        if 0 in self.shape:
            return []
        common = self.intersection(other)
        if common is None:
            return [self]
        pieces: list[Box] = []
        start, limit = list(self.start), list(self.limit)
        for axis, (low, high) in enumerate(zip(common.start, common.limit, strict=True)):
            for first, last in ((start[axis], low), (high, limit[axis])):
                if first < last:
                    corner, end = start.copy(), limit.copy()
                    corner[axis], end[axis] = first, last
                    pieces.append(Box(tuple(corner), tuple(b - a for a, b in zip(corner, end, strict=True))))
            start[axis], limit[axis] = low, high  # the rest has the common part's extent on this axis
        return pieces

    def __str__(self) -> str:
        return f"[{', '.join(f'{a}:{b}' for a, b in zip(self.start, self.limit, strict=True))}]"


def uncovered(boxes: Iterable[Box], shape: Sequence[int]) -> list[Box]:
    """Returns the part of a tensor of `shape` that none of `boxes` covers, as disjoint boxes.

    Cost: each box meets only the pieces that reach as far along axis 0; linear for rows and grids of boxes.

    Args:
        boxes: boxes of one rank.
        shape: shape of the tensor.

    Example:
        >>> [str(box) for box in uncovered([Box((0,), (2,)), Box((5,), (1,))], (8,))]
        ['[2:5]', '[6:8]']
    """
    whole = Box.whole(shape)
    left, done = ([] if 0 in whole.shape else [whole]), []
    for box in sorted(boxes, key=lambda box: box.start):
        pieces: list[Box] = []
        for piece in left:
            if piece.start and piece.limit[0] <= box.start[0]:
                done.append(piece)  # the boxes that follow start no earlier
            else:
                pieces += piece.subtract(box)
        left = pieces
    return sorted(done + left, key=lambda piece: piece.start)


def covers(boxes: Iterable[Box], shape: Sequence[int]) -> bool:
    """Whether every element of a tensor of `shape` lies in one of `boxes`.

    Args:
        boxes: boxes of one rank.
        shape: shape of the tensor.

    Example:
        >>> covers([Box((0,), (2,)), Box((1,), (2,))], (3,))
        True
    """
    return not uncovered(boxes, shape)


def first_overlap(boxes: Sequence[Box]) -> tuple[int, int] | None:
    """Returns the first box that overlaps an earlier one: `(earlier, later)`, or None where all are disjoint.

    Cost: boxes that some axis separates are never compared, so rows and grids take O(n log n); n^2 where no axis does.

    Args:
        boxes: boxes of one rank.

    Example:
        >>> first_overlap([Box((0,), (2,)), Box((2,), (2,)), Box((1,), (2,))])
        (0, 2)
    """
    found: tuple[int, int] | None = None
    groups = [[i for i, box in enumerate(boxes) if 0 not in box.shape]]
    while groups:
        group = groups.pop()
        parts = _separate(boxes, group)
        if len(parts) > 1:
            groups += [part for part in parts if len(part) > 1]
        elif (pair := _first_pair(boxes, group)) is not None and (found is None or pair[::-1] < found[::-1]):
            found = pair
    return found


def _first_pair(boxes: Sequence[Box], group: Sequence[int]) -> tuple[int, int] | None:
    pairs = ((i, j) for n, j in enumerate(group) for i in group[:n])
    return next(((i, j) for i, j in pairs if boxes[i].overlaps(boxes[j])), None)


def _separate(boxes: Sequence[Box], group: list[int]) -> list[list[int]]:
    """Splits ascending `group` along the first axis whose hyperplanes pass between its boxes; the parts are ascending too."""
    if len(group) > 1:
        for axis in range(len(boxes[group[0]].start)):
            parts = list(_split(boxes, group, axis))
            if len(parts) > 1:
                return parts
    return [group]


def _split(boxes: Sequence[Box], group: list[int], axis: int) -> Iterator[list[int]]:
    part: list[int] = []
    reach = 0
    for i in sorted(group, key=lambda i: boxes[i].start[axis]):
        first = boxes[i].start[axis]
        if part and first >= reach:
            yield sorted(part)
            part = []
        last = first + boxes[i].shape[axis]
        reach = max(reach, last) if part else last
        part.append(i)
    yield sorted(part)
