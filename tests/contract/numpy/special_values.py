"""The values at which functions are special, for each dtype, and a comparison that sees the sign of zeros."""

from __future__ import annotations

import numpy as np

import nnc

FLOATS = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -3.0, 7.5, 1e-30, 1e30, np.inf, -np.inf, np.nan]
DTYPES = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64", "complex64",
    "complex128",
)  # fmt: skip


def values(dtype):
    """All the values of a dtype at which functions are special."""
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return np.array([True, False])
    if dtype.kind in "iu":
        numbers = [0, 1, 2, 3, 7, np.iinfo(dtype).max] + ([-1, -3, np.iinfo(dtype).min] if dtype.kind == "i" else [])
        return np.array(numbers, dtype)
    parts = FLOATS if dtype.kind == "f" else FLOATS[:4] + FLOATS[6:9] + FLOATS[-3:]
    with np.errstate(all="ignore"):
        return np.array(parts if dtype.kind == "f" else [complex(a, b) for a in parts for b in parts]).astype(dtype)


def check(got, want):
    """Equal shapes, dtypes, values to a few units of the last place, and signs of zeros."""
    if isinstance(want, tuple):
        assert len(got) == len(want)
        for one, other in zip(got, want, strict=True):
            check(one, other)
        return
    assert isinstance(got, nnc.Array)
    got = np.asarray(got)
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    parts = [(got.real, want.real), (got.imag, want.imag)] if got.dtype.kind == "c" else [(got, want)]
    for one, other in parts:
        np.testing.assert_allclose(one, other, rtol=1e-5 if one.dtype == np.float32 else 1e-12)
        if one.dtype.kind == "f":
            np.testing.assert_array_equal(np.signbit(one[other == 0]), np.signbit(other[other == 0]))
