"""Squares of words that are turned in registers."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from nnc.backends.cpu.compiler.jit import compiler
from nnc.backends.moves import turn
from nnc.base import dtypes
from nnc.base.dtypes import DType
from nnc.lower.kernels.builder import Code
from nnc.lower.kernels.native import Native

WORDS = (dtypes.uint8, dtypes.uint16, dtypes.uint32, dtypes.float32, dtypes.float64)


@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize("dtype", WORDS, ids=str)
def test_a_square_of_registers_becomes_its_transpose(dtype: DType, lanes: int) -> None:
    jit = compiler()
    if jit is None:
        pytest.skip("there is no compiler")
    code, row = Code("KERNEL", [("ptr", "x"), ("ptr", "out")]), lanes * dtype.itemsize
    for i, vector in enumerate(turn(code, [code.load(code.offset("%x", i * row), dtype, lanes) for i in range(lanes)])):
        code.store(code.offset("%out", i * row), vector)
    code.ret(code.integer(0))
    (function,) = jit.load([Native("\n".join([*sorted(code.declarations), code.text()]))])
    x = np.arange(lanes * lanes).reshape(lanes, lanes).astype(dtype)
    out = np.zeros_like(x)
    ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)(function.address)(x.ctypes.data, out.ctypes.data)
    np.testing.assert_array_equal(out, x.T)
