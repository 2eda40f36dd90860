"""Jacobians and Hessians: a linear map applied to the rows of an identity matrix, all at once or in chunks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, Unpack, overload

import numpy as np

from nnc.array.array import Array, as_value
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.commands.constants import iota
from nnc.commands.elementwise import convert, equal
from nnc.commands.shape import reshape, slice_axis, transpose
from nnc.errors import DTypeError, user_error
from nnc.errors.tracebacks import api_boundary
from nnc.graph.rules import Value
from nnc.trace.core.compiled_function import compiled_transform
from nnc.trace.core.differentiate import active_leaves, linearize, run_push, vjp
from nnc.trace.core.flat import FlatTree, check_argnums, check_callable, check_positions, function_of
from nnc.trace.core.vectorize import vmap
from nnc.typing import A, First, Jacobians, Leaf, No, P, R, Zero, typed_like

__all__ = ["hessian", "jacfwd", "jacrev"]

Fun = Callable[..., Any]
Argnums = int | Sequence[int]
_linearize: Fun = linearize  # `has_aux` is a variable here, which overloads cannot tell apart
_vjp: Fun = vjp


@overload
def jacfwd(
    fun: First[Array, P, R], argnums: Zero = 0, has_aux: No = False, **options: Unpack[Jacobians]
) -> First[Leaf, P, R]: ...
@overload
def jacfwd(
    fun: First[A, P, Leaf], argnums: Zero = 0, has_aux: No = False, **options: Unpack[Jacobians]
) -> First[A, P, A]: ...
@overload
def jacfwd(
    fun: Callable[P, object], argnums: Argnums = 0, has_aux: bool = False, **options: Unpack[Jacobians]
) -> Callable[P, object]: ...
@spelled
@compiled_transform()
def jacfwd(
    fun: Fun, argnums: Argnums = 0, has_aux: bool = False, *, holomorphic: bool = False, chunk_size: int | None = None
) -> Any:
    """Returns the Jacobian of `fun` by forward mode, column by column: best where the result is larger than the argument.

    Args:
        fun: function of pytrees.
        argnums: arguments to differentiate.
        has_aux: `fun` returns (result, aux).
        holomorphic: argument and result are complex, and so is the derivative.
        chunk_size: columns at a time.

    Returns:
        a function of the same arguments. For each leaf of the result, a tree like the argument with leaves of shape
        result.shape + argument.shape; with `has_aux`, a pair of it and aux.

    Raises:
        DTypeError: a complex argument without `holomorphic`, or a real one with it.

    Example:
        >>> nnc.jacfwd(lambda x: x**2)(nnp.asarray([1.0, 2.0]))
        Array([[2., 0.],
               [0., 4.]], dtype=float32)
    """
    check_callable(fun, "nnc.jacfwd")

    @wraps(fun)
    @api_boundary
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        part, chosen, single = _partial("nnc.jacfwd", fun, argnums, args, kwargs, holomorphic)
        if not holomorphic:
            _check_real("nnc.jacfwd", "the argument", chosen)
        rows = _identity(tuple(chosen))
        if chunk_size is None:
            pushed = wraps(fun)(lambda *rows: run_push("nnc.jacfwd", part, chosen, rows, has_aux))
            result, columns, *aux = vmap(pushed, out_axes=(None, 0, None)[: 2 + has_aux])(*rows)
        else:  # the function runs once for all chunks
            result, push, *aux = _linearize(part, *chosen, has_aux=has_aux)
            columns = vmap(push, chunk_size=chunk_size)(*rows)
        if holomorphic:
            _check_complex("nnc.jacfwd", result)
        out, inputs = FlatTree(columns), FlatTree(tuple(chosen))
        trees = [_split(_last(column), inputs) for column in out.dynamic]
        jac = out.build([t[0] if single else t for t in trees])
        return (jac, aux[0]) if has_aux else jac

    return jacobian


@typed_like(jacfwd)
@spelled
@compiled_transform()
def jacrev(
    fun: Fun, argnums: Argnums = 0, has_aux: bool = False, *, holomorphic: bool = False, chunk_size: int | None = None
) -> Callable[..., object]:
    """Returns the Jacobian of `fun` by reverse mode, row by row: best where the argument is larger than the result. See
    `jacfwd`.

    Args:
        fun: function of pytrees.
        argnums: position or positions to differentiate.
        has_aux: `fun` returns (result, aux).
        holomorphic: argument and result are complex, and so is the derivative.
        chunk_size: rows at a time.

    Example:
        >>> jacrev(lambda x: nnp.stack([x[0] * x[1], x[0]]))(nnp.asarray([2.0, 3.0]))
        Array([[3., 2.],
               [1., 0.]], dtype=float32)
    """
    check_callable(fun, "nnc.jacrev")

    @wraps(fun)
    @api_boundary
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        part, chosen, single = _partial("nnc.jacrev", fun, argnums, args, kwargs, holomorphic)
        result, pull, *aux = _vjp(part, *chosen, has_aux=has_aux)
        if holomorphic:
            _check_complex("nnc.jacrev", result)
        else:
            _check_real("nnc.jacrev", "the result", result)
        rows = vmap(pull, chunk_size=chunk_size)(_identity(result))
        out, inputs = FlatTree(result), FlatTree(rows)
        trees = [
            inputs.build([_split_rows(column, out.dynamic, i) for column in inputs.dynamic])
            for i in range(len(out.dynamic))
        ]
        jac = out.build([t[0] if single else t for t in trees])
        return (jac, aux[0]) if has_aux else jac

    return jacobian


@overload
def hessian(
    fun: First[Array, P, R], argnums: Zero = 0, has_aux: No = False, **options: Unpack[Jacobians]
) -> First[Leaf, P, R]: ...
@overload
def hessian(
    fun: Callable[P, object], argnums: Argnums = 0, has_aux: bool = False, **options: Unpack[Jacobians]
) -> Callable[P, object]: ...
@spelled
def hessian(
    fun: Fun, argnums: Argnums = 0, has_aux: bool = False, *, holomorphic: bool = False, chunk_size: int | None = None
) -> Any:
    """Returns the matrix of second derivatives of a function, forward over reverse.

    Args:
        fun: function of pytrees.
        argnums: position or positions to differentiate.
        has_aux: `fun` returns (result, aux).
        holomorphic: argument and result are complex, and so is the derivative.
        chunk_size: columns at a time.

    Returns:
        a function of the same arguments; leaves have shape result.shape + argument.shape + argument.shape.

    Example:
        >>> nnc.hessian(lambda x: nnp.sum(x**3))(nnp.asarray([1.0, 2.0]))
        Array([[ 6.,  0.],
               [ 0., 12.]], dtype=float32)
    """
    inner = jacrev(fun, argnums, has_aux, holomorphic=holomorphic, chunk_size=chunk_size)
    return jacfwd(inner, argnums, has_aux, holomorphic=holomorphic, chunk_size=chunk_size)


def _partial(
    transform: str, fun: Fun, argnums: Argnums, args: tuple[Any, ...], kwargs: dict[str, Any], holomorphic: bool
) -> tuple[Fun, list[Any], bool]:
    """`fun` of the chosen arguments alone."""
    positions = check_argnums(transform, argnums, "name positional arguments by number.")
    check_positions(transform, "argnums", positions, len(args))
    chosen = [args[i] for i in positions]
    active_leaves(transform, [FlatTree(value) for value in chosen], holomorphic, allow_int=False)
    return function_of(fun, args, kwargs, positions), chosen, isinstance(argnums, int)


def _check_real(transform: str, what: str, value: Any) -> None:
    """A Jacobian of real numbers has no entry for the two directions of a complex one."""
    for leaf in map(as_value, FlatTree(value).dynamic):
        if dtypes.is_complex(leaf.spec.dtype):
            problem = f"{what} is complex."
            fix = "pass holomorphic=True if the function is; else differentiate real and imaginary parts (nnp.real, nnp.imag)."
            raise user_error(DTypeError, transform, problem, operands={what.removeprefix("the "): leaf.spec}, fix=fix)


def _check_complex(transform: str, result: Any) -> None:
    for leaf in map(as_value, FlatTree(result).dynamic):
        if not dtypes.is_complex(leaf.spec.dtype):
            problem = "holomorphic=True needs a complex result."
            fix = "drop holomorphic=True, or return a complex array."
            raise user_error(DTypeError, transform, problem, operands={"result": leaf.spec}, fix=fix)


def _identity(value: Any) -> Any:
    """Returns a tree like `value` whose leaves have a leading axis: together the rows of an identity matrix."""
    flat = FlatTree(value)
    leaves = [as_value(leaf) for leaf in flat.dynamic]
    total, at, rows = sum(x.spec.size for x in leaves), 0, []
    for x in leaves:
        shape = (total, x.spec.size)
        ones = equal(iota(shape=shape, dtype="int64", axis=0), iota(shape=shape, dtype="int64", axis=1) + at)
        rows.append(reshape(convert(ones, dtype=x.spec.dtype), shape=(total, *x.spec.shape)))
        at += x.spec.size
    return flat.build(rows)


def _last(column: Value) -> Value:
    """Returns the leading axis moved to the end."""
    return transpose(column, permutation=(*range(1, column.spec.ndim), 0))


def _split(block: Value, inputs: FlatTree) -> Any:
    """Returns the last axis of a block cut into the leaves of the arguments."""
    at, parts = 0, []
    for leaf in inputs.dynamic:
        shape = np.shape(leaf)
        n = math.prod(shape)
        piece = slice_axis(block, block.spec.ndim - 1, at, at + n)
        parts.append(reshape(piece, shape=(*block.spec.shape[:-1], *shape)))
        at += n
    return inputs.build(parts)


def _split_rows(column: Value, results: Sequence[Any], i: int) -> Value:
    """Returns the rows of `column` that belong to leaf `i` of the result, in its shape."""
    sizes = [math.prod(np.shape(leaf)) for leaf in results]
    start = sum(sizes[:i])
    rows = slice_axis(column, 0, start, start + sizes[i])
    return reshape(rows, shape=(*np.shape(results[i]), *column.spec.shape[1:]))
