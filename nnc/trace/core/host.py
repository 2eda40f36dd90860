"""Python functions that compiled code calls for their results: `nnc.pure_callback`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, overload

import numpy as np

from nnc import tree
from nnc.array.array import Array
from nnc.array.promote import as_operand, as_shown, to_dtype
from nnc.base import dtypes
from nnc.base.context import get_context
from nnc.base.source import SourceLine, user_source
from nnc.commands.host import METHODS, WHERE, NDArray, Specs
from nnc.commands.host import pure_callback as command
from nnc.errors import ArgumentTypeError, DTypeError, ShapeError, TreeError, user_error
from nnc.errors.errors import check_choice
from nnc.errors.tracebacks import api_boundary
from nnc.graph import TensorSpec
from nnc.trace.core.flat import FlatTree, call_function, check_callable, name_of
from nnc.trace.core.specs import ShapeDtypeStruct

__all__ = ["pure_callback"]


@overload
def pure_callback(
    callback: Callable[..., object], result_shape_dtypes: ShapeDtypeStruct | Array, *args: object, vmap_method: str = "sequential",
    **kwargs: object,
) -> Array: ...  # fmt: skip
@overload
def pure_callback(
    callback: Callable[..., object],
    result_shape_dtypes: object,
    *args: object,
    vmap_method: str = "sequential",
    **kwargs: object,
) -> object: ...
@api_boundary
def pure_callback(
    callback: Callable[..., object],
    result_shape_dtypes: Any,
    *args: Any,
    vmap_method: str = "sequential",
    **kwargs: Any,
) -> Any:
    """Calls a Python function on NumPy arrays within traced code, and returns its results: a simulator, a table, SciPy.

    The function must be pure: the same results for the same arguments, and no effects. Programs call it each time that they get
    there, but not where nothing reads its results; a checkpointed function calls it again. It runs in the caller's thread, and its
    exceptions reach the caller. It has no derivative of its own: a function with `nnc.custom_jvp` around it gives one, and may call
    another callback for it. Use `nnc.debug.callback` for effects.

    Args:
        callback: takes the arguments with NumPy arrays in place of arrays and numbers. They are copies, to which it may write.
        result_shape_dtypes: pytree like the result of `callback`, of `nnc.ShapeDtypeStruct` or of arrays.
        *args: pytrees.
        vmap_method: under `nnc.vmap`, "sequential" calls `callback` for each row; "expand_dims" calls it once for all rows,
            with a leading axis of the number of rows on arguments that are mapped, of size 1 on the others, and on each result the
            axis of rows; "broadcast_all" likewise, with all arguments repeated for each row.
        **kwargs: pytrees.

    Returns:
        a tree like `result_shape_dtypes`, of arrays.

    Raises:
        ArgumentTypeError, ArgumentError: an argument is none of these.
        ShapeError, DTypeError, TreeError: (when it runs) `callback` returns something else than was announced.
        UnsupportedError: it is differentiated.

    Example:
        >>> def simulate(angle, steps):
        ...     return np.cos(angle) * steps
        >>> @nnc.custom_jvp
        ... def reach(angle):
        ...     return nnc.pure_callback(simulate, nnc.ShapeDtypeStruct((), "float32"), angle, steps=np.float32(2))
        >>> @reach.defjvp
        ... def reach_jvp(primals, tangents):
        ...     return reach(*primals), -2 * nnp.sin(primals[0]) * tangents[0]
        >>> nnc.compile(nnc.value_and_grad(reach))(0.5)
        (Array(1.7551651, dtype=float32), Array(-0.9588511, dtype=float32))
    """
    check_callable(callback, WHERE)
    check_choice(WHERE, "vmap_method", vmap_method, METHODS)
    announced = FlatTree(result_shape_dtypes)
    results = tuple(_announced_spec(leaf) for leaf in announced.leaves)
    outline = announced.skeleton()
    flat = FlatTree((args, kwargs))
    arguments, name, source = flat.skeleton(), name_of(callback), get_context().source or user_source()

    def call_back(arrays: Sequence[NDArray], wanted: Specs) -> list[NDArray]:
        given, named = arguments.build(arrays)
        result = call_function(callback, given, named, where=WHERE)
        leaves = _leaves_like(outline, result, name, source)
        paths = outline.paths()
        return [
            _checked_result(x, spec, name, path, source) for x, spec, path in zip(leaves, wanted, paths, strict=True)
        ]

    found = command(*map(as_shown, flat.dynamic), function=call_back, results=results, method=vmap_method, name=name)
    return announced.build(found if isinstance(found, tuple) else (found,))


def _announced_spec(leaf: Any) -> TensorSpec:
    if not (hasattr(leaf, "shape") and hasattr(leaf, "dtype")):
        problem = f"result_shape_dtypes holds {leaf!r}, which has no shape and no dtype."
        fix = 'announce each result with its shape and dtype: nnc.ShapeDtypeStruct((3,), "float32").'
        raise user_error(ArgumentTypeError, WHERE, problem, fix=fix)
    return TensorSpec(tuple(leaf.shape), to_dtype(leaf.dtype, WHERE))


def _leaves_like(outline: FlatTree, result: Any, name: str, source: SourceLine | None) -> list[Any]:
    """Returns the leaves of a result after checking that it has the announced structure.

    Raises:
        TreeError: the result has another structure.
    """
    leaves, structure = tree.flatten(result)
    if structure != outline.treedef:
        problem = f"{name} returns a tree of another structure than result_shape_dtypes."
        operands = {"returned": structure, "announced": outline.treedef}
        fix = "return the announced containers, with a NumPy array for each leaf; lists of numbers are containers."
        raise user_error(TreeError, WHERE, problem, operands=operands, source=source, fix=fix)
    return leaves


def _checked_result(x: Any, spec: TensorSpec, name: str, path: str, source: SourceLine | None) -> NDArray:
    """Returns a new array of a result, of the announced shape and dtype; Python numbers take the dtype.

    Args:
        x: a leaf of the function's result.
        spec: the spec that was announced for it.
        name: the function's name.
        path: the path of the leaf within the result.
        source: the user's line that announced the result.

    Raises:
        ArgumentTypeError: the leaf is no array and no number.
        ShapeError, DTypeError: the leaf has another shape or dtype.
    """
    leaf = f"the result of {name}" + (f" at {path}" if path else "")
    if dtypes.is_scalar(x) and spec.shape == () and dtypes.promote_weak(spec.dtype, x) == spec.dtype:
        try:
            return np.array(x, spec.dtype)
        except OverflowError:
            problem = f"{leaf} is {x}, which {spec.dtype.name} does not hold."
            fix = "announce a wider dtype in result_shape_dtypes."
            raise user_error(DTypeError, WHERE, problem, source=source, fix=fix) from None
    if not (dtypes.is_scalar(x) or hasattr(x, "shape")):
        problem = f"{leaf} is a {type(x).__name__}, not an array."
        fix = "return a NumPy array: np.asarray(result)."
        raise user_error(ArgumentTypeError, WHERE, problem, source=source, operands={"announced": spec}, fix=fix)
    array = np.array(x if isinstance(x, (np.ndarray, np.generic)) else as_operand(x, name, "result"), order="C")
    if array.shape != spec.shape:
        problem = f"{leaf} has shape {array.shape}, result_shape_dtypes announces {spec.shape}."
        fix = "announce the shape that the function returns; under nnc.vmap it depends on vmap_method."
        raise user_error(ShapeError, WHERE, problem, source=source, fix=fix)
    if array.dtype != spec.dtype:
        problem = f"{leaf} has dtype {array.dtype}, result_shape_dtypes announces {spec.dtype.name}."
        fix = f"return result.astype({spec.dtype.name!r}), or announce {array.dtype}."
        raise user_error(DTypeError, WHERE, problem, source=source, fix=fix)
    return np.asarray(array, spec.dtype)
