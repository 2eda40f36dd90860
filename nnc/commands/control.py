"""Commands that own sub-graphs. Their derivative and batching rules trace those, so they stand in nnc/trace.

Each computes what its first sub-graph computes (column `inlines`), so lowering may put the sub-graph's nodes in its place;
they differ in how they are differentiated.
"""

from __future__ import annotations

from typing import Any

from nnc.commands.loop import Run, check_inputs
from nnc.commands.rules import InPlace, cost
from nnc.graph import Attribute, Command, Graph, TensorSpec, register

inlines: Attribute[bool] = Attribute("inlines", "the command computes what its first sub-graph computes")


def _infer(name: str) -> Any:
    def infer(*specs: TensorSpec, graphs: tuple[Graph, ...], **params: Any) -> tuple[TensorSpec, ...]:
        check_inputs(name, specs, graphs[0])
        return graphs[0].output_specs

    return infer


def _reference(*arrays: Any, graphs: tuple[Graph, ...], run: Run, **params: Any) -> list[Any]:
    return run(graphs[0], arrays)


def _register(name: str) -> Command:
    return register(name, None, None, infer=_infer(name), reference=_reference, inlines=True)


call = _register("call")  # graphs: (function,); barrier=True: it recomputes on purpose what exists already
checkpoint = _register("checkpoint")  # graphs: (function,); reverse mode recomputes it
custom_jvp = _register("custom_jvp")  # rule: (primals, tangents) -> (outputs, tangents)
custom_vjp = _register("custom_vjp")  # rule: likewise, with tangents that only transpose


def _fused_cost(*specs: TensorSpec, graphs: tuple[Graph, ...] = (), **params: Any) -> int:
    return sum(
        cost[node.command](*(s.spec for s in node.inputs), **node.params)
        for graph in graphs
        for node in graph.nodes
        if node.command in cost
    )


# What one printed kernel computes; made by the pass `fuse`. overwrite: pairs (input, output) that may share memory.
fused = register(
    "fused", None, None, infer=_infer("fused"), reference=_reference, cost=_fused_cost,
    inplace=lambda params: InPlace(params["overwrite"]),
)  # fmt: skip

# A linear map that is known only by its transpose: `pull(cotangents) -> cotangents of the operands`, or the sub-graph of that
# function, which takes captured values too: the last operands. It lives in the linear graph that reverse mode transposes;
# nnc.trace.backward runs it, in both directions.
pull_only = register("pull_only", None, None, infer=lambda *specs, pull, outputs, graphs=(): outputs)
