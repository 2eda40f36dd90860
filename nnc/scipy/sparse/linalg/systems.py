"""How solvers read a linear system: a matrix or a function, vectors that are pytrees, tolerances."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nnc import tree
from nnc.array.array import Array
from nnc.array.promote import as_operand, astype, result_dtype
from nnc.base import dtypes
from nnc.commands import constants
from nnc.commands import elementwise as ew
from nnc.commands.parts import ldexp
from nnc.errors import ArgumentError, ArgumentTypeError, DTypeError, ShapeError, user_error
from nnc.graph import TensorSpec, spec_of
from nnc.numpy import elementwise as el
from nnc.numpy.contractions import matmul, vdot
from nnc.numpy.operands import to_size, to_value
from nnc.numpy.scaling import binary_exponent, largest_part
from nnc.trace.core.flat import FlatTree, call_function
from nnc.trace.core.implicit import LinearMap, Solver, linear_solve
from nnc.trace.core.staging import stage

Vector = list[Any]  # the leaves of a pytree


@dataclass(frozen=True, slots=True)
class System:
    """A linear system on flat values, all of the dtypes of its solution."""

    where: str
    shape: FlatTree  # the structure of b
    matvec: LinearMap
    precondition: LinearMap | None
    b: Vector
    guess: Vector | None

    @property
    def size(self) -> int:
        """The number of unknowns."""
        return sum(x.size for x in self.b)

    def solve(self, solver: Solver) -> tuple[Any, Array]:
        """Returns the solution as a pytree, and the solver's `info`."""
        x, rest = linear_solve(solver, self.matvec, self.b, guess=self.guess, precondition=self.precondition)
        return self.shape.build(x), rest[0]


def read_system(where: str, A: Any, b: Any, x0: Any, M: Any) -> System:  # noqa: N803  (SciPy's names)
    """Makes the system of a solver's arguments.

    Raises:
        ShapeError, TreeError, DTypeError, ArgumentTypeError: they do not fit together.
    """
    shape = FlatTree(b)
    right = [to_value(x, where, "b") for x in shape.dynamic]
    if not right:
        raise user_error(ArgumentTypeError, where, f"b is {b!r}, which holds no array.", fix="pass a right-hand side.")
    guess = None if x0 is None else _leaves_like(where, "x0", x0, shape, right)
    maps = [_linear_map(where, name, x, shape, right) for name, x in (("A", A), ("M", M))]
    specs = [spec_of(x).update(dtype=dtypes.to_float(result_dtype(x, where=where))) for x in right]
    first = maps[0]
    if first is None:
        raise user_error(ArgumentTypeError, where, "A is None.", fix="pass a matrix, or a function of vectors.")
    if guess is not None:
        specs = [
            s.update(dtype=result_dtype(s.dtype.type(0), g, where=where)) for s, g in zip(specs, guess, strict=True)
        ]
    wider = [s.dtype for s in stage(lambda *xs: first(xs), specs, name="A").graph.output_specs]
    own = [
        _float(where, result_dtype(np.zeros((), s.dtype), np.zeros((), d), where=where))
        for s, d in zip(specs, wider, strict=True)
    ]

    def cast(xs: Sequence[Any]) -> Vector:
        return [astype(x, dtype) for x, dtype in zip(xs, own, strict=True)]

    def within(fun: LinearMap | None) -> LinearMap | None:
        return None if fun is None else lambda xs: cast(fun(xs))

    return System(where, shape, lambda xs: cast(first(xs)), within(maps[1]), cast(right), guess and cast(guess))


def _float(where: str, dtype: dtypes.DType) -> dtypes.DType:
    if not dtypes.is_inexact(dtype):
        raise user_error(DTypeError, where, f"the system is one of {dtype.name}.", fix="pass floating-point numbers.")
    return dtype


def _leaves_like(where: str, name: str, value: Any, shape: FlatTree, like: Sequence[Any]) -> Vector:
    """Returns the leaves of a pytree that must have the structure and the shapes of b."""
    tree.check_same_structure(where, name, value, "b", shape.build(like))
    leaves = [to_value(x, where, name) for x in FlatTree(value).dynamic]
    for x, y in zip(leaves, like, strict=True):
        if x.spec.shape != y.spec.shape:
            problem = f"{name} and b differ in shape."
            fix = "make both of one shape: the system is square."
            raise user_error(ShapeError, where, problem, operands={name: x.spec, "b": y.spec}, fix=fix)
    return leaves


def _linear_map(where: str, name: str, fun: Any, shape: FlatTree, like: Sequence[Any]) -> LinearMap | None:
    """Returns a matrix or a user's function as a function of flat values."""
    if fun is None:
        return None
    if callable(fun):

        def run(xs: Sequence[Any]) -> Vector:
            result = call_function(
                fun, (shape.build(xs),), where=where, fix=f"define {name} as a function of one vector."
            )
            return _leaves_like(where, f"the result of {name}", result, shape, like)

        return run
    matrix = to_value(as_operand(fun, where, name), where, name)
    spec, size = matrix.spec, like[0].spec.shape
    if len(like) != 1 or like[0].spec.ndim != 1 or spec.shape != (*size, *size):
        problem = f"the matrix {name} does not fit b."
        fix = f"pass an n by n matrix and a vector of n elements, or a function for {name}."
        raise user_error(ShapeError, where, problem, operands={name: spec, "b": _text(like)}, fix=fix)
    return lambda xs: [matmul(matrix, xs[0])]


def _text(values: Sequence[Any]) -> TensorSpec | str:
    return values[0].spec if len(values) == 1 else ", ".join(str(x.spec) for x in values)


# -- vectors -----------------------------------------------------------------------------------------------------------


def dot(x: Vector, y: Vector) -> Any:
    """Returns the inner product, linear in y."""
    total: Any = 0
    for a, b in zip(x, y, strict=True):
        total = total + vdot(a, b)
    return total


def squares(x: Vector) -> Any:
    """Returns the square of the Euclidean norm, a real number."""
    total = dot(x, x)
    return el.real(total) if dtypes.is_complex(total.dtype) else total


def axpy(a: Any, x: Vector, y: Vector) -> Vector:
    """a x + y; a number of a wider dtype does not widen y."""
    return [astype(el.multiply(a, p) + q, q.spec.dtype) for p, q in zip(x, y, strict=True)]


def in_range(matvec: LinearMap, b: Vector) -> tuple[LinearMap, Any, Any]:
    """Returns a map times a power of two, that power, and one for vectors, by which squares of b and of the map's values stay
    in range.
    """
    of_vectors = _inverse_size(b)
    of_map = _inverse_size(matvec(scaled(of_vectors, b)))
    return (lambda xs: scaled(of_map, matvec(xs))), of_map, of_vectors


def scaled(factor: Any, x: Vector) -> Vector:
    """Returns the vector times a real number."""
    return [astype(el.multiply(factor, y), y.spec.dtype) for y in x]


def _inverse_size(x: Vector) -> Any:
    """Returns a power of two near 1 / the largest size of an element; 1 for zeros and for sizes that are no numbers."""
    largest: Any = 0
    for y in x:
        parts = [el.real(y), el.imag(y)] if dtypes.is_complex(y.spec.dtype) else [y]
        largest = el.maximum(
            largest, sum(largest_part(el.abs(part), tuple(range(y.spec.ndim))).reshape(()) for part in parts)
        )
    largest = ew.stop_gradient(largest)
    power = ldexp(constants.full_like(largest, 1), -binary_exponent(largest))
    return el.where(el.isfinite(largest) & (largest > 0), power, 1)


# -- settings ----------------------------------------------------------------------------------------------------------


def to_maxiter(where: str, maxiter: Any, system: System) -> int:
    """Returns the largest number of iterations, 10 times the number of unknowns by default."""
    return 10 * system.size if maxiter is None else to_size(maxiter, where, "maxiter")


def check_tolerances(where: str, **tolerances: Any) -> None:
    """Raises ArgumentError for negative tolerances among Python numbers."""
    for name, value in tolerances.items():
        if isinstance(value, (int, float)) and not value >= 0:
            raise user_error(ArgumentError, where, f"{name} is {value!r}.", fix="give 0 or more.")


def is_solved(size: Any, limit: Any) -> Any:
    """Whether a residual is within the limit; one that is infinite is not, also where the limit is."""
    return (size <= limit) & el.isfinite(size)


def info_of(converged: Any, count: Any) -> Any:
    """SciPy's `info`: 0 for a solution within the tolerance, else the number of iterations, at least 1."""
    return el.where(converged, 0, el.maximum(count, 1))
