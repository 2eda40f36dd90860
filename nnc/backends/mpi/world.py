"""The processes that run a program together, and their communicators.

mpi4py is imported when it is first known that there may be several processes: `mpiexec` started this one, or the program has
imported mpi4py itself. Importing it initialises MPI.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any

from nnc.backends.cpu.threads.threads import first_number, threads
from nnc.backends.mpi.board import Board, Site
from nnc.backends.mpi.guard import install
from nnc.base.options import Options, started_by_mpi
from nnc.errors import BackendError, user_error

_WHERE = "nnc.distributed"


@dataclass(frozen=True, eq=False)
class World:
    """All processes, whose ranks count from 0; mpi4py's module; and the board of the machine, which a single process lacks."""

    mpi: Any
    rank: int
    size: int
    board: Board | None

    @staticmethod
    def of(mpi: Any) -> World:
        """Returns the processes of MPI's world; each takes its share of the processors of its machine."""
        everyone = mpi.COMM_WORLD
        if everyone.size == 1:
            return World(mpi, 0, 1, None)
        if mpi.Query_thread() < mpi.THREAD_SERIALIZED:  # programs of several streams send from a thread of their own
            fix = 'leave mpi4py.rc.thread_level as it is, or set it to "serialized".'
            raise user_error(BackendError, _WHERE, "MPI was initialised for one thread of each process.", fix=fix)
        neighbours = everyone.Split_type(mpi.COMM_TYPE_SHARED)
        if not Options.from_environment().kernel_threads:
            threads().set(max(1, first_number() // neighbours.size))
        board = Board.of(neighbours)
        neighbours.Free()
        install(mpi, board)
        return World(mpi, everyone.rank, everyone.size, board)

    def waiting(self, site: Site) -> AbstractContextManager[None]:
        """A block that waits for other processes, which watch over it."""
        return nullcontext() if self.board is None else self.board.waiting(site)

    def place(self, size: int, stride: int) -> int:
        """Returns the number of this process along an axis of a mesh."""
        return self.rank // stride % size


def world() -> World | None:
    """Returns the processes; None where this process was started by itself.

    Raises:
        BackendError: `mpiexec` started this process, and mpi4py cannot be imported.
    """
    if "mpi4py.MPI" not in sys.modules and not started_by_mpi():
        return None
    return _world()


@cache
def _world() -> World:
    try:
        from mpi4py import MPI  # noqa: PLC0415
    except (ImportError, RuntimeError) as error:  # mpi4py raises RuntimeError where it finds no library of MPI
        problem = f"mpiexec started this process, but mpi4py cannot be imported: {error}."
        fix = "install it with pip install 'nnc[mpi]', which brings MPICH, and start the program with that mpiexec."
        raise user_error(BackendError, _WHERE, problem, fix=fix) from error
    return World.of(MPI)


def known_world() -> World:
    """Returns the processes, of a program that has more than one."""
    found = world()
    if found is None:
        problem = "a collective of several processes runs in a process that was started by itself."
        raise user_error(BackendError, _WHERE, problem, fix="start the program with mpiexec.")
    return found


@cache
def communicator(size: int, stride: int) -> Any:
    """Returns the communicator of this process along an axis of a mesh; its ranks are the numbers along the axis.

    All processes must call this together; they do, since all run the same program.

    Args:
        size: the number of processes along the axis.
        stride: the distance between the ranks of neighbours.
    """
    found = known_world()
    place = found.place(size, stride)
    with found.waiting(Site("the first collective over an axis", found.size, 1)):
        return found.mpi.COMM_WORLD.Split(found.rank - place * stride, place)
