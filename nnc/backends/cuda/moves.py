"""Kernels for CUDA of the commands that move elements without computing: copies of views, joins and padding.

Each copy is a nest of one node, on bits; a command that makes several of them is as many launches.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from nnc import dtypes
from nnc.backends.cuda.assembling import join
from nnc.backends.cuda.nests import print_nest
from nnc.backends.cuda.registry import add_printed
from nnc.commands.elementwise import copy
from nnc.devices import CUDA
from nnc.dtypes import TAPE, DType
from nnc.graph import Command, Graph, Node, Symbol, TensorSpec, kernel
from nnc.lower.kernels.launch import DeviceKernel, Launch
from nnc.lower.plan.stages import Step, View, is_contiguous, row_major
from nnc.lower.plan.views import restride

_BITS: Mapping[int, DType] = {1: dtypes.uint8, 2: dtypes.uint16, 4: dtypes.uint32, 8: dtypes.uint64}

Shape = tuple[int, ...]


class _Copies:
    """The copies of one step, one launch each.

    Args:
        step: of which inputs are copied to the output.
    """

    def __init__(self, step: Step) -> None:
        self._step, self._kernels = step, list[DeviceKernel]()

    def add(self, number: int, source: View, target: View) -> None:
        """Adds a copy.

        Args:
            number: of the input.
            source: within that input.
            target: of the same shape, within the output.
        """
        if not target.spec.size:
            return
        step = self._step
        spec = TensorSpec(target.spec.shape, _BITS[target.spec.dtype.itemsize])
        x, y = Symbol(spec), Symbol(spec)
        views = [view.show(spec, view.offset, view.strides) for view in (source, target)]
        shifts = source.offset - step.inputs[number].offset, target.offset - step.outputs[0].offset
        printed = print_nest(Graph((x,), (y,), (Node(copy, (x,), (y,)),)), views[:1], views[1:], shifts)
        self._kernels.append(_moved(printed, f"KERNEL{len(self._kernels)}_", (number, len(step.inputs))))

    def kernel(self) -> DeviceKernel:
        """All copies, done one after the other."""
        launches = tuple(launch for each in self._kernels for launch in each.launches)
        return DeviceKernel(join([each.text for each in self._kernels]), launches)


def _moved(printed: DeviceKernel, stem: str, operands: tuple[int, int]) -> DeviceKernel:
    """A kernel under another name, for other operands of a step."""
    rename = re.compile("KERNEL_").sub
    launches = tuple(
        Launch(rename(stem, x.function), x.grid, x.block, tuple(operands[i] for i in x.operands), x.shared)
        for x in printed.launches
    )
    return DeviceKernel(rename(stem, printed.text), launches)


def _shown(step: Step, spec: TensorSpec, offset: int, strides: Shape) -> DeviceKernel:
    """The first input, seen in another way, copied to the output."""
    copies, (out,) = _Copies(step), step.outputs
    source = step.inputs[0]
    target = out if spec.shape == out.spec.shape else out.show(spec, out.offset, row_major(spec))
    copies.add(0, source.show(spec, source.offset + offset, strides), target)
    return copies.kernel()


def _copy(step: Step) -> DeviceKernel | None:
    if len(step.inputs) != 1:
        return None
    return _shown(step, step.outputs[0].spec, 0, step.inputs[0].strides)


def _view(step: Step) -> DeviceKernel | None:
    """View commands, where they must run: the input as the view would show it is copied."""
    (x,), (out,) = step.inputs, step.outputs
    found = restride[step.command](x.spec, out.spec, x.strides, **step.params) if out.spec.size else (0, out.strides)
    return None if found is None else _shown(step, out.spec, *found)


def _reshape(step: Step) -> DeviceKernel | None:
    """A view, or a copy in the order of the elements, which a result without gaps allows."""
    (x,), (out,) = step.inputs, step.outputs
    printed = _view(step)
    if printed is not None or not is_contiguous(out.spec, out.strides):
        return printed
    return _shown(step, x.spec, 0, x.strides)


def _concatenate(step: Step) -> DeviceKernel:
    copies, (out,) = _Copies(step), step.outputs
    axis, at = step.params["axis"] % out.spec.ndim, 0
    for number, part in enumerate(step.inputs):
        copies.add(number, part, out.show(part.spec, out.offset + at * out.strides[axis], out.strides))
        at += part.spec.shape[axis]
    return copies.kernel()


def _pad(step: Step) -> DeviceKernel:
    """The value everywhere, then the operand in its place."""
    copies, (x, value), (out,) = _Copies(step), step.inputs, step.outputs
    copies.add(1, value.show(out.spec, value.offset, (0,) * out.spec.ndim), out)
    start = sum(low * stride for low, stride in zip(step.params["low"], out.strides, strict=True))
    strides = tuple((gap + 1) * stride for gap, stride in zip(step.params["interior"], out.strides, strict=True))
    copies.add(0, x, out.show(x.spec, out.offset + start, strides))
    return copies.kernel()


def _supports(specs: tuple[TensorSpec, ...], params: Mapping[str, Any]) -> bool:
    return all(spec.dtype != TAPE and spec.dtype.itemsize in _BITS for spec in specs)


def _add_view(target: Command) -> None:
    if not any(each.device == CUDA for each in kernel.get(target, ())):
        add_printed(target, _view, _supports)


add_printed("reshape", _reshape, _supports)
restride.follow(_add_view)
add_printed(copy, _copy, _supports)
add_printed("concatenate", _concatenate, _supports)
add_printed("pad", _pad, _supports)
