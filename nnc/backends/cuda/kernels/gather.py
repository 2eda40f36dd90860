"""gather and dynamic_slice for CUDA, where they stand alone: nests of one node.

A slice whose start is known only at run time is a row of a table, that of all boxes of its sizes: one begins at each place, and
they overlap in memory.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from nnc.backends.cuda.kernels.checks import check_indices
from nnc.backends.cuda.kernels.fills import fill, parts_of
from nnc.backends.cuda.kernels.moves import Copies
from nnc.backends.cuda.kernels.nests import print_node
from nnc.backends.cuda.kernels.registry import add_printed
from nnc.backends.cuda.kernels.series import Series
from nnc.base import dtypes
from nnc.base.dtypes import TAPE
from nnc.commands.index import fill_value, gather
from nnc.device.target import GpuTarget
from nnc.graph import TensorSpec
from nnc.lower.kernels.axes import in_words, word_of
from nnc.lower.kernels.indexed import Indexed
from nnc.lower.kernels.launch import DeviceKernel
from nnc.lower.plan.stages import Step, View

Shape = tuple[int, ...]


def boxes(x: View, sizes: Sequence[int], count: int) -> View:
    """Views all boxes of one size within a tensor: the first axes are those of the boxes' starts, the last those of a box.

    An axis that a box covers whole has one start, with stride 0, so that vectors along other axes stay aligned.

    Args:
        sizes: the size of a box along each axis.
        count: the number of axes that have a start; boxes cover the others whole.
    """
    starts = tuple(n - size + 1 for n, size in zip(x.spec.shape, sizes, strict=True))[:count]
    strides = tuple(by if n > 1 else 0 for n, by in zip(starts, x.strides, strict=False))
    return x.show(x.spec.update(shape=(*starts, *sizes)), x.offset, (*strides, *x.strides))


def _read(step: Step, machine: GpuTarget, x: View, indices: Sequence[View], params: Mapping[str, Any]) -> DeviceKernel:
    """Elements of a tensor at computed places; even where none is read, indices may be refused."""
    out, mode, dtype = step.outputs[0], params["mode"], x.spec.dtype
    is_empty = any(x.spec.shape[axis] == 0 for axis in params["axes"])
    series, operands = Series(machine), range(len(indices) + 3)  # with the status word
    outside = fill_value(dtype) if mode == "fill" else 0
    if is_empty:
        fill(series, out, dtype.type(outside), len(indices) + 1)
    elif not dtypes.is_complex(dtype):
        series.add(print_node(gather, params, (x, *indices), out, machine), operands)
    elif mode != "fill":
        series.add(print_node(gather, params, (_words(x), *indices), _words(out), machine), operands)
    else:
        for part, source, target in zip(("fill", "drop"), parts_of(x), parts_of(out), strict=True):
            shift = source.offset - x.offset
            shifts, given = (shift, *(0 for _ in indices), shift), {**params, "mode": part}
            series.add(print_node(gather, given, (source, *indices), target, machine, shifts), operands)
    box = Indexed(x, tuple(indices), params["axes"], params["batch"], mode)
    if math.prod(box.outer) and box.refuses and (is_empty or not out.spec.size):
        series.add(check_indices(step, machine, box), operands)
    return series.kernel()


def _words(view: View) -> View:
    """Returns a tensor of complex numbers as the words by which they are moved."""
    shape, (strides,) = in_words(view.spec, view.strides)
    return view.show(TensorSpec(shape, word_of(view.spec.dtype)), view.offset, strides)


def _gather(step: Step, machine: GpuTarget) -> DeviceKernel:
    x, *indices = step.inputs
    return _read(step, machine, x, indices, step.params)


def _dynamic_slice(step: Step, machine: GpuTarget) -> DeviceKernel:
    (x, *starts), (out,) = step.inputs, step.outputs
    if not starts:
        series = Series(machine)
        Copies(step, series).add(0, x, out)
        return series.kernel()
    params = {"axes": tuple(range(len(starts))), "batch": 0, "mode": step.params["mode"]}
    return _read(step, machine, boxes(x, step.params["sizes"], len(starts)), starts, params)


def _supports(specs: tuple[TensorSpec, ...], params: Mapping[str, Any]) -> bool:
    return specs[0].dtype != TAPE


add_printed("gather", _gather, _supports)
add_printed("dynamic_slice", _dynamic_slice, _supports)
