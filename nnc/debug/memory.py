"""Memory that loops keep for their reverse pass, in bytes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from nnc.base.context import set_context


class TapeMemory:
    """Bytes that loops keep for their reverse pass: `current` now, `peak` at most.

    Example:
        >>> memory = TapeMemory()
        >>> memory.add(100)
        >>> memory.add(-40)
        >>> memory.current, memory.peak
        (60, 100)
    """

    def __init__(self) -> None:
        self.current = self.peak = 0

    def add(self, nbytes: int) -> None:
        """Counts bytes taken, or given back where negative.

        Args:
            nbytes: bytes taken; negative ones are given back.
        """
        self.current += nbytes
        self.peak = max(self.peak, self.current)

    def __repr__(self) -> str:
        return f"TapeMemory(current={self.current}, peak={self.peak})"


@contextmanager
def tape_memory() -> Iterator[TapeMemory]:
    """Measures the memory that loops keep for their reverse pass, tapes and states, within the block.

    Example:
        >>> loop = lambda x: nnc.while_loop(lambda c: c[0] < 100, lambda c: (c[0] + 1, nnp.sin(c[1])), (0, x))[1]
        >>> with nnc.debug.tape_memory() as memory:
        ...     g = nnc.grad(loop)(1.0)
        >>> memory.peak  # 100 numbers of 8 bytes, in memory that doubles when it is full
        1024
    """
    meter = TapeMemory()
    with set_context(meter=meter):
        yield meter
