"""Native kernel of top_k: a few elements of long rows are selected in one reading, other rows are sorted.

Selection keeps the k best so far and their last key as a threshold. Elements that beat it are collected behind them; when the room
is full, it is sorted, and the threshold falls. Later elements of an equal key never beat earlier ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nnc.backends.cpu.kernels.sorts.order import count_lanes, sort_function
from nnc.backends.cpu.kernels.sorts.rows import Keys, SortRows
from nnc.backends.cpu.kernels.sorts.sort import can_sort_rows, print_sorts, workspace_of
from nnc.backends.printer import Part, Printer, add_native, over
from nnc.base import dtypes
from nnc.base.records import record
from nnc.base.target import Target
from nnc.graph import TensorSpec
from nnc.lower.kernels.axes import Axes
from nnc.lower.kernels.builder import Code, Slot, Value
from nnc.lower.kernels.keys import Element, key_of, load_element, place_of, store_element
from nnc.lower.kernels.native import Native
from nnc.lower.plan.stages import Step

_MOST_SELECTED = 256
_VECTORS = 4  # that are looked at at a time


def _selects(n: int, k: int, keys: Keys) -> bool:
    return 0 < k <= _MOST_SELECTED and n >= 2 * _room(keys, k)


def _room(keys: Keys, k: int) -> int:
    """Elements that are collected before they are sorted: a power of two."""
    least = max(4 * k, 8 * keys.layout.block)
    return int(1 << (least - 1).bit_length())


@record
class _Selection:
    code: Code
    rows: SortRows
    arrays: tuple[str, ...]
    room: int
    threshold: Slot
    count: Slot

    @property
    def collected(self) -> Value:
        """The number of collected elements."""
        return self.code.read(self.count)

    def put(self, element: Element, mask: Value) -> None:
        """Collects the elements of a vector, or one, where the mask holds."""
        code, layout, at = self.code, self.rows.keys.layout, self.collected
        if not mask.lanes:
            with code.when(mask):
                store_element(code, self.arrays, at, element)
                code.write(self.count, code.add(at, code.integer(1)))
            return
        for array, kind, value in zip(self.arrays, layout.kinds, element, strict=True):
            name = f"llvm.masked.compressstore.v{mask.lanes}i{8 * kind.itemsize}"
            code.declare(f"declare void @{name}({value.type}, ptr, {mask.type})")
            place = place_of(code, array, at, kind)
            code.line(f"call void @{name}({value.typed}, ptr align {kind.itemsize} {place}, {mask.typed})")
        code.write(self.count, code.add(at, count_lanes(code, mask)))

    def sort(self) -> None:
        """Sorts the collected elements, and drops those that do not belong to the best."""
        code, keys = self.code, self.rows.keys
        with code.loop(self.collected, self.room) as i:
            store_element(code, self.arrays, i, keys.padding(code, 0))
        listed = ", ".join(f"ptr {array}" for array in self.arrays)
        code.line(f"call void @KERNEL.sort({listed}, i64 {self.room})")
        last = load_element(code, keys.layout.kinds, self.arrays, code.integer(self.rows.kept - 1))
        code.write(self.threshold, code.convert(keys.key(code, last), self.threshold.dtype))
        code.write(self.count, code.integer(self.rows.kept))


def _select(code: Code, rows: SortRows, x: str, out: str) -> None:
    keys, layout, kind = rows.keys, rows.keys.layout, rows.keys.dtype
    room = _room(keys, rows.kept)
    arrays = tuple(code.room(room * array.itemsize) for array in layout.kinds)
    first = key_of(code, code.load(x, kind), keys.descending)
    made = _Selection(code, rows, arrays, room, code.slot(first), code.slot(code.integer(room)))
    rows.read(code, x, 0, room, lambda i, values: store_element(code, arrays, i, keys.element(code, values, i)))
    made.sort()
    dense = rows.x_step == kind.itemsize
    lanes, step = (layout.lanes, layout.lanes * _VECTORS) if dense else (0, 1)

    def look(i: Value, lanes: int, vectors: int) -> None:
        places = [code.add(i, code.integer(k * lanes)) for k in range(vectors)]
        at = [code.offset(x, code.mul(place, code.integer(rows.x_step))) for place in places]
        values = [code.load(pointer, kind, lanes) for pointer in at]
        least = code.read(made.threshold)
        masks = [code.compare("lt", key_of(code, value, keys.descending), least) for value in values]
        some = masks[0]
        for mask in masks[1:]:
            some = code.or_(some, mask)
        with code.when(code.reduce("or", some) if lanes else some):
            for place, value, mask in zip(places, values, masks, strict=True):
                made.put(keys.element(code, value, place), mask)
            with code.when(code.compare("gt", made.collected, code.integer(room - step))):
                made.sort()

    full = room + (rows.n - room) // step * step
    with code.loop(room, full, step) as i:
        look(i, lanes, _VECTORS if dense else 1)
    with code.loop(full, rows.n) as i:
        look(i, 0, 1)
    made.sort()
    rows.write(code, out, 0, rows.kept, arrays)


def _top_k(step: Step, machine: Target) -> Native | None:
    x, (values, places) = step.inputs[0], step.outputs[:2]
    axis, keys = x.spec.ndim - 1, Keys(machine, x.spec.dtype, True, True)
    rows = SortRows.of(keys, x, places, axis)
    printer = Printer(step, machine, workspace=_workspace(step.input_specs, step.params, machine) > 0)
    if not places.spec.size:
        return printer.native(inline=True)
    if _selects(rows.n, rows.kept, keys):
        printer.add(sort_function("KERNEL.sort", keys.layout))

        def body(code: Code, part: Part) -> None:
            with over(code, rows.axes, ["%in0", "%out1"], part) as (source, target):
                _select(code, rows, source, target)

        printer.along(rows.axes, x.spec.nbytes, body)
    else:
        print_sorts(printer, rows, "%in0", "%out1")
    axes = Axes(places.spec.shape, (x.strides, places.strides, values.strides)).without(axis).merged()
    with (
        over(printer.main, axes, ["%in0", "%out1", "%out0"]) as (source, target, result),
        printer.main.loop(0, rows.kept) as i,
    ):
        code = printer.main
        at = code.load(code.offset(target, code.mul(i, code.integer(places.strides[axis]))), dtypes.int64)
        value = code.load(code.offset(source, code.mul(at, code.integer(x.strides[axis]))), x.spec.dtype)
        code.store(code.offset(result, code.mul(i, code.integer(values.strides[axis]))), value)
    return printer.native()


def _workspace(specs: tuple[TensorSpec, ...], params: Mapping[str, Any], machine: Target) -> int:
    (x,), k = specs, params["k"]
    n, keys = x.shape[-1], Keys(machine, x.dtype, True, True)
    return 0 if not k or _selects(n, k, keys) else workspace_of(keys, n, x.size // n)


add_native("top_k", _top_k, lambda specs, params: can_sort_rows(specs[0], -1), _workspace)
