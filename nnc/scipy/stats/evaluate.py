"""Evaluation of the functions of a distribution: operands, supports, location and scale.

Each module of a distribution gives formulas of standardised numbers y = (x − loc) / scale. The functions here read operands,
replace numbers outside the support, so that derivatives there are 0 rather than NaN, and set results of invalid parameters to NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from nnc import dtypes
from nnc.array import Array
from nnc.commands.elementwise import FLOAT
from nnc.commands.promote import astype, broadcast, promote
from nnc.commands.rules import check_dtype
from nnc.numpy import elementwise as el
from nnc.numpy.operands import to_value
from nnc.typing import ArrayLike

Formula = Callable[..., Array]  # of a standardised number and the shape parameters
Operands = tuple[ArrayLike, ...]


@dataclass(frozen=True)
class Support:
    """The closed interval outside which a density is 0. Infinities lie outside.

    Args:
        lower: of standardised numbers.
        upper: the other end.
        inside: a number within, where formulas and their derivatives are finite.
    """

    lower: float = -math.inf
    upper: float = math.inf
    inside: float = 0.5

    def outside(self, y: Array) -> tuple[Array, Array]:
        """Whether numbers lie below, and whether they lie above; NaN does neither."""
        below = y < self.lower if math.isfinite(self.lower) else el.equal(y, -math.inf)
        above = y > self.upper if math.isfinite(self.upper) else el.equal(y, math.inf)
        return below, above


LINE = Support()
HALF_LINE = Support(lower=0)
UNIT = Support(lower=0, upper=1)


def positive(*shapes: Array) -> Array:
    """Whether all shape parameters are above 0."""
    return every(*(shape > 0 for shape in shapes))


def every(*conditions: Array) -> Array:
    """The logical and of one or more conditions."""
    result, *others = conditions
    for condition in others:
        result = el.logical_and(result, condition)
    return result


def read(where: str, operands: Operands) -> tuple[list[Array], dtypes.DType]:
    """The operands in one real dtype, 16-bit floats in float32, and the dtype of the result.

    Raises:
        DTypeError: an operand is complex.
        ShapeError: the shapes do not broadcast.
    """
    values = [to_value(x, where) for x in promote(*operands, where=where, to=dtypes.to_float)]
    check_dtype(where, values[0].spec, *FLOAT)
    if len({x.spec.shape for x in values if x.spec.ndim}) > 1:
        broadcast(*values, where=where)  # refuses shapes that do not fit; formulas broadcast by themselves
    own = values[0].spec.dtype
    return [astype(x, dtypes.accumulator(own)) for x in values], own


def log_density(
    where: str, formula: Formula, operands: Operands, support: Support = LINE, valid: Formula = positive
) -> Array:
    """formula(y, *shapes) − log(scale), and −∞ outside the support.

    Args:
        where: name of the public function, for errors.
        formula: logarithm of the density of y.
        operands: x, the shape parameters, loc, scale.
        support: of y.
        valid: a condition on the shape parameters; without any it is not asked.
    """

    def log_of(y: Array, scale: Array, *shapes: Array) -> Array:
        return formula(y, *shapes) - el.log(scale)

    return _continuous(where, log_of, operands, support, valid, (-math.inf, -math.inf))


def density(
    where: str, formula: Formula, operands: Operands, support: Support = LINE, valid: Formula = positive
) -> Array:
    """formula(y, *shapes) / scale, and 0 outside the support; arguments are those of `log_density`."""

    def quotient(y: Array, scale: Array, *shapes: Array) -> Array:
        return formula(y, *shapes) / scale

    return _continuous(where, quotient, operands, support, valid, (0.0, 0.0))


def probability(
    where: str,
    formula: Formula,
    operands: Operands,
    support: Support = LINE,
    valid: Formula = positive,
    *,
    outside: tuple[float, float],
) -> Array:
    """formula(y, *shapes) within the support, and constants outside.

    Args:
        where: name of the public function, for errors.
        formula: of y and the shape parameters.
        operands: x, the shape parameters, loc, scale.
        support: of y.
        valid: a condition on the shape parameters; without any it is not asked.
        outside: results below and above the support.
    """
    return _continuous(where, lambda y, scale, *shapes: formula(y, *shapes), operands, support, valid, outside)


CDF = (0.0, 1.0)  # results outside a support
SF = (1.0, 0.0)
LOG_CDF = (-math.inf, 0.0)
LOG_SF = (0.0, -math.inf)


def _continuous(
    where: str, formula: Formula, operands: Operands, support: Support, valid: Formula, outside: tuple[float, float]
) -> Array:
    (x, *shapes, loc, scale), own = read(where, operands)
    y = (x - loc) / scale
    below, above = support.outside(y)
    y = el.where(el.logical_or(below, above), support.inside, y)
    result = formula(y, scale, *shapes)
    if outside[0] == outside[1]:
        result = el.where(el.logical_or(below, above), outside[0], result)
    else:
        result = el.where(below, outside[0], el.where(above, outside[1], result))
    return _checked(result, scale > 0, shapes, valid, own)


def quantile(where: str, formula: Formula, operands: Operands, valid: Formula = positive) -> Array:
    """loc + scale · formula(q, *shapes), and NaN for probabilities beyond 0 and 1.

    Args:
        where: name of the public function, for errors.
        formula: the standardised number of a probability.
        operands: q, the shape parameters, loc, scale.
        valid: a condition on the shape parameters; without any it is not asked.
    """
    (q, *shapes, loc, scale), own = read(where, operands)
    inside = every(q >= 0, q <= 1)
    result = loc + scale * formula(el.where(inside, q, 0.5), *shapes)
    return _checked(result, every(inside, scale > 0), shapes, valid, own)


def _checked(result: Array, condition: Array, shapes: list[Array], valid: Formula, own: dtypes.DType) -> Array:
    condition = every(condition, valid(*shapes)) if shapes else condition
    return astype(el.where(condition, result, math.nan), own)


# -- counts ------------------------------------------------------------------------------------------------------------


def log_mass(
    where: str,
    formula: Formula,
    operands: Operands,
    valid: Formula,
    *,
    lower: int = 0,
    upper: Formula | None = None,
) -> Array:
    """formula(k − loc, *shapes), and −∞ where k − loc is no integer or lies outside the support.

    Args:
        where: name of the public function, for errors.
        formula: logarithm of the probability of a count.
        operands: k, the shape parameters, loc.
        valid: a condition on the shape parameters.
        lower: the least count.
        upper: the largest count, of the shape parameters; None is infinite.
    """
    (k, *shapes, loc), own = read(where, operands)
    y = k - loc
    beyond = el.equal(y, math.inf) if upper is None else y > upper(*shapes)
    outside = el.logical_or(el.logical_or(y < lower, beyond), el.floor(y) < y)
    result = formula(el.where(outside, lower, y), *shapes)
    return astype(el.where(valid(*shapes), el.where(outside, -math.inf, result), math.nan), own)


def count_probability(
    where: str,
    formula: Formula,
    operands: Operands,
    valid: Formula,
    *,
    outside: tuple[float, float],
    lower: int = 0,
    upper: Formula | None = None,
) -> Array:
    """formula of the largest integer up to k − loc, and constants outside.

    Args:
        where: name of the public function, for errors.
        formula: of a count and the shape parameters.
        operands: k, the shape parameters, loc.
        valid: a condition on the shape parameters.
        outside: results below the least count, and from the largest one on.
        lower: the least count.
        upper: the largest count, of the shape parameters; None is infinite.
    """
    (k, *shapes, loc), own = read(where, operands)
    y = el.floor(k - loc)
    below, above = y < lower, y >= (math.inf if upper is None else upper(*shapes))
    result = formula(el.where(el.logical_or(below, above), lower, y), *shapes)
    result = el.where(below, outside[0], el.where(above, outside[1], result))
    return astype(el.where(valid(*shapes), result, math.nan), own)


# -- formulas of several distributions ---------------------------------------------------------------------------------


def mirrored(y: Array) -> Array:
    """−|y|, with the derivative 1 at 0."""
    return el.where(y > 0, -y, y)


def log1mexp(y: Array) -> Array:
    """log(1 − exp(−y)) for y ≥ 0, exact near 0 and for large y."""
    small = y < math.log(2)
    near = el.log(-el.expm1(-el.where(small, y, 1)))
    return el.where(small, near, el.log1p(-el.exp(-el.where(small, 1, y))))


def log1p_square(y: Array) -> Array:
    """log(1 + y²), also where y² is infinite."""
    far = el.abs(y) > 1
    size = el.where(far, el.abs(y), 1)
    return el.log1p(el.square(el.where(far, 1 / size, y))) + 2 * el.log(size)


def log_of(p: Array, complement: Array) -> Array:
    """log(p), from 1 − p where that is the smaller one."""
    upper = p > complement
    return el.where(upper, el.log1p(-el.where(upper, complement, 0.5)), el.log(el.where(upper, 0.5, p)))
