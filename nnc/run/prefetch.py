"""The protocol of blocks that prefetch the memory of a first call while its program is compiled."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Protocol

from nnc.array.array import Array
from nnc.lower.kernels.native import Compiler
from nnc.run.native_frame import CallMemory
from nnc.run.native_program import ProgramAbi
from nnc.run.store.cache import CacheEntry


class Prefetch(Protocol):
    """Prefetches the memory that a program's first call will write to, while the program is made within this block."""

    room: CallMemory | None  # the memory of the first call, once the program is known

    def __enter__(self) -> Prefetch: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def recall(self, entry: CacheEntry) -> None:
        """Names the entry of a cache that tells how large an arena the last call like this one needed, and is to tell the next."""
        ...

    def prefetch_donated(self, arrays: Sequence[Array]) -> None:
        """Prefetches donated arrays, which the call may overwrite."""
        ...

    def expect(self, outside: ProgramAbi) -> None:
        """Makes the memory of the first call."""
        ...


class ProgramCompiler(Compiler, Protocol):
    """A compiler that makes programs, too."""

    def prefetch(self) -> Prefetch:
        """Returns a new block."""
        ...
