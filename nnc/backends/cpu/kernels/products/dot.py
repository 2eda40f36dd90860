"""Native kernels of `dot`, for all integers, real floats and, by a real product, complex numbers: printed products of matrices.

On a Zen 5 core they reach 105 to 112 GFLOP/s in float64 and 205 to 222 in float32 from 128³ on, with any operand transposed;
OpenBLAS has 57 and 115 there, oneDNN 220 in float32. On a Granite Rapids core it is 150 to 170 in float32, as MKL has, and 110 to
140 where a long left operand is transposed. From 4³ to 64³ they take a half to a fifth of the time of any library's call. So no
library is called, but for bfloat16, where oneDNN uses instructions that compute twice as fast (nnc/backends/onednn/matmul.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from nnc.backends.cpu.kernels.products.gemm import print_tiles
from nnc.backends.cpu.kernels.products.thin_products import along_terms, is_row_by_rows, print_dots, print_row
from nnc.backends.cpu.kernels.products.tiling import oriented_for_tiles, shape_of
from nnc.backends.native_runs import run_native
from nnc.backends.numpy_ref import reference_kernel
from nnc.backends.printer import Printer
from nnc.backends.products import Product, product_of
from nnc.base import dtypes
from nnc.base.dtypes import DType
from nnc.base.later import later
from nnc.base.target import Target
from nnc.device import CPU
from nnc.graph import Kernel, TensorSpec, add_kernel, command, spec_of
from nnc.graph.kernels import KernelFactory
from nnc.lower.kernels.builder import has_code
from nnc.lower.kernels.native import Native, Remembered
from nnc.lower.kernels.sizes import Numbers, find_sized
from nnc.lower.plan.stages import NDArray, Step

_print_complex = later(f"{__package__}.complex_dot", "print_complex")
_workspace_bytes = later(f"{__package__}.complex_dot", "workspace_bytes")
_ROWS_BY_COLUMNS = ((1,), (0,))
_DOT = command("dot")


def _supports(specs: tuple[TensorSpec, ...], params: Mapping[str, Any]) -> bool:
    return not dtypes.is_bool(specs[0].dtype) and (has_code(specs[0].dtype) or dtypes.is_complex(specs[0].dtype))


def _workspace(specs: tuple[TensorSpec, ...], params: Mapping[str, Any]) -> int:
    return _workspace_bytes(specs, params) if dtypes.is_complex(specs[0].dtype) else 0


def print_product(step: Step, machine: Target) -> Native | None:
    """Prints a step's product; None where its sums would have to go on from a rounded result."""
    if dtypes.is_complex(step.inputs[0].spec.dtype):
        made: Native | None = _print_complex(step, machine, partial(print_product, machine=machine))
        return made
    if not step.outputs[0].spec.size:
        return Printer(step, machine).native(inline=True)
    product = product_of(step)
    if step.like is None or not step.like.outputs[0].spec.size:
        return _print(step, machine, product)
    key = print_product, machine, product.dtype
    return find_sized(
        key, product.axes, product_of(step.like).axes, partial(_print_sized, step, machine, product.dtype)
    )


def _print_sized(step: Step, machine: Target, dtype: DType, axes: Any, numbers: Numbers) -> Native | None:
    return _print(step, machine, Product(dtype, *axes), numbers)


def _print(step: Step, machine: Target, product: Product, numbers: Numbers | None = None) -> Native | None:
    product = _oriented(product, machine)
    product = replace(product, columns=product.columns.fixed)
    wide = product.dtype if dtypes.is_integer(product.dtype) else dtypes.accumulator(product.dtype)
    printer, light = Printer(step, machine, numbers=numbers), False
    if along_terms(product, machine):
        print_dots(printer, product, wide)
    elif is_row_by_rows(product, machine):
        print_row(printer, product, wide)
    else:
        shape = shape_of(product, wide, machine)
        if shape is None:
            return None
        light = shape.shared
        print_tiles(printer, product, shape)
    return printer.native(inline=product.volume * product.count <= machine.products.inline_volume, light=light)


def _oriented(product: Product, machine: Target) -> Product:
    """Returns the product, or its transpose, so that neighbours in the result are neighbours in a vector."""
    turned, lies_along = product.turned(), along_terms(product, machine)
    if along_terms(turned, machine) and not (lies_along and product.columns.size <= turned.columns.size):
        return turned
    return product if lies_along else oriented_for_tiles(product)


def _kernel(machine: Target) -> Kernel:
    native = partial(print_product, machine=machine)
    compiled, figures = run_native(native, "dot"), machine.products

    def run(inputs: Sequence[NDArray], outputs: Sequence[NDArray], params: Mapping[str, Any]) -> None:
        """A product at once. NumPy is called with less ado, which counts for more than the product itself where that is small."""
        x, y = inputs
        if dtypes.is_complex(x.dtype):
            reference_kernel(_DOT, (spec_of(x), spec_of(y)), params).run(inputs, outputs[:1], params)
        elif (
            x.ndim == y.ndim == 2
            and params["contract"] == _ROWS_BY_COLUMNS
            and not any(params.get("batch", ()))  # a batch axis that is no row comes behind the sum
            and x.size * y.shape[1] <= figures.small_volume
            and x.shape[1] <= 4 * figures.panel_terms  # longer sums lose digits there
            and x.dtype in (dtypes.float32, dtypes.float64)
        ):
            np.matmul(x, y, out=outputs[0])
        else:
            compiled(inputs, outputs, params)

    return Kernel(CPU, run, _supports, native=Remembered(native, sized=True), workspace=_workspace)


add_kernel("dot", KernelFactory(CPU, _kernel))
