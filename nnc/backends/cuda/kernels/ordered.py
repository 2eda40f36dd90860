"""Brings the updates of a scatter into the order of their places: a sort of keys that name the place and the update.

A key is the number of the row times the number of updates, plus the number of the update. So keys differ, the updates of a row
stay in their order, and any way to sort gives the same result. Blocks sort tiles by Batcher's bitonic network (Sorting networks and
their applications, 1968). Each further launch merges pairs of runs: a thread finds its key's rank in the other run by halving.

Cost: for n updates n log² n steps, in 1 + log2(n / 1024) launches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from nnc.backends.cuda.kernels.code import GpuCode
from nnc.backends.cuda.kernels.registry import Series
from nnc.backends.cuda.kernels.units import count_below, either, unsigned
from nnc.backends.cuda.kernels.writes import Writes
from nnc.base import dtypes
from nnc.base.records import record
from nnc.graph import TensorSpec
from nnc.lower.kernels.builder import Value

_TILE = 1024  # keys; 8 KiB of shared memory, and a pair for each of 512 threads
_LEAST_TILE = 64
_ALIGNED = 64  # bytes; of the parts of the workspace
_KEY = 8  # bytes
_LONGEST = (1 << 64) - 1
_FEW = 32  # updates, which one launch joins
_CHUNK, _LONGEST_CHUNK = 32, 256  # updates that a thread joins one after the other


@record
class Order:
    """The sizes of a scatter with sorted updates, and of its workspace: two arrays of keys, then the sums of chunks.

    Attributes:
        count: the number of updates, each of a row.
        rows: rows of the operand.
        width: elements of a row; the two parts of a complex number count as two.
        item: bytes of an element while updates are combined; 0 where they replace each other.
    """

    count: int
    rows: int
    width: int
    item: int

    @staticmethod
    def of(x: TensorSpec, index: TensorSpec, params: Mapping[str, Any]) -> Order:
        """Makes the order of a scatter's updates.

        Args:
            x: the spec of the scatter's operand.
            index: the spec of the one array of indices.
        """
        axes = (*range(params["batch"]), *params["axes"])
        rows = math.prod(x.shape[axis] for axis in axes)
        width = x.size // rows * (2 if dtypes.is_complex(x.dtype) else 1)
        item = 0 if params["op"] == "set" else dtypes.accumulator(dtypes.real_dtype(x.dtype)).itemsize
        return Order(index.size, rows, width, item)

    @property
    def is_few(self) -> bool:
        """Whether all updates are joined without being sorted."""
        return self.count <= _FEW

    @property
    def is_counted(self) -> bool:
        """Whether 63 bits hold all keys."""
        return (self.rows + 1) * self.count < 1 << 63

    @property
    def tile(self) -> int:
        """Keys that a block sorts."""
        return min(max(1 << (self.count - 1).bit_length(), _LEAST_TILE), _TILE)

    @property
    def chunk(self) -> int:
        """Updates that a thread joins one after the other: more where there are many updates; their sums are then joined in
        turn.
        """
        wanted = 1 << math.isqrt(self.count).bit_length() >> 2
        return min(max(wanted, _CHUNK), _LONGEST_CHUNK)

    @property
    def chunks(self) -> int:
        """The number of chunks."""
        return -(-self.count // self.chunk)

    @property
    def passes(self) -> int:
        """The number of launches that merge runs."""
        return (-(-self.count // self.tile) - 1).bit_length()

    def keys(self, turn: int) -> int:
        """Bytes to the keys that a launch writes: the tiles are turn 0, then come the passes."""
        return turn % 2 * _aligned(self.count * _KEY)

    def sums(self, number: int) -> int:
        """Bytes to the sums of chunks: 0 for sums that begin before their chunk, 1 for those that go on behind it."""
        before = min(self.passes + 1, 2) * _aligned(self.count * _KEY)
        return before + number * _aligned(self.chunks * self.width * self.item)

    @property
    def nbytes(self) -> int:
        """Bytes of the workspace."""
        return 0 if self.is_few else self.sums(2)


def _aligned(nbytes: int) -> int:
    return -(-nbytes // _ALIGNED) * _ALIGNED


def sort_updates(series: Series, writes: Writes, order: Order) -> None:
    """Adds the launches that sort the keys of all updates; the last one writes at `order.keys(order.passes)`."""
    threads = order.tile // 2
    code = writes.begin("tiles", threads)
    _print_tile(code, writes, order)
    writes.end(series, code, -(-order.count // order.tile), threads)
    for turn in range(1, order.passes + 1):
        with writes.each(series, f"merge{turn}", order.count) as (code, unit):
            _print_merge(code, writes, order, turn, code.convert(unit, dtypes.int64))


def _print_tile(code: GpuCode, writes: Writes, order: Order) -> None:
    tile, half = order.tile, order.tile // 2
    thread = code.special("tid.x")
    first = code.add(code.mul(code.special("ctaid.x"), code.integer(tile)), thread)
    room = code.shared(tile * _KEY)

    def slot(i: Value) -> str:
        return code.offset(room, code.mul(i, code.integer(_KEY)))

    numbers = [first, code.add(first, code.integer(half))]
    known = [code.compare("lt", n, code.integer(order.count)) for n in numbers]
    longest = code.constant(_LONGEST, dtypes.uint64)
    for shift, n, is_known in zip((0, half), numbers, known, strict=True):
        key = either(code, is_known, partial(_key, code, writes, order, n), longest)
        code.store(slot(code.add(thread, code.integer(shift))), key)
    steps = tile.bit_length() - 1
    with code.loop(0, steps) as run, code.loop(0, code.add(run, code.integer(1))) as turn:
        code.barrier()
        _compare_pair(code, slot, thread, code.shl(code.integer(2), run), code.sub(run, turn))
    code.barrier()
    for shift, n, is_known in zip((0, half), numbers, known, strict=True):
        with code.when(is_known):
            key = code.load(slot(code.add(thread, code.integer(shift))), dtypes.uint64)
            code.store(key_at(code, writes, order, 0, n), key)


def _compare_pair(code: GpuCode, slot: Callable[[Value], str], thread: Value, length: Value, bit: Value) -> None:
    """One step of the network: keys whose numbers differ in one bit; runs of `length` keys rise and fall in turn."""
    apart = code.shl(code.integer(1), bit)
    low = code.and_(thread, code.add(apart, code.integer(-1)))
    i = code.add(code.shl(code.sub(thread, low), code.integer(1)), low)
    places = slot(i), slot(code.add(i, apart))
    x, y = (code.load(place, dtypes.uint64) for place in places)
    rises = code.compare("eq", code.and_(i, length), code.integer(0))
    swaps = code.compare("eq", code.compare("gt", x, y), rises)
    code.store(places[0], code.select(swaps, y, x))
    code.store(places[1], code.select(swaps, x, y))


def _key(code: GpuCode, writes: Writes, order: Order, n: Value) -> Value:
    """Returns the key of an update; the row of updates that are dropped comes behind all others."""
    row, inside = writes.row(code, n)
    if inside is not None and writes.status:
        code.refuse(writes.status, code.not_(inside))
    return code.convert(code.add(code.mul(row, code.integer(order.count)), n), dtypes.uint64)


def _print_merge(code: GpuCode, writes: Writes, order: Order, turn: int, n: Value) -> None:
    """Each key moves as far as its rank in the other run of its pair says."""
    run, count = order.tile << (turn - 1), order.count
    key = load_key(code, writes, order, turn - 1, n)
    within = code.and_(n, code.integer(2 * run - 1))
    is_left = code.compare("lt", within, code.integer(run))
    begin = code.sub(n, within)
    other = code.select(is_left, code.add(begin, code.integer(run)), begin)
    left = code.sub(code.integer(count), other)
    size = code.intrinsic("smin", left, code.integer(run))

    def load(i: Value) -> Value:
        return load_key(code, writes, order, turn - 1, code.add(other, i))

    rank = count_below(code, load, size, min(run, count), key)
    target = code.add(code.add(begin, rank), code.and_(n, code.integer(run - 1)))
    code.store(key_at(code, writes, order, turn, target), key)


# -- reading -----------------------------------------------------------------------------------------------------------


def key_at(code: GpuCode, writes: Writes, order: Order, turn: int, n: Value) -> str:
    """Returns the address of a key.

    Args:
        turn: 0 for the keys of tiles, then the number of the pass.
        n: the position of the key, an int64.
    """
    place = code.add(code.mul(n, code.integer(_KEY)), code.integer(order.keys(turn)))
    return code.offset(writes.workspace, place)


def load_key(code: GpuCode, writes: Writes, order: Order, turn: int, n: Value) -> Value:
    """Reads a key; see `key_at`."""
    return code.load(key_at(code, writes, order, turn, n), dtypes.uint64)


def row_of(code: GpuCode, order: Order, key: Value) -> Value:
    """Returns the row of a key; `order.rows` for updates that are dropped."""
    return code.div(key, code.like(key, order.count))


def update_of(code: GpuCode, order: Order, key: Value) -> Value:
    """Returns the update of a key, in 32 bits where they hold it."""
    return unsigned(code, code.rem(key, code.like(key, order.count)), order.count)
