"""The processes that run the program together."""

from __future__ import annotations


def rank() -> int:
    """The number of this process among the processes that run the program together.

    Returns:
        an int from 0 to `size()` - 1; 0 where the program was started by itself.

    Example:
        >>> nnc.distributed.rank()
        0
    """
    return 0


def size() -> int:
    """The number of processes that run the program together.

    Returns:
        an int; 1 where the program was started by itself.

    Example:
        >>> nnc.distributed.size()
        1
    """
    return 1
