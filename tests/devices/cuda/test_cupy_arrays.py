"""References on CuPy's arrays, of which the stand-in knows the names that CuPy 14.2 has."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.backends.cuda.cupy_arrays import BACKEND, _rounded, _widened
from nnc.commands.rules import any_arrays, decomposition
from nnc.errors import LinAlgError
from nnc.graph import TensorSpec
from nnc.lower.plan.stages import View
from tests.commands.sample import Sample
from tests.commands.test_contract import SAMPLES, run
from tests.devices.cuda.arrays import CUPY, CupyArray
from tests.devices.cuda.machine import Machine
from tests.devices.test_ptx import check_close

NAMES = {command.name for command in any_arrays}
PARTED = {command.name for command in decomposition}  # by which others are computed, if operands have elements


def runs_by_itself(row: Sample) -> bool:
    return row.command in NAMES and not (row.command in PARTED and all(np.size(x) for x in row.operands))


ROWS = [row for row in SAMPLES if runs_by_itself(row)]


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_a_reference_of_any_arrays_runs_on_arrays_of_cupy(row: Sample, machine: Machine) -> None:
    f = nnc.compile(lambda *operands: run(row, operands))
    f(*(nnc.device_put(np.asarray(x), machine.name) for x in row.operands))
    assert f"{machine.name} runs by {BACKEND}: {row.command}" in nnc.debug.explain(f)


def test_a_matrix_that_is_refused_is_named_with_its_line(machine: Machine) -> None:
    x = nnc.device_put(-np.eye(3), machine.name)
    with pytest.raises(LinAlgError, match=r"cholesky: a matrix is not positive definite[^$]*test_cupy_arrays.py"):
        nnc.compile(lambda x: nnp.linalg.cholesky(x))(x)


def test_bfloat16_is_widened_and_rounded_as_ml_dtypes_does() -> None:
    bits = np.arange(1 << 16, dtype=np.uint16)
    view = View.whole(0, TensorSpec(bits.shape, "bfloat16"))
    wide = bits.view(ml_dtypes.bfloat16).astype(np.float32)
    assert np.array_equal(_widened(bits, view), wide, equal_nan=True)
    rng = np.random.default_rng(0)
    near = (wide.view(np.uint32) + rng.integers(0, 1 << 16, bits.shape, np.uint32)).view(np.float32)
    ties = (wide.view(np.uint32) + np.uint32(1 << 15)).view(np.float32)
    for values in (wide, near, ties):
        with np.errstate(all="ignore"):
            found, wanted = _rounded(values).view(ml_dtypes.bfloat16), values.astype(ml_dtypes.bfloat16)
        assert np.array_equal(found.astype(np.float32), wanted.astype(np.float32), equal_nan=True)
        real = ~np.isnan(values)
        assert np.array_equal(found.view(np.uint16)[real], wanted.view(np.uint16)[real])  # signs of zeros, too


def test_products_and_convolutions_in_bfloat16_run_on_the_device(machine: Machine) -> None:
    x = nnp.asarray(np.random.default_rng(0).normal(size=(2, 3, 8, 8)), "bfloat16")
    w = nnp.asarray(np.random.default_rng(1).normal(size=(4, 3, 3, 3)), "bfloat16")

    @nnc.compile
    def f(x: Any, w: Any) -> Any:
        return nnc.nn.conv(x, w, padding=1)

    check_close(f(*nnc.device_put((x, w), machine.name)), f(x, w), 1e-2)
    assert "on the host" not in nnc.debug.explain(f)


def test_the_stand_in_refuses_names_that_cupy_lacks_and_arrays_of_numpy() -> None:
    x = CupyArray(np.ones(3))
    assert "linalg.svd" in CUPY and "geomspace" not in CUPY
    with pytest.raises(TypeError, match="no implementation found"):
        np.geomspace(x, 2)
    with pytest.raises(TypeError):
        x + np.ones(3)
    with pytest.raises(TypeError, match="Implicit conversion"):
        np.asarray(x)
