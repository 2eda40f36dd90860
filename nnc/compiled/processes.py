"""The processes that run a program, for public rooms."""

from nnc.backends.mpi.board import Site
from nnc.backends.mpi.world import World, known_world, world

__all__ = ["Site", "World", "known_world", "world"]
