"""Kernels of a program on a device that interprets PTX: printed kernels, and for the other steps the reference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from nnc.base.context import timed
from nnc.device.memory import DeviceMemory
from nnc.errors import InternalError
from nnc.lower.kernels.launch import Assembler, DeviceKernel, Launch
from nnc.lower.plan.stages import NDArray, Step
from nnc.run.executor import explain
from nnc.run.launches import Launches
from nnc.run.program import Program
from nnc.run.python_steps import run_region
from nnc.testing.devices.interpreted import PtxDevice, PtxKernel, Role
from nnc.testing.devices.sim import Operand
from nnc.testing.devices.simulated_program import SimModule, operands_of

_STATUS = Operand((), np.dtype(np.int32), (), 0, 4, True)


class InterpretedModule(SimModule):
    """The kernels of a program on a device that interprets PTX.

    Args:
        effects: the memory that stands for effects and tapes.
    """

    def __init__(self, program: Program, device: PtxDevice, effects: DeviceMemory) -> None:
        super().__init__(program, device, effects)
        self._interpreter = device

    @cached_property
    def _entries(self) -> Any:
        """The functions of the program's kernels, by name."""
        code, printed = self._program.code, self._program.printed
        compiler = code.compiler if code is not None else None
        if not isinstance(compiler, Assembler):
            raise InternalError(f"{self._program.bound.name}: its compiler assembles no kernels of devices")
        kernels = {kernel.name: kernel for kernel in printed.values()}
        with timed("compiling kernels"):
            return self._interpreter.load(compiler.assemble([*kernels.values()], self._interpreter.target))

    def handles(self, step: Step, launches: Launches) -> list[int]:
        """Returns the handles of the launches of a step."""
        kernel = self._program.printed.get(id(step))
        if kernel is None:
            return super().handles(step, launches)
        add, name = self._interpreter.driver.add_kernel, self.name_of(step, launches)
        return [add(self._launched(step, kernel, number, name, launches)) for number in range(len(kernel.launches))]

    def _launched(self, step: Step, kernel: DeviceKernel, number: int, name: str, launches: Launches) -> PtxKernel:
        """Returns a launch of a step."""
        launch, operands = kernel.launches[number], operands_of(step, launches)
        if kernel.may_fail:
            operands.append(_STATUS)
        known = {*range(len(step.inputs)), *launch.updates}
        for earlier in kernel.launches[:number]:
            known.update(earlier.operands)
        if kernel.may_fail:
            known.add(len(operands) - 1)
        is_last = number == len(kernel.launches) - 1
        results = range(len(step.inputs), len(step.inputs) + _results(step) if step.region is None else 0)
        roles = [
            Role(_name(step, i, launches), operands[i], i in known, is_last and i in results and i not in known)
            for i in launch.operands
        ]

        entry = self._entries[kernel.function(launch)]
        if step.region is not None:
            return self._region(step, PtxKernel(entry, name, tuple(roles), lambda arrays: None, step.source), kernel)

        def finish(arrays: Sequence[NDArray]) -> None:
            self._check_status(step, kernel, launch, arrays)

        return PtxKernel(entry, name, tuple(roles), finish, step.source)

    def _region(self, step: Step, launched: PtxKernel, kernel: DeviceKernel) -> PtxKernel:
        """Returns the kernel of a loop or branch. Where a step in it refuses its operands, references run all from the start."""
        before: list[NDArray] = []

        def begin(arrays: Sequence[NDArray]) -> None:
            before[:] = [array.copy() for array in arrays[:-1]]

        def finish(arrays: Sequence[NDArray]) -> None:
            if arrays[-1]:
                run_region(step, self._program, before)
                raise InternalError(f"{step.command.name}: its kernel refused inputs that the references take")

        return replace(launched, begin=begin, finish=finish) if kernel.may_fail else launched

    def _check_status(self, step: Step, kernel: DeviceKernel, launch: Launch, arrays: Sequence[NDArray]) -> None:
        """Raises the error of a step whose kernel refused an input."""
        given = dict(zip(launch.operands, arrays, strict=True))
        count = len(step.inputs) + len(step.outputs)
        if not kernel.may_fail or count not in given or not given[count]:
            return
        run = self._program.kernels[id(step)].run
        inputs = [given[i] for i in range(len(step.inputs))]
        outputs = [np.empty(view.spec.shape, view.spec.dtype) for view in step.outputs]
        bound = run, inputs, outputs, step.params
        explain(step, bound)
        run(inputs, outputs, step.params)
        raise InternalError(f"{step.command.name}: its kernel refused inputs that the reference takes")


def _results(step: Step) -> int:
    """Returns the number of outputs of a step that are results: behind them may lie a workspace."""
    return len(step.graphs[0].outputs) if step.graphs else step.command.outputs or len(step.outputs)


def _name(step: Step, number: int, launches: Launches) -> str:
    """Returns an operand of a step in words."""
    count = len(step.inputs)
    if step.region is not None:
        views = launches.views(step)
        return f"buffer {views[number].buffer}" if number < len(views) else "the status word"
    if number < count:
        return f"input {number}"
    if number < count + _results(step):
        return f"output {number - count}"
    return "the workspace" if number < count + len(step.outputs) else "the status word"
