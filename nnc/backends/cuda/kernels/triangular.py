"""Solves small triangular systems for CUDA: a thread substitutes in one column of the right-hand side.

Larger ones are made of these and of products (`decomposition` of `triangular_solve`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from nnc.backends.cuda.kernels.code import GpuCode
from nnc.backends.cuda.kernels.registry import add_printed
from nnc.backends.cuda.kernels.units import each_unit, one_launch, places_of
from nnc.base import dtypes
from nnc.base.target import GpuTarget
from nnc.commands.linalg import SMALL_TRIANGLE
from nnc.graph import TensorSpec
from nnc.lower.kernels.axes import Axes
from nnc.lower.kernels.builder import Carried, Value
from nnc.lower.kernels.launch import DeviceKernel
from nnc.lower.plan.stages import Step


def _triangular_solve(step: Step, machine: GpuTarget) -> DeviceKernel:
    (a, b), (x,) = step.inputs, step.outputs
    n, columns = b.spec.shape[-2:]
    outer = (*b.spec.shape[:-2], columns)
    count, threads = math.prod(outer), machine.grids.threads
    if not b.spec.size:
        return DeviceKernel("", ())
    lower, transposed = step.params["lower"], step.params.get("transpose_a", False)
    has_ones, kind = step.params.get("unit_diagonal", False), b.spec.dtype
    code = GpuCode("KERNEL_triangle", ["noalias readonly", "noalias readonly", "noalias", ""][: 4 - has_ones], threads)
    with each_unit(code, count, threads) as unit:
        strides = ((*a.strides[:-2], 0), *((*view.strides[:-2], view.strides[-1]) for view in (b, x)))
        places = places_of(code, Axes(outer, strides), unit)
        of_a, of_b, of_x = (code.offset(f"%p{k}", at) for k, at in enumerate(places))
        by_row, by_column = reversed(a.strides[-2:]) if transposed else a.strides[-2:]

        def place(i: Value) -> Value:
            """Returns the number of the row that comes in the place i."""
            return i if lower != transposed else code.sub(code.integer(n - 1), i)

        def at(pointer: str, i: Value, stride: int) -> str:
            return code.offset(pointer, code.mul(i, code.integer(stride)))

        with code.loop(0, n) as i:
            row = place(i)
            of_row, total = at(of_a, row, by_row), Carried([code.constant(0, kind)])
            with code.loop(0, i, carried=[total]) as j:
                column = place(j)
                known = code.load(at(of_x, column, x.strides[-2]), kind)
                factor = code.load(at(of_row, column, by_column), kind)
                total.values = [code.add(total.values[0], code.mul(factor, known))]
            found = code.sub(code.load(at(of_b, row, b.strides[-2]), kind), total.values[0])
            if not has_ones:
                pivot = code.load(at(of_row, row, by_column), kind)
                code.refuse("%p3", code.compare("eq", pivot, code.like(pivot, 0)))
                found = code.div(found, pivot)
            code.store(at(of_x, row, x.strides[-2]), found)
    return one_launch(code, count, threads, range(4 - has_ones), may_fail=not has_ones)


def _supports(specs: tuple[TensorSpec, ...], params: Mapping[str, Any]) -> bool:
    return specs[0].dtype in (dtypes.float32, dtypes.float64) and specs[0].shape[-1] <= SMALL_TRIANGLE


add_printed("triangular_solve", _triangular_solve, _supports)
