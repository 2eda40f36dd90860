"""Moves the points of as many transforms as a vector has lanes between memory and buffers.

Neighbours are moved by vectors, which are turned in registers where each lane is a row; others are moved one by one.
"""

from __future__ import annotations

from dataclasses import dataclass

from nnc.backends.cpu.kernels.transforms.passes import Pair, Points
from nnc.backends.moves import turn
from nnc.backends.printer import Bound, load_parts, store_parts, times
from nnc.base.dtypes import DType
from nnc.lower.kernels.builder import Code


@dataclass(frozen=True)
class Placing:
    """The layout of numbers: bytes from point to point, from lane to lane, and from real to imaginary part, if there is one."""

    point: int
    lane: int
    imaginary: int | None

    def parts(self) -> tuple[int, ...]:
        """Bytes from a point to its parts."""
        return (0,) if self.imaginary is None else (0, self.imaginary)


@dataclass(frozen=True)
class SideBySide:
    """Prints the moves of the transforms that a vector has side by side, one in each lane."""

    code: Code
    real: DType
    lanes: int

    def buffers(self, points: int) -> tuple[Points, Points]:
        """Two buffers on the stack."""
        nbytes = points * 2 * self.lanes * self.real.itemsize
        first, second = (Points(self.code, self.code.room(nbytes), self.real, self.lanes) for _ in range(2))
        return first, second

    def read(self, pointer: str, side: Placing, count: int, buffer: Points, filled: int) -> None:
        """Reads points; of the last, unfilled group as many lanes as there are."""
        code, size = self.code, self.real.itemsize
        zero = code.constant(0, self.real, self.lanes)
        if side.imaginary is None or filled < self.lanes:
            with code.loop(0, count) as i:
                buffer.store(i, Pair(zero, zero))
        if filled < self.lanes or not self._along(side):
            self._by_rows(pointer, side, count, buffer, filled, inward=True)
            return
        with code.loop(0, count) as i:
            at = code.offset(pointer, times(code, i, side.point))
            if side.lane == size:
                parts = [code.load(code.offset(at, part), self.real, self.lanes) for part in side.parts()]
                buffer.store(i, Pair(parts[0], parts[1] if len(parts) > 1 else zero))
            else:
                buffer.store(i, Pair(*load_parts(code, at, self.real, self.lanes)))

    def write(self, pointer: str, side: Placing, count: int, buffer: Points, filled: int) -> None:
        """Writes points, as `read` reads them."""
        code, size = self.code, self.real.itemsize
        if filled < self.lanes or not self._along(side):
            self._by_rows(pointer, side, count, buffer, filled, inward=False)
            return
        with code.loop(0, count) as i:
            at, x = code.offset(pointer, times(code, i, side.point)), buffer.load(i)
            if side.lane == size:
                for part, value in zip(side.parts(), x, strict=False):
                    code.store(code.offset(at, part), value)
            else:
                store_parts(code, at, *x)

    def _by_rows(self, pointer: str, side: Placing, count: int, buffer: Points, filled: int, *, inward: bool) -> None:
        """Moves squares of points and lanes where the points are neighbours, all others one by one."""
        code, move_tile = self.code, self._read_tile if inward else self._write_tile
        tiled = count // self.lanes if filled == self.lanes and self._is_tiled(side) else 0
        with code.loop(0, tiled) as tile:
            move_tile(pointer, side, times(code, tile, self.lanes), buffer)
        with code.loop(tiled * self.lanes, count) as i, code.loop(0, filled) as lane:
            self._move(self._at(pointer, side, i, lane), side, self._in(buffer, i, lane), inward=inward)

    def _along(self, side: Placing) -> bool:
        """Whether the lanes are neighbours in memory."""
        size = self.real.itemsize
        return side.lane == size or (side.lane == 2 * size and side.imaginary == size)

    def _is_tiled(self, side: Placing) -> bool:
        """Whether the points are neighbours in memory."""
        size = self.real.itemsize
        return (side.point, side.imaginary) in ((2 * size, size), (size, None))

    def _at(self, pointer: str, side: Placing, point: Bound, lane: Bound) -> str:
        code = self.code
        return code.offset(code.offset(pointer, times(code, point, side.point)), times(code, lane, side.lane))

    def _in(self, buffer: Points, point: Bound, lane: Bound) -> str:
        code = self.code
        at = code.offset(buffer.pointer, times(code, point, buffer.step))
        return code.offset(at, times(code, lane, self.real.itemsize))

    def _move(self, outside: str, side: Placing, inside: str, *, inward: bool) -> None:
        code = self.code
        for number, part in enumerate(side.parts()):
            pair = code.offset(outside, part), code.offset(inside, number * self.lanes * self.real.itemsize)
            source, target = pair if inward else pair[::-1]
            code.store(target, code.load(source, self.real))

    def _read_tile(self, pointer: str, side: Placing, first: Bound, buffer: Points) -> None:
        """Reads as many points as there are lanes: rows of them are turned in registers."""
        code, lanes = self.code, range(self.lanes)
        rows = [self._at(pointer, side, first, lane) for lane in lanes]
        if side.imaginary is not None:
            loaded = [load_parts(code, row, self.real, self.lanes) for row in rows]
            parts = [turn(code, [x[k] for x in loaded]) for k in (0, 1)]
        else:
            real = turn(code, [code.load(row, self.real, self.lanes) for row in rows])
            parts = [real, [code.constant(0, self.real, self.lanes)] * self.lanes]
        for k, (re, im) in enumerate(zip(*parts, strict=True)):
            buffer.store(code.add(code.integer(first), code.integer(k)), Pair(re, im))

    def _write_tile(self, pointer: str, side: Placing, first: Bound, buffer: Points) -> None:
        code, lanes = self.code, range(self.lanes)
        loaded = [buffer.load(code.add(code.integer(first), code.integer(k))) for k in lanes]
        parts = [turn(code, [x[k] for x in loaded]) for k in range(len(side.parts()))]
        for lane in lanes:
            row = self._at(pointer, side, first, lane)
            if side.imaginary is not None:
                store_parts(code, row, parts[0][lane], parts[1][lane])
            else:
                code.store(row, parts[0][lane])
