"""Instructions on integers and bits agree with Python's integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.testing.devices.ptx.launching import compute, kernel, launch

COUNT = 96
seeds = st.integers(0, 2**32 - 1)
few = settings(max_examples=6, deadline=None)


def random(kind: str, generator: np.random.Generator, count: int = COUNT) -> Any:
    """Returns integers of any size: small ones, the ends of the type, and ones of any bits."""
    bits = int(kind[1:])
    dtype = np.dtype(f"{'i' if kind[0] == 's' else 'u'}{bits // 8}")
    raw = generator.integers(0, 2**bits, count, dtype=np.uint64) >> generator.integers(0, bits, count).astype(np.uint64)
    ends = np.array([0, 1, 2, 2**bits - 1, 2**bits - 2, 2 ** (bits - 1), 2 ** (bits - 1) - 1], np.uint64)
    chosen = np.where(generator.integers(0, 4, count) == 0, generator.choice(ends, count), raw)
    return chosen.astype(f"u{bits // 8}").view(dtype)


def check(opcode: str, result: str, function: Callable[..., int], *operands: Any, immediates: str = "") -> None:
    """Compares an instruction with a function of Python's integers, of which the lowest bits count."""
    bits = int(result[1:])
    dtype = np.dtype(f"u{bits // 8}")
    expected = [function(*(int(x) for x in values)) % 2**bits for values in zip(*operands, strict=True)]
    found = compute(opcode, dtype, *operands, immediates=immediates)
    assert [int(x) for x in found] == expected, opcode


def truncated(x: int, y: int) -> int:
    return abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1) if y else -1


def remainder(x: int, y: int) -> int:
    return x - y * truncated(x, y) if y else x


def limited(x: int) -> int:
    return max(-(2**31), min(2**31 - 1, x))


@pytest.mark.parametrize("kind", ["u16", "s16", "u32", "s32", "u64", "s64"])
@given(seed=seeds)
@few
def test_arithmetic_wraps(kind: str, seed: int) -> None:
    generator, bits = np.random.default_rng(seed), int(kind[1:])
    x, y, z = (random(kind, generator) for _ in range(3))
    check(f"add.{kind}", kind, lambda a, b: a + b, x, y)
    check(f"sub.{kind}", kind, lambda a, b: a - b, x, y)
    check(f"mul.lo.{kind}", kind, lambda a, b: a * b, x, y)
    check(f"mul.hi.{kind}", kind, lambda a, b: a * b >> bits, x, y)
    check(f"mad.lo.{kind}", kind, lambda a, b, c: a * b + c, x, y, z)
    check(f"div.{kind}", kind, truncated, x, y)
    check(f"rem.{kind}", kind, remainder, x, y)
    check(f"min.{kind}", kind, min, x, y)
    check(f"max.{kind}", kind, max, x, y)
    check(f"sad.{kind}", kind, lambda a, b, c: c + abs(a - b), x, y, z)
    if kind[0] == "s":
        check(f"neg.{kind}", kind, lambda a: -a, x)
        check(f"abs.{kind}", kind, abs, x)


@pytest.mark.parametrize("kind", ["u16", "s16", "u32", "s32"])
@given(seed=seeds)
@few
def test_wide_products_are_whole(kind: str, seed: int) -> None:
    generator, wide = np.random.default_rng(seed), f"{kind[0]}{2 * int(kind[1:])}"
    x, y = (random(kind, generator) for _ in range(2))
    check(f"mul.wide.{kind}", wide, lambda a, b: a * b, x, y)
    check(f"mad.wide.{kind}", wide, lambda a, b, c: a * b + c, x, y, random(wide, generator))


@given(seed=seeds)
@few
def test_sums_saturate_where_the_instruction_says_so(seed: int) -> None:
    generator = np.random.default_rng(seed)
    x, y = (random("s32", generator) for _ in range(2))
    check("add.sat.s32", "s32", lambda a, b: limited(a + b), x, y)
    check("sub.sat.s32", "s32", lambda a, b: limited(a - b), x, y)


@pytest.mark.parametrize("bits", [16, 32, 64])
@given(seed=seeds)
@few
def test_shifts_by_more_than_the_width_move_all_bits_out(bits: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    x, signed = random(f"u{bits}", generator), random(f"s{bits}", generator)
    by = generator.integers(0, 2 * bits, COUNT).astype(np.uint32)
    by[0] = 0xFFFFFFFF
    check(f"shl.b{bits}", f"u{bits}", lambda a, n: a << min(n, bits), x, by)
    check(f"shr.u{bits}", f"u{bits}", lambda a, n: a >> min(n, bits), x, by)
    check(f"shr.s{bits}", f"u{bits}", lambda a, n: a >> min(n, bits), signed, by)


@given(seed=seeds)
@few
def test_funnel_shifts(seed: int) -> None:
    generator = np.random.default_rng(seed)
    low, high = random("u32", generator), random("u32", generator)
    by = generator.integers(0, 70, COUNT).astype(np.uint32)
    for mode, limit in (("wrap", lambda n: n & 31), ("clamp", lambda n: min(n, 32))):
        check(f"shf.l.{mode}.b32", "u32", lambda a, b, n, f=limit: ((b << 32 | a) << f(n)) >> 32, low, high, by)
        check(f"shf.r.{mode}.b32", "u32", lambda a, b, n, f=limit: (b << 32 | a) >> f(n), low, high, by)


def field(x: int, first: int, count: int, bits: int, signed: bool) -> int:
    """PTX's definition of `bfe`, bit by bit."""
    first, count = first & 255, count & 255
    digit = lambda i: x >> i & 1
    sign = digit(min(first + count - 1, bits - 1)) if signed and count else 0
    inside = [digit(first + i) if i < count and first + i < bits else sign for i in range(bits)]
    return sum(each << i for i, each in enumerate(inside))


def inserted(a: int, b: int, first: int, count: int, bits: int) -> int:
    first, count = first & 255, count & 255
    for i in range(count):
        if first + i < bits:
            b = b & ~(1 << first + i) | (a >> i & 1) << first + i
    return b


@pytest.mark.parametrize("bits", [32, 64])
@given(seed=seeds)
@few
def test_fields_of_bits(bits: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    x, y, signed = random(f"u{bits}", generator), random(f"u{bits}", generator), random(f"s{bits}", generator)
    first, count = (generator.integers(0, bits + 9, COUNT).astype(np.uint32) for _ in range(2))
    check(f"bfe.u{bits}", f"u{bits}", lambda a, s, n: field(a, s, n, bits, False), x, first, count)
    check(f"bfe.s{bits}", f"u{bits}", lambda a, s, n: field(a, s, n, bits, True), signed, first, count)
    check(f"bfi.b{bits}", f"u{bits}", lambda a, b, s, n: inserted(a, b, s, n, bits), x, y, first, count)


@pytest.mark.parametrize("bits", [32, 64])
@given(seed=seeds)
@few
def test_bits_are_counted_found_and_reversed(bits: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    x, y, signed = random(f"u{bits}", generator), random(f"u{bits}", generator), random(f"s{bits}", generator)
    top = lambda a: (~a if a < 0 else a).bit_length() - 1
    check(f"popc.b{bits}", "u32", lambda a: a.bit_count(), x)
    check(f"clz.b{bits}", "u32", lambda a: bits - a.bit_length(), x)
    check(f"bfind.u{bits}", "u32", top, x)
    check(f"bfind.s{bits}", "u32", top, signed)
    check(f"bfind.shiftamt.u{bits}", "u32", lambda a: bits - 1 - top(a) if a else -1, x)
    check(f"brev.b{bits}", f"u{bits}", lambda a: int(f"{a:0{bits}b}"[::-1], 2), x)
    check(f"not.b{bits}", f"u{bits}", lambda a: ~a, x)
    check(f"cnot.b{bits}", f"u{bits}", lambda a: int(a == 0), x)
    check(f"and.b{bits}", f"u{bits}", lambda a, b: a & b, x, y)
    check(f"or.b{bits}", f"u{bits}", lambda a, b: a | b, x, y)
    check(f"xor.b{bits}", f"u{bits}", lambda a, b: a ^ b, x, y)


@given(seed=seeds, table=st.integers(0, 255))
@few
def test_any_function_of_three_bits(seed: int, table: int) -> None:
    generator = np.random.default_rng(seed)
    x, y, z = (random("u32", generator) for _ in range(3))

    def logic(a: int, b: int, c: int) -> int:
        digits = ((a >> i & 1) << 2 | (b >> i & 1) << 1 | c >> i & 1 for i in range(32))
        return sum((table >> digit & 1) << i for i, digit in enumerate(digits))

    check("lop3.b32", "u32", logic, x, y, z, immediates=f", {table}")


@given(seed=seeds)
@few
def test_bytes_are_permuted(seed: int) -> None:
    generator = np.random.default_rng(seed)
    x, y, selector = (generator.integers(0, 2**32, COUNT, dtype=np.uint32) for _ in range(3))

    def permute(a: int, b: int, by: int) -> int:
        result = 0
        for k in range(4):
            nibble = by >> 4 * k & 15
            byte = (b << 32 | a) >> 8 * (nibble & 7) & 255
            result |= (255 * (byte >> 7) if nibble & 8 else byte) << 8 * k
        return result

    check("prmt.b32", "u32", permute, x, y, selector)


@pytest.mark.parametrize("kind", ["u16", "s16"])
def test_packed_integers_are_computed_one_by_one(kind: str) -> None:
    generator = np.random.default_rng(9)
    x, y = (random(kind, generator, 2 * COUNT) for _ in range(2))
    found = compute(f"max.{kind}x2", np.uint32, x.view(np.uint32), y.view(np.uint32)).view(x.dtype)
    np.testing.assert_array_equal(found, np.maximum(x, y))


def test_words_are_split_and_joined_by_moves() -> None:
    x = np.random.default_rng(10).integers(0, 2**64, COUNT, dtype=np.uint64)
    result = np.zeros_like(x)
    body = """
        ld.global.b64 %rd1, [%a0]; mov.b64 {%r1, %r2}, %rd1; mov.b64 {_, %r3}, %rd1;
        mov.b32 {%rs1, %rs2}, %r1; mov.b32 %r4, {%rs2, %rs1}; mov.b64 %rd2, {%r3, %r4}; st.global.b64 [%a1], %rd2;
    """
    launch(kernel(body, 2), 1, COUNT, [x], [result])
    low, high = x & np.uint64(0xFFFFFFFF), x >> np.uint64(32)
    turned = (low >> np.uint64(16)) | ((low & np.uint64(0xFFFF)) << np.uint64(16))
    np.testing.assert_array_equal(result, high | (turned << np.uint64(32)))


@given(seed=seeds)
@few
def test_long_numbers_are_added_by_parts(seed: int) -> None:
    generator = np.random.default_rng(seed)
    operands = [random("u64", generator) for _ in range(4)]
    body = """
        ld.global.b64 %rd1, [%a0]; ld.global.b64 %rd2, [%a1]; ld.global.b64 %rd3, [%a2]; ld.global.b64 %rd4, [%a3];
        add.cc.s64 %rd5, %rd1, %rd3; addc.cc.s64 %rd6, %rd2, %rd4; addc.s64 %rd7, 0, 0;
        sub.cc.u64 %rd8, %rd1, %rd3; subc.cc.u64 %rd9, %rd2, %rd4; subc.u64 %rd10, 0, 0;
        st.global.b64 [%a4], %rd5; st.global.b64 [%a5], %rd6; st.global.b64 [%a6], %rd7; st.global.b64 [%a7], %rd9;
        st.global.b64 [%a8], %rd10;
    """
    results = [np.zeros(COUNT, np.uint64) for _ in range(5)]
    launch(kernel(body, 9), 1, COUNT, operands, results)
    for x0, x1, y0, y1, low, high, over, difference, borrow in zip(*operands, *results, strict=True):
        x, y = int(x1) << 64 | int(x0), int(y1) << 64 | int(y0)
        assert int(over) << 128 | int(high) << 64 | int(low) == x + y
        assert int(difference) == (x - y >> 64) % 2**64 and bool(borrow) == (x < y)
