"""Kernels that need no backend, and how the results of references reach the memory planned for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np

from nnc.base.context import set_context
from nnc.base.dtypes import TAPE
from nnc.commands.loop import scan, while_
from nnc.commands.tape import Spare
from nnc.errors import InternalError
from nnc.graph import Attribute, Command, Graph, Kernel, Node, reference
from nnc.lower.kernels.segments import run_scan, run_while
from nnc.lower.plan.stages import NDArray, Step

RunProgram = Callable[[Sequence[NDArray]], list[NDArray]]


in_segments: Attribute[Callable[..., Any]] = Attribute(
    "in_segments",
    "its reference, which runs many iterations at a time in one program and writes into the memory of tapes",
)
in_segments.set(while_, run_while)
in_segments.set(scan, run_scan)


def sub_graph_kernel(step: Step, lower_graph: Callable[[Graph], RunProgram], native: bool) -> Kernel:
    """Runs a command that owns sub-graphs through its reference, which runs them as programs of their own.

    Args:
        lower_graph: lowers a sub-graph to a program; called when the sub-graph is first run.
        native: these programs are compiled.
    """
    command, graphs, function = step.command, step.graphs, _reference_of(step.command, native)
    programs: dict[Graph, RunProgram] = {}

    def run_inner(graph: Graph, values: Sequence[Any]) -> list[NDArray]:
        program = programs.get(graph)
        if program is None:
            program = programs[graph] = lower_graph(graph)
        return program([np.asarray(x) for x in values])

    def run(inputs: Sequence[NDArray], outputs: Sequence[NDArray], params: Mapping[str, Any]) -> None:
        with set_context(staging=None):  # a program runs, also while some function is being traced
            results = function(*inputs, graphs=graphs, run=run_inner, **params)
        store(command, results, outputs[: len(results)])  # behind them may lie a workspace, which is not needed here

    return Kernel("reference", run)


def _reference_of(command: Command, native: bool) -> Callable[..., Any]:
    segmented = in_segments.get(command, None) if native else None
    return partial(segmented, spare=Spare()) if segmented is not None else reference[command]


def tape_program(graph: Graph, lower_graph: Callable[[Graph], RunProgram], native: bool) -> RunProgram:
    """Runs a graph that takes or yields tapes, which no memory plan can hold: nodes with tapes run by their references, those
    between them as programs.

    Args:
        graph: the graph, such as that of an iteration of a loop.
        lower_graph: lowers a graph to a program; called when the graph is first run.
        native: these programs are compiled.
    """
    programs: dict[Graph, RunProgram] = {}
    runs = [(has_tapes, list(nodes)) for has_tapes, nodes in groupby(graph.nodes, _has_tapes)]
    parts = [part for has_tapes, nodes in runs for part in (nodes if has_tapes else [graph.part(nodes)])]
    functions = {node.command: _reference_of(node.command, native) for node in graph.nodes if _has_tapes(node)}

    def run_inner(inner: Graph, values: Sequence[Any]) -> list[NDArray]:
        if inner not in programs:
            programs[inner] = lower_graph(inner)
        return programs[inner]([np.asarray(x) for x in values])

    def run_node(node: Node, values: Sequence[NDArray]) -> Sequence[Any]:
        settings = {**node.params, "graphs": node.graphs, "run": run_inner} if node.graphs else node.params
        with set_context(source=node.source):
            results = functions[node.command](*values, **settings)
        return results if isinstance(results, (tuple, list)) else (results,)

    def run(values: Sequence[NDArray]) -> list[NDArray]:
        known = {**graph.constants, **dict(zip(graph.inputs, values, strict=True))}
        for part in parts:
            operands = [known[symbol] for symbol in part.inputs]
            results = run_node(part, operands) if isinstance(part, Node) else run_inner(part, operands)
            known.update(zip(part.outputs, map(np.asarray, results), strict=True))
        return [known[symbol] for symbol in graph.outputs]

    return run


def _has_tapes(node: Node) -> bool:
    return any(symbol.dtype == TAPE for symbol in (*node.inputs, *node.outputs))


def store(command: Command, results: Any, outputs: Sequence[NDArray]) -> None:
    """Copies the result of a reference into `outputs`.

    Raises:
        InternalError: the results have other shapes or dtypes than the command's shape rule says.
    """
    listed = results if isinstance(results, (tuple, list)) else (results,)
    for out, result in zip(outputs, map(np.asarray, listed), strict=True):
        if result.shape != out.shape or result.dtype != out.dtype:
            raise InternalError(
                f"{command.name}: the reference gave {result.dtype.name}{list(result.shape)}, "
                f"the infer rule says {out.dtype.name}{list(out.shape)}"
            )
        np.copyto(out, result)
