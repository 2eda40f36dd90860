"""Nests in which some operands lie in one another's transposed order: tiles are turned in shared memory.

A block takes a tile of the vector loop and of the loop along which the others, the *turned* operands, are dense. Turned inputs are
read along their own memory into shared memory, where each thread finds its elements of them; turned outputs go the other way.
So every warp reads and writes whole sectors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

from nnc.backends.cuda.kernels.operands import Operands
from nnc.backends.cuda.kernels.values import ThreadValues
from nnc.base.dtypes import DType
from nnc.base.records import record
from nnc.lower.kernels.builder import Value
from nnc.lower.kernels.launch import DeviceKernel
from nnc.lower.kernels.values import Scope

_BANK = 4  # bytes of a bank of shared memory


@record
class Tiles:
    """The tiles of a nest with transposed operands.

    Attributes:
        along: the loop along which turned operands are dense.
        turned: the positions of the transposed operands.
    """

    along: int
    turned: tuple[int, ...]


def find_tiles(operands: Operands) -> Tiles | None:
    """Finds the transposed operands, and the loop along which they are dense; None where there are none, or the loops are short."""
    nest, grids = operands.nest, operands.grids
    if nest.vector is None or nest.sizes[nest.vector] < grids.turned:
        return None
    found = None
    for loop in nest.outer:
        turned = tuple([i for i in range(len(operands.views)) if _is_turned(operands, i, loop)])
        if nest.sizes[loop] >= grids.turned and turned and (found is None or len(turned) > len(found.turned)):
            found = Tiles(loop, turned)
    if found is None:
        return None
    nbytes = sum(grids.tile * _row_bytes(nest.operands[i].dtype, grids.tile) for i in found.turned)
    return found if nbytes <= grids.shared_bytes else None


def _row_bytes(dtype: DType, tile: int) -> int:
    """Bytes from one row of a tile to the next, by which the elements of one column lie in different banks."""
    return tile * dtype.itemsize + max(dtype.itemsize, _BANK)


def _is_turned(operands: Operands, operand: int, loop: int) -> bool:
    """Whether an operand is dense along a loop, and not along the vector loop."""
    nest, symbol = operands.nest, operands.nest.operands[operand]
    if loop == nest.vector or symbol in operands.gathered or operands.step(operand) in (0, symbol.dtype.itemsize):
        return False
    return bool(nest.strides[operand][loop] == symbol.dtype.itemsize)


def print_tiles(operands: Operands, tiles: Tiles) -> DeviceKernel:
    """Prints a nest, without a row, with transposed operands.

    Inputs may lie where outputs do: a block reads the whole tile of a transposed input before it writes there, and one thread
    reads and writes each other element.
    """
    return _TilePrinter(operands, tiles).kernel()


class _TilePrinter(ThreadValues):
    """Prints one nest."""

    def __init__(self, operands: Operands, tiles: Tiles) -> None:
        super().__init__(operands, 1)
        self.along, self.turned, self.tile = tiles.along, tiles.turned, operands.grids.tile
        self.rooms: dict[int, str] = {}  # the tiles of operands in shared memory
        self.lane: Value  # of the thread's warp, and the number of the warp, which are its place in a tile
        self.warp: Value
        self.outer: dict[int, Value] = {}  # iterations of the loops; of those of the tile, the first one

    def kernel(self) -> DeviceKernel:
        """Returns the kernel."""
        threads = self.operands.grids.threads
        self.begin("tiles", threads)
        blocks = self._enter()
        code, inputs = self.code, len(self.graph.inputs)
        for operand in self.turned:
            self.rooms[operand] = code.shared(self.tile * _row_bytes(self.nest.operands[operand].dtype, self.tile))
        incoming = [operand for operand in self.turned if operand < inputs]
        outgoing = [operand for operand in self.turned if operand >= inputs]
        if incoming:
            self._read_tiles(incoming)
            code.barrier()
        self._compute(incoming, outgoing)
        if outgoing:
            code.barrier()
            self._write_tiles(outgoing)
        code.ret()
        return DeviceKernel(self.text(), (self.launch((blocks, 1), threads),), self.operands.may_fail)

    def _enter(self) -> int:
        """Finds the tile of the block; returns the number of blocks."""
        nest, code = self.nest, self.code
        counts = [
            -(-nest.sizes[loop] // (self.tile if loop in (nest.vector, self.along) else 1)) for loop in nest.outer
        ]
        blocks = math.prod(counts)
        unit = self.number("ctaid.x", self.operands.is_short(blocks))
        self.outer = self.take_apart(unit, nest.outer, counts)
        for loop in (nest.vector, self.along):
            assert loop is not None
            self.outer[loop] = code.mul(self.outer[loop], code.integer(self.tile))
        thread = self.number("tid.x", True)
        self.lane = self.wide(code.rem(thread, code.like(thread, self.tile)))
        self.warp = self.wide(code.div(thread, code.like(thread, self.tile)))
        return blocks

    def _block(self, inner: Value, other: Value, is_turned: bool) -> tuple[Scope, Value, Value]:
        """Returns the place of an element within the tile, by its number along the vector loop (or, if turned, along the other
        one).
        """
        nest, code = self.nest, self.code
        assert nest.vector is not None
        near, far = (other, inner) if is_turned else (inner, other)
        iterations = {**self.outer}
        mask: Value | None = None
        for loop, number in ((nest.vector, near), (self.along, far)):
            iterations[loop] = code.add(iterations[loop], number)
            if nest.sizes[loop] % self.tile:
                inside = code.compare("lt", iterations[loop], code.integer(nest.sizes[loop]))
                mask = inside if mask is None else code.and_(mask, inside)
        return Scope({}, iterations, mask), near, far

    def _turns(self) -> Sequence[Value]:
        """Returns the rows of a tile that fall to a warp."""
        warps = self.operands.grids.threads // self.tile
        return [self.code.add(self.warp, self.code.integer(first)) for first in range(0, self.tile, warps)]

    def _at(self, operand: int, near: Value, far: Value) -> tuple[str, DType]:
        """Returns the address of an element in shared memory, where turned operands keep their order."""
        code, dtype = self.code, self.nest.operands[operand].dtype
        row = code.mul(near, code.integer(_row_bytes(dtype, self.tile)))
        at = code.add(row, code.mul(far, code.integer(dtype.itemsize)))
        return code.offset(self.rooms[operand], at), dtype

    def _read_tiles(self, incoming: Sequence[int]) -> None:
        """Reads tiles along their own memory: all elements before the first is put down."""
        places = [self._block(self.lane, turn, is_turned=True) for turn in self._turns()]
        found = [(i, place, self.load(i, place[0])) for i in incoming for place in places]
        for operand, (block, near, far), value in found:
            with self.under(block.mask):
                self.code.store(self._at(operand, near, far)[0], value)

    def _compute(self, incoming: Sequence[int], outgoing: Sequence[int]) -> None:
        """Computes the elements of the tile along the vector loop."""
        code, count = self.code, len(self.graph.inputs)
        places = [self._block(self.lane, turn, is_turned=False) for turn in self._turns()]
        for block, near, far in places:
            for i, symbol in enumerate(self.graph.inputs):
                if i in incoming:
                    block.values[symbol] = self.guarded(block.mask, partial(code.load, *self._at(i, near, far)))
                elif symbol not in self.operands.gathered:
                    self.value(symbol, block)
        for block, near, far in places:
            found = [(count + i, self.value(symbol, block)) for i, symbol in enumerate(self.graph.outputs)]
            with self.under(block.mask):
                for operand, value in found:
                    if operand in outgoing:
                        address, dtype = self._at(operand, near, far)
                        code.store(address, code.convert(value, dtype))
                    else:
                        self.store(operand, value, block)

    def _write_tiles(self, outgoing: Sequence[int]) -> None:
        """Writes tiles along their own memory."""
        for turn in self._turns():
            block, near, far = self._block(self.lane, turn, is_turned=True)
            with self.under(block.mask):
                for operand in outgoing:
                    self.store(operand, self.code.load(*self._at(operand, near, far)), block)
