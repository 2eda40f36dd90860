"""Conversions round as fractions do, and saturate as PTX says."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.testing.devices.ptx.exact import FORMATS, rounded, same
from tests.unit.testing.devices.ptx.launching import compute, kernel, launch
from tests.unit.testing.devices.ptx.test_integers import random

COUNT = 128
seeds = st.integers(0, 2**32 - 1)
few = settings(max_examples=8, deadline=None)
TO_INTEGER = {"rni": round, "rzi": math.trunc, "rmi": math.floor, "rpi": math.ceil}


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize(
    ("source", "target"), [("f64", "f32"), ("f64", "f16"), ("f32", "f16"), ("f32", "bf16"), ("f64", "bf16")]
)
@given(seed=seeds)
@few
def test_a_number_is_rounded_to_a_narrower_format(source: str, target: str, mode: str, seed: int) -> None:
    generator, (wide, narrow) = np.random.default_rng(seed), (FORMATS[source], FORMATS[target])
    x = wide.random(generator, COUNT)
    near = np.array(narrow.values(narrow.random(generator, COUNT)))  # representable numbers, ties, and their neighbours
    with np.errstate(all="ignore"):
        near = (near * (1 + np.exp2(-narrow.precision) * generator.integers(-3, 4, COUNT))).astype(wide.dtype)
        near = np.where(generator.integers(0, 2, COUNT) == 1, near, np.nextafter(near, wide.dtype(0)))
    x = np.where(generator.integers(0, 2, COUNT) == 1, x, near)
    values = wide.values(x)
    expected = [rounded(Fraction(v), narrow, mode) if math.isfinite(v) and v != 0 else v for v in values]
    same(narrow.values(compute(f"cvt.{mode}.{target}.{source}", narrow.dtype, x)), expected, values)


@pytest.mark.parametrize(("source", "target"), [("f16", "f32"), ("bf16", "f32"), ("f32", "f64"), ("f16", "f64")])
def test_a_number_keeps_its_value_in_a_wider_format(source: str, target: str) -> None:
    x = FORMATS[source].random(np.random.default_rng(0), 512)
    result = compute(f"cvt.{target}.{source}", FORMATS[target].dtype, x)
    same(FORMATS[target].values(result), FORMATS[source].values(x))


@pytest.mark.parametrize("target", ["s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64"])
@pytest.mark.parametrize("source", ["f16", "bf16", "f32", "f64"])
@given(seed=seeds)
@few
def test_numbers_become_integers_and_saturate(source: str, target: str, seed: int) -> None:
    generator, form, bits = np.random.default_rng(seed), FORMATS[source], int(target[1:])
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if target[0] == "s" else (0, 2**bits - 1)
    x = form.random(generator, COUNT)
    if source in ("f32", "f64"):  # numbers near the ends, halves and quarters
        close = np.where(generator.integers(0, 2, COUNT) == 1, float(high), float(low))
        close = close * (1 + generator.integers(-2, 3, COUNT) * np.finfo(form.dtype).eps)
        small = generator.integers(-40, 40, COUNT) / 4
        with np.errstate(invalid="ignore"):  # NumPy quiets NaN
            x = np.select([generator.integers(0, 3, COUNT) == k for k in range(2)], [close, small], x).astype(
                form.dtype
            )
    dtype = np.dtype(f"{'i' if target[0] == 's' else 'u'}{max(bits // 8, 2)}")
    for mode, whole in TO_INTEGER.items():
        expected = []
        for value in form.values(x):
            if math.isfinite(value):
                expected.append(max(low, min(high, whole(Fraction(value)))))
            else:
                expected.append(0 if math.isnan(value) else high if value > 0 else low)
        result = compute(f"cvt.{mode}.{target}.{source}", dtype, x)
        assert [int(each) for each in result] == expected, mode


@pytest.mark.parametrize("target", ["f16", "bf16", "f32", "f64"])
@pytest.mark.parametrize("source", ["s16", "u16", "s32", "u32", "s64", "u64"])
@given(seed=seeds)
@few
def test_integers_are_rounded_to_numbers(source: str, target: str, seed: int) -> None:
    form = FORMATS[target]
    x = random(source, np.random.default_rng(seed), COUNT)
    modes = ["rn"] if target == "f64" else ["rn", "rz", "rm", "rp"]
    for mode in modes:
        expected = [rounded(Fraction(int(v)), form, mode) if v else 0.0 for v in x]
        same(form.values(compute(f"cvt.{mode}.{target}.{source}", form.dtype, x)), expected, x)


@pytest.mark.parametrize("source", ["s16", "u16", "s32", "u32", "s64", "u64"])
@pytest.mark.parametrize("target", ["s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64"])
def test_integers_wrap_or_saturate(source: str, target: str) -> None:
    x = random(source, np.random.default_rng(1), COUNT)
    bits = int(target[1:])
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if target[0] == "s" else (0, 2**bits - 1)
    dtype = np.dtype(f"{'i' if target[0] == 's' else 'u'}{max(bits // 8, 2)}")
    wrapped = [(int(v) - low) % 2**bits + low for v in x]
    assert [int(v) for v in compute(f"cvt.{target}.{source}", dtype, x)] == wrapped
    limited = [max(low, min(high, int(v))) for v in x]
    assert [int(v) for v in compute(f"cvt.sat.{target}.{source}", dtype, x)] == limited


@pytest.mark.parametrize("kind", ["f16", "f32", "f64"])
def test_numbers_are_rounded_to_whole_ones(kind: str) -> None:
    x = (np.random.default_rng(2).integers(-40, 40, COUNT) / 4).astype(FORMATS[kind].dtype)
    for mode, whole in TO_INTEGER.items():
        result = compute(f"cvt.{mode}.{kind}.{kind}", x.dtype, x)
        assert [float(v) for v in result] == [float(whole(Fraction(float(v)))) for v in x]


@pytest.mark.parametrize("part", ["f16", "bf16"])
def test_two_numbers_are_converted_into_one_register(part: str) -> None:
    x, y = (FORMATS["f32"].random(np.random.default_rng(seed), COUNT) for seed in (3, 4))
    packed = compute(f"cvt.rn.{part}x2.f32", np.uint32, x, y)
    high, low = (compute(f"cvt.rn.{part}.f32", np.uint16, each).astype(np.uint32) for each in (x, y))
    np.testing.assert_array_equal(packed, high << 16 | low)


def test_results_are_limited_and_flushed() -> None:
    x = np.array([-1.0, 0.5, 2.0, np.nan, 1e-40, -1e-40], np.float32)
    assert compute("cvt.sat.f32.f32", np.float32, x)[:4].tolist() == [0.0, 0.5, 1.0, 0.0]
    assert compute("cvt.ftz.f64.f32", float, x)[4:].tolist() == [0.0, 0.0]
    assert compute("cvt.rn.relu.bf16.f32", np.uint16, x).tolist() == [0, 0x3F00, 0x4000, 0x7FFF, 0x1, 0]


NAN_ALSO = {"equ": "eq", "neu": "ne", "ltu": "lt", "leu": "le", "gtu": "gt", "geu": "ge"}


@pytest.mark.parametrize("kind", ["f16", "bf16", "f32", "f64"])
def test_comparisons_of_numbers_know_nan(kind: str) -> None:
    form, generator = FORMATS[kind], np.random.default_rng(5)
    x = form.random(generator, COUNT)
    y = np.where(generator.integers(0, 3, COUNT) == 0, x, form.random(generator, COUNT))
    left, right = np.array(form.values(x)), np.array(form.values(y))
    nan = np.isnan(left) | np.isnan(right)
    plain = {"eq": left == right, "ne": left != right, "lt": left < right, "le": left <= right, "gt": left > right}
    plain["ge"] = left >= right
    expected = {name: test & ~nan for name, test in plain.items()}
    expected |= {name: plain[other] | nan for name, other in NAN_ALSO.items()} | {"num": ~nan, "nan": nan}
    for name, each in expected.items():
        np.testing.assert_array_equal(compute(f"setp.{name}.{kind}", bool, x, y), each, err_msg=name)


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_packed_numbers_are_compared_one_by_one(kind: str) -> None:
    x, y = (FORMATS[kind].random(np.random.default_rng(seed), 2 * COUNT) for seed in (9, 10))
    low, high = (compute(f"setp.ltu.{kind}", bool, x[k::2].copy(), y[k::2].copy()) for k in range(2))
    results = []
    for target in ("%p9|_", "_|%p9"):
        body = f"setp.ltu.{kind}x2 {target}, %r1, %r2; selp.b64 %rd1, 1, 0, %p9; st.global.b64 [%a2], %rd1;"
        wide = [np.stack([each.view(np.uint32), each.view(np.uint32)], 1) for each in (x, y)]
        result = np.zeros(COUNT, np.int64)
        launch(kernel("ld.global.b32 %r1, [%a0]; ld.global.b32 %r2, [%a1];" + body, 3), 1, COUNT, wide, [result])
        results.append(result.astype(bool))
    np.testing.assert_array_equal(results, [low, high])


@pytest.mark.parametrize("kind", ["u16", "s16", "u32", "s32", "u64", "s64"])
def test_comparisons_of_integers(kind: str) -> None:
    generator = np.random.default_rng(6)
    x = random(kind, generator)
    y = np.where(generator.integers(0, 3, len(x)) == 0, x, random(kind, generator))
    tests = {"eq": x == y, "ne": x != y, "lt": x < y, "le": x <= y, "gt": x > y, "ge": x >= y}
    if kind[0] == "u":
        tests |= {"lo": x < y, "ls": x <= y, "hi": x > y, "hs": x >= y}
    for name, each in tests.items():
        np.testing.assert_array_equal(compute(f"setp.{name}.{kind}", bool, x, y), each, err_msg=name)
        result = compute(f"set.{name}.u32.{kind}", np.uint32, x, y)
        np.testing.assert_array_equal(result, np.where(each, 0xFFFFFFFF, 0))
    result = compute(f"set.lt.f32.{kind}", np.float32, x, y)
    np.testing.assert_array_equal(result, (x < y).astype(np.float32))


@pytest.mark.parametrize(("name", "join"), [("and", np.logical_and), ("or", np.logical_or), ("xor", np.logical_xor)])
def test_comparisons_are_combined_with_a_predicate(name: str, join: Any) -> None:
    generator = np.random.default_rng(7)
    x, y = generator.integers(0, 4, (2, COUNT)).astype(np.int32)
    given_ = generator.integers(0, 2, COUNT).astype(bool)
    np.testing.assert_array_equal(compute(f"setp.lt.{name}.s32", bool, x, y, given_), join(x < y, given_))
    body = f"""
        ld.global.b32 %r1, [%a0]; setp.lt.{name}.s32 %p1|%p2, %r1, 2, !%p3; selp.b64 %rd1, 1, 0, %p2;
        st.global.b64 [%a1], %rd1;
    """
    wide, other = x.astype(np.int64), np.zeros(COUNT, np.int64)
    launch(kernel("setp.ge.u32 %p3, %t3, 64;" + body, 2), 1, COUNT, [wide], [other])
    np.testing.assert_array_equal(other, join(wide >= 2, np.arange(COUNT) < 64))


def test_selections() -> None:
    generator = np.random.default_rng(8)
    x, y = generator.integers(0, 99, (2, COUNT)).astype(np.int32)
    chosen = generator.integers(0, 2, COUNT).astype(bool)
    np.testing.assert_array_equal(compute("selp.b32", np.int32, x, y, chosen), np.where(chosen, x, y))
    by = generator.integers(-3, 3, COUNT).astype(np.int32)
    np.testing.assert_array_equal(compute("slct.b32.s32", np.int32, x, y, by), np.where(by >= 0, x, y))
    number = np.where(by == 0, np.float32(-0.0), by).astype(np.float32)
    number[:5] = np.nan
    with np.errstate(invalid="ignore"):
        expected = np.where(number >= 0, x, y)
    np.testing.assert_array_equal(compute("slct.b32.f32", np.int32, x, y, number), expected)
