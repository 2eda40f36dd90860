"""Evaluation of the functions of a distribution: operands, supports, location and scale.

Each module of a distribution gives formulas of standardised numbers y = (x − loc) / scale. The functions here read operands,
replace numbers outside the support, so that derivatives there are 0 rather than NaN, and set results of invalid parameters to NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from nnc.array.array import Array
from nnc.base import dtypes
from nnc.commands.elementwise import FLOAT
from nnc.commands.promote import as_operand, astype, broadcast, promote, weakness_of_result, with_weakness
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

    def within(self, *shapes: Array) -> Array | float:
        """A number inside the support."""
        return self.inside

    def outside(self, y: Array, *shapes: Array) -> tuple[Array, Array]:
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


def read(
    where: str, operands: Operands, *, wide: bool = False, elementwise: bool = True
) -> tuple[list[Array], Callable[[Array], Array]]:
    """The operands in one real dtype, and the function that gives results the operands' dtype.

    Args:
        where: name of the public function, for errors.
        operands: arrays and numbers.
        wide: computes float32 in float64, for differences of large numbers; 16-bit floats are computed in float32 or float64.
        elementwise: operands have to broadcast.

    Raises:
        DTypeError: an operand is complex.
        ShapeError: the shapes do not broadcast.
    """
    given = [as_operand(x, where) for x in operands]
    values = [to_value(x, where) for x in promote(*given, where=where, to=dtypes.to_float)]
    check_dtype(where, values[0].spec, *FLOAT)
    if elementwise and len({x.spec.shape for x in values if x.spec.ndim}) > 1:
        broadcast(*values, where=where)  # refuses shapes that do not fit; formulas broadcast by themselves
    own = values[0].spec.dtype

    def finish(result: Array) -> Array:
        result = astype(result, own)
        return with_weakness(result, weakness_of_result(own, given))

    return [astype(x, dtypes.float64 if wide else dtypes.accumulator(own)) for x in values], finish


@dataclass(frozen=True)
class Continuous:
    """The parameters of a family of densities. Formulas are of y and the shape parameters.

    Args:
        name: of the module, for errors.
        support: of y.
        valid: a condition on the shape parameters; without any it is not asked.
        wide: computes float32 in float64, where large numbers cancel.
    """

    name: str
    support: Support = LINE
    valid: Formula = positive
    wide: bool = False

    def logpdf(self, formula: Formula, *operands: ArrayLike) -> Array:
        """formula(y) − log(scale), and −∞ outside the support. Operands are x, the shape parameters, loc and scale."""
        return self._run(
            "logpdf", formula, operands, (-math.inf, -math.inf), lambda value, scale: value - el.log(scale)
        )

    def pdf(self, formula: Formula, *operands: ArrayLike) -> Array:
        """formula(y) / scale, and 0 outside the support."""
        return self._run("pdf", formula, operands, (0.0, 0.0), lambda value, scale: value / scale)

    def cdf(self, formula: Formula, *operands: ArrayLike) -> Array:
        """formula(y), 0 below the support and 1 above it."""
        return self._run("cdf", formula, operands, (0.0, 1.0))

    def sf(self, formula: Formula, *operands: ArrayLike) -> Array:
        """formula(y), 1 below the support and 0 above it."""
        return self._run("sf", formula, operands, (1.0, 0.0))

    def logcdf(self, formula: Formula, *operands: ArrayLike) -> Array:
        """formula(y), −∞ below the support and 0 above it."""
        return self._run("logcdf", formula, operands, (-math.inf, 0.0))

    def logsf(self, formula: Formula, *operands: ArrayLike) -> Array:
        """formula(y), 0 below the support and −∞ above it."""
        return self._run("logsf", formula, operands, (0.0, -math.inf))

    def ppf(self, formula: Formula, *operands: ArrayLike) -> Array:
        """Loc + scale · formula(q), and NaN for probabilities beyond 0 and 1. Operands are q, shape parameters, loc and scale."""
        return self._quantile("ppf", formula, operands)

    def isf(self, formula: Formula, *operands: ArrayLike) -> Array:
        """Loc + scale · formula(q), and NaN for probabilities beyond 0 and 1."""
        return self._quantile("isf", formula, operands)

    def _run(
        self,
        function: str,
        formula: Formula,
        operands: Operands,
        outside: tuple[float, float],
        scaled: Formula | None = None,
    ) -> Array:
        (x, *shapes, loc, scale), finish = read(f"{self.name}.{function}", operands, wide=self.wide)
        y = (x - loc) / scale
        below, above = self.support.outside(y, *shapes)
        y = el.where(el.logical_or(below, above), self.support.within(*shapes), y)
        result = formula(y, *shapes)
        result = result if scaled is None else scaled(result, scale)
        result = el.where(below, outside[0], el.where(above, outside[1], result))
        return finish(self._checked(result, scale > 0, shapes))

    def _quantile(self, function: str, formula: Formula, operands: Operands) -> Array:
        (q, *shapes, loc, scale), finish = read(f"{self.name}.{function}", operands, wide=self.wide)
        inside = every(q >= 0, q <= 1)
        result = loc + scale * formula(el.where(inside, q, 0.5), *shapes)
        return finish(self._checked(result, every(inside, scale > 0), shapes))

    def _checked(self, result: Array, condition: Array, shapes: list[Array]) -> Array:
        return el.where(every(condition, self.valid(*shapes)) if shapes else condition, result, math.nan)


@dataclass(frozen=True)
class Counts:
    """The parameters of a family of distributions of integers. Formulas are of k − loc and the shape parameters.

    Args:
        name: of the module, for errors.
        valid: a condition on the shape parameters.
        lower: the least count.
        upper: the largest count, of the shape parameters; None is infinite.
        wide: computes float32 in float64, where large numbers cancel.
    """

    name: str
    valid: Formula
    lower: int = 0
    upper: Callable[..., Array | float] | None = None
    wide: bool = True

    def logpmf(self, formula: Formula, *operands: ArrayLike) -> Array:
        """formula(k − loc), and −∞ for other numbers than counts. Operands are k, the shape parameters and loc."""
        return self._mass("logpmf", formula, operands, -math.inf)

    def pmf(self, formula: Formula, *operands: ArrayLike) -> Array:
        """formula(k − loc), and 0 for other numbers than counts."""
        return self._mass("pmf", formula, operands, 0.0)

    def cdf(self, formula: Formula, *operands: ArrayLike) -> Array:
        """formula of the largest integer up to k − loc, 0 below the least count, and 1 from the largest one on."""
        return self._run("cdf", formula, operands, (0.0, 1.0))

    def sf(self, formula: Formula, *operands: ArrayLike) -> Array:
        """formula of the largest integer up to k − loc, 1 below the least count, and 0 from the largest one on."""
        return self._run("sf", formula, operands, (1.0, 0.0))

    def logcdf(self, formula: Formula, *operands: ArrayLike) -> Array:
        """formula of the largest integer up to k − loc, −∞ below the least count, and 0 from the largest one on."""
        return self._run("logcdf", formula, operands, (-math.inf, 0.0))

    def logsf(self, formula: Formula, *operands: ArrayLike) -> Array:
        """formula of the largest integer up to k − loc, 0 below the least count, and −∞ from the largest one on."""
        return self._run("logsf", formula, operands, (0.0, -math.inf))

    def ppf(self, formula: Formula, *operands: ArrayLike) -> Array:
        """Loc + formula(q), and NaN for probabilities beyond 0 and 1. Operands are q, the shape parameters and loc."""
        (q, *shapes, loc), finish = read(f"{self.name}.ppf", operands, wide=self.wide)
        inside = every(q >= 0, q <= 1)
        result = loc + formula(el.where(inside, q, 0.5), *shapes)
        return finish(el.where(every(inside, self.valid(*shapes)), result, math.nan))

    def _mass(self, function: str, formula: Formula, operands: Operands, otherwise: float) -> Array:
        (k, *shapes, loc), finish = read(f"{self.name}.{function}", operands, wide=self.wide)
        y = k - loc
        outside = el.logical_or(el.logical_or(y < self.lower, y > self._last(*shapes)), el.floor(y) < y)
        outside = el.logical_or(outside, el.equal(y, math.inf))
        result = el.where(outside, otherwise, formula(el.where(outside, self.lower, y), *shapes))
        return finish(self._checked(result, y, shapes))

    def _run(self, function: str, formula: Formula, operands: Operands, outside: tuple[float, float]) -> Array:
        (k, *shapes, loc), finish = read(f"{self.name}.{function}", operands, wide=self.wide)
        y = el.floor(k - loc)
        below, above = y < self.lower, y >= self._last(*shapes)
        result = formula(el.where(el.logical_or(below, above), self.lower, y), *shapes)
        result = el.where(below, outside[0], el.where(above, outside[1], result))
        return finish(self._checked(result, y, shapes))

    def _checked(self, result: Array, y: Array, shapes: list[Array]) -> Array:
        """NaN for counts that are NaN, which formulas may not read, and for invalid parameters."""
        return el.where(every(~el.isnan(y), self.valid(*shapes)), result, math.nan)

    def _last(self, *shapes: Array) -> Array | float:
        return math.inf if self.upper is None else self.upper(*shapes)


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
