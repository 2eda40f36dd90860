"""References on CuPy's arrays, of which the stand-in knows the names that CuPy 14.2 has."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.backends.cuda.libraries.cupy_arrays import BACKEND, narrowed, widened
from nnc.base import dtypes
from nnc.commands.determinants import cofactor
from nnc.commands.linalg import triangular_solve
from nnc.commands.rules import cumulative, decomposition, reduction
from nnc.errors import LinAlgError
from nnc.graph import command as get_command
from nnc.graph import reference
from nnc.graph.registry import any_arrays, scalar
from nnc.lower.kernels.scalars import can_be_complex
from tests.contract.commands.sample import Sample
from tests.contract.commands.test_contract import SAMPLES, run
from tests.devices.cuda.arrays import CUPY, CupyArray
from tests.devices.cuda.machine import Machine
from tests.devices.test_ptx import check_close

PRINTED = {command.name for column in (scalar, reduction, cumulative) for command in column}  # but for complex numbers
NAMES = {command.name for command in any_arrays} - PRINTED
# the sum and many functions are printed for them, too; a length is real
COMPLEX_PRINTED = {command.name for command in scalar if can_be_complex(scalar[command])} | {"reduce_sum"}
COMPLEX = sorted({command.name for command in any_arrays} & PRINTED - COMPLEX_PRINTED - {"length"})
PARTED = {command.name for command in decomposition}  # by which others are computed


def runs_by_itself(row: Sample) -> bool:
    is_real = not any(np.iscomplexobj(x) for x in row.operands)
    if row.command not in NAMES or (row.command == "triangular_solve" and is_real):  # which is printed
        return False
    return all(np.size(x) for x in row.operands) and not (
        row.command in PARTED and is_real
    )  # results of none are constants


ROWS = [row for row in SAMPLES if runs_by_itself(row)]


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_a_reference_of_any_arrays_runs_on_arrays_of_cupy(row: Sample, machine: Machine) -> None:
    f = nnc.compile(lambda *operands: run(row, operands))
    f(*(nnc.device_put(np.asarray(x), machine.name) for x in row.operands))
    assert f"{machine.name} runs by {BACKEND}: {row.command}" in nnc.debug.explain(f)


@pytest.mark.parametrize("name", COMPLEX)
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_functions_of_complex_numbers_run_on_the_device(name: str, dtype: str, machine: Machine) -> None:
    rng = np.random.default_rng(0)
    parts = rng.normal(size=(2, 3, 5)), rng.normal(size=(2, 3, 5))
    x = (parts[0] + 1j * parts[1]).astype(dtype)
    x[0, 0, :4] = 0, np.inf, complex(-np.inf, 2), complex(np.nan, 1)
    params: dict[str, Any] = (
        {"axes": (1,)} if name.startswith("reduce") else {"axis": 1} if name.startswith("cum") else {}
    )
    operands = [x] * (get_command(name).arity or 1)

    def function(*operands: Any) -> Any:
        return get_command(name)(*operands, **params)

    f = nnc.compile(function)
    found = np.asarray(f(*nnc.device_put(operands, machine.name)))
    assert f"{machine.name} runs by {BACKEND}: {name}" in nnc.debug.explain(f)
    np.testing.assert_allclose(
        found, np.asarray(function(*map(nnp.asarray, operands))), rtol=1e-5 if dtype == "complex64" else 1e-12
    )


def test_expm1_of_small_complex_numbers_has_all_digits() -> None:
    x = np.array([1e-9 + 1e-9j, -1e-12 + 1j * 1e-7])
    wanted = x + x * x / 2 + x * x * x / 6
    np.testing.assert_allclose(reference[get_command("expm1")](x), wanted, rtol=1e-14)


def test_rows_that_are_solved_before_a_nan_stay_free_of_it(machine: Machine) -> None:
    a = np.tril(np.random.default_rng(0).normal(size=(2, 40, 40))) + 8 * np.eye(40)
    b = np.ones((2, 40, 3))
    b[:, 30, 1] = np.nan

    @nnc.compile
    def f(a: Any, b: Any) -> Any:
        return triangular_solve(a, b, lower=True), triangular_solve(a, b, lower=True, transpose_a=True)

    down, up = map(np.asarray, f(*nnc.device_put((a, b), machine.name)))
    assert np.isfinite(down[:, :30]).all() and np.isnan(down[:, 30:, 1]).all() and np.isfinite(down[..., [0, 2]]).all()
    assert np.isfinite(up[:, 31:]).all() and np.isnan(up[:, :31, 1]).all() and np.isfinite(up[..., [0, 2]]).all()
    np.testing.assert_allclose(a[0] @ down[0, :, 0], b[0, :, 0], rtol=1e-12)
    assert "on the host" not in nnc.debug.explain(f)


def test_a_triangle_with_a_zero_on_its_diagonal_is_refused(machine: Machine) -> None:
    a = np.diag([1.0, 0.0, 2.0])
    f = nnc.compile(lambda a, b: triangular_solve(a, b, lower=True))
    with pytest.raises(LinAlgError, match="triangular_solve: a matrix is singular"):
        nnc.block_until_ready(f(*nnc.device_put((a, np.ones((3, 1))), machine.name)))


def test_cofactors_of_singular_matrices_among_others_run_on_the_device(machine: Machine) -> None:
    x = np.random.default_rng(0).normal(size=(4, 3, 3))
    x[1] = np.diag([1.0, 2.0, 1e-17])  # no exact zero: the inverse exists, and is of no use
    for matrices in (x, np.concatenate([x, np.ones((1, 3, 3))])):
        f = nnc.compile(cofactor)
        found = np.asarray(f(nnc.device_put(matrices, machine.name)))
        first, second, third = np.moveaxis(matrices, 1, 0)
        wanted = np.stack([np.cross(second, third), np.cross(third, first), np.cross(first, second)], 1)
        np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)
        assert "on the host" not in nnc.debug.explain(f)


def test_a_matrix_that_is_refused_is_named_with_its_line(machine: Machine) -> None:
    x = nnc.device_put(-np.eye(3), machine.name)
    with pytest.raises(LinAlgError, match=r"cholesky: a matrix is not positive definite[^$]*test_cupy_arrays.py"):
        nnc.compile(lambda x: nnp.linalg.cholesky(x))(x)


def test_bfloat16_is_widened_and_rounded_as_ml_dtypes_does() -> None:
    bits = np.arange(1 << 16, dtype=np.uint16)
    wide = bits.view(ml_dtypes.bfloat16).astype(np.float32)
    assert np.array_equal(widened(bits, dtypes.bfloat16), wide, equal_nan=True)
    rng = np.random.default_rng(0)
    near = (wide.view(np.uint32) + rng.integers(0, 1 << 16, bits.shape, np.uint32)).view(np.float32)
    ties = (wide.view(np.uint32) + np.uint32(1 << 15)).view(np.float32)
    for values in (wide, near, ties):
        with np.errstate(all="ignore"):
            found, wanted = (
                narrowed(values, dtypes.bfloat16).view(ml_dtypes.bfloat16),
                values.astype(ml_dtypes.bfloat16),
            )
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
