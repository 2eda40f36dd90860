"""Rows that are sorted: their keys, and how they are read and written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from nnc.backends.cpu.kernels.sorts.order import SortLayout
from nnc.backends.printer import Bound, Printer, in_blocks
from nnc.base import dtypes
from nnc.base.dtypes import DType
from nnc.base.target import Target
from nnc.lower.kernels.axes import Axes
from nnc.lower.kernels.builder import Code, Value
from nnc.lower.kernels.keys import (
    POSITION_BITS,
    Element,
    key_dtype,
    key_of,
    kinds_with_position,
    load_element,
    value_of,
    with_position,
)
from nnc.lower.plan.stages import View


@dataclass(frozen=True)
class Keys:
    """The keys that a sort compares: keys of values, perhaps with their positions."""

    machine: Target
    dtype: DType
    descending: bool
    positions: bool

    @cached_property
    def layout(self) -> SortLayout:
        """Keys alone; key and position in one word; or both, side by side."""
        kinds = kinds_with_position(self.dtype) if self.positions else (key_dtype(self.dtype),)
        return SortLayout(self.machine, kinds)

    @property
    def low(self) -> int:
        """The lowest bit that belongs to the key."""
        return POSITION_BITS if self.positions and len(self.layout.kinds) == 1 else 0

    def element(self, code: Code, x: Value, first: Value) -> Element:
        """Returns the sort's elements for values at positions from `first` on."""
        key = key_of(code, x, self.descending)
        if not self.positions:
            return (key,)
        return with_position(code, key, code.convert(count_up(code, first, x.lanes), dtypes.uint32))

    def padding(self, code: Code, lanes: int) -> Element:
        """Returns elements that come after all others."""
        return tuple(code.constant((1 << 8 * kind.itemsize) - 1, kind, lanes) for kind in self.layout.kinds)

    def key(self, code: Code, element: Element) -> Value:
        """Returns the key of an element, in the dtype of its first array."""
        first = element[0]
        return code.shr(first, code.like(first, self.low)) if self.low else first

    def result(self, code: Code, element: Element) -> Value:
        """Returns the result of a sort for an element: its value, or its position as an int64."""
        if not self.positions:
            return value_of(code, element[0], self.dtype, self.descending)
        last = element[-1]
        if self.low:
            last = code.and_(last, code.like(last, (1 << POSITION_BITS) - 1))
        return code.convert(last, dtypes.int64)

    @property
    def restores(self) -> bool:
        """Whether some keys stand for several values."""
        return not self.positions and dtypes.is_float(self.dtype)


def count_up(code: Code, first: Value, lanes: int) -> Value:
    """first, first + 1, … in all lanes, int64."""
    if not lanes:
        return first
    steps = Value(f"<{', '.join(f'i64 {lane}' for lane in range(lanes))}>", dtypes.int64, lanes)
    return code.add(first, steps)


@dataclass(frozen=True)
class SortRows:
    """Rows of n elements along one axis of x, and rows of the result: the first `kept` of each."""

    keys: Keys
    n: int
    x_step: int
    out_step: int
    axes: Axes
    kept: int

    @classmethod
    def of(cls, keys: Keys, x: View, out: View, axis: int) -> SortRows:
        """The rows along an axis."""
        axes = Axes(out.spec.shape, (x.strides, out.strides)).without(axis).merged()
        return cls(keys, x.spec.shape[axis], x.strides[axis], out.strides[axis], axes, out.spec.shape[axis])

    @property
    def result(self) -> DType:
        """The dtype of the result."""
        return dtypes.int64 if self.keys.positions else self.keys.dtype

    # -- parts of a row ------------------------------------------------------------------------------------------------

    def read(self, code: Code, x: str, begin: Bound, end: Bound, body: Callable[[Value, Value], None]) -> None:
        """Runs `body(position, values)` for a range of positions."""
        lanes = self.keys.layout.lanes if self.x_step == self.keys.dtype.itemsize else 0

        def block(i: Value, lanes: int) -> None:
            body(i, code.load(code.offset(x, code.mul(i, code.integer(self.x_step))), self.keys.dtype, lanes))

        in_blocks(code, begin, end, lanes, block)

    def write(self, code: Code, out: str, begin: Bound, end: Bound, arrays: Sequence[str]) -> None:
        """Writes the results of elements in memory, which are sorted."""
        layout = self.keys.layout

        def block(i: Value, lanes: int) -> None:
            result = self.keys.result(code, load_element(code, layout.kinds, arrays, i, lanes))
            code.store(code.offset(out, code.mul(i, code.integer(self.out_step))), result)

        in_blocks(code, begin, end, layout.lanes if self.out_step == self.result.itemsize else 0, block)

    def restore(self, printer: Printer) -> None:
        """A function `(x, out)` that puts NaN and zeros back in the order in which they came."""
        code = Code("KERNEL.restore", [("ptr", "x"), ("ptr", "out")], "internal void")
        kind, one = self.keys.dtype, code.integer(1)
        nans, before = code.slot(code.integer(0)), code.slot(code.integer(0))

        def value(i: Value) -> Value:
            return code.load(code.offset("%x", code.mul(i, code.integer(self.x_step))), kind)

        with code.loop(0, self.n) as i:
            x = value(i)
            is_before = code.compare("gt" if self.keys.descending else "lt", x, code.like(x, 0))
            code.write(before, code.add(code.read(before), code.convert(is_before, dtypes.int64)))
            is_nan = code.convert(code.compare("uno", x, x), dtypes.int64)
            code.write(nans, code.add(code.read(nans), is_nan))
        if self.keys.descending:
            zero, nan = code.slot(code.add(code.read(nans), code.read(before))), code.slot(code.integer(0))
        else:
            zero, nan = code.slot(code.read(before)), code.slot(code.sub(code.integer(self.n), code.read(nans)))
        with code.loop(0, self.n) as i:
            x = value(i)
            for place, holds in ((nan, code.compare("uno", x, x)), (zero, code.compare("eq", x, code.like(x, 0)))):
                with code.when(holds):
                    at = code.read(place)
                    code.store(code.offset("%out", code.mul(at, code.integer(self.out_step))), x)
                    code.write(place, code.add(at, one))
        code.ret()
        printer.add(code)


class Noted:
    """A bool that collects the flags of vectors and single values."""

    def __init__(self, code: Code, lanes: int) -> None:
        self._many = code.slot(code.constant(False, dtypes.bool_, lanes))
        self._one = code.slot(code.constant(False, dtypes.bool_))

    def add(self, code: Code, x: Value) -> None:
        """Notes bools."""
        slot = self._many if x.lanes else self._one
        code.write(slot, code.or_(code.read(slot), x))

    def any(self, code: Code) -> Value:
        """Whether one was true."""
        return code.or_(code.reduce("or", code.read(self._many)), code.read(self._one))
