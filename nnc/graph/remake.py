"""Bases of passes: those that rewrite graphs with their sub-graphs, and those that replace one node after the other."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from operator import is_
from types import MappingProxyType
from typing import Any

import numpy as np

from nnc.base.source import SourceLine
from nnc.graph.builder import infer_specs
from nnc.graph.graph import Graph, NDArray, Node, Symbol
from nnc.graph.registry import command
from nnc.graph.spec import TensorSpec


def with_renamed(node: Node, renamed: Mapping[Symbol, Symbol]) -> Node:
    """Returns the node on renamed inputs; the node itself where none is renamed."""
    if renamed.keys().isdisjoint(node.inputs):
        return node
    return node.update(inputs=tuple([renamed.get(symbol, symbol) for symbol in node.inputs]))


class OncePerGraph(ABC):
    """Rewrites each graph once, since many nodes may share a sub-graph, which stays shared."""

    def __init__(self) -> None:
        self._known: dict[Graph, Graph] = {}

    def graph(self, graph: Graph) -> Graph:
        """Rewrites a graph, or returns the earlier result for it."""
        found = self._known.get(graph)
        if found is None:
            found = self._known[graph] = self.rewrite(graph)
        return found

    @abstractmethod
    def rewrite(self, graph: Graph) -> Graph:
        """Returns the new graph; the graph itself where nothing changes."""

    def renew(self, node: Node, renamed: dict[Symbol, Symbol]) -> Node:
        """Returns the node with rewritten sub-graphs and renamed inputs; the node itself where neither changes."""
        if not node.graphs and renamed.keys().isdisjoint(node.inputs):  # as of most nodes in most passes
            return node
        node, graphs = with_renamed(node, renamed), tuple(map(self.graph, node.graphs))
        return node if graphs == node.graphs else node.update(graphs=graphs)


class NewGraph(ABC):
    """The rewritten form of one graph, which `add` makes node by node.

    `nodes` and `constants` are those of the new graph so far; `renamed` has the symbols that replace symbols of the old one.
    """

    def __init__(self, passes: OncePerGraph, graph: Graph) -> None:
        self.passes, self.graph = passes, graph
        self.constants: dict[Symbol, NDArray] = dict(graph.constants)
        self.renamed: dict[Symbol, Symbol] = {}
        self.nodes: list[Node] = []

    @cached_property
    def reads(self) -> Counter[Symbol]:
        """Counts the reads of each symbol of the old graph, those by its caller included."""
        return Counter([*(symbol for node in self.graph.nodes for symbol in node.inputs), *self.graph.outputs])

    @abstractmethod
    def add(self, node: Node) -> None:
        """Appends a node, which reads new symbols by now, and whose sub-graphs are new, or the nodes that stand for it."""

    def take(self, old: Node) -> None:
        """Takes the next node of the old graph."""
        self.add(self.passes.renew(old, self.renamed))

    def is_same(self) -> bool:
        """Whether the new graph has the nodes of the old one."""
        return len(self.nodes) == len(self.graph.nodes) and all(map(is_, self.nodes, self.graph.nodes))

    def result(self) -> Graph:
        """Returns the new graph; the graph itself where nothing changes."""
        for node in self.graph.nodes:
            self.take(node)
        if self.is_same():
            return self.graph
        outputs = tuple([self.renamed.get(symbol, symbol) for symbol in self.graph.outputs])
        return self.graph.update(nodes=tuple(self.nodes), outputs=outputs, constants=self.constants)


def rewritten(graph: Graph, form: Callable[[OncePerGraph, Graph], NewGraph]) -> Graph:
    """Returns the new form of a graph and of its sub-graphs, each of which is rewritten once."""
    return _ByForm(form).graph(graph)


class _ByForm(OncePerGraph):
    def __init__(self, form: Callable[[OncePerGraph, Graph], NewGraph]) -> None:
        super().__init__()
        self._form = form

    def rewrite(self, graph: Graph) -> Graph:
        return self._form(self, graph).result()


class Remake(NewGraph):
    """A graph in which other nodes, made by `make`, stand for some nodes with one result.

    `writers` are those of the new graph so far. A new node has the source line of the node that it replaces.
    """

    def __init__(self, passes: OncePerGraph, graph: Graph) -> None:
        super().__init__(passes, graph)
        self.writers: dict[Symbol, Node] = {}
        self.source: SourceLine | None = None
        self._changed = False

    @abstractmethod
    def new_form(self, node: Node) -> Symbol | None:
        """Returns the replacement of a node's only result; None where the node stays."""

    def take(self, old: Node) -> None:
        """See the base."""
        node = self.passes.renew(old, self.renamed)
        self.source = node.source
        found = self.new_form(node)
        if found is None:
            self.add(node)
        else:
            self.renamed[old.outputs[0]] = found
        self._changed |= node is not old or found is not None

    def is_same(self) -> bool:
        """Whether no node was replaced; nodes may have been made in vain."""
        return not self._changed

    def add(self, node: Node) -> None:
        """Appends a node."""
        self.nodes.append(node)
        for symbol in node.outputs:
            self.writers[symbol] = node

    def make(self, name: str, *inputs: Symbol, **params: Any) -> Symbol:
        """Appends a command with one result, and returns that."""
        (spec,) = infer_specs(command(name), tuple(symbol.spec for symbol in inputs), params)
        out = Symbol(spec)
        self.add(Node(command(name), inputs, (out,), MappingProxyType(params), source=self.source))
        return out

    def number(self, value: Any, like: Symbol, shape: tuple[int, ...]) -> Symbol:
        """Returns a tensor of one number, in the form that `fold` gives it."""
        array = np.asarray(value, like.dtype)
        constant = Symbol(TensorSpec((), like.dtype))
        self.constants[constant] = array
        return self.make("broadcast_to", constant, shape=shape, axes=()) if shape else constant

    def reshape(self, x: Symbol, shape: tuple[int, ...]) -> Symbol:
        """x in another shape; itself where it has that."""
        return x if x.shape == shape else self.make("reshape", x, shape=shape)

    def transpose(self, x: Symbol, permutation: tuple[int, ...]) -> Symbol:
        """x with axes in another order; itself where that is theirs."""
        return x if permutation == tuple(range(x.spec.ndim)) else self.make("transpose", x, permutation=permutation)


def append_copy(
    graph: Graph, inputs: Sequence[Symbol], nodes: list[Node], constants: dict[Symbol, NDArray]
) -> tuple[Symbol, ...]:
    """Appends the nodes of `graph` on `inputs`, with symbols of their own; returns the symbols that stand for its outputs."""
    renamed: dict[Symbol, Symbol] = dict(zip(graph.inputs, inputs, strict=True))
    for symbol, value in graph.constants.items():
        renamed[symbol] = Symbol(symbol.spec, symbol.name)
        constants[renamed[symbol]] = value
    for node in graph.nodes:
        operands = tuple(renamed[symbol] for symbol in node.inputs)
        results = tuple(Symbol(symbol.spec, symbol.name) for symbol in node.outputs)
        nodes.append(node.update(inputs=operands, outputs=results))
        renamed.update(zip(node.outputs, results, strict=True))
    return tuple(renamed[symbol] for symbol in graph.outputs)
