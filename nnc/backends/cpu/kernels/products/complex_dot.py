"""Prints the `dot` of complex numbers as one product of real matrices.

With the parts of the smaller operand a as a matrix of twice the rows and terms, and those of b one behind the other,

    [ re a  -im a ]   [ re b ]   [ re c ]
    [ im a   re a ] · [ im b ] = [ im c ]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nnc.backends.cpu.kernels.complexes import elements
from nnc.backends.printer import Printer
from nnc.base import dtypes
from nnc.base.target import Target
from nnc.graph import TensorSpec, command, infer_specs
from nnc.lower.kernels.math.complexes import Complex
from nnc.lower.kernels.math.terms import Term
from nnc.lower.kernels.native import Native
from nnc.lower.plan.stages import Step, View, row_major

_ALIGNMENT = 64
_DOT = command("dot")


@dataclass(frozen=True)
class _RealProduct:
    """The real product that a complex one is: both operands and the result, and the parameters of the `dot`."""

    specs: tuple[TensorSpec, TensorSpec, TensorSpec]
    params: Mapping[str, Any]
    doubled: int  # the operand that is the matrix of twice the rows and terms
    part_axis: int  # of the result: real, imaginary

    @classmethod
    def of(cls, specs: Sequence[TensorSpec], params: Mapping[str, Any]) -> _RealProduct:
        """The product for operands of these specs."""
        doubled, real = int(specs[1].size < specs[0].size), dtypes.real_dtype(specs[0].dtype)
        sides = []
        contract, batch = params["contract"], params.get("batch", ((), ()))
        terms, loops = [], []
        for i, spec in enumerate(specs):
            sides.append(TensorSpec((2, *spec.shape, 2) if i == doubled else (2, *spec.shape), real))
            terms.append((*(axis + 1 for axis in contract[i]), spec.ndim + 1 if i == doubled else 0))
            loops.append(tuple(axis + 1 for axis in batch[i]))
        given = {"contract": tuple(terms), "batch": tuple(loops)}
        (out,) = infer_specs(_DOT, tuple(sides), given)
        free = specs[0].ndim - len(contract[0]) if doubled else len(batch[0])
        return cls((sides[0], sides[1], out), given, doubled, free)

    def offsets(self) -> list[int]:
        """Offsets of the operands and of the result in the workspace, and its size."""
        found = [0]
        for spec in self.specs:
            found.append(found[-1] + -(-spec.nbytes // _ALIGNMENT) * _ALIGNMENT)
        return found


def print_complex(step: Step, machine: Target, dot: Callable[[Step], Native | None]) -> Native | None:
    """Prints the kernel of a step, by that of a real product; None where that is not taken."""
    printer, out = Printer(step, machine, workspace=True), step.outputs[0]
    if not out.spec.size:
        return printer.native()
    product = _RealProduct.of(step.input_specs, step.params)
    views = [View(0, spec, 0, row_major(spec)) for spec in product.specs]
    native = dot(Step(_DOT, (views[0], views[1]), (views[2],), product.params))
    if native is None:
        return None
    places = [printer.main.offset("%workspace", offset) for offset in product.offsets()]

    def compute(inputs: dict[str, View], target: str, view: View, function: Callable[..., Any]) -> None:
        made = elements(Step(step.command, tuple(inputs.values()), (view,), {}), machine, function)
        printer.call(printer.main, made, *inputs, target, *made.numbers)

    def part_of(operand: int, function: Callable[..., Any], *at: int) -> None:
        """Writes a part of an operand at indices of the first and of the last axis."""
        strides, shape = views[operand].strides, step.inputs[operand].spec.shape
        spec = TensorSpec(shape, product.specs[operand].dtype)
        shift = sum(index * stride for index, stride in zip(at, (strides[0], strides[-1]), strict=False))
        target = printer.main.offset(places[operand], shift)
        view = View(0, spec, 0, strides[1 : 1 + len(shape)])
        compute({f"%in{operand}": step.inputs[operand]}, target, view, function)

    for row, term, function in ((0, 0, _real), (0, 1, _minus_imaginary), (1, 0, _imaginary), (1, 1, _real)):
        part_of(product.doubled, function, row, term)
    for term, function in enumerate((_real, _imaginary)):
        part_of(1 - product.doubled, function, term)
    printer.call(printer.main, native, *places[:3])
    step_of_parts = views[2].strides[product.part_axis]
    strides = tuple(s for axis, s in enumerate(views[2].strides) if axis != product.part_axis)
    half = View(0, out.spec.update(dtype=product.specs[2].dtype), 0, strides)
    compute({places[2]: half, printer.main.offset(places[2], step_of_parts): half}, "%out0", out, Complex)
    return printer.native()


def _real(x: Complex) -> Term:
    return x.real


def _imaginary(x: Complex) -> Term:
    return x.imag


def _minus_imaginary(x: Complex) -> Term:
    return -x.imag


def workspace_bytes(specs: Sequence[TensorSpec], params: Mapping[str, Any]) -> int:
    """Returns the bytes that the kernel for operands of these specs needs for real matrices."""
    return max(_ALIGNMENT, _RealProduct.of(specs, params).offsets()[-1])
