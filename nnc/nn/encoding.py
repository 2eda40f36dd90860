"""From integers to vectors: one-hot rows and rows of a table."""

from __future__ import annotations

import nnc.numpy as nnp
from nnc.array.array import Array
from nnc.array.promote import astype, promote
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.commands import constants
from nnc.commands import elementwise as ew
from nnc.commands.rules import check_axis
from nnc.commands.shape import broadcast_to
from nnc.errors import DTypeError, ShapeError, user_error
from nnc.graph import spec_of
from nnc.numpy.operands import static_int, to_value
from nnc.typing import ArrayLike, DTypeLike

__all__ = ["embedding", "one_hot"]


@spelled
def one_hot(x: ArrayLike, num_classes: int, *, dtype: DTypeLike = dtypes.float32, axis: int = -1) -> Array:
    """Returns 1 at the index that x holds, else 0; an index out of range has no 1.

    Args:
        x: integers.
        num_classes: size of the new axis.
        dtype: dtype of the result.
        axis: where the new axis stands.

    Example:
        >>> one_hot(np.array([1, 0]), 3)
        Array([[0., 1., 0.],
               [1., 0., 0.]], dtype=float32)
    """
    x = to_value(x, "one_hot")
    at = check_axis("one_hot", static_int(axis, "one_hot", "axis"), x.ndim + 1)
    shape = (*x.shape[:at], static_int(num_classes, "one_hot", "num_classes"), *x.shape[at:])
    spread = broadcast_to(x, shape=shape, axes=tuple(i for i in range(len(shape)) if i != at))
    classes = constants.iota(shape=shape, dtype=dtypes.int64, axis=at)
    return astype(ew.equal(*promote(spread, classes, where="one_hot")), dtypes.as_dtype(dtype))


@spelled
def embedding(x: ArrayLike, table: ArrayLike, *, padding_index: int | None = None) -> Array:
    """Returns the rows of `table` that x names.

    out[..., :] = table[x[...], :]

    Args:
        x: integers of any shape.
        table: (rows, features).
        padding_index: a row that gets no gradient.

    Returns:
        (*shape of x, features).

    Raises:
        DTypeError: x holds no integers.
        ShapeError: the table has other than two axes.
        IndexError: x names no row.

    Example:
        >>> embedding(np.array([2, 0]), np.eye(3, dtype=np.float32))
        Array([[0., 0., 1.],
               [1., 0., 0.]], dtype=float32)
    """
    x, table = to_value(x, "embedding"), to_value(table, "embedding", "table")
    operands = {"x": spec_of(x), "table": spec_of(table)}
    if not dtypes.is_integer(x.dtype):
        problem = f"x must hold integers, it holds {x.dtype.name}."
        fix = "pass the indices first, then the table."
        raise user_error(DTypeError, "embedding", problem, operands=operands, fix=fix)
    if table.ndim != 2:
        fix = "pass a table of shape (rows, features)."
        raise user_error(ShapeError, "embedding", f"the table has {table.ndim} axes.", operands=operands, fix=fix)
    rows = nnp.take(table, x, axis=0)
    if padding_index is None:
        return rows
    is_padding = nnp.expand_dims(x == padding_index % table.shape[0], -1)
    return nnp.where(is_padding, ew.stop_gradient(rows), rows)
