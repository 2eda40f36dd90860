"""Applies rewrite rules (`rewrite_rule.py`) to graphs.

A site is recognised first by the commands and numbers just above a node, then by the form of a left side. Then the rule is run
for the specs that stand there, and only a left side that agrees in every parameter, spec, constant and sub-graph, too, is
replaced.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from nnc.errors import NncError
from nnc.graph.dispatch import Command
from nnc.graph.graph import Graph, NDArray, Node, Symbol
from nnc.graph.hashing import same_params, structurally_equal
from nnc.graph.rewrite_rule import Equation, Form, Kind, Pattern, RewriteRule, RuleError, kind_of, number_of
from nnc.graph.spec import TensorSpec

__all__ = ["apply_rules"]

_GIVEN: Kind = (Command("given"), None)  # of a graph's inputs


def apply_rules(
    graph: Graph, rules: Sequence[RewriteRule], *, exact: bool = False, max_rewrites: int | None = None
) -> Graph:
    """Rewrites `graph` and its sub-graphs until no rule applies; where several do, the first in `rules`.

    Inputs and the specs of outputs stay. Nodes that only served a replaced left side are dropped; other dead nodes are left
    to dead code elimination. Cost: one look at each node, also at nodes that rules make.

    Args:
        graph: any graph.
        rules: the rules, in the order in which they are tried.
        exact: use only the rules that are exact.
        max_rewrites: more than these mean that the rules run in a circle.

    Returns:
        the graph itself where nothing applies.

    Raises:
        RuleError: `max_rewrites` is exceeded, or a rule is no equation.

    Example:
        >>> from nnc.commands import elementwise as ew
        >>> @nnc.graph.rewrite_rule()
        ... def double_negative(x):
        ...     return ew.neg(ew.neg(x)), x
        >>> len(apply_rules(make_graph(lambda x: -(-x))(1.0), [double_negative]).nodes)
        0
    """
    chosen = [rule for rule in rules if rule.exact or not exact]
    limit = max_rewrites if max_rewrites is not None else 32 * graph.num_nodes + 256
    return _Rewriter(chosen, limit).graph(graph)


def finds(rule: RewriteRule, left: Graph) -> bool:
    """Whether `rule` applies to the last node of `left`."""
    rewriting = _Rewriting(_Rewriter([rule], 1), left)
    for node in left.nodes:
        rewriting.append(node)
    return rewriting.find(left.nodes[-1]) is not None


# -- finding sites -----------------------------------------------------------------------------------------------------


class _Match(NamedTuple):
    """The symbols and nodes of the graph that match a form's, in its order."""

    symbols: tuple[Symbol, ...]
    nodes: tuple[Node, ...]


def _match(form: Form, root: Node, writers: Mapping[Symbol, Node], numbers: Mapping[Symbol, Any]) -> _Match | None:
    """Matches a form with the graph that ends in `root`; `numbers` are the graph's constants."""
    symbols: list[Any] = [None] * form.symbols
    nodes: list[Node] = []
    for step in form.steps:
        node = writers.get(symbols[step.through]) if nodes else root
        if node is None or node.command is not step.command or node.params.keys() != step.params:
            return None
        if len(node.graphs) != step.graphs:
            return None
        for places, actual in ((step.outputs, node.outputs), (step.inputs, node.inputs)):
            if len(places) != len(actual):
                return None
            for place, symbol in zip(places, actual, strict=True):
                if symbols[place] is None:
                    symbols[place] = symbol
                elif symbols[place] is not symbol:
                    return None
        nodes.append(node)
    for place, number in form.constants:
        if symbols[place] not in numbers or (number is not None and number != numbers[symbols[place]]):
            return None
    return _Match(tuple(symbols), tuple(nodes)) if None not in symbols else None  # it is where no node reads a variable


def _agrees(equation: Equation, pattern: Pattern, match: _Match, constants: Mapping[Symbol, NDArray]) -> bool:
    """Whether nodes that match a pattern are a left side, also in all specs, parameters, sub-graphs and constants."""
    if equation.form.steps != pattern.form.steps:
        return False
    for wanted, node in zip(equation.nodes, match.nodes, strict=True):
        if not same_params(wanted.params, node.params):
            return False
        if not all(structurally_equal(a, b) for a, b in zip(wanted.graphs, node.graphs, strict=True)):
            return False
    for symbol, actual in zip(equation.symbols, match.symbols, strict=True):
        if symbol.spec != actual.spec:
            return False
        value = equation.left.constants.get(symbol)
        if value is not None and value.tobytes() != np.asarray(constants[actual]).tobytes():
            return False
    return True


class _Rewriter:
    """One run of `apply_rules`."""

    def __init__(self, rules: Sequence[RewriteRule], limit: int) -> None:
        self._rules = rules
        self._candidates: dict[Command, list[tuple[RewriteRule, Pattern]]] = {}
        self.limit, self.count = limit, 0
        self._fitting: dict[tuple[Command, tuple[Kind, ...]], list[tuple[RewriteRule, Pattern]]] = {}
        self._equations: dict[tuple[RewriteRule, tuple[TensorSpec, ...], str], Equation | None] = {}
        self._finished: dict[Graph, Graph] = {}

    def graph(self, graph: Graph) -> Graph:
        """`graph` rewritten until nothing applies."""
        if graph not in self._finished:
            after = _Rewriting(self, graph).result()
            self._finished[graph] = self._finished[after] = after
        return self._finished[graph]

    def candidates(self, command: Command) -> Sequence[tuple[RewriteRule, Pattern]]:
        """Returns the rules and patterns whose root is a node of this command."""
        found = self._candidates.get(command)
        if found is None:
            able = [rule for rule in self._rules if rule.root in (None, command)]
            every = [(rule, pattern) for rule in able for pattern in rule.patterns]
            found = [(rule, pattern) for rule, pattern in every if pattern.form.steps[0].command is command]
            self._candidates[command] = found
        return found

    def fitting(self, command: Command, kinds: tuple[Kind, ...]) -> Sequence[tuple[RewriteRule, Pattern]]:
        """The candidates for a node of this command, with operands of these kinds."""
        found = self._fitting.get((command, kinds))
        if found is None:
            found = [(rule, pattern) for rule, pattern in self.candidates(command) if pattern.fits(kinds)]
            self._fitting[command, kinds] = found
        return found

    def instantiate(
        self, rule: RewriteRule, specs: tuple[TensorSpec, ...], statics: Mapping[str, Any]
    ) -> Equation | None:
        """Both sides for these specs, made once; None where the rule's commands do not take them."""
        key = rule, specs, repr(statics)
        if key not in self._equations:
            try:
                self._equations[key] = rule.instantiate(specs, statics)
            except RuleError:
                raise
            except NncError:
                self._equations[key] = None
        return self._equations[key]

    def count_rewrite(self, rule: RewriteRule) -> None:
        """Takes note of a rewrite; raises if there were too many."""
        self.count += 1
        if self.count > self.limit:
            raise rule.error(
                f"it still applies after {self.limit} rewrites; the rules run in a circle.",
                "remove the rule that undoes another, or pass a larger max_rewrites.",
            )


# -- rewriting ---------------------------------------------------------------------------------------------------------


class _Rewriting:
    """The rewriting of one graph, from its first node to its last.

    Nodes above a node are final when the node is looked at, and so are the nodes that a rule made in place of another, which
    are looked at first. So one look at each is enough.
    """

    def __init__(self, rewriter: _Rewriter, graph: Graph) -> None:
        self.rewriter, self.source = rewriter, graph
        self.nodes: list[Node] = []
        self.writers: dict[Symbol, Node] = {}
        self.constants = dict(graph.constants)
        self.numbers = {symbol: number_of(value) for symbol, value in graph.constants.items()}
        self.kinds: dict[Symbol, Kind] = {symbol: (None, number) for symbol, number in self.numbers.items()}
        self.renamed: dict[Symbol, Symbol] = {}
        self.replaced: set[Node | Symbol] = set()  # inner nodes and constants of left sides
        self.changed = False

    def result(self) -> Graph:
        """Returns the graph with rules applied; the same object where none applies."""
        for old in self.source.nodes:
            waiting = [old]
            while waiting:
                node = self.renew(waiting.pop())
                found = self.find(node)
                if found is None:
                    self.append(node)
                else:
                    self.changed = True
                    waiting += reversed(self.right_side(*found))
        if not self.changed:
            return self.source
        outputs = tuple([self.current(symbol) for symbol in self.source.outputs])
        nodes, read = self.without_dead(outputs)
        constants = {s: value for s, value in self.constants.items() if s in read or s not in self.replaced}
        return self.source.update(nodes=nodes, constants=constants, outputs=outputs)

    @cached_property
    def readers(self) -> Counter[Symbol]:
        """Counts the reads of each symbol of the given graph, as an output, too."""
        read = chain.from_iterable([node.inputs for node in self.source.nodes])
        return Counter(chain(read, self.source.outputs))

    def append(self, node: Node) -> None:
        """Adds a node to the result."""
        self.nodes.append(node)
        kind = kind_of(node.command, node.inputs, self.numbers)
        for symbol in node.outputs:
            self.writers[symbol] = node
            self.kinds[symbol] = kind

    def current(self, symbol: Symbol) -> Symbol:
        """Returns the present replacement of a symbol."""
        while symbol in self.renamed:
            symbol = self.renamed[symbol]
        return symbol

    def renew(self, node: Node) -> Node:
        """Returns the node with the inputs that it has by now and its sub-graphs rewritten; itself where neither changed."""
        inputs, graphs = node.inputs, node.graphs
        if not self.renamed.keys().isdisjoint(inputs):
            inputs = tuple([self.current(symbol) for symbol in inputs])
        if graphs:
            graphs = tuple([self.rewriter.graph(graph) for graph in graphs])
        if inputs is node.inputs and graphs == node.graphs:
            return node
        self.changed = True
        return node.update(inputs=inputs, graphs=graphs)

    def find(self, node: Node) -> tuple[Equation, _Match] | None:
        """Returns the first rule whose left side is the graph that ends in `node`."""
        rewriter, kinds = self.rewriter, self.kinds
        if not rewriter.candidates(node.command):
            return None
        above = tuple([kinds.get(symbol, _GIVEN) for symbol in node.inputs])
        for rule, pattern in rewriter.fitting(node.command, above):
            match = _match(pattern.form, node, self.writers, self.numbers)
            if match is None:
                continue
            specs = tuple([symbol.spec for symbol in match.symbols[: pattern.form.variables]])
            statics = {name: match.nodes[i].params[key] for name, (i, key) in pattern.statics.items()}
            if rule.when is not None and not rule.when(*specs, **statics):
                continue
            if rule.sole and any(self.readers[s] > 1 for inner in match.nodes[1:] for s in inner.outputs):
                continue
            equation = rewriter.instantiate(rule, specs, statics)
            if equation is not None and _agrees(equation, pattern, match, self.constants):
                rewriter.count_rewrite(rule)
                return equation, match
        return None

    def right_side(self, equation: Equation, match: _Match) -> list[Node]:
        """Returns the nodes of the right side; they write the symbols of the replaced node where they can, else these are
        renamed.

        Each has the source line of the left side's node with the same command, else the line of the replaced node.
        """
        root, right = match.nodes[0], equation.right
        values = dict(zip(equation.symbols, match.symbols, strict=True))
        self.replaced.update(match.nodes)
        self.replaced.update([values[symbol] for symbol in equation.left.constants])
        for constant, value in right.constants.items():
            if constant not in values:
                values[constant] = new = Symbol(constant.spec, constant.name)
                self.constants[new], self.numbers[new] = value, number_of(value)
                self.kinds[new] = None, self.numbers[new]
        result = dict(zip(reversed(right.outputs), reversed(root.outputs), strict=True))
        lines = {old.command: old.source for old in (*match.nodes, root)}
        made: list[Node] = []
        for node in right.nodes:
            if node not in equation.nodes:
                for symbol in node.outputs:
                    values[symbol] = result[symbol] if symbol in result else Symbol(symbol.spec, symbol.name)
                inputs = tuple([values[symbol] for symbol in node.inputs])
                outputs = tuple([values[symbol] for symbol in node.outputs])
                made.append(node.update(inputs=inputs, outputs=outputs, source=lines.get(node.command, root.source)))
        for symbol, old in zip(right.outputs, root.outputs, strict=True):
            if values[symbol] is not old:
                self.renamed[old] = values[symbol]
        return made

    def without_dead(self, outputs: tuple[Symbol, ...]) -> tuple[tuple[Node, ...], set[Symbol]]:
        """Returns the nodes but those inner nodes of replaced left sides that nothing reads, and all symbols that are read."""
        read = set(outputs)
        kept: list[Node] = []
        for node in reversed(self.nodes):
            if node not in self.replaced or not read.isdisjoint(node.outputs):
                kept.append(node)
                read.update(node.inputs)
        return tuple(reversed(kept)), read
