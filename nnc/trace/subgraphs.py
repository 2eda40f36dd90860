"""How commands that own a function as sub-graph are differentiated and batched: `call` and `checkpoint`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from nnc import dtypes
from nnc.commands.control import call
from nnc.commands.control import checkpoint as checkpoint_command
from nnc.commands.rules import (
    Cotangents,
    Derivative,
    Linear,
    Tangents,
    Value,
    batch,
    derivative,
    is_differentiable,
    lead,
    zeros,
)
from nnc.context import activity, get_context
from nnc.errors import UnsupportedError, user_error
from nnc.graph import Graph, TensorSpec, bind, spec_of
from nnc.trace.backward import apply_pull_only, push_graph, transpose_graph
from nnc.trace.batching import run_batched
from nnc.trace.dual import run_jvp, run_linearize
from nnc.trace.flat import FlatFunction, check_callable, name_of
from nnc.trace.specs import argument_spec
from nnc.trace.staging import stage

Fun = Callable[..., Any]


# -- call: transparent to every transform ------------------------------------------------------------------------------


def _call_jvp(
    primals: tuple[Value, ...], tangents: Tangents, outputs: tuple[Value, ...], graphs: tuple[Graph, ...]
) -> Tangents:
    return tuple(run_jvp(lambda *values: graphs[0].evaluate(values), primals, tangents)[1])


def _call_linearize(
    primals: tuple[Value, ...], tangents: Tangents, graphs: tuple[Graph, ...]
) -> tuple[list[Value], Tangents]:
    active = [t is not None for t in tangents]
    outputs, linear = run_linearize(lambda *values: graphs[0].evaluate(values), primals, active)
    seeds = [t for t in tangents if t is not None]
    moved = iter(push_graph(linear.staged.graph, [*seeds, *linear.staged.captured]))
    return outputs, tuple(next(moved) if kept else None for kept in linear.nonzero)


def _call_transpose(cotangents: Cotangents, operands: tuple[Any, ...], graphs: tuple[Graph, ...]) -> Tangents:
    graph = graphs[0]
    linear = [i for i, x in enumerate(operands) if isinstance(x, Linear)]
    others = [i for i, x in enumerate(operands) if not isinstance(x, Linear)]
    ordered = graph.update(inputs=tuple(graph.inputs[i] for i in (*linear, *others)))
    found = dict(
        zip(linear, transpose_graph(ordered, len(linear), [operands[i] for i in others], cotangents), strict=True)
    )
    return tuple(found.get(i) for i in range(len(operands)))


def batch_graphs(
    size: int, operands: Sequence[Value], batched: Sequence[bool], graph: Graph
) -> tuple[tuple[Value, ...], tuple[bool, ...]]:
    """A sub-graph's outputs for all rows, and which of them have the batch axis."""
    outputs, out_batched = run_batched(lambda *values: graph.evaluate(values), size, operands, batched)
    return tuple(outputs), tuple(out_batched)


derivative.set(call, Derivative(_call_jvp, _call_transpose, _call_linearize))
batch.set(call, lambda size, operands, batched, graphs: batch_graphs(size, operands, batched, graphs[0]))


# -- checkpoint: reverse mode recomputes -------------------------------------------------------------------------------


def checkpoint(fun: Fun, *, policy: Callable[..., bool] | None = None, static_argnums: Sequence[int] | int = ()) -> Fun:
    """`fun`, recomputed in the backward pass instead of kept: memory for time (rematerialisation).

    Args:     fun: function of pytrees. policy: not offered. static_argnums: arguments that are no arrays.
    Returns:  a function of the same arguments with the same value and derivatives.
    Raises:   UnsupportedError: a policy is given.
    Example:  >>> nnc.grad(nnc.checkpoint(lambda x: nnp.sin(nnp.sin(x))))(0.0)
              Array(1., dtype=float32)
    """
    check_callable(fun, "nnc.checkpoint")
    if policy is not None:
        raise user_error(
            UnsupportedError, "nnc.checkpoint", "policies that keep some values are not offered.",
            fix="leave policy out, and wrap only the parts to recompute in nnc.checkpoint.",
        )  # fmt: skip
    static = (static_argnums,) if isinstance(static_argnums, int) else tuple(static_argnums)

    @wraps(fun)
    def checkpointed(*args: Any, **kwargs: Any) -> Any:
        def part(*dynamic: Any, **keywords: Any) -> Any:
            values = iter(dynamic)
            return fun(*[x if i in static else next(values) for i, x in enumerate(args)], **keywords)

        flat = FlatFunction(part, tuple(x for i, x in enumerate(args) if i not in static), kwargs)
        if not _is_traced(flat.leaves):
            return fun(*args, **kwargs)
        with activity(f"tracing {name_of(fun)} for checkpoint"):
            staged = stage(flat, [argument_spec(x) for x in flat.leaves], name=name_of(fun))
        outputs = bind(
            checkpoint_command,
            [*input_values(flat.leaves, staged.graph.input_specs), *staged.captured],
            {},
            (staged.graph,),
        )
        return flat.build_result(outputs)

    return checkpointed


def _is_traced(leaves: Sequence[Any]) -> bool:
    return get_context().staging is not None or any(getattr(x, "owner", None) is not None for x in leaves)


def input_values(leaves: Sequence[Any], specs: Sequence[TensorSpec]) -> list[Any]:
    """The leaves as inputs of a graph: Python numbers get the dtype of the input."""
    return [
        spec.dtype.type(x) if dtypes.is_scalar(x) else x
        for x, spec in zip(leaves, specs, strict=False)
    ]


def _checkpoint_linearize(
    primals: tuple[Value, ...], tangents: Tangents, graphs: tuple[Graph, ...]
) -> tuple[list[Value], Tangents]:
    """Runs the function as it is; the linear map keeps only its inputs and recomputes the rest when it is pulled back."""
    graph = graphs[0]
    active = tuple(t is not None for t in tangents)
    outputs = list(bind(checkpoint_command, primals, {}, graphs))
    moved = [i for i, x in enumerate(outputs) if is_differentiable(spec_of(x))]

    def recompute(*values: Any) -> list[Any]:
        points, cts = values[: len(primals)], values[len(primals) :]
        found, linear = run_linearize(lambda *xs: graph.evaluate(xs), points, active)
        kept = [ct for ct, i in zip(cts, moved, strict=True) if linear.nonzero[i]]
        pulled = transpose_graph(linear.staged.graph, sum(active), linear.staged.captured, kept)
        return [zeros(spec) if ct is None else ct for ct, spec in zip(pulled, linear.input_specs, strict=True)]

    def pull(cts: Sequence[Any]) -> list[Any]:
        specs = [spec_of(x) for x in (*primals, *cts)]
        staged = stage(recompute, specs, name=f"recompute {graph.name}")
        return list(bind(call, [*primals, *cts, *staged.captured], {}, (staged.graph,)))

    seeds = [t for t in tangents if t is not None]
    pushed = iter(apply_pull_only(pull, seeds, [spec_of(outputs[i]) for i in moved]))
    return outputs, tuple(next(pushed) if i in moved else None for i in range(len(outputs)))


def _checkpoint_jvp(
    primals: tuple[Value, ...], tangents: Tangents, outputs: tuple[Value, ...], graphs: tuple[Graph, ...]
) -> Tangents:
    return _call_jvp(primals, tangents, outputs, graphs)


def _checkpoint_batch(
    size: int, operands: tuple[Value, ...], batched: tuple[bool, ...], graphs: tuple[Graph, ...]
) -> tuple[tuple[Value, ...], tuple[bool, ...]]:
    graph = batched_graph(size, batched, graphs[0])
    outputs = tuple(bind(checkpoint_command, [*operands], {}, (graph,)))
    return outputs, (True,) * len(outputs)


def batched_graph(size: int, batched: Sequence[bool], graph: Graph) -> Graph:
    """The graph for all rows; inputs that are `batched` and all outputs have the batch axis. It captures nothing."""

    def rows(*values: Any) -> list[Any]:
        outputs, out_batched = batch_graphs(size, values, batched, graph)
        return [lead(size, x, b) for x, b in zip(outputs, out_batched, strict=True)]

    specs = [s.update(shape=(size, *s.shape)) if b else s for s, b in zip(graph.input_specs, batched, strict=True)]
    return stage(rows, specs, name=graph.name).graph


derivative.set(checkpoint_command, Derivative(_checkpoint_jvp, None, _checkpoint_linearize))
batch.set(checkpoint_command, _checkpoint_batch)
