"""Functions that are computed in float64 and rounded once at the end; their branches and their derivatives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nnc.array.array import Array
from nnc.array.promote import as_operand, astype, broadcast, promote, weakness_of_result, with_weakness
from nnc.base import dtypes
from nnc.commands.constants import ones_like
from nnc.commands.elementwise import FLOAT
from nnc.commands.rules import check_dtype
from nnc.graph import spec_of
from nnc.numpy import elementwise as el
from nnc.trace.core.differentiate import jvp


def in_float64(where: str, function: Callable[..., Array], *operands: Any) -> Array:
    """`function` of the operands, promoted to a floating-point dtype, which its result has, and to one shape.

    Raises:
        DTypeError: an operand is complex.
        ShapeError: the shapes do not broadcast.
    """
    given = [as_operand(x, where) for x in operands]
    promoted = promote(*given, where=where, to=dtypes.to_float)
    spec = spec_of(promoted[0])
    check_dtype(where, spec, *FLOAT)
    arrays = [astype(x, dtypes.float64) for x in broadcast(*promoted, where=where)]
    result = astype(function(*arrays), spec.dtype)
    return with_weakness(result, weakness_of_result(spec.dtype, given))


def keep(condition: Array, x: Array, otherwise: float) -> Array:
    """`x` where the condition holds; elsewhere a harmless number, so that branches that are not taken have no bad derivatives."""
    return el.where(condition, x, otherwise)


def slope(function: Callable[..., Array], *operands: Array, by: int = 0) -> Array:
    """Returns the derivative of an elementwise function by one operand, computed along with it."""

    def of_one(x: Array) -> Array:
        return function(*operands[:by], x, *operands[by + 1 :])

    _, tangent = jvp(of_one, (operands[by],), (ones_like(operands[by]),))
    return tangent


def polynomial(x: Array, coefficients: Sequence[float]) -> Array:
    """Returns the polynomial with these coefficients, the lowest power's first (Horner's scheme)."""
    total = el.multiply(x, 0.0) + coefficients[-1]
    for c in coefficients[-2::-1]:
        total = total * x + c
    return total
