"""Prints a quicksort of keys by whole vectors, for processors that can put chosen lanes of a vector side by side.

A vector of keys is compared with the pivot; keys that are not greater are written to the front, the others to spare memory, and
brought back to the end: no branch depends on a key. Pieces that some registers hold are sorted by a network. The pivot is the
median of a sample from places that a generator of random numbers moves, so n log n steps are to be expected in any order.
(Bramas, "A novel hybrid quicksort algorithm vectorized using AVX-512", 2017.)
"""

from __future__ import annotations

from nnc.backends.cpu.kernels.sorts.order import Element, SortLayout, sort_registers
from nnc.backends.printer import looping
from nnc.base import dtypes
from nnc.base.dtypes import DType
from nnc.lower.kernels.builder import Code, Value
from nnc.lower.kernels.values import first_lanes

_REGISTERS = (4, 8)
_DEPTH = 64  # pieces that wait: the longer one of two does, so each is at most half as long as the one before
_FACTOR = 6364136223846793005  # of Knuth's generator of random numbers
LEAST = 48  # keys from which a pivot is chosen


def has_quicksort(layout: SortLayout) -> bool:
    """Whether elements are sorted this way: keys without anything beside them, where vectors can be compressed."""
    return len(layout.kinds) == 1 and layout.machine.vector_bytes == 64


def quicksort(name: str, layout: SortLayout) -> list[Code]:
    """`void name(array, spare, i64 count)`, and the functions that it calls: sorts keys; `spare` is memory for as many."""
    return [_split(f"{name}.split", layout), _sort(name, layout)]


def _at(code: Code, array: str, i: Value, kind: DType) -> str:
    return code.offset(array, code.mul(i, code.integer(kind.itemsize)))


def _compress(code: Code, x: Value, mask: Value) -> Value:
    """Returns the chosen lanes, side by side from the first on."""
    kind = "i32" if x.dtype.itemsize == 4 else "i64"
    full = f"llvm.experimental.vector.compress.v{x.lanes}{kind}"
    code.declare(f"declare {x.type} @{full}({x.type}, <{x.lanes} x i1>, {x.type})")
    return Value(code.let(f"call {x.type} @{full}({x.typed}, {mask.typed}, {x.type} poison)"), x.dtype, x.lanes)


def _count(code: Code, mask: Value) -> Value:
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
        keys = code.load(_at(code, "%array", i, kind), kind, lanes)
        is_low, low = code.compare("le", keys, pivot), code.read(lows)
        code.store(_at(code, "%array", low, kind), _compress(code, keys, is_low))
        code.store(_at(code, "%spare", code.sub(i, low), kind), _compress(code, keys, code.not_(is_low)))
        code.write(lows, code.add(low, _count(code, is_low)))
    rest = code.sub(count, whole)
    with code.when(code.compare("gt", rest, code.integer(0))):
        there = first_lanes(code, rest, lanes)
        keys = code.load(_at(code, "%array", whole, kind), kind, lanes, there)
        is_low, low = code.and_(code.compare("le", keys, pivot), there), code.read(lows)
        more = _count(code, is_low)
        first, others = first_lanes(code, more, lanes), first_lanes(code, code.sub(rest, more), lanes)
        is_high = code.and_(code.not_(is_low), there)
        code.store(_at(code, "%array", low, kind), _compress(code, keys, is_low), first)
        code.store(_at(code, "%spare", code.sub(whole, low), kind), _compress(code, keys, is_high), others)
        code.write(lows, code.add(low, more))
    low = code.read(lows)
    highs, end = code.sub(count, low), _at(code, "%array", low, kind)
    whole = code.and_(highs, code.integer(-lanes))
    with code.loop(0, whole, lanes) as i:
        code.store(_at(code, end, i, kind), code.load(_at(code, "%spare", i, kind), kind, lanes))
    last = first_lanes(code, code.sub(highs, whole), lanes)
    code.store(_at(code, end, whole, kind), code.load(_at(code, "%spare", whole, kind), kind, lanes, last), last)
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

    def place(array: str, i: Value) -> str:
        return code.offset(array, code.mul(i, code.integer(8)))

    with looping(code, one, lambda i: code.compare("gt", code.read(top), zero), lambda i: i):
        last = code.sub(code.read(top), one)
        code.write(top, last)
        code.write(begin, code.load(place(firsts, last), dtypes.int64))
        code.write(size, code.load(place(counts, last), dtypes.int64))
        with looping(code, one, lambda i: code.compare("gt", code.read(size), code.integer(most)), lambda i: i):
            first, n = code.read(begin), code.read(size)
            array = _at(code, "%array", first, kind)
            code.write(random, code.add(code.read(random), n))
            pivot, lows = split_at_pivot(code, name, layout, array, "%spare", n, code.read(random))
            is_last = code.compare(
                "eq", lows, n
            )  # no key is greater than the pivot: keys equal to it are at their place
            with code.when(is_last):
                fewer = _split_at(code, name, array, "%spare", n, code.sub(pivot, code.like(pivot, 1)))
                code.write(size, code.select(code.compare("eq", pivot, code.like(pivot, 0)), zero, fewer))
            with code.when(code.not_(is_last)):
                highs, second = code.sub(n, lows), code.add(first, lows)
                is_less = code.compare("lt", lows, highs)
                at = code.read(top)
                code.store(place(firsts, at), code.select(is_less, second, first))
                code.store(place(counts, at), code.select(is_less, highs, lows))
                code.write(top, code.add(at, one))
                code.write(begin, code.select(is_less, first, second))
                code.write(size, code.select(is_less, lows, highs))
        first, n = code.read(begin), code.read(size)
        array = _at(code, "%array", first, kind)
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
    medians = _median(code, *(code.load(_at(code, array, place, kind), kind, lanes) for place in places))
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
    registers: list[Element] = []
    for at, mask in zip(places, masks, strict=True):
        registers.append((code.select(mask, code.load(at, kind, lanes, mask), padding),))
    for at, mask, (keys,) in zip(places, masks, sort_registers(code, registers), strict=True):
        code.store(at, keys, mask)
