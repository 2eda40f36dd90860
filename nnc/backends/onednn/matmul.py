"""The kernel of `dot` in bfloat16: oneDNN's matmul.

Its instructions compute 438 GFLOP/s on a Zen 5 core where printed kernels, which widen to float32, have 215 (512³); below 40³ the
call itself costs more than that gains. `matmul_native` also takes float32.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial
from typing import Any

from nnc.backends.native_runs import run_native
from nnc.backends.onednn import library
from nnc.backends.onednn.calls import Call, Operand, calls_native
from nnc.backends.onednn.library import MemoryDesc, PrimitiveDesc, plain
from nnc.backends.onednn.primitives import Primitive
from nnc.backends.products import Gemm, Matrix, gemm_of, product_of
from nnc.base import dtypes
from nnc.base.target import Target
from nnc.errors import BackendError
from nnc.graph import Kernel, TensorSpec
from nnc.lower.kernels.native import Native
from nnc.lower.plan.stages import Step

_DTYPES = (dtypes.float32, dtypes.bfloat16)
_MOST_AXES = 12


def matmul_native(step: Step) -> Native | None:
    """The kernel of a `dot`; None where oneDNN is absent or does not take the dtypes or strides."""
    dtype = step.outputs[0].spec.dtype
    if library.library() is None or dtype not in _DTYPES or not step.outputs[0].spec.size:
        return None
    gemm = gemm_of(product_of(step))
    if gemm is None or len(gemm.product.loops) + 2 > _MOST_AXES:
        return None
    loops = gemm.product.loops
    if any(stride < 0 or stride % dtype.itemsize for axis in loops for stride in axis.strides) or not gemm.product.k:
        return None
    x, y, out = _layouts(gemm)
    try:
        desc = PrimitiveDesc.create("matmul", x, y, None, out, plain())
    except BackendError:  # this processor lacks the dtype, or the library the layout
        return None
    left, right = ("in1", "in0") if gemm.product.is_turned else ("in0", "in1")
    operands = (
        Operand(library.SRC, x, left),
        Operand(library.WEIGHTS, y, right),
        Operand(library.DST, out, "out0"),
        Operand(library.SCRATCHPAD, desc.desc(library.SCRATCHPAD), ""),
    )
    return calls_native([Call(Primitive(desc), operands)], len(step.inputs))


def _layouts(gemm: Gemm) -> tuple[MemoryDesc, MemoryDesc, MemoryDesc]:
    """Returns the operands and the result with all loops as leading axes; an operand that a loop does not move has size 1 there."""
    product, (m, n, k) = gemm.product, gemm.sizes
    dtype = product.dtype

    def desc(which: int, rows: int, columns: int, matrix: Matrix) -> MemoryDesc:
        steps = [axis.strides[which] for axis in product.loops]
        sizes = [axis.size if step else 1 for axis, step in zip(product.loops, steps, strict=True)]
        last = (matrix.leading * dtype.itemsize, dtype.itemsize)
        strides = (*(step or dtype.itemsize for step in steps), *(last[::-1] if matrix.transposed else last))
        return MemoryDesc.strided((*sizes, rows, columns), dtype, strides)

    return desc(0, m, k, gemm.a), desc(1, k, n, gemm.b), desc(2, m, n, gemm.c)


# -- dot ---------------------------------------------------------------------------------------------------------------


def _supports(machine: Target, specs: tuple[TensorSpec, ...], params: Mapping[str, Any]) -> bool:
    if specs[0].dtype != dtypes.bfloat16 or library.library() is None:
        return False
    contract, batch = params["contract"], params.get("batch", ((), ()))
    depth = rows = columns = 1
    for axis, size in enumerate(specs[0].shape):
        depth, rows = (depth * size, rows) if axis in contract[0] else (depth, rows * (1 if axis in batch[0] else size))
    for axis, size in enumerate(specs[1].shape):
        columns *= 1 if axis in contract[1] or axis in batch[1] else size
    is_large = rows * columns * depth >= machine.products.library_volume
    return is_large and min(rows, columns, depth) > 1 and _has_instructions()


@cache
def _has_instructions() -> bool:
    """Whether oneDNN has more than a plain loop for bfloat16 on this processor."""
    row = MemoryDesc.strided((64, 64), dtypes.bfloat16, (128, 2))
    try:
        desc = PrimitiveDesc.create("matmul", row, row, None, row, plain())
    except BackendError:
        return False
    return not desc.implementation.startswith(("ref", "gemm"))


def kernel(machine: Target) -> Kernel:
    """Makes the kernel of `dot`."""
    return Kernel(
        "onednn", run_native(matmul_native, "dot"), partial(_supports, machine), priority=20, native=matmul_native
    )
