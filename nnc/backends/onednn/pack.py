"""The command `pack` as a reorder of oneDNN, which writes the padding, too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nnc.backends.native_runs import cpu_compiler, run_native
from nnc.backends.onednn.calls import Call, Operand, calls_native
from nnc.backends.onednn.library import DST, SCRATCHPAD, SRC, MemoryDesc, PrimitiveDesc, library
from nnc.backends.onednn.primitives import Primitive
from nnc.base import dtypes
from nnc.commands.pack import Blocks
from nnc.errors import BackendError
from nnc.graph import Kernel, TensorSpec, add_kernel
from nnc.lower.kernels.native import Native
from nnc.lower.plan.stages import Step

_FLOATS = (dtypes.float32, dtypes.bfloat16, dtypes.float16)


def _supports(specs: tuple[TensorSpec, ...], params: Mapping[str, Any]) -> bool:
    return specs[0].dtype in _FLOATS and specs[0].size > 0 and library() is not None and cpu_compiler() is not None


def _native(step: Step) -> Native | None:
    """Returns the reorder; None where the library knows no such strides."""
    (x,) = step.inputs
    blocks, strides = Blocks.of(step.params["layout"]), x.strides
    if len(blocks.sizes) > len(strides):  # groups and their shares
        strides = (blocks.sizes[1] * strides[0], *strides)
    try:
        given = MemoryDesc.strided(blocks.sizes, x.spec.dtype, strides)
        wanted = MemoryDesc.blocked(blocks, x.spec.dtype)
        desc = PrimitiveDesc.reorder(given, wanted)
    except BackendError:
        return None
    operands = [Operand(SRC, given, "in0"), Operand(DST, wanted, "out0")]
    scratchpad = desc.desc(SCRATCHPAD)
    if scratchpad.nbytes:
        operands.append(Operand(SCRATCHPAD, scratchpad, ""))
    return calls_native([Call(Primitive(desc), tuple(operands))], 1)


add_kernel("pack", Kernel("onednn", run_native(_native, "pack"), _supports, priority=20, native=_native))
