"""Instructions on floating-point numbers round once, as fractions that are rounded in the tests."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnc.testing.devices.ptx.rounding import fma_double
from tests.unit.testing.devices.ptx.exact import FORMATS, Format, rounded, same
from tests.unit.testing.devices.ptx.launching import compute

COUNT = 96
seeds = st.integers(0, 2**32 - 1)
few = settings(max_examples=12, deadline=None)


def by_fractions(
    exact: Callable[..., Fraction], plain: Callable[..., Any], to: Format, mode: str, *operands: list[float]
) -> list[float]:
    """Computes with fractions; where operands are not finite or the result is 0, NumPy's float64 has no error."""
    results = []
    for values in zip(*operands, strict=True):
        with np.errstate(all="ignore"):
            special = float(plain(*(np.float64(x) for x in values)))
        if all(math.isfinite(x) for x in values):
            try:
                value = exact(*(Fraction(x) for x in values))
            except ZeroDivisionError:
                value = Fraction(0)
            if value != 0:
                special = rounded(value, to, mode)
        results.append(special)
    return results


OPERATIONS: dict[str, tuple[int, Callable[..., Fraction], Callable[..., Any]]] = {
    "add": (2, lambda x, y: x + y, lambda x, y: x + y),
    "sub": (2, lambda x, y: x - y, lambda x, y: x - y),
    "mul": (2, lambda x, y: x * y, lambda x, y: x * y),
    "div": (2, lambda x, y: x / y, lambda x, y: x / y),
    "rcp": (1, lambda x: 1 / x, lambda x: 1 / x),
    "fma": (3, lambda x, y, z: x * y + z, lambda x, y, z: x * y + z),
}
CASES = [
    *((name, "f32", mode) for name in OPERATIONS for mode in ("rn", "rz", "rp")),
    *((name, "f64", "rn") for name in OPERATIONS),
    *((name, kind, "rn") for name in ("add", "sub", "mul", "fma") for kind in ("f16", "bf16")),
]


@pytest.mark.parametrize(("name", "kind", "mode"), CASES)
@given(seed=seeds)
@few
def test_an_operation_rounds_its_exact_result(name: str, kind: str, mode: str, seed: int) -> None:
    count, exact, plain = OPERATIONS[name]
    form, generator = FORMATS[kind], np.random.default_rng(seed)
    operands = [form.random(generator, COUNT) for _ in range(count)]
    if name == "fma":  # sums that cancel
        product = [x * y for x, y in zip(form.values(operands[0]), form.values(operands[1]), strict=True)]
        close = np.array([-x if math.isfinite(x) else 1.0 for x in product])
        with np.errstate(all="ignore"):
            nearly = narrowed(close, form)
        operands[2] = np.where(generator.integers(0, 2, COUNT) == 1, nearly, operands[2])
    result = compute(f"{name}.{mode}.{kind}", form.dtype, *operands)
    values = [form.values(x) for x in operands]
    same(form.values(result), by_fractions(exact, plain, form, mode, *values), *values)


def narrowed(values: Any, form: Format) -> Any:
    if form.name == "bf16":
        return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return values.astype(form.dtype)


def test_a_summand_that_decides_alone_is_rounded_once() -> None:
    sizes = [
        0.0,
        5e-324,
        2.0**-1074 * 3,
        2.0**-1022,
        1.5 * 2.0**-600,
        2.0**-452,
        1.0,
        1 + 2.0**-52,
        3.0**300,
        2.0**511,
        2.0**1023,
    ]
    sizes += [2.0**512 * (1 - 2.0**-53), 1.7976931348623157e308]
    numbers = [*sizes, *(-x for x in sizes)]
    x, y, z = (each.reshape(-1).copy() for each in np.meshgrid(numbers, numbers, numbers))
    with np.errstate(all="ignore"):
        result = fma_double(x, y, z)
    exact = lambda x, y, z: x * y + z
    values = [each.tolist() for each in (x, y, z)]
    same(result.tolist(), by_fractions(exact, exact, FORMATS["f64"], "rn", *values), *values)


@given(seed=seeds)
@few
def test_sums_and_products_that_are_rounded_down(seed: int) -> None:
    form, generator = FORMATS["f32"], np.random.default_rng(seed)
    x, y = (np.abs(form.random(generator, COUNT)) for _ in range(2))
    for name, exact in (("add", lambda a, b: a + b), ("mul", lambda a, b: a * b)):
        result = compute(f"{name}.rm.f32", np.float32, x, -y)
        values = form.values(x), form.values(-y)
        at = [i for i in range(COUNT) if all(map(math.isfinite, (values[0][i], values[1][i])))]
        at = [i for i in at if exact(Fraction(values[0][i]), Fraction(values[1][i])) != 0]
        expected = [rounded(exact(Fraction(values[0][i]), Fraction(values[1][i])), form, "rm") for i in at]
        same([float(result[i]) for i in at], expected)


@pytest.mark.parametrize(("kind", "mode"), [("f32", "rn"), ("f32", "rz"), ("f32", "rp"), ("f32", "rm"), ("f64", "rn")])
@given(seed=seeds)
@few
def test_a_root_is_the_number_whose_square_lies_nearest(kind: str, mode: str, seed: int) -> None:
    form = FORMATS[kind]
    x = np.abs(form.random(np.random.default_rng(seed), COUNT))
    result = compute(f"sqrt.{mode}.{kind}", form.dtype, x)
    for value, root in zip(form.values(x), form.values(result), strict=True):
        if math.isfinite(value) and value > 0:
            digits = 2**600
            exact = Fraction(math.isqrt(int(Fraction(value) * digits**4)), digits**2)
            if exact**2 != Fraction(value):
                exact += Fraction(1, digits**2 * 2)  # isqrt cuts off
            assert root == rounded(exact, form, mode), (value, root)


@pytest.mark.parametrize("kind", ["f16x2", "bf16x2"])
@given(seed=seeds)
@few
def test_packed_numbers_are_computed_one_by_one(kind: str, seed: int) -> None:
    form, generator = FORMATS[kind.removesuffix("x2")], np.random.default_rng(seed)
    parts = [form.random(generator, 2 * COUNT) for _ in range(3)]
    packed = [np.ascontiguousarray(x).view(np.uint32) for x in parts]
    result = compute(f"fma.rn.{kind}", np.uint32, *packed).view(form.dtype)
    alone = compute(f"fma.rn.{kind.removesuffix('x2')}", form.dtype, *parts)
    same(form.values(result), form.values(alone))


@pytest.mark.parametrize("kind", ["f16", "bf16", "f32", "f64"])
@given(seed=seeds)
@few
def test_minimum_and_maximum_leave_nan_out_and_order_zeros(kind: str, seed: int) -> None:
    form, generator = FORMATS[kind], np.random.default_rng(seed)
    x, y = form.random(generator, COUNT), form.random(generator, COUNT)
    values = form.values(x), form.values(y)
    order = lambda v: (v, math.copysign(1, v))
    for name, choose in (("min", min), ("max", max)):
        expected, strict = [], []
        for a, b in zip(*values, strict=True):
            numbers = [v for v in (a, b) if not math.isnan(v)]
            expected.append(choose(numbers, key=order) if numbers else math.nan)
            strict.append(expected[-1] if len(numbers) == 2 else math.nan)
        same(form.values(compute(f"{name}.{kind}", form.dtype, x, y)), expected, *values)
        if kind != "f64":
            same(form.values(compute(f"{name}.NaN.{kind}", form.dtype, x, y)), strict, *values)


def test_denormal_numbers_are_flushed_where_the_instruction_says_so() -> None:
    x = np.array([1e-40, -1e-40, 1.2e-38, 1e-30, -1e-30], np.float32)
    y = np.array([1.0, 1.0, 0.5, 1e-10, 1e-10], np.float32)
    assert compute("mul.ftz.f32", np.float32, x, y).tolist() == [0.0, 0.0, 0.0, 0.0, 0.0]
    assert np.signbit(compute("mul.ftz.f32", np.float32, x, y)).tolist() == [False, True, False, False, True]
    np.testing.assert_array_equal(compute("mul.f32", np.float32, x, y), x * y)
    assert compute("fma.rn.ftz.f32", np.float32, x, y, np.zeros(5, np.float32)).tolist() == [0.0] * 5


def test_results_are_limited_to_0_and_1_where_the_instruction_says_so() -> None:
    x = np.array([-1.0, 0.25, 3.0, np.nan, np.inf], np.float32)
    assert compute("add.sat.f32", np.float32, x, x).tolist() == [0.0, 0.5, 1.0, 0.0, 1.0]
    assert compute("fma.rn.relu.f16", np.float16, *[x.astype(np.float16)[:3]] * 3).tolist() == [0.0, 0.3125, 12.0]


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("ex2.approx.f32", np.exp2),
        ("ex2.approx.ftz.f32", np.exp2),
        ("lg2.approx.f32", np.log2),
        ("rcp.approx.ftz.f32", np.reciprocal),
        ("sqrt.approx.f32", np.sqrt),
        ("rsqrt.approx.f32", lambda x: 1 / np.sqrt(x)),
        ("sin.approx.f32", np.sin),
        ("cos.approx.f32", np.cos),
        ("tanh.approx.f32", np.tanh),
    ],
)
def test_approximations_are_rounded_from_float64(name: str, function: Callable[..., Any]) -> None:
    x = np.abs(np.random.default_rng(3).normal(size=COUNT)).astype(np.float32)
    np.testing.assert_array_equal(compute(name, np.float32, x), function(x.astype(np.float64)).astype(np.float32))


def test_division_is_approximated_where_the_instruction_says_so() -> None:
    x, y = np.random.default_rng(4).normal(size=(2, COUNT)).astype(np.float32)
    for name in ("div.approx.f32", "div.full.f32"):
        np.testing.assert_array_equal(compute(name, np.float32, x, y), (x.astype(float) / y).astype(np.float32))


def test_reciprocals_of_float64_are_approximated_by_the_upper_half_of_their_bits() -> None:
    x = np.random.default_rng(5).normal(size=COUNT)
    expected = ((1 / x).view(np.uint64) & np.uint64(0xFFFFFFFF00000000)).view(float)
    np.testing.assert_array_equal(compute("rcp.approx.ftz.f64", float, x), expected)


@pytest.mark.parametrize(("kind", "flag"), [("f16", 0x8000), ("bf16", 0x8000), ("f32", 1 << 31), ("f64", 1 << 63)])
def test_signs_change_on_their_own(kind: str, flag: int) -> None:
    form = FORMATS[kind]
    x = form.random(np.random.default_rng(6), COUNT)
    bits = f"u{x.dtype.itemsize}"
    changed = compute(f"neg.{kind}", form.dtype, x).view(bits)
    np.testing.assert_array_equal(changed, x.view(bits) ^ np.array(flag, bits))
    cleared = compute(f"abs.{kind}", form.dtype, x).view(bits)
    np.testing.assert_array_equal(cleared, x.view(bits) & ~np.array(flag, bits))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_signs_are_copied_and_numbers_are_tested(dtype: Any) -> None:
    kind = f"f{np.dtype(dtype).itemsize * 8}"
    x, y = (FORMATS[kind].random(np.random.default_rng(seed), COUNT) for seed in (7, 8))
    np.testing.assert_array_equal(compute(f"copysign.{kind}", dtype, x, y), np.copysign(y, x))
    tests = {"finite": np.isfinite, "infinite": np.isinf, "number": lambda x: ~np.isnan(x), "notanumber": np.isnan}
    tests["subnormal"] = lambda x: (x != 0) & (np.abs(x) < np.finfo(dtype).tiny)
    tests["normal"] = lambda x: np.isfinite(x) & (np.abs(x) >= np.finfo(dtype).tiny)
    for name, test in tests.items():
        np.testing.assert_array_equal(compute(f"testp.{name}.{kind}", bool, x), test(x))
