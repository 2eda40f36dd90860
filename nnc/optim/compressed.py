"""Gradients that travel between places in fewer bytes: in half precision, or their largest elements alone."""

from __future__ import annotations

from math import ceil
from typing import Any

import nnc.numpy as nnp
from nnc import tree
from nnc.array.array import as_value
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.commands.collective import all_gather_same, psum_scatter
from nnc.commands.shape import reshape
from nnc.compiled.processes import world
from nnc.errors import ArgumentError, ArgumentTypeError, user_error
from nnc.errors.errors import check_count
from nnc.graph import spec_of
from nnc.optim.arguments import is_trainable
from nnc.optim.base import GradientTransformation, check_transformation, extended, run_update
from nnc.optim.vectors import vectors_of, whole, with_vectors
from nnc.trace.core.axes import NamedAxis, varying_over
from nnc.trace.core.named import check_axis_name, find_axes
from nnc.trace.core.parts import Sharded, padded, part_size
from nnc.typing import DTypeLike

__all__ = ["compressed"]

_WHERE = "nnc.optim.compressed"


@spelled
def compressed(
    optimizer: GradientTransformation, axis_name: str, *, dtype: DTypeLike | None = None, fraction: float | None = None,
    places: int | None = None,
) -> GradientTransformation:  # fmt: skip
    """Returns an optimizer that adds the gradients of all places along a named axis itself, after it has made them smaller.

    With `dtype` they travel in half precision: each is rounded, the sums are formed in float32 and rounded once. With `fraction`
    only so many elements travel, those of the largest magnitude; the others are kept in the state, and added to the gradient of the
    next step (Aji and Heafield, 2017). With both, rounding errors are kept, too.

    It takes the gradient of each place by itself: within `nnc.distributed.data_parallel`, differentiate with regard to
    `nnc.pvary(params, axis_name)`. The sum over the places is then the gradient of the mean loss.

    Args:
        optimizer: takes the sums.
        axis_name: the axis, "data" in `nnc.distributed.data_parallel` by default.
        dtype: bfloat16 or float16. Numbers below 6e-8 are 0 in float16, and those above 65504 infinite.
        fraction: how much of each gradient travels, more than 0 and at most 1, of the elements of each dtype together.
        places: the number of places; by default that of the processes. Only needed with `fraction`, whose state holds a vector for
            each place.

    Returns:
        the optimizer. With `fraction` its state can be saved with `nnc.io.save(sharded=True)`, and read on as many places.

    Raises:
        ArgumentError: neither `dtype` nor `fraction` is given, or one is out of range; from `update`, the gradients are summed
            already, or the state belongs to another number of places.
        ArgumentTypeError: `optimizer` is none, or the state belongs to another one.
        UnboundAxisError (from `update`): there is no such axis.

    Example:
        >>> optimizer = nnc.optim.compressed(nnc.optim.sgd(0.1), "data", fraction=0.5, places=2)
        >>> def step(w, state, x):
        ...     gradient = nnc.grad(lambda w: nnp.mean((x @ w) ** 2))(nnc.pvary(w, "data"))
        ...     updates, state = optimizer.update(gradient, state, w)
        ...     return nnc.optim.apply_updates(w, updates), state
        >>> mesh = nnc.distributed.make_mesh((2,), ("data",), simulated=True)
        >>> w, x = nnp.ones(2), nnp.asarray([[1.0, 2.0], [3.0, 4.0]])
        >>> w, state = nnc.distributed.data_parallel(step, batch_argnums=2, mesh=mesh)(w, optimizer.init(w), x)
        >>> w
        Array([ 1. , -2.4], dtype=float32)
    """
    check_transformation(_WHERE, "optimizer", optimizer)
    check_axis_name(_WHERE, axis_name)
    sent_in = _check_sizes(dtype, fraction)
    processes = world()
    count = (1 if processes is None else processes.size) if places is None else places
    check_count(_WHERE, "places", count, "pass the number of places along the axis.")

    def init(params: Any) -> Any:
        inner = optimizer.init(params)
        if fraction is None:
            return inner
        sizes = {name: count * spec_of(x).size for name, x in vectors_of(params).items()}
        kept = {name: Sharded(nnp.zeros(size, name), size, axis_name) for name, size in sizes.items()}
        return {"optimizer": inner, "unsent": kept}

    def update(updates: Any, state: Any, params: Any = None, **extra: Any) -> tuple[Any, Any]:
        (axis,) = find_axes(_WHERE, axis_name)
        _check_gradients(updates, axis)
        vectors = vectors_of(updates)
        if fraction is None:
            sums = {name: _rounded_sum(x, sent_in, axis) for name, x in vectors.items()}
            return run_update(optimizer, with_vectors(updates, sums), state, params, extra)
        _check_state(state, vectors, axis)
        totals, unsent = {}, {}
        for name, x in vectors.items():
            kept = state["unsent"][name]
            totals[name], left = _largest_sum(x + kept.state, fraction, sent_in, axis)
            unsent[name] = Sharded(left, kept.size, axis_name)
        moved, inner = run_update(optimizer, with_vectors(updates, totals), state["optimizer"], params, extra)
        return moved, {"optimizer": inner, "unsent": unsent}

    return extended(init, update, optimizer)


def _rounded_sum(x: Any, dtype: Any, axis: NamedAxis) -> Any:
    """Returns the sum of vectors, rounded to `dtype` before they travel and once behind it; each place adds a part."""
    size = spec_of(x).size
    rows = reshape(padded(x.astype(dtype), axis.size), shape=(axis.size, part_size(size, axis.size)))
    return whole(psum_scatter(rows, axis.index, **axis.params), size, axis).astype(x.dtype)


def _largest_sum(x: Any, fraction: float, dtype: Any, axis: NamedAxis) -> tuple[Any, Any]:
    """Returns the sum of the largest elements of vectors, and the unsent rest of this place's vector."""
    (size,) = x.shape
    if not size:
        return x, x
    _, places = nnp.top_k(abs(x), ceil(fraction * size))
    sent = x[places] if dtype is None else x[places].astype(dtype)
    values = all_gather_same(as_value(sent), axis.index, **axis.params).astype(x.dtype)
    at = all_gather_same(as_value(places.astype("int32" if size < 2**31 else "int64")), axis.index, **axis.params)
    total = nnp.zeros(size, x.dtype).at[at.reshape(-1)].add(values.reshape(-1))
    return total, x.at[places].add(-sent.astype(x.dtype))


def _check_sizes(dtype: Any, fraction: Any) -> Any:
    """Returns the dtype in which elements travel, None for their own."""
    if dtype is None and fraction is None:
        problem = "neither dtype nor fraction says how gradients are made smaller."
        fix = 'pass dtype="bfloat16" or fraction=0.01, or use the optimizer itself.'
        raise user_error(ArgumentError, _WHERE, problem, fix=fix)
    if fraction is not None and (isinstance(fraction, bool) or not isinstance(fraction, (int, float))):
        problem = f"fraction must be a number, it is {fraction!r}."
        raise user_error(ArgumentTypeError, _WHERE, problem, fix="pass for example 0.01.")
    if fraction is not None and not 0 < fraction <= 1:
        problem = f"fraction is {fraction}."
        raise user_error(ArgumentError, _WHERE, problem, fix="pass a number above 0 and at most 1, such as 0.01.")
    found = None if dtype is None else dtypes.as_dtype(dtype)
    if found is not None and found not in (dtypes.bfloat16, dtypes.float16):
        fix = 'pass "bfloat16" or "float16".'
        raise user_error(ArgumentError, _WHERE, f"dtype is {found.name}, which is no half precision.", fix=fix)
    return found


def _check_gradients(updates: Any, axis: NamedAxis) -> None:
    for leaf in filter(is_trainable, tree.leaves(updates)):
        found = varying_over(as_value(leaf))
        if found is not None and axis not in found:
            problem = f"a gradient is the same at all places of {axis.name!r}, so it has been summed already."
            fix = f"differentiate with regard to nnc.pvary(params, {axis.name!r}), which gives each place its own gradient."
            raise user_error(ArgumentError, _WHERE, problem, operands={"gradient": as_value(leaf).spec}, fix=fix)


def _check_state(state: Any, vectors: dict[str, Any], axis: NamedAxis) -> None:
    kept = state.get("unsent") if isinstance(state, dict) else None
    sizes = {name: spec_of(x).size for name, x in vectors.items()}
    if not isinstance(kept, dict) or kept.keys() != sizes.keys():
        problem = "the state and the gradients do not belong together."
        fix = "pass the state that optimizer.init made for parameters of the same shapes and dtypes."
        raise user_error(ArgumentTypeError, _WHERE, problem, operands={"gradients": sizes}, fix=fix)
    for name, size in sizes.items():
        if kept[name].size != axis.size * size or spec_of(as_value(kept[name].state)).shape != (size,):
            problem = (
                f"the state holds {kept[name].size} unsent elements of {name}; {axis.size} places along "
                f"{axis.name!r} have {axis.size * size}, each its own {size}."
            )
            fix = (
                f"pass places={axis.size} to nnc.optim.compressed, and the state as an argument of the function that "
                "nnc.distributed.data_parallel returns."
            )
            raise user_error(ArgumentError, _WHERE, problem, fix=fix)
