"""Checks the invariants of a graph; tests and debug mode run it after every pass."""

from __future__ import annotations

from typing import Any, NoReturn

from nnc.base.source import SourceLine
from nnc.errors import GraphError, InternalError, NncError, user_error
from nnc.graph.builder import infer_specs
from nnc.graph.graph import Graph, Node, Symbol
from nnc.graph.registry import COMMANDS
from nnc.graph.spec import TensorSpec, spec_of
from nnc.graph.text import symbol_numbers

__all__ = ["verify"]

_FIX = "build graphs with GraphBuilder; a pass that edits nodes must give every symbol one writer that precedes its readers."


def verify(graph: Graph) -> Graph:
    """Checks every invariant of `graph` and of its sub-graphs.

    Each symbol is written once and before it is read; sub-graphs are closed (they share no symbol with the graphs around
    them); commands are registered, have their number of inputs and outputs, and their shape rule yields the recorded specs;
    parameters are hashable; constants have their symbol's shape and dtype.

    Args:
        graph: any graph.

    Returns:
        the graph itself.

    Raises:
        GraphError: an invariant is broken; the message names the node, the symbol and the user's line.

    Example:
        >>> verify(make_graph(lambda x: x + x)(nnp.ones(2)))
        <Graph <lambda>: 1 inputs, 1 nodes, 1 outputs>
    """
    _Check(graph).graph(graph, "", ())
    return graph


class _Check:
    """One run of `verify` on `root`."""

    def __init__(self, root: Graph) -> None:
        self.root = root
        self.checked: dict[Graph, set[Symbol]] = {}  # the symbols of each graph that was checked and of its sub-graphs

    def graph(self, graph: Graph, place: str, enclosing: tuple[set[Symbol], ...]) -> None:
        """Checks a graph; `place` says of which node it is a sub-graph, `enclosing` holds the symbols of those around it."""
        if graph in self.checked and all(outer.isdisjoint(self.checked[graph]) for outer in enclosing):
            return
        symbols = self.written_once(graph, place, enclosing)
        for symbol, value in graph.constants.items():
            spec = spec_of(value)
            if (spec.shape, spec.dtype) != (symbol.spec.shape, symbol.spec.dtype):
                self.fail(place, f"constant {self.name(symbol)} has another shape or dtype than its value, {spec}.")
        defined = {*graph.inputs, *graph.constants}
        for position, node in enumerate(graph.nodes):
            where = f"{place}node {position} ({node.command.name})"
            for i, symbol in enumerate(node.inputs):
                if symbol not in defined:
                    what = self.explain_missing(symbol, symbols, enclosing)
                    self.fail(f"{where}: ", f"input {i}, {self.name(symbol)}, {what}", node.source)
            self.node(node, where)
            for i, sub_graph in enumerate(node.graphs):
                self.graph(sub_graph, f"{where}, sub-graph {i}, ", (*enclosing, symbols))
            defined.update(node.outputs)
        for i, symbol in enumerate(graph.outputs):
            if symbol not in defined:
                what = self.explain_missing(symbol, symbols, enclosing)
                self.fail(place, f"graph output {i}, {self.name(symbol)}, {what}")
        inner = (self.checked[sub_graph] for node in graph.nodes for sub_graph in node.graphs)
        self.checked[graph] = symbols.union(*inner)

    def written_once(self, graph: Graph, place: str, enclosing: tuple[set[Symbol], ...]) -> set[Symbol]:
        """Returns the symbols of `graph`, each written in one place only."""
        writers: dict[Symbol, tuple[str, SourceLine | None]] = {}
        entries: list[tuple[str, SourceLine | None, Symbol]] = [("an input", None, symbol) for symbol in graph.inputs]
        entries += [("a constant", None, symbol) for symbol in graph.constants]
        entries += [
            (f"node {i} ({node.command.name})", node.source, s)
            for i, node in enumerate(graph.nodes)
            for s in node.outputs
        ]
        for writer, source, symbol in entries:
            if symbol in writers:
                first, line = writers[symbol]
                at = f" (at {line})" if line is not None else ""
                self.fail(place, f"{self.name(symbol)} is written twice: by {first}{at} and by {writer}.", source)
            if any(symbol in outer for outer in enclosing):
                self.fail(place, f"{writer} writes {self.name(symbol)}, a symbol of an enclosing graph.", source)
            writers[symbol] = (writer, source)
        return set(writers)

    def node(self, node: Node, where: str) -> None:
        """Checks command, parameters and specs of a node."""
        place, cmd = f"{where}: ", node.command
        if COMMANDS.get(cmd.name) is not cmd:
            self.fail(place, f"command {cmd.name!r} is not registered.", node.source)
        for name, value in node.params.items():
            try:
                hash(value)
            except TypeError:
                self.fail(place, f"parameter {name}={value!r} is not hashable ({type(value).__name__}).", node.source)
        given = tuple(symbol.spec for symbol in node.inputs)
        try:
            specs = infer_specs(cmd, given, node.params, node.graphs)
        except InternalError:
            raise
        except NncError as error:
            raise self.error(place, f"the command does not take these inputs: {error}", node.source) from error
        if (cmd.outputs is not None and len(node.outputs) != cmd.outputs) or len(specs) != len(node.outputs):
            self.fail(place, f"it has {len(node.outputs)} outputs, the command yields {len(specs)}.", node.source)
        for i, (symbol, spec) in enumerate(zip(node.outputs, specs, strict=True)):
            if symbol.spec != spec:
                operands = {"recorded": symbol.spec, "inferred": spec}
                self.fail(
                    place, f"output {i}, {self.name(symbol)}, has another spec than inferred.", node.source, operands
                )

    def name(self, symbol: Any) -> str:
        """Returns the symbol as the readable form numbers it."""
        if not isinstance(symbol, Symbol):
            return f"{symbol!r} (a {type(symbol).__name__}, not a symbol)"
        name = f" {symbol.name}" if symbol.name else ""
        return f"%{symbol_numbers(self.root)[symbol]}{name}: {symbol.spec}"

    def explain_missing(self, symbol: Symbol, symbols: set[Symbol], enclosing: tuple[set[Symbol], ...]) -> str:
        """Returns the reason why a symbol has no value where it is read."""
        if symbol in symbols:
            return "is read before the node that writes it."
        if any(symbol in outer for outer in enclosing):
            return "belongs to an enclosing graph; a sub-graph is closed and takes outer values as inputs."
        return "is written nowhere in this graph."

    def error(
        self, place: str, problem: str, source: SourceLine | None = None, operands: dict[str, TensorSpec] | None = None
    ) -> GraphError:
        """Returns the error for a broken invariant at `place`."""
        where = f"verify({self.root.name})"
        return user_error(GraphError, where, f"{place}{problem}", operands=operands, fix=_FIX, source=source)

    def fail(
        self, place: str, problem: str, source: SourceLine | None = None, operands: dict[str, TensorSpec] | None = None
    ) -> NoReturn:
        """Raises the error for a broken invariant at `place`."""
        raise self.error(place, problem, source, operands)
