"""The matrix product `x @ y` of arrays of any axes, by the command `dot`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nnc.array.promote import promote
from nnc.calls.specialise import specialised
from nnc.commands.contract import dot
from nnc.commands.shape import permute, reshape
from nnc.errors import ShapeError, user_error
from nnc.graph import TensorSpec, spec_of
from nnc.graph.rules import Value

if TYPE_CHECKING:
    from nnc.array.array import Array


@specialised(2)
def matmul(x: Any, y: Any) -> Array:
    """Returns the matrix product `x @ y`; leading axes are batches and broadcast.

    out[..., i, j] = sum over k of x[..., i, k] · y[..., k, j]

    Args:
        x: (..., m, k) or (k,).
        y: (..., k, n) or (k,). A 1-d operand's axis is summed and stands not in the result.

    Returns:
        (..., m, n), of the promoted dtype. 16-bit floats accumulate in float32.

    Raises:
        ShapeError: an operand is 0-d, the contracting sizes differ, or the batches do not broadcast.

    Example:
        >>> matmul(np.ones((5, 2, 3), np.float32), np.ones((3, 4), np.float32)).shape
        (5, 2, 4)
    """
    x, y = promote(x, y, where="matmul")
    a, b = spec_of(x), spec_of(y)
    operands = {"left": a, "right": b}
    for name, spec in operands.items():
        if spec.ndim == 0:
            problem = f"the {name} operand is 0-d."
            raise user_error(ShapeError, "matmul", problem, operands=operands, fix="use * to scale by a number.")
    k_of_y = max(0, b.ndim - 2)
    if a.shape[-1] != b.shape[k_of_y]:
        k = a.shape[-1]
        problem = f"contracting sizes differ: left axis {a.ndim - 1} is {k}, right axis {k_of_y} is {b.shape[k_of_y]}."
        fix = f"pass a right operand of shape ({k},{' n' if b.ndim > 1 else ''}){', or transpose it with `.T`' * (b.ndim > 1)}."
        raise user_error(ShapeError, "matmul", problem, operands=operands, fix=fix)
    _check_batches(a, b)
    product: Array = _matmul(x, y)
    return product


def _check_batches(a: TensorSpec, b: TensorSpec) -> None:
    for back in range(3, min(a.ndim, b.ndim) + 1):
        m, n = a.shape[-back], b.shape[-back]
        if m != n and 1 not in (m, n):
            problem = (
                f"batch sizes do not broadcast: left axis {a.ndim - back} is {m}, right axis {b.ndim - back} is {n}."
            )
            fix = "give the leading axes equal sizes, or size 1 where they broadcast."
            raise user_error(ShapeError, "matmul", problem, operands={"left": a, "right": b}, fix=fix)


def _matmul(x: Value, y: Value) -> Value:
    """Axes that only one operand has (or has not with size 1) are free ones of that operand: no operand is ever broadcast."""
    a, b = spec_of(x), spec_of(y)
    leading = max(a.ndim, b.ndim, 2) - 2
    # the broadcast batch axis, from the front, of each operand's axis
    at_x = {leading - (a.ndim - 2) + i: i for i in range(a.ndim - 2)}
    at_y = {leading - (b.ndim - 2) + i: i for i in range(b.ndim - 2)}
    both = [i for i in range(leading) if i in at_x and i in at_y]
    drop_x = [at_x[i] for i in both if a.shape[at_x[i]] == 1 != b.shape[at_y[i]]]
    drop_y = [at_y[i] for i in both if b.shape[at_y[i]] == 1 != a.shape[at_x[i]]]
    x, y = _squeeze(x, drop_x), _squeeze(y, drop_y)
    order_x = [i for i in at_x if at_x[i] not in drop_x]  # which batch axis each leading axis of x is now
    order_y = [i for i in at_y if at_y[i] not in drop_y]
    shared = [i for i in order_x if i in order_y]
    out = dot(
        x,
        y,
        contract=((np.ndim(x) - 1,), (max(0, np.ndim(y) - 2),)),
        batch=(tuple(map(order_x.index, shared)), tuple(map(order_y.index, shared))),
    )
    rows, columns = [leading] * (a.ndim > 1), [leading + 1] * (b.ndim > 1)
    order = [
        *shared,
        *(i for i in order_x if i not in shared),
        *rows,
        *(i for i in order_y if i not in shared),
        *columns,
    ]
    return permute(out, tuple(order.index(i) for i in sorted(order)))


def _squeeze(x: Value, axes: list[int]) -> Value:
    return reshape(x, shape=tuple(n for i, n in enumerate(spec_of(x).shape) if i not in axes)) if axes else x
