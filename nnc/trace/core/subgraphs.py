"""Differentiates and batches commands that own a function as sub-graph: `call` and `checkpoint`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from itertools import compress
from typing import Any

from nnc.array.array import as_value, settled
from nnc.base import dtypes
from nnc.base.context import activity, get_context
from nnc.calls.spelling import spelled
from nnc.commands.control import call, isolated
from nnc.commands.control import checkpoint as checkpoint_command
from nnc.commands.rules import is_differentiable, lead
from nnc.commands.shape import reshape, slice_axis
from nnc.errors import UnsupportedError, user_error
from nnc.errors.tracebacks import api_boundary
from nnc.graph import Command, Graph, bind, spec_of
from nnc.graph.registry import batch, derivative
from nnc.graph.rules import BatchRule, Derivative, Linear, Tangents, Value
from nnc.trace.core.backward import Reached, fill, is_forward, transpose_graph
from nnc.trace.core.batching import run_batched
from nnc.trace.core.dual import run_apart, run_jvp, run_linearize
from nnc.trace.core.flat import FlatFunction, call_function, check_callable, check_positions, name_of
from nnc.trace.core.pulls import apply_pull_only, has_backward_rules
from nnc.trace.core.specs import stage_flat
from nnc.trace.core.staging import stage
from nnc.typing import P, R

__all__ = ["checkpoint"]

Fun = Callable[..., Any]


# -- call: transparent to every transform ------------------------------------------------------------------------------


def _push(
    primals: tuple[Value, ...], tangents: Tangents, graphs: tuple[Graph, ...], barrier: bool = False
) -> tuple[list[Value], Tangents]:
    outputs, moved = run_jvp(lambda *values: graphs[0].evaluate(values), primals, tangents)
    return outputs, tuple(moved)


def _call_linearize(
    primals: tuple[Value, ...], tangents: Tangents, graphs: tuple[Graph, ...], barrier: bool = False
) -> tuple[list[Value], Tangents]:
    outputs, moved = run_apart(lambda *values: graphs[0].evaluate(values), primals, tangents, is_forward(tangents))
    return outputs, tuple(moved)


def _call_transpose(
    cotangents: Tangents, operands: tuple[Any, ...], graphs: tuple[Graph, ...], barrier: bool = False
) -> Tangents:
    graph, flags = graphs[0], [isinstance(x, Linear) for x in operands]
    linear = list(compress(graph.inputs, flags))
    ordered = graph.update(inputs=(*linear, *(s for s in graph.inputs if s not in linear)))
    known = [x for x in operands if not isinstance(x, Linear)]
    return tuple(fill(transpose_graph(ordered, len(linear), known, cotangents), flags))


def batch_graphs(
    size: int, operands: Sequence[Value], batched: Sequence[bool], graph: Graph
) -> tuple[tuple[Value, ...], tuple[bool, ...]]:
    """Returns a sub-graph's outputs for all rows, and which of them have the batch axis."""
    outputs, out_batched = run_batched(lambda *values: graph.evaluate(values), size, operands, batched)
    return tuple(outputs), tuple(out_batched)


def _call_batch(
    size: int, operands: tuple[Value, ...], batched: tuple[bool, ...], graphs: tuple[Graph, ...], barrier: bool = False
) -> tuple[tuple[Value, ...], tuple[bool, ...]]:
    if not barrier:
        return batch_graphs(size, operands, batched, graphs[0])
    return bind_for_rows(call, size, operands, batched, {"barrier": True}, graphs[0])


derivative.set(call, Derivative(transpose=_call_transpose, push=_push, linearize=_call_linearize))
batch.set(call, _call_batch)


def _once_for_all(command: Command) -> BatchRule:
    """Returns the rule of a command whose sub-graph runs once for all rows."""
    return lambda size, operands, batched, graphs: bind_for_rows(command, size, operands, batched, {}, graphs[0])


derivative.set(isolated, Derivative(transpose=_call_transpose, push=_push, linearize=_call_linearize))
batch.set(isolated, _once_for_all(isolated))


# -- checkpoint: reverse mode recomputes -------------------------------------------------------------------------------


@spelled
def checkpoint(
    fun: Callable[P, R], *, policy: Callable[..., bool] | None = None, static_argnums: Sequence[int] | int = ()
) -> Callable[P, R]:
    """`fun`, recomputed in the backward pass instead of kept: memory for time (rematerialization).

    Within a transform `fun` is traced, so it makes no Python decisions on values.

    Args:
        fun: function of pytrees.
        policy: not offered.
        static_argnums: arguments that are no arrays, such as flags.

    Returns:
        a function of the same arguments with the same value and derivatives.

    Raises:
        UnsupportedError: a policy is given.

    Example:
        >>> nnc.grad(nnc.checkpoint(lambda x: nnp.sin(nnp.sin(x))))(0.0)
        Array(1., dtype=float32)
    """
    check_callable(fun, "nnc.checkpoint")
    if policy is not None:
        fix = "leave policy out, and wrap only the parts to recompute in nnc.checkpoint."
        raise user_error(UnsupportedError, "nnc.checkpoint", "policies that keep some values are not offered.", fix=fix)
    static = (static_argnums,) if isinstance(static_argnums, int) else tuple(static_argnums)

    @wraps(fun)
    @api_boundary
    def checkpointed(*args: P.args, **kwargs: P.kwargs) -> Any:
        fixed = check_positions("nnc.checkpoint", "static_argnums", static, len(args))

        def part(*dynamic: Any, **keywords: Any) -> Any:
            values = iter(dynamic)
            return call_function(fun, [x if i in fixed else next(values) for i, x in enumerate(args)], keywords)

        flat = FlatFunction.of(part, tuple(x for i, x in enumerate(args) if i not in fixed), kwargs)
        if not _is_traced(flat.leaves):
            return call_function(fun, args, kwargs)
        with activity(f"tracing {name_of(fun)} for checkpoint"):
            staged = stage_flat(flat, name_of(fun))
        operands = [*input_values(flat.leaves), *staged.captured]
        return flat.build_result(bind(checkpoint_command, operands, {}, (staged.graph,)))

    return checkpointed


def _is_traced(leaves: Sequence[Any]) -> bool:
    """Whether a transform is at work: on the leaves, or on captured values."""
    return get_context().level > 0 or any(hasattr(x, "owner") for x in leaves)


def input_values(leaves: Sequence[Any]) -> list[Any]:
    """Returns the leaves as inputs of a graph; Python numbers are weak ones."""
    return [as_value(x) if dtypes.is_scalar(x) else x for x in leaves]


def _checkpoint_linearize(
    primals: tuple[Value, ...], tangents: Tangents, graphs: tuple[Graph, ...]
) -> tuple[list[Value], Tangents]:
    """Runs the function; the linear map keeps only the inputs and recomputes the rest when it is pulled back."""
    graph = graphs[0]
    active = tuple(t is not None for t in tangents)
    outputs = list(bind(checkpoint_command, primals, {}, graphs))
    moved = [i for i, x in enumerate(outputs) if is_differentiable(spec_of(x))]
    primals = tuple(map(settled, primals))  # they are read again when the map is pulled back

    def recompute(values: Sequence[Any]) -> list[Any]:
        points, cts = values[: len(primals)], values[len(primals) :]
        _, linear = run_linearize(lambda *xs: graph.evaluate(xs), points, active)
        kept = [ct for ct, i in zip(cts, moved, strict=True) if linear.nonzero[i]]
        return transpose_graph(linear.staged.graph, sum(active), linear.staged.captured, kept)

    def pull(cts: Sequence[Any]) -> list[Any]:
        specs, reached = [spec_of(x) for x in (*primals, *cts)], Reached(recompute)
        staged = stage(reached, specs, name=f"recompute {graph.name}")
        operands = [*primals, *cts, *staged.captured]
        return reached.fill(bind(call, operands, {"barrier": True}, (staged.graph,)) if any(reached.flags) else ())

    seeds = [t for t in tangents if t is not None]
    specs = [spec_of(outputs[i]) for i in moved]
    pushed = iter(apply_pull_only(pull, seeds, specs, leaves_out=not has_backward_rules(graph)))
    return outputs, tuple(next(pushed) if i in moved else None for i in range(len(outputs)))


def bind_for_rows(
    command: Command,
    size: int,
    operands: Sequence[Value],
    batched: Sequence[bool],
    params: dict[str, Any],
    graph: Graph,
    same: Sequence[bool] | None = None,
) -> tuple[tuple[Value, ...], tuple[bool, ...]]:
    """Returns a command with the sub-graph `graph`, once for all rows. Every output has the batch axis, but outputs that are
    the `same` in all rows.

    The sub-graph's constants become operands, behind the others.
    """
    alone = same or [False] * len(graph.outputs)

    def rows(*values: Any) -> list[Any]:
        outputs, out_batched = batch_graphs(size, values, batched, graph)
        pairs = zip(outputs, out_batched, alone, strict=True)
        return [one_row(x, b) if once else lead(size, x, b) for x, b, once in pairs]

    specs = [s.update(shape=(size, *s.shape)) if b else s for s, b in zip(graph.input_specs, batched, strict=True)]
    staged = stage(rows, specs, name=graph.name)
    outputs = tuple(bind(command, [*operands, *staged.captured], params, (staged.graph,)))
    return outputs, tuple(not once for once in alone)


def one_row(x: Value, batched: bool) -> Value:
    """Returns a row of a value that is the same in all rows."""
    return reshape(slice_axis(x, 0, 0, 1), shape=spec_of(x).shape[1:]) if batched else x


derivative.set(checkpoint_command, Derivative(push=_push, linearize=_checkpoint_linearize))
batch.set(checkpoint_command, _once_for_all(checkpoint_command))
