"""Memory of eager execution: bytes of arrays that live at once, counted as they are made and collected.

nnc and PyTorch are both run on arrays without values: an array of any shape takes a few bytes here, and is counted with the bytes
that it would take. So the code under test runs as ever, with the life times that Python gives to its arrays, at sizes that no
machine at hand could hold. Memory that kernels take while they run is not counted, on either side.
"""

from __future__ import annotations

import tracemalloc
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

import nnc
from nnc.array.array import Array, as_value
from nnc.base.context import with_mode
from nnc.graph import Command, Graph, set_eager
from nnc.graph.registry import alias
from nnc.trace.core.eager import EagerInterpreter, find_plan

NDArray = np.ndarray[Any, Any]
REAL = 4096  # bytes; results up to here that are made of such ones are computed, so that seeds, shapes and indices are right


class Meter:
    """Bytes that live now, and at most."""

    def __init__(self) -> None:
        self.live = self.peak = 0

    def count(self, owner: Any, nbytes: int, after: Callable[[], Any] = int) -> None:
        """Counts bytes for as long as `owner` lives; then calls `after`."""
        self.live += nbytes
        self.peak = max(self.peak, self.live)
        weakref.finalize(owner, self._free, nbytes, after)

    def _free(self, nbytes: int, after: Callable[[], Any]) -> None:
        self.live -= nbytes
        after()

    def restart(self) -> None:
        """Measures the peak from now on."""
        self.peak = self.live

    def hollow(self, spec: Any) -> NDArray:
        """An array of zeros that share one element, counted as if it had memory."""
        owner: NDArray = np.zeros((), spec.dtype)
        self.count(owner, spec.size * spec.dtype.itemsize)
        return np.broadcast_to(owner, spec.shape)


class HollowInterpreter(EagerInterpreter):
    """Runs views and small commands as ever, and makes hollow arrays of the right specs for all others."""

    def __init__(self, meter: Meter) -> None:
        self.meter = meter

    def process(
        self, command: Command, args: Sequence[Any], params: dict[str, Any], graphs: tuple[Graph, ...]
    ) -> Sequence[Any]:
        """Runs a command at once."""
        values = [as_value(arg) for arg in args]
        plan = find_plan(command, tuple(value.spec for value in values), params, graphs)
        small = all(x.nbytes <= REAL for x in (*plan.specs, *plan.outputs))
        if not small and not (command in alias and not graphs):
            return [Array(self.meter.hollow(spec)) for spec in plan.outputs]
        results = plan.run([value.data for value in values])
        if small:
            for result in results:
                self.meter.count(result, result.nbytes)
        return [Array(result) for result in results]


@contextmanager
def hollow_arrays() -> Iterator[Meter]:
    """Within the block, eager commands make hollow arrays; yields the meter that counts them."""
    meter = Meter()
    set_eager(HollowInterpreter(meter))
    try:
        with with_mode("hollow"):  # in a mode, recipes (nnc.graph.recall) do not run commands past the interpreter
            yield meter
    finally:
        set_eager(EagerInterpreter())


def fill(tree: Any, make: Callable[[Any], NDArray]) -> Any:
    """The tree with an array for each ShapeDtypeStruct."""
    return nnc.tree.map(lambda leaf: Array(make(leaf)) if isinstance(leaf, nnc.ShapeDtypeStruct) else leaf, tree)


def hollow_peak(step: Callable[..., Any], *arguments: Any) -> int:
    """The most bytes that live during a call of `step`, arguments included, which are known by their shapes alone.

    As in a loop of training, nobody else holds model and state, but the step holds its own arguments.
    """
    with hollow_arrays() as meter:
        filled = [fill(argument, meter.hollow) for argument in arguments]
        step(*filled)
        return meter.peak


def measured_peak(run: Callable[[], Any]) -> int:
    """The most bytes that a call takes from NumPy and Python beside those that were taken before."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        run()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
