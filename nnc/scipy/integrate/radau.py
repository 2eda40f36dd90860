"""Radau IIA of order 5, an implicit method for stiff problems (Hairer and Wanner, "Solving ordinary differential equations II",
section IV.8).

The stages are found by simplified Newton iterations, on one real and one complex system. Their derivative is that of the equation
that they solve. Unlike SciPy's, the Jacobian is made anew at each step that is accepted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from nnc.array.array import Array
from nnc.array.promote import astype
from nnc.base import dtypes
from nnc.numpy import elementwise as el
from nnc.numpy import linalg as la
from nnc.numpy.creation import asarray, zeros
from nnc.numpy.joining import stack
from nnc.numpy.matrices import eye
from nnc.scipy.integrate.newton import Iteration, iterate, make_jacobian, safety_of, tolerance_of
from nnc.scipy.integrate.steps import MAX_FACTOR, MIN_FACTOR, Problem, State, propose, rms
from nnc.scipy.optimize.problems import SOLVER
from nnc.scipy.optimize.roots import factorise, solve_factored
from nnc.trace.core.differentiate import stop_gradient
from nnc.trace.core.implicit import root
from nnc.trace.loops.branches import cond

_S6 = 6**0.5
_C = np.array([(4 - _S6) / 10, (4 + _S6) / 10, 1])
_A = np.array([
    [(88 - 7 * _S6) / 360, (296 - 169 * _S6) / 1800, (-2 + 3 * _S6) / 225],
    [(296 + 169 * _S6) / 1800, (88 + 7 * _S6) / 360, (-2 - 3 * _S6) / 225],
    [(16 - _S6) / 36, (16 + _S6) / 36, 1 / 9],
])  # fmt: skip
_E = np.array([-13 - 7 * _S6, -13 + 7 * _S6, -1]) / 3
# The inverse of _A has the eigenvalues _REAL, _COMPLEX and its conjugate; _T makes it block diagonal.
_REAL = 3 + 3 ** (2 / 3) - 3 ** (1 / 3)
_COMPLEX = 3 + 0.5 * (3 ** (1 / 3) - 3 ** (2 / 3)) - 0.5j * (3 ** (5 / 6) + 3 ** (7 / 6))
_T = np.array([
    [0.09443876248897524, -0.14125529502095421, 0.03002919410514742],
    [0.25021312296533332, 0.20412935229379994, -0.38294211275726192],
    [1, 1, 0],
])  # fmt: skip
_TI = np.array([
    [4.17871859155190428, 0.32768282076106237, 0.52337644549944951],
    [-4.17871859155190428, -0.32768282076106237, 0.47662355450055044],
    [0.50287263494578682, -2.57192694985560522, 0.59603920482822492],
])  # fmt: skip
_TI_COMPLEX = _TI[1] + 1j * _TI[2]
_P = np.array([
    [13 / 3 + 7 * _S6 / 3, -23 / 3 - 22 * _S6 / 3, 10 / 3 + 5 * _S6],
    [13 / 3 - 7 * _S6 / 3, -23 / 3 + 22 * _S6 / 3, 10 / 3 - 5 * _S6],
    [1 / 3, -8 / 3, 10 / 3],
])  # fmt: skip
_ITERATIONS = 6


@dataclass(frozen=True, slots=True)
class Radau:
    """Radau IIA with three stages."""

    order: int = 3

    def start(self, problem: Problem, t: Any, y: Any, f: Any) -> tuple[Any, Any, int]:
        """Returns the terms of no step; and the Jacobian, with size and error of the last step, 0 where there is none."""
        none = stop_gradient(t) * 0
        return zeros((3, *y.shape), y.dtype), (make_jacobian(problem, t, y), none, none), 1

    def attempt(self, problem: Problem, s: State) -> State:
        """Tries a step; nothing but its size changes where the estimated error is too large or Newton's method diverges."""
        size, h, t, failed = propose(problem, s)
        jac, size_old, error_old = s.extra
        size_old = el.where(s.rejected | (size == s.size), size_old, 0)
        n, dtype = s.y.shape[0], s.y.dtype
        one = eye(n, dtype=dtype)
        shift = astype(_REAL / h, dtype)
        factors = factorise(shift * one - jac)
        z, (converged, count, rate) = self._stages(problem, s, h, jac, factors)
        y = s.y + z[2]
        y_still, f_still = stop_gradient(s.y), stop_gradient(s.f)
        ze = la.matmul(_constant(_E, y), stop_gradient(z)) / h
        scale = problem.atol + el.maximum(el.abs(y_still), el.abs(stop_gradient(y))) * problem.rtol
        error = solve_factored(factors, f_still + ze)
        norm = rms(error / scale)
        again = s.rejected & (norm > 1) & converged

        def repeated() -> Any:
            moved = problem.fun(stop_gradient(s.t), y_still + error)
            return rms(solve_factored(factors, stop_gradient(moved) + ze) / scale)

        norm = cond(again, repeated, lambda: norm)
        accepted = converged & (norm <= 1) & ~failed
        factor = safety_of(count, _ITERATIONS, dtype) * _factor(size, size_old, norm, error_old)
        longer = el.minimum(MAX_FACTOR, factor)
        longer = el.where(((count <= 2) | (rate <= 1e-3)) & (longer < 1.2), 1, longer)
        shorter = el.where(converged, el.maximum(MIN_FACTOR, factor), 0.5)
        f = problem.fun(t, y)
        made = cond(accepted, lambda: make_jacobian(problem, t, y), lambda: jac)

        def kept(new: Any, old: Any) -> Any:
            return el.where(accepted, new, old)

        terms = la.matmul(_constant(_P.T, y), z)
        extra = made, kept(size, size_old), kept(norm, error_old)
        return State(
            kept(t, s.t), kept(y, s.y), kept(f, s.f), size * kept(longer, shorter), ~accepted, s.failed | failed,
            kept(s.t, s.t_old), kept(s.y, s.y_old), kept(terms, s.stages), extra,
            s.nfev + 3 * count + 1 + astype(again, dtypes.int32), s.njev + astype(accepted, dtypes.int32), s.nlu + 2,
        )  # fmt: skip

    def _stages(self, problem: Problem, s: State, h: Any, jac: Any, factors: Any) -> tuple[Any, Any]:
        """Returns the stages Z, 0 where they are not found; and whether they are, the number of iterations and their rate."""
        n, dtype = s.y.shape[0], s.y.dtype
        still = s._replace(t=stop_gradient(s.t), y=stop_gradient(s.y))
        before = stop_gradient(s.t) - stop_gradient(s.t_old)
        x = _constant(_C, s.y) * h / el.where(before != 0, before, 1) + 1
        origin, terms = stop_gradient(s.y_old), stop_gradient(s.stages)
        guess = stack([self.between(x[i], before, origin, terms) - still.y for i in range(3)])
        guess = el.where(before != 0, guess, 0)

        def equation(z: Any) -> list[Any]:
            z = z.reshape(3, n)
            moved = stack([problem.fun(s.t + float(_C[i]) * h, s.y + z[i]) for i in range(3)])
            return [(z - h * la.matmul(_constant(_A, z), moved)).reshape(-1)]

        def find(z: Any) -> list[Any]:
            reached, last = _newton(problem, still, h, jac, factors, z.reshape(3, n))
            found = el.where(last.converged, reached, 0)  # numbers that derivatives of rejected steps can be made of
            return [found.reshape(-1), last.converged, last.count, last.rate]

        (z,), rest = root(equation, find, SOLVER, [astype(guess, dtype).reshape(-1)])
        return z.reshape(3, n), rest

    def dense(self, problem: Problem, s: State) -> tuple[Any, int]:
        """Returns the terms of the collocation polynomial."""
        return s.stages, 0

    def between(self, x: Any, h: Any, y: Any, terms: Any) -> Any:
        """Returns the value of the collocation polynomial."""
        return y + x * (terms[0] + x * (terms[1] + x * terms[2]))


def _newton(problem: Problem, s: State, h: Any, jac: Any, factors: Any, z: Any) -> tuple[Any, Iteration]:
    """Returns the stages Z after the simplified Newton iterations of one step, which go over the transformed stages W; Z = T W."""
    dtype = z.dtype
    n, wide = z.shape[1], dtypes.complex_dtype(dtype)
    shift = _COMPLEX / astype(h, wide)
    others = factorise(astype(shift, wide) * eye(n, dtype=wide) - astype(jac, wide))

    def change(w: Any) -> Any:
        z = la.matmul(_constant(_T, w), w)
        moved = stack([problem.fun(s.t + float(_C[i]) * h, s.y + z[i]) for i in range(3)])
        real = la.matmul(_constant(_TI[0], z), moved) - _REAL / h * w[0]
        both = la.matmul(asarray(_TI_COMPLEX, dtype=wide), astype(moved, wide)) - shift * (w[1] + 1j * w[2])
        others_change = solve_factored(others, astype(both, wide))
        return stack([solve_factored(factors, real), el.real(others_change), el.imag(others_change)])

    scale = problem.atol + el.abs(s.y) * problem.rtol
    last = iterate(change, la.matmul(_constant(_TI, z), z), scale, tolerance_of(problem, dtype), _ITERATIONS)
    return la.matmul(_constant(_T, last.x), last.x), last


def _factor(size: Any, size_old: Any, error: Any, error_old: Any) -> Any:
    """Returns the factor by which the step may change, from its error and that of the last step."""
    known = (size_old > 0) & (error_old > 0) & (error > 0)
    safe = el.where(error > 0, error, 1)
    multiplier = size / el.where(known, size_old, 1) * (error_old / safe) ** 0.25
    multiplier = el.where(known, el.minimum(1, multiplier), 1)
    return el.where(error > 0, multiplier * safe**-0.25, MAX_FACTOR)


def _constant(x: Any, like: Array) -> Array:
    return asarray(x, dtype=like.dtype)
