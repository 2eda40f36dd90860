"""Networks that sort keys (nnc.lower.kernels.keys) in registers.

Keys of at most 32 bits are sorted as uint32, or with the element's position in the low half of a uint64; longer ones beside the
position.

The networks are bitonic (Batcher, 1968) in the form in which every comparison puts the smaller element first: runs of equal
length are merged by comparing elements e and e ^ (2s - 1), then e and e ^ s/2, e ^ s/4, …. So the padding of a row, the greatest
key, stays at its end, and comparisons with elements behind it can be left out.
"""

from __future__ import annotations

from dataclasses import dataclass

from nnc.backends.printer import looping
from nnc.base import dtypes
from nnc.base.dtypes import DType
from nnc.device.target import Target
from nnc.lower.kernels.builder import Code, Value
from nnc.lower.kernels.keys import Element, comes_before, load_element, select_element, store_element


@dataclass(frozen=True, slots=True)
class SortLayout:
    """The layout of elements that are being sorted, in registers and in memory: one array for each of `kinds`."""

    machine: Target
    kinds: tuple[DType, ...]

    @property
    def lanes(self) -> int:
        """Elements of a register."""
        return 64 // self.kinds[0].itemsize

    @property
    def block(self) -> int:
        """Elements that a network sorts at a time."""
        return self.machine.sorting.registers * self.lanes

    def padded(self, n: int) -> int:
        """Returns the elements of a row with its padding."""
        return -(-n // self.block) * self.block


# -- networks ----------------------------------------------------------------------------------------------------------


def exchange(code: Code, a: Element, b: Element) -> tuple[Element, Element]:
    """Returns the smaller and the greater of two registers' elements, lane by lane."""
    if len(a) == 1:
        return (code.intrinsic("umin", a[0], b[0]),), (code.intrinsic("umax", a[0], b[0]),)
    less = comes_before(code, a, b)
    return select_element(code, less, a, b), select_element(code, less, b, a)


def _within(code: Code, a: Element, mask: int) -> Element:
    """Compares lanes e and e ^ mask of one register."""
    lanes = a[0].lanes
    upper = 1 << mask.bit_length() - 1
    swapped = tuple(code.shuffle(x, [lane ^ mask for lane in range(lanes)]) for x in a)
    low, high = exchange(code, a, swapped)
    order = [lane + lanes if lane & upper else lane for lane in range(lanes)]
    return tuple(code.shuffle(x, order, y) for x, y in zip(low, high, strict=True))


def backwards(code: Code, a: Element) -> Element:
    """Returns a register's elements in the other direction."""
    return tuple(code.shuffle(x, range(x.lanes - 1, -1, -1)) for x in a)


def compare_all(code: Code, registers: list[Element], mask: int) -> list[Element]:
    """Compares elements e and e ^ mask of consecutive registers."""
    lanes = registers[0][0].lanes
    across, within = divmod(mask, lanes)
    if not across:
        return [_within(code, a, mask) for a in registers]
    result = list(registers)
    for i, a in enumerate(registers):
        if i < i ^ across:
            b = registers[i ^ across]
            low, high = exchange(code, a, backwards(code, b) if within else b)
            result[i], result[i ^ across] = low, backwards(code, high) if within else high
    return result


def merge_registers(code: Code, registers: list[Element], first: int) -> list[Element]:
    """Sorts bitonic runs: compares at distance `first`, then at half of it, down to 1."""
    while first:
        registers = compare_all(code, registers, first)
        first //= 2
    return registers


def sort_registers(code: Code, registers: list[Element]) -> list[Element]:
    """Sorts all elements of 1, 2 or 4 … registers."""
    run, count = 1, len(registers) * registers[0][0].lanes
    while run < count:
        registers = compare_all(code, registers, 2 * run - 1)
        registers = merge_registers(code, registers, run // 2)
        run *= 2
    return registers


def sort_function(name: str, layout: SortLayout) -> Code:
    """`void name(arrays…, i64 count)`: sorts elements in memory; the count is a multiple of the layout's block.

    log²(count / block) / 2 passes over memory, all by whole registers, without a branch that depends on values.
    """
    names = [f"a{k}" for k in range(len(layout.kinds))]
    code = Code(name, [*(("ptr", n) for n in names), ("i64", "count")], "internal void")
    arrays, count = [f"%{n}" for n in names], Value("%count", dtypes.int64)
    lanes, block = layout.lanes, layout.block

    def blocks(merge: bool) -> None:
        with code.loop(0, count, block) as at:
            places = [code.add(at, code.integer(k * lanes)) for k in range(layout.machine.sorting.registers)]
            registers = [load_element(code, layout.kinds, arrays, place, lanes) for place in places]
            registers = merge_registers(code, registers, block // 2) if merge else sort_registers(code, registers)
            for place, register in zip(places, registers, strict=True):
                store_element(code, arrays, place, register)

    def halves(distance: Value, mirrored: bool) -> None:
        """Compares each element with that `distance` further, or mirrored in the middle of twice that."""
        twice = code.add(distance, distance)
        zero = code.integer(0)
        with looping(code, zero, lambda i: code.compare("lt", i, count), lambda i: code.add(i, twice)) as group:
            end = code.add(group, twice)
            beyond = code.intrinsic("smax", code.sub(end, count), code.integer(0))
            first, stop = (beyond, distance) if mirrored else (code.integer(0), code.sub(distance, beyond))
            with code.loop(first, stop, lanes) as i:
                here = code.add(group, i)
                there = code.sub(code.sub(end, code.integer(lanes)), i) if mirrored else code.add(here, distance)
                a, b = (load_element(code, layout.kinds, arrays, place, lanes) for place in (here, there))
                low, high = exchange(code, a, backwards(code, b) if mirrored else b)
                store_element(code, arrays, here, low)
                store_element(code, arrays, there, backwards(code, high) if mirrored else high)

    blocks(merge=False)
    one, least = code.integer(1), code.integer(block)
    with looping(code, least, lambda run: code.compare("lt", run, count), lambda run: code.add(run, run)) as run:
        halves(run, mirrored=True)
        half = code.shr(run, one)
        with looping(code, half, lambda i: code.compare("ge", i, least), lambda i: code.shr(i, one)) as distance:
            halves(distance, mirrored=False)
        blocks(merge=True)
    code.ret()
    return code
