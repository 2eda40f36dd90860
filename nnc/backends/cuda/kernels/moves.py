"""Kernels for CUDA of the commands that move elements without computing: copies of views, joins and padding.

Each copy is a nest of one node, on bits; a command that makes several of them is as many launches.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from nnc.backends.cuda.kernels.nests import print_node
from nnc.backends.cuda.kernels.registry import Series, add_printed
from nnc.base.dtypes import TAPE
from nnc.base.target import GpuTarget
from nnc.commands.elementwise import copy
from nnc.device import CUDA
from nnc.graph import Command, TensorSpec, kernel
from nnc.lower.kernels.axes import in_words, word_of
from nnc.lower.kernels.launch import DeviceKernel
from nnc.lower.plan.stages import Step, View
from nnc.lower.plan.views import inner_part, joined, restride, shown

Shape = tuple[int, ...]


class Copies:
    """The copies from a step's inputs to its output, one launch each."""

    def __init__(self, step: Step, series: Series) -> None:
        self._step, self._series = step, series

    def add(self, number: int, source: View, target: View) -> None:
        """Adds a copy from the input of this number.

        Args:
            source: the part of the input to copy.
            target: the part of the output to write, of the same shape.
        """
        if not target.spec.size:
            return
        step = self._step
        shape, strides = in_words(target.spec, source.strides, target.strides)
        spec = TensorSpec(shape, word_of(target.spec.dtype))
        x, y = (view.show(spec, view.offset, by) for view, by in zip((source, target), strides, strict=True))
        shifts = source.offset - step.inputs[number].offset, target.offset - step.outputs[0].offset
        printed = print_node(copy, {}, (x,), y, self._series.machine, shifts)
        self._series.add(printed, (number, len(step.inputs)))


def _shown(step: Step, machine: GpuTarget, in_order: bool = False) -> DeviceKernel | None:
    """Copies the operand as it is shown."""
    found, series = shown(step, in_order), Series(machine)
    if found is None:
        return None
    Copies(step, series).add(0, *found)
    return series.kernel()


def _concatenate(step: Step, machine: GpuTarget) -> DeviceKernel:
    series = Series(machine)
    copies = Copies(step, series)
    for number, (part, target) in enumerate(joined(step)):
        copies.add(number, part, target)
    return series.kernel()


def _pad(step: Step, machine: GpuTarget) -> DeviceKernel:
    """Writes the value everywhere, then the operand in its place."""
    series, (x, value), (out,) = Series(machine), step.inputs, step.outputs
    copies = Copies(step, series)
    copies.add(1, value.show(out.spec, value.offset, (0,) * out.spec.ndim), out)
    copies.add(0, x, inner_part(step))
    return series.kernel()


def _supports(specs: tuple[TensorSpec, ...], params: Mapping[str, Any]) -> bool:
    return all(spec.dtype != TAPE for spec in specs)


def _add_view(target: Command) -> None:
    if not any(each.device == CUDA for each in kernel.get(target, ())):
        add_printed(target, _shown, _supports)


add_printed("reshape", partial(_shown, in_order=True), _supports)
add_printed("copy", _shown, _supports)
add_printed("reorder", _shown, _supports)
restride.follow(_add_view)
add_printed("concatenate", _concatenate, _supports)
add_printed("pad", _pad, _supports)
