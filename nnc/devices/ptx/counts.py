"""Counts of a launch: instructions, bytes and sectors of memory, conflicts of banks."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from nnc.devices.ptx.values import Array

SECTOR = 32  # bytes that memory is read and written in
WARP = 32  # threads
_BANKS = 32  # of shared memory, 4 bytes each


@dataclass(slots=True)
class Counts:
    """Counts of a launch.

    Attributes:
        instructions: executed, of all threads together.
        opcodes: the same, by opcode.
        loaded: bytes that threads read of global memory.
        stored: bytes that threads wrote there.
        sectors: 32 bytes each, that warps touched with all their accesses to global memory.
        conflicts: further passes over shared memory, since threads of a warp named different words of one bank.
    """

    instructions: int = 0
    opcodes: Counter[str] = field(default_factory=Counter)
    loaded: int = 0
    stored: int = 0
    sectors: int = 0
    conflicts: int = 0

    @property
    def sector_bytes(self) -> int:
        """The bytes of the sectors."""
        return SECTOR * self.sectors

    @property
    def waste(self) -> float:
        """The bytes of sectors, divided by the bytes that threads read and wrote: 1 where accesses are coalesced."""
        return self.sector_bytes / max(self.loaded + self.stored, 1)


def count_sectors(addresses: Array, lanes: Array) -> int:
    """Returns how many sectors warps touch with one access.

    Args:
        addresses: of the threads; an access does not cross a sector.
        lanes: the threads, ascending.
    """
    return _distinct(addresses.astype(np.int64) // SECTOR, lanes // WARP)


def _distinct(values: Array, groups: Array) -> int:
    """Adds up the numbers of different values in the groups, which ascend."""
    starts = np.ones(len(values), bool)
    starts[1:] = groups[1:] != groups[:-1]
    changes = values[1:] != values[:-1]
    if not (values[1:] >= values[:-1])[~starts[1:]].all():
        order = np.lexsort((values, groups))
        changes = values[order][1:] != values[order][:-1]
    starts[1:] |= changes
    return int(np.count_nonzero(starts))


def count_conflicts(addresses: Array, lanes: Array, width: int) -> int:
    """Returns how many further passes over the banks of shared memory an access takes.

    Args:
        addresses: within the shared memory of a block.
        lanes: the threads, ascending.
        width: bytes of a thread's access; wide ones go by half or quarter warps.
    """
    together = WARP * 4 // max(width, 4)  # threads that take one pass without conflicts
    words = addresses.astype(np.int64) // 4
    keys = np.unique((lanes // together << 32) + (words % _BANKS << 27) + words // _BANKS)
    _, of_banks = np.unique(keys >> 27, return_counts=True)
    banks = np.unique(keys >> 27)
    most = np.zeros(len(of_banks), np.int64)
    groups, which = np.unique(banks >> 5, return_inverse=True)
    np.maximum.at(most, which, of_banks)
    return int(most.sum()) - len(groups)
