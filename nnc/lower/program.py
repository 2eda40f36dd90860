"""The lowered program: buffers with offsets, steps with kernels, and how to run them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from nnc.errors import ArgumentError, DTypeError, ShapeError, user_error
from nnc.graph import Kernel, TensorSpec, spec_of
from nnc.lower.frame import Frame
from nnc.lower.report import Cost, MemoryPlan, make_cost, make_memory_plan, program_text
from nnc.lower.stages import Bound, Kind, NDArray, Placement, Planned, View


@dataclass(frozen=True, eq=False)
class Program:
    """Steps on planned memory, ready to run. Any number of threads may call it at once.

    Each call borrows an arena, which later calls use again. Inputs are read where they are, unless they are not
    contiguous; outputs are fresh arrays (or the memory of donated inputs).
    """

    bound: Bound
    placements: tuple[Placement, ...]
    arena_bytes: int
    lower_bound: int
    kernels: tuple[Kernel, ...]
    returned: tuple[tuple[View, Kind, int], ...]
    fresh: tuple[TensorSpec, ...]
    _idle: list[Frame] = field(default_factory=list, repr=False)

    @classmethod
    def of(cls, planned: Planned, kernels: Sequence[Kernel]) -> Program:
        """The program of a plan, with one kernel for each step."""
        bound = planned.bound
        buffers = bound.buffers
        returned = tuple((view, buffers[view.buffer].kind, buffers[view.buffer].index) for view in bound.outputs)
        fresh = tuple(buffer.symbol.spec for buffer in buffers if buffer.kind is Kind.OUTPUT)
        return cls(bound, planned.placements, planned.arena_bytes, planned.lower_bound, tuple(kernels), returned, fresh)

    def run(self, inputs: Sequence[NDArray]) -> list[NDArray]:
        """The outputs for `inputs`, arrays of the specs that the program was lowered for.

        Raises:   ArgumentError: another number of inputs. ShapeError, DTypeError: an input has another spec.
        """
        inputs = self._check(inputs)
        try:
            frame = self._idle.pop()
        except IndexError:
            frame = Frame(self)
        try:
            with np.errstate(all="ignore"):
                return frame.run(self, inputs)
        finally:
            self._idle.append(frame)

    def _check(self, inputs: Sequence[NDArray]) -> list[NDArray]:
        specs = self.bound.inputs
        if len(inputs) != len(specs):
            raise user_error(
                ArgumentError, self.bound.name, f"the program takes {len(specs)} inputs, {len(inputs)} were given.",
                fix="pass one array for each input of the graph.",
            )  # fmt: skip
        checked = list(inputs)
        for i, (x, spec) in enumerate(zip(inputs, specs, strict=True)):
            if x.shape != spec.shape or x.dtype != spec.dtype:
                raise user_error(
                    ShapeError if x.shape != spec.shape else DTypeError, self.bound.name,
                    f"input {i} has another spec than the program was lowered for.",
                    operands={"expected": spec, "given": spec_of(x)},
                    fix="convert the array, or lower the graph for its spec.",
                )  # fmt: skip
            if not x.flags.c_contiguous or not x.flags.aligned:
                checked[i] = np.array(x, order="C", copy=True)
        for i in self.bound.donated:
            x = checked[i]
            if not x.flags.writeable or any(np.may_share_memory(x, y) for j, y in enumerate(checked) if j != i):
                checked[i] = x.copy()
        return checked

    @property
    def planned(self) -> Planned:
        """The stage before: the plan without kernels."""
        return Planned(self.bound, self.placements, self.arena_bytes, self.lower_bound)

    @property
    def memory_plan(self) -> MemoryPlan:
        """Where each tensor lies, and what that costs; it is known before anything runs."""
        return make_memory_plan(self.planned)

    @property
    def cost(self) -> Cost:
        """Floating-point operations and bytes of each step."""
        return make_cost(self.bound)

    def as_text(self) -> str:
        """The readable form: buffers with their places, steps with their kernels."""
        return program_text(self.planned, [kernel.backend for kernel in self.kernels])

    def __str__(self) -> str:
        return self.as_text()
