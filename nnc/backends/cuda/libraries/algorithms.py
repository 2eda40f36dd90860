"""The choice among the algorithms of cuBLASLt: measured once for each product of some size, and kept on disk.

The library's own order comes from a model of the device. Of a product of 4096² matrices in tf32 its third algorithm was a fifth
faster than its first (measured on an H100). Algorithms add in other orders, so a choice is kept for later processes, which give the
same bits then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from nnc.backends.cuda.libraries.cublaslt import CublasLt, LtProblem, LtProduct
from nnc.base.options import Options
from nnc.run.store.cache import Cache, CacheEntry

_KIND = "cublaslt"  # of entries on disk
_LARGE = 1 << 24  # operations of a product that takes longer than its launch
_GAIN = 0.97  # of the first algorithm's time: another one must take less, as times vary by so much


class Algorithms:
    """The products that one device computes by cuBLASLt."""

    def __init__(self, device: Any, library: CublasLt) -> None:
        self._device, self.library = device, library
        folder = Options.from_environment().cache_folder
        self._cache = None if folder is None else Cache(folder)
        self._known: dict[tuple[LtProblem, tuple[int, ...]], LtProduct | None] = {}

    def find(self, problem: LtProblem, alignments: tuple[int, ...]) -> LtProduct | None:
        """Returns the product with the algorithm that was chosen before.

        Args:
            alignments: the alignments of the addresses of a, b and d, in bytes.
        """
        return self._known.get((problem, alignments))

    def choose(
        self, problem: LtProblem, alignments: tuple[int, ...], run: Callable[[LtProduct, int], None], stream: int
    ) -> LtProduct | None:
        """Returns the product with the fastest algorithm; None where the library has none.

        Args:
            alignments: the alignments of the addresses of a, b and d, in bytes.
            run: queues a product in the stream of a handle; it may be called any number of times.
            stream: the handle of the stream in which to measure.
        """
        key = problem, alignments
        if key not in self._known:
            plans = self.library.plans(problem, alignments)
            if len(plans) > 1 and problem.operations >= _LARGE:
                self._known[key] = plans[self._place(key, plans, run, stream)]
            else:
                self._known[key] = plans[0] if plans else None
        return self._known[key]

    def _place(self, key: Any, plans: Sequence[LtProduct], run: Callable[[LtProduct, int], None], stream: int) -> int:
        """Returns the place of the fastest plan, as it was measured before, also by another process."""
        entry = self._entry(key)
        found = None if entry is None else entry.read()
        if isinstance(found, int) and 0 <= found < len(plans):
            return found
        times = [self._device.time(partial(run, plan), stream) for plan in plans]
        best = min(range(len(plans)), key=times.__getitem__)
        place = best if times[best] < _GAIN * times[0] else 0
        if entry is not None:
            entry.write(place)
        return place

    def _entry(self, key: Any) -> CacheEntry | None:
        if self._cache is None:
            return None
        return CacheEntry(
            self._cache, _KIND, {"device": self._device.model, "cuBLASLt": self.library.version, "product": repr(key)}
        )
