"""Memory of blocks and of threads: shared memory, which is checked for races, and local memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from nnc.testing.devices.ptx.faults import refuse
from nnc.testing.devices.ptx.memory import MOST_ALIGNED, Memory
from nnc.testing.devices.ptx.syntax import Variable
from nnc.testing.devices.ptx.values import Array

if TYPE_CHECKING:
    from nnc.testing.devices.ptx.wave import Wave


class PrivateMemory(Memory):
    """Memory in which each owner has a part of the same size: shared memory of blocks, or local memory of threads.

    Args:
        space: the name of the state space.
        owners: the number of blocks or threads that have a part.
        threads: the number of threads of an owner.
        nbytes: the size of a part.
        granule: the width of the narrowest access.
        names: the variables and their offsets, for messages.
    """

    def __init__(
        self, space: str, owners: int, threads: int, nbytes: int, granule: int, names: Sequence[tuple[int, Variable]]
    ) -> None:
        self.part = -(-nbytes // MOST_ALIGNED) * MOST_ALIGNED
        super().__init__(max(owners * self.part, MOST_ALIGNED), granule, owners * self.part if threads > 1 else 0)
        self.space, self.row, self.nbytes, self.names = space, threads, nbytes, names

    def find(self, wave: Wave, addresses: Array, lanes: Array, width: int, verb: str) -> Array:
        """Returns the flat positions of offsets; see `Memory.find`."""
        outside = addresses + np.uint64(width) > np.uint64(self.nbytes)
        outside |= addresses >= np.uint64(max(self.nbytes, 1))
        say = lambda i: f"{verb} {width} bytes at {int(addresses[i])} of {self.nbytes} bytes of {self.space} memory"
        refuse(outside, lanes, say, f"declare more {self.space} memory, or name an element of it")
        return lanes // self.row * self.part + addresses.astype(np.int64)

    def describe(self, position: int) -> str:
        """Returns a position as a byte of a variable."""
        offset = position % self.part
        for first, variable in self.names:
            if first <= offset < first + variable.nbytes:
                return f"byte {offset - first} of {variable.name} in {self.space} memory"
        return f"byte {offset} of {self.space} memory"


def lay_out(variables: Sequence[Variable]) -> tuple[list[tuple[int, Variable]], int]:
    """Returns the variables of one space with their offsets in one piece of memory, and its size."""
    placed, size = [], 0
    for variable in variables:
        size = -(-size // variable.alignment) * variable.alignment
        placed.append((size, variable))
        size += variable.nbytes
    return placed, size
