"""The registry of passes and the runner of pipelines.

A pass is a function `(graph, options) -> graph` that needs attributes of the graph and provides others (NNVM's passes).
An attribute describes the nodes it was computed from, so a pass that returns other nodes drops the attributes that it does not
preserve.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Literal, get_args

from nnc.base.context import activity, note_seconds
from nnc.errors import ArgumentTypeError, GraphError, RegistryError, user_error
from nnc.graph.dispatch import Command
from nnc.graph.graph import Graph, Node
from nnc.graph.registry import Attribute
from nnc.graph.serialize import storable
from nnc.graph.verify import verify as verify_graph

__all__ = ["PASSES", "Pass", "PassRecord", "find_pass", "register_pass", "run_passes"]

PassFunction = Callable[[Graph, Any], Graph]
LOG = "passes"
PhaseName = Literal["simplify", "rewrite", "simplify again", "layout", "order", "pack", "delay", "fuse", "join"]
"""Phases of lowering, in their order (nnc/lower/phases.py); passes of other packages say by these names when they run."""


class Fact(Enum):
    """A fact about graphs that holds from the pass that ensures it until a pass invalidates it; its value is its meaning."""

    BARRIERS = "Barriers are calls still, which keep values that are recomputed on purpose apart from the originals."
    COMMANDS = "Elementwise commands are nodes of their own, where rules find them."
    INLINED = "No node is a call, but for barriers."
    FOLDED = "A tensor that holds one number everywhere, as far as this is known, is `broadcast_to` of a 0-d constant."
    SIMPLIFIED = "Forms that users, derivatives and passes write have been simplified; `pvary` nodes are gone."
    MERGED = "The traced nodes were simplified, and equal ones are one; rewrites may make new ones that are equal."
    NO_DEAD = "Each node has an effect or is read, and so is each input and output of a loop's or branch's sub-graph."
    NO_INVARIANTS = "No loop computes a value that is the same in all its iterations."
    COMBINED = "Softmax and its like are commands, where users or derivatives wrote them as several."
    NO_CALLS = "No node is a call, but for those that stay apart until steps are made."
    LAYOUT = "Each tensor has the layout in which kernels read it."
    ORDERED = "The order of nodes is the one that runs, up to small moves."
    LOW_PEAK = "Cheap values that only wait over the peak of memory have been rematerialized behind it."
    PACKED = "Weights are in the layout that their library's kernels read."
    KERNELS = "Every command that a printed kernel can run stands in a `fused` node."


@dataclass(frozen=True, slots=True)
class Pass:
    """A registered pass: the attributes it needs and provides, which attributes stay true when it changes nodes, the commands
    that it `concerns` (a graph with none of these stays as it is; if none are named, it looks at every graph), and the facts
    that say where it stands among the passes of lowering.

    Args:
        name: the pass's name in pipelines.
        function: (graph, options) -> graph.
        needs: attributes that must be there.
        provides: attributes that it adds.
        preserves: attributes that stay true although it changes nodes.
        concerns: the commands that it rewrites, by their names or as those of a column; a graph with none of these stays as it
            is. If none are named, the pass looks at every graph.
        phase: the phase of lowering at whose end it runs; None: it runs where a pipeline names it.
        requires: facts that must hold before it.
        ensures: facts that hold after it.
        invalidates: facts that may not hold after it.
        when: whether it may change a graph at all, by the options; None: it may.

    Example:
        >>> nnc.graph.find_pass("dce").preserves
        ()
    """

    name: str
    function: PassFunction
    needs: tuple[str, ...] = ()
    provides: tuple[str, ...] = ()
    preserves: tuple[str, ...] = ()
    concerns: Collection[str | Command] = frozenset()
    phase: PhaseName | None = None
    requires: frozenset[Fact] = frozenset()
    ensures: frozenset[Fact] = frozenset()
    invalidates: frozenset[Fact] = frozenset()
    when: Callable[[Any], bool] | None = None


@storable
@dataclass(frozen=True, slots=True)
class PassRecord:
    """One line of `graph.attrs["passes"]`: the effect of a pass. Node counts include nodes of sub-graphs.

    Args:
        name: the name of the pass.
        seconds: how long it took.
        nodes_before: number of nodes that it was given.
        nodes_after: number of nodes that it returned.

    Example:
        >>> graph = nnc.graph.run_passes(make_graph(nnp.sin)(1.0), ["dce"])
        >>> graph.attrs["passes"][0].name
        'dce'
    """

    name: str
    seconds: float
    nodes_before: int
    nodes_after: int

    def __str__(self) -> str:
        return f"{self.name}: {self.nodes_before} -> {self.nodes_after} nodes in {self.seconds * 1e3:.2f} ms"


PASSES: dict[str, Pass] = {}
"""All passes by name.

Example:
    >>> import nnc.lower.phases  # registers them
    >>> PASSES["one_hot"].name
    'one_hot'
"""


def register_pass(
    name: str, *, needs: Sequence[str] = (), provides: Sequence[str] = (), preserves: Sequence[str] = (),
    concerns: Iterable[str] | Attribute[Any] = (), phase: PhaseName | None = None, requires: Iterable[Fact] = (),
    ensures: Iterable[Fact] = (), invalidates: Iterable[Fact] = (), when: Callable[[Any], bool] | None = None,
) -> Callable[[PassFunction], PassFunction]:  # fmt: skip
    """Registers the decorated function as the pass `name`; the function itself is unchanged.

    Args:
        name: the pass's name in pipelines.
        needs: attributes that must be there.
        provides: attributes that the pass adds.
        preserves: attributes of the graph that stay true although the pass changes nodes.
        concerns: names of commands, or a column that they have a cell in; a graph in which none of them stands, in sub-graphs,
            too, stays as it is without the pass being asked.
        phase: has every later compilation run the pass at the end of this phase of lowering, whose guarantees it must keep; for
            passes of other packages: those of nnc stand in nnc/lower/phases.py.
        requires: facts (`nnc.graph.passes.Fact`) that an earlier pass of lowering must ensure, and none in between invalidate.
        ensures: facts that hold after the pass.
        invalidates: facts that may not hold after it; all others still hold.
        when: (options) -> whether the pass may change a graph at all.

    Raises:
        RegistryError: there is a pass of that name, or no such phase.

    Example:
        >>> @register_pass("keep_all")
        ... def keep_all(graph, options):
        ...     return graph
        >>> nnc.graph.find_pass("keep_all").name
        'keep_all'
    """
    if name in PASSES:
        where = getattr(PASSES[name].function, "__module__", "another module")
        problem = f"pass {name!r} exists already: {where} registers it."
        fix = "choose another name; a module that is imported by two names registers its passes twice."
        raise user_error(RegistryError, "register_pass", problem, fix=fix)
    phases = get_args(PhaseName)
    if phase is not None and phase not in phases:
        problem = f"pass {name!r} asks for the phase {phase!r}, which lowering does not have."
        raise user_error(RegistryError, "register_pass", problem, fix=f"name one of these: {', '.join(phases)}.")

    commands: Collection[str | Command] = concerns if isinstance(concerns, Attribute) else frozenset(concerns)

    def add(function: PassFunction) -> PassFunction:
        facts = frozenset(requires), frozenset(ensures), frozenset(invalidates)
        columns = tuple(needs), tuple(provides), tuple(preserves)
        PASSES[name] = Pass(name, function, *columns, commands, phase, *facts, when)
        return function

    return add


def find_pass(name: str) -> Pass:
    """Returns the pass of that name.

    Args:
        name: the pass's name in pipelines.

    Raises:
        RegistryError: there is none.

    Example:
        >>> find_pass("dce").name
        'dce'
    """
    try:
        return PASSES[name]
    except KeyError:
        known = ", ".join(sorted(PASSES)) or "none"
        raise user_error(
            RegistryError, "find_pass", f"no pass {name!r} is registered; there are {known}.", fix="import its package."
        ) from None


def added_passes(phase: str | None = None) -> tuple[str, ...]:
    """Returns the passes that other packages add to a phase of lowering (None: to any), in the order of their registration."""
    return tuple(each.name for each in PASSES.values() if each.phase is not None and phase in (None, each.phase))


def run_passes(graph: Graph, names: Sequence[str], options: Any = None, *, verify: bool = True) -> Graph:
    """Runs passes in order and logs each in the attribute "passes".

    Args:
        graph: the graph to rewrite.
        names: the pipeline.
        options: handed to every pass.
        verify: check the graph before the first pass and after each.

    Raises:
        RegistryError: no such pass.
        GraphError: an attribute that a pass needs is missing, a pass does not provide an attribute that it promised, or the graph
            it returned breaks an invariant.

    Example:
        >>> graph = make_graph(lambda x: (x * 1.0, nnp.sin(x))[1])(2.0)
        >>> len(graph.nodes), len(run_passes(graph, ["dce"]).nodes)
        (2, 1)
    """
    pipeline = [find_pass(name) for name in names]
    lost: dict[str, str] = {}
    if verify:
        verify_graph(graph)
    count = graph.num_nodes
    looked_at: tuple[Node, ...] = ()
    present: set[Command] = set()  # the commands of those nodes
    swept: tuple[Any, ...] = ()  # the nodes and outputs that the last pass against dead nodes left
    for step in pipeline:
        _check_needs(graph, step, lost)
        if step.concerns and graph.nodes is not looked_at:
            looked_at, present = graph.nodes, _commands(graph)
        concerned = not step.concerns or any(c in step.concerns or c.name in step.concerns for c in present)
        sweeps = Fact.NO_DEAD in step.ensures
        is_clean = sweeps and swept == (graph.nodes, graph.outputs)
        if not concerned or is_clean or (step.when and not step.when(options)):
            step = replace(step, function=_leave)
        with activity(f"running pass {step.name!r}"):
            graph, count = _run(graph, step, options, verify, lost, count)
        swept = (graph.nodes, graph.outputs) if sweeps else swept
    return graph


def _commands(graph: Graph) -> set[Command]:
    """Returns the commands of a graph's nodes, those of sub-graphs included."""
    found = {node.command for node in graph.nodes}
    return found.union(*map(_commands, {inner for node in graph.nodes if node.graphs for inner in node.graphs}))


def _leave(graph: Graph, options: Any) -> Graph:
    """Returns the graph: the body of a pass that has nothing to do."""
    return graph


def _run(graph: Graph, step: Pass, options: Any, verify: bool, lost: dict[str, str], before: int) -> tuple[Graph, int]:
    """Returns the graph after a pass, and how many nodes it has; `before` is how many it had."""
    start = time.perf_counter()
    result = step.function(graph, options)
    seconds = time.perf_counter() - start
    note_seconds(f"pass {step.name}", seconds)
    if not isinstance(result, Graph):
        problem = f"the pass returned {type(result).__name__}, not a graph."
        raise user_error(ArgumentTypeError, step.name, problem, fix="return the graph, changed or not.")
    missing = [name for name in step.provides if name not in result.attrs]
    if missing:
        problem = f"the pass did not provide the attribute {', '.join(map(repr, missing))} that it promises."
        fix = "return graph.with_attrs(...), or take the name out of provides."
        raise user_error(GraphError, step.name, problem, fix=fix)
    attrs = dict(result.attrs)
    if (result.nodes, result.inputs, result.outputs) != (graph.nodes, graph.inputs, graph.outputs):
        kept = {*step.preserves, *step.provides, LOG}
        for name in graph.attrs.keys() & attrs.keys() - kept:
            if attrs[name] is graph.attrs[name]:  # not computed anew
                del attrs[name]
                lost[name] = step.name
    for name in step.provides:
        lost.pop(name, None)
    after = before if result.nodes is graph.nodes else result.num_nodes
    attrs[LOG] = (*graph.attrs.get(LOG, ()), PassRecord(step.name, seconds, before, after))
    result = result.update(attrs=attrs)
    return verify_graph(result) if verify else result, after


def _check_needs(graph: Graph, step: Pass, lost: dict[str, str]) -> None:
    for name in step.needs:
        if name not in graph.attrs:
            providers = sorted(other.name for other in PASSES.values() if name in other.provides)
            why = f" (pass {lost[name]!r} changed the nodes that it described)" if name in lost else ""
            problem = f"the pass needs the attribute {name!r}, which the graph does not have{why}."
            fix = (
                f"run {' or '.join(map(repr, providers))} before it."
                if providers
                else "no registered pass provides it."
            )
            raise user_error(GraphError, step.name, problem, fix=fix)
