"""Reductions over axes, arg-reductions and cumulative commands. The axes of a reduction are removed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from nnc.base import dtypes
from nnc.commands.constants import full
from nnc.commands.elementwise import (
    BITS,
    NUMERIC,
    ORDERED,
    Accepts,
    add,
    as_array,
    bitwise_and,
    bitwise_or,
    convert,
    equal,
    greater_equal,
    in_dtype,
    less_equal,
    maximum,
    minimum,
    mul,
    not_equal,
    select,
)
from nnc.commands.rules import Reduction, batch_leading, check_axes, check_axis, check_dtype, linear_in, of_tangent
from nnc.commands.shape import broadcast_to, concatenate, flip, slice_axis
from nnc.errors import ShapeError, user_error
from nnc.graph import Command, TensorSpec, register
from nnc.graph.registry import numpy_call
from nnc.graph.rules import Derivative, Linear, Rules, Value

Shape = tuple[int, ...]


def _kept(ndim: int, axes: Shape) -> Shape:
    removed = {axis % ndim for axis in axes}
    return tuple(i for i in range(ndim) if i not in removed)


def _widened(x: Any) -> Any:
    """`x` in the dtype in which it is accumulated."""
    return x.astype(dtypes.accumulator(x.dtype), copy=False)


def _ufunc_of(by: Reduction) -> np.ufunc:
    """NumPy's function that combines two elements."""
    function = numpy_call[by.combine]
    assert isinstance(function, np.ufunc)
    return function


_SUMMANDS, _SHORT = 128, 1024  # terms of a piece of a long sum, and terms up to which a sum is short
_TOTALS = MappingProxyType({np.dtype(np.float32): np.float64, np.dtype(np.complex64): np.complex128})


def _sum(x: Any, axis: Shape, dtype: Any = None) -> Any:
    """NumPy's sum, whose error does not grow with the length of the axes.

    NumPy sums in pairs along axes whose elements are neighbours, and one after the other along others. So the longest of those is
    cut into pieces, whose sums are added in the dtype with twice the digits.
    """
    total = _TOTALS.get(x.dtype) if isinstance(x, np.ndarray) else None
    if total is None or _lies_dense(x, axis):
        return np.sum(x, axis, dtype=dtype)
    longest = max((a % x.ndim for a in axis if x.strides[a] != x.itemsize), key=lambda a: x.shape[a], default=None)
    if longest is None or x.shape[longest] <= _SHORT:
        return np.sum(x, axis, dtype=dtype)
    before, n, behind = x.shape[:longest], x.shape[longest], x.shape[longest + 1 :]
    whole = n - n % _SUMMANDS
    head, rest = (x[(slice(None),) * longest + (part,)] for part in (slice(whole), slice(whole, None)))
    sums = np.add.reduce(head.reshape(*before, whole // _SUMMANDS, _SUMMANDS, *behind), longest + 1)
    return (np.add.reduce(sums, axis, dtype=total) + np.add.reduce(rest, axis, dtype=total)).astype(x.dtype)


def _lies_dense(x: Any, axis: Shape) -> bool:
    """Whether the elements that are reduced to one lie one after the other."""
    return x.flags.c_contiguous and {a % x.ndim for a in axis} == set(range(x.ndim - len(axis), x.ndim))


# NumPy's functions, which other libraries have, for methods of ufuncs, which they lack
_OVER_AXES: Mapping[np.ufunc, Callable[..., Any]] = MappingProxyType({np.add: _sum, np.multiply: np.prod})
_ALONG_AXIS: Mapping[np.ufunc, Callable[..., Any]] = MappingProxyType({np.add: np.cumsum, np.multiply: np.cumprod})


def _reduction(
    name: str,
    by: Reduction,
    *,
    accepts: Accepts = NUMERIC,
    derivative: Derivative | None = None,
    needs_elements: bool = False,
) -> Command:
    function = _ufunc_of(by)

    def infer(x: TensorSpec, *, axes: Shape) -> TensorSpec:
        check_dtype(name, x, *accepts)
        axes = check_axes(name, axes, x.ndim)
        if needs_elements and any(x.shape[axis] == 0 for axis in axes):
            fix = "reduce a non-empty axis, or handle the empty case before."
            raise user_error(ShapeError, name, "it has no value over an axis of size 0.", operands={"x": x}, fix=fix)
        return x.update(shape=tuple(x.shape[i] for i in _kept(x.ndim, axes)))

    def reference(x: Any, *, axes: Shape) -> Any:
        with np.errstate(all="ignore"):
            wide = _widened(x)
            return as_array(reduce(wide, axes, dtype=wide.dtype)).astype(x.dtype, copy=False)

    reduce: Callable[..., Any] = _OVER_AXES.get(function, function.reduce)

    return register(
        name,
        Rules(
            infer=infer,
            any_arrays=function in _OVER_AXES,
            reference=reference,
            numpy_call=lambda x, *, axes: partial(_at_once(function, x, axes), axis=axes, dtype=x.dtype),
            derivative=derivative,
            batch=batch_leading(name),
            cost=lambda x, axes: x.size,
        ),
        reduction=by,
    )


def _at_once(function: np.ufunc, x: TensorSpec, axes: Shape) -> Callable[..., Any]:
    """Returns the function of arrays that reduces these axes."""
    is_long = function is np.add and x.dtype in _TOTALS and any(x.shape[axis] > _SHORT for axis in axes)
    return _sum if is_long else function.reduce


def expand(x: Value, like: TensorSpec, axes: Shape) -> Value:
    """`x` broadcast along the `axes` that a reduction of `like` removed."""
    return broadcast_to(x, shape=like.shape, axes=_kept(like.ndim, axes))


def _lowest(dtype: dtypes.DType) -> Any:
    if dtypes.is_bool(dtype):
        return False
    return -np.inf if dtypes.is_float(dtype) else np.iinfo(dtype).min


def _highest(dtype: dtypes.DType) -> Any:
    if dtypes.is_bool(dtype):
        return True
    return np.inf if dtypes.is_float(dtype) else np.iinfo(dtype).max


_PRODUCT = Reduction(mul, lambda dtype: 1, ordered=True)
_MAXIMUM = Reduction(maximum, _lowest, idempotent=True)
_MINIMUM = Reduction(minimum, _highest, idempotent=True)

reduce_sum: Command = _reduction(
    "reduce_sum",
    Reduction(add, lambda dtype: 0),
    derivative=linear_in("reduce_sum", {0: lambda ct, x, axes: expand(ct, x.spec, axes)}),
)


def _tangent_of_extremum(t: Value, x: Value, out: Value, *, axes: Shape) -> Value:
    """Passes on the tangent of the extreme element; equal ones share it equally. 16-bit floats would not hold small shares."""
    own, wide = x.spec.dtype, dtypes.accumulator(x.spec.dtype)
    at = convert(equal(x, expand(out, x.spec, axes)), dtype=wide)
    share = at / expand(reduce_sum(at, axes=axes), at.spec, axes)
    return in_dtype(reduce_sum(mul(in_dtype(t, wide), share), axes=axes), own)


reduce_max: Command = _reduction(
    "reduce_max", _MAXIMUM, accepts=ORDERED, needs_elements=True, derivative=of_tangent(_tangent_of_extremum)
)
reduce_min: Command = _reduction(
    "reduce_min", _MINIMUM, accepts=ORDERED, needs_elements=True, derivative=of_tangent(_tangent_of_extremum)
)


def _tangent_of_prod(t: Value, x: Value, out: Value, *, axes: Shape) -> Value:
    """Each element's partial is the product of the others: of those before it and of those after it, so zeros are no trouble."""
    for axis in sorted((axis % x.spec.ndim for axis in axes), reverse=True):
        others = mul(_exclusive_prod(x, axis), flip(_exclusive_prod(flip(x, axes=(axis,)), axis), axes=(axis,)))
        t = reduce_sum(mul(t, others), axes=(axis,))
        x = reduce_prod(x, axes=(axis,))
    return t


def _exclusive_prod(x: Value, axis: int) -> Value:
    first = full(shape=tuple(1 if i == axis else n for i, n in enumerate(x.spec.shape)), dtype=x.spec.dtype, value=1)
    if x.spec.shape[axis] == 0:
        return x
    return concatenate(first, slice_axis(cumprod(x, axis=axis), axis, 0, x.spec.shape[axis] - 1), axis=axis)


reduce_prod: Command = _reduction("reduce_prod", _PRODUCT, derivative=of_tangent(_tangent_of_prod))
reduce_and: Command = _reduction(
    "reduce_and",
    Reduction(bitwise_and, lambda dtype: True if dtypes.is_bool(dtype) else -1, idempotent=True),
    accepts=BITS,
)
reduce_or: Command = _reduction("reduce_or", Reduction(bitwise_or, lambda dtype: 0, idempotent=True), accepts=BITS)


def _arg_reduction(name: str, function: Callable[..., Any]) -> Command:
    def infer(x: TensorSpec, *, axis: int) -> TensorSpec:
        check_dtype(name, x, *ORDERED)
        axis = check_axis(name, axis, x.ndim)
        if x.shape[axis] == 0:
            problem = f"axis {axis} has size 0, so there is no element to name."
            raise user_error(ShapeError, name, problem, operands={"x": x}, fix="reduce a non-empty axis.")
        return x.update(shape=tuple(n for i, n in enumerate(x.shape) if i != axis), dtype=dtypes.int64)

    return register(
        name,
        Rules(
            infer=infer,
            reference=lambda x, *, axis: np.asarray(function(x, axis)),
            batch=batch_leading(name),
            cost=lambda x, axis: x.size,
        ),
    )


argmax: Command = _arg_reduction("argmax", lambda x, axis: np.argmax(_widened(x), axis))
argmin: Command = _arg_reduction("argmin", lambda x, axis: np.argmin(_widened(x), axis))

# -- cumulative --------------------------------------------------------------------------------------------------------


def _cumulative(
    name: str, by: Reduction, *, accepts: Accepts = NUMERIC, derivative: Derivative | None = None
) -> Command:
    function = _ufunc_of(by)

    def infer(x: TensorSpec, *, axis: int) -> TensorSpec:
        check_dtype(name, x, *accepts)
        check_axis(name, axis, x.ndim)
        return x

    def reference(x: Any, *, axis: int) -> Any:
        with np.errstate(all="ignore"):
            wide = _widened(x)
            return accumulate(wide, axis, dtype=wide.dtype).astype(x.dtype, copy=False)

    accumulate: Callable[..., Any] = _ALONG_AXIS.get(function, function.accumulate)

    return register(
        name,
        Rules(
            infer=infer,
            any_arrays=function in _ALONG_AXIS,
            reference=reference,
            derivative=derivative,
            batch=batch_leading(name),
            cost=lambda x, axis: x.size,
        ),
        cumulative=by,
    )


def _reverse_cumsum(ct: Value, x: Linear, *, axis: int) -> Value:
    return flip(cumsum(flip(ct, axes=(axis,)), axis=axis), axes=(axis,))


cumsum: Command = _cumulative(
    "cumsum",
    Reduction(add, lambda dtype: -0.0),  # -0 + -0 is -0: a row may begin with such
    derivative=linear_in("cumsum", {0: _reverse_cumsum}),
)


def _by_doubling(p: Value, s: Value, axis: int, combine: Callable[..., tuple[Value, Value]]) -> Value:
    """Returns the tangents of a cumulative command: pairs (value, tangent) combined with those 1, 2, 4 … places before
    (Blelloch, 1990).

    `combine(p, s, q, t)` is the pair of a run (p, s) followed by a run (q, t). log2(n) steps, and no division.
    """
    n, step = p.spec.shape[axis], 1
    while step < n:
        before = slice_axis(p, axis, 0, n - step), slice_axis(s, axis, 0, n - step)
        after = slice_axis(p, axis, step, n), slice_axis(s, axis, step, n)
        heads = slice_axis(p, axis, 0, step), slice_axis(s, axis, 0, step)
        p, s = (concatenate(head, rest, axis=axis) for head, rest in zip(heads, combine(*before, *after), strict=True))
        step *= 2
    return s


def _tangent_of_cumprod(t: Value, x: Value, out: Value, *, axis: int) -> Value:
    def combine(p: Value, s: Value, q: Value, t: Value) -> tuple[Value, Value]:
        return mul(p, q), mul(s, q) + mul(p, t)

    return _by_doubling(x, t, axis, combine)


cumprod: Command = _cumulative("cumprod", _PRODUCT, derivative=of_tangent(_tangent_of_cumprod))


def _running_extremum(pick: Command, holds: Command) -> Derivative:
    """Returns the tangent of the element that holds the record, the first of equal ones; that is the first NaN from there on."""

    def combine(p: Value, s: Value, q: Value, t: Value) -> tuple[Value, Value]:
        stays = holds(p, q)
        if dtypes.is_float(p.spec.dtype):
            stays = bitwise_or(stays, not_equal(p, p))  # NaN is never beaten
        return pick(p, q), select(stays, s, t)

    return of_tangent(lambda t, x, out, axis: _by_doubling(x, t, axis, combine))


cummax: Command = _cumulative("cummax", _MAXIMUM, accepts=ORDERED, derivative=_running_extremum(maximum, greater_equal))
cummin: Command = _cumulative("cummin", _MINIMUM, accepts=ORDERED, derivative=_running_extremum(minimum, less_equal))
