from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.base.options import Options
from nnc.graph import Graph, run_passes
from tests.unit.lower.passes.tools import names

DTYPES = (np.float32, np.float64)


def factors(dtype: Any, n: int = 400) -> list[Any]:
    """x · y and z cancel but for a few digits, so that an early rounding is seen."""
    rng = np.random.default_rng(0)
    x, y = (rng.normal(size=n).astype(dtype) for _ in range(2))
    return [x, y, (-x * y * (1 + 1e-6 * rng.normal(size=n))).astype(dtype)]


def rounded_once(x: Any, y: Any, z: Any) -> Any:
    exact = [Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c)) for a, b, c in zip(x, y, z, strict=True)]
    return np.array([float(value) for value in exact])


def contracted(function: Any, *arrays: Any) -> Graph:
    return run_passes(nnc.make_graph(function)(*arrays), ("contract_products",), Options(contract=True))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("native", ["1", "0"])
def test_contracted_products_are_rounded_once(dtype: Any, native: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NNC_NATIVE", native)
    x, y, z = factors(dtype)
    wanted = rounded_once(x, y, z).astype(dtype)
    for function, sign in (
        (lambda x, y, z: x * y + z, 1),
        (lambda x, y, z: z + x * y, 1),
        (lambda x, y, z: -z - x * y, -1),
    ):
        np.testing.assert_array_equal(np.asarray(nnc.compile(function, contract=True)(x, y, z)), sign * wanted)
    np.testing.assert_array_equal(np.asarray(nnc.compile(lambda x, y, z: x * y - z, contract=True)(x, y, -z)), wanted)
    assert (np.asarray(nnc.compile(lambda x, y, z: x * y + z)(x, y, z)) == x * y + z).all()
    assert (wanted != x * y + z).any()


def test_products_with_other_readers_and_other_dtypes_stay_as_they_are() -> None:
    x = np.ones(4, np.float32)
    assert names(contracted(lambda x: (x * 3 + x, x * 3), x)).count("multiply_add") == 1
    assert "multiply_add" not in names(contracted(lambda x: ((p := x * x), p + 1), x))
    assert "multiply_add" not in names(contracted(lambda x: x * x + x, np.ones(4, np.int32)))
    assert "multiply_add" not in names(contracted(lambda x: x * x + x, np.ones(4, np.float16)))
    assert names(contracted(lambda x: nnp.square(x) - 1, x)).count("multiply_add") == 1


def test_sums_of_two_products_keep_one_of_them() -> None:
    x = np.array([1 + 2**-12, 3], np.float32)
    graph = contracted(lambda x, y: x * x - y * y, x, x[::-1].copy())
    assert [name for name in names(graph) if name != "neg"] == ["mul", "multiply_add"]


def test_rounds_of_loops_are_contracted_too() -> None:
    factor = np.float32(1.1)

    def loop(x: Any) -> Any:
        return nnc.fori_loop(0, 9, lambda _, total: total * factor + x, x)

    total = x = np.linspace(0.1, 1, 50, dtype=np.float32)
    for _ in range(9):
        total = (total.astype(np.float64) * np.float64(factor) + x).astype(np.float32)
    np.testing.assert_array_equal(np.asarray(nnc.compile(loop, contract=True)(x)), total)
    assert (np.asarray(nnc.compile(loop)(x)) != total).any()
