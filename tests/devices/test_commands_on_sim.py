"""The whole table of commands on a simulated device: values, gradients and compiled programs are those of the CPU, bit for bit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.base import dtypes
from tests.contract.commands.sample import Sample
from tests.contract.commands.test_contract import SAMPLES, differentiable, differentiable_rows, over, rows, run


def on_device(values: Sequence[Any]) -> list[Any]:
    return [nnc.device_put(np.asarray(x), "sim:0") for x in values]


def check_same(found: Sequence[Any], wanted: Sequence[Any], *, device: str = "sim:0") -> None:
    assert len(found) == len(wanted)
    for x, y in zip(found, wanted, strict=True):
        assert x.device == device and x.spec == y.spec and x.weak == y.weak
        assert np.asarray(x).tobytes() == np.asarray(y).tobytes()


@over(SAMPLES)
def test_an_eager_command_has_the_results_of_the_cpu(row: Sample) -> None:
    with nnc.default_device("sim:0"):
        found = run(row, on_device(row.operands))
    check_same(found, run(row, row.operands))


@rows
def test_a_compiled_command_has_the_results_of_the_cpu(row: Sample) -> None:
    def function(*operands: Any) -> tuple[Any, ...]:
        return run(row, operands)

    compiled = nnc.compile(function)
    wanted = compiled(*map(np.asarray, row.operands))
    found = compiled(*on_device(row.operands)) if row.operands else nnc.compile(function, device="sim:0")()
    check_same(found, wanted)


@differentiable_rows
def test_gradients_are_those_of_the_cpu(row: Sample) -> None:
    """Compiled ones bit for bit. Eager products of the CPU read views where a device has copies, and may add in another order."""
    function, values = differentiable(row)
    if not all(np.asarray(x).dtype.kind == "f" for x in values):
        pytest.skip("gradients are taken of floats")

    def total(*operands: Any) -> Any:
        parts = [nnp.sum(y) for y in function(*operands) if dtypes.is_float(y.spec.dtype)]
        return sum(parts, nnp.sum(operands[0]) * 0)

    gradient = nnc.grad(total, argnums=tuple(range(len(values))))
    there = on_device(values)
    check_same(nnc.compile(gradient)(*there), nnc.compile(gradient)(*values))
    for x, y in zip(gradient(*there), gradient(*values), strict=True):
        assert x.device == "sim:0" and x.spec == y.spec
        np.testing.assert_allclose(*(np.asarray(each).astype(np.float64) for each in (x, y)), rtol=1e-5, atol=1e-12)
