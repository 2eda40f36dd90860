"""How optimizers read their arguments: a guess that is a pytree becomes one vector, and options have known names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from nnc import tree
from nnc.array.array import Array, asarray
from nnc.array.promote import astype, result_dtype
from nnc.base import dtypes
from nnc.errors import ArgumentError, ArgumentTypeError, DTypeError, ShapeError, user_error
from nnc.graph import TensorSpec
from nnc.numpy import linalg as la
from nnc.numpy.joining import concatenate
from nnc.numpy.manipulation import reshape
from nnc.numpy.matrices import eye
from nnc.numpy.operands import to_value
from nnc.scipy.sparse.linalg.solvers import gmres_on
from nnc.trace.core.flat import FlatTree, call_function, check_callable
from nnc.trace.core.implicit import LinearMap, Solver
from nnc.trace.core.staging import stage
from nnc.trace.core.vectorize import vmap

_DENSE = 500  # unknowns up to which a matrix is made: 2 MB in float64, and n products that run as one


class OptimizeResults(NamedTuple):
    """The result of an optimizer or of a search for a root.

    Attributes:
        x: the solution, like x0.
        success: whether it was found, a bool.
        status: 0 or 1 for a solution, other integers for failures: see the function.
        fun: the function at x.
        jac: the gradient at x, like x0; of `root`, the Jacobian matrix.
        hess_inv: (n, n), an approximation of the inverse Hessian at x, or None.
        nfev: number of evaluations of the function.
        njev: number of evaluations of its gradient or Jacobian.
        nit: number of iterations.

    Example:
        >>> result = nnc.scipy.optimize.minimize(lambda x: nnp.sum((x - 1) ** 2), nnp.zeros(2), method="BFGS")
        >>> bool(result.success), nnp.round(result.x, 3)
        (True, Array([1., 1.], dtype=float32))
    """

    x: Any
    success: Any
    status: Any
    fun: Any
    jac: Any
    hess_inv: Any
    nfev: Any
    njev: Any
    nit: Any


@dataclass(frozen=True, slots=True)
class Problem:
    """A user's function of a pytree as a function of one vector."""

    where: str
    fun: Callable[..., Any]
    args: tuple[Any, ...]
    shape: FlatTree
    specs: tuple[TensorSpec, ...]  # of the leaves of x
    dtype: dtypes.DType  # of the vector

    def call(self, x: Array) -> Any:
        """Returns the function's result at a vector."""
        return call_function(
            self.fun,
            (self.build(x), *self.args),
            where=self.where,
            fix="define it as fun(x, *args), and pass args as a tuple.",
        )

    def build(self, x: Array) -> Any:
        """Returns the pytree of a vector's parts."""
        parts, start = [], 0
        for spec in self.specs:
            parts.append(reshape(x[start : start + spec.size], spec.shape))
            start += spec.size
        return self.shape.build(parts)

    def ravel(self, leaves: Sequence[Any]) -> Array:
        """Returns the vector of leaves."""
        return concatenate([astype(reshape(x, (-1,)), self.dtype) for x in leaves])

    def scalar(self, x: Array) -> Array:
        """Returns the value of a function that is minimised.

        Raises:
            ShapeError: it is no scalar.
        """
        value = to_value(self.call(x), self.where, "the value of fun")
        if value.spec.shape != () or dtypes.is_complex(value.spec.dtype):
            problem = "fun must return one real number."
            fix = "reduce the result, for example with .sum()."
            raise user_error(ShapeError, self.where, problem, operands={"value": value.spec}, fix=fix)
        return astype(value, self.dtype)

    def vector(self, x: Array) -> Array:
        """Returns the value of a function whose root is wanted.

        Raises:
            TreeError, ShapeError: it is not like x.
        """
        result = self.call(x)
        tree.check_same_structure(self.where, "the result of fun", result, "x0", self.build(x))
        leaves = [to_value(y, self.where, "the result of fun") for y in FlatTree(result).dynamic]
        for y, spec in zip(leaves, self.specs, strict=True):
            if y.spec.shape != spec.shape:
                problem = "fun must return as many numbers as it takes."
                operands = {"x": spec, "the result of fun": y.spec}
                fix = "return an array of the shape of x."
                raise user_error(ShapeError, self.where, problem, operands=operands, fix=fix)
        return self.ravel(leaves)


def read_problem(where: str, fun: Any, x0: Any, args: Any) -> tuple[Problem, Array]:
    """Makes the problem of a function's arguments, and the vector to begin with.

    The vector has the widest dtype among x0 and the function's results.

    Raises:
        ArgumentTypeError, DTypeError: an argument is of a wrong kind.
    """
    check_callable(fun, where)
    if not isinstance(args, tuple):
        args = (args,)
    shape = FlatTree(x0)
    leaves = [to_value(x, where, "x0") for x in shape.dynamic]
    if not leaves or not sum(x.spec.size for x in leaves):
        raise user_error(ArgumentTypeError, where, f"x0 is {x0!r}, which holds no number.", fix="pass a first guess.")
    widest = dtypes.accumulator(dtypes.to_float(result_dtype(*leaves, where=where)))
    specs = tuple(x.spec for x in leaves)
    problem = Problem(where, fun, args, shape, specs, widest)
    probe = stage(lambda x: FlatTree(problem.call(x)).dynamic, [TensorSpec((sum(s.size for s in specs),), widest)])
    found = [np.zeros((), s.dtype) for s in probe.graph.output_specs if dtypes.is_inexact(s.dtype)]
    widest = result_dtype(np.zeros((), widest), *found, where=where)
    if dtypes.is_complex(widest):
        reason = "complex numbers are not taken."
        raise user_error(DTypeError, where, reason, fix="pass real and imaginary parts as two arrays.")
    problem = Problem(where, fun, args, shape, specs, widest)
    return problem, problem.ravel(leaves)


def dense(matvec: LinearMap, precondition: Any, b: list[Any], guess: list[Any]) -> tuple[list[Any], list[Any]]:
    """Solves a system of one vector by the map's matrix, and a large one by GMRES to the last digits."""
    (right,) = b
    n = right.spec.size
    if n > _DENSE:
        return gmres_on(matvec, None, b, guess, tol=10 * float(np.finfo(right.spec.dtype).eps))
    columns = vmap(lambda e: matvec([e])[0])(eye(n, dtype=right.spec.dtype))
    return [la.solve(columns.T, right)], []


SOLVER: Solver = dense


def read_options(where: str, options: Mapping[str, Any] | None, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options with their defaults.

    Raises:
        ArgumentError: there is no such option.
    """
    unknown = sorted(set(options or ()) - set(defaults))
    if unknown:
        problem = f"there is no option {unknown[0]!r}."
        raise user_error(ArgumentError, where, problem, fix=f"the options are {', '.join(defaults)}.")
    return {**defaults, **(options or {})}


def integer(value: Any) -> Array:
    """Returns an int32 scalar."""
    return asarray(np.asarray(value, np.int32))
