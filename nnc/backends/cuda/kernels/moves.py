"""Kernels for CUDA of the commands that move elements without computing: copies of views, joins and padding.

Each copy is a nest of one node, on bits; a command that makes several of them is as many launches.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nnc.backends.cuda.kernels.nests import print_node
from nnc.backends.cuda.kernels.registry import add_printed
from nnc.backends.cuda.kernels.series import Series
from nnc.base.dtypes import TAPE
from nnc.commands.elementwise import copy
from nnc.device import CUDA
from nnc.device.target import GpuTarget
from nnc.graph import Command, TensorSpec, kernel
from nnc.lower.kernels.axes import in_words, word_of
from nnc.lower.kernels.launch import DeviceKernel
from nnc.lower.plan.stages import Step, View, is_contiguous, row_major
from nnc.lower.plan.views import restride

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


def _shown(step: Step, machine: GpuTarget, spec: TensorSpec, offset: int, strides: Shape) -> DeviceKernel:
    """Returns the first input, seen in another way, copied to the output."""
    series, (out,) = Series(machine), step.outputs
    source = step.inputs[0]
    target = out if spec.shape == out.spec.shape else out.show(spec, out.offset, row_major(spec))
    Copies(step, series).add(0, source.show(spec, source.offset + offset, strides), target)
    return series.kernel()


def _copy(step: Step, machine: GpuTarget) -> DeviceKernel | None:
    if len(step.inputs) != 1:
        return None
    return _shown(step, machine, step.outputs[0].spec, 0, step.inputs[0].strides)


def _view(step: Step, machine: GpuTarget) -> DeviceKernel | None:
    """View commands, where they must run: the input as the view would show it is copied."""
    (x,), (out,) = step.inputs, step.outputs
    found = restride[step.command](x.spec, out.spec, x.strides, **step.params) if out.spec.size else (0, out.strides)
    return None if found is None else _shown(step, machine, out.spec, *found)


def _reshape(step: Step, machine: GpuTarget) -> DeviceKernel | None:
    """Returns a view, or a copy in the order of the elements, which a result without gaps allows."""
    (x,), (out,) = step.inputs, step.outputs
    printed = _view(step, machine)
    if printed is not None or not is_contiguous(out.spec, out.strides):
        return printed
    return _shown(step, machine, x.spec, 0, x.strides)


def _reorder(step: Step, machine: GpuTarget) -> DeviceKernel:
    """Returns the strides of a transpose are read, and written in the order of the result."""
    out, order = step.outputs[0], step.params["permutation"]
    return _shown(step, machine, out.spec, 0, tuple(step.inputs[0].strides[axis] for axis in order))


def _concatenate(step: Step, machine: GpuTarget) -> DeviceKernel:
    series, (out,) = Series(machine), step.outputs
    copies = Copies(step, series)
    axis, at = step.params["axis"] % out.spec.ndim, 0
    for number, part in enumerate(step.inputs):
        copies.add(number, part, out.show(part.spec, out.offset + at * out.strides[axis], out.strides))
        at += part.spec.shape[axis]
    return series.kernel()


def _pad(step: Step, machine: GpuTarget) -> DeviceKernel:
    """Returns the value everywhere, then the operand in its place."""
    series, (x, value), (out,) = Series(machine), step.inputs, step.outputs
    copies = Copies(step, series)
    copies.add(1, value.show(out.spec, value.offset, (0,) * out.spec.ndim), out)
    start = sum(low * stride for low, stride in zip(step.params["low"], out.strides, strict=True))
    strides = tuple((gap + 1) * stride for gap, stride in zip(step.params["interior"], out.strides, strict=True))
    copies.add(0, x, out.show(x.spec, out.offset + start, strides))
    return series.kernel()


def _supports(specs: tuple[TensorSpec, ...], params: Mapping[str, Any]) -> bool:
    return all(spec.dtype != TAPE for spec in specs)


def _add_view(target: Command) -> None:
    if not any(each.device == CUDA for each in kernel.get(target, ())):
        add_printed(target, _view, _supports)


add_printed("reshape", _reshape, _supports)
restride.follow(_add_view)
add_printed(copy, _copy, _supports)
add_printed("reorder", _reorder, _supports)
add_printed("concatenate", _concatenate, _supports)
add_printed("pad", _pad, _supports)
