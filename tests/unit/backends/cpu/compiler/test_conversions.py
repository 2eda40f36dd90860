"""Conversions of 16-bit floats, on a processor that has no instructions for them."""

from __future__ import annotations

import ctypes
import platform

import numpy as np
import pytest

from nnc.backends.cpu.compiler.engine import Engine
from nnc.backends.cpu.compiler.runtime import NAMES, conversions_text
from nnc.base import dtypes
from nnc.lower.kernels.builder import Code, Value
from nnc.lower.plan.stages import NDArray

if platform.machine() not in ("x86_64", "AMD64"):
    pytest.skip("other processors convert by themselves", allow_module_level=True)
OLD = Engine("x86-64")


def converted(x: NDArray, target: dtypes.DType) -> NDArray:
    """`x` in another dtype, by code for a processor of 2003."""
    code = Code("convert", [("ptr", "in0"), ("ptr", "out0"), ("i64", "n")])
    with code.loop(0, Value("%n", dtypes.int64)) as i:
        value = code.load(code.offset("%in0", code.mul(i, code.integer(x.itemsize))), x.dtype)
        code.store(code.offset("%out0", code.mul(i, code.integer(target.itemsize))), code.convert(value, target))
    code.ret(code.integer(0))
    library = OLD.link([OLD.compile(conversions_text()), OLD.compile(code.text())], {}, ["convert", *NAMES])
    out = np.empty(x.shape, target)
    call = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(
        library.addresses["convert"]
    )
    call(x.ctypes.data, out.ctypes.data, x.size)
    return out


@np.errstate(all="ignore")
def hard_numbers() -> NDArray:
    """Halves between neighbours of float16 and the numbers right beside them, tiny and huge numbers, NaN and infinities."""
    near = np.arange(1 << 16).astype(np.uint16).view(np.float16).astype(np.float64)
    halves = near * np.random.default_rng(0).choice(
        [1, 1 + 2.0**-12, 1 - 2.0**-12, 1 + 2.0**-11, 1 - 2.0**-11], near.shape
    )
    tiny = np.arange(100) * 2.0**-26
    edges = [0.0, -0.0, 65504, 65519.99, 65520, 65535, 65536, 1e-45, 3.4e38, -3.4e38, np.inf, -np.inf, np.nan]
    x = np.concatenate([halves, tiny, edges]).astype(np.float32)
    return np.concatenate([x, np.nextafter(x, np.float32(0)), np.nextafter(x, np.float32(np.inf))])


def test_every_kind_of_float32_is_rounded_to_float16() -> None:
    x = hard_numbers()
    with np.errstate(all="ignore"):
        got, want = converted(x, dtypes.float16), x.astype(np.float16)
    real = ~np.isnan(want)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_array_equal(got.view(np.uint16)[real], want.view(np.uint16)[real])


def test_every_float16_becomes_its_float32() -> None:
    x = np.arange(1 << 16).astype(np.uint16).view(np.float16)
    got, want = converted(x, dtypes.float32), x.astype(np.float32)
    real = ~np.isnan(want)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_array_equal(got.view(np.uint32)[real], want.view(np.uint32)[real])


def test_such_processors_call_the_functions() -> None:
    text = "define half @narrow(float %x) {\n  %y = fptrunc float %x to half\n  ret half %y\n}\n"
    assert "__truncsfhf2" in OLD.assembly(text)
