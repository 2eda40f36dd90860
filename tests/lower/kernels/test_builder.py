"""Printed instructions have the effect of their names."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from nnc.backends.cpu.compiler.jit import compiler
from nnc.base import dtypes
from nnc.lower.kernels.builder import Code, Value
from nnc.lower.kernels.native import Native


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
