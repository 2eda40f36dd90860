"""Native kernels of elementwise commands on few complex numbers: a loop whose steps are all native runs without Python.

Kernels are printed from the commands' scalar expressions, for those that have a meaning for complex numbers. Real and imaginary
parts, which lie side by side, are computed in vectors of their own. NumPy does many elements as fast.
"""

from __future__ import annotations

from nnc.backends.complexes import add_complex, computation
from nnc.backends.printer import Printer, add_native, over_vectors
from nnc.base import dtypes
from nnc.base.dtypes import DType
from nnc.device.target import Target
from nnc.lower.kernels.axes import Axes
from nnc.lower.kernels.builder import Code
from nnc.lower.kernels.math.complexes import Complex, to_dtype
from nnc.lower.kernels.math.terms import Term
from nnc.lower.kernels.native import Native
from nnc.lower.plan.stages import Step

_MOST = 1 << 12  # elements
_LANES = 8


def _elements(step: Step, machine: Target) -> Native:
    """Makes the kernel of a step, whose elements are computed from the operands' elements."""
    views, printer = (*step.inputs, *step.outputs), Printer(step, machine)
    kinds = [view.spec.dtype for view in views]
    pointers = [*(f"%in{i}" for i in range(len(step.inputs))), "%out0"]
    axes = Axes(step.outputs[0].spec.shape, tuple(view.strides for view in views)).merged()
    code, last = printer.main, len(axes.shape) - 1
    by = [strides[last] if last >= 0 else 0 for strides in axes.strides]
    dense = all(a in (0, kind.itemsize) for a, kind in zip(by, kinds, strict=True)) and by[-1] != 0

    def block(at: list[str], lanes: int) -> None:
        operands = zip(at[:-1], kinds[:-1], by[:-1], strict=True)
        loaded = [_load(code, p, kind, lanes if a else 0) for p, kind, a in operands]
        spread = [_spread(code, x, lanes) for x in loaded]
        _store(code, at[-1], to_dtype(computation(step)(*spread), kinds[-1]))

    if axes.size:
        over_vectors(code, axes, pointers, by if dense else (), None, _LANES, block)
    return printer.native(inline=axes.size == 1)


def _load(code: Code, pointer: str, dtype: DType, lanes: int) -> Complex | Term:
    if not dtypes.is_complex(dtype):
        return Term(code, code.load(pointer, dtype, lanes))
    real = dtypes.real_dtype(dtype)
    if not lanes:
        parts = [code.load(code.offset(pointer, at), real) for at in (0, real.itemsize)]
    else:
        both = code.load(pointer, real, 2 * lanes)
        parts = [code.shuffle(both, range(first, 2 * lanes, 2)) for first in (0, 1)]
    return Complex(*(Term(code, part) for part in parts))


def _spread(code: Code, x: Complex | Term, lanes: int) -> Complex | Term:
    """Returns a number in all lanes."""
    if isinstance(x, Complex):
        return Complex(*(Term(code, code.splat(part.value, lanes)) for part in (x.real, x.imag)))
    return Term(code, code.splat(x.value, lanes))


def _store(code: Code, pointer: str, parts: tuple[Term, ...]) -> None:
    values = [part.value for part in parts]
    if len(values) == 1:
        code.store(pointer, values[0])
    elif values[0].lanes:
        order = [place for lane in range(values[0].lanes) for place in (lane, values[0].lanes + lane)]
        code.store(pointer, code.shuffle(values[0], order, values[1]))
    else:
        for number, value in enumerate(values):
            code.store(code.offset(pointer, number * value.dtype.itemsize), value)


add_complex(add_native, _elements, _MOST)
