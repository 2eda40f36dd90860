"""Kernels of flat nests, whose text serves any length: whole steps are gone through without masks, the rest with them."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

import nnc
from nnc.backends.cpu.compiler.jit import compiler
from nnc.device.targets.__init__ import X86
from nnc.graph import TensorSpec
from nnc.lower.kernels.llvm import print_graph
from nnc.lower.plan.stages import View

GUARD = 77.0
LENGTHS = (1, 15, 16, 17, 63, 64, 65, 1023, 1024, 1087, 1088, 1089, 40_000, 70_003)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8"])
def test_one_text_computes_every_length_and_writes_no_further(dtype: str) -> None:
    jit = compiler()
    if jit is None:
        pytest.skip("there is no compiler")

    def double_plus_one(x: Any) -> Any:
        return x * 2 + 1

    spec = TensorSpec((2048,), np.dtype(dtype))
    graph = nnc.make_graph(double_plus_one)(nnc.ShapeDtypeStruct(spec.shape, spec.dtype))
    native = print_graph(graph, [View.whole(0, spec)], [View.whole(1, spec)], X86)
    assert native.numbers == (2048,)
    (function,) = jit.load([native])  # its memory is released with it
    kernel = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(function.address)
    for n in LENGTHS:
        x = (np.arange(n + 64) % 50).astype(dtype)
        apart, in_place = np.full(n + 64, GUARD, dtype), x.copy()
        for out, given in ((apart, x), (in_place, in_place)):
            assert kernel(given.ctypes.data, out.ctypes.data, n) == 0
            np.testing.assert_array_equal(out[:n], x[:n] * 2 + 1)
        assert (apart[n:] == GUARD).all() and (in_place[n:] == x[n:]).all()


def test_whole_steps_are_read_and_written_without_masks() -> None:
    spec = TensorSpec((2048,), np.dtype("float32"))
    graph = nnc.make_graph(lambda x: x * 2)(nnc.ShapeDtypeStruct(spec.shape, spec.dtype))
    text = print_graph(graph, [View.whole(0, spec)], [View.whole(1, spec)], X86).text
    assert text.count("= load <16 x float>") == text.count("store <16 x float>") == 4
    assert text.count("call void @llvm.masked.store") == 1
