"""Makes the functions of a distribution from its formulas: operands, supports, location and scale, docstrings.

Each module of a distribution has a record of it, and gives formulas of standardised numbers y = (x − loc) / scale. The functions
that are made of them read operands, replace numbers outside the support, so that derivatives there are 0 rather than NaN, and set
results of invalid parameters to NaN.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from inspect import signature
from typing import ClassVar, Generic, ParamSpec

from nnc.array.array import Array
from nnc.array.promote import as_operand, astype, broadcast, promote, weakness_of_result, with_weakness
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.commands.elementwise import FLOAT
from nnc.commands.rules import check_dtype
from nnc.numpy import elementwise as el
from nnc.numpy.operands import to_value
from nnc.typing import ArrayLike

P = ParamSpec("P")
Q = ParamSpec("Q")
Formula = Callable[..., Array]  # of a standardised number and the shape parameters
Operands = tuple[ArrayLike, ...]

_SUMMARIES = {
    "logpdf": "the logarithm of the density",
    "pdf": "the density",
    "logpmf": "the logarithm of the probability of a count",
    "pmf": "the probability of a count",
    "logcdf": "the logarithm of `cdf`, exact in both tails",
    "cdf": "the probability of numbers up to {x}",
    "logsf": "the logarithm of `sf`, exact in both tails",
    "sf": "the probability of numbers above {x}, without the cancellation of 1 - cdf",
    "ppf": "the number up to which lies the probability {x}, the inverse of `cdf`",
    "isf": "the number above which lies the probability {x}, the inverse of `sf`",
}
_OUTSIDE = {  # results below and above the support
    "logpdf": (-math.inf, -math.inf),
    "pdf": (0.0, 0.0),
    "logpmf": (-math.inf, -math.inf),
    "pmf": (0.0, 0.0),
    "cdf": (0.0, 1.0),
    "sf": (1.0, 0.0),
    "logcdf": (-math.inf, 0.0),
    "logsf": (0.0, -math.inf),
}
_PROBABILITY = "probabilities in [0, 1], any shape; broadcasts with the parameters. Beyond, the result is NaN."


@dataclass(frozen=True)
class Support:
    """The closed interval outside which a density is 0. Infinities lie outside.

    Args:
        lower: the lower end, in standardised numbers.
        upper: the other end.
        inside: a number within, where formulas and their derivatives are finite.
    """

    lower: float = -math.inf
    upper: float = math.inf
    inside: float = 0.5

    def within(self, *shapes: Array) -> Array | float:
        """Returns a number inside the support."""
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
    """Returns the logical and of one or more conditions."""
    result, *others = conditions
    for condition in others:
        result = el.logical_and(result, condition)
    return result


def read(
    where: str, operands: Operands, *, wide: bool = False, elementwise: bool = True
) -> tuple[list[Array], Callable[[Array], Array]]:
    """Returns the operands in one real dtype, and the function that gives results the operands' dtype.

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


def of_q(q: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Operands:
    """Returns the operands of a quantile without shape parameters."""
    return q, loc, scale


@dataclass(frozen=True)
class Family(ABC, Generic[P]):
    """A family of distributions, which makes the functions of its module.

    Args:
        name: the name of the module.
        operands: returns all operands in one tuple. The functions have its signature. Their docstrings are made of its own, with
            the meanings of parameters, the example's arguments, and for each function the formula and the example's result.
        valid: a condition on the shape parameters; without any it is not asked.
        wide: computes float32 in float64, where large numbers cancel.
    """

    name: str
    operands: Callable[P, Operands]
    valid: Formula = positive
    wide: bool = False

    first: ClassVar[str]  # the meaning of the first operand
    where: ClassVar[str]  # the meaning of symbols in formulas
    dtype: ClassVar[str]  # of results in examples
    probabilities: ClassVar[str]  # in examples

    def make(self, function: str, formula: Formula) -> Callable[P, Array]:
        """Makes the public function of this name, whose formula is of a standardised number and the shape parameters."""
        return self._made(function, self.operands, partial(self._run, function, formula), self.first)

    def make_quantile(self, function: str, operands: Callable[Q, Operands], formula: Formula) -> Callable[Q, Array]:
        """Makes `ppf` or `isf`, whose formula is of a probability and the shape parameters."""
        return self._made(function, operands, partial(self._quantile, function, formula), _PROBABILITY)

    def _made(
        self, function: str, operands: Callable[Q, Operands], run: Callable[[Operands], Array], first: str
    ) -> Callable[Q, Array]:
        def call(*args: Q.args, **kwargs: Q.kwargs) -> Array:
            return run(operands(*args, **kwargs))

        own = signature(operands)
        call.__name__ = call.__qualname__ = function
        call.__module__ = f"nnc.scipy.stats.{self.name}"
        call.__doc__ = self._docstring(function, list(own.parameters), first)
        call.__annotations__ = operands.__annotations__ | {"return": "Array"}
        vars(call).update(__wrapped__=operands, __signature__=own.replace(return_annotation="Array"))
        return spelled(call)

    def _docstring(self, function: str, parameters: list[str], first: str) -> str:
        texts = dict(re.findall(r"^ +(\w+): *(.*)$", self.operands.__doc__ or "", re.MULTILINE))
        results = dict(re.findall(r"^ +(\w+):.*\n +(\[.*\])$", self.operands.__doc__ or "", re.MULTILINE))
        formula = texts.get(function)
        example = re.search(r"Example:\n +(.*)", self.operands.__doc__ or "")
        numbers = example[1] if example is not None else ""
        dtype = self.dtype
        if first is _PROBABILITY:
            numbers = re.sub(r"\[.*?\]", self.probabilities, numbers)
            dtype = "float64"
        elif formula:
            formula += self.where
        x, *others = parameters
        lines = [
            f"Returns {_SUMMARIES[function].format(x=x)}.",
            *(["", f"{formula}."] if formula else []),
            "",
            "Args:",
            f"    {x}: {first}",
            *(f"    {name}: {texts.get(name)}" for name in others),
            "",
            "Example:",
            f"    >>> {function}({numbers})",
            f"    Array({results.get(function)}, dtype={dtype})",
        ]
        return "\n    ".join(lines)

    @abstractmethod
    def _run(self, function: str, formula: Formula, operands: Operands) -> Array:
        """Returns the values of a function of numbers."""

    @abstractmethod
    def _quantile(self, function: str, formula: Formula, operands: Operands) -> Array:
        """Returns the values of a function of probabilities."""


@dataclass(frozen=True)
class Continuous(Family[P]):
    """A family of densities. Formulas are of y = (x − loc) / scale and the shape parameters.

    Args:
        support: the support of y.
    """

    support: Support = LINE

    first = "real, any shape; broadcasts with the parameters."
    where = ", where y = (x - loc) / scale"
    dtype = "float64"
    probabilities = "[0.25, 0.5]"

    def _run(self, function: str, formula: Formula, operands: Operands) -> Array:
        (x, *shapes, loc, scale), finish = read(f"{self.name}.{function}", operands, wide=self.wide)
        y = (x - loc) / scale
        below, above = self.support.outside(y, *shapes)
        y = el.where(el.logical_or(below, above), self.support.within(*shapes), y)
        result = formula(y, *shapes)
        if function == "logpdf":
            result = result - el.log(scale)
        elif function == "pdf":
            result = result / scale
        lower, upper = _OUTSIDE[function]
        result = el.where(below, lower, el.where(above, upper, result))
        return finish(self._checked(result, scale > 0, shapes))

    def _quantile(self, function: str, formula: Formula, operands: Operands) -> Array:
        (q, *shapes, loc, scale), finish = read(f"{self.name}.{function}", operands, wide=self.wide)
        inside = every(q >= 0, q <= 1)
        result = loc + scale * formula(el.where(inside, q, 0.5), *shapes)
        return finish(self._checked(result, every(inside, scale > 0), shapes))

    def _checked(self, result: Array, condition: Array, shapes: list[Array]) -> Array:
        return el.where(every(condition, self.valid(*shapes)) if shapes else condition, result, math.nan)


@dataclass(frozen=True)
class Counts(Family[P]):
    """A family of distributions of integers. Formulas are of k − loc and the shape parameters; of `cdf` and its like of ⌊k − loc⌋.

    Args:
        lower: the least count.
        upper: the largest count, of the shape parameters; None is infinite.
    """

    wide: bool = True
    lower: int = 0
    upper: Callable[..., Array | float] | None = None

    first = "counts, of any real dtype and shape; broadcasts with the parameters."
    where = ""
    dtype = "float32"
    probabilities = "[0.5, 0.875]"

    def _run(self, function: str, formula: Formula, operands: Operands) -> Array:
        (k, *shapes, loc), finish = read(f"{self.name}.{function}", operands, wide=self.wide)
        last = math.inf if self.upper is None else self.upper(*shapes)
        if function in ("pmf", "logpmf"):
            y = k - loc
            below = el.logical_or(y < self.lower, el.floor(y) < y)
            above = el.logical_or(y > last, el.equal(y, math.inf))
        else:
            y = el.floor(k - loc)
            below, above = y < self.lower, y >= last
        result = formula(el.where(el.logical_or(below, above), self.lower, y), *shapes)
        lower, upper = _OUTSIDE[function]
        result = el.where(below, lower, el.where(above, upper, result))
        # formulas may not read counts that are NaN
        return finish(el.where(every(~el.isnan(y), self.valid(*shapes)), result, math.nan))

    def _quantile(self, function: str, formula: Formula, operands: Operands) -> Array:
        (q, *shapes, loc), finish = read(f"{self.name}.{function}", operands, wide=self.wide)
        inside = every(q >= 0, q <= 1)
        result = loc + formula(el.where(inside, q, 0.5), *shapes)
        return finish(el.where(every(inside, self.valid(*shapes)), result, math.nan))


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
