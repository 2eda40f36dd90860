"""Triangular factorisation with partial pivoting: x[permutation] = L U, both packed into one matrix.

All axes before the last two are batches.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nnc.base import dtypes
from nnc.commands.contract import matrix_product
from nnc.commands.elementwise import INEXACT, greater, less_equal
from nnc.commands.index import gather
from nnc.commands.linalg import (
    NDArray,
    check_matrix,
    cubic,
    identity_like,
    keep,
    lapack,
    matrix_transpose,
    triangular_solve,
)
from nnc.commands.rules import batch_leading, check_dtype
from nnc.commands.shape import concatenate, slice_axis
from nnc.graph import Command, TensorSpec, register
from nnc.graph.rules import Derivative, Rules, Tangents, Value


def _lu_infer(x: TensorSpec) -> tuple[TensorSpec, TensorSpec, TensorSpec]:
    check_dtype("lu", x, *INEXACT)
    check_matrix("lu", x, square=False)
    *batch, m, n = x.shape
    rows = x.update(dtype=dtypes.int32)
    return x, rows.update(shape=(*batch, min(m, n))), rows.update(shape=(*batch, m))


def _lu_reference(x: NDArray) -> Any:
    m, n = x.shape[-2:]
    rows = np.zeros_like(x, np.int32, shape=x.shape[:-1])
    rows += np.arange(m, dtype=np.int32, like=x)
    pivots = np.zeros_like(x, np.int32, shape=(*x.shape[:-2], min(m, n)))

    def run(x: NDArray) -> NDArray:
        out = x.copy()
        _eliminate(out, pivots, rows)
        return out

    return lapack("lu", run)(x), pivots, rows


def _eliminate(a: NDArray, pivots: NDArray, rows: NDArray) -> None:
    """Overwrites matrices with their factors; of equal candidates for a pivot the first is taken, as LAPACK does.

    All matrices take a step together, and no step waits for the values of the one before: a device has all of them in its queue.
    """
    positions = np.arange(a.shape[-2], dtype=np.int32, like=a)
    for j in range(pivots.shape[-1] if a.size else 0):
        column = a[..., j:, j]
        at = np.argmax(np.abs(column.real) + np.abs(column.imag), -1)[..., None].astype(np.int32) + np.int32(j)
        pivots[..., j] = at[..., 0]
        order = np.where(positions == np.int32(j), at, np.where(positions == at, np.int32(j), positions))
        a[...] = np.take_along_axis(a, order[..., None], -2)
        rows[...] = np.take_along_axis(rows, order, -1)
        pivot = a[..., j : j + 1, j : j + 1]
        below = a[..., j + 1 :, j : j + 1]
        below[...] = np.where(pivot == 0, below, below / pivot)
        a[..., j + 1 :, j + 1 :] -= below * a[..., j : j + 1, j + 1 :]


def unpack(packed: Value) -> tuple[Value, Value]:
    """Returns L (..., m, k), with ones on its diagonal, and U (..., k, n) of packed factors, k = min(m, n)."""
    (m, n), last = packed.spec.shape[-2:], packed.spec.ndim - 1
    k = min(m, n)
    lower = keep(slice_axis(packed, last, 0, k) if n > k else packed, greater)
    upper = keep(slice_axis(packed, last - 1, 0, k) if m > k else packed, less_equal)
    return lower + identity_like(lower.spec), upper


def _lu_jvp(primals: tuple[Value, ...], tangents: Tangents, outputs: tuple[Value, ...]) -> Tangents:
    """d(L U) = P dX, so with F = L⁻¹ P dX U⁻¹: dL = L · (F below the diagonal), dU = (F on and above it) · U.

    L and U are made square with ones on the rest of their diagonals.
    """
    packed, _, rows = outputs
    (m, n), last = packed.spec.shape[-2:], packed.spec.ndim - 1
    lower, upper = unpack(packed)
    if m > n:
        rest = identity_like(packed.spec.update(shape=(*packed.spec.shape[:-1], m)))
        lower = concatenate(lower, slice_axis(rest, last, n, m), axis=last)
    if n > m:
        rest = identity_like(packed.spec.update(shape=(*packed.spec.shape[:-2], n, n)))
        upper = concatenate(upper, slice_axis(rest, last - 1, m, n), axis=last - 1)
    moved = gather(tangents[0], rows, axes=(last - 1,), batch=last - 1, mode="clip")
    inner = triangular_solve(lower, moved, lower=True, unit_diagonal=True)
    inner = matrix_transpose(triangular_solve(upper, matrix_transpose(inner), lower=False, transpose_a=True))
    return matrix_product(lower, keep(inner, greater)) + matrix_product(keep(inner, less_equal), upper), None, None


lu: Command = register(
    "lu",
    Rules(
        infer=_lu_infer,
        any_arrays=True,
        reference=_lu_reference,
        derivative=Derivative(_lu_jvp),
        batch=batch_leading("lu"),
        cost=lambda x: cubic(x) // 3,
    ),
    outputs=3,
)
"""The packed factors, the row that each step exchanged with its own, and the permutation that these exchanges make."""
