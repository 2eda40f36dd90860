"""Products of matrices by oneDNN's matmul, with their epilogue computed before the result is written.

The kernel of `dot` in bfloat16, whose instructions compute 438 GFLOP/s on a Zen 5 core where printed kernels, which widen to
float32, have 215 (512³); below 40³ the call itself costs more than that gains. `matmul_native` also takes float32 and post-ops.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

from nnc.backends.native_runs import run_native
from nnc.backends.onednn import library
from nnc.backends.onednn.calls import Call, Operand, calls_native
from nnc.backends.onednn.library import Attributes, Binary, Eltwise, MemoryDesc, PostOp, PrimitiveDesc, Sum
from nnc.backends.onednn.primitives import Primitive
from nnc.backends.products import Axis, Gemm, Matrix, gemm_of, product_of
from nnc.base import dtypes
from nnc.device.target import Target
from nnc.errors import BackendError
from nnc.graph import Kernel, TensorSpec
from nnc.lower.kernels.native import Native
from nnc.lower.plan.stages import Step, View

_DTYPES = (dtypes.float32, dtypes.bfloat16)
_MOST_AXES = 12


class CombineWhole(NamedTuple):
    """A post-op: combines the result, by an operation of `library.BINARY`, with an input of the step that has the result's shape
    (its strides are 0 where it is broadcast).
    """

    name: str
    operand: int


def matmul_native(step: Step, post_ops: Sequence[Eltwise | CombineWhole | Sum] = ()) -> Native | None:
    """The kernel of a step whose first two inputs are the operands of a `dot`; `CombineWhole` names the others.

    `post_ops` are applied in order: a bias and its activation are `(CombineWhole("add", 2), Eltwise("relu"))`; `Sum()` adds the
    earlier contents of the output's memory, which accumulates products. None where oneDNN is absent or does not take the dtypes or
    strides.
    """
    dtype = step.outputs[0].spec.dtype
    if library.library() is None or dtype not in _DTYPES or not step.outputs[0].spec.size:
        return None
    gemm = gemm_of(product_of(step))
    if gemm is None or len(gemm.product.loops) + 2 > _MOST_AXES:
        return None
    loops = gemm.product.loops
    if any(stride < 0 or stride % dtype.itemsize for axis in loops for stride in axis.strides) or not gemm.product.k:
        return None
    layouts = _layouts(gemm)
    chain: list[PostOp] = []
    operands = [
        Operand(library.SRC, layouts[0], "in1" if gemm.product.is_turned else "in0"),
        Operand(library.WEIGHTS, layouts[1], "in0" if gemm.product.is_turned else "in1"),
        Operand(library.DST, layouts[2], "out0"),
    ]
    for index, op in enumerate(post_ops):
        if isinstance(op, CombineWhole):
            other = _combined(step, step.inputs[op.operand], gemm)
            if other is None:
                return None
            chain.append(Binary(op.name, other))
            operands.append(Operand(library.post_op_argument(index), other, f"in{op.operand}"))
        else:
            chain.append(op)
    try:
        desc = PrimitiveDesc.create("matmul", layouts[0], layouts[1], None, layouts[2], Attributes(chain))
    except BackendError:  # this processor lacks the dtype, or the library the layout
        return None
    operands.append(Operand(library.SCRATCHPAD, desc.desc(library.SCRATCHPAD), ""))
    return calls_native([Call(Primitive(desc), tuple(operands))], len(step.inputs))


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


def _combined(step: Step, view: View, gemm: Gemm) -> MemoryDesc | None:
    """Returns an operand of a post-op along the axes of the product; None where it does not lie evenly along them."""
    out, product = step.outputs[0], gemm.product
    sizes, strides = [], []
    for axis in (*product.loops, product.rows, product.columns):
        stride = _along(axis, out, view)
        if stride is None:
            return None
        sizes.append(axis.size if stride else 1)
        strides.append(stride or view.spec.dtype.itemsize)
    if view.spec.dtype not in library.DATA_TYPES or any(stride < 0 for stride in strides):
        return None
    return MemoryDesc.strided(tuple(sizes), view.spec.dtype, tuple(strides))


def _along(axis: Axis, out: View, view: View) -> int | None:
    """Returns the stride of a tensor of the result's shape along an axis of the product, which may be several of the result's."""
    if axis.size == 1:
        return 0
    rows = [row for row in zip(out.spec.shape, out.strides, view.strides, strict=True) if row[0] > 1]
    rows.sort(key=lambda row: abs(row[1]))
    found, reached = None, 1
    for size, mine, yours in rows:
        if mine == axis.out * reached and reached < axis.size:
            if found is None:
                found = yours
            elif yours != found * reached:
                return None
            reached *= size
    return found if reached == axis.size else None


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
        return not PrimitiveDesc.create("matmul", row, row, None, row, Attributes()).implementation.startswith(
            ("ref", "gemm")
        )
    except BackendError:
        return False


def _native(step: Step) -> Native | None:
    return matmul_native(step)


def kernel(machine: Target) -> Kernel:
    """Makes the kernel of `dot`."""
    return Kernel("onednn", run_native(_native, "dot"), partial(_supports, machine), priority=20, native=_native)
