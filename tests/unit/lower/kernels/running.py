"""Runs printed code on arrays: for tests of single functions, without programs around them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from nnc.backends.cpu.compiler.jit import compiler
from nnc.base.dtypes import DType
from nnc.lower.kernels.builder import Code, Value
from nnc.lower.kernels.native import Native

Body = Callable[..., Value]
NDArray = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Elementwise:
    """Runs `body(code, *values)` on `size` elements of arrays, `lanes` at a time; a multiple of the lanes."""

    body: Body
    inputs: Sequence[DType]
    output: DType
    lanes: int
    size: int

    def native(self) -> Native:
        """Its text."""
        pointers = [f"in{i}" for i in range(len(self.inputs))]
        code = Code("KERNEL", [("ptr", name) for name in (*pointers, "out")])
        width = max(self.lanes, 1)
        assert self.size % width == 0
        with code.loop(0, self.size // width) as i:
            values = []
            for pointer, dtype in zip(pointers, self.inputs, strict=True):
                at = code.offset(f"%{pointer}", code.mul(i, code.integer(width * dtype.itemsize)))
                values.append(code.load(at, dtype, self.lanes))
            out = code.splat(self.body(code, *values), self.lanes)
            assert out.dtype == self.output
            code.store(code.offset("%out", code.mul(i, code.integer(width * self.output.itemsize))), out)
        code.ret(code.integer(0))
        return Native("\n".join(sorted(code.declarations)) + "\n" + code.text())


def run(kernels: Sequence[Elementwise], arrays: Sequence[Sequence[NDArray]]) -> list[NDArray]:
    """The results of kernels on their arrays; they are compiled together."""
    jit = compiler()
    if jit is None:
        pytest.skip("there is no compiler")
    results = []
    for kernel, given, function in zip(kernels, arrays, jit.load([kernel.native() for kernel in kernels]), strict=True):
        held = [np.ascontiguousarray(x) for x in given]
        assert [x.dtype for x in held] == list(kernel.inputs) and all(x.size == kernel.size for x in held)
        out = np.empty(kernel.size, kernel.output)
        call = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_void_p] * (len(held) + 1))(function.address)
        assert call(*(x.ctypes.data for x in held), out.ctypes.data) == 0
        results.append(out)
    return results
