"""Collectives between processes, by MPI through mpi4py."""
