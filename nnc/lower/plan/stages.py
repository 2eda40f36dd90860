"""The frozen types of a lowered program, one for each stage.

graph → `Bound` (steps on numbered buffers with live ranges) → `Planned` (with offsets) → `Program` (with kernels;
nnc.run.program).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import Enum
from functools import lru_cache
from typing import Any

import numpy as np

from nnc.base.records import record
from nnc.base.source import SourceLine
from nnc.base.target import Target
from nnc.device import machine_of_device
from nnc.graph import Command, Graph, Node, Symbol, TensorSpec

NDArray = np.ndarray[Any, Any]
Strides = tuple[int, ...]
Intervals = tuple[tuple[int, int], ...]


@lru_cache(maxsize=1 << 12)
def row_major(spec: TensorSpec) -> Strides:
    """Returns the strides, in bytes, of a contiguous tensor of `spec`."""
    strides, step = [0] * spec.ndim, spec.dtype.itemsize
    for axis in reversed(range(spec.ndim)):
        strides[axis] = step
        step *= max(spec.shape[axis], 1)
    return tuple(strides)


def is_contiguous(spec: TensorSpec, strides: Strides) -> bool:
    """Whether a tensor with these strides lies in memory without gaps, in row-major order."""
    expected = row_major(spec)
    if strides == expected or 0 in spec.shape:
        return True
    rows = zip(spec.shape, strides, expected, strict=True)
    return all(n == 1 or stride == dense for n, stride, dense in rows)


class _UnfinishedSymbolView:
    """A view that is being made: its fields can still be set."""

    __slots__ = ("base", "offset", "spec", "strides")

    base: Symbol
    spec: TensorSpec
    offset: int
    strides: Strides


@record
class SymbolView(_UnfinishedSymbolView):
    """The place of a symbol: within the memory of the symbol `base` (itself, if it views nothing), in bytes."""

    base: Symbol
    spec: TensorSpec
    offset: int
    strides: Strides

    @staticmethod
    def whole(symbol: Symbol) -> SymbolView:
        """Returns the view of a symbol that has memory of its own; passes make one of each symbol, so that it matters how long
        it takes.
        """
        view: Any = _UnfinishedSymbolView()
        view.base, view.spec, view.offset, view.strides = symbol, symbol.spec, 0, row_major(symbol.spec)
        view.__class__ = SymbolView  # faster than to set the fields of a class that cannot be assigned to
        made: SymbolView = view
        return made

    @property
    def is_whole(self) -> bool:
        """Whether the view is all of the base's memory, in row-major order."""
        if self.offset or (self.spec is not self.base.spec and self.spec.nbytes != self.base.spec.nbytes):
            return False
        return is_contiguous(self.spec, self.strides)


class Kind(Enum):
    """The kind of a buffer's memory: part of the arena, an argument, a constant, fresh memory that is returned, or a tape of a
    loop, which grows while it runs.
    """

    ARENA = "arena"
    INPUT = "input"
    CONSTANT = "constant"
    OUTPUT = "output"
    TAPE = "tape"


@record
class Buffer:
    """Memory of the program. `index` counts the buffers of its kind; `symbol` is the first symbol that lies in it."""

    kind: Kind
    index: int
    symbol: Symbol
    source: SourceLine | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of the buffer, without padding."""
        return self.symbol.spec.nbytes


class _UnfinishedView:
    """A view that is being made: its fields can still be set."""

    __slots__ = ("advances", "buffer", "offset", "spec", "strides")

    buffer: int
    spec: TensorSpec
    offset: int
    strides: Strides
    advances: tuple[tuple[int, int], ...]


@record
class View(_UnfinishedView):
    """A strided tensor within a buffer; offset and strides in bytes. `advances` lists (loop, bytes): the tensor lies that many
    bytes further for each iteration that the loop of that number counts.
    """

    buffer: int
    spec: TensorSpec
    offset: int
    strides: Strides
    advances: tuple[tuple[int, int], ...] = ()

    @staticmethod
    def whole(buffer: int, spec: TensorSpec) -> View:
        """Returns the view of all of a buffer that holds a tensor of `spec`."""
        return new_view(buffer, spec, 0, row_major(spec), ())

    def of(self, buffer: int) -> View:
        """Returns the same view of another buffer."""
        return self if buffer == self.buffer else new_view(buffer, self.spec, self.offset, self.strides, self.advances)

    def show(self, spec: TensorSpec, offset: int, strides: Strides) -> View:
        """Returns a view of another tensor within the same buffer."""
        return new_view(self.buffer, spec, offset, strides, self.advances)

    @property
    def is_dense(self) -> bool:
        """Whether the elements lie in row-major order without gaps."""
        return is_contiguous(self.spec, self.strides)

    def covers(self, nbytes: int) -> bool:
        """Whether the view is all of a buffer of so many bytes, in row-major order."""
        return self.offset == 0 and not self.advances and self.spec.nbytes == nbytes and self.is_dense

    @property
    def extent(self) -> tuple[int, int]:
        """The first byte of the view within the buffer, and the one after its last, in iteration 0."""
        if self.spec.size == 0:
            return self.offset, self.offset
        reach = [(n - 1) * stride for n, stride in zip(self.spec.shape, self.strides, strict=True)]
        low, high = sum(r for r in reach if r < 0), sum(r for r in reach if r > 0)
        return self.offset + low, self.offset + high + self.spec.dtype.itemsize


def new_view(
    buffer: int, spec: TensorSpec, offset: int, strides: Strides, advances: tuple[tuple[int, int], ...]
) -> View:
    """Returns a view, made in the shortest time: binding makes thousands."""
    view: Any = _UnfinishedView()
    view.buffer, view.spec, view.offset, view.strides, view.advances = buffer, spec, offset, strides, advances
    view.__class__ = View
    made: View = view
    return made


@record
class Step:
    """One command to run, on views of buffers.

    `region` holds the steps of a loop or of branches, in the same memory; a command whose sub-graphs run as programs of their own
    has them in `graphs`. `like` is the same step at another size of the program: kernels take sizes that differ as numbers.
    """

    command: Command
    inputs: tuple[View, ...]
    outputs: tuple[View, ...]
    params: Mapping[str, Any]
    graphs: tuple[Graph, ...] = ()
    source: SourceLine | None = None
    region: Loop | Branches | None = None
    like: Step | None = None

    @property
    def input_specs(self) -> tuple[TensorSpec, ...]:
        """Specs of the inputs."""
        return tuple(view.spec for view in self.inputs)


Steps = tuple[Step, ...]


@record
class Iteration:
    """One iteration of a loop: the steps up to the test, the value to test (a bool; None where the length decides), the steps for a
    loop that ends there, the steps of an iteration that is run, and the steps that only run where another iteration follows.
    """

    head: Steps
    test: View | None
    leave: Steps
    tail: Steps
    turn: Steps = ()

    @property
    def steps(self) -> Steps:
        """All steps, in the order of time."""
        return (*self.head, *self.leave, *self.tail, *self.turn)


@record
class Loop:
    """A loop without copies between iterations: iteration c runs `copies[c]`, and after the last copy those from `first` on, in
    turn.

    Copies run the same commands at other addresses (multi-view). `counter` is where the number of the iteration is written, None if
    nothing reads it; `length` is the number of iterations, None where a test decides or where `count` (an int64) tells it; `limit`
    is the largest number allowed. `begins` are buffers that iterations fill part by part.
    """

    number: int
    copies: tuple[Iteration, ...]
    first: int
    counter: View | None = None
    length: int | None = None
    reverse: bool = False
    limit: int | None = None
    begins: tuple[int, ...] = ()
    count: View | None = None

    @property
    def last(self) -> int | None:
        """The copy that runs last, where the length is known."""
        if self.length is None:
            return None
        position = self.length - 1
        ring = len(self.copies) - self.first
        return position if position < len(self.copies) else self.first + (position - self.first) % ring


@record
class Branches:
    """The steps of each branch; the branch whose number is in `index` (int64) runs."""

    index: View
    branches: tuple[Steps, ...]


@record
class Bound:
    """Steps in order, on numbered buffers, each live in `intervals` (half open, in steps; steps of loops and branches count).

    `donated` lists inputs that steps overwrite; `joins` says whether parts of joined tensors lie where they belong; `kept` says of
    the last inputs which other one each is made of, and in which layout it is packed (nnc.run.packed_weights).
    """

    name: str
    inputs: tuple[TensorSpec, ...]
    constants: tuple[NDArray, ...]
    buffers: tuple[Buffer, ...]
    steps: Steps
    outputs: tuple[View, ...]
    intervals: tuple[Intervals, ...]
    donated: tuple[int, ...] = ()
    joins: bool = False
    kept: tuple[tuple[int, str], ...] = ()

    def is_kept(self, buffer: Buffer) -> bool:
        """Whether a buffer is one of these inputs."""
        return buffer.kind is Kind.INPUT and buffer.index >= len(self.inputs) - len(self.kept)


@record
class Planned:
    """A bound program and the offset of each buffer in the arena (None outside it).

    `lower_bound` is the largest live set of the arena, in bytes. `recomputed` are nodes that run once more to fit into a budget.
    `flush_denormals`, `precision`, `machine`: see Options.
    """

    bound: Bound
    offsets: tuple[int | None, ...]
    arena_bytes: int
    lower_bound: int
    recomputed: tuple[Node, ...] = ()
    flush_denormals: bool | None = None
    precision: str = "float32"
    machine: Target = field(default_factory=machine_of_device)

    @property
    def peak(self) -> int:
        """Bytes that a call allocates: the arena and the outputs."""
        return self.arena_bytes + sum(buffer.nbytes for buffer in self.bound.buffers if buffer.kind is Kind.OUTPUT)
