"""Functions of functions: users' functions along axes, over broadcast arrays, piece by piece."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Sequence
from functools import wraps
from typing import Any

import numpy as np

from nnc.array.array import Array
from nnc.array.promote import to_dtype
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.errors import ArgumentError, ShapeError, user_error
from nnc.errors.tracebacks import api_boundary
from nnc.numpy import elementwise as el
from nnc.numpy.grids import indices
from nnc.numpy.manipulation import broadcast_shapes, expand_dims, moveaxis, reshape
from nnc.numpy.operands import Shape, in_dtype, keeps_weakness, to_axes, to_axis, to_shape, to_value
from nnc.trace.core.flat import call_function
from nnc.trace.core.vectorize import vmap
from nnc.typing import ArrayLike

__all__ = ["apply_along_axis", "apply_over_axes", "fromfunction", "piecewise", "vectorize"]

Fun = Callable[..., Any]


@api_boundary
def fromfunction(function: Fun, shape: Any, *, dtype: Any = None, **kwargs: Any) -> Array:
    """Returns `function` of the indices of an array of `shape`: one array of indices for each axis.

    Args:
        function: takes one array of indices for each axis.
        shape: an integer or a sequence of integers.
        dtype: the dtype of the indices, float32 by default.
        **kwargs: further arguments of `function`.

    Example:
        >>> fromfunction(lambda i, j: i + j, (2, 2), dtype=int)
        Array([[0, 1],
               [1, 2]], dtype=int64)
    """
    wanted = dtypes.DEFAULT_FLOAT if dtype is None else to_dtype(dtype, "fromfunction")
    grids = indices(to_shape(shape, "fromfunction"), wanted)
    return call_function(function, tuple(grids), kwargs, where="fromfunction")


@api_boundary
def apply_along_axis(func1d: Fun, axis: int, arr: ArrayLike, *args: Any, **kwargs: Any) -> Array:
    """Returns `func1d(vector, *args, **kwargs)` for the vectors of `arr` along `axis`, whose axes stand in its place.

    Args:
        func1d: takes a vector and returns an array of one shape for all of them.
        axis: axis that the vectors lie along.
        arr: any shape with at least one axis.
        *args: further arguments of `func1d`.
        **kwargs: further arguments of `func1d` by name.

    Example:
        >>> apply_along_axis(nnp.cumsum, 0, np.asarray([[1, 2], [3, 4]]))
        Array([[1, 2],
               [4, 6]], dtype=int64)
    """
    x = to_value(arr, "apply_along_axis", "arr")
    at = to_axis("apply_along_axis", axis, x.spec.ndim)
    rows = moveaxis(x, at, -1)
    rest, n = rows.spec.shape[:-1], rows.spec.shape[-1]
    if 0 in rest:
        problem = "there is no vector to apply the function to."
        fix = "pass an array whose other axes are not empty."
        raise user_error(ShapeError, "apply_along_axis", problem, operands={"arr": x.spec}, fix=fix)
    out = vmap(
        lambda row: to_value(call_function(func1d, (row, *args), kwargs, where="apply_along_axis"), "apply_along_axis")
    )(reshape(rows, (math.prod(rest), n)))
    own = out.spec.shape[1:]
    out = reshape(out, (*rest, *own))
    return moveaxis(out, tuple(range(len(rest), len(rest) + len(own))), tuple(range(at, at + len(own))))


@spelled
def apply_over_axes(func: Fun, a: Any, axes: Any) -> Array:
    """Returns `func(a, axis)` applied for one axis after the other; axes that it removes are kept with size 1.

    Args:
        func: takes an array and an axis; returns an array of as many axes, or of one less.
        a: any shape.
        axes: an axis or several, in this order.

    Raises:
        ShapeError: the result of `func` has another number of axes.

    Example:
        >>> apply_over_axes(nnp.sum, nnp.ones((2, 3, 4)), (0, 2)).shape
        (1, 3, 1)
    """
    x = to_value(a, "apply_over_axes", "a")
    for at in to_axes("apply_over_axes", axes, x.spec.ndim):
        y = to_value(func(x, at), "apply_over_axes")
        if y.spec.ndim == x.spec.ndim - 1:
            y = expand_dims(y, at)
        if y.spec.ndim != x.spec.ndim:
            problem = f"func returns {y.spec.ndim} axes for {x.spec.ndim}."
            operands = {"argument": x.spec, "result": y.spec}
            fix = "return an array without the axis, or with all of them."
            raise user_error(ShapeError, "apply_over_axes", problem, operands=operands, fix=fix)
        x = y
    return x


@keeps_weakness
def piecewise(x: Any, condlist: Any, funclist: Sequence[Any], *args: Any, **kwargs: Any) -> Array:
    """Returns, for each element of `x`, the value of the last function whose condition holds, in the dtype of x.

    Functions are called on all of x; where their branch is not taken, their derivative is 0.

    Args:
        x: any shape.
        condlist: conditions, each of the shape of `x`.
        funclist: a function or number for each, and perhaps one more where none holds (else 0).
        *args: further arguments of the functions.
        **kwargs: further arguments of the functions by name.

    Raises:
        ArgumentError: the numbers do not fit together.

    Example:
        >>> piecewise(np.asarray([-1.0, 2.0]), [np.asarray([True, False])], [lambda x: -x, 5.0])
        Array([1., 5.], dtype=float64)
    """
    x = to_value(x, "piecewise")
    several = isinstance(condlist, (list, tuple)) or np.ndim(condlist) > x.spec.ndim
    conditions = list(condlist) if several else [condlist]
    if len(funclist) not in (len(conditions), len(conditions) + 1):
        problem = f"{len(conditions)} conditions go with {len(funclist)} functions."
        fix = "give a function for each condition, and at most one more for the rest."
        raise user_error(ArgumentError, "piecewise", problem, fix=fix)
    values = [part(x, *args, **kwargs) if callable(part) else part for part in funclist]
    result = values[-1] if len(values) > len(conditions) else 0
    for condition, value in zip(conditions, values, strict=False):
        result = el.where(condition, in_dtype(value, x.spec.dtype, "piecewise", "a value"), result)
    return in_dtype(result, x.spec.dtype, "piecewise", "a value")


# -- vectorize ---------------------------------------------------------------------------------------------------------

_NAME = r"\w+"
_CORE = rf"\(\s*(?:{_NAME}(?:\s*,\s*{_NAME})*)?\s*\)"
_SIGNATURE = re.compile(rf"^\s*({_CORE}(?:\s*,\s*{_CORE})*)?\s*->\s*({_CORE}(?:\s*,\s*{_CORE})*)\s*$")


def _read_signature(signature: str) -> list[list[str]]:
    """Returns the names of the core axes of each argument."""
    match = _SIGNATURE.match(signature)
    if match is None:
        problem = f"signature {signature!r} cannot be read."
        raise user_error(ArgumentError, "vectorize", problem, fix='write it like "(n,m),(m)->(n)".')
    return [re.findall(_NAME, core) for core in re.findall(_CORE, match[1] or "")]


@spelled
def vectorize(pyfunc: Fun | None = None, *, excluded: Collection[int | str] = (), signature: str | None = None) -> Any:
    """Makes a function of numbers (or, with a `signature`, of small arrays) one of arrays, which broadcast; also a decorator.

    It maps with `nnc.vmap`, so it compiles and differentiates.

    Args:
        pyfunc: function of numbers or small arrays; without it, a decorator is returned.
        excluded: positions and names of arguments that are passed as they are.
        signature: the core axes of arguments and results, such as "(n,m),(m)->(n)"; the axes before them broadcast.

    Raises:
        ArgumentError: the signature is not understood.
        ShapeError: arrays do not fit it.

    Example:
        >>> dot = nnp.vectorize(lambda a, b: nnp.sum(a * b), signature="(n),(n)->()")
        >>> dot(np.ones((4, 3)), np.ones(3)).shape
        (4,)
    """
    if pyfunc is None:
        return lambda function: vectorize(function, excluded=excluded, signature=signature)
    cores = None if signature is None else _read_signature(signature)
    function = pyfunc

    @wraps(function)
    @api_boundary
    def vectorized(*args: Any, **kwargs: Any) -> Any:
        mapped = [i for i in range(len(args)) if i not in excluded]
        named = [key for key in kwargs if key not in excluded]
        own = [[]] * (len(mapped) + len(named)) if cores is None else cores
        if len(own) != len(mapped) + len(named):
            problem = f"{len(mapped) + len(named)} arrays are given, the signature has {len(own)}."
            fix = "pass one array for each part of the signature; name others in excluded=."
            raise user_error(ArgumentError, "vectorize", problem, fix=fix)

        def on_cores(*values: Any) -> Any:
            rebuilt = list(args)
            for i, value in zip(mapped, values, strict=False):
                rebuilt[i] = value
            named_values = dict(zip(named, values[len(mapped) :], strict=True))
            return call_function(function, rebuilt, {**kwargs, **named_values}, where="vectorize")

        arrays = [to_value(args[i], "vectorize", f"argument {i}") for i in mapped]
        arrays += [to_value(kwargs[key], "vectorize", key) for key in named]
        return _over_batch(on_cores, arrays, own)

    return vectorized


def _over_batch(function: Fun, arrays: Sequence[Array], cores: Sequence[Sequence[str]]) -> Any:
    """Maps `function` over the axes that stand before the core axes; axes of size 1 are taken away first."""
    batches = [_batch_shape(i, x, core) for i, (x, core) in enumerate(zip(arrays, cores, strict=True))]
    _check_cores(arrays, cores)
    batch = broadcast_shapes(*batches) if batches else ()
    padded = [(1,) * (len(batch) - len(own)) + own for own in batches]
    inputs = [_without_ones(x, x.spec.ndim - len(core)) for x, core in zip(arrays, cores, strict=True)]
    for axis in reversed(range(len(batch))):
        on = tuple(0 if own[axis] != 1 else None for own in padded)
        if any(place == 0 for place in on):
            function = vmap(function, in_axes=on)
    result = function(*inputs)
    single = not isinstance(result, tuple)
    outputs = [to_value(y, "vectorize") for y in ((result,) if single else result)]
    count = sum(n != 1 for n in batch)
    shaped = [reshape(y, (*batch, *y.spec.shape[count:])) for y in outputs]
    return shaped[0] if single else tuple(shaped)


def _without_ones(x: Array, count: int) -> Array:
    """Removes the axes of size 1 among the first `count` axes of `x`."""
    shape = tuple(n for i, n in enumerate(x.spec.shape) if i >= count or n != 1)
    return x if shape == x.spec.shape else reshape(x, shape)


def _batch_shape(i: int, x: Array, core: Sequence[str]) -> Shape:
    if x.spec.ndim < len(core):
        problem = f"argument {i} has {x.spec.ndim} axes, its core has {len(core)}: ({', '.join(core)})."
        fix = "add the missing axes, for example with x[None]."
        raise user_error(ShapeError, "vectorize", problem, operands={f"argument {i}": x.spec}, fix=fix)
    shape: Shape = x.spec.shape
    return shape[: x.spec.ndim - len(core)]


def _check_cores(arrays: Sequence[Array], cores: Sequence[Sequence[str]]) -> None:
    sizes: dict[str, int] = {}
    for i, (x, core) in enumerate(zip(arrays, cores, strict=True)):
        for name, n in zip(core, x.spec.shape[x.spec.ndim - len(core) :], strict=True):
            wanted = int(name) if name.isdigit() else sizes.setdefault(name, n)
            if wanted != n:
                problem = f"core axis {name} of argument {i} has size {n}, not {wanted}."
                fix = "pass arrays whose core axes of one name have one size."
                raise user_error(ShapeError, "vectorize", problem, operands={f"argument {i}": x.spec}, fix=fix)
