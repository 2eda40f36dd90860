"""Instructions on integers and bits."""

from __future__ import annotations

import operator
from collections.abc import Callable

import numpy as np

from nnc.testing.devices.ptx.decoding import Compute, Decode, Modifiers, Scope, Step, elementwise
from nnc.testing.devices.ptx.syntax import CARRY, Instruction
from nnc.testing.devices.ptx.values import PRED, TYPES, U32, Array, Mask, Type, join, split
from nnc.testing.devices.ptx.wave import Wave


def by_parts(function: Compute, kind: Type) -> Compute:
    """Returns a function that applies `function` to each part of packed numbers; numbers of other types it gets whole."""
    part = kind.part
    if part is None:
        return function

    def packed(*operands: Array) -> Array:
        parts = zip(*(split(each, part.bits) for each in operands), strict=True)
        results = [function(*(each.view(part.dtype) for each in given)) for given in parts]
        return join([np.ascontiguousarray(each).view(part.unsigned) for each in results])

    return packed


def multiply_high(x: Array, y: Array) -> Array:
    """Returns the upper half of the products of two arrays of one integer dtype."""
    bits = 8 * x.dtype.itemsize
    if bits < 64:
        wide = np.dtype(f"{x.dtype.kind}{2 * x.dtype.itemsize}")
        return ((x.astype(wide) * y.astype(wide)) >> wide.type(bits)).astype(x.dtype)
    left, right = x.view(np.uint64), y.view(np.uint64)
    half, low = np.uint64(32), np.uint64(0xFFFFFFFF)
    first, second = (left & low) * (right & low), (left >> half) * (right & low)
    third = (left & low) * (right >> half) + (first >> half) + (second & low)
    high = (left >> half) * (right >> half) + (second >> half) + (third >> half)
    if x.dtype.kind == "i":  # bits of a negative number stand for it plus 2**64
        high = high - np.where(x < 0, right, np.uint64(0)) - np.where(y < 0, left, np.uint64(0))
    return high.view(x.dtype)


def _multiply_wide(x: Array, y: Array) -> Array:
    wide = np.dtype(f"{x.dtype.kind}{2 * x.dtype.itemsize}")
    return x.astype(wide) * y.astype(wide)


def _magnitude(x: Array) -> Array:
    unsigned = np.dtype(f"u{x.dtype.itemsize}")
    return np.where(x < 0, np.negative(x.view(unsigned)), x.view(unsigned)) if x.dtype.kind == "i" else x


def _divide(x: Array, y: Array) -> Array:
    """Returns the quotient, rounded towards 0; all bits of a division by 0 are set."""
    size, by = _magnitude(x), _magnitude(y)
    quotient = size // np.where(by == 0, size.dtype.type(1), by)
    quotient = np.where((x < 0) != (y < 0), np.negative(quotient), quotient)
    return np.where(y == 0, ~size.dtype.type(0), quotient).view(x.dtype)


def _remainder(x: Array, y: Array) -> Array:
    return x - y * np.where(y == 0, x.dtype.type(0), _divide(x, y))


def _shift_left(x: Array, by: Array) -> Array:
    bits = 8 * x.dtype.itemsize
    return np.where(by < bits, x << np.minimum(by, bits - 1).astype(x.dtype), x.dtype.type(0))


def _shift_right(x: Array, by: Array) -> Array:
    bits = 8 * x.dtype.itemsize
    shifted = x >> np.minimum(by, bits - 1).astype(x.dtype)
    return shifted if x.dtype.kind == "i" else np.where(by < bits, shifted, x.dtype.type(0))


def _funnel(x: Array, y: Array, by: Array) -> tuple[Array, Array]:
    return (y.astype(np.uint64) << np.uint64(32)) | x, by.astype(np.uint64)


def _funnel_left(low: Array, high: Array, by: Array) -> Array:
    both, by = _funnel(low, high, by)
    return ((both << by) >> np.uint64(32)).astype(np.uint32)


def _funnel_right(low: Array, high: Array, by: Array) -> Array:
    both, by = _funnel(low, high, by)
    return (both >> by).astype(np.uint32)


def _extract(x: Array, first: Array, count: Array) -> Array:
    """Returns the bits of a field; signed ones repeat its top bit."""
    bits = 8 * x.dtype.itemsize
    first, count = first & 0xFF, np.minimum(count & 0xFF, bits)
    field = _shift_right(x, first).view(f"u{x.dtype.itemsize}")
    field = field & _ones(count, field.dtype)
    if x.dtype.kind == "u":
        return field
    top = np.clip(first.astype(np.int64) + count - 1, 0, bits - 1).astype(np.uint32)
    sign = (_shift_right(x, top) & x.dtype.type(1)) == 1
    return np.where(
        count == 0, x.dtype.type(0), np.where(sign, field | ~_ones(count, field.dtype), field).view(x.dtype)
    )


def _ones(count: Array, dtype: np.dtype[np.generic]) -> Array:
    return _shift_left(np.ones(1, dtype), count) - np.ones(1, dtype)


def _insert(field: Array, x: Array, first: Array, count: Array) -> Array:
    first, count = first & 0xFF, np.minimum(count & 0xFF, 8 * x.dtype.itemsize)
    mask = _shift_left(_ones(count, x.dtype), first)
    return (x & ~mask) | (_shift_left(field, first) & mask)


def _permute(x: Array, y: Array, selector: Array) -> Array:
    """Bytes of two words as four nibbles select them; the top bit of a nibble repeats the byte's sign."""
    both = (y.astype(np.uint64) << np.uint64(32)) | x
    result = np.zeros(1, np.uint32)
    for k in range(4):
        nibble = (selector >> np.uint32(4 * k)) & np.uint32(15)
        byte = ((both >> (np.uint64(8) * (nibble & np.uint32(7)))) & np.uint64(0xFF)).astype(np.uint32)
        byte = np.where(nibble & np.uint32(8), np.where(byte & np.uint32(0x80), np.uint32(0xFF), np.uint32(0)), byte)
        result = result | (byte << np.uint32(8 * k))
    return result


def _logic(x: Array, y: Array, z: Array, table: Array) -> Array:
    """Any function of three bits, whose eight results the table has."""
    result = np.zeros(1, np.uint32)
    for k in range(8):
        term = (x if k & 4 else ~x) & (y if k & 2 else ~y) & (z if k & 1 else ~z)
        result = result | np.where(table >> np.uint32(k) & np.uint32(1), term, np.uint32(0))
    return result


def _top_bit(x: Array) -> Array:
    """Returns the number of the highest bit that is set, or -1."""
    found = np.full(x.shape, -1, np.int64)
    rest = x
    for shift in (32, 16, 8, 4, 2, 1):
        if shift < 8 * x.dtype.itemsize:
            above = rest >> x.dtype.type(shift)
            found = np.where(above != 0, found + shift, found)
            rest = np.where(above != 0, above, rest)
    return np.where(rest != 0, found + 1, -1)


def _leading_zeros(x: Array) -> Array:
    return (8 * x.dtype.itemsize - 1 - _top_bit(x)).astype(np.uint32)


def _find_top(x: Array) -> Array:
    if x.dtype.kind == "i":
        x = np.where(x < 0, ~x, x).view(f"u{x.dtype.itemsize}")
    return _top_bit(x).astype(np.int32)


def _shift_to_top(x: Array) -> Array:
    found = _find_top(x)
    return np.where(found < 0, -1, 8 * x.dtype.itemsize - 1 - found).astype(np.int32)


def _reverse(x: Array) -> Array:
    bits = np.unpackbits(
        np.ascontiguousarray(x).view(np.uint8).reshape(-1, x.dtype.itemsize), axis=1, bitorder="little"
    )
    return np.packbits(bits[:, ::-1], axis=1, bitorder="little").view(x.dtype)[:, 0]


def _count_ones(x: Array) -> Array:
    return np.bitwise_count(x).astype(np.uint32)


def _add_saturated(x: Array, y: Array) -> Array:
    return np.clip(x.astype(np.int64) + y, -(2**31), 2**31 - 1).astype(np.int32)


def _subtract_saturated(x: Array, y: Array) -> Array:
    return np.clip(x.astype(np.int64) - y, -(2**31), 2**31 - 1).astype(np.int32)


def _with_carry(is_sum: bool) -> Decode:
    """Decodes sums and differences of longer numbers, which read or write the carry."""

    def decode(instruction: Instruction, scope: Scope) -> Step:
        modifiers = Modifiers(instruction, scope)
        reads, writes = instruction.name.endswith("c"), bool(modifiers.take("cc"))
        (kind,) = modifiers.finish(1, operands=(3,))
        bits = TYPES[f"b{kind.bits}"]
        write, write_carry = scope.write(instruction.operands[0]), scope.write(CARRY if writes else "_")
        left, right = (scope.read(text, bits) for text in instruction.operands[1:])
        read_carry = scope.read(CARRY if reads else "0", PRED)

        def step(wave: Wave, mask: Mask) -> None:
            x, y, carry = left(wave, mask), right(wave, mask), read_carry(wave, mask)
            if is_sum:
                result = x + y + carry
                over = (result < x) | (carry & (result == x))
            else:
                result = x - y - carry
                over = (x < y) | (carry & (x == y))
            write(wave, mask, result)
            write_carry(wave, mask, over)

        return step

    return decode


def _same(function: Compute, count: int) -> Decode:
    """Decodes an instruction whose operands and result have one type."""

    def decode(instruction: Instruction, scope: Scope) -> Step:
        (kind,) = Modifiers(instruction, scope).finish(1)
        return elementwise(instruction, scope, [kind] * count, by_parts(function, kind))

    return decode


def _with_saturation(function: Compute, saturated: Compute) -> Decode:
    def decode(instruction: Instruction, scope: Scope) -> Step:
        modifiers = Modifiers(instruction, scope)
        if "cc" in instruction.modifiers:
            return _with_carry(instruction.name == "add")(instruction, scope)
        chosen = saturated if modifiers.take("sat") else function
        (kind,) = modifiers.finish(1)
        return elementwise(instruction, scope, [kind, kind], by_parts(chosen, kind))

    return decode


_PRODUCTS: dict[str, Callable[[Array, Array], Array]] = {
    "lo": operator.mul, "hi": multiply_high, "wide": _multiply_wide,
}  # fmt: skip


def _multiply(instruction: Instruction, scope: Scope) -> Step:
    modifiers = Modifiers(instruction, scope)
    product = _PRODUCTS[modifiers.need(*_PRODUCTS)]
    (kind,) = modifiers.finish(1)
    return elementwise(instruction, scope, [kind, kind], product)


def _multiply_add(instruction: Instruction, scope: Scope) -> Step:
    modifiers = Modifiers(instruction, scope)
    part = modifiers.need(*_PRODUCTS)
    product = _PRODUCTS[part]
    (kind,) = modifiers.finish(1)
    wide = TYPES[f"{kind.kind}{2 * kind.bits}"] if part == "wide" else kind
    return elementwise(instruction, scope, [kind, kind, wide], lambda x, y, z: product(x, y) + z)


def _shift(function: Compute) -> Decode:
    def decode(instruction: Instruction, scope: Scope) -> Step:
        (kind,) = Modifiers(instruction, scope).finish(1)
        return elementwise(instruction, scope, [kind, U32], function)

    return decode


def _funnel_shift(instruction: Instruction, scope: Scope) -> Step:
    modifiers = Modifiers(instruction, scope)
    function = _funnel_left if modifiers.need("l", "r") == "l" else _funnel_right
    wraps = modifiers.need("wrap", "clamp") == "wrap"
    (kind,) = modifiers.finish(1)

    def shift(x: Array, y: Array, by: Array) -> Array:
        return function(x, y, by & np.uint32(31) if wraps else np.minimum(by, np.uint32(32)))

    return elementwise(instruction, scope, [kind, kind, U32], shift)


def _fields(function: Compute, values: int) -> Decode:
    def decode(instruction: Instruction, scope: Scope) -> Step:
        (kind,) = Modifiers(instruction, scope).finish(1)
        return elementwise(instruction, scope, [kind] * values + [U32, U32], function)

    return decode


def _find(instruction: Instruction, scope: Scope) -> Step:
    modifiers = Modifiers(instruction, scope)
    function = _shift_to_top if modifiers.take("shiftamt") else _find_top
    (kind,) = modifiers.finish(1)
    return elementwise(instruction, scope, [kind], function)


DECODERS: dict[str, Decode] = {
    "mul": _multiply,
    "mad": _multiply_add,
    "div": _same(_divide, 2),
    "rem": _same(_remainder, 2),
    "add": _with_saturation(operator.add, _add_saturated),
    "sub": _with_saturation(operator.sub, _subtract_saturated),
    "addc": _with_carry(is_sum=True),
    "subc": _with_carry(is_sum=False),
    "min": _same(np.minimum, 2),
    "max": _same(np.maximum, 2),
    "abs": _same(lambda x: _magnitude(x).view(x.dtype), 1),
    "neg": _same(np.negative, 1),
    "sad": _same(lambda x, y, z: z + np.where(x < y, y - x, x - y), 3),
    "and": _same(operator.and_, 2),
    "or": _same(operator.or_, 2),
    "xor": _same(operator.xor, 2),
    "not": _same(np.invert, 1),
    "cnot": _same(lambda x: (x == 0).astype(x.dtype), 1),
    "shl": _shift(_shift_left),
    "shr": _shift(_shift_right),
    "shf": _funnel_shift,
    "bfe": _fields(_extract, 1),
    "bfi": _fields(_insert, 2),
    "bfind": _find,
    "brev": _same(_reverse, 1),
    "clz": _same(_leading_zeros, 1),
    "popc": _same(_count_ones, 1),
    "prmt": _same(_permute, 3),
    "lop3": _same(_logic, 4),
}
