"""The symbolic graph: symbols, nodes, graphs. Frozen data in SSA form."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from nnc.base import dtypes
from nnc.base.context import set_context
from nnc.base.html import show_text
from nnc.base.source import SourceLine
from nnc.errors import ArgumentError, ShapeError, user_error
from nnc.errors.tracebacks import api_boundary
from nnc.graph.dispatch import Command, bind
from nnc.graph.registry import command, rewritten
from nnc.graph.spec import TensorSpec, spec_of

NDArray = np.ndarray[Any, Any]
Runner = Callable[[Command, Sequence[Any], dict[str, Any], tuple[Any, ...]], Sequence[Any]]
NO_PARAMS: Mapping[str, Any] = MappingProxyType({})


class _UnfinishedSymbol:
    """A symbol that is being made: its fields can still be set."""

    __slots__ = ("name", "spec")

    spec: TensorSpec
    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Symbol(_UnfinishedSymbol):
    """A tensor without a value, written exactly once. Symbols are compared by identity; `name` only serves to read graphs.

    Args:
        spec: shape, dtype and layout.
        name: the name in the readable form.

    Example:
        >>> graph = make_graph(nnp.sin)(nnp.ones(()))
        >>> graph.inputs[0].spec
        TensorSpec(shape=(), dtype=dtype('float32'), layout='strided')
    """

    spec: TensorSpec
    name: str = ""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the tensor it stands for."""
        return self.spec.shape

    @property
    def dtype(self) -> Any:
        """Dtype of the tensor it stands for."""
        return self.spec.dtype

    def __repr__(self) -> str:
        return f"Symbol({self.name + ': ' if self.name else ''}{self.spec})"


def new_symbol(spec: TensorSpec, name: str = "") -> Symbol:
    """Returns a symbol; traces make so many that it matters how long it takes."""
    symbol: Any = _UnfinishedSymbol()
    symbol.spec, symbol.name = spec, name
    symbol.__class__ = Symbol  # faster than to set the fields of a class that cannot be assigned to
    made: Symbol = symbol
    return made


class _UnfinishedNode:
    """A node that is being made: its fields can still be set."""

    __slots__ = ("command", "graphs", "inputs", "outputs", "params", "source")

    command: Command
    inputs: tuple[Symbol, ...]
    outputs: tuple[Symbol, ...]
    params: Mapping[str, Any]
    graphs: tuple[Graph, ...]
    source: SourceLine | None


@dataclass(frozen=True, slots=True, eq=False)
class Node(_UnfinishedNode):
    """A command in a graph: reads symbols, writes new ones.

    `graphs` are sub-graphs (loop bodies, branches, called functions); `source` is the user's line that made the node.

    Args:
        command: an operation.
        inputs: symbols that it reads.
        outputs: symbols that it writes.
        params: static parameters by name.
        graphs: its sub-graphs.
        source: the user's line that it comes from.

    Example:
        >>> node = make_graph(nnp.sin)(1.0).nodes[0]
        >>> node.command.name, len(node.inputs), len(node.outputs)
        ('sin', 1, 1)
    """

    command: Command
    inputs: tuple[Symbol, ...]
    outputs: tuple[Symbol, ...]
    params: Mapping[str, Any] = field(default_factory=lambda: NO_PARAMS)
    graphs: tuple[Graph, ...] = ()
    source: SourceLine | None = None

    def update(self, **changes: Any) -> Node:
        """This node with some fields replaced; parameters that depend on the sub-graphs follow them (column `rewritten`).

        Args:
            **changes: fields by name.
        """
        follow = rewritten.get(self.command, None) if changes.get("graphs", self.graphs) != self.graphs else None
        if follow is not None and "params" not in changes:
            changes["params"] = MappingProxyType(dict(follow(self.params, self.graphs, changes["graphs"])))
        node: Any = _UnfinishedNode()
        node.command, node.inputs, node.outputs = self.command, self.inputs, self.outputs
        node.params, node.graphs, node.source = self.params, self.graphs, self.source
        for name, value in changes.items():
            setattr(node, name, value)
        node.__class__ = Node
        made: Node = node
        return made


def new_node(
    command: Command, inputs: tuple[Symbol, ...], outputs: tuple[Symbol, ...], params: Mapping[str, Any],
    graphs: tuple[Graph, ...], source: SourceLine | None,
) -> Node:  # fmt: skip
    """Returns a node, made in the shortest time."""
    node: Any = _UnfinishedNode()
    node.command, node.inputs, node.outputs = command, inputs, outputs
    node.params, node.graphs, node.source = params, graphs, source
    node.__class__ = Node
    made: Node = node
    return made


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class Graph:
    """Nodes in topological order from `inputs` and `constants` to `outputs`; `attrs` maps a name to an attribute that a pass
    computed.

    Attributes whose names begin with an underscore are notes for the passes that follow: they have no stored form.

    A graph is a function: calling it evaluates its nodes on arrays, and inside a trace on tracers.

    Args:
        inputs: symbols without a writer.
        outputs: symbols whose values are asked for.
        nodes: the nodes, in topological order.
        constants: symbol -> value.
        attrs: attributes that passes computed, by name.
        name: the name in the readable form.

    Example:
        >>> graph = make_graph(lambda x: x * x)(nnp.ones(2))
        >>> graph(nnp.asarray([3.0, 4.0]))
        Array([ 9., 16.], dtype=float32)
    """

    inputs: tuple[Symbol, ...]
    outputs: tuple[Symbol, ...]
    nodes: tuple[Node, ...]
    constants: Mapping[Symbol, NDArray] = field(default_factory=dict)
    attrs: Mapping[str, Any] = field(default_factory=dict)
    name: str = "graph"

    def update(self, **changes: Any) -> Graph:
        """This graph with some fields replaced.

        Args:
            **changes: fields by name.
        """
        return replace(self, **changes)

    def with_attrs(self, **attrs: Any) -> Graph:
        """This graph with attributes added.

        Args:
            **attrs: attributes by name.
        """
        return replace(self, attrs={**self.attrs, **attrs})

    @property
    def input_specs(self) -> tuple[TensorSpec, ...]:
        """Specs of the inputs."""
        return tuple(symbol.spec for symbol in self.inputs)

    @property
    def output_specs(self) -> tuple[TensorSpec, ...]:
        """Specs of the outputs."""
        return tuple(symbol.spec for symbol in self.outputs)

    @property
    def num_nodes(self) -> int:
        """The number of nodes, nodes of sub-graphs included."""
        inner = [graph.num_nodes for node in self.nodes if node.graphs for graph in node.graphs]
        return len(self.nodes) + sum(inner)

    def symbols(self) -> Iterator[Symbol]:
        """All symbols in the order in which they get their values: inputs, constants, node outputs."""
        yield from self.inputs
        yield from self.constants
        for node in self.nodes:
            yield from node.outputs

    def walk(self) -> Iterator[Node]:
        """Yields all nodes, nodes of sub-graphs before the node that owns them."""
        for node in self.nodes:
            for graph in node.graphs:
                yield from graph.walk()
            yield node

    def restrict(self, outputs: tuple[Symbol, ...]) -> Graph:
        """This graph with these outputs, and only the nodes and constants that they need.

        Args:
            outputs: symbols of this graph.
        """
        needed = set(outputs)
        nodes: list[Node] = []
        for node in reversed(self.nodes):
            if not needed.isdisjoint(node.outputs):
                needed.update(node.inputs)
                nodes.append(node)
        constants = {symbol: value for symbol, value in self.constants.items() if symbol in needed}
        return Graph(self.inputs, outputs, tuple(reversed(nodes)), constants, self.attrs, self.name)

    def part(self, nodes: Sequence[Node]) -> Graph:
        """Returns the graph of some of the nodes: it takes the values that they read, and yields those that are read outside.

        Args:
            nodes: nodes of this graph, in its order.
        """
        made = {symbol: None for node in nodes for symbol in node.outputs}
        reads = {symbol: None for node in nodes for symbol in node.inputs if symbol not in made}
        inside = set(nodes)
        outside = {symbol for node in self.nodes if node not in inside for symbol in node.inputs}.union(self.outputs)
        return self.update(
            inputs=tuple(symbol for symbol in reads if symbol not in self.constants),
            outputs=tuple(symbol for symbol in made if symbol in outside),
            nodes=tuple(nodes),
            constants={symbol: x for symbol, x in self.constants.items() if symbol in reads},
        )

    @property
    def reads(self) -> frozenset[Symbol]:
        """The symbols that a node or an output reads."""
        return frozenset(self.outputs).union(*(node.inputs for node in self.nodes))

    def evaluate(self, args: Sequence[Any], run: Runner = bind) -> list[Any]:
        """Evaluates the nodes on `args` (arrays or tracers) by `run` and returns the outputs as a list.

        Args:
            args: arrays or tracers, one for each input.
            run: runs one command, as `bind` does.
        """
        environment: dict[Symbol, Any] = dict(zip(self.inputs, args, strict=True))
        for symbol, x in self.constants.items():
            # a trace takes NumPy scalars for constants, arrays for captures
            environment[symbol] = x if x.ndim else x[()]
        last_use = {symbol: i for i, node in enumerate(self.nodes) for symbol in node.inputs}
        kept = {*self.outputs, *self.inputs, *self.constants}
        for i, node in enumerate(self.nodes):
            operands = [environment[symbol] for symbol in node.inputs]
            with set_context(source=node.source):
                results = run(node.command, operands, dict(node.params), node.graphs)
            environment.update(zip(node.outputs, results, strict=True))
            for symbol in node.inputs:  # frees values after their last use
                if last_use[symbol] == i and symbol not in kept:
                    environment.pop(symbol, None)
        return [environment[symbol] for symbol in self.outputs]

    @api_boundary
    def __call__(self, *args: Any) -> Any:
        """Returns the outputs (a single one by itself) for these inputs, whose specs must be the graph's."""
        if len(args) != len(self.inputs):
            problem = f"the graph takes {len(self.inputs)} inputs, {len(args)} were given."
            raise user_error(ArgumentError, self.name, problem, fix="pass one array for each input of the graph.")
        args = tuple(_taken(arg, symbol.spec) for symbol, arg in zip(self.inputs, args, strict=True))
        for i, (symbol, arg) in enumerate(zip(self.inputs, args, strict=True)):
            spec = spec_of(arg)
            if (spec.shape, spec.dtype) != (symbol.spec.shape, symbol.spec.dtype):
                problem = f"input {i} has another shape or dtype than the graph was made for."
                operands = {"expected": symbol.spec, "given": spec}
                fix = "convert the argument, or make the graph anew."
                raise user_error(ShapeError, self.name, problem, operands=operands, fix=fix)
        to_array = command("copy")  # for constants and inputs that are returned as they are: NumPy values
        outputs = [x if hasattr(x, "spec") else to_array(x) for x in self.evaluate(args)]
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def __str__(self) -> str:
        return to_text(self)

    def __repr__(self) -> str:
        return f"<Graph {self.name}: {len(self.inputs)} inputs, {len(self.nodes)} nodes, {len(self.outputs)} outputs>"

    def _repr_html_(self) -> str:
        return show_text(repr(self), str(self))


def _taken(arg: Any, spec: TensorSpec) -> Any:
    """Returns an argument of a graph; numbers take the dtype of the input."""
    if dtypes.is_scalar(arg):
        return spec.dtype.type(arg)
    own = getattr(arg, "spec", spec).dtype
    if getattr(arg, "weak", False) and own != spec.dtype and dtypes.raise_kind(spec.dtype, own) == spec.dtype:
        return command("convert")(arg, dtype=spec.dtype)
    return arg


from nnc.graph.text import to_text  # noqa: E402  (the text form needs the types above)

__all__ = ["Graph", "Node", "Symbol"]
