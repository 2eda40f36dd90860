"""Printed instructions have the effect of their names."""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

from nnc.backends.cpu.compiler.engine import Engine
from nnc.backends.cpu.compiler.jit import compiler
from nnc.base import dtypes
from nnc.lower.kernels.builder import Code, Value, known_number
from nnc.lower.kernels.native import Native

OLD = Engine("x86-64-v3") if compiler() is not None else None  # has no instructions for bfloat16


@pytest.mark.parametrize("name", ["int8", "int16", "float16", "bfloat16", "float32"])
@pytest.mark.parametrize("lane", [0, 3])
def test_a_store_of_a_single_lane_leaves_its_neighbours_alone(name: str, lane: int) -> None:
    """LLVM 22 wrote 4 bytes for a bfloat16 that was made of a float32."""
    jit, kind = compiler(), dtypes.BY_NAME[name]
    if jit is None:
        pytest.skip("there is no compiler")
    code = Code("KERNEL", [("ptr", "in0"), ("ptr", "out0")])
    mask = Value(f"<{', '.join(f'i1 {str(i == lane).lower()}' for i in range(16))}>", dtypes.bool_, 16)
    code.store("%out0", code.convert(code.load("%in0", dtypes.float32, 16), kind), mask)
    code.ret(Value("0", dtypes.int64))
    (function,) = jit.load([Native("\n".join([code.text(), *sorted(code.declarations), ""]))])
    x, out = np.arange(1, 17, dtype=np.float32), np.full(32, 99).astype(kind)
    expected = out.copy()
    expected[lane] = x[lane]
    ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)(function.address)(x.ctypes.data, out.ctypes.data)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("lanes", [0, 16])
@pytest.mark.parametrize(
    ("body", "reference"),
    [
        (lambda c, x, y: c.add(x, y), np.add),
        (lambda c, x, y: c.mul(x, y), np.multiply),
        (lambda c, x, y: c.neg(x), lambda x, y: -x),
        (lambda c, x, y: c.intrinsic("fabs", x), lambda x, y: np.abs(x)),
        (lambda c, x, y: c.select(c.compare("lt", x, y), x, y), lambda x, y: np.where(x < y, x, y)),
        (lambda c, x, y: c.select(c.compare("ne", x, c.like(x, 1.5)), c.like(x, 2.5), y), lambda x, y: np.where(x != 1.5, 2.5, y)),
    ],
    ids=["add", "mul", "neg", "abs", "less", "constants"],
)  # fmt: skip
def test_bfloat16_is_computed_with_without_functions_of_a_library(
    body: Callable[..., Value], reference: Callable[..., np.ndarray], lanes: int
) -> None:
    if OLD is None:
        pytest.skip("there is no compiler")
    code = Code("KERNEL", [("ptr", "in0"), ("ptr", "in1"), ("ptr", "out0"), ("i64", "n")])
    with code.loop(0, Value("%n", dtypes.int64), max(lanes, 1)) as i:
        x, y, out = (code.offset(f"%{name}", code.mul(i, code.integer(2))) for name in ("in0", "in1", "out0"))
        code.store(out, body(code, code.load(x, dtypes.bfloat16, lanes), code.load(y, dtypes.bfloat16, lanes)))
    code.ret(Value("0", dtypes.int64))
    library = OLD.link([OLD.compile("\n".join([code.text(), *sorted(code.declarations), ""]))], {}, ["KERNEL"])
    left = np.arange(1 << 16, dtype=np.uint16).view(ml_dtypes.bfloat16)
    right = np.random.default_rng(0).permutation(left)
    result = np.empty_like(left)
    pointers = [array.ctypes.data for array in (left, right, result)]
    kinds = [ctypes.c_void_p] * 3 + [ctypes.c_int64]
    ctypes.CFUNCTYPE(ctypes.c_int64, *kinds)(library.addresses["KERNEL"])(*pointers, len(left))
    with np.errstate(all="ignore"):
        wanted = reference(left, right).astype(ml_dtypes.bfloat16)
    is_nan = np.isnan(wanted.astype(np.float32))
    np.testing.assert_array_equal(np.isnan(result.astype(np.float32)), is_nan)
    np.testing.assert_array_equal(result.view(np.uint16)[~is_nan], wanted.view(np.uint16)[~is_nan])


@pytest.mark.parametrize("predicate", ["eq", "ne", "lt", "le", "gt", "ge"])
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_comparisons_of_numbers_are_known_and_those_with_a_value_are_computed(predicate: str, dtype: str) -> None:
    code, kind = Code("KERNEL", [("ptr", "in0")]), dtypes.BY_NAME[dtype]
    x, one, two = code.load("%in0", kind), code.constant(1, kind), code.constant(2, kind)
    for left, right in ((one, two), (two, one), (one, one)):
        wanted = getattr(operator, predicate)(known_number(left), known_number(right))
        assert known_number(code.compare(predicate, left, right)) is wanted
    for left, right in ((x, one), (one, x), (x, x)):
        assert known_number(code.compare(predicate, left, right)) is None


@pytest.mark.parametrize("lanes", [0, 8])
def test_a_selection_with_a_constant_condition_is_one_of_its_operands(lanes: int) -> None:
    """So quotients by constants stay quotients by constants, which LLVM computes without a division."""
    code = Code("KERNEL", [])
    x, y = Value("%x", dtypes.int32, lanes), code.constant(3, dtypes.int32, lanes)
    for predicate, wanted in (("eq", x), ("ne", y)):
        assert code.select(code.compare(predicate, y, y), x, y) == wanted
        assert code.select(code.constant(predicate == "eq", dtypes.bool_), x, y) == wanted


@pytest.mark.parametrize("lanes", [0, 8])
def test_float64_is_rounded_once_to_float16(lanes: int) -> None:
    jit, kind = compiler(), dtypes.float16
    if jit is None:
        pytest.skip("there is no compiler")
    code = Code("KERNEL", [("ptr", "in0"), ("ptr", "out0"), ("i64", "n")])
    with code.loop(0, Value("%n", dtypes.int64), max(lanes, 1)) as i:
        x = code.load(code.offset("%in0", code.mul(i, code.integer(8))), dtypes.float64, lanes)
        code.store(code.offset("%out0", code.mul(i, code.integer(2))), code.convert(x, kind))
    code.ret(Value("0", dtypes.int64))
    (function,) = jit.load([Native("\n".join([code.text(), *sorted(code.declarations), ""]))])
    low = np.arange(0x3C00, 0x3C40, dtype=np.uint16).view(kind)
    high = (low.view(np.uint16) + 1).view(kind)
    middle = (low.astype(np.float64) + high.astype(np.float64)) / 2
    even = np.where(low.view(np.uint16) % 2 == 0, low, high)
    for bit in range(13, 53):  # a distance from the middle that float32 has, or does not
        step = middle * 2.0**-bit
        for x, wanted in ((middle - step, low), (middle, even), (middle + step, high), (-middle - step, -high)):
            out = np.empty_like(low)
            pointers = [array.ctypes.data for array in (x, out)]
            kinds = [ctypes.c_void_p] * 2 + [ctypes.c_int64]
            ctypes.CFUNCTYPE(ctypes.c_int64, *kinds)(function.address)(*pointers, len(x))
            np.testing.assert_array_equal(out.view(np.uint16), wanted.view(np.uint16))
