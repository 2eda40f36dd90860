"""Squares of words that are turned in registers."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
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


@pytest.mark.parametrize("axis", [0, 2])
def test_a_reshape_into_a_part_of_a_join_needs_no_python(axis: int) -> None:
    """The result of such a reshape has gaps, and the operand's axes lie in another order."""
    draws = np.random.default_rng(0)
    x = draws.normal(size=(4, 5, 7, 3)).astype(np.float32)

    def joined(xp: Any, x: Any) -> Any:
        return xp.concatenate([xp.reshape(xp.transpose(x * k, (0, 2, 1, 3)), (4, 7, 15)) for k in (1, 2)], axis=axis)

    fun = nnc.compile(lambda x: joined(nnp, x))
    np.testing.assert_array_equal(np.asarray(fun(x)), joined(np, x))
    code = fun.lower(x).compile().program.code
    assert code is not None and not code.entry(False).blocks
