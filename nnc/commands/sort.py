"""Sorting, the largest elements, and search in sorted arrays.

NaN counts as greater than every number (complex numbers are ordered by real part, then imaginary part, as in NumPy). Sorts
are stable. A sort is linear where no two elements are equal: its tangent is the operand's, in the same order.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nnc.base import dtypes
from nnc.commands.index import gather, move_axis
from nnc.commands.rules import batch_leading, check_axis, lead, of_tangent
from nnc.errors import ShapeError, user_error
from nnc.errors.errors import check_choice
from nnc.graph import TensorSpec, check_same_dtype, register
from nnc.graph.rules import Derivative, Rules, Tangents, Value

NDArray = np.ndarray[Any, Any]


def _order(x: NDArray, axis: int, descending: bool) -> NDArray:
    x = x.astype(dtypes.accumulator(x.dtype), copy=False)
    if not descending:
        return np.argsort(x, axis, kind="stable")
    # Among equal elements the first comes first in both directions
    backwards = np.flip(np.argsort(np.flip(x, axis), axis, kind="stable"), axis)
    return np.asarray(x.shape[axis] - 1 - backwards)


def _sort_cost(x: TensorSpec, **params: Any) -> int:
    n: int = x.shape[params.get("axis", x.ndim - 1)]
    return x.size * int(max(1, n - 1).bit_length())


def _sort_infer(x: TensorSpec, *, axis: int, descending: bool) -> TensorSpec:
    check_axis("sort", axis, x.ndim)
    return x


def _tangent_of_sort(t: Value, x: Value, out: Value, *, axis: int, descending: bool) -> Value:
    return _along(t, argsort(x, axis=axis, descending=descending, stable=True), axis)


def _along(x: Value, index: Value, axis: int) -> Value:
    """`x` at `index` along one axis, row by row."""
    last = x.spec.ndim - 1
    axis = axis % x.spec.ndim
    rows = gather(move_axis(x, axis, last), move_axis(index, axis, last), axes=(last,), batch=last, mode="error")
    return move_axis(rows, last, axis)


sort = register(
    "sort",
    Rules(
        infer=_sort_infer,
        reference=lambda x, *, axis, descending: np.take_along_axis(x, _order(x, axis, descending), axis),
        derivative=of_tangent(_tangent_of_sort),
        batch=batch_leading("sort"),
        cost=_sort_cost,
    ),
)


def _argsort_infer(x: TensorSpec, *, axis: int, descending: bool, stable: bool) -> TensorSpec:
    check_axis("argsort", axis, x.ndim)
    return x.update(dtype=dtypes.int64)


argsort = register(
    "argsort",
    Rules(
        infer=_argsort_infer,
        reference=lambda x, *, axis, descending, stable: _order(x, axis, descending),
        batch=batch_leading("argsort"),
        cost=_sort_cost,
    ),
)


def _top_k_infer(x: TensorSpec, *, k: int) -> tuple[TensorSpec, TensorSpec]:
    if not x.ndim or not 0 <= k <= x.shape[-1]:
        problem = f"there are no {k} largest of {x.shape[-1] if x.ndim else 'no axis'} elements."
        fix = "choose k from 0 to the size of the last axis."
        raise user_error(ShapeError, "top_k", problem, operands={"x": x}, fix=fix)
    shape = (*x.shape[:-1], k)
    return x.update(shape=shape), x.update(shape=shape, dtype=dtypes.int64)


def _top_k_reference(x: NDArray, *, k: int) -> tuple[NDArray, NDArray]:
    order = _order(x, x.ndim - 1, True)[..., :k]
    return np.take_along_axis(x, order, -1), order


def _top_k_jvp(primals: tuple[Value, ...], tangents: Tangents, outputs: tuple[Value, ...], *, k: int) -> Tangents:
    return _along(tangents[0], outputs[1], -1), None


top_k = register(
    "top_k",
    Rules(
        infer=_top_k_infer,
        reference=_top_k_reference,
        derivative=Derivative(_top_k_jvp),
        batch=batch_leading("top_k"),
        cost=_sort_cost,
    ),
    outputs=2,
)


def _searchsorted_infer(steps: TensorSpec, values: TensorSpec, *, side: str) -> TensorSpec:
    """Sorted rows B + (n,) and values B + S give the place, B + S, where each value would be inserted in its row."""
    check_same_dtype("searchsorted", (steps, values))
    check_choice("searchsorted", "side", side, ("left", "right"))
    if not steps.ndim or values.shape[: steps.ndim - 1] != steps.shape[:-1]:
        problem = f"sorted rows of shape {steps.shape} do not fit values of shape {values.shape}."
        fix = "give a 1-d sorted array, or values whose first axes are those of the sorted rows."
        raise user_error(ShapeError, "searchsorted", problem, operands={"sorted": steps, "values": values}, fix=fix)
    return values.update(dtype=dtypes.int64)


def _searchsorted_reference(steps: NDArray, values: NDArray, *, side: str) -> NDArray:
    out = np.zeros(values.shape, np.int64)
    if steps.size and values.size:
        wide = dtypes.accumulator(steps.dtype)
        rows = steps.astype(wide, copy=False).reshape(-1, steps.shape[-1])
        wanted = values.astype(wide, copy=False).reshape(len(rows), -1)
        for row, sought, found in zip(rows, wanted, out.reshape(len(rows), -1), strict=True):
            found[:] = row.searchsorted(sought, "left" if side == "left" else "right")
    return out


def _searchsorted_batch(size: int, operands: tuple[Value, ...], batched: tuple[bool, ...], *, side: str) -> Any:
    steps, values = operands
    if not batched[0] and steps.spec.ndim == 1:
        return (searchsorted(steps, values, side=side),), (True,)
    return (searchsorted(lead(size, steps, batched[0]), lead(size, values, batched[1]), side=side),), (True,)


searchsorted = register(
    "searchsorted",
    Rules(
        infer=_searchsorted_infer,
        reference=_searchsorted_reference,
        batch=_searchsorted_batch,
        cost=lambda steps, values, side: values.size * max(1, steps.shape[-1]).bit_length(),
    ),
    arity=2,
)
