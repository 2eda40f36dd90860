"""Contractions: the one command `dot`, to which matmul, einsum, tensordot … reduce.

dot[b, i, j] = sum over k of x[b, i, k] · y[b, k, j]

where b, i, j and k each stand for any number of axes, which may lie anywhere in the operands. It is bilinear and closed
under transposition: the cotangent of either operand is again a `dot` of the output's cotangent and the other operand.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from nnc.base import dtypes
from nnc.commands.rules import check_axes, linear_in
from nnc.commands.shape import invert_permutation, permute
from nnc.errors import ArgumentError, ShapeError, user_error
from nnc.graph import TensorSpec, check_same_dtype, register
from nnc.graph.rules import Linear, Rules, Value

_MATRICES = (dtypes.float32, dtypes.float64, *dtypes.COMPLEX)  # which BLAS multiplies
Axes = tuple[int, ...]
AxesPair = tuple[Axes, Axes]


class Roles(NamedTuple):
    """The axes of one operand of `dot` by their role."""

    batch: Axes
    free: Axes
    contract: Axes

    @classmethod
    def of(cls, ndim: int, batch: Axes, contract: Axes) -> Roles:
        """Returns the roles in an operand of `ndim` axes: those neither batched nor contracted are free."""
        return cls(batch, tuple(axis for axis in range(ndim) if axis not in batch and axis not in contract), contract)


def _roles(x: Any, y: Any, contract: AxesPair, batch: AxesPair) -> tuple[Roles, Roles]:
    return Roles.of(x.ndim, batch[0], contract[0]), Roles.of(y.ndim, batch[1], contract[1])


def _sizes(shape: tuple[int, ...], axes: Axes) -> tuple[int, ...]:
    return tuple(shape[axis] for axis in axes)


def _check_pairs(kind: str, x: TensorSpec, y: TensorSpec, axes: AxesPair) -> None:
    operands = {"left": x, "right": y}
    if len(axes) != 2 or len(axes[0]) != len(axes[1]):
        problem = f"{kind} axes must be two tuples of one length, they are {axes}."
        fix = "name each axis of the left operand together with its partner of the right one."
        raise user_error(ArgumentError, "dot", problem, operands=operands, fix=fix)
    for a, b in zip(*axes, strict=True):
        if x.shape[a] != y.shape[b]:
            problem = f"{kind} sizes differ: left axis {a} is {x.shape[a]}, right axis {b} is {y.shape[b]}."
            fix = "pair axes of equal size; commands do not broadcast."
            raise user_error(ShapeError, "dot", problem, operands=operands, fix=fix)


def _dot_infer(x: TensorSpec, y: TensorSpec, *, contract: AxesPair, batch: AxesPair = ((), ())) -> TensorSpec:
    check_same_dtype("dot", (x, y))
    for spec, side in ((x, 0), (y, 1)):
        axes = (*batch[side], *contract[side])
        if check_axes("dot", axes, spec.ndim) != axes:
            problem = f"axes {axes} must be counted from the front."
            fix = "add the number of axes to negative ones."
            raise user_error(ShapeError, "dot", problem, operands={"left": x, "right": y}, fix=fix)
    _check_pairs("contracting", x, y, contract)
    _check_pairs("batch", x, y, batch)
    of_x, of_y = _roles(x, y, contract, batch)
    return x.update(shape=_sizes(x.shape, of_x.batch) + _sizes(x.shape, of_x.free) + _sizes(y.shape, of_y.free))


def _dot_reference(x: Any, y: Any, *, contract: AxesPair, batch: AxesPair = ((), ())) -> Any:
    """Folds each group of axes into one and multiplies matrices: BLAS does the work for the floats it knows."""
    of_x, of_y = _roles(x, y, contract, batch)
    shared, left, right = _sizes(x.shape, of_x.batch), _sizes(x.shape, of_x.free), _sizes(y.shape, of_y.free)
    depth = math.prod(_sizes(x.shape, of_x.contract))
    b, m, n = math.prod(shared), math.prod(left), math.prod(right)
    wide = dtypes.accumulator(x.dtype)
    lhs = x.transpose((*of_x.batch, *of_x.free, *of_x.contract)).reshape((b, m, depth)).astype(wide, copy=False)
    rhs = y.transpose((*of_y.batch, *of_y.contract, *of_y.free)).reshape((b, depth, n)).astype(wide, copy=False)
    with np.errstate(all="ignore"):
        out = np.matmul(lhs[0], rhs[0]) if b == 1 else np.matmul(lhs, rhs)
        return out.reshape((*shared, *left, *right)).astype(x.dtype, copy=False)


def _dot_call(
    x: TensorSpec, y: TensorSpec, *, contract: AxesPair, batch: AxesPair = ((), ())
) -> Callable[..., Any] | None:
    """`dot` of vectors and matrices as they lie."""
    is_plain = contract == ((x.ndim - 1,), (0,)) and batch == ((), ()) and y.ndim <= 2
    return np.matmul if is_plain and x.ndim <= 2 else None


def _dot_into(
    x: TensorSpec, y: TensorSpec, *, contract: AxesPair, batch: AxesPair = ((), ())
) -> Callable[..., Any] | None:
    """One call of matmul, where both operands have one free and one contracted axis beside the batch."""
    of_x, of_y = _roles(x, y, contract, batch)
    if x.dtype not in _MATRICES or not len(of_x.free) == len(of_y.free) == len(of_x.contract) == 1:
        return None
    left, right = (*of_x.batch, *of_x.free, *of_x.contract), (*of_y.batch, *of_y.contract, *of_y.free)
    return lambda x, y, out: np.matmul(x.transpose(left), y.transpose(right), out)


def _rising(pairs: AxesPair) -> AxesPair:
    """Returns the pairs in the order of their second axes."""
    order = sorted(zip(*pairs, strict=True), key=lambda pair: pair[1])
    return tuple(a for a, _ in order), tuple(b for _, b in order)


def _cotangent_of_left(ct: Value, x: Linear, y: Value, *, contract: AxesPair, batch: AxesPair = ((), ())) -> Value:
    """Contracts the free axes of `y`; its other axes are the ones that it contracted with `x`."""
    of_x, of_y = _roles(x.spec, y.spec, contract, batch)
    shared = tuple(range(len(of_x.batch)))
    last = tuple(range(ct.spec.ndim - len(of_y.free), ct.spec.ndim))
    out = dot(ct, y, contract=(last, of_y.free), batch=(shared, of_y.batch))
    return permute(out, invert_permutation((*of_x.batch, *of_x.free, *_rising(contract)[0])))


def _cotangent_of_right(ct: Value, x: Value, y: Linear, *, contract: AxesPair, batch: AxesPair = ((), ())) -> Value:
    of_x, of_y = _roles(x.spec, y.spec, contract, batch)
    shared = tuple(range(len(of_x.batch)))
    middle = tuple(range(len(shared), len(shared) + len(of_x.free)))
    out = dot(x, ct, contract=(of_x.free, middle), batch=(of_x.batch, shared))
    contracted = _rising((contract[1], contract[0]))[0]
    return permute(out, invert_permutation((*of_y.batch, *contracted, *of_y.free)))


def _dot_batch(
    size: int, operands: tuple[Value, ...], batched: tuple[bool, ...], *, contract: AxesPair, batch: AxesPair = ((), ())
) -> Any:
    """Two batched operands share one more batch axis; the batch axis of a single one is free, and moves to the front."""
    x, y = operands
    contract = _shift(contract, batched)
    batch = _shift(batch, batched)
    if all(batched):
        return (dot(x, y, contract=contract, batch=((0, *batch[0]), (0, *batch[1]))),), (True,)
    out = dot(x, y, contract=contract, batch=batch)
    at = len(batch[0]) if batched[0] else len(_roles(x.spec, y.spec, contract, batch)[0].free) + len(batch[0])
    return (permute(out, (at, *(axis for axis in range(out.spec.ndim) if axis != at))),), (True,)


def _shift(axes: AxesPair, batched: tuple[bool, ...]) -> AxesPair:
    left, right = (tuple(axis + moved for axis in side) for side, moved in zip(axes, batched, strict=True))
    return left, right


def _dot_cost(x: TensorSpec, y: TensorSpec, *, contract: AxesPair, batch: AxesPair = ((), ())) -> int:
    free = _roles(x, y, contract, batch)[1].free
    return 2 * x.size * math.prod(_sizes(y.shape, free))


dot = register(
    "dot",
    Rules(
        infer=_dot_infer,
        any_arrays=True,
        reference=_dot_reference,
        numpy_call=_dot_call,
        refuses=False,
        derivative=linear_in("dot", {0: _cotangent_of_left, 1: _cotangent_of_right}),
        batch=_dot_batch,
        cost=_dot_cost,
    ),
    arity=2,
    numpy_into=_dot_into,
)


def matrix_product(x: Value, y: Value) -> Value:
    """Returns the products of matrices of equal batches, by the command alone: the operands may be symbols."""
    last = x.spec.ndim - 1
    lead = tuple(range(last - 1))
    return dot(x, y, contract=((last,), (last - 1,)), batch=(lead, lead))
