"""Native kernels of sort and argsort: networks in registers for short rows; for others quicksort by vectors, where processors can
put chosen lanes side by side, else networks in memory, and digit by digit for long ones.

All sort keys (nnc.lower.kernels.keys). Equal keys of a sort need no order, but for NaN and zeros, whose bits differ: rows that
hold such get theirs back in the order in which they came.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from nnc.backends.cpu.kernels.sorts.long_rows import MOST_ELEMENTS, Pieces, Radix, Shared
from nnc.backends.cpu.kernels.sorts.order import SortLayout, has_quicksort, quicksort, sort_function, sort_registers
from nnc.backends.cpu.kernels.sorts.rows import Keys, Noted, SortRows
from nnc.backends.moves import row
from nnc.backends.printer import Part, Printer, add_native, over
from nnc.base import dtypes
from nnc.base.target import Target
from nnc.graph import TensorSpec
from nnc.lower.kernels.builder import Code, Value
from nnc.lower.kernels.keys import has_keys, is_ambiguous, store_element
from nnc.lower.kernels.native import Native
from nnc.lower.kernels.values import known_lanes
from nnc.lower.plan.stages import Step


def is_quick(keys: Keys, n: int) -> bool:
    """Whether a row is sorted by quicksort. Digits are faster for keys with positions, as long as the caches hold them, or where
    many are equal, as integers often are.
    """
    if not has_quicksort(keys.layout):
        return False
    return (
        not keys.low
        or is_short(keys, n)
        or (n >= keys.machine.sorting.least_quick and not dtypes.is_integer(keys.dtype))
    )


def is_short(keys: Keys, n: int) -> bool:
    """Whether networks sort a row faster than digits do."""
    if len(keys.layout.kinds) == 2:
        return n <= 1024
    return n <= (4096 if keys.low else 16384)


def add_sort(printer: Printer, layout: SortLayout) -> None:
    """The function `KERNEL.sort`, of quicksort (with spare memory) or of a network."""
    functions = quicksort("KERNEL.sort", layout) if has_quicksort(layout) else [sort_function("KERNEL.sort", layout)]
    for function in functions:
        printer.add(function)


def in_registers(code: Code, rows: SortRows, x: str, out: str) -> None:
    """Sorts a row that registers hold."""
    keys, n = rows.keys, rows.n
    lanes, kind, size = keys.layout.lanes, keys.dtype, rows.result.itemsize
    count = 1 << (-(-n // lanes) - 1).bit_length()
    source = x
    if rows.x_step != kind.itemsize:
        source = code.room(count * lanes * kind.itemsize)
        row(code, kind, x, rows.x_step, source, kind.itemsize, (0, n))
    found = Noted(code, lanes) if keys.restores else None
    masks = [known_lanes(min(max(n - k * lanes, 0), lanes), lanes) for k in range(count)]
    registers = []
    for k, mask in enumerate(masks):
        values = code.load(code.offset(source, k * lanes * kind.itemsize), kind, lanes, mask)
        if found is not None:
            found.add(code, is_ambiguous(code, values))
        real = keys.element(code, values, code.integer(k * lanes))
        padding = keys.padding(code, lanes)
        registers.append(tuple(code.select(mask, a, b) for a, b in zip(real, padding, strict=True)))
    target = out if rows.out_step == size else code.room(count * lanes * size)
    for k, element in enumerate(sort_registers(code, registers)):
        mask = known_lanes(min(max(rows.kept - k * lanes, 0), lanes), lanes)
        code.store(code.offset(target, k * lanes * size), keys.result(code, element), mask)
    if target != out:
        row(code, rows.result, target, size, out, rows.out_step, (0, rows.kept))
    if found is not None:
        _restore_if(code, found.any(code), x, out)


def in_memory(code: Code, rows: SortRows, x: str, out: str) -> None:
    """Sorts a row on the stack."""
    keys, n, layout = rows.keys, rows.n, rows.keys.layout
    quick = is_quick(keys, n)
    padded = n if quick else layout.padded(n)
    arrays = [code.room(padded * kind.itemsize) for kind in layout.kinds]
    found = Noted(code, layout.lanes) if keys.restores else None

    def fill(i: Value, values: Value) -> None:
        if found is not None:
            found.add(code, is_ambiguous(code, values))
        store_element(code, arrays, i, keys.element(code, values, i))

    rows.read(code, x, 0, n, fill)
    with code.loop(n, padded) as i:
        store_element(code, arrays, i, keys.padding(code, 0))
    spare = [code.room(n * layout.kinds[0].itemsize)] if quick else []
    listed = ", ".join(f"ptr {array}" for array in (*arrays, *spare))
    code.line(f"call void @KERNEL.sort({listed}, i64 {padded})")
    rows.write(code, out, 0, rows.kept, arrays)
    if found is not None:
        _restore_if(code, found.any(code), x, out)


def _restore_if(code: Code, condition: Value, x: str, out: str) -> None:
    with code.when(condition):
        code.line(f"call void @KERNEL.restore(ptr {x}, ptr {out})")


def by_radix(code: Code, printer: Printer, rows: SortRows, x: str, out: str, work: str) -> None:
    """Sorts a long row; threads share it where the caller is not one of several itself."""
    keys, layout = rows.keys, rows.keys.layout
    shared = Shared(rows.n)

    def fill(code: Code, args: str, begin: Value, end: Value) -> None:
        source = shared.pointer(code, args, "x")
        arrays = [shared.pointer(code, args, f"from{k}") for k in range(len(layout.kinds))]
        found = Noted(code, layout.lanes) if keys.restores else None
        first = keys.element(code, code.load(source, keys.dtype), code.integer(0))[0]
        many = code.slot(code.constant(0, first.dtype, layout.lanes))
        one = code.slot(code.constant(0, first.dtype))

        def put(i: Value, values: Value) -> None:
            element = keys.element(code, values, i)
            differing = many if values.lanes else one
            code.write(differing, code.or_(code.read(differing), code.xor(element[0], first)))
            if found is not None:
                found.add(code, is_ambiguous(code, values))
            store_element(code, arrays, i, element)

        rows.read(code, source, begin, end, put)
        differs = code.convert(code.or_(code.reduce("or", code.read(many)), code.read(one)), dtypes.int64)
        code.line(f"atomicrmw or ptr {shared.field(code, args, 'vary')}, {differs.typed} monotonic")
        if found is not None:
            special = code.convert(found.any(code), dtypes.int64)
            code.line(f"atomicrmw or ptr {shared.field(code, args, 'special')}, {special.typed} monotonic")

    def finish(code: Code, args: str, begin: Value, end: Value) -> None:
        arrays = [shared.pointer(code, args, f"from{k}") for k in range(len(layout.kinds))]
        if rows.kept < rows.n:
            begin, end = (code.intrinsic("smin", i, code.integer(rows.kept)) for i in (begin, end))
        rows.write(code, shared.pointer(code, args, "out0"), begin, end, arrays)

    def place(code: Code, args: str, first: Value, count: Value, array: str) -> None:
        target = code.offset(shared.pointer(code, args, "out0"), code.mul(first, code.integer(rows.out_step)))
        if rows.kept < rows.n:
            left = code.intrinsic("smax", code.sub(code.integer(rows.kept), first), code.integer(0))
            count = code.intrinsic("smin", count, left)
        rows.write(code, target, 0, count, [array])

    pointers = {"x": x, "out0": out}
    if is_quick(keys, rows.n):
        is_roomy = rows.kept == rows.n and rows.out_step == rows.result.itemsize == layout.kinds[0].itemsize
        args = Pieces(layout, rows.n).print(printer, code, work, pointers, out if is_roomy else None, fill, place)
    else:
        args = Radix(layout, rows.n, keys.low).print(printer, code, work, pointers, fill, finish)
    if keys.restores:
        special = shared.integer(code, args, "special")
        _restore_if(code, code.compare("ne", special, code.integer(0)), x, out)


def _nbytes(keys: Keys, n: int) -> int:
    """Memory that a long row needs."""
    return Pieces(keys.layout, n).nbytes if is_quick(keys, n) else Radix(keys.layout, n, keys.low).nbytes


def _at_once(keys: Keys, rows: int, n: int) -> int:
    """Returns the number of rows that have memory of their own at a time."""
    sorting = keys.machine.sorting
    return 1 if n >= sorting.shared_elements else min(rows, sorting.rows_at_once)


def workspace_of(keys: Keys, n: int, rows: int) -> int:
    """Bytes that sorts of so many rows need."""
    if is_short(keys, n) or not rows:
        return 0
    return _nbytes(keys, n) * _at_once(keys, rows, n)


def print_sorts(printer: Printer, rows: SortRows, x: str, out: str) -> None:
    """Sorts all rows."""
    keys, n = rows.keys, rows.n
    nbytes = 8 * n * (n.bit_length() + 4) // 4  # as if moved
    if not rows.axes.size or not n:
        return
    if keys.restores:
        rows.restore(printer)
    if not is_short(keys, n):
        _sort_long(printer, rows, x, out)
        return
    if n > keys.layout.block:
        add_sort(printer, keys.layout)

    def body(code: Code, part: Part) -> None:
        with over(code, rows.axes, [x, out], part) as (source, target):
            (in_memory if n > keys.layout.block else in_registers)(code, rows, source, target)

    printer.along(rows.axes, nbytes * rows.axes.size, body)


def _sort_long(printer: Printer, rows: SortRows, x: str, out: str) -> None:
    """Row by row, or some rows side by side, each in a part of the workspace."""
    total, each = rows.axes.size, _nbytes(rows.keys, rows.n)
    parts = _at_once(rows.keys, total, rows.n)
    chunk = -(-total // parts)
    function = Code("KERNEL.row", [("ptr", "x"), ("ptr", "out"), ("ptr", "work")], "internal void")
    by_radix(function, printer, rows, "%x", "%out", "%work")
    function.ret()
    printer.add(function)

    def body(code: Code, begin: Value | int, end: Value | int) -> None:
        with code.loop(begin, end) as part:
            first = code.mul(part, code.integer(chunk))
            stop = code.intrinsic("smin", code.add(first, code.integer(chunk)), code.integer(total))
            work = code.offset("%workspace", code.mul(part, code.integer(each)))
            with code.loop(first, stop) as row:
                source, target = rows.axes.at(code, [x, out], row)
                code.line(f"call void @KERNEL.row(ptr {source}, ptr {target}, ptr {work})")

    printer.parts(parts, 1, body)


def can_sort_rows(x: TensorSpec, axis: int) -> bool:
    """Whether rows of x along an axis can be sorted here."""
    return has_keys(x.dtype) and x.shape[axis] <= MOST_ELEMENTS


def _native(step: Step, machine: Target, *, positions: bool) -> Native | None:
    x, out = step.inputs[0], step.outputs[0]
    axis = step.params["axis"] % x.spec.ndim
    keys = Keys(machine, x.spec.dtype, step.params["descending"], positions)
    room = _workspace(step.input_specs, step.params, machine, positions=positions)
    printer = Printer(step, machine, workspace=room > 0)
    print_sorts(printer, SortRows.of(keys, x, out, axis), "%in0", "%out0")
    return printer.native()


def _workspace(specs: tuple[TensorSpec, ...], params: Mapping[str, Any], machine: Target, *, positions: bool) -> int:
    (x,), axis = specs, params["axis"]
    n = x.shape[axis]
    return workspace_of(Keys(machine, x.dtype, params["descending"], positions), n, x.size // n if n else 0)


def _supports(specs: tuple[TensorSpec, ...], params: Mapping[str, Any]) -> bool:
    return can_sort_rows(specs[0], params["axis"])


for _name, _positions in (("sort", False), ("argsort", True)):
    add_native(_name, partial(_native, positions=_positions), _supports, partial(_workspace, positions=_positions))
