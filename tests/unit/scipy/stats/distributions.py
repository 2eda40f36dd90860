"""The table of distributions: parameters and numbers at which nnc.scipy.stats is held against SciPy, and how exact it has to be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import numpy as np
import scipy.stats

from nnc.scipy import stats

QUANTILES = ("ppf", "isf")
_LINE = (-80.0, -6.0, -1.5, -0.3, 0.0, 1e-3, 0.4, 1.0, 2.0, 5.0, 90.0)
_HALF_LINE = (-2.0, 0.0, 1e-6, 0.3, 1.0, 2.5, 8.0, 40.0)
_UNIT = (-0.5, 0.0, 1e-5, 0.25, 0.5, 0.75, 0.9375, 1.0, 1.5)
_COUNTS = (-1.0, 0.0, 1.0, 2.0, 3.0, 5.0, 9.0, 2.5)
_Q = (1e-9, 0.01, 0.25, 0.375, 0.5, 0.625, 0.75, 0.96875)


@dataclass(frozen=True)
class Row:
    """Standardised numbers, shape parameters, and some that are at the end of their range or invalid, one tuple a case."""

    numbers: tuple[float, ...] = _LINE
    shapes: tuple[tuple[float, ...], ...] = ((),)
    invalid: tuple[tuple[float, ...], ...] = ()
    edges: tuple[tuple[float, ...], ...] = ()  # shape parameters beside which there are invalid ones, or no derivative
    discrete: bool = False
    whole: int = 0  # how many shape parameters are integers
    ulps: dict[str, float] = field(default_factory=dict)  # bounds of functions that are less exact than most
    no_limits: tuple[str, ...] = ()  # functions that SciPy makes NaN at infinities, where the density is 0


_ONE_BAD = ((0.0,), (-1.0,))
_PROBABILITIES = ((-0.1,), (1.1,))

_INEXACT_THERE = {"cdf": 40, "sf": 40, "logcdf": 40, "logsf": 40}  # SciPy has erfc(1) with an error of 20 units

ROWS = {
    "bernoulli": Row(_COUNTS, ((0.25,), (0.9,)), _PROBABILITIES, ((0.0,), (1.0,)), discrete=True),
    "beta": Row(
        _UNIT,
        ((2.0, 3.0), (1.0, 1.0), (0.5, 0.75), (30.0, 2.0)),
        ((0.0, 1.0), (1.0, -1.0)),
        ulps=_INEXACT_THERE,
    ),
    "betabinom": Row(
        _COUNTS,
        ((5, 2.0, 3.0), (9, 0.5, 0.25)),
        ((-1, 1.0, 1.0), (2.5, 1.0, 1.0), (3, 0.0, 1.0)),
        ((0, 1.0, 1.0),),
        discrete=True,
        whole=1,
        ulps={"logpmf": 20, "pmf": 20, "cdf": 40, "sf": 40},
    ),
    "binom": Row(
        _COUNTS,
        ((5, 0.25), (9, 0.5)),
        ((-1, 0.5), (2.5, 0.5), (3, -0.1), (3, 1.1)),
        ((0, 0.5), (5, 0.0), (5, 1.0)),
        discrete=True,
        whole=1,
        ulps={"logpmf": 20, "pmf": 20, "cdf": 40, "sf": 40},
    ),
    "cauchy": Row((*_LINE, -1e15, 1e15)),
    "chi2": Row(
        _HALF_LINE,
        ((3.0,), (1.0,), (2.0,), (25.0,)),
        _ONE_BAD,
        ulps=_INEXACT_THERE,
        no_limits=("logpdf", "pdf"),
    ),
    "expon": Row(_HALF_LINE),
    "gamma": Row(
        _HALF_LINE,
        ((2.5,), (0.5,), (1.0,), (25.0,)),
        _ONE_BAD,
        ulps=_INEXACT_THERE,
        no_limits=("logpdf", "pdf"),
    ),
    "gennorm": Row(
        (-6.0, -1.5, -0.3, 0.0, 1e-3, 0.4, 1.0, 5.0),
        ((1.5,), (0.5,), (1.0,), (2.0,), (8.0,)),
        _ONE_BAD,
        ulps=_INEXACT_THERE,
    ),
    "geom": Row(_COUNTS, ((0.25,), (0.9,)), ((0.0,), (-0.1,), (1.1,)), discrete=True),
    "gumbel_l": Row(no_limits=("logpdf", "pdf")),
    "gumbel_r": Row(no_limits=("logpdf", "pdf")),
    "laplace": Row(),
    "logistic": Row(),
    "nbinom": Row(
        _COUNTS,
        ((2.5, 0.25), (9.0, 0.5)),
        ((0.0, 0.5), (-1.0, 0.5), (3.0, 0.0), (3.0, 1.1)),
        ((0.5, 1.0),),
        discrete=True,
        no_limits=("logpmf", "pmf"),
        ulps={"logpmf": 20, "pmf": 20, "cdf": 40, "sf": 40},
    ),
    "norm": Row((*_LINE, -30.0, 30.0)),
    "pareto": Row((0.5, 1.0, 1.25, 3.0, 1e3), ((0.5,), (3.0,)), _ONE_BAD),
    "poisson": Row(
        (*_COUNTS, 300.0),
        ((2.5,), (50.0,)),
        ((-1.0,),),
        ((0.0,),),
        discrete=True,
        no_limits=("logpmf", "pmf"),
        ulps={"logpmf": 20, "pmf": 20, "cdf": 40, "sf": 40},
    ),
    "t": Row(
        (*_LINE, -1e8, 1e8),
        ((3.0,), (0.5,), (39.0,), (41.0,), (1e6,)),
        _ONE_BAD,
        ((np.inf,),),
        ulps={"logpdf": 20, "pdf": 20, **_INEXACT_THERE},
    ),
    "truncnorm": Row(
        (-6.0, -1.5, -0.5, 0.0, 0.25, 1.0, 3.0, 5.5, 8.0),
        ((-1.0, 2.0), (0.5, 3.0), (-7.0, -1.0)),
        ((1.0, 1.0), (2.0, 1.0)),
        ((-np.inf, 0.5), (5.0, np.inf), (-np.inf, np.inf)),
    ),
    "uniform": Row(_UNIT),
    "vonmises": Row(
        (-80.0, -3.0, -0.3, 0.0, 1e-3, 2.0, 3.1, 50.0),
        ((1.5,), (90.0,)),
        ((-1.0,),),
        ((0.0,),),
        no_limits=("logpdf", "pdf"),
    ),
    "wrapcauchy": Row((-0.5, 0.0, 1e-3, 1.0, 3.0, 3.5, 6.0, 7.0), ((0.01,), (0.5,), (0.9,)), ((0.0,), (1.0,), (-0.5,))),
}


def functions_of(name: str) -> list[str]:
    """The public functions of a distribution's module that have a number or a probability as their first operand."""
    module: ModuleType = getattr(stats, name)
    return [function for function in module.__all__ if function != "entropy"]


# Incomplete functions take long to differentiate and to compile, and both tails have the same parts: one of them will do.
SLOW = {
    (name, function)
    for name in ("beta", "binom", "chi2", "gamma", "gennorm", "nbinom", "poisson", "t", "truncnorm")
    for function in ("sf", "logcdf", "logsf")
} - {("truncnorm", "logsf")}
PAIRS = [(name, function) for name in ROWS for function in functions_of(name)]


def operands(name: str, function: str, dtype: Any = np.float64, *, edges: bool = True) -> tuple[np.ndarray, ...]:
    """Numbers in rows, and parameters in columns: shapes with loc = 0 and scale = 1, and with others."""
    row = ROWS[name]
    shapes = (*row.shapes, *row.edges) if edges else row.shapes
    places = (0.0, 3.0) if row.discrete else ((0.0, 1.0), (0.5, 2.0), (-3.0, 0.25))
    cases = [(*shape, *np.atleast_1d(place)) for shape in shapes for place in places]
    columns = [np.asarray(column) for column in zip(*cases, strict=True)]
    if function in QUANTILES:
        x = np.asarray(_Q)[:, None]
    elif row.discrete:
        x = np.asarray(row.numbers)[:, None] + columns[-1]
    else:
        x = np.asarray(row.numbers)[:, None] * columns[-1] + columns[-2]
    return tuple(v.astype(dtype) for v in (x, *columns))


def exact(name: str, function: str) -> Callable[..., np.ndarray]:
    """SciPy's function in float64; logarithms of probabilities above 1/2 come from the other tail, which SciPy does not do."""
    theirs = getattr(scipy.stats, name)

    def run(*xs: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            xs = tuple(x.astype(np.float64) for x in xs)
            found = np.asarray(getattr(theirs, function)(*xs))
            if function in ("logcdf", "logsf"):
                other = np.asarray(getattr(theirs, "sf" if function == "logcdf" else "cdf")(*xs))
                found = np.where(other < 0.5, np.log1p(-other), found)
            return found

    return run


def bounds(function: Callable[..., np.ndarray], xs: tuple[np.ndarray, ...]) -> np.ndarray:
    """Returns how far a relative change of 1 of result and operands moves results, to first order: their condition."""
    want, step = function(*xs), 1e-7
    total = np.abs(want)
    for i, x in enumerate(xs):
        moves = []
        for sign in (1, -1):
            moved = [v.astype(np.float64) for v in xs]
            moved[i] = x.astype(np.float64) * (1 + sign * step)
            with np.errstate(all="ignore"):
                moves.append(np.abs(function(*moved) - want) / step)
        total = total + np.nan_to_num(np.fmin(*moves), nan=0, posinf=0)
    return total
