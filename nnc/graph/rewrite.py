"""Rewrite rules as equations: a function of tensors that returns the two sides of an equality.

A rule is run on symbols, so both sides are graphs made with ordinary commands. Its samples (specs of the variables) give the
shape of the left side, by which sites are found; at a site the rule is run again for the specs that stand there, and only a
left side that then agrees in every parameter, spec, constant and sub-graph is replaced.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from nnc import dtypes
from nnc.errors import ArgumentError, GraphError, NncError, user_error
from nnc.graph.builder import GraphBuilder
from nnc.graph.graph import Graph, NDArray, Node, Symbol
from nnc.graph.hashing import same_params, structurally_equal
from nnc.graph.registry import Command
from nnc.graph.spec import TensorSpec

_DEFAULT_SPEC = TensorSpec((2, 3), dtypes.float32)
_MARKABLE = (int, float, complex, str, bytes, tuple)


class RuleError(GraphError):
    """A rewrite rule is no equation, is false, or runs in a circle with others."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Specs of a rule's variables and values of its static parameters."""

    specs: tuple[TensorSpec, ...]
    params: Mapping[str, Any] = field(default_factory=dict)


def sample(*specs: TensorSpec, **params: Any) -> Sample:
    """A sample for a rule: one spec for each variable, one value for each static parameter."""
    return Sample(specs, params)


@dataclass(frozen=True, slots=True, eq=False)
class Equation:
    """Both sides of a rule for concrete specs. `root` is the node that writes the left side."""

    variables: tuple[Symbol, ...]
    left: tuple[Symbol, ...]
    right: tuple[Symbol, ...]
    nodes: tuple[Node, ...]
    constants: Mapping[Symbol, NDArray]
    writers: Mapping[Symbol, Node]
    root: Node

    def side(self, outputs: tuple[Symbol, ...], name: str) -> Graph:
        """One side as a graph of the variables."""
        return Graph(self.variables, outputs, self.nodes, self.constants, name=name).restrict(outputs)


@dataclass(frozen=True, eq=False)
class Pattern:
    """The left side of a rule without its specs; `statics` says at which node a static parameter is read off, and where."""

    equation: Equation
    statics: Mapping[str, tuple[Node, str]]

    @cached_property
    def wanted(self) -> tuple[tuple[int, Command | None], ...]:
        """What writes each operand of the root that is no variable (None: a constant): most sites fail this already."""
        kinds = _kinds(self.equation.root, self.equation.writers, self.equation.constants)
        return tuple((i, kind) for i, kind in enumerate(kinds) if kind is not _ANYTHING)

    @cached_property
    def depth(self) -> int:
        """How many nodes stand on the longest way up from the root, the root itself not counted."""
        equation, depths = self.equation, dict[Node, int]()
        for node in equation.nodes:
            above = [depths[equation.writers[symbol]] for symbol in node.inputs if symbol in equation.writers]
            depths[node] = 1 + max(above, default=-1)
        return depths[equation.root]


@dataclass(frozen=True, eq=False)
class Rule:
    """An equation between graphs, used from left to right.

    `function(*variables, **statics)` returns both sides; `when(*specs, **statics)` is a side condition; `exact` says that
    both sides are equal bit for bit; `samples` serve to find the left side and to check the rule.
    """

    function: Callable[..., tuple[Any, Any]]
    when: Callable[..., bool] | None
    exact: bool
    samples: tuple[Sample, ...]

    @property
    def name(self) -> str:
        """The name of the function."""
        return self.function.__name__

    def __repr__(self) -> str:
        return f"<Rule {self.name}>"

    @cached_property
    def patterns(self) -> tuple[Pattern, ...]:
        """The forms that the left side takes over the samples."""
        patterns: list[Pattern] = []
        for case in self.samples:
            marked = {name: _mark(value) for name, value in case.params.items()}
            equation = self.instantiate(case.specs, marked)
            if not any(_same_form(known.equation, equation) for known in patterns):
                patterns.append(Pattern(equation, self._find_statics(equation, marked)))
        return tuple(patterns)

    def _find_statics(self, equation: Equation, marked: Mapping[str, Any]) -> dict[str, tuple[Node, str]]:
        left = equation.side(equation.left, self.name).nodes
        places = [(node, key, value) for node in left for key, value in node.params.items()]
        found: dict[str, tuple[Node, str]] = {}
        for name, mark in marked.items():
            place = next(((node, key) for node, key, value in places if value is mark), None)
            if place is None:
                raise self.error(
                    f"static parameter {name!r} is not a parameter of a node of the left side.",
                    "pass it to a command of the left side as it is.",
                )
            found[name] = place
        return found

    def instantiate(self, specs: Sequence[TensorSpec], params: Mapping[str, Any]) -> Equation:
        """Both sides for variables of `specs`.

        Raises:   RuleError: the rule is no equation: see the message. NncError: a command does not take the specs.
        """
        builder = GraphBuilder(self.name)
        variables = tuple(builder.input(spec) for spec in specs)
        with builder:
            sides = self.function(*variables, **params)
        if not isinstance(sides, tuple) or len(sides) != 2:
            raise self.error("it does not return two sides.", "return (left, right).")
        left, right = (side if isinstance(side, tuple) else (side,) for side in sides)
        graph = builder.build(*left, *right)
        writers = {symbol: node for node in graph.nodes for symbol in node.outputs}
        root = writers.get(left[0]) if left else None
        if root is None or root.outputs != left:
            raise self.error(
                "the left side is not all that one command yields.", "return a command's output as the left side."
            )
        if [symbol.spec for symbol in left] != [symbol.spec for symbol in right]:
            raise self.error(
                f"the sides differ in spec: {', '.join(str(symbol.spec) for symbol in left)} = "
                f"{', '.join(str(symbol.spec) for symbol in right)}.",
                "convert the right side, or state a condition with when=.",
            )
        equation = Equation(variables, left, right, graph.nodes, graph.constants, writers, root)
        if root in equation.side(right, self.name).nodes:
            raise self.error("the right side reads the left side.", "write the right side without it.")
        return equation

    def error(self, problem: str, fix: str, operands: Mapping[str, Any] | None = None) -> RuleError:
        """The error for a mistake in this rule."""
        return user_error(RuleError, f"rule {self.name}", problem, operands=operands, fix=fix)


def rewrite_rule(
    *, when: Callable[..., bool] | None = None, exact: bool = True, samples: Sequence[Sample] = ()
) -> Callable[[Callable[..., tuple[Any, Any]]], Rule]:
    """Makes a rewrite rule of the decorated function.

    Its positional parameters are tensors of any spec, its keyword-only ones static parameters, each of which some command
    of the left side is given as it is. Commands called in it build the two sides, which it returns.

    Args:     when: side condition `(*specs, **statics) -> bool`. exact: both sides are equal bit for bit, for all inputs.
              samples: specs that the commands take, at least one for each form of the left side; 2x3 float32 by default.
    Raises:   ArgumentError: there are static parameters, but no samples.
    Example:
        >>> @rewrite_rule()
        ... def double_negation(x):
        ...     return command("neg")(command("neg")(x)), x
        >>> graph = make_graph(lambda x: -(-x))(nnp.ones(2))
        >>> len(apply_rules(graph, [double_negation]).nodes)
        0
    """

    def make(function: Callable[..., tuple[Any, Any]]) -> Rule:
        parameters = inspect.signature(function).parameters.values()
        variables = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        if not samples and len(variables) != len(parameters):
            raise user_error(
                ArgumentError, f"rule {function.__name__}", "it has static parameters, but no samples of them.",
                fix="pass samples=[sample(spec, ..., name=value)].",
            )  # fmt: skip
        default = (Sample((_DEFAULT_SPEC,) * len(variables)),)
        return Rule(function, when, exact, tuple(samples) or default)

    return make


_ANYTHING = Command("anything")  # stands for operands that nothing in the graph writes


def _kinds(
    node: Node, writers: Mapping[Symbol, Node], constants: Mapping[Symbol, NDArray]
) -> tuple[Command | None, ...]:
    """The command that writes each operand of a node, None for constants."""
    return tuple(
        writers[symbol].command if symbol in writers else None if symbol in constants else _ANYTHING
        for symbol in node.inputs
    )


def _same_form(a: Equation, b: Equation) -> bool:
    """Whether two left sides have the same commands and wiring."""
    there, back = _match(a, b.root, b.writers, b.constants), _match(b, a.root, a.writers, a.constants)
    return there is not None and back is not None and [there.symbols[s] for s in a.variables] == list(b.variables)


def _mark(value: Any) -> Any:
    """An equal value that can be told from all others by identity, where its type allows."""
    kind = type(value)
    return type(kind.__name__, (kind,), {})(value) if kind in _MARKABLE else value


# -- matching ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class _Match:
    """What the symbols and nodes of a left side stand for."""

    symbols: dict[Symbol, Symbol]
    nodes: dict[Node, Node]


def _match(
    equation: Equation,
    root: Node,
    writers: Mapping[Symbol, Node],
    constants: Mapping[Symbol, NDArray],
    *,
    exactly: bool = False,
) -> _Match | None:
    """Matches the left side with the graph that ends in `root`: commands and wiring, and `exactly` everything else too."""
    match = _Match({}, {})
    pairs = [(equation.root, root)]
    while pairs:
        wanted, node = pairs.pop()
        if not _agree(wanted, node, exactly):
            return None
        match.nodes[wanted] = node
        for symbol, actual in zip(wanted.outputs, node.outputs, strict=True):
            if match.symbols.setdefault(symbol, actual) is not actual:
                return None
        for symbol, actual in zip(wanted.inputs, node.inputs, strict=True):
            if symbol in match.symbols:
                if match.symbols[symbol] is not actual:
                    return None
                continue
            match.symbols[symbol] = actual
            if symbol in equation.writers:
                if actual not in writers:
                    return None
                pairs.append((equation.writers[symbol], writers[actual]))
            elif not _agree_leaf(equation, symbol, actual, constants, exactly):
                return None
    return match if all(symbol in match.symbols for symbol in equation.variables) else None


def _agree(wanted: Node, node: Node, exactly: bool) -> bool:
    if wanted.command is not node.command or len(wanted.inputs) != len(node.inputs):
        return False
    if len(wanted.outputs) != len(node.outputs) or len(wanted.graphs) != len(node.graphs):
        return False
    return not exactly or (
        [a.spec for a in wanted.outputs] == [b.spec for b in node.outputs]
        and same_params(wanted.params, node.params)
        and all(structurally_equal(a, b) for a, b in zip(wanted.graphs, node.graphs, strict=True))
    )


def _agree_leaf(
    equation: Equation, wanted: Symbol, actual: Symbol, constants: Mapping[Symbol, NDArray], exactly: bool
) -> bool:
    """Whether `actual` may stand for a variable or a constant of the left side."""
    if exactly and wanted.spec != actual.spec:
        return False
    if wanted not in equation.constants:
        return True
    return actual in constants and (
        not exactly or equation.constants[wanted].tobytes() == np.asarray(constants[actual]).tobytes()
    )


# -- rewriting ---------------------------------------------------------------------------------------------------------


def apply_rules(graph: Graph, rules: Sequence[Rule], *, exact: bool = False, max_rewrites: int | None = None) -> Graph:
    """Rewrites `graph` and its sub-graphs until no rule applies; where several do, the first in `rules`.

    Inputs and the specs of outputs stay. Nodes that only served a replaced left side are dropped; other dead nodes are left
    to dead code elimination. Cost: one sweep over the nodes for each round of rewrites that enable others.

    Args:     exact: use only the rules that are exact. max_rewrites: more than these mean that the rules run in a circle.
    Returns:  the graph itself where nothing applies.
    Raises:   RuleError: `max_rewrites` is exceeded, or a rule is no equation.
    """
    chosen = [rule for rule in rules if rule.exact or not exact]
    limit = max_rewrites if max_rewrites is not None else 32 * sum(1 for _ in graph.walk()) + 256
    return _Rewriter(chosen, limit).graph(graph)


def finds(rule: Rule, equation: Equation) -> bool:
    """Whether `rule` applies to the left side of `equation`."""
    return _Rewriter([rule], 1).find(equation.root, equation.writers, equation.constants) is not None


class _Rewriter:
    """One run of `apply_rules`."""

    def __init__(self, rules: Sequence[Rule], limit: int) -> None:
        self.candidates: dict[str, list[tuple[Rule, Pattern]]] = {}
        for rule in rules:
            for pattern in rule.patterns:
                self.candidates.setdefault(pattern.equation.root.command.name, []).append((rule, pattern))
        patterns = [pattern for found in self.candidates.values() for _, pattern in found]
        self.depth = max((pattern.depth for pattern in patterns), default=0)
        self.fitting: dict[tuple[str, tuple[Command | None, ...]], list[tuple[Rule, Pattern]]] = {}
        self.tried: set[Node] = set()  # nodes at which nothing was found
        self.limit, self.count = limit, 0
        self.finished: dict[Graph, Graph] = {}
        self.equations: dict[tuple[Rule, tuple[TensorSpec, ...], str], Equation | None] = {}

    def graph(self, graph: Graph) -> Graph:
        """`graph` rewritten until nothing applies."""
        if graph in self.finished:
            return self.finished[graph]
        before, after = None, graph
        while after is not before:
            before, after = after, _Sweep(self, after).run()
        self.finished[graph] = self.finished[after] = after
        return after

    def find(
        self, node: Node, writers: Mapping[Symbol, Node], constants: Mapping[Symbol, NDArray]
    ) -> tuple[Equation, _Match] | None:
        """The first rule whose left side is the graph that ends in `node`."""
        name = node.command.name
        if name not in self.candidates:
            self.tried.add(node)
            return None
        for rule, pattern in self._fitting(name, _kinds(node, writers, constants)):
            rough = _match(pattern.equation, node, writers, constants)
            if rough is None:
                continue
            specs = [rough.symbols[symbol].spec for symbol in pattern.equation.variables]
            sites = {name: (rough.nodes[wanted].params, key) for name, (wanted, key) in pattern.statics.items()}
            if any(key not in params for params, key in sites.values()):
                continue
            statics = {name: params[key] for name, (params, key) in sites.items()}
            if rule.when is not None and not rule.when(*specs, **statics):
                continue
            equation = self.instantiate(rule, specs, statics)
            match = _match(equation, node, writers, constants, exactly=True) if equation is not None else None
            if equation is not None and match is not None:
                self.count += 1
                if self.count > self.limit:
                    raise rule.error(
                        f"it still applies after {self.limit} rewrites; the rules run in a circle.",
                        "remove the rule that undoes another, or pass a larger max_rewrites.",
                    )
                return equation, match
        self.tried.add(node)
        return None

    def _fitting(self, name: str, kinds: tuple[Command | None, ...]) -> list[tuple[Rule, Pattern]]:
        """The candidates for a node with operands of these kinds."""
        key = name, kinds
        if key not in self.fitting:
            self.fitting[key] = [
                (rule, pattern)
                for rule, pattern in self.candidates[name]
                if all(i < len(kinds) and kinds[i] == kind for i, kind in pattern.wanted)
            ]
        return self.fitting[key]

    def instantiate(self, rule: Rule, specs: Sequence[TensorSpec], statics: Mapping[str, Any]) -> Equation | None:
        """Both sides for these specs, made once; None where the rule's commands do not take them."""
        key = (rule, tuple(specs), repr(statics))
        if key not in self.equations:
            try:
                self.equations[key] = rule.instantiate(specs, statics)
            except RuleError:
                raise
            except NncError:
                self.equations[key] = None
        return self.equations[key]


class _Sweep:
    """One pass over the nodes of a graph, which replaces left sides as it meets their last node.

    Where an earlier sweep found nothing, nothing is looked for again until something changes that a left side could reach.
    """

    def __init__(self, rewriter: _Rewriter, graph: Graph) -> None:
        self.rewriter, self.source = rewriter, graph
        self.nodes: list[Node] = []
        self.writers: dict[Symbol, Node] = {}
        self.constants = dict(graph.constants)
        self.renamed: dict[Symbol, Symbol] = {}
        self.replaced: set[Node | Symbol] = set()  # inner nodes and constants of left sides
        self.levels: dict[Symbol, int] = {}  # how many levels of nodes above a symbol are as they were
        self.changed = False

    def run(self) -> Graph:
        """The graph after the sweep; the same object where nothing changed."""
        for old in self.source.nodes:
            node = self.renew(old)
            level = self.level(node)
            known = level > self.rewriter.depth
            found = None if known else self.rewriter.find(node, self.writers, self.constants)
            if found is None:
                self.append(node, level)
            else:
                self.changed = True
                for new in self.right_side(node, *found):
                    self.append(new)
        if not self.changed:
            return self.source
        outputs = tuple(self.renamed.get(symbol, symbol) for symbol in self.source.outputs)
        nodes, read = self.without_dead(outputs)
        constants = {s: value for s, value in self.constants.items() if s in read or s not in self.replaced}
        return self.source.update(nodes=nodes, constants=constants, outputs=outputs)

    def append(self, node: Node, level: int = 0) -> None:
        """Adds a node to the result."""
        self.nodes.append(node)
        for symbol in node.outputs:
            self.writers[symbol] = node
            self.levels[symbol] = level

    def level(self, node: Node) -> int:
        """How many levels of nodes, from this one up, are those that an earlier sweep found nothing in."""
        if node not in self.rewriter.tried:
            return 0
        most, levels = self.rewriter.depth + 1, self.levels
        return min(most, 1 + min((levels.get(symbol, most) for symbol in node.inputs), default=most))

    def renew(self, node: Node) -> Node:
        """The node with the inputs that it has by now and its sub-graphs rewritten; itself where neither changed."""
        inputs = node.inputs
        if self.renamed and any(symbol in self.renamed for symbol in inputs):
            inputs = tuple(self.renamed.get(symbol, symbol) for symbol in inputs)
        graphs = tuple(self.rewriter.graph(graph) for graph in node.graphs)
        if inputs is node.inputs and graphs == node.graphs:
            return node
        self.changed = True
        return node.update(inputs=inputs, graphs=graphs)

    def right_side(self, root: Node, equation: Equation, match: _Match) -> Iterator[Node]:
        """The nodes of the right side; they write the symbols of `root` where they can, else these are renamed.

        Each has the source line of the left side's node with the same command, else that of `root`.
        """
        self.replaced |= set(match.nodes.values())
        values = dict(match.symbols)
        self.replaced |= {values[symbol] for symbol in equation.constants if symbol in values}
        result = dict(zip(reversed(equation.right), reversed(root.outputs), strict=True))
        right = equation.side(equation.right, "")
        for constant, value in right.constants.items():
            if constant not in values:
                values[constant] = Symbol(constant.spec, constant.name)
                self.constants[values[constant]] = value
        lines = {old.command: old.source for old in (*match.nodes.values(), root)}
        for node in right.nodes:
            if node not in match.nodes:
                for symbol in node.outputs:
                    values[symbol] = result[symbol] if symbol in result else Symbol(symbol.spec, symbol.name)
                inputs = tuple(values[symbol] for symbol in node.inputs)
                outputs = tuple(values[symbol] for symbol in node.outputs)
                yield node.update(inputs=inputs, outputs=outputs, source=lines.get(node.command, root.source))
        for symbol, old in zip(equation.right, root.outputs, strict=True):
            if values[symbol] is not old:
                self.renamed[old] = values[symbol]

    def without_dead(self, outputs: tuple[Symbol, ...]) -> tuple[tuple[Node, ...], set[Symbol]]:
        """The nodes but those inner nodes of replaced left sides that nothing reads, and all symbols that are read."""
        read = set(outputs)
        kept: list[Node] = []
        for node in reversed(self.nodes):
            if node not in self.replaced or not read.isdisjoint(node.outputs):
                kept.append(node)
                read.update(node.inputs)
        return tuple(reversed(kept)), read
