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
    """Standardised numbers, shape parameters one tuple a case, and of each the values that are invalid."""

    numbers: tuple[float, ...] = _LINE
    shapes: tuple[tuple[float, ...], ...] = ((),)
    invalid: tuple[tuple[float, ...], ...] = ()
    discrete: bool = False
    ulps: dict[str, float] = field(default_factory=dict)  # bounds of functions that are less exact than most
    no_limits: tuple[str, ...] = ()  # functions that SciPy makes NaN at infinities, where the density is 0


ROWS = {
    "cauchy": Row((*_LINE, -1e15, 1e15)),
    "expon": Row(_HALF_LINE),
    "gumbel_l": Row(no_limits=("logpdf", "pdf")),
    "gumbel_r": Row(no_limits=("logpdf", "pdf")),
    "laplace": Row(),
    "logistic": Row(),
    "pareto": Row((0.5, 1.0, 1.25, 3.0, 1e3), ((0.5,), (3.0,)), ((0.0,), (-1.0,))),
    "uniform": Row(_UNIT),
    "wrapcauchy": Row((-0.5, 0.0, 1e-3, 1.0, 3.0, 3.5, 6.0, 7.0), ((0.01,), (0.5,), (0.9,)), ((0.0,), (1.0,), (-0.5,))),
}


def functions_of(name: str) -> list[str]:
    """The public functions of a distribution's module."""
    module: ModuleType = getattr(stats, name)
    return list(module.__all__)


PAIRS = [(name, function) for name in ROWS for function in functions_of(name)]


def operands(name: str, function: str, dtype: Any = np.float64) -> tuple[np.ndarray, ...]:
    """Numbers in rows, and parameters in columns: shapes with loc = 0 and scale = 1, and with others."""
    row = ROWS[name]
    places = (0.0, 3.0) if row.discrete else ((0.0, 1.0), (0.5, 2.0), (-3.0, 0.25))
    cases = [(*shape, *np.atleast_1d(place)) for shape in row.shapes for place in places]
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
