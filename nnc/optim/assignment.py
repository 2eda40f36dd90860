"""The linear assignment problem, in compiled code; the name is that of optax.assignment."""

from __future__ import annotations

from typing import Any

import nnc.numpy as nnp
from nnc.array.array import Array
from nnc.array.promote import astype
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.errors import ShapeError, user_error
from nnc.trace.core.differentiate import stop_gradient
from nnc.trace.loops.control_flow import scan, while_loop
from nnc.typing import ArrayLike

__all__ = ["hungarian_algorithm"]


@spelled
def hungarian_algorithm(cost_matrix: ArrayLike) -> tuple[Array, Array]:
    """Chooses one column for each row, or one row for each column, so that the chosen costs have the least sum.

    Each row in turn takes the shortest augmenting path, with potentials of rows and columns (Kuhn, 1955; Jonker and Volgenant,
    1987): O(n² m) for n ≤ m. It compiles, and `nnc.vmap` solves many problems at once. The choice has no derivative; the chosen
    costs have.

    Args:
        cost_matrix: (rows, columns), real and finite.

    Returns:
        Indices of rows, which rise, and of columns, each of shape (min(rows, columns),).

    Raises:
        ShapeError: cost_matrix is no matrix.

    Example:
        >>> costs = nnp.asarray([[4.0, 1.0, 3.0], [2.0, 0.0, 5.0], [3.0, 2.0, 2.0]])
        >>> rows, columns = nnc.optim.assignment.hungarian_algorithm(costs)
        >>> columns, costs[rows, columns].sum()
        (Array([1, 0, 2], dtype=int64), Array(5., dtype=float32))
    """
    costs = stop_gradient(nnp.asarray(cost_matrix))
    if costs.ndim != 2:
        problem = f"cost_matrix has {costs.ndim} axes, it must have 2."
        fix = "pass (rows, columns); nnc.vmap takes more axes."
        raise user_error(ShapeError, "hungarian_algorithm", problem, operands={"cost_matrix": costs.spec}, fix=fix)
    turned = costs.shape[0] > costs.shape[1]
    costs = costs.T if turned else costs
    n, m = costs.shape
    if not n:
        return nnp.zeros(0, dtypes.int64), nnp.zeros(0, dtypes.int64)
    wide = costs if costs.dtype == dtypes.float64 else astype(costs, dtypes.float64)
    start = (nnp.zeros(n + 1, wide.dtype), nnp.zeros(m + 1, wide.dtype), nnp.zeros(m + 1, dtypes.int64))
    (_, _, owner), _ = scan(lambda carry, row: (_add_row(wide, carry, row), None), start, nnp.arange(1, n + 1))
    owner = owner[1:]
    columns = nnp.argsort(owner == 0, stable=True)[:n]  # those that are chosen, rising
    if turned:
        return columns, owner[columns] - 1
    order = nnp.argsort(owner[columns])
    return nnp.arange(n), columns[order]


def _add_row(costs: Array, carry: Any, row: Array) -> Any:
    """Potentials of rows and columns, and the row that owns each column, with one row more. Both count from 1; 0 is none."""
    m = costs.shape[1]
    of_rows, of_columns, owner = carry
    owner = owner.at[0].set(row)

    def grow(state: Any) -> Any:
        of_rows, of_columns, used, least, before, column = state
        used = used.at[column].set(True)
        current = owner[column]
        reduced = costs[current - 1] - of_rows[current] - of_columns[1:]
        better = ~used[1:] & (reduced < least)
        least, before = nnp.where(better, reduced, least), nnp.where(better, column, before)
        open_ = nnp.where(used[1:], nnp.inf, least)
        found = nnp.argmin(open_)
        step = open_[found]
        of_rows = of_rows.at[owner].add(nnp.where(used, step, 0))
        of_columns = of_columns - nnp.where(used, step, 0)
        return of_rows, of_columns, used, nnp.where(used[1:], least, least - step), before, found + 1

    state = (
        of_rows, of_columns, nnp.zeros(m + 1, dtypes.bool_), nnp.full(m, nnp.inf, costs.dtype),
        nnp.zeros(m, dtypes.int64), nnp.asarray(0, dtypes.int64),
    )  # fmt: skip
    of_rows, of_columns, _, _, before, column = while_loop(lambda state: owner[state[-1]] != 0, grow, state)

    def trace_back(state: Any) -> Any:
        owner, column = state
        last = before[column - 1]
        return owner.at[column].set(owner[last]), last

    owner, _ = while_loop(lambda state: state[1] != 0, trace_back, (owner, column))
    return of_rows, of_columns, owner
