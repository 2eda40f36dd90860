"""The frozen types of a lowered program, one for each stage.

graph (with views and in-place choices as attributes) → `Bound` (steps on numbered buffers) → `Planned` (with live
ranges and offsets) → `Program` (with kernels; nnc.lower.program).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np

from nnc.graph import Command, Graph, Symbol, TensorSpec
from nnc.source import SourceLine

NDArray = np.ndarray[Any, Any]
Strides = tuple[int, ...]


def row_major(spec: TensorSpec) -> Strides:
    """The strides, in bytes, of a contiguous tensor of `spec`."""
    strides, step = [0] * spec.ndim, spec.dtype.itemsize
    for axis in reversed(range(spec.ndim)):
        strides[axis] = step
        step *= max(spec.shape[axis], 1)
    return tuple(strides)


def is_contiguous(spec: TensorSpec, strides: Strides) -> bool:
    """Whether a tensor with these strides lies in memory without gaps, in row-major order."""
    rows = zip(spec.shape, strides, row_major(spec), strict=True)
    return spec.size == 0 or all(n == 1 or stride == dense for n, stride, dense in rows)


@dataclass(frozen=True, slots=True)
class SymbolView:
    """Where a symbol lies: within the memory of the symbol `base` (itself, if it views nothing), in bytes."""

    base: Symbol
    spec: TensorSpec
    offset: int
    strides: Strides

    @classmethod
    def whole(cls, symbol: Symbol) -> SymbolView:
        """The view of a symbol that has memory of its own."""
        return cls(symbol, symbol.spec, 0, row_major(symbol.spec))

    @property
    def is_whole(self) -> bool:
        """Whether it is all of the base's memory, in row-major order."""
        same_bytes = self.offset == 0 and self.spec.nbytes == self.base.spec.nbytes
        return same_bytes and is_contiguous(self.spec, self.strides)


class Kind(Enum):
    """What a buffer's memory is: part of the arena, an argument, a constant, fresh memory that is returned, or a tape of a loop,
    which grows while it runs."""

    ARENA = "arena"
    INPUT = "input"
    CONSTANT = "constant"
    OUTPUT = "output"
    TAPE = "tape"


@dataclass(frozen=True, slots=True)
class Buffer:
    """Memory of the program. `index` counts the buffers of its kind; `symbol` is its first tenant."""

    kind: Kind
    index: int
    symbol: Symbol
    source: SourceLine | None = None

    @property
    def nbytes(self) -> int:
        """Its bytes, without padding."""
        return self.symbol.spec.nbytes


@dataclass(frozen=True, slots=True)
class View:
    """A strided tensor within a buffer; offset and strides in bytes."""

    buffer: int
    spec: TensorSpec
    offset: int
    strides: Strides

    @property
    def extent(self) -> tuple[int, int]:
        """The first byte that it touches within the buffer, and the one after the last."""
        if self.spec.size == 0:
            return self.offset, self.offset
        reach = [(n - 1) * stride for n, stride in zip(self.spec.shape, self.strides, strict=True)]
        low, high = sum(r for r in reach if r < 0), sum(r for r in reach if r > 0)
        return self.offset + low, self.offset + high + self.spec.dtype.itemsize


@dataclass(frozen=True, slots=True)
class Step:
    """One command to run, on views of buffers."""

    command: Command
    inputs: tuple[View, ...]
    outputs: tuple[View, ...]
    params: Mapping[str, Any]
    graphs: tuple[Graph, ...]
    source: SourceLine | None

    @property
    def input_specs(self) -> tuple[TensorSpec, ...]:
        """Specs of the inputs."""
        return tuple(view.spec for view in self.inputs)


@dataclass(frozen=True, slots=True)
class Bound:
    """Steps in order, on numbered buffers. `donated` lists inputs that steps may overwrite."""

    name: str
    inputs: tuple[TensorSpec, ...]
    constants: tuple[NDArray, ...]
    buffers: tuple[Buffer, ...]
    steps: tuple[Step, ...]
    outputs: tuple[View, ...]
    donated: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Placement:
    """A buffer's live range (half open, in steps) and, within the arena, its offset in bytes (else None)."""

    first: int
    end: int
    offset: int | None


@dataclass(frozen=True, slots=True)
class Planned:
    """A bound program whose buffers have their places. `lower_bound` is the largest live set of the arena, in bytes."""

    bound: Bound
    placements: tuple[Placement, ...]
    arena_bytes: int
    lower_bound: int
