"""Counts of a launch: instructions, bytes and sectors of memory, conflicts of banks."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from nnc.testing.devices.ptx.values import Array

SECTOR = 32  # bytes that memory is read and written in
WARP = 32  # threads


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

    Example:
        >>> Counts(loaded=128, sectors=8).waste  # each sector of 32 bytes for 16 of them
        2.0
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
        addresses: an address for each thread; no access crosses a sector.
        lanes: the threads' numbers, in ascending order.
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
        addresses: addresses within the shared memory of a block.
        lanes: the threads' numbers, in ascending order.
        width: bytes of a thread's access; wide accesses go by half or quarter warps.
    """
    word = max(width, 4)
    together = WARP * 4 // word  # threads that take one pass without conflicts, and places that they take side by side
    words = addresses.astype(np.int64) // word
    groups, banks = lanes // together, words % together
    starts = np.flatnonzero(np.concatenate([[True], groups[1:] != groups[:-1]]))
    sizes = np.diff(np.append(starts, len(groups)))
    used = np.bitwise_or.reduceat(np.left_shift(1, banks), starts)
    # passes where threads share a bank, perhaps a word of it
    crowded = np.repeat(np.bitwise_count(used) != sizes, sizes)
    if not crowded.any():
        return 0
    keys = np.unique((groups[crowded] << 40) + (banks[crowded] << 32) + words[crowded])
    taken, of_banks = np.unique(keys >> 32, return_counts=True)
    passes, which = np.unique(taken >> 8, return_inverse=True)
    most = np.zeros(len(passes), np.int64)
    np.maximum.at(most, which, of_banks)
    return int(most.sum()) - len(passes)
