"""A board of the processes of one machine: memory that they share, where each notes how far it has come.

A collective costs three stores. Everything else is written and read by the thread of nnc/backends/mpi/guard.py. Processes on other
machines are not on the board.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

import numpy as np

from nnc.base.records import record

ENTERED, LEFT, SITE = range(3)  # places of the numbers that compiled programs write, in units of 8 bytes
TEXT = 240  # bytes of a text on the board; longer ones are cut
CELL = np.dtype([
    ("entered", "i8"), ("left", "i8"), ("site", "i8"),  # of collectives: how many began, how many ended, and the last one's site
    ("rank", "i8"), ("pid", "i8"), ("ended", "i8"), ("told", "i8"), ("beat", "f8"),
    ("at", f"S{TEXT}"), ("waits", f"S{TEXT}"), ("exit", f"S{TEXT}"),
])  # fmt: skip


@record
class Site:
    """A collective of the program: its name, the axis of its processes, and the user's line where the program knows it."""

    name: str
    size: int
    stride: int
    line: str = ""

    @property
    def number(self) -> int:
        """A number that is the same in all processes."""
        return crc32(repr((self.name, self.size, self.stride, self.line)).encode())

    def describe(self, line: str) -> str:
        """Returns the collective and its line, or `line` where that is not known."""
        found = self.line or line
        return f"{self.name} of {found}" if found else self.name

    def joins(self, rank: int, other: int) -> bool:
        """Whether two processes take part in it together."""
        return self._group(rank) == self._group(other)

    def _group(self, rank: int) -> int:
        return rank - rank // self.stride % self.size * self.stride


@dataclass(frozen=True, eq=False)
class Board:
    """The cells of this machine's processes; number `own` is this process's."""

    cells: Any
    own: int
    sites: dict[int, Site] = field(default_factory=dict)

    @staticmethod
    def of(neighbours: Any) -> Board:
        """Makes the board of a communicator's processes, which must all call this.

        Args:
            neighbours: mpi4py's communicator of processes that share memory.
        """
        nbytes = CELL.itemsize * neighbours.size
        path = None
        if neighbours.rank == 0:
            descriptor, path = tempfile.mkstemp(prefix="nnc-board-")
            os.ftruncate(descriptor, nbytes)
        path = neighbours.bcast(path)
        if neighbours.rank:
            descriptor = os.open(path, os.O_RDWR)
        memory = mmap.mmap(descriptor, nbytes)
        os.close(descriptor)
        board = Board(np.frombuffer(memory, CELL), neighbours.rank)
        board.mine["pid"] = os.getpid()
        neighbours.Barrier()
        if path is not None and neighbours.rank == 0:
            os.unlink(path)  # all have it open, so nothing is left over
        return board

    @property
    def mine(self) -> Any:
        """The cell of this process."""
        return self.cells[self.own]

    @property
    def address(self) -> int:
        """The address of the three numbers `entered`, `left` and `site` of this process, for compiled programs."""
        return int(self.cells.ctypes.data) + self.own * CELL.itemsize

    def add(self, site: Site) -> int:
        """Returns the number of a collective, which the board knows from then on."""
        number = site.number
        self.sites.setdefault(number, site)
        return number

    @contextmanager
    def waiting(self, site: Site) -> Iterator[None]:
        """A block that waits for other processes."""
        cell, number = self.mine, self.add(site)
        cell["site"] = number
        cell["entered"] += 1
        try:
            yield
        finally:
            cell["left"] += 1
