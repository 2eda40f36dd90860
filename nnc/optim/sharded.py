"""Optimizers whose state is spread over the places of data parallel training (ZeRO, Rajbhandari et al., 2020, stage 1)."""

from __future__ import annotations

from typing import Any

from nnc import tree
from nnc.array.array import as_value
from nnc.calls.spelling import spelled
from nnc.commands.index import gather
from nnc.commands.shape import reshape
from nnc.errors import ArgumentError, ArgumentTypeError, user_error
from nnc.graph import spec_of
from nnc.optim.base import GradientTransformation, check_transformation, extended, run_update
from nnc.optim.vectors import vectors_of, whole, with_vectors
from nnc.trace.core.axes import NamedAxis
from nnc.trace.core.named import check_axis_name, find_axes
from nnc.trace.core.parts import Sharded, padded, part_size

__all__ = ["sharded"]

_WHERE = "nnc.optim.sharded"


@spelled
def sharded(optimizer: GradientTransformation, axis_name: str) -> GradientTransformation:
    """Shards an optimizer's state over a named axis (ZeRO stage 1): each place holds a part of it, and computes a part of the
    updates.

    The parameters of one dtype are one vector. Each place updates its part of the vector, and the updates are then gathered. So
    the optimizer must be elementwise: SGD, Adam and most others are. Put transformations that look at whole arrays, such as
    `clip_by_global_norm`, before it with `chain`. It is used within `nnc.distributed.data_parallel`, which splits the state by
    itself; outside, the state is whole, and the same for any number of places. Where these are processes, each keeps its part
    of the state from the first step on.

    Args:
        optimizer: the elementwise optimizer.
        axis_name: the axis, "data" in `nnc.distributed.data_parallel` by default.

    Returns:
        the optimizer.

    Raises:
        ArgumentTypeError: `optimizer` is none, or the state belongs to another one.
        UnboundAxisError (from `update`): there is no such axis.
        ArgumentError (from `update`): the state is not split.

    Example:
        >>> optimizer = nnc.optim.sharded(nnc.optim.adam(0.1), "data")
        >>> def step(w, state, x):
        ...     gradient = nnc.grad(lambda w: nnp.mean((x @ w) ** 2))(w)
        ...     updates, state = optimizer.update(gradient, state, w)
        ...     return nnc.optim.apply_updates(w, updates), state
        >>> mesh = nnc.distributed.make_mesh((2,), ("data",), simulated=True)
        >>> w = nnp.ones(3)
        >>> w, state = nnc.distributed.data_parallel(step, batch_argnums=2, mesh=mesh)(w, optimizer.init(w), nnp.ones((4, 3)))
        >>> w
        Array([0.9, 0.9, 0.9], dtype=float32)
    """
    check_transformation(_WHERE, "optimizer", optimizer)
    check_axis_name(_WHERE, axis_name)

    def init(params: Any) -> dict[str, Sharded]:
        vectors = vectors_of(params)
        return {name: Sharded(optimizer.init(x), spec_of(x).size, axis_name) for name, x in vectors.items()}

    def update(updates: Any, state: Any, params: Any = None, **extra: Any) -> tuple[Any, Any]:
        (axis,) = find_axes(_WHERE, axis_name)
        vectors = vectors_of(updates)
        weights = dict.fromkeys(vectors) if params is None else vectors_of(params)
        _check_state(state, vectors, weights, axis)
        moved, following = {}, {}
        for name, vector in vectors.items():
            own = None if weights[name] is None else _part(weights[name], axis)
            part, inner = run_update(optimizer, _part(vector, axis), state[name].state, own, extra)
            moved[name] = whole(part, spec_of(vector).size, axis)
            following[name] = Sharded(inner, state[name].size, axis_name)
        return with_vectors(updates, moved), following

    return extended(init, update, optimizer)


def _part(x: Any, axis: NamedAxis) -> Any:
    """Returns the place's part of a vector."""
    rows = reshape(padded(x, axis.size), shape=(axis.size, part_size(spec_of(x).size, axis.size)))
    return gather(rows, axis.index, axes=(0,), batch=0, mode="clip")


def _check_state(state: Any, vectors: dict[str, Any], weights: dict[str, Any], axis: NamedAxis) -> None:
    is_own = isinstance(state, dict) and all(isinstance(x, Sharded) for x in state.values())
    sizes = {name: spec_of(x).size for name, x in vectors.items()}
    if not is_own or {name: x.size for name, x in state.items()} != sizes or weights.keys() != vectors.keys():
        problem = "the state, the gradients and the parameters do not belong together."
        operands = {"gradients": sizes, "parameters": list(weights)}
        fix = "pass the state that optimizer.init made for parameters of the same shapes and dtypes."
        raise user_error(ArgumentTypeError, _WHERE, problem, operands=operands, fix=fix)
    for name, own in state.items():
        for leaf in tree.leaves(own.state):
            if tree.is_array(leaf) and as_value(leaf).spec.shape not in ((), (part_size(own.size, axis.size),)):
                problem = f"the state is not split over {axis.name!r}."
                fix = "run the step by nnc.distributed.data_parallel, and pass it the state as an argument."
                raise user_error(ArgumentError, _WHERE, problem, operands={name: as_value(leaf).spec}, fix=fix)
