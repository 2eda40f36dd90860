"""Runs a graph whose shapes depend on its data: compiled parts, and between them the nodes that need numbers.

A part is traced on the values that are there. A node that needs the numbers of one is left out, and so is each node that reads the
results of such a node. The part runs compiled, then the nodes that need numbers run one by one, then the next part begins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

import nnc
from nnc.array.array import Array
from nnc.onnx.model import Model, ModelGraph, Node, names_within
from nnc.onnx.run import GRADIENT, Named, OwnWeights, Runner, Values, take
from nnc.onnx.values import InputsNeeded, nnc_has
from nnc.trace.core.tracer import Tracer

MOST_VARIANTS = 16  # shapes for which a part is compiled
MOST_SEEN = 1000  # shapes that are remembered, so that a part compiles when one comes again
SMALL_KEY = 256  # bytes of a known value that is compared by its numbers; a larger one by its identity

_DATA = frozenset(("data",))  # the inputs of values that are not known
_KNOWN: frozenset[str] = frozenset()

Places = tuple[int, ...]  # nodes by their places in the graph


class Plan(NamedTuple):
    """A part for operands of certain shapes.

    `program` takes and returns dicts of values; it is None where no value depends on data. The nodes `hosts` need numbers
    and run behind it, `rest` is left to later parts. The values `known` follow from the file and from shapes. `given` are
    the known values that it was made for: large ones are told apart by identity, and so must live as long as the plan.
    """

    program: Any
    done: Places
    hosts: Places
    rest: Places
    known: Mapping[str, Any]
    given: Mapping[str, Any]


class Parts:
    """Runs one graph on arrays, and remembers its compiled parts."""

    def __init__(
        self, model: Model, own: OwnWeights, graph: ModelGraph, note: Callable[[str], None], is_body: bool = False
    ) -> None:
        self._model, self._own, self._graph, self._note, self._is_body = model, own, graph, note, is_body
        self._outputs = frozenset(output.name for output in graph.outputs)
        self._reads = [_reads(node) for node in graph.nodes]
        self.reads = self._outputs.union(*self._reads)
        self._plans: dict[Places, dict[Any, Plan]] = {}
        self._seen: dict[Places, set[Any]] = {}
        self._bodies: dict[int, Parts] = {}

    def run(self, values: Values, outer: Runner | None = None) -> list[Named]:
        """Returns the outputs; `values` has the inputs, and the values of the graphs around this one, which `outer` runs."""
        given = {value.name: _data(values[value.name].value) for value in self._graph.inputs if value.name in values}
        values = {name: Named(array, _KNOWN) for name, array in self._graph.weights.items()} | values | given
        if any((node.domain, node.operator) == GRADIENT for node in self._graph.nodes):  # it runs earlier nodes again
            return Runner(self._model, self._own).graph(self._graph, values)
        host = _HostRunner(self._model, self._own, self.body, outer)
        rest: Places = tuple(range(len(self._graph.nodes)))
        while rest:
            rest = self._advance(rest, values, host)
        return [take(values, output.name, f"the output {output.name!r}") for output in self._graph.outputs]

    def body(self, graph: ModelGraph) -> Parts:
        """Returns the parts of a sub-graph."""
        if id(graph) not in self._bodies:
            self._bodies[id(graph)] = Parts(self._model, self._own, graph, self._note, is_body=True)
        return self._bodies[id(graph)]

    def _advance(self, rest: Places, values: Values, host: Runner) -> Places:
        """Runs one part and the nodes behind it; returns the nodes that are left."""
        reads = self._read_by(rest)
        read = {name: values[name] for name in values if name in reads}
        free = {name: v.value for name, v in read.items() if v.inputs and _is_array(v.value)}
        known = {n: v.value for n, v in read.items() if not v.inputs and n not in self._graph.weights}
        key = tuple((n, _spec(v)) for n, v in free.items()), tuple((n, _known_key(v)) for n, v in known.items())
        plans = self._plans.setdefault(rest, {})
        plan = plans.get(key)
        host.count(1)
        if plan is not None:
            values.update((name, Named(v, _DATA)) for name, v in (plan.program(free) if plan.program else {}).items())
            values.update((name, Named(v, _KNOWN)) for name, v in plan.known.items())
        elif self._compiles(plans, self._seen.setdefault(rest, set()), key):
            held = frozenset(name for name, v in read.items() if v.inputs and name not in free)
            plan = plans[key] = self._compile(rest, free, known, held, values)
        elif plans:
            plan = next(reversed(plans.values()))
            self._run(plan.done, values, Runner(self._model, self._own, host), plan.known)
        else:
            self._run(rest, values, Runner(self._model, self._own, host), {})
            return ()
        self._run(plan.hosts, values, host, {})
        return plan.rest

    def _compiles(self, plans: Mapping[Any, Plan], seen: set[Any], key: Any) -> bool:
        """Whether to compile a part for new shapes: the first ones of a model at once, others when they come again."""
        if len(plans) >= MOST_VARIANTS:
            return False
        if key in seen or not (plans or self._is_body):
            return True
        if len(seen) < MOST_SEEN:
            seen.add(key)
        return False

    def _run(self, places: Places, values: Values, runner: Runner, known: Mapping[str, Any]) -> None:
        """Runs nodes one by one. Their results are data but for those that are known in each run."""
        for place in places:
            node = self._graph.nodes[place]
            runner.nodes([node], values)
            for name in node.outputs:
                if name in values and name not in known:
                    values[name] = _data(values[name].value)

    def _compile(
        self, rest: Places, free: Mapping[str, Any], known: Mapping[str, Any], held: frozenset[str], values: Values
    ) -> Plan:
        """Traces and runs a part; adds its results to the values."""
        part = _Part(self, rest, known, held)
        program = _compiled(part)
        found = program(free)
        values.update((name, Named(v, _DATA)) for name, v in found.items())
        values.update((name, Named(v, _KNOWN)) for name, v in part.known.items())
        plan = Plan(program if found else None, part.done, part.hosts, part.rest, part.known, known)
        alone = ", ".join(self._graph.nodes[place].title for place in plan.hosts[:8])
        alone += f" and {len(plan.hosts) - 8} more" if len(plan.hosts) > 8 else ""
        where = f"in {self._graph.name!r}: " if self._is_body else ""
        run = f"{len(plan.done)} of {len(rest)} nodes compiled as a part" if found else "no node compiled"
        self._note(f"{where}{run}" + (f", then by themselves: {alone}" if alone else ""))
        return plan

    def trace(self, part: _Part, free: Mapping[str, Any]) -> dict[str, Any]:
        """Runs the nodes of a part that need no numbers, under a trace; notes which these are in the part."""
        values = {name: Named(array, _KNOWN) for name, array in self._graph.weights.items()}
        values |= {name: Named(value, _KNOWN) for name, value in part.given.items()}
        values |= {name: Named(value, _DATA) for name, value in free.items()}
        runner, later = Runner(self._model, self._own), set[str]()
        done, hosts, rest = list[int](), list[int](), list[int]()
        for place in part.nodes:
            node, reads = self._graph.nodes[place], self._reads[place]
            if not reads.isdisjoint(later):
                rest.append(place)
            elif not reads.isdisjoint(part.held):
                hosts.append(place)
            else:
                if _is_traceable(runner, node, values):
                    done.append(place)
                    continue
                hosts.append(place)
            later.update(node.outputs)
        made = [name for place in done for name in self._graph.nodes[place].outputs if name in values]
        wanted = self._read_by((*hosts, *rest))
        kept = {name: values[name] for name in made if name in wanted}
        part.done, part.hosts, part.rest = tuple(done), tuple(hosts), tuple(rest)
        part.known = {name: value.value for name, value in kept.items() if not value.inputs}
        return {name: as_array(value.value) for name, value in kept.items() if value.inputs}

    def _read_by(self, places: Sequence[int]) -> frozenset[str]:
        """Returns the names that nodes and the graph's outputs read."""
        return self._outputs.union(*(self._reads[place] for place in places))


class _Part:
    """The nodes that are left for a part; once it is traced, which of them it has.

    It is no function, so that calls of compiled functions that hold it do not look through all nodes for changes.
    """

    def __init__(self, parts: Parts, nodes: Places, given: Mapping[str, Any], held: frozenset[str]) -> None:
        self._parts, self.nodes, self.given, self.held = parts, nodes, given, held
        self.done: Places = ()
        self.hosts: Places = ()
        self.rest: Places = ()
        self.known: dict[str, Any] = {}

    def trace(self, free: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the values that depend on data and are read later."""
        return self._parts.trace(self, free)


class _HostRunner(Runner):
    """Runs nodes one by one, and their sub-graphs in parts."""

    is_host = True

    def __init__(
        self, model: Model, own: OwnWeights, body: Callable[[ModelGraph], Parts], outer: Runner | None = None
    ) -> None:
        super().__init__(model, own, outer)
        self._body = body

    def graph(self, graph: ModelGraph, values: Values) -> list[Named]:
        parts = self._body(graph)
        if any(_is_traced(values[name].value) for name in parts.reads if name in values):
            return super().graph(graph, values)
        return parts.run(values, self)


def _compiled(part: _Part) -> Any:
    @nnc.compile
    def program(free: Mapping[str, Any]) -> dict[str, Any]:
        return part.trace(free)

    return program


def _is_traceable(runner: Runner, node: Node, values: Values) -> bool:
    """Runs a node under a trace; False where it needs numbers, or gives values that programs do not return."""
    try:
        runner.nodes([node], values)
    except InputsNeeded:
        return False
    made = [values[name] for name in node.outputs if name in values]
    return all(not value.inputs or _is_array(as_array(value.value)) for value in made)


def _reads(node: Node) -> frozenset[str]:
    graphs = [value for value in node.attributes.values() if isinstance(value, ModelGraph)]
    return frozenset(name for name in node.inputs if name).union(*map(names_within, graphs))


def _data(value: Any) -> Named:
    """Returns a value as one that programs take, if they do, and that is not known to them; that a value is absent is known."""
    return Named(as_array(value), _DATA if value is not None else _KNOWN)


def as_array(value: Any) -> Any:
    """Returns a value as an array of nnc, or as a list of them; others, such as strings, as they are."""
    if isinstance(value, list):
        return [as_array(part) for part in value]
    return nnc.asarray(value) if isinstance(value, np.ndarray) and nnc_has(value.dtype) else value


def _is_array(value: Any) -> bool:
    """Whether programs can take and return a value: an array, or a list of them."""
    return all(map(_is_array, value)) if isinstance(value, list) else isinstance(value, (Tracer, Array))


def _is_traced(value: Any) -> bool:
    if isinstance(value, list):
        return any(map(_is_traced, value))
    return isinstance(value, Tracer) and not isinstance(value, Array)


def _spec(value: Any) -> Any:
    return tuple(map(_spec, value)) if isinstance(value, list) else (tuple(value.shape), value.dtype)


def _known_key(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_known_key, value))
    if not isinstance(value, np.ndarray) or value.nbytes > SMALL_KEY or value.dtype == object:
        return id(value) if value is not None else None
    return value.shape, value.dtype, value.tobytes()
