"""vmap and chunking for users."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import Any

import numpy as np

import nnc.trace.rules  # noqa: F401  (registers the rules of all commands)
from nnc import tree
from nnc.array.array import as_value
from nnc.base.context import activity
from nnc.base.traced_size import as_index
from nnc.calls.spelling import spelled
from nnc.commands.collective import INDEX
from nnc.commands.constants import iota
from nnc.commands.index import move_axis
from nnc.commands.rules import check_axis, lead
from nnc.commands.shape import concatenate, slice_axis
from nnc.errors import ArgumentError, ArgumentTypeError, ShapeError, user_error
from nnc.errors.errors import check_count
from nnc.errors.tracebacks import api_boundary
from nnc.graph.rules import Value
from nnc.trace.core.batching import run_batched
from nnc.trace.core.compiled_function import compiled_transform
from nnc.trace.core.flat import FlatFunction, check_callable, name_of
from nnc.trace.core.named import check_axis_name, refuse_parts, stage_named
from nnc.trace.core.subgraphs import one_row
from nnc.typing import P, R

__all__ = ["vmap"]

Fun = Callable[..., Any]


@spelled
@compiled_transform("rows")
def vmap(
    fun: Callable[P, R],
    in_axes: Any = 0,
    out_axes: Any = 0,
    axis_name: str | None = None,
    axis_size: int | None = None,
    *,
    chunk_size: int | None = None,
) -> Callable[P, R]:
    """Maps `fun` over an axis of its arguments, as one batched computation.

    Args:
        fun: function of pytrees.
        in_axes: the axis of each positional argument to map over: an int, None (not mapped), or a pytree of them that
            is a prefix of the arguments'.
        out_axes: where the axis goes in the result, in the same form.
        axis_name: a name for the axis. Within `fun`, nnc.psum and the other collectives join the values of all rows by it, and
            gradients of values that are the same in all rows are sums over the rows.
        axis_size: size of the mapped axis, needed where no argument is mapped.
        chunk_size: how many rows to run at once.

    Returns:
        the mapped function; keyword arguments are mapped over axis 0.

    Raises:
        ShapeError: mapped sizes differ, or an axis does not exist.
        ArgumentError: no argument is mapped.

    Example:
        >>> nnc.vmap(nnp.dot)(nnp.ones((3, 2)), nnp.ones((3, 2)))
        Array([2., 2., 2.], dtype=float32)
    """
    check_callable(fun, "nnc.vmap")
    if isinstance(in_axes, list):
        in_axes = tuple(in_axes)
    if chunk_size is not None:
        check_count("nnc.vmap", "chunk_size", chunk_size, "give a positive number of rows.")
    check_axis_name("nnc.vmap", axis_name)
    label = f"vmap{'' if axis_name is None else f' over {axis_name!r}'}"

    @wraps(fun)
    @api_boundary
    def mapped(*args: P.args, **kwargs: P.kwargs) -> Any:
        flat = FlatFunction.of(fun, args, kwargs)
        axes = _leaf_axes(flat, in_axes, args, kwargs)
        size = _mapped_size(flat, axes, axis_size)
        pairs = zip(flat.leaves, axes, strict=True)
        rows = [move_axis(as_value(x), axis, 0) if axis is not None else x for x, axis in pairs]
        batched = [axis is not None for axis in axes]
        with activity(f"tracing {name_of(fun)} for {label}"):
            run = run_chunks if axis_name is None else partial(run_named, axis_name)
            outputs, mapped_outputs = run(flat, size, rows, batched, chunk_size or size)
        targets = _spread(out_axes, flat.build_result(outputs), "out_axes")
        where = flat.out.where if flat.out is not None else []
        chosen = [targets[i] for i in where]
        return flat.build_result(
            [_place(x, on, axis, size) for x, on, axis in zip(outputs, mapped_outputs, chosen, strict=True)]
        )

    return mapped


def run_chunks(
    flat: Callable[..., Sequence[Any]], size: int, rows: Sequence[Any], batched: Sequence[bool], chunk: int
) -> tuple[list[Value], list[bool]]:
    """Outputs for all rows, `chunk` rows at a time, and which of them have the batch axis (first)."""
    parts: list[tuple[int, list[Value], list[bool]]] = []
    for start in (0,) if chunk >= size else range(0, max(size, 1), max(chunk, 1)):
        stop = min(size, start + chunk)
        whole = (start, stop) == (0, size)
        some = [slice_axis(x, 0, start, stop) if b and not whole else x for x, b in zip(rows, batched, strict=True)]
        outputs, out_batched = run_batched(flat, stop - start, some, batched)
        parts.append((stop - start, outputs, out_batched))
    flags = [any(column) for column in zip(*(b for _, _, b in parts), strict=True)]
    if len(parts) == 1:
        return parts[0][1], flags
    joined = []
    for i, on in enumerate(flags):
        column = [lead(n, x[i], b[i]) if on else x[i] for n, x, b in parts]
        joined.append(concatenate(*column, axis=0) if on else column[0])
    return joined, flags


def run_named(
    name: str, flat: Callable[..., Sequence[Any]], size: int, rows: Sequence[Any], batched: Sequence[bool], chunk: int,
    means: bool = False,
) -> tuple[list[Value], list[bool]]:  # fmt: skip
    """Likewise, for rows that are the places along a named axis: `flat` is traced for one of them, and its graph run for all.

    A result that does not vary over the axis has no batch axis. `means`: see `NamedAxis`.
    """
    staged, axis = stage_named(flat, name, size, rows, batched, means)
    if chunk < size:
        refuse_parts(staged.graph, axis, chunk)
    index = iota(shape=(size,), dtype=INDEX.dtype, axis=0)
    mapped = [x for x, on in zip(rows, batched, strict=True) if on]
    operands = [index, *mapped, *staged.captured]
    flags = [True] * (1 + len(mapped)) + [False] * len(staged.captured)
    outputs, out_batched = run_chunks(lambda *values: staged.graph.evaluate(values), size, operands, flags, chunk)
    for i, axes in enumerate(staged.axes):
        if out_batched[i] and axes is not None and axis not in axes and size:  # some batching rules batch every result
            outputs[i], out_batched[i] = one_row(outputs[i], True), False
    return outputs, out_batched


class _NotMapped:
    """Stands for None in a tree of axes, where None by itself would be a container without leaves."""

    def __repr__(self) -> str:
        return "None"


_NOT_MAPPED = _NotMapped()


def _spread(axes: Any, value: Any, name: str) -> list[int | None]:
    """Returns the axis that `axes`, a prefix of the tree `value`, gives for each leaf."""
    marked = tree.map(lambda x: _NOT_MAPPED if x is None else x, axes, is_leaf=lambda x: x is None)
    spread = tree.broadcast_prefix(marked, value, where=f"nnc.vmap: {name}")
    for axis in spread:
        if axis is not _NOT_MAPPED and (not isinstance(axis, int) or isinstance(axis, bool)):
            problem = f"{name} holds {axis!r}; an axis is an int or None."
            raise user_error(ArgumentTypeError, "nnc.vmap", problem, fix="use ints and None.")
    return [None if axis is _NOT_MAPPED else axis for axis in spread]


def _leaf_axes(flat: FlatFunction, in_axes: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[int | None]:
    """Returns the mapped axis of each dynamic leaf, counted from the front."""
    if isinstance(in_axes, tuple) and len(in_axes) != len(args):
        problem = f"in_axes has {len(in_axes)} entries for {len(args)} positional arguments."
        fix = "give one entry for each positional argument, or one for all."
        raise user_error(ArgumentError, "nnc.vmap", problem, operands={"in_axes": in_axes}, fix=fix)
    prefix = (in_axes if isinstance(in_axes, tuple) else (in_axes,) * len(args), dict.fromkeys(kwargs, 0))
    spread = _spread(prefix, (args, kwargs), "in_axes")
    result: list[int | None] = []
    for i, leaf, path in zip(flat.arguments.where, flat.leaves, flat.paths(), strict=True):
        axis = spread[i]
        if axis is not None and np.ndim(leaf) == 0:
            problem = f"argument {path} is 0-d, so it has no axis {axis} to map over."
            fix = "give None for it in in_axes."
            raise user_error(ShapeError, "nnc.vmap", problem, operands={"argument": as_value(leaf).shown}, fix=fix)
        result.append(None if axis is None else check_axis("nnc.vmap", axis, np.ndim(leaf)))
    return result


def _mapped_size(flat: FlatFunction, axes: list[int | None], axis_size: int | None) -> int:
    sizes = {
        path: np.shape(leaf)[axis]
        for path, leaf, axis in zip(flat.paths(), flat.leaves, axes, strict=True)
        if axis is not None
    }
    if not sizes and axis_size is None:
        problem = "no argument is mapped, so the size of the axis is unknown."
        fix = "give an int in in_axes for at least one argument, or pass axis_size."
        raise user_error(ArgumentError, "nnc.vmap", problem, fix=fix)
    found = set(sizes.values()) | ({axis_size} if axis_size is not None else set())
    if len(found) > 1:
        shown: dict[str, Any] = dict(sizes) | ({"axis_size": axis_size} if axis_size is not None else {})
        fix = "map axes of one size, or give None in in_axes for arguments that are shared."
        raise user_error(ShapeError, "nnc.vmap", "the mapped axes have different sizes.", operands=shown, fix=fix)
    return as_index(found.pop())


def _place(x: Value, is_mapped: bool, axis: int | None, size: int) -> Value:
    """Returns an output with its batch axis where `out_axes` wants it."""
    if axis is None:
        if is_mapped:
            problem = "out_axes is None for a result that differs from row to row."
            fix = "give the axis at which the rows are to stand, such as out_axes=0."
            raise user_error(ArgumentError, "nnc.vmap", problem, operands={"result": x.spec}, fix=fix)
        return x
    x = lead(size, x, is_mapped)
    return move_axis(x, 0, check_axis("nnc.vmap: out_axes", axis, x.spec.ndim))
