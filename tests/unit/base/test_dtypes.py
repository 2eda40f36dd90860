"""Dtypes and their promotion, as a whole table."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nnc.numpy as nnp
from nnc.base import dtypes

# a row and a column for each dtype, in one order; -- is refused
TABLE = """
bool bool i1  i2  i4  i8  u1  u2  u4  u8  f2  bf  f4  f8  c8  c16
i1   i1   i1  i2  i4  i8  i2  i4  i8  --  f2  bf  f4  f8  c8  c16
i2   i2   i2  i2  i4  i8  i2  i4  i8  --  f2  bf  f4  f8  c8  c16
i4   i4   i4  i4  i4  i8  i4  i4  i8  --  f2  bf  f4  f8  c8  c16
i8   i8   i8  i8  i8  i8  i8  i8  i8  --  f2  bf  f4  f8  c8  c16
u1   u1   i2  i2  i4  i8  u1  u2  u4  u8  f2  bf  f4  f8  c8  c16
u2   u2   i4  i4  i4  i8  u2  u2  u4  u8  f2  bf  f4  f8  c8  c16
u4   u4   i8  i8  i8  i8  u4  u4  u4  u8  f2  bf  f4  f8  c8  c16
u8   u8   --  --  --  --  u8  u8  u8  u8  f2  bf  f4  f8  c8  c16
f2   f2   f2  f2  f2  f2  f2  f2  f2  f2  f2  f4  f4  f8  c8  c16
bf   bf   bf  bf  bf  bf  bf  bf  bf  bf  f4  bf  f4  f8  c8  c16
f4   f4   f4  f4  f4  f4  f4  f4  f4  f4  f4  f4  f4  f8  c8  c16
f8   f8   f8  f8  f8  f8  f8  f8  f8  f8  f8  f8  f8  f8  c16 c16
c8   c8   c8  c8  c8  c8  c8  c8  c8  c8  c8  c8  c8  c16 c8  c16
c16  c16  c16 c16 c16 c16 c16 c16 c16 c16 c16 c16 c16 c16 c16 c16
"""
NAMES = [row.split()[0] for row in TABLE.strip().splitlines()]
ROWS = {row.split()[0]: dict(zip(NAMES, row.split()[1:], strict=True)) for row in TABLE.strip().splitlines()}
PAIRS = [(a, b, ROWS[a][b]) for a, b in itertools.product(NAMES, NAMES)]


def dtype(name: str) -> Any:
    return dtypes.bfloat16 if name == "bf" else np.dtype(name)


def test_the_table_names_every_dtype() -> None:
    assert [dtype(name) for name in NAMES] == list(dtypes.ALL)
    assert list(ROWS) == NAMES


@pytest.mark.parametrize(("a", "b", "result"), PAIRS)
def test_promotion_of_two_dtypes(a: str, b: str, result: str) -> None:
    if result == "--":
        with pytest.raises(TypeError, match="no integer dtype holds both"):
            dtypes.promote_types(dtype(a), dtype(b))
    else:
        assert dtypes.promote_types(dtype(a), dtype(b)) == dtype(result)
        assert (nnp.ones(1, dtype(a)) * nnp.ones(1, dtype(b))).dtype == dtype(result)


def test_promotion_is_associative_where_every_step_is_defined() -> None:
    """An integer takes the float's width, so only triples with both 16-bit floats or refused pairs may differ."""
    for a, b, c in itertools.combinations_with_replacement(dtypes.ALL, 3):
        results = set()
        for x, y, z in itertools.permutations((a, b, c)):
            try:
                results.add(dtypes.promote_types(dtypes.promote_types(x, y), z))
            except TypeError:
                results.add(None)
        assert len(results - {None}) <= 1, (a, b, c, results)


@pytest.mark.parametrize(
    ("scalar", "results"),
    [
        (True, dict.fromkeys(NAMES, "same")),
        (3, {"bool": "i8"}),
        (0.5, {**dict.fromkeys(NAMES[:9], "f4")}),
        (1j, {**dict.fromkeys(NAMES[:9], "c8"), "f2": "c8", "bf": "c8", "f4": "c8", "f8": "c16"}),
    ],
    ids=["bool", "int", "float", "complex"],
)
def test_a_python_scalar_raises_only_the_kind(scalar: Any, results: dict[str, str]) -> None:
    for name in NAMES:
        expected = dtype(name) if results.get(name, "same") == "same" else dtype(results[name])
        assert dtypes.promote_weak(dtype(name), scalar) == expected
        assert (nnp.ones(1, dtype(name)) * scalar).dtype == expected
        assert (scalar * nnp.ones(1, dtype(name))).dtype == expected


def test_names_that_stand_for_dtypes() -> None:
    for value, name in (
        (float, "float32"), (int, "int64"), (complex, "complex64"), (bool, "bool"), ("bfloat16", "bfloat16"),
        (ml_dtypes.bfloat16, "bfloat16"), (np.float64, "float64"), ("f2", "float16"), (np.dtype(">i4"), "int32"),
        (nnp.float32, "float32"), ("bool", "bool"),
    ):  # fmt: skip
        assert dtypes.as_dtype(value).name == name
    for bad in ("float128", "S3", object, "M8[s]", "nothing"):
        with pytest.raises(TypeError):
            dtypes.as_dtype(bad)


def test_every_dtype_has_one_kind() -> None:
    for d in dtypes.ALL:
        assert [dtypes.is_bool(d), dtypes.is_integer(d), dtypes.is_float(d), dtypes.is_complex(d)].count(True) == 1
        assert dtypes.is_inexact(d) == (d in (*dtypes.FLOATS, *dtypes.COMPLEX))
        assert dtypes.is_known(d)
    assert not dtypes.is_known(np.dtype(object))


def test_related_dtypes() -> None:
    assert [dtypes.to_float(d).name for d in (dtypes.bool_, dtypes.int8, dtypes.bfloat16, dtypes.complex64)] == [
        "float32", "float32", "bfloat16", "complex64",
    ]  # fmt: skip
    assert dtypes.real_dtype(dtypes.complex128) == dtypes.float64
    assert dtypes.real_dtype(dtypes.float16) == dtypes.float16
    assert [dtypes.complex_dtype(d).name for d in dtypes.FLOATS] == ["complex64"] * 3 + ["complex128"]
    assert [dtypes.accumulator(d).name for d in dtypes.FLOATS] == ["float32"] * 3 + ["float64"]


def test_python_numbers_and_numpy_scalars_are_told_apart() -> None:
    assert all(map(dtypes.is_scalar, (True, 1, 1.0, 1j)))
    assert not any(map(dtypes.is_scalar, (np.float64(1), np.bool_(True), np.complex128(1), "1", None)))
    assert [dtypes.scalar_dtype(x).name for x in (True, 1, 1.0, 1j)] == ["bool", "int64", "float32", "complex64"]
