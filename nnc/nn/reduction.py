"""Parts of all losses: operands of one shape in a dtype that sums need, and reductions of their terms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import nnc.numpy as nnp
from nnc.array.array import Array, as_value
from nnc.array.promote import astype, dtype_of, promote
from nnc.base import dtypes
from nnc.errors import ShapeError, user_error
from nnc.errors.errors import check_choice
from nnc.graph import spec_of

Reduction = Literal["mean", "sum", "none"]


def widen(where: str, *xs: Any) -> tuple[list[Array], dtypes.DType]:
    """Returns the operands in the dtype in which their terms are summed, and the dtype of the loss."""
    values = promote(*xs, where=where, to=dtypes.to_float)
    dtype = dtype_of(values[0])
    return [as_value(astype(x, dtypes.accumulator(dtype))) for x in values], dtype


def check_same_shape(where: str, **operands: Array) -> None:
    """Refuses to broadcast: (n, 1) minus (n,) is a mistake that no training survives.

    Raises:
        ShapeError: two operands differ.
    """
    shapes = {name: spec_of(x).shape for name, x in operands.items()}
    if len(set(shapes.values())) > 1:
        named = ", ".join(
            f"{name}{' have shape' if i == 0 else ''} {shape}" for i, (name, shape) in enumerate(shapes.items())
        )
        fix = "give all of them one shape, for example with reshape."
        raise user_error(
            ShapeError, where, f"{named}.", operands={name: spec_of(x) for name, x in operands.items()}, fix=fix
        )


def widen_same(where: str, names: Sequence[str], *xs: Any) -> tuple[list[Array], dtypes.DType]:
    """`widen`, for operands that must have one shape."""
    values, dtype = widen(where, *xs)
    check_same_shape(where, **dict(zip(names, values, strict=True)))
    return values, dtype


def reduce_terms(
    where: str, terms: Array, reduction: Reduction, dtype: dtypes.DType, weights: Array | None = None
) -> Array:
    """Returns the terms of a loss reduced, in `dtype`; a mean divides by the sum of the weights, where the terms have some.

    Raises:
        ArgumentError: there is no such reduction.
    """
    check_choice(where, "reduction", reduction, ("mean", "sum", "none"))
    if reduction == "none":
        return nnp.astype(terms, dtype)
    if reduction == "sum":
        return nnp.astype(nnp.sum(terms), dtype)
    return nnp.astype(nnp.mean(terms) if weights is None else nnp.sum(terms) / nnp.sum(weights), dtype)
