"""Native kernel of searchsorted: halvings without branches, for eight values at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nnc.backends.printer import Bound, Part, Printer, add_native, looping, over_vectors
from nnc.base import dtypes
from nnc.base.target import Target
from nnc.graph import TensorSpec
from nnc.lower.kernels.axes import Axes
from nnc.lower.kernels.builder import Code, Value
from nnc.lower.kernels.keys import has_keys, key_of
from nnc.lower.kernels.native import Native
from nnc.lower.plan.stages import Step

_LANES = 8


def _searchsorted(step: Step, machine: Target) -> Native | None:
    (steps, values), (out,) = step.inputs, step.outputs
    batch = steps.spec.ndim - 1
    n, stride, kind = steps.spec.shape[-1], steps.strides[-1], steps.spec.dtype
    inner = tuple(0 for _ in values.spec.shape[batch:])
    axes = Axes(values.spec.shape, ((*steps.strides[:-1], *inner), values.strides, out.strides)).merged()
    printer = Printer(step, machine)
    comes_after = "lt" if step.params["side"] == "left" else "le"

    def find(code: Code, row: str, value: Value) -> Value:
        """Counts the elements of a row that come before the place of a value."""
        wanted = key_of(code, value, False)
        place, left = code.constant(0, dtypes.int64, value.lanes), n

        def skip(count: Bound) -> Value:
            """Returns the place behind the next `count` elements, where the last of them comes before the value."""
            following = code.add(place, code.splat(code.integer(count), value.lanes))
            last = code.mul(code.sub(following, code.like(place, 1)), code.like(place, stride))
            found = code.gather(row, last, kind) if value.lanes else code.load(code.offset(row, last), kind)
            before = code.compare(comes_after, key_of(code, found, False), wanted)
            return code.select(before, following, place)

        if not isinstance(n, int):
            slot, none, one = code.slot(place), code.integer(0), code.integer(1)

            def halved(left: Value) -> Value:
                return code.intrinsic("smax", code.div(left, code.integer(2)), one)

            def rest(left: Value) -> Value:
                return code.select(code.compare("gt", left, one), code.sub(left, halved(left)), none)

            with looping(code, code.integer(n), lambda left: code.compare("gt", left, none), rest) as number:
                place = code.read(slot)
                code.write(slot, skip(halved(number)))
            return code.read(slot)
        while left:
            half = max(left // 2, 1)
            place = skip(half)
            left = left - half if left > 1 else 0
        return place

    def body(code: Code, part: Part) -> None:
        def write(moved: list[str], lanes: int) -> None:
            row, value, target = moved
            code.store(target, find(code, row, code.load(value, kind, lanes)))

        over_vectors(code, axes, ["%in0", "%in1", "%out0"], (0, kind.itemsize, 8), part, _LANES, write)

    printer.along(axes, axes.size * machine.sorting.searched_bytes, body)
    return printer.native()


def _supports(specs: tuple[TensorSpec, ...], params: Mapping[str, Any]) -> bool:
    return has_keys(specs[0].dtype)


add_native("searchsorted", _searchsorted, _supports, sized=True)
