"""Commands that own sub-graphs. Their derivative and batching rules trace those, so they stand in nnc/trace.

Each computes the results of its first sub-graph (column `inlines`), so lowering may put the sub-graph's nodes in its place;
they differ in how they are differentiated.
"""

from __future__ import annotations

from typing import Any

from nnc.commands.loop import Run, check_inputs
from nnc.commands.properties import flops_of
from nnc.commands.roles import branches
from nnc.graph import Attribute, Command, Graph, TensorSpec, register
from nnc.graph.rules import InPlace, Rules

inlines: Attribute[bool] = Attribute("inlines", "the command computes the results of its first sub-graph")


def _infer(name: str) -> Any:
    def infer(*specs: TensorSpec, graphs: tuple[Graph, ...], **params: Any) -> tuple[TensorSpec, ...]:
        check_inputs(name, specs, graphs[0])
        return graphs[0].output_specs

    return infer


def _reference(*arrays: Any, graphs: tuple[Graph, ...], run: Run, **params: Any) -> list[Any]:
    return run(graphs[0], arrays)


def _register(name: str, refuses: bool | None = None, **attributes: Any) -> Command:
    rules = Rules(infer=_infer(name), reference=_reference, refuses=refuses)
    return register(name, rules, arity=None, outputs=None, inlines=True, **attributes)


# graphs: (function,); barrier=True: it recomputes existing values on purpose
call = _register("call", roles=lambda node: branches(node, 0))
# Computes the same bits in every program, since no kernel spans its border: passes rewrite the sub-graph by itself, and
# only its steps join the program.
isolated = _register("isolated")
checkpoint = _register("checkpoint")  # graphs: (function,); reverse mode recomputes it
# Commands that users' rules run are not known before the rules are asked, so they may raise.
custom_jvp = _register("custom_jvp", refuses=True)  # rule: (primals, tangents) -> (outputs, tangents)
# rule: the same form; its tangents can be transposed, but not run forward
custom_vjp = _register("custom_vjp", refuses=True)
# graphs: (the algorithm,); rule: the system that it solves (nnc.trace.core.implicit), by which it is differentiated.
linear_solve = _register("linear_solve", refuses=True)


def _fused_cost(*specs: TensorSpec, graphs: tuple[Graph, ...] = (), **params: Any) -> int:
    nodes = [node for graph in graphs for node in graph.nodes]
    return sum(flops_of(node.command, [symbol.spec for symbol in node.inputs], node.params) for node in nodes)


def _printed(name: str) -> Command:
    """Registers a command whose sub-graph becomes one kernel. overwrite: pairs (input, output) that may share memory."""
    inplace = lambda params: InPlace(params["overwrite"])
    rules = Rules(infer=_infer(name), reference=_reference, cost=_fused_cost, inplace=inplace)
    return register(name, rules, arity=None, outputs=None)


# Commands that one printed kernel computes; made by the pass `fuse`. overwrite: pairs (input, output) that may share memory.
fused = _printed("fused")


# Elementwise commands that become part of one kernel together: passes look at them as one operation; made by the pass
# `prefuse`, its sub-graph shared by equal units. overwrite: as for `fused`.
unit = _printed("unit")

# A product (the first node of the sub-graph, of its first two inputs) with an epilogue on each of its elements before it is
# written; made by the pass `epilogue`. overwrite: as above.
with_epilogue = _printed("with_epilogue")

PRINTED = (fused, with_epilogue, unit)  # sub-graphs that become kernels: nothing runs them node by node

# A linear map that is known only by its transpose: `pull(cotangents) -> cotangents of the operands`, or the sub-graph of that
# function, which takes captured values too: the last operands. It lives in the linear graph that reverse mode transposes
# (nnc.trace.core.pulls). `leaves_out`: cotangents that are zero take no part; `takes_none`: nor do they, and `pull` is given None.
pull_only = register(
    "pull_only",
    Rules(infer=lambda *specs, pull, outputs, leaves_out=False, takes_none=False, graphs=(): outputs),
    arity=None,
    outputs=None,
)
