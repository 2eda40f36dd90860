"""searchsorted for CUDA: a thread finds the place of one value by bisection without branches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nnc.backends.cuda.kernels.code import GpuCode
from nnc.backends.cuda.kernels.points import place, print_points
from nnc.backends.cuda.kernels.registry import add_printed
from nnc.base import dtypes
from nnc.device.target import GpuTarget
from nnc.graph import TensorSpec
from nnc.lower.kernels.builder import Carried, Value
from nnc.lower.kernels.keys import has_keys, key_of
from nnc.lower.kernels.launch import DeviceKernel
from nnc.lower.plan.stages import Step


def _searchsorted(step: Step, machine: GpuTarget) -> DeviceKernel:
    rows, values = step.inputs
    batch, n, kind = rows.spec.ndim - 1, rows.spec.shape[-1], rows.spec.dtype
    comes_after = "lt" if step.params["side"] == "left" else "le"

    def body(code: GpuCode, index: list[Value]) -> Sequence[Value]:
        row = place(code, "%p0", index[:batch], rows.strides[:-1])
        wanted = key_of(code, code.load(place(code, "%p1", index, values.strides), kind), False)

        def skip(before: Value, count: Value) -> Value:
            """Returns the place behind the next `count` elements, where the last of them comes before the value."""
            behind = code.add(before, count)
            last = code.mul(code.sub(behind, code.integer(1)), code.integer(rows.strides[-1]))
            key = key_of(code, code.load(code.offset(row, last), kind), False)
            return code.select(code.compare(comes_after, key, wanted), behind, before)

        found, left = Carried([code.integer(0)]), Carried([code.integer(n)])
        with code.loop(0, max(n - 1, 0).bit_length(), carried=[found, left]):
            half = code.shr(left.values[0], code.integer(1))
            found.values = [skip(found.values[0], half)]
            left.values = [code.sub(left.values[0], half)]
        return [skip(found.values[0], code.integer(1)) if n else code.integer(0)]

    return print_points("search", step, machine, body)


def _supports(specs: tuple[TensorSpec, ...], params: Mapping[str, Any]) -> bool:
    return dtypes.is_known(specs[0].dtype) and has_keys(specs[0].dtype)


add_printed("searchsorted", _searchsorted, _supports)
