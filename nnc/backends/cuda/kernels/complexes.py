"""Commands on complex numbers for CUDA: a thread takes one element, whose parts lie side by side.

Kernels are printed from scalar expressions, as those of real numbers are, for the expressions that have a meaning for complex ones.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from nnc.backends.cuda.kernels.code import GpuCode
from nnc.backends.cuda.kernels.fills import parts_of
from nnc.backends.cuda.kernels.nests import print_node
from nnc.backends.cuda.kernels.registry import Series, add_printed
from nnc.backends.cuda.kernels.units import each_unit, one_launch, places_of
from nnc.base import dtypes
from nnc.base.target import GpuTarget
from nnc.graph import Command, TensorSpec, infer_specs
from nnc.graph.registry import scalar
from nnc.lower.kernels.axes import Axes
from nnc.lower.kernels.launch import DeviceKernel
from nnc.lower.kernels.math.complexes import BY_LOGARITHMS, Complex, complex_function, to_dtype
from nnc.lower.kernels.math.terms import Term
from nnc.lower.kernels.scalars import can_be_complex
from nnc.lower.plan.stages import Step, View


def _elements(step: Step, machine: GpuTarget) -> DeviceKernel:
    """Makes the kernel of a step, whose elements are computed from the operands' elements."""
    views, out = (*step.inputs, *step.outputs), step.outputs[0]
    axes = Axes(out.spec.shape, tuple(view.strides for view in views)).ordered(len(views) - 1)
    if not axes.size:
        return DeviceKernel("", ())
    threads = machine.grids.threads
    shares = any(view.buffer == out.buffer for view in step.inputs)
    pointers = [*["" if shares else "noalias readonly"] * len(step.inputs), "" if shares else "noalias"]
    code = GpuCode("KERNEL_complex", pointers, threads)
    with each_unit(code, axes.size, threads) as unit:
        places = [code.offset(f"%p{i}", at) for i, at in enumerate(places_of(code, axes, unit))]
        operands = [_load(code, view, place) for view, place in zip(step.inputs, places, strict=False)]
        _store(code, out, places[-1], to_dtype(complex_function(step.command, step.params)(*operands), out.spec.dtype))
    return one_launch(code, axes.size, threads, range(len(views)))


def _is_whole(view: View) -> bool:
    """Whether one access reads or writes a complex number."""
    return math.gcd(view.offset, *view.strides, *(by for _, by in view.advances)) % view.spec.dtype.itemsize == 0


def _load(code: GpuCode, view: View, place: str) -> Complex | Term:
    dtype = view.spec.dtype
    if not dtypes.is_complex(dtype):
        return Term(code, code.load(place, dtype))
    real = dtypes.real_dtype(dtype)
    if _is_whole(view):
        both = code.load(place, real, 2, align=dtype.itemsize)
        return Complex(Term(code, code.lane(both, 0)), Term(code, code.lane(both, 1)))
    parts = (code.load(at, real) for at in (place, code.offset(place, real.itemsize)))
    return Complex(*(Term(code, part) for part in parts))


def _store(code: GpuCode, view: View, place: str, parts: Sequence[Term]) -> None:
    if len(parts) > 1 and _is_whole(view):
        code.store(place, code.join([part.value for part in parts]), align=view.spec.dtype.itemsize)
        return
    for number, part in enumerate(parts):
        code.store(code.offset(place, number * part.dtype.itemsize), part.value)


def _reduce_sum(step: Step, machine: GpuTarget) -> DeviceKernel:
    """Returns the sums of real parts, and those of imaginary ones."""
    (x,), (out,), series = step.inputs, step.outputs, Series(machine)
    for source, target in zip(parts_of(x), parts_of(out), strict=True):
        shifts = source.offset - x.offset, target.offset - out.offset
        series.add(print_node(step.command, step.params, (source,), target, machine, shifts), (0, 1))
    return series.kernel()


def _supports(target: Command, specs: tuple[TensorSpec, ...], params: Mapping[str, Any]) -> bool:
    """Whether a number is complex; others are computed in nests."""
    return any(dtypes.is_complex(spec.dtype) for spec in (*specs, *infer_specs(target, specs, params)))


def _add(target: Command) -> None:
    if can_be_complex(scalar[target]):
        add_printed(target, _elements, partial(_supports, target))


scalar.follow(_add)
add_printed(
    "integer_pow",
    _elements,
    lambda specs, params: dtypes.is_complex(specs[0].dtype) and abs(params["exponent"]) < BY_LOGARITHMS,
)
add_printed("reduce_sum", _reduce_sum, lambda specs, params: dtypes.is_complex(specs[0].dtype) and specs[0].size > 0)
