"""Traces functions for their graphs and their result's shapes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, overload

from nnc.array.array import Array, as_value
from nnc.array.promote import astype, dtype_of, is_weak, to_dtype, with_weakness
from nnc.base import dtypes
from nnc.base.context import activity
from nnc.base.garbage import collection_paused
from nnc.base.traced_size import as_index
from nnc.errors import ShapeError, TraceError, user_error
from nnc.errors.tracebacks import api_boundary
from nnc.graph import Graph, TensorSpec, spec_of
from nnc.trace.core.flat import FlatFunction, FlatTree, check_callable, name_of
from nnc.trace.core.staging import Staged, axes_of, stage

__all__ = ["ShapeDtypeStruct", "eval_shape", "make_graph"]


@dataclass(frozen=True)
class ShapeDtypeStruct:
    """A shape and a dtype without a value, which may stand for an array where a function is only traced.

    Args:
        shape: size of each axis.
        dtype: element type.

    Raises:
        ShapeError: the shape holds an element that is no size.

    Example:
        >>> nnc.eval_shape(lambda x: x @ x.T, nnc.ShapeDtypeStruct((2, 3), "float32"))
        ShapeDtypeStruct(shape=(2, 2), dtype=dtype('float32'))
    """

    shape: tuple[int, ...]
    dtype: Any

    @api_boundary
    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(map(_size, self.shape)))
        object.__setattr__(self, "dtype", to_dtype(self.dtype, "nnc.ShapeDtypeStruct"))

    @property
    def spec(self) -> TensorSpec:
        """Shape and dtype as a TensorSpec."""
        return TensorSpec(self.shape, self.dtype)

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.spec.size


@dataclass(frozen=True)
class _Outline(ShapeDtypeStruct):
    """Stands for a value when only shape, dtype and weakness matter: `dtype` is the dtype that users see, `spec` has the one in
    memory.
    """

    weak: dtypes.Weakness

    @property
    def spec(self) -> TensorSpec:
        """Shape and dtype in memory."""
        wide = dtypes.complex128 if dtypes.is_complex(self.dtype) else dtypes.float64
        return TensorSpec(self.shape, wide if self.weak is dtypes.NUMBER else self.dtype)


def _size(number: Any) -> int:
    try:
        size = as_index(number)
    except TypeError:
        size = -1
    if not 0 <= size <= sys.maxsize:
        fix = f"give integers from 0 to {sys.maxsize}."
        raise user_error(ShapeError, "nnc.ShapeDtypeStruct", f"{number!r} is no size of an axis.", fix=fix)
    return size


def argument_spec(leaf: Any) -> TensorSpec:
    """Returns the spec of an argument in memory, where Python numbers have 64 bits."""
    return TensorSpec((), dtypes.exact_dtype(leaf)) if dtypes.is_scalar(leaf) else spec_of(leaf)


def shapes_of(value: Any) -> Any:
    """Returns a pytree with shapes, dtypes and weakness in place of the arrays and numbers."""
    flat = FlatTree(value)
    return flat.build([outline(argument_spec(leaf), is_weak(leaf)) for leaf in flat.dynamic])


def outline(spec: TensorSpec, weak: dtypes.Weakness) -> ShapeDtypeStruct:
    """Stands for a value of this spec in memory and this weakness."""
    dtype = dtypes.shown_dtype(spec.dtype, weak)
    return _Outline(spec.shape, dtype, weak) if weak else ShapeDtypeStruct(spec.shape, dtype)


def as_wanted(value: Any, wanted: Any, where: str) -> Any:
    """`value` in the dtype of `wanted`, where one of them is weak, or as it is: then dtypes have to agree."""
    x, own = as_value(value), spec_of(wanted).dtype
    converts = dtypes.is_inexact(own) and dtypes.is_inexact(x.spec.dtype) and (is_weak(wanted) or is_weak(x))
    kept = dtypes.is_complex(own) or not dtypes.is_complex(x.spec.dtype)
    return with_weakness(as_value(astype(x, own, where)), is_weak(wanted)) if converts and kept else x


def stage_function(
    fun: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any] | None = None
) -> tuple[Staged, FlatFunction]:
    """Traces `fun` on the specs of its arguments' leaves."""
    flat = FlatFunction.of(fun, args, kwargs)
    return stage_flat(flat, name_of(fun)), flat


def stage_flat(flat: FlatFunction, name: str) -> Staged:
    """Traces a function on the specs of its leaves."""
    specs, weak = [argument_spec(x) for x in flat.leaves], [is_weak(x) for x in flat.leaves]
    return stage(flat, specs, weak=weak, name=name, axes=axes_of(flat.leaves))


@api_boundary
def make_graph(fun: Callable[..., object]) -> Callable[..., Graph]:
    """Returns the graph that `fun` traces to.

    Args:
        fun: a function of pytrees of arrays.

    Returns:
        a function of the same arguments (arrays, numbers or ShapeDtypeStructs) that returns the graph. Its inputs are
        the arguments' leaves; arrays that `fun` captures are its constants.

    Raises:
        TraceError: `fun` needs a value that is known only at run time, or captures a value of an enclosing trace.

    Example:
        >>> print(make_graph(lambda x: x + 1)(nnp.ones(3)))  # doctest: +ELLIPSIS
        <lambda>(%0: float32[3])
        ...
    """
    check_callable(fun, "nnc.make_graph")

    @wraps(fun)
    @api_boundary
    def traced(*args: Any, **kwargs: Any) -> Graph:
        with activity(f"tracing {name_of(fun)} for make_graph"), collection_paused():
            staged, _ = stage_function(fun, args, kwargs)
        return close_graph(staged)

    return traced


def close_graph(staged: Staged) -> Graph:
    """Returns the graph with captured arrays as constants.

    Raises:
        TraceError: it captures a tracer.
    """
    graph, explicit = staged.graph, staged.num_explicit
    for value in staged.captured:
        if not isinstance(value, Array):
            problem = f"the function captures {value.shown}, a value of an enclosing trace."
            fix = "pass it as an argument, so that it becomes an input of the graph."
            raise user_error(TraceError, "make_graph", problem, fix=fix)
    constants = {symbol: value.data for symbol, value in zip(graph.inputs[explicit:], staged.captured, strict=True)}
    return graph.update(inputs=graph.inputs[:explicit], constants={**graph.constants, **constants})


@overload
def eval_shape(fun: Callable[..., Array], *args: object, **kwargs: object) -> ShapeDtypeStruct: ...
@overload
def eval_shape(fun: Callable[..., object], *args: object, **kwargs: object) -> object: ...
@api_boundary
def eval_shape(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Shapes and dtypes of the result of `fun`, without computing it.

    Args:
        fun: a function of pytrees.
        *args: arrays, numbers or ShapeDtypeStructs.
        **kwargs: arrays, numbers or ShapeDtypeStructs by name.

    Returns:
        the result's pytree with a ShapeDtypeStruct for each array.

    Example:
        >>> eval_shape(lambda x: x @ x.T, nnp.ones((3, 2)))
        ShapeDtypeStruct(shape=(3, 3), dtype=dtype('float32'))
    """
    check_callable(fun, "nnc.eval_shape")
    with activity(f"tracing {name_of(fun)} for eval_shape"):
        staged, flat = stage_function(fun, args, kwargs)
    shown = [dtype_of(leaf) for leaf in flat.result.dynamic]
    specs = zip(staged.graph.output_specs, shown, strict=True)
    return flat.build_result([ShapeDtypeStruct(spec.shape, dtype) for spec, dtype in specs])
