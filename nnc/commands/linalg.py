"""Linear systems of the matrices in the last two axes; all axes before them are batches.

References run LAPACK through NumPy, 16-bit floats in float32. Rules are written with ordinary commands.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from nnc.base import dtypes
from nnc.commands.constants import full_like, iota
from nnc.commands.contract import matrix_product
from nnc.commands.elementwise import (
    INEXACT,
    Accepts,
    as_array,
    complex_,
    conj,
    convert,
    equal,
    greater,
    greater_equal,
    imag,
    less,
    less_equal,
    real,
    select,
    sub,
)
from nnc.commands.reduce import reduce_sum
from nnc.commands.rules import add_tangents, batch_leading, check_dtype, not_linear
from nnc.commands.shape import broadcast_to, concatenate, reshape, slice_axis, transpose
from nnc.errors import LinAlgError, ShapeError, user_error
from nnc.graph import Command, TensorSpec, check_same_dtype, register
from nnc.graph import command as get_command
from nnc.graph.rules import BatchRule, Cotangents, Derivative, Infer, JvpRule, Linear, Rules, Tangents, Value

NDArray = np.ndarray[Any, Any]

# -- shared ------------------------------------------------------------------------------------------------------------


def check_matrix(where: str, x: TensorSpec, *, square: bool = True, name: str = "x") -> None:
    """Raises ShapeError unless the last two axes of `x` are a matrix, a square one where `square`."""
    if x.ndim < 2:
        problem = f"{name} must be a matrix, it has {x.ndim} axes."
        fix = "pass at least two axes; the last two are the matrix."
        raise user_error(ShapeError, where, problem, operands={name: x}, fix=fix)
    if square and x.shape[-1] != x.shape[-2]:
        problem = f"{name} must be square, its matrices are {x.shape[-2]} by {x.shape[-1]}."
        raise user_error(ShapeError, where, problem, operands={name: x}, fix="make the last two axes of one size.")


# LAPACK's commands: their references take CuPy's arrays, and refuse matrices for which there is no answer.
MatrixRules = partial(Rules, any_arrays=True, refuses=True)
NO_CONVERGENCE = "LAPACK's iteration did not converge; an element may be infinite or NaN."
SINGULAR = "a matrix is singular."


def lapack(
    name: str,
    function: Callable[..., Any],
    problem: str = NO_CONVERGENCE,
    fix: str = "check the matrix with nnp.isfinite.",
) -> Callable[..., Any]:
    """Returns the reference that runs `function` in the dtype to accumulate in; LAPACK's failure becomes a user's error."""

    def reference(*xs: NDArray, **params: Any) -> Any:
        dtype = xs[0].dtype
        real_parts, complex_parts = dtypes.real_dtype(dtype), dtypes.complex_dtype(dtype)
        try:
            with np.errstate(all="ignore"):
                result = function(*(x.astype(dtypes.accumulator(dtype), copy=False) for x in xs), **params)
                found = [as_array(y) for y in (result if isinstance(result, tuple) else (result,))]
                outputs = [y.astype(complex_parts if y.dtype.kind == "c" else real_parts, copy=False) for y in found]
        except np.linalg.LinAlgError:
            is_inverse = name == "solve" and _is_identity(xs[1])
            where, shown = ("inv (solve with the identity)", xs[:1]) if is_inverse else (name, xs)
            specs = {f"input {i}" if len(shown) > 1 else "x": TensorSpec(x.shape, x.dtype) for i, x in enumerate(shown)}
            raise user_error(LinAlgError, where, problem, operands=specs, fix=fix) from None
        return tuple(outputs) if isinstance(result, tuple) else outputs[0]

    return reference


def register_matrix(
    name: str, infer: Infer, reference: Callable[..., Any], jvp: JvpRule, cost: Callable[..., int], outputs: int = 1
) -> Command:
    """Registers a command of LAPACK of one operand."""
    rules = MatrixRules(
        infer=infer, reference=reference, derivative=Derivative(jvp), batch=batch_leading(name), cost=cost
    )
    return register(name, rules, outputs=outputs)


def _is_identity(x: NDArray) -> bool:
    """Whether the last two axes hold identity matrices, as in the inverse of a matrix."""
    return x.ndim > 1 and x.shape[-1] == x.shape[-2] and bool(np.all(x == np.eye(x.shape[-1], dtype=x.dtype)))


def matrix_transpose(x: Value) -> Value:
    """`x` with its last two axes swapped."""
    n = x.spec.ndim
    return transpose(x, permutation=(*range(n - 2), n - 1, n - 2))


def adjoint(x: Value) -> Value:
    """Returns the conjugate of `x` with its last two axes swapped."""
    swapped = matrix_transpose(x)
    return conj(swapped) if dtypes.is_complex(x.spec.dtype) else swapped


def real_part(x: Value) -> Value:
    """Returns the real part of `x`, which is `x` where that is real."""
    return real(x) if dtypes.is_complex(x.spec.dtype) else x


def imaginary_part(x: Value) -> Value:
    """`x` without its real part; for complex `x` only."""
    return complex_(full_like(real(x), 0), imag(x))


def keep(x: Value, compare: Command) -> Value:
    """`x` with zeros where `compare(row, column)` does not hold."""
    return select(_where(x.spec, compare), x, full_like(x, 0))


def _where(spec: TensorSpec, compare: Command) -> Value:
    rows, columns = (iota(shape=spec.shape[-2:], dtype=dtypes.int64, axis=axis) for axis in (0, 1))
    inside = compare(rows, columns)
    return inside if spec.ndim == 2 else broadcast_to(inside, shape=spec.shape)


def identity_like(spec: TensorSpec) -> Value:
    """Identity matrices of the shape and dtype of `spec`."""
    return convert(_where(spec, equal), dtype=spec.dtype)


def trace(x: Value) -> Value:
    """Returns the sums of the diagonals."""
    return reduce_sum(keep(x, equal), axes=(x.spec.ndim - 2, x.spec.ndim - 1))


def infer_square(name: str, accepts: Accepts) -> Callable[..., TensorSpec]:
    """Returns the shape rule of a command from square matrices to matrices of the same size."""

    def infer(x: TensorSpec) -> TensorSpec:
        check_dtype(name, x, *accepts)
        check_matrix(name, x)
        return x

    return infer


def cubic(x: TensorSpec, *others: TensorSpec, **params: Any) -> int:
    """About as many operations as a product of the matrices takes."""
    return 2 * x.size * min(x.shape[-2:])


SMALL_TRIANGLE = 32  # rows that one thread of a GPU solves: each waits for those before it

# -- linear systems ----------------------------------------------------------------------------------------------------


def _check_system(name: str, a: TensorSpec, b: TensorSpec) -> TensorSpec:
    check_same_dtype(name, (a, b))
    check_dtype(name, a, *INEXACT, name="a")
    check_matrix(name, a, name="a")
    check_matrix(name, b, square=False, name="b")
    if a.shape[:-1] != b.shape[:-1]:
        problem = f"a of shape {a.shape} and b of shape {b.shape} differ in batches or rows."
        fix = "give b the leading axes of a, and as many rows."
        raise user_error(ShapeError, name, problem, operands={"a": a, "b": b}, fix=fix)
    return b


def _solver(name: str, matrix: Callable[..., Value], opposite: Callable[..., Value]) -> Derivative:
    """X = A⁻¹B is linear in B, and dX = A⁻¹(dB − dA X). `matrix(a, **params)` is A, `opposite` solves with Aᵀ."""

    def jvp(primals: tuple[Value, ...], tangents: Tangents, outputs: tuple[Value, ...], **params: Any) -> Tangents:
        (a, _), (ta, right) = primals, tangents
        if ta is not None:
            right = add_tangents(right, -matrix_product(matrix(ta, **params), outputs[0]))
        return (get_command(name)(a, right, **params),)

    def rule(cotangents: Cotangents, operands: tuple[Value | Linear, ...], **params: Any) -> Tangents:
        a = operands[0]
        if isinstance(a, Linear):
            raise not_linear(name, "in the matrix a", {"a": a.spec})
        return None, opposite(a, cotangents[0], **params)

    return Derivative(jvp, rule)


def _solver_batch(name: str) -> BatchRule:
    """Right-hand sides of one matrix become its columns, so that it is factorised once."""

    def rule(size: int, operands: tuple[Value, ...], batched: tuple[bool, ...], **params: Any) -> Any:
        a, b = operands
        if batched[0]:
            return batch_leading(name)(size, operands, batched, **params)
        _, *batch, n, k = b.spec.shape
        last = b.spec.ndim - 1
        columns = transpose(b, permutation=(*range(1, last), 0, last))
        x = get_command(name)(a, reshape(columns, shape=(*batch, n, size * k)), **params)
        x = reshape(x, shape=(*batch, n, size, k))
        return (transpose(x, permutation=(last - 1, *range(last - 1), last)),), (True,)

    return rule


def _triangular_infer(
    a: TensorSpec, b: TensorSpec, *, lower: bool, transpose_a: bool = False, unit_diagonal: bool = False
) -> TensorSpec:
    return _check_system("triangular_solve", a, b)


def _substitute(
    a: NDArray, b: NDArray, *, lower: bool, transpose_a: bool = False, unit_diagonal: bool = False
) -> NDArray:
    """Solves a triangular system row after row: rows before one with a NaN stay free of it, other than with LU."""
    if not unit_diagonal and (np.diagonal(a, 0, -2, -1) == 0).any():
        raise np.linalg.LinAlgError
    a, n = a.swapaxes(-1, -2) if transpose_a else a, a.shape[-1]
    x = b.copy()
    for i in range(n) if lower != transpose_a else reversed(range(n)):
        known = slice(0, i) if lower != transpose_a else slice(i + 1, n)
        row = slice(i, i + 1)
        if known.start < known.stop:
            x[..., row, :] -= a[..., row, known] @ x[..., known, :]
        if not unit_diagonal:
            x[..., row, :] /= a[..., row, row]
    return x


def _triangular_decomposed(
    a: Value, b: Value, *, lower: bool, transpose_a: bool = False, unit_diagonal: bool = False
) -> list[Value] | None:
    """Halves, down to the small triangles: the half that is solved first is multiplied by the block beside the diagonal."""
    n = a.spec.shape[-1]
    if n <= SMALL_TRIANGLE or dtypes.is_complex(a.spec.dtype):
        return None

    def cut(x: Value, rows: slice, columns: slice) -> Value:
        last = x.spec.ndim - 1
        return slice_axis(slice_axis(x, last - 1, rows.start, rows.stop), last, columns.start, columns.stop)

    def solved(a: Value, b: Value) -> Value:
        n, all_columns = a.spec.shape[-1], slice(0, b.spec.shape[-1])
        if n <= SMALL_TRIANGLE:
            return triangular_solve(a, b, lower=lower, transpose_a=transpose_a, unit_diagonal=unit_diagonal)
        middle = -(-n // (2 * SMALL_TRIANGLE)) * SMALL_TRIANGLE
        halves = slice(0, middle), slice(middle, n)
        first, second = halves if lower != transpose_a else halves[::-1]
        x = solved(cut(a, first, first), cut(b, first, all_columns))
        beside = matrix_transpose(cut(a, first, second)) if transpose_a else cut(a, second, first)
        y = solved(cut(a, second, second), sub(cut(b, second, all_columns), matrix_product(beside, x)))
        return concatenate(*((x, y) if lower != transpose_a else (y, x)), axis=b.spec.ndim - 2)

    return [solved(a, b)]


def _triangle(ta: Value, *, lower: bool, transpose_a: bool = False, unit_diagonal: bool = False) -> Value:
    """Returns the part of a tangent of `a` that is read: without the diagonal where the solver does not read it."""
    inside, strict = (greater_equal, greater) if lower else (less_equal, less)
    moved = keep(ta, strict if unit_diagonal else inside)
    return matrix_transpose(moved) if transpose_a else moved


triangular_solve: Command = register(
    "triangular_solve",
    MatrixRules(
        infer=_triangular_infer,
        reference=lapack("triangular_solve", _substitute, SINGULAR, "make sure that no element on the diagonal is 0."),
        derivative=_solver(
            "triangular_solve",
            _triangle,
            lambda a, ct, transpose_a=False, **params: triangular_solve(a, ct, transpose_a=not transpose_a, **params),
        ),
        batch=_solver_batch("triangular_solve"),
        cost=lambda a, b, **params: b.size * a.shape[-1],
    ),
    arity=2,
    decomposition=_triangular_decomposed,
)
solve: Command = register(
    "solve",
    MatrixRules(
        infer=lambda a, b: _check_system("solve", a, b),
        reference=lapack("solve", np.linalg.solve, SINGULAR, "use nnp.linalg.pinv, or add a multiple of the identity."),
        derivative=_solver("solve", lambda ta: ta, lambda a, ct: solve(matrix_transpose(a), ct)),
        batch=_solver_batch("solve"),
        cost=lambda a, b: cubic(a) + 2 * b.size * a.shape[-1],
    ),
    arity=2,
)
