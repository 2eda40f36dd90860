"""New arrays. Their dtype is float32 (integers int64) unless one is given."""

from __future__ import annotations

import math
from typing import Any, Literal, overload

import numpy as np

from nnc.array.array import Array, asarray
from nnc.array.operators import array_method
from nnc.array.promote import as_operand, broadcast, broadcast_to_shape, is_weak, promote, to_dtype, with_weakness
from nnc.array.promote import astype as convert_to
from nnc.base import dtypes
from nnc.calls.specialise import specialised
from nnc.calls.spelling import spelled
from nnc.commands import constants
from nnc.commands import elementwise as ew
from nnc.commands.reduce import reduce_or
from nnc.commands.shape import reshape
from nnc.device import dlpack
from nnc.errors import ArgumentError, ArgumentTypeError, user_error
from nnc.numpy.elementwise import divide, equal, exp, log, multiply, power, where
from nnc.numpy.manipulation import moveaxis
from nnc.numpy.operands import (
    STATIC,
    in_dtype,
    known_or_none,
    strong,
    strong_dtype,
    to_shape,
    to_size,
    to_value,
)
from nnc.numpy.types import iinfo
from nnc.typing import ArrayLike, DTypeLike, ShapeLike

__all__ = [
    "arange", "array", "asarray", "astype", "copy", "empty", "empty_like", "from_dlpack", "frombuffer", "fromiter", "full",
    "full_like", "geomspace", "linspace", "logspace", "ones", "ones_like", "zeros", "zeros_like",
]  # fmt: skip


def _constant(where: str, shape: Any, dtype: Any, value: Any) -> Array:
    dtype = dtypes.DEFAULT_FLOAT if dtype is None else to_dtype(dtype, where, shape)
    return constants.full(shape=to_shape(shape, where), dtype=dtype, value=value)


@specialised(0)
def zeros(shape: ShapeLike, dtype: DTypeLike | None = None, *, device: str | None = None) -> Array:
    """Returns an array of zeros.

    Args:
        shape: an integer or a sequence of integers.
        dtype: float32 by default.
        device: where the array is made, as `nnc.devices` lists it; by default the one of `nnc.default_device`.

    Example:
        >>> zeros((2, 3)).shape
        (2, 3)
    """
    return _constant("zeros", shape, dtype, 0)


@specialised(0)
def ones(shape: ShapeLike, dtype: DTypeLike | None = None, *, device: str | None = None) -> Array:
    """Returns an array of ones; float32 by default.

    Args:
        shape: an integer or a sequence of integers.
        dtype: float32 by default.
        device: where the array is made, as `nnc.devices` lists it; by default the one of `nnc.default_device`.

    Example:
        >>> ones(2, "int32")
        Array([1, 1], dtype=int32)
    """
    return _constant("ones", shape, dtype, 1)


@spelled
def empty(shape: ShapeLike, dtype: DTypeLike | None = None, *, device: str | None = None) -> Array:
    """Returns an array whose elements do not matter; they are zeros.

    Args:
        shape: an integer or a sequence of integers.
        dtype: float32 by default.
        device: where the array is made, as `nnc.devices` lists it; by default the one of `nnc.default_device`.

    Example:
        >>> nnp.empty((2, 3)).shape
        (2, 3)
    """
    return _constant("empty", shape, dtype, 0)


@spelled
def full(
    shape: ShapeLike, fill_value: ArrayLike, dtype: DTypeLike | None = None, *, device: str | None = None
) -> Array:
    """Returns an array of `fill_value`, which may be an array that broadcasts to `shape`.

    Args:
        shape: an integer or a sequence of integers.
        fill_value: a number, or an array that broadcasts to `shape`.
        dtype: by default the dtype of `fill_value`.
        device: where the array is made, as `nnc.devices` lists it; by default the one of `nnc.default_device`.

    Example:
        >>> full(2, 7)
        Array([7, 7], dtype=int64)
    """
    sizes, filling = to_shape(shape, "full"), dtypes.plain_number(fill_value)
    if dtypes.is_scalar(filling):
        wanted = dtypes.scalar_dtype(filling) if dtype is None else to_dtype(dtype, "full")
        limited = isinstance(filling, float) and dtypes.is_integer(wanted)  # as floats that become integers are
        number = convert_to(np.float64(filling) if limited else filling, wanted, "full").item()
        return constants.full(shape=sizes, dtype=wanted, value=number)
    if dtype is None:
        value = strong(to_value(filling, "full", "fill_value"), "full")
    elif hasattr(filling, "spec"):
        value = in_dtype(filling, to_dtype(dtype, "full"), "full", "fill_value")
    else:
        value = asarray(filling, dtype)
    return broadcast_to_shape(value, sizes)


def _like(where: str, x: Any, fill_value: Any, dtype: Any, shape: Any) -> Array:
    x = to_value(x, where)
    wanted = x.spec.dtype if dtype is None else to_dtype(dtype, where)
    result = full(x.spec.shape if shape is None else shape, fill_value, wanted)
    return with_weakness(result, is_weak(x)) if dtype is None and is_weak(as_operand(fill_value)) else result


@specialised(1)
def zeros_like(
    x: ArrayLike, dtype: DTypeLike | None = None, shape: ShapeLike | None = None, *, device: str | None = None
) -> Array:
    """Returns zeros with the shape and dtype of `x`, or those given.

    Args:
        x: array whose shape and dtype are taken where they are not given.
        dtype: dtype of `x` by default.
        shape: shape of `x` by default.
        device: where the array is made, as `nnc.devices` lists it; by default the one of `nnc.default_device`.

    Example:
        >>> nnp.zeros_like(nnp.asarray([1, 2]))
        Array([0, 0], dtype=int64)
    """
    return _like("zeros_like", x, 0, dtype, shape)


@specialised(1)
def ones_like(
    x: ArrayLike, dtype: DTypeLike | None = None, shape: ShapeLike | None = None, *, device: str | None = None
) -> Array:
    """Returns ones with the shape and dtype of `x`, or those given.

    Args:
        x: array whose shape and dtype are taken where they are not given.
        dtype: dtype of `x` by default.
        shape: shape of `x` by default.
        device: where the array is made, as `nnc.devices` lists it; by default the one of `nnc.default_device`.

    Example:
        >>> nnp.ones_like(nnp.asarray([1, 2]))
        Array([1, 1], dtype=int64)
    """
    return _like("ones_like", x, 1, dtype, shape)


@spelled
def empty_like(
    x: ArrayLike, dtype: DTypeLike | None = None, shape: ShapeLike | None = None, *, device: str | None = None
) -> Array:
    """Returns an array like `x` whose elements do not matter; they are zeros.

    Args:
        x: array whose shape and dtype are taken where they are not given.
        dtype: dtype of `x` by default.
        shape: shape of `x` by default.
        device: where the array is made, as `nnc.devices` lists it; by default the one of `nnc.default_device`.

    Example:
        >>> nnp.empty_like(nnp.ones((2, 3))).shape
        (2, 3)
    """
    return _like("empty_like", x, 0, dtype, shape)


@spelled
def full_like(
    x: ArrayLike,
    fill_value: ArrayLike,
    dtype: DTypeLike | None = None,
    shape: ShapeLike | None = None,
    *,
    device: str | None = None,
) -> Array:
    """Returns `fill_value` everywhere, with the shape and dtype of `x`, or those given.

    Args:
        x: array whose shape and dtype are taken where they are not given.
        fill_value: a number, or an array that broadcasts to the shape.
        dtype: dtype of `x` by default.
        shape: shape of `x` by default.
        device: where the array is made, as `nnc.devices` lists it; by default the one of `nnc.default_device`.

    Example:
        >>> nnp.full_like(nnp.asarray([1, 2]), 7)
        Array([7, 7], dtype=int64)
    """
    return _like("full_like", x, fill_value, dtype, shape)


@spelled
def array(
    obj: ArrayLike, dtype: DTypeLike | None = None, *, copy: bool = True, ndmin: int = 0, device: str | None = None
) -> Array:
    """Returns a new array of `obj`; see `asarray`, which copies only where it must.

    Args:
        obj: array, tracer, number or nested list.
        dtype: element type; else the one of `obj`, where lists of Python floats become float32.
        copy: False shares memory where that is possible.
        ndmin: least number of axes; missing ones of size 1 are put in front.
        device: where the array is made, as `nnc.devices` lists it; by default the one of `nnc.default_device`.

    Example:
        >>> array([1.0, 2.0])
        Array([1., 2.], dtype=float32)
    """
    x = asarray(obj, None if dtype is None else to_dtype(dtype, "array"), copy=copy or None, device=device)
    missing = ndmin - x.spec.ndim
    return reshape(x, shape=(1,) * missing + x.spec.shape) if missing > 0 else x


@array_method
def astype(x: ArrayLike, dtype: DTypeLike, /, *, copy: bool = True, device: str | None = None) -> Array:
    """Returns `x` converted to `dtype`. Floats are truncated to integers.

    Args:
        x: any shape.
        dtype: element type of the result.
        copy: accepted as in NumPy; arrays are immutable, so it makes no difference.
        device: where the array is made, as `nnc.devices` lists it; by default the one of `nnc.default_device`.

    Raises:
        DTypeError: nnc has no such dtype, or the imaginary part would be dropped.

    Example:
        >>> astype(np.asarray([1.5, -1.5]), int)
        Array([ 1, -1], dtype=int64)
    """
    return with_weakness(_wrapped(to_value(x, "astype"), to_dtype(dtype, "astype")), False)


def _wrapped(x: Array, dtype: Any) -> Array:
    return x if x.spec.dtype == dtype else ew.convert(x, dtype=dtype)


@array_method
def copy(x: ArrayLike, /) -> Array:
    """Returns a copy of `x`.

    Args:
        x: any shape.

    Example:
        >>> nnp.copy(nnp.asarray([1.0, 2.0]))
        Array([1., 2.], dtype=float32)
    """
    return ew.copy(to_value(x, "copy"))


@spelled
def from_dlpack(x: ArrayLike, /, *, device: str | None = None, copy: bool | None = None) -> Array:
    """Returns an array that shares the memory of another library's array (through DLPack).

    Args:
        x: object with `__dlpack__`.
        device: where the array is made, as `nnc.devices` lists it; by default the one of `nnc.default_device`.
        copy: True always copies, False never; None where memory cannot be shared.

    Example:
        >>> nnp.from_dlpack(np.arange(3, dtype="float32"))
        Array([0., 1., 2.], dtype=float32)
    """
    if not hasattr(x, "__dlpack__"):
        problem = f"{type(x).__name__} has no __dlpack__."
        raise user_error(ArgumentTypeError, "from_dlpack", problem, fix="use nnp.asarray for other objects.")
    return asarray(x if hasattr(x, "spec") else dlpack.load(x), copy=copy, device=device)


@spelled
def frombuffer(buffer: Any, dtype: DTypeLike | None = None, count: int = -1, offset: int = 0) -> Array:
    r"""Returns an array that shares the memory of a buffer (bytes, memoryview …), read as elements of `dtype` (float32).

    Args:
        buffer: object with the buffer protocol.
        dtype: element type, float32 by default.
        count: number of elements; -1 for all.
        offset: where the first element begins, in bytes.

    Example:
        >>> frombuffer(b"\x01\x02", "uint8")
        Array([1, 2], dtype=uint8)
    """
    wanted = dtypes.DEFAULT_FLOAT if dtype is None else to_dtype(dtype, "frombuffer")
    return asarray(np.frombuffer(buffer, wanted, count, offset))


@spelled
def fromiter(iter: Any, dtype: DTypeLike, count: int = -1) -> Array:
    """Returns a vector of the numbers that an iterator yields, or of its first `count`.

    Args:
        iter: iterable of numbers.
        dtype: element type of the result.
        count: how many to take; -1 for all.

    Example:
        >>> nnp.fromiter((i * i for i in range(4)), dtype="int64")
        Array([0, 1, 4, 9], dtype=int64)
    """
    return asarray(np.fromiter(iter, to_dtype(dtype, "fromiter"), count))


# -- ranges ------------------------------------------------------------------------------------------------------------


def _number(x: Any, where: str, name: str) -> Any:
    """Returns a Python number whose value is known while tracing."""
    x = dtypes.plain_number(x)
    if dtypes.is_scalar(x):
        return x
    x = to_value(x, where, name)
    if x.spec.ndim:
        raise user_error(ArgumentTypeError, where, f"{name} must be a number, it is {x.spec}.", fix="pass one number.")
    return x.concrete(f"{where}({name})", STATIC).item()


@spelled
def arange(
    start: ArrayLike,
    stop: ArrayLike | None = None,
    step: ArrayLike = 1,
    dtype: DTypeLike | None = None,
    *,
    device: str | None = None,
) -> Array:
    """Returns numbers from `start` up to and without `stop`, in steps of `step`; `arange(n)` starts at 0.

    Args:
        start: first number; with it alone the end, and numbers start at 0.
        stop: end, which is left out. All three must be known while tracing.
        step: distance of neighbours, not 0.
        dtype: int64 for integers, else float32.
        device: where the array is made, as `nnc.devices` lists it; by default the one of `nnc.default_device`.

    Raises:
        TraceError: a traced value.
        ArgumentError: step is 0.

    Example:
        >>> arange(3), arange(1, 0, -0.5)
        (Array([0, 1, 2], dtype=int64), Array([1. , 0.5], dtype=float32))
    """
    given = (start, stop, step)
    if start is None:
        raise user_error(ArgumentTypeError, "arange", "start is None.", fix="give where the numbers begin or end.")
    named = zip(given, ("start", "stop", "step"), strict=True)
    numbers: list[Any] = [None if x is None else _number(x, "arange", name) for x, name in named]
    first, last, by = numbers
    if last is None:
        first, last = 0, first
    if by == 0:
        raise user_error(ArgumentError, "arange", "step is 0.", fix="give a positive or negative step.")
    exact = not any(isinstance(x, float) for x in (first, last, by))
    n = _steps(first, last, by, exact)
    default = dtypes.DEFAULT_INT if exact else dtypes.DEFAULT_FLOAT
    wanted = default if dtype is None else to_dtype(dtype, "arange")
    ends = (first, first + (n - 1) * by) if n else ()
    if exact and dtypes.is_integer(wanted):
        for end in ends:
            convert_to(end, wanted, "arange")  # raises where it does not fit
    if (first, by) == (0, 1) and not dtypes.is_bool(wanted):
        return constants.iota(shape=(n,), dtype=wanted, axis=0)
    fitting = [
        d for d in (dtypes.int64, dtypes.uint64) if exact and all(iinfo(d).min <= x <= iinfo(d).max for x in ends)
    ]
    offsets = constants.iota(shape=(n,), dtype=fitting[0] if fitting else dtypes.float64, axis=0) * abs(by)
    return convert_to(offsets + first if by > 0 else first - offsets, wanted)


def _steps(start: float, stop: float, step: float, exact: bool) -> int:
    """Counts the numbers from start up to and without stop."""
    if exact:
        return max(0, int(-((start - stop) // step)))
    count = (stop - start) / step
    if not math.isfinite(count):
        problem = f"from {start} to {stop} in steps of {step} there are {count} numbers."
        raise user_error(ArgumentError, "arange", problem, fix="pass finite numbers.")
    return max(0, math.ceil(count))


@overload
def linspace(
    start: ArrayLike,
    stop: ArrayLike,
    num: int = 50,
    endpoint: bool = True,
    retstep: Literal[False] = False,
    dtype: DTypeLike | None = None,
    axis: int = 0,
    *,
    device: str | None = None,
) -> Array: ...
@overload
def linspace(
    start: ArrayLike,
    stop: ArrayLike,
    num: int = 50,
    endpoint: bool = True,
    *,
    retstep: Literal[True],
    dtype: DTypeLike | None = None,
    axis: int = 0,
    device: str | None = None,
) -> tuple[Array, Array]: ...
@spelled
def linspace(
    start: ArrayLike,
    stop: ArrayLike,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: DTypeLike | None = None,
    axis: int = 0,
    *,
    device: str | None = None,
) -> Any:
    """Returns `num` numbers from `start` to `stop` at equal distances.

    Args:
        start: first number, or an array of them; broadcasts with `stop`.
        stop: last number, or an array of them.
        num: how many numbers.
        endpoint: the last number is `stop`.
        retstep: return the distance, too.
        dtype: float32 by default, or the dtype that floating-point ends promote to.
        axis: where the new axis goes.
        device: where the array is made, as `nnc.devices` lists it; by default the one of `nnc.default_device`.

    Raises:
        ArgumentError: num is negative.

    Example:
        >>> linspace(0, 1, 5)
        Array([0.  , 0.25, 0.5 , 0.75, 1.  ], dtype=float32)
    """
    num = to_size(num, "linspace", "num")
    start, stop = dtypes.plain_number(start), dtypes.plain_number(stop)
    from_, to = promote(start, stop, where="linspace", to=dtypes.to_float)
    natural = strong_dtype(from_)
    wanted = natural if dtype is None else to_dtype(dtype, "linspace")
    work = dtypes.accumulator(natural)
    if dtypes.is_integer(wanted) or (is_weak(start) and is_weak(stop)):
        work = dtypes.promote_types(natural, dtypes.float64)
        from_, to = promote(start, stop, where="linspace", to=lambda _: work)
    from_, to = broadcast(*(to_value(convert_to(x, work), "linspace") for x in (from_, to)), where="linspace")
    gaps = num - 1 if endpoint else num
    places = constants.iota(shape=(num, *(1,) * np.ndim(from_)), dtype=dtypes.real_dtype(work), axis=0)
    t, distance = convert_to(places, work), to - from_
    step = distance / gaps if gaps > 0 else distance * math.nan
    values = (_spread(t, distance, step, gaps) if gaps > 0 else t * distance) + from_
    if gaps > 0 and _may_overflow(distance):
        step = where(ew.isinf(distance), to / gaps - from_ / gaps, step)
        values = where(ew.isinf(distance), from_ * (1 - t / gaps) + to * (t / gaps), values)
    if endpoint and num > 1:
        values = where(equal(places, gaps), to, values)
    if dtypes.is_integer(wanted):
        values = ew.floor(values)
    result = moveaxis(convert_to(values, wanted), 0, axis)
    return (result, ew.convert(step, dtype=natural)) if retstep else result


def _may_overflow(distance: Array) -> bool:
    """Whether the distance of two numbers is infinite, or not known."""
    known = known_or_none(distance)
    return known is None or bool(np.isinf(known).any())


def _spread(t: Array, distance: Array, step: Array, gaps: int) -> Array:
    """t · step, with NumPy's roundings: where a step is so small that it is 0, the division comes last but one."""
    steps = known_or_none(step)
    if steps is not None:
        return t * step if steps.all() else t / gaps * distance
    vanishes = reduce_or(ew.equal(step, step * 0), axes=tuple(range(np.ndim(step))))
    return where(vanishes, t / gaps * distance, t * step)


@spelled
def logspace(
    start: ArrayLike,
    stop: ArrayLike,
    num: int = 50,
    endpoint: bool = True,
    base: ArrayLike = 10.0,
    dtype: DTypeLike | None = None,
    axis: int = 0,
) -> Array:
    """Returns `num` numbers from base**start to base**stop at equal ratios.

    Args:
        start: exponent of the first number, or an array of them.
        stop: exponent of the last number, or an array of them.
        num: how many numbers.
        endpoint: whether the last number is the end; without it the numbers stop one step before.
        base: a number, or an array of them.
        dtype: float32 by default, or the dtype that floating-point ends promote to.
        axis: where the axis of the numbers stands in the result, if start or stop are arrays.

    Example:
        >>> nnp.logspace(0, 2, 3)
        Array([  1.,  10., 100.], dtype=float32)
    """
    natural = strong_dtype(promote(start, stop, where="logspace", to=dtypes.to_float)[0])
    exponents = linspace(start, stop, num, endpoint, dtype=dtypes.promote_types(natural, dtypes.float64), axis=axis)
    return convert_to(power(base, exponents), natural if dtype is None else to_dtype(dtype, "logspace"))


@spelled
def geomspace(
    start: ArrayLike,
    stop: ArrayLike,
    num: int = 50,
    endpoint: bool = True,
    dtype: DTypeLike | None = None,
    axis: int = 0,
) -> Array:
    """Returns `num` numbers from `start` to `stop` at equal ratios; the first is `start`, the last with `endpoint` is `stop`.

    Args:
        start: first number, or an array of them; where it is 0 the result is NaN.
        stop: last number, of the same sign, or an array of them; where it is 0 the result is NaN.
        num: how many numbers.
        endpoint: whether the last number is the end; without it the numbers stop one step before.
        dtype: float32 by default, or the dtype that floating-point ends promote to.
        axis: where the axis of the numbers stands in the result, if start or stop are arrays.

    Example:
        >>> geomspace(1, 100, 3)
        Array([  1.,  10., 100.], dtype=float32)
    """
    from_, to = promote(start, stop, where="geomspace", to=dtypes.to_float)
    natural = strong_dtype(from_)
    from_, to = (ew.convert(x, dtype=dtypes.promote_types(natural, dtypes.float64)) for x in (from_, to))
    exponent = log(divide(to, from_)) if dtypes.is_complex(from_.spec.dtype) else _log_ratio(to, from_)
    half = multiply(0.5, linspace(constants.full_like(exponent, 0), exponent, num, endpoint))
    values = multiply(multiply(from_, exp(half)), exp(half))  # e^exponent may overflow
    if endpoint and num > 1:
        places = constants.iota(shape=(num, *(1,) * np.ndim(exponent)), dtype=dtypes.int64, axis=0)
        values = where(equal(places, num - 1), to, values)
    return moveaxis(convert_to(values, natural if dtype is None else to_dtype(dtype, "geomspace")), 0, axis)


def _log_ratio(x: Array, y: Array) -> Array:
    """log(x / y), also where the ratio leaves the range."""
    ratio = divide(x, y)
    apart = log(ew.abs_(x)) - log(ew.abs_(y))
    return where(ew.isinf(ratio) | equal(ratio, 0), apart, log(where(equal(ratio, 0), 1, ratio)))
