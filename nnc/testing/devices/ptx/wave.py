"""A wave: blocks of a grid that run side by side, one element of an array for each of their threads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from nnc.testing.devices.ptx.accesses import Order
from nnc.testing.devices.ptx.block_memory import PrivateMemory
from nnc.testing.devices.ptx.counts import WARP, Counts
from nnc.testing.devices.ptx.regions import GlobalMemory
from nnc.testing.devices.ptx.values import Array, Mask

Extent = tuple[int, int, int]
SHARED_WINDOW = 0x7A00_0000_0000_0000  # generic addresses of shared memory; no region lies there
LOCAL_WINDOW = 0x7B00_0000_0000_0000  # generic addresses of local memory
WINDOW = 1 << 56  # bytes of each


@dataclass(frozen=True, slots=True)
class Shape:
    """The grid and the blocks of a launch.

    Attributes:
        grid: the number of blocks along x, y and z.
        block: the number of threads of a block along x, y and z.
        dynamic: bytes of shared memory beside the variables of the kernel.
    """

    grid: Extent
    block: Extent
    dynamic: int

    @property
    def blocks(self) -> int:
        """The blocks of the grid."""
        return self.grid[0] * self.grid[1] * self.grid[2]

    @property
    def threads(self) -> int:
        """The threads of a block."""
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def row(self) -> int:
        """The threads of a block, rounded up to whole warps."""
        return -(-self.threads // WARP) * WARP


class Wave:
    """Blocks that run side by side.

    Args:
        first: the number of the first block.
        blocks: the number of blocks.
        registers: the number of registers of the module.
        shared: the shared memory of the blocks.
        local: the local memory of the threads.
        parameters: by name, the bytes of parameter variables, and which of these are set: one row for all threads, or one a
            thread.
    """

    def __init__(
        self, shape: Shape, first: int, blocks: int, registers: int, memory: GlobalMemory, shared: PrivateMemory,
        local: PrivateMemory, parameters: dict[str, tuple[Array, Array]], counts: Counts,
    ) -> None:  # fmt: skip
        self.shape, self.first, self.blocks = shape, first, blocks
        self.lanes = blocks * shape.row
        self.registers: list[Array | None] = [None] * registers
        self.defined: list[Array | bool] = [False] * registers  # for which threads a register is set
        self.memory, self.shared, self.local = memory, shared, local
        self.parameters, self.counts = parameters, counts
        self.order = Order(shape.row, first, blocks)
        self.within = np.arange(self.lanes, dtype=np.int64) % shape.row  # number of a thread in its block
        self.exists: Mask = None if shape.threads == shape.row else self.within < shape.threads
        self.all_lanes = np.arange(self.lanes) if self.exists is None else np.flatnonzero(self.exists)
        self.threads = (np.arange(self.lanes, dtype=np.int64) + first * shape.row).astype(np.int32)
        self._special: dict[str, Array] = {}

    def lanes_of(self, mask: Mask) -> Array:
        """Returns the numbers of the threads of a mask."""
        return self.all_lanes if mask is None else np.flatnonzero(mask)

    def mask_of(self, mask: Mask) -> Array:
        """Returns a mask with an element for each thread."""
        if mask is not None:
            return mask
        return np.ones(self.lanes, bool) if self.exists is None else self.exists

    def special(self, name: str) -> Array:
        """Returns a register that the machine sets, one of `SPECIAL`: 32 bits, one element a thread or one for all."""
        if name not in self._special:
            self._special[name] = np.atleast_1d(SPECIAL[name](self)).astype(np.uint32)
        return self._special[name]

    @cached_property
    def lane_ids(self) -> Array:
        """The number of each thread within its warp."""
        return np.arange(self.lanes, dtype=np.int64) % WARP

    @cached_property
    def block_ids(self) -> Array:
        """The number of each thread's block."""
        return np.arange(self.lanes, dtype=np.int64) // self.shape.row + self.first

    def name_thread(self, lane: int) -> str:
        """Names the thread of this number in the wave, for messages."""
        thread = tuple(int(part) for part in _coordinates(self.within[lane], self.shape.block))
        block = tuple(int(part) for part in _coordinates(self.block_ids[lane], self.shape.grid))
        return f"thread {thread} of block {block}"


def _coordinates(number: Array, extent: Extent) -> tuple[Array, Array, Array]:
    x, y, _ = extent
    return number % x, number // x % y, number // (x * y)


def _thread(axis: int) -> Callable[[Wave], Array]:
    return lambda wave: _coordinates(wave.within, wave.shape.block)[axis]


def _block(axis: int) -> Callable[[Wave], Array]:
    return lambda wave: _coordinates(wave.block_ids, wave.shape.grid)[axis]


def _threads(axis: int) -> Callable[[Wave], Array]:
    return lambda wave: np.array(wave.shape.block[axis])


def _blocks(axis: int) -> Callable[[Wave], Array]:
    return lambda wave: np.array(wave.shape.grid[axis])


SPECIAL: dict[str, Callable[[Wave], Array]] = {
    **{f"%tid.{name}": _thread(axis) for axis, name in enumerate("xyz")},
    **{f"%ctaid.{name}": _block(axis) for axis, name in enumerate("xyz")},
    **{f"%ntid.{name}": _threads(axis) for axis, name in enumerate("xyz")},
    **{f"%nctaid.{name}": _blocks(axis) for axis, name in enumerate("xyz")},
    "%laneid": lambda wave: wave.lane_ids,
    "%warpid": lambda wave: wave.within // WARP,
    "%nwarpid": lambda wave: np.array(wave.shape.row // WARP),
    "%lanemask_eq": lambda wave: 1 << wave.lane_ids,
    "%lanemask_lt": lambda wave: (1 << wave.lane_ids) - 1,
    "%lanemask_le": lambda wave: (2 << wave.lane_ids) - 1,
    "%lanemask_gt": lambda wave: 0xFFFFFFFF & -(2 << wave.lane_ids),
    "%lanemask_ge": lambda wave: 0xFFFFFFFF & -(1 << wave.lane_ids),
    "%dynamic_smem_size": lambda wave: np.array(wave.shape.dynamic),
    "%total_smem_size": lambda wave: np.array(wave.shared.nbytes),
}
