"""The lowered program: buffers with offsets, steps with kernels, and how to run them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from nnc.errors import ArgumentError, DTypeError, ShapeError, user_error
from nnc.graph import Kernel, TensorSpec, spec_of
from nnc.lower.frame import Frame
from nnc.lower.liveness import walk
from nnc.lower.report import Cost, MemoryPlan, make_cost, make_memory_plan, program_text
from nnc.lower.schedule.types import Around, Schedule
from nnc.lower.stages import Bound, Kind, NDArray, Planned, Step


@dataclass(frozen=True, eq=False)
class Program:
    """Steps on planned memory, ready to run. Any number of threads may call it at once.

    Each call borrows an arena, which later calls use again. Inputs are read where they are, unless they are not
    contiguous; outputs are fresh arrays (or the memory of donated inputs). `around` is done around each step (see there).
    """

    planned: Planned
    schedule: Schedule
    kernels: Mapping[int, Kernel]
    fresh: tuple[tuple[int, TensorSpec], ...]
    around: Around | None = None
    _idle: list[Frame] = field(default_factory=list, repr=False)

    @classmethod
    def of(cls, planned: Planned, schedule: Schedule, choose: Callable[[Step], Kernel]) -> Program:
        """The program of a plan and a schedule; `choose` gives the kernel of a step."""
        buffers = planned.bound.buffers
        kernels = {id(step): choose(step) for step in walk(planned.bound.steps) if step.region is None}
        fresh = tuple((i, buffer.symbol.spec) for i, buffer in enumerate(buffers) if buffer.kind is Kind.OUTPUT)
        return cls(planned, schedule, kernels, fresh)

    def watched(self, around: Around) -> Program:
        """The same program, with something done around each step of a run: for measuring, and for tests."""
        return replace(self, around=around, _idle=[])

    @property
    def bound(self) -> Bound:
        """Steps on buffers."""
        return self.planned.bound

    @property
    def offsets(self) -> tuple[int | None, ...]:
        """Where each buffer begins in the arena."""
        return self.planned.offsets

    @property
    def arena_bytes(self) -> int:
        """Bytes of the arena."""
        return self.planned.arena_bytes

    def kernel_of(self, step: Step) -> Kernel:
        """What runs a step."""
        return self.kernels[id(step)]

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
                return frame.run(inputs)
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
    def memory_plan(self) -> MemoryPlan:
        """Where each tensor lies, and what that costs; it is known before anything runs."""
        return make_memory_plan(self.planned)

    @property
    def cost(self) -> Cost:
        """Floating-point operations and bytes of each step."""
        return make_cost(self.bound)

    def as_text(self) -> str:
        """The readable form: buffers with their places, steps with their kernels."""
        return program_text(self.planned, lambda step: self.kernel_of(step).backend)

    def __str__(self) -> str:
        return self.as_text()
