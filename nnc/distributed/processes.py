"""The processes that run the program together."""

from __future__ import annotations

from nnc.compiled.processes import world


def rank() -> int:
    """Returns the number of this process among the processes that run the program together.

    Returns:
        an int from 0 to `size()` - 1; 0 where the program was started by itself.

    Raises:
        BackendError: `mpiexec` started the process, and mpi4py is not installed.

    Example:
        >>> nnc.distributed.rank()
        0
    """
    found = world()
    return 0 if found is None else found.rank


def size() -> int:
    """Returns the number of processes that run the program together.

    Returns:
        an int; 1 where the program was started by itself.

    Raises:
        BackendError: `mpiexec` started the process, and mpi4py is not installed.

    Example:
        >>> nnc.distributed.size()
        1
    """
    found = world()
    return 1 if found is None else found.size
