"""Printed kernels of elementwise commands on complex numbers, from the commands' scalar expressions.

Real and imaginary parts, which lie side by side, are computed in vectors of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from nnc.backends.native_runs import run_native
from nnc.backends.printer import Bound, Printer, grain_of, in_blocks, load_parts, longest, over, store_parts
from nnc.base import dtypes
from nnc.base.dtypes import DType
from nnc.base.target import Target
from nnc.device import CPU
from nnc.graph import Graph, Kernel, Node, Symbol, TensorSpec
from nnc.lower.kernels.axes import Axes
from nnc.lower.kernels.builder import Code, Value
from nnc.lower.kernels.llvm import print_graph
from nnc.lower.kernels.math.complexes import BY_LOGARITHMS, Complex, complex_function, to_dtype
from nnc.lower.kernels.math.terms import Term
from nnc.lower.kernels.native import Native, Remembered
from nnc.lower.plan.stages import Step, View

_LONG = 1 << 12  # elements from which on a row's kernel is printed for any length
_WORK_BYTES = 256  # bytes whose move takes as long as one element
_LANES = 8


def kernel(name: str, machine: Target) -> Kernel:
    """Makes the kernel of an elementwise command for operands or a result that are complex."""
    return _make(name, lambda step: elements(step, machine, complex_function(step.command, step.params)), _supports)


def sum_kernel(name: str, machine: Target) -> Kernel:
    """Makes the kernel of sums of complex numbers."""
    return _make(name, partial(_reduce_sum, machine=machine), lambda specs, params: specs[0].size > 0)


def _make(name: str, native: Callable[[Step], Native], supports: Callable[..., bool]) -> Kernel:
    return Kernel(CPU, run_native(native, name), supports, native=Remembered(native))


def elements(step: Step, machine: Target, compute: Callable[..., Complex | Term]) -> Native:
    """Returns the kernel of a step whose elements `compute` gives from the operands' elements; one for all long rows."""
    views = (*step.inputs, *step.outputs)
    kinds = [view.spec.dtype for view in views]
    pointers = [*(f"%in{i}" for i in range(len(step.inputs))), "%out0"]
    axes = Axes(step.outputs[0].spec.shape, tuple(view.strides for view in views)).merged()
    is_long = len(axes.shape) == 1 and axes.size > _LONG
    printer = Printer(step, machine, length=axes.size if is_long else None)
    last, chosen = len(axes.shape) - 1, longest(axes.shape)
    count = axes.shape[last] if axes.shape else 1
    by = [strides[last] if axes.shape else 0 for strides in axes.strides]
    dense = all(a in (0, kind.itemsize) for a, kind in zip(by, kinds, strict=True)) and by[-1] != 0
    rows = axes.without(last) if axes.shape else axes

    def part(code: Code, begin: Bound, end: Bound) -> None:
        def block(i: Value, lanes: int) -> None:
            at = [code.offset(p, code.mul(i, code.integer(a))) if a else p for p, a in zip(places, by, strict=True)]
            loaded = [
                _load(code, p, kind, lanes if a else 0) for p, kind, a in zip(at[:-1], kinds[:-1], by[:-1], strict=True)
            ]
            spread = [_spread(code, x, lanes) for x in loaded]
            _store(code, at[-1], to_dtype(compute(*spread), kinds[-1]))

        with over(code, rows, pointers, (chosen, begin, end)) as places:
            bounds = (begin, end) if chosen == last else (0, count)
            if dense:
                in_blocks(code, *bounds, _LANES, block)
            else:
                with code.loop(*bounds) as i:
                    block(i, 0)

    parts = axes.shape[chosen] if axes.shape else 1
    grain = grain_of(parts, axes.size * _WORK_BYTES, machine)
    printer.parts(printer.length if is_long else parts if axes.size else 0, grain, part)
    return printer.native(inline=axes.size == 1)


def _load(code: Code, pointer: str, dtype: DType, lanes: int) -> Complex | Term:
    if not dtypes.is_complex(dtype):
        return Term(code, code.load(pointer, dtype, lanes))
    return Complex(*(Term(code, part) for part in load_parts(code, pointer, dtypes.real_dtype(dtype), lanes)))


def _spread(code: Code, x: Complex | Term, lanes: int) -> Complex | Term:
    """Returns a number in all lanes."""
    if isinstance(x, Complex):
        return Complex(*(Term(code, code.splat(part.value, lanes)) for part in (x.real, x.imag)))
    return Term(code, code.splat(x.value, lanes))


def _store(code: Code, pointer: str, parts: tuple[Term, ...]) -> None:
    if len(parts) == 1:
        code.store(pointer, parts[0].value)
    else:
        store_parts(code, pointer, *(part.value for part in parts))


def _reduce_sum(step: Step, machine: Target) -> Native:
    """Returns the kernel that sums real parts, and then imaginary ones."""
    printer, (source, target) = Printer(step, machine), map(_part, step.inputs + step.outputs)
    operand, result = Symbol(source.spec), Symbol(target.spec)
    graph = Graph((operand,), (result,), (Node(step.command, (operand,), (result,), step.params),))
    native = print_graph(graph, (source,), (target,), machine)
    for at in (0, operand.spec.dtype.itemsize):
        places = [printer.main.offset(name, at) for name in ("%in0", "%out0")]
        printer.call(printer.main, native, *places, *native.numbers)
    return printer.native()


def _part(view: View) -> View:
    return view.show(view.spec.update(dtype=dtypes.real_dtype(view.spec.dtype)), view.offset, view.strides)


def _supports(specs: tuple[TensorSpec, ...], params: Mapping[str, Any]) -> bool:
    return bool(abs(params.get("exponent", 0)) < BY_LOGARITHMS)  # NumPy takes logarithms of others
