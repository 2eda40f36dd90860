"""Commands that own sub-graphs. Their derivative and batching rules trace those, so they stand in nnc/trace.

Each computes the results of its first sub-graph (column `inlines`), so lowering may put the sub-graph's nodes in its place;
they differ in how they are differentiated.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from nnc.commands.loop import Run, check_inputs
from nnc.commands.roles import branches
from nnc.commands.rules import InPlace, cost
from nnc.graph import Attribute, Command, Graph, TensorSpec, register

inlines: Attribute[bool] = Attribute("inlines", "the command computes the results of its first sub-graph")


def _infer(name: str) -> Any:
    def infer(*specs: TensorSpec, graphs: tuple[Graph, ...], **params: Any) -> tuple[TensorSpec, ...]:
        check_inputs(name, specs, graphs[0])
        return graphs[0].output_specs

    return infer


def _reference(*arrays: Any, graphs: tuple[Graph, ...], run: Run, **params: Any) -> list[Any]:
    return run(graphs[0], arrays)


def _register(name: str, **attributes: Any) -> Command:
    return register(name, None, None, infer=_infer(name), reference=_reference, inlines=True, **attributes)


call = _register(
    "call", roles=lambda node: branches(node, 0)
)  # graphs: (function,); barrier=True: it recomputes existing values on purpose
checkpoint = _register("checkpoint")  # graphs: (function,); reverse mode recomputes it
# Commands that users' rules run are not known before the rules are asked, so they may raise.
custom_jvp = _register("custom_jvp", refuses=True)  # rule: (primals, tangents) -> (outputs, tangents)
custom_vjp = _register("custom_vjp", refuses=True)  # rule: likewise, with tangents that only transpose


def _fused_cost(*specs: TensorSpec, graphs: tuple[Graph, ...] = (), **params: Any) -> int:
    return sum(
        cost[node.command](*(s.spec for s in node.inputs), **node.params)
        for graph in graphs
        for node in graph.nodes
        if node.command in cost
    )


# Commands that one printed kernel computes; made by the pass `fuse`. overwrite: pairs (input, output) that may share memory.
fused = register(
    "fused", None, None, infer=_infer("fused"), reference=_reference, cost=_fused_cost,
    inplace=lambda params: InPlace(params["overwrite"]),
)  # fmt: skip


# Elementwise commands that become part of one kernel together: passes look at them as one operation; made by the pass
# `units`, its sub-graph shared by units alike. overwrite: as for `fused`.
unit = register(
    "unit", None, None, infer=_infer("unit"), reference=_reference, cost=_fused_cost,
    inplace=lambda params: InPlace(params["overwrite"]),
)  # fmt: skip


def _members(values: Sequence[Any], graphs: tuple[Graph, ...]) -> Iterator[tuple[Graph, Sequence[Any]]]:
    """Each sub-graph with its own operands; operands left over go to the last."""
    at = 0
    for i, graph in enumerate(graphs, 1):
        end = at + len(graph.inputs) if i < len(graphs) else len(values)
        yield graph, values[at:end]
        at = end


def _infer_many(*specs: TensorSpec, graphs: tuple[Graph, ...], **params: Any) -> tuple[TensorSpec, ...]:
    for i, (graph, own) in enumerate(_members(specs, graphs)):
        check_inputs("fused_many", own, graph, f"its graph {i}")
    return tuple(spec for graph in graphs for spec in graph.output_specs)


def _reference_many(*arrays: Any, graphs: tuple[Graph, ...], run: Run, **params: Any) -> list[Any]:
    return [out for graph, own in _members(arrays, graphs) for out in run(graph, own)]


# Commands of several kernels of one form, on tensors of any length, each with a sub-graph of its own; made by the pass
# `join_kernels`. Operands and results of one sub-graph follow the previous one's; overwrite: as for `fused`.
fused_many = register(
    "fused_many", None, None, infer=_infer_many, reference=_reference_many, cost=_fused_cost,
    inplace=lambda params: InPlace(params["overwrite"]),
)  # fmt: skip

# A product (the first node of the sub-graph, of its first two inputs) with an epilogue on each of its elements before it is
# written; made by the pass `epilogue`. overwrite: as above.
with_epilogue = register(
    "with_epilogue", None, None, infer=_infer("with_epilogue"), reference=_reference, cost=_fused_cost,
    inplace=lambda params: InPlace(params["overwrite"]),
)  # fmt: skip

PRINTED = (fused, fused_many, with_epilogue, unit)  # sub-graphs that become kernels: nothing runs them node by node

# A linear map that is known only by its transpose: `pull(cotangents) -> cotangents of the operands`, or the sub-graph of that
# function, which takes captured values too: the last operands. It lives in the linear graph that reverse mode transposes;
# nnc.trace.core.backward runs it, in both directions.
pull_only = register("pull_only", None, None, infer=lambda *specs, pull, outputs, graphs=(): outputs)
