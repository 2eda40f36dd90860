"""Numerical differentiation formulas of orders 1 to 5, implicit methods for stiff problems, in the quasi-constant steps of Shampine
and Reichelt ("The MATLAB ODE Suite", 1997). Orders and steps vary as in Byrne and Hindmarsh, "A polyalgorithm for the numerical
solution of ordinary differential equations", 1975.

The past is held as backward differences of the solution at equal steps, D[j] = ∇ʲ y, and turned into those of other steps where
the step changes. Each step solves c f(t, p + d) − ψ − d = 0 for the difference d of y from its prediction p, with c = h / α[k] for
order k; derivatives are those of this equation. The matrix 1 − c J is factorised anew only where c or the Jacobian J changes, and
the Jacobian made anew only where Newton's iterations do not converge with an older one. After a rejected step SciPy goes on with
the factors of the larger one.

The order is a traced number: rows of D above it are masked, and all arrays have the shapes of order 5.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from nnc import tree
from nnc.array.array import Array
from nnc.array.promote import astype
from nnc.base import dtypes
from nnc.numpy import elementwise as el
from nnc.numpy import linalg as la
from nnc.numpy.creation import asarray, zeros
from nnc.numpy.joining import concatenate, stack
from nnc.numpy.matrices import eye
from nnc.numpy.reductions import all as all_
from nnc.numpy.reductions import argmax, cumprod
from nnc.numpy.searching import take
from nnc.scipy.integrate.newton import iterate, make_jacobian, safety_of, tolerance_of
from nnc.scipy.integrate.steps import MAX_FACTOR, MIN_FACTOR, Problem, State, propose, rms
from nnc.scipy.optimize.problems import SOLVER, integer
from nnc.scipy.optimize.roots import factorise, solve_factored
from nnc.trace.core.differentiate import stop_gradient
from nnc.trace.core.implicit import root
from nnc.trace.loops.branches import cond
from nnc.trace.loops.control_flow import while_loop

_ITERATIONS = 4
_ORDER = 5  # the highest
_ROWS = _ORDER + 3  # of the differences: to two above the order, by which the next higher order is judged
# for each order, Shampine and Reichelt's; 0 gives the plain formula
_KAPPA = np.array([0, -0.1850, -1 / 9, -0.0823, -0.0415, 0])
_GAMMA = np.append(0, np.cumsum(1 / np.arange(1, _ORDER + 1)))
_ALPHA = (1 - _KAPPA) * _GAMMA
# The error of order k is _ERROR[k] ∇ᵏ⁺¹ y; orders 0 and 6 are never chosen.
_ERROR = np.concatenate([[np.inf], _KAPPA[1:] * _GAMMA[1:] + 1 / np.arange(2, _ORDER + 2), [np.inf]])


def _make_predictions() -> np.ndarray[Any, Any]:
    """For each order the weights of the differences in the prediction and in ψ, (order, 2, row)."""
    weights = np.zeros((_ORDER + 1, 2, _ROWS))
    for k in range(1, _ORDER + 1):
        weights[k, 0, : k + 1] = 1
        weights[k, 1, : k + 1] = _GAMMA[: k + 1] / _ALPHA[k]
    return weights


def _make_updates() -> np.ndarray[Any, Any]:
    """For each order the differences after a step, of those before and d, (order, row, row or d): ∇ʲ⁺¹ yₙ = ∇ʲ yₙ − ∇ʲ yₙ₋₁."""
    weights = np.zeros((_ORDER + 1, _ROWS, _ROWS + 1))
    for k in range(1, _ORDER + 1):
        weights[k, : k + 1, : k + 1] = np.triu(np.ones((k + 1, k + 1)))
        weights[k, : k + 3, -1] = 1
        weights[k, k + 2, k + 1] = -1
    return weights


_PREDICTIONS, _UPDATES = _make_predictions(), _make_updates()
# Differences for steps that are `factor` times as long are (R U)ᵀ D; R[i, j] = Π over m ≤ i of _BEGIN[m, j] − factor _SLOPE[m, j]
# and U is R for the factor 1 (Shampine and Reichelt, section 2.1). U is triangular: lower orders have the upper left part of R U.
_BEGIN = np.vstack([np.ones(_ROWS), np.tile(1 - 1 / np.arange(1, _ROWS)[:, None], _ROWS)])
_SLOPE = np.vstack([np.zeros(_ROWS), np.arange(_ROWS) / np.arange(1, _ROWS)[:, None]])
_UNIT = np.cumprod(_BEGIN - _SLOPE, axis=0)


class _Past(NamedTuple):
    """The values of the method beside the differences, which are the stages of the state."""

    order: Any  # 0 before the first step
    equal: Any  # number of accepted steps of this size and order
    spacing: Any  # absolute size of the steps that the differences belong to
    jac: Any
    fresh: Any  # whether the Jacobian was made for the step that is being attempted
    factors: Any  # of 1 − c J
    c: Any


class _Correction(NamedTuple):
    """The corrector after iterations with one Jacobian, and how much of everything was made."""

    d: Any
    converged: Any
    count: Any
    jac: Any
    fresh: Any
    factors: Any
    c: Any
    rounds: Any  # of iterations, each with one Jacobian
    nfev: Any
    njev: Any
    nlu: Any


@dataclass(frozen=True, slots=True)
class BDF:
    """Differentiation formulas of varying order and step. The stages of a state are the differences, (8, n)."""

    order: int = 1

    def start(self, problem: Problem, t: Any, y: Any, f: Any) -> tuple[Any, _Past, int]:
        """Returns the differences for steps of length 1, and the values of the method."""
        none = stop_gradient(t) * 0
        differences = concatenate([stack([y, f * problem.direction]), zeros((_ROWS - 2, *y.shape), y.dtype)])
        factors = factorise(eye(y.shape[0], dtype=y.dtype))
        jac = make_jacobian(problem, t, y)
        return differences, _Past(integer(0), integer(0), none + 1, jac, none != 0, factors, none), 1

    def attempt(self, problem: Problem, s: State) -> State:
        """Tries a step; nothing but its size changes where the estimated error is too large or Newton's method diverges."""
        size, h, t, failed = propose(problem, s)
        past = s.extra
        order = el.maximum(past.order, 1)
        differences = _rescale(s.stages, order, size / past.spacing)
        predicted, psi = la.matmul(_row(_PREDICTIONS, order, s.y), differences)
        c = h / _row(_ALPHA, order, s.y)
        made = _correct(problem, s, t, predicted, psi, c)
        y = predicted + made.d
        scale = problem.atol + el.abs(stop_gradient(y)) * problem.rtol
        error = _row(_ERROR, order, s.y) * rms(made.d / scale)
        accepted = made.converged & (error <= 1) & ~failed
        safety = safety_of(made.count, _ITERATIONS, s.y.dtype)
        shorter = el.maximum(MIN_FACTOR, safety * error ** (-1 / astype(order + 1, s.y.dtype)))
        shorter = el.where(made.converged, shorter, 0.5)
        moved = la.matmul(_row(_UPDATES, order, s.y), concatenate([differences, made.d[None]]))
        equal = el.where(size == past.spacing, past.equal, 0) + 1
        judged = equal > order  # the differences that errors of other orders are estimated by are those of equal steps
        other, longer = _choose_order(order, moved, scale)
        other = el.where(judged, other, order)
        longer = el.where(judged, el.minimum(MAX_FACTOR, safety * longer), 1)

        def kept(new: Any, old: Any) -> Any:
            return el.where(accepted, new, old)

        extra = _Past(
            kept(other, past.order), kept(el.where(judged, 0, equal), past.equal), kept(size, past.spacing),
            made.jac, made.fresh & ~accepted, made.factors, made.c,
        )  # fmt: skip
        return State(
            kept(t, s.t), kept(y, s.y), kept((psi + made.d) / c, s.f), size * kept(longer, shorter), ~accepted, s.failed | failed,
            kept(s.t, s.t_old), kept(s.y, s.y_old), kept(moved, s.stages), extra,
            s.nfev + made.nfev, s.njev + made.njev, s.nlu + made.nlu,
        )  # fmt: skip

    def dense(self, problem: Problem, s: State) -> tuple[Any, int]:
        """Returns the differences up to the order, with zeros above, (6, n)."""
        used = asarray(np.arange(_ORDER + 1)) <= s.extra.order
        return el.where(used[:, None], s.stages[: _ORDER + 1], 0), 0

    def between(self, x: Any, h: Any, y: Any, terms: Any) -> Any:
        """Returns the value of the polynomial through the last points: Σ over j of D[j] Π over i < j of (x − 1 + i) / (i + 1)."""
        total = terms[_ORDER]
        for j in reversed(range(_ORDER)):
            total = terms[j] + (x - 1 + j) / (j + 1) * total
        return total


# -- the differences ---------------------------------------------------------------------------------------------------


def _row(table: Any, order: Any, like: Array) -> Any:
    """Returns the part of a table that belongs to an order."""
    return take(asarray(table, dtype=like.dtype), order, axis=0)


def _rescale(differences: Any, order: Any, factor: Any) -> Any:
    """Returns the differences of the same polynomial for steps that are `factor` times as long; rows above the order stay."""
    dtype = differences.dtype
    other = cumprod(asarray(_BEGIN, dtype=dtype) - factor * asarray(_SLOPE, dtype=dtype), axis=0)
    change = la.matmul(other, asarray(_UNIT, dtype=dtype)).T
    used = asarray(np.arange(_ROWS)) <= order
    changed = used[:, None] & used & (factor != 1)
    return la.matmul(el.where(changed, change, eye(_ROWS, dtype=dtype)), differences)


def _choose_order(order: Any, differences: Any, scale: Any) -> tuple[Any, Any]:
    """Returns the order among the last, the next lower and the next higher one whose steps can be longest, and the factor of
    their size.
    """
    places = order + asarray(np.arange(3, dtype=np.int32))  # of the differences ∇ᵏ⁺¹ y for each order k
    lengths = la.vector_norm(stop_gradient(take(differences, places, axis=0)) / scale, axis=1)
    weights = _row(_ERROR, places - 1, differences) / float(scale.spec.size) ** 0.5
    errors = el.where(el.isfinite(weights), weights * lengths, np.inf)
    factors = errors ** (-1 / astype(places, differences.dtype))
    best = astype(argmax(factors), dtypes.int32)
    return order + best - 1, take(factors, best)


# -- the corrector -----------------------------------------------------------------------------------------------------


def _correct(problem: Problem, s: State, t: Any, predicted: Any, psi: Any, c: Any) -> _Correction:
    """Returns the difference d of y from its prediction, with its derivatives; where it is not found, y is the last one
    accepted.
    """
    past, none = s.extra, integer(0)
    still = stop_gradient(predicted)
    start = _Correction(
        still * 0, past.fresh & False, none, past.jac, past.fresh, past.factors, past.c, none, none, none, none
    )

    def equation(d: Any) -> list[Any]:
        return [c * problem.fun(t, predicted + d) - psi - d]

    def find(d: Any) -> list[Any]:
        last = _iterate(problem, stop_gradient(t), still, stop_gradient(psi), c, start._replace(d=d))
        found = el.where(last.converged, last.d, stop_gradient(s.y) - still)  # derivatives of rejected steps exist, too
        return tree.leaves(last._replace(d=found))

    (d,), rest = root(equation, find, SOLVER, [start.d])
    made: _Correction = tree.unflatten(tree.structure(start), [d, *(stop_gradient(x) for x in rest)])
    return made


def _iterate(problem: Problem, t: Any, predicted: Any, psi: Any, c: Any, start: _Correction) -> _Correction:
    """Returns the corrector's iterations with the Jacobian at hand, and with one of this step where they do not converge."""
    d = start.d
    one = eye(d.shape[0], dtype=d.dtype)
    scale = problem.atol + el.abs(predicted) * problem.rtol

    def go(r: _Correction) -> _Correction:
        again = r.rounds > 0
        made = cond(again, lambda: make_jacobian(problem, t, predicted), lambda: r.jac)
        usable = all_(el.isfinite(made))  # the function may not be defined at the prediction of a long step
        jac = el.where(usable, made, r.jac)
        renewed = again & usable | (r.c != c)
        factors = cond(renewed, lambda: factorise(one - c * jac), lambda: r.factors)

        def change(d: Any) -> Any:
            return solve_factored(factors, c * problem.fun(t, predicted + d) - psi - d)

        last = iterate(change, d, scale, tolerance_of(problem, d.dtype), _ITERATIONS)
        njev, nlu = r.njev + astype(again, dtypes.int32), r.nlu + astype(renewed, dtypes.int32)
        fresh = el.where(again, usable, r.fresh)
        return _Correction(
            last.x, last.converged, last.count, jac, fresh, factors, c, r.rounds + 1, r.nfev + last.count, njev, nlu
        )

    most = el.where(start.fresh, 1, 2)
    last: _Correction = while_loop(lambda r: ~r.converged & (r.rounds < most), go, start)
    return last
