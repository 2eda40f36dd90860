"""Printed instructions have the effect of their names."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

from nnc.backends.cpu.compiler.engine import Engine
from nnc.backends.cpu.compiler.jit import compiler
from nnc.base import dtypes
from nnc.lower.kernels.builder import Code, Value
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
