"""The table of commands on `ptx:0`: printed kernels and references have the CPU's values.

Elementwise results are equal bit for bit but for functions of the GPU's own, denormals, which the CPU's compiled float32 flushes,
and numbers of 16 bits that are kept wide within a kernel; sums are added up in another order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import nnc
from nnc.base import dtypes
from tests.contract.commands.sample import Sample
from tests.contract.commands.test_contract import SAMPLES, over, rows, run

TOLERANCE = {2: 1e-2, 4: 3e-6, 8: 1e-12, 16: 1e-12}  # by bytes of a number


def on_device(values: Sequence[Any]) -> list[Any]:
    return [nnc.device_put(np.asarray(x), "ptx:0") for x in values]


def of_schur(t: np.ndarray, z: np.ndarray) -> tuple[np.ndarray, ...]:
    """The product and the eigenvalues, which are unique: factors depend on the shifts, and LAPACK's are not the reference's."""
    blocks = np.diagonal(t, -1, axis1=-2, axis2=-1)
    assert not np.tril(t, -2).any() and not (blocks[..., 1:] * blocks[..., :-1]).any()
    adjoint = np.conj(np.swapaxes(z, -1, -2))
    return z @ t @ adjoint, z @ adjoint, np.sort_complex(np.linalg.eigvals(t))


def of_eigh(values: np.ndarray, vectors: np.ndarray) -> tuple[np.ndarray, ...]:
    """The eigenvalues, the product and that of the vectors: each vector has any phase."""
    adjoint = np.conj(np.swapaxes(vectors, -1, -2))
    return values, (vectors * values[..., None, :]) @ adjoint, adjoint @ vectors


def of_eig(values: np.ndarray, vectors: np.ndarray) -> tuple[np.ndarray, ...]:
    """The eigenvalues in one order, the product, and the lengths of the vectors."""
    product = (vectors * values[..., None, :]) @ np.linalg.inv(vectors)
    return np.sort_complex(values), product, np.linalg.norm(vectors, axis=-2)


def of_svd(u: np.ndarray, s: np.ndarray, vh: np.ndarray) -> tuple[np.ndarray, ...]:
    """The singular values, the product and those of the vectors, which have any common phase."""
    u_turned, v = (np.conj(np.swapaxes(x, -1, -2)) for x in (u, vh))
    count = s.shape[-1]
    return s, (u[..., :count] * s[..., None, :]) @ vh[..., :count, :], u_turned @ u, vh @ v


# Of factors that are not unique, where a device has another algorithm than the CPU.
UNIQUE = {"schur": of_schur, "eigh": of_eigh, "eig": of_eig, "svd": of_svd}


def check_near(row: Sample, found: Sequence[Any], wanted: Sequence[Any], device: str = "ptx:0") -> None:
    assert len(found) == len(wanted)
    for x, y in zip(found, wanted, strict=True):
        assert x.device == device and x.spec == y.spec and x.weak == y.weak
    unique = UNIQUE.get(row.command, lambda *xs: xs)
    for values, others in zip(unique(*map(np.asarray, found)), unique(*map(np.asarray, wanted)), strict=True):
        if not dtypes.is_inexact(values.dtype):
            assert np.array_equal(values, others)
            continue
        tolerance = TOLERANCE[values.dtype.itemsize]
        if values.dtype.kind != "c":
            values, others = values.astype(np.float64), others.astype(np.float64)
        size = float(np.max(np.abs(others[np.isfinite(others)]), initial=0))
        np.testing.assert_allclose(values, others, rtol=tolerance, atol=tolerance * size + 1e-37)


@rows
def test_a_compiled_command_has_the_results_of_the_cpu(row: Sample) -> None:
    def function(*operands: Any) -> tuple[Any, ...]:
        return run(row, operands)

    wanted = nnc.compile(function)(*map(np.asarray, row.operands))
    found = nnc.compile(function)(*on_device(row.operands)) if row.operands else nnc.compile(function, device="ptx:0")()
    check_near(row, found, wanted)


@over(SAMPLES)
def test_an_eager_command_has_the_results_of_the_cpu(row: Sample) -> None:
    with nnc.default_device("ptx:0"):
        found = run(row, on_device(row.operands))
    check_near(row, found, run(row, row.operands))
