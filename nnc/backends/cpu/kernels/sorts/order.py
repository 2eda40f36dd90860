"""Networks that sort keys (nnc.lower.kernels.keys) in registers, and a quicksort that ends in them.

Keys of at most 32 bits are sorted as uint32, or with the element's position in the low half of a uint64; longer ones beside the
position.

The networks are bitonic (Batcher, 1968) in the form in which every comparison puts the smaller element first: runs of equal
length are merged by comparing elements e and e ^ (2s - 1), then e and e ^ s/2, e ^ s/4, …. So the padding of a row, the greatest
key, stays at its end, and comparisons with elements behind it can be left out.
"""

from __future__ import annotations

from nnc.backends.printer import looping
from nnc.base import dtypes
from nnc.base.dtypes import DType
from nnc.base.records import record
from nnc.base.target import Target
from nnc.lower.kernels.builder import Code, Value
from nnc.lower.kernels.keys import Element, comes_before, load_element, place_of, select_element, store_element
from nnc.lower.kernels.values import first_lanes


@record
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


# -- quicksort ---------------------------------------------------------------------------------------------------------

# Prints a quicksort of keys by whole vectors, for processors that can put chosen lanes of a vector side by side.
#
# A vector of keys is compared with the pivot; keys that are not greater are written to the front, the others to spare memory, and
# brought back to the end: no branch depends on a key. Pieces that some registers hold are sorted by a network. The pivot is the
# median of a sample from places that a generator of random numbers moves, so n log n steps are to be expected in any order.
# (Bramas, "A novel hybrid quicksort algorithm vectorized using AVX-512", 2017.)


_REGISTERS = (4, 8)
_DEPTH = 64  # pieces that wait: the longer one of two does, so each is at most half as long as the one before
_FACTOR = 6364136223846793005  # of Knuth's generator of random numbers
LEAST = 48  # keys from which a pivot is chosen


def has_quicksort(layout: SortLayout) -> bool:
    """Whether elements are sorted this way: keys without anything beside them, where vectors can be compressed."""
    return len(layout.kinds) == 1 and layout.machine.vector_bytes == 64 and layout.machine.has_masks


def quicksort(name: str, layout: SortLayout) -> list[Code]:
    """`void name(array, spare, i64 count)`, and the functions that it calls: sorts keys; `spare` is memory for as many."""
    return [_split(f"{name}.split", layout), _sort(name, layout)]


def _compress(code: Code, x: Value, mask: Value) -> Value:
    """Returns the chosen lanes, side by side from the first on."""
    kind = "i32" if x.dtype.itemsize == 4 else "i64"
    full = f"llvm.experimental.vector.compress.v{x.lanes}{kind}"
    code.declare(f"declare {x.type} @{full}({x.type}, <{x.lanes} x i1>, {x.type})")
    return Value(code.let(f"call {x.type} @{full}({x.typed}, {mask.typed}, {x.type} poison)"), x.dtype, x.lanes)


def count_lanes(code: Code, mask: Value) -> Value:
    """Counts the chosen lanes."""
    bits = code.let(f"bitcast {mask.typed} to i{mask.lanes}")
    code.declare(f"declare i{mask.lanes} @llvm.ctpop.i{mask.lanes}(i{mask.lanes})")
    count = code.let(f"call i{mask.lanes} @llvm.ctpop.i{mask.lanes}(i{mask.lanes} {bits})")
    return Value(code.let(f"zext i{mask.lanes} {count} to i64"), dtypes.int64)


def _split(name: str, layout: SortLayout) -> Code:
    """`i64 name(array, spare, i64 count, pivot)`: keys up to the pivot first; returns how many these are."""
    kind, lanes = layout.kinds[0], layout.lanes
    code = Code(
        name, [("ptr", "array"), ("ptr", "spare"), ("i64", "count"), (f"i{8 * kind.itemsize}", "pivot")], "internal i64"
    )
    count, pivot = Value("%count", dtypes.int64), code.splat(Value("%pivot", kind), lanes)
    whole = code.and_(count, code.integer(-lanes))
    lows = code.slot(code.integer(0))
    with code.loop(0, whole, lanes) as i:
        keys = code.load(place_of(code, "%array", i, kind), kind, lanes)
        is_low, low = code.compare("le", keys, pivot), code.read(lows)
        code.store(place_of(code, "%array", low, kind), _compress(code, keys, is_low))
        code.store(place_of(code, "%spare", code.sub(i, low), kind), _compress(code, keys, code.not_(is_low)))
        code.write(lows, code.add(low, count_lanes(code, is_low)))
    rest = code.sub(count, whole)
    with code.when(code.compare("gt", rest, code.integer(0))):
        there = first_lanes(code, rest, lanes)
        keys = code.load(place_of(code, "%array", whole, kind), kind, lanes, there)
        is_low, low = code.and_(code.compare("le", keys, pivot), there), code.read(lows)
        more = count_lanes(code, is_low)
        first, others = first_lanes(code, more, lanes), first_lanes(code, code.sub(rest, more), lanes)
        is_high = code.and_(code.not_(is_low), there)
        code.store(place_of(code, "%array", low, kind), _compress(code, keys, is_low), first)
        code.store(place_of(code, "%spare", code.sub(whole, low), kind), _compress(code, keys, is_high), others)
        code.write(lows, code.add(low, more))
    low = code.read(lows)
    highs, end = code.sub(count, low), place_of(code, "%array", low, kind)
    whole = code.and_(highs, code.integer(-lanes))
    with code.loop(0, whole, lanes) as i:
        code.store(place_of(code, end, i, kind), code.load(place_of(code, "%spare", i, kind), kind, lanes))
    last = first_lanes(code, code.sub(highs, whole), lanes)
    code.store(
        place_of(code, end, whole, kind), code.load(place_of(code, "%spare", whole, kind), kind, lanes, last), last
    )
    code.ret(low)
    return code


def _sort(name: str, layout: SortLayout) -> Code:
    kind, lanes = layout.kinds[0], layout.lanes
    most = _REGISTERS[-1] * lanes
    code = Code(name, [("ptr", "array"), ("ptr", "spare"), ("i64", "count")], "internal void")
    zero, one = code.integer(0), code.integer(1)
    firsts, counts = code.room(8 * _DEPTH), code.room(8 * _DEPTH)
    code.store(firsts, zero)
    code.store(counts, Value("%count", dtypes.int64))
    begin, size, random = code.slot(zero), code.slot(zero), code.slot(one)
    top = code.slot(one)

    with looping(code, one, lambda i: code.compare("gt", code.read(top), zero), lambda i: i):
        last = code.sub(code.read(top), one)
        code.write(top, last)
        code.write(begin, code.load(place_of(code, firsts, last, dtypes.int64), dtypes.int64))
        code.write(size, code.load(place_of(code, counts, last, dtypes.int64), dtypes.int64))
        with looping(code, one, lambda i: code.compare("gt", code.read(size), code.integer(most)), lambda i: i):
            first, n = code.read(begin), code.read(size)
            array = place_of(code, "%array", first, kind)
            code.write(random, code.add(code.read(random), n))
            pivot, lows = split_at_pivot(code, name, layout, array, "%spare", n, code.read(random))
            is_last = code.compare("eq", lows, n)  # no key is greater than the pivot: equal ones are at their place
            with code.when(is_last):
                fewer = _split_at(code, name, array, "%spare", n, code.sub(pivot, code.like(pivot, 1)))
                code.write(size, code.select(code.compare("eq", pivot, code.like(pivot, 0)), zero, fewer))
            with code.when(code.not_(is_last)):
                highs, second = code.sub(n, lows), code.add(first, lows)
                is_less = code.compare("lt", lows, highs)
                at = code.read(top)
                code.store(place_of(code, firsts, at, dtypes.int64), code.select(is_less, second, first))
                code.store(place_of(code, counts, at, dtypes.int64), code.select(is_less, highs, lows))
                code.write(top, code.add(at, one))
                code.write(begin, code.select(is_less, first, second))
                code.write(size, code.select(is_less, lows, highs))
        first, n = code.read(begin), code.read(size)
        array = place_of(code, "%array", first, kind)
        for less, registers in zip((0, *_REGISTERS), _REGISTERS, strict=False):
            fits = code.compare("le", n, code.integer(registers * lanes))
            with code.when(code.and_(code.compare("gt", n, code.integer(less * lanes)), fits)):
                _network(code, array, n, registers, layout)
    code.ret()
    return code


def split_at_pivot(
    code: Code, name: str, layout: SortLayout, array: str, spare: str, n: Value, seed: Value
) -> tuple[Value, Value]:
    """Chooses a pivot and brings the keys up to it to the front: the pivot, and how many these are. n is `LEAST` or more."""
    pivot = _pivot(code, array, n, seed, layout)
    return pivot, _split_at(code, name, array, spare, n, pivot)


def _split_at(code: Code, name: str, array: str, spare: str, n: Value, pivot: Value) -> Value:
    return Value(code.let(f"call i64 @{name}.split(ptr {array}, ptr {spare}, {n.typed}, {pivot.typed})"), dtypes.int64)


def _pivot(code: Code, array: str, n: Value, seed: Value, layout: SortLayout) -> Value:
    """The median of three medians, each of three keys, one from each third of the keys at a random distance from its start."""
    kind, lanes = layout.kinds[0], layout.lanes
    third = code.div(n, code.integer(3))
    random = code.bitcast(code.mul(seed, code.integer(_FACTOR)), dtypes.uint64)
    part = code.shr(random, code.constant(32, dtypes.uint64))
    room = code.bitcast(code.sub(third, code.integer(lanes)), dtypes.uint64)
    inside = code.bitcast(code.shr(code.mul(part, room), code.constant(32, dtypes.uint64)), dtypes.int64)
    places = [code.add(code.mul(third, code.integer(k)), inside) for k in range(3)]
    medians = _median(code, *(code.load(place_of(code, array, place, kind), kind, lanes) for place in places))
    turned = [code.shuffle(medians, [(lane + lanes * k // 3) % lanes for lane in range(lanes)]) for k in range(3)]
    return Value(code.let(f"extractelement {_median(code, *turned).typed}, i64 0"), kind)


def _median(code: Code, x: Value, y: Value, z: Value) -> Value:
    low, high = code.intrinsic("umin", x, y), code.intrinsic("umax", x, y)
    return code.intrinsic("umax", low, code.intrinsic("umin", high, z))


def _network(code: Code, array: str, n: Value, count: int, layout: SortLayout) -> None:
    """Sorts keys that so many registers hold."""
    kind, lanes = layout.kinds[0], layout.lanes
    padding = code.constant((1 << 8 * kind.itemsize) - 1, kind, lanes)
    masks = [first_lanes(code, code.sub(n, code.integer(k * lanes)), lanes) for k in range(count)]
    places = [code.offset(array, k * lanes * kind.itemsize) for k in range(count)]
    pairs = zip(places, masks, strict=True)
    registers: list[Element] = [(code.select(mask, code.load(at, kind, lanes, mask), padding),) for at, mask in pairs]
    for at, mask, (keys,) in zip(places, masks, sort_registers(code, registers), strict=True):
        code.store(at, keys, mask)
