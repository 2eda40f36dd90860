"""Operands of printed nests on a GPU: how many lanes a thread takes at once, how they are aligned, and which share memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from nnc.base.target import GpuTarget, Grids
from nnc.graph import Graph, Symbol
from nnc.lower.kernels.domain import is_gather
from nnc.lower.kernels.kernel_ir import Nest, make_nest
from nnc.lower.plan.stages import View

_SHORT = 1 << 31  # bytes and iterations that 32 bits count


@dataclass(frozen=True)
class Operands:
    """A loop nest, and the places of its operands.

    Attributes:
        grids: the shapes of launches.
        views: the views of its inputs, then of its outputs.
        has_workspace: whether a workspace stands behind the outputs.
        shifts: for each view, the bytes from the pointer that a kernel is given to the first element; empty where all are 0.
    """

    nest: Nest
    grids: Grids
    views: tuple[View, ...]
    has_workspace: bool = False
    shifts: tuple[int, ...] = ()

    @classmethod
    def of(
        cls,
        graph: Graph,
        inputs: Sequence[View],
        outputs: Sequence[View],
        machine: GpuTarget,
        shifts: Sequence[int] = (),
    ) -> Operands:
        """Makes the nest of a fused graph in the form in which a GPU traverses it.

        Args:
            outputs: the views of the graph's outputs, then that of the workspace, if there is one.
            shifts: see `Operands`.
        """
        results = outputs[: len(graph.outputs)]
        nest = make_nest(graph, inputs, results, machine, neighbours=1)
        return cls(nest, machine.grids, (*inputs, *results), len(outputs) > len(results), tuple(shifts))

    @property
    def graph(self) -> Graph:
        """The fused graph."""
        return self.nest.graph

    @cached_property
    def gathered(self) -> dict[Symbol, tuple[int, ...]]:
        """Inputs that are read at computed places, and along which axes."""
        return {node.inputs[0]: tuple(node.params["axes"]) for node in self.graph.nodes if is_gather(node)}

    @cached_property
    def may_fail(self) -> bool:
        """Whether indices are refused that are out of range."""
        return any(is_gather(node) and node.params["mode"] == "error" for node in self.graph.nodes)

    @cached_property
    def overwritten(self) -> frozenset[int]:
        """The inputs that share memory with an output."""
        count = len(self.graph.inputs)
        return frozenset([i for i in range(count) if any(self._overlap(i, j) for j in range(count, len(self.views)))])

    def _overlap(self, i: int, j: int) -> bool:
        """Whether two operands share memory; for certain they do not, if their buffers differ."""
        x, y = self.views[i], self.views[j]
        if x.buffer != y.buffer or not x.spec.size or not y.spec.size:
            return False
        (first, end), (begin, stop) = x.extent, y.extent
        return bool(x.advances or y.advances or (first < stop and begin < end))

    @cached_property
    def overwrites_rows(self) -> bool:
        """Whether an output with one element a row may lie where an input of all threads of the row does."""
        nest = self.nest
        count = len(self.graph.inputs)
        rows = [count + i for i, symbol in enumerate(self.graph.outputs) if not nest.is_full(symbol)]
        return any(self._overlap(i, j) for i in range(count) for j in rows)

    def step(self, operand: int) -> int:
        """Returns the bytes by which an operand moves with the vector loop."""
        return self.nest.strides[operand][self.nest.vector] if self.nest.vector is not None else 0

    def is_dense(self, operand: int) -> bool:
        """Whether neighbouring iterations of the vector loop are neighbours in memory."""
        return bool(self.step(operand) == self.nest.operands[operand].dtype.itemsize)

    def alignment(self, operand: int, lanes: int = 1) -> int:
        """Returns the greatest number of bytes that divides every address at which a thread begins to read `lanes` elements."""
        nest, view, symbol = self.nest, self.views[operand], self.nest.operands[operand]
        moves: list[int] = [view.offset, *(nbytes for _, nbytes in view.advances)]
        moves += [step for loop, step in enumerate(nest.strides[operand]) if loop != nest.vector]
        moves.append(self.step(operand) * max(lanes, 1))
        moves += [view.strides[axis] for axis in self.gathered.get(symbol, ())]
        return math.gcd(self.grids.aligned_bytes, *moves)

    def lanes(self, most_bytes: int | None = None) -> int:
        """Chooses the elements that a thread takes at once: 16 bytes of the widest operand, where all operands lie for it."""
        nest = self.nest
        if nest.vector is None:
            return 1
        dense = [i for i in range(len(self.views)) if self.is_dense(i)]
        if not dense or any(self._is_scattered(i) for i in range(len(self.views))):
            return 1
        lanes: int = max(
            (most_bytes or self.grids.vector_bytes) // max(nest.operands[i].dtype.itemsize for i in dense), 1
        )
        while lanes > 1 and not self._fits(lanes, dense):
            lanes //= 2
        return lanes

    def _is_scattered(self, operand: int) -> bool:
        """Whether much is read or written at strides: a thread then takes one element, so that neighbours are those of a warp."""
        nest = self.nest
        if self.step(operand) == 0 or self.is_dense(operand):
            return False
        elements = math.prod(n for n, step in zip(nest.sizes, nest.strides[operand], strict=True) if step)
        return elements * self.grids.scattered_share >= nest.size

    def _fits(self, lanes: int, dense: Sequence[int]) -> bool:
        assert self.nest.vector is not None
        sizes = [lanes * self.nest.operands[i].dtype.itemsize for i in dense]
        whole = self.nest.sizes[self.nest.vector] % lanes == 0
        return whole and all(self.alignment(i, lanes) % n == 0 for i, n in zip(dense, sizes, strict=True))

    @staticmethod
    def is_short(count: int) -> bool:
        """Whether 32 bits count so many iterations."""
        return count < _SHORT
