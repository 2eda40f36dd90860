"""Rewrite rules as equations: a function of tensors that returns the two sides of an equality.

A rule is run on symbols, so both sides are graphs made with ordinary commands. Its samples (specs of the variables) give the
forms of the left side, by which sites are found (`rewrite.py`); for the specs of a site the rule is run again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from nnc.base import dtypes
from nnc.base.context import set_context
from nnc.base.source import SourceLine
from nnc.errors import ArgumentError, GraphError, user_error
from nnc.graph.builder import GraphBuilder
from nnc.graph.dispatch import Command
from nnc.graph.graph import Graph, NDArray, Node, Symbol
from nnc.graph.spec import TensorSpec

__all__ = ["RewriteRule", "RuleError", "Sample", "rewrite_rule", "sample"]

_DEFAULT_SPEC = TensorSpec((2, 3), dtypes.float32)


class RuleError(GraphError):
    """A rewrite rule is no equation, is false, or runs in a circle with others.

    Example:
        >>> from nnc.commands import elementwise as ew
        >>> @nnc.graph.rewrite_rule()
        ... def wrong(x):
        ...     return ew.neg(x), x
        >>> nnc.graph.check_rule(wrong)
        Traceback (most recent call last):
        ...
        nnc.graph.rewrite_rule.RuleError: ...
    """


@dataclass(frozen=True, slots=True)
class Sample:
    """Specs of a rule's variables and values of its static parameters; one without a `form` of its own only serves checks.

    Args:
        specs: one for each variable.
        params: static parameters by name; values by which they can be told from each other.
        form: whether a form of the left side is made for it.

    Example:
        >>> nnc.graph.sample(TensorSpec((2,), "float32")).specs
        (TensorSpec(shape=(2,), dtype=dtype('float32'), layout='strided'),)
    """

    specs: tuple[TensorSpec, ...]
    params: Mapping[str, Any] = field(default_factory=dict)
    form: bool = True


def sample(*specs: TensorSpec, **params: Any) -> Sample:
    """Returns a sample for a rule: one spec for each variable, one value for each static parameter.

    Args:
        *specs: one for each variable.
        **params: static parameters by name.

    Example:
        >>> sample(TensorSpec((2,), "float32"), axis=0).params
        {'axis': 0}
    """
    return Sample(specs, params)


# Facts about a tensor that are quick to see: the command that writes it (None: a constant), and the number that it is or that its
# writer reads first. A tensor of one number is a broadcast of it: this rejects most places whose number differs from the rule's.
Kind = tuple[Command | None, Any]


def kind_of(writer: Command, inputs: Sequence[Any], numbers: Mapping[Any, Any]) -> Kind:
    """Returns the kind of a command's output, by the numbers that are known of constants."""
    return writer, numbers.get(inputs[0]) if inputs else None


class Step(NamedTuple):
    """A node of a form. Symbols are numbered; `through` is the one by which the node was reached."""

    through: int
    command: Command
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    params: frozenset[str]  # their names
    graphs: int


class Form(NamedTuple):
    """A left side without specs and values of parameters: its nodes from the root upwards, and its constants.

    The first symbols are the variables. Of constants without axes the number is known, of others (None) only the place.
    """

    variables: int
    symbols: int  # how many there are
    steps: tuple[Step, ...]
    constants: tuple[tuple[int, Any], ...]

    def common(self, other: Form) -> Form:
        """Returns the form without the numbers that are different in another one of the same steps."""
        pairs = zip(self.constants, other.constants, strict=True)
        return self._replace(constants=tuple([(place, a if a == b else None) for (place, a), (_, b) in pairs]))


@dataclass(frozen=True, slots=True, eq=False)
class Equation:
    """Both sides of a rule for concrete specs, as graphs of the same variables and nodes.

    `symbols` and `nodes` belong to the left side, in the order of its `form`.
    """

    left: Graph
    right: Graph
    form: Form
    symbols: tuple[Symbol, ...]
    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Pattern:
    """A form of a rule's left side.

    `statics` says at which step a static parameter is read off, and by which name; `kinds` are the kinds of the root's operands
    that are no variables, by their positions.
    """

    form: Form
    statics: Mapping[str, tuple[int, str]]
    kinds: Sequence[tuple[int, Kind]]

    @classmethod
    def of(cls, form: Form, statics: Mapping[str, tuple[int, str]]) -> Pattern:
        """Returns the pattern with its kinds."""
        numbers = dict(form.constants)
        kinds: dict[int, Kind] = {place: (None, number) for place, number in numbers.items()}
        for step in form.steps:
            kinds.update(dict.fromkeys(step.outputs, kind_of(step.command, step.inputs, numbers)))
        places = form.steps[0].inputs
        return cls(form, statics, [(i, kinds[place]) for i, place in enumerate(places) if place in kinds])

    def fits(self, kinds: Sequence[Kind]) -> bool:
        """Whether operands of these kinds may be the root's."""
        return len(kinds) == len(self.form.steps[0].inputs) and all(
            kinds[i][0] is writer and number in (None, kinds[i][1]) for i, (writer, number) in self.kinds
        )


@dataclass(frozen=True, eq=False)
class RewriteRule:
    """An equation between graphs, used from left to right.

    `function(*variables, **statics)` returns both sides; `when(*specs, **statics)` is a side condition; `exact` says that
    both sides are equal bit for bit; `samples` show the forms of the left side and serve to check the rule; `sole` says that it
    is used only where no other node reads intermediate values of the left side, which would be computed besides.

    Args:
        function: (*variables, **statics) -> (left, right).
        when: side condition, or None.
        exact: both sides are equal bit for bit.
        samples: specs that the commands take.
        sole: used only where no other node reads intermediate values of the left side.
        root: the command that yields the left side; None: the samples show it.

    Example:
        >>> @nnc.graph.rewrite_rule()
        ... def double_negative(x):
        ...     return command("neg")(command("neg")(x)), x
        >>> double_negative.name
        'double_negative'
    """

    function: Callable[..., tuple[Any, Any]]
    when: Callable[..., bool] | None
    exact: bool
    samples: tuple[Sample, ...]
    sole: bool = False
    root: Command | None = None

    @property
    def name(self) -> str:
        """The name of the function."""
        return self.function.__name__

    def __repr__(self) -> str:
        return f"<RewriteRule {self.name}>"

    @cached_property
    def patterns(self) -> tuple[Pattern, ...]:
        """The forms that the left side takes over the samples, without numbers that vary."""
        patterns: dict[tuple[Step, ...], Pattern] = {}
        for case in [case for case in self.samples if case.form]:
            equation = self.instantiate(case.specs, case.params)
            form, known = equation.form, patterns.get(equation.form.steps)
            statics = self._find_statics(equation.nodes, case.params)
            patterns[form.steps] = Pattern.of(form if known is None else form.common(known.form), statics)
        return tuple(patterns.values())

    def _find_statics(self, left: Sequence[Node], params: Mapping[str, Any]) -> dict[str, tuple[int, str]]:
        """Returns the step and the name by which each static parameter is read off: where the left side has the sample's value.

        Of several places one that has the parameter's own name is taken. A rule with a wrong place is never applied where it
        does not hold: each site is compared with both sides, built for the values that were read there.
        """
        places = [(i, key, value) for i, node in enumerate(left) for key, value in node.params.items()]
        found: dict[str, tuple[int, str]] = {}
        for name, wanted in params.items():
            same = [(i, key) for i, key, value in places if type(value) is type(wanted) and value == wanted]
            own = [place for place in same if place[1] == name]
            if not same:
                raise self.error(
                    f"static parameter {name!r} is not a parameter of a node of the left side.",
                    "pass it to a command of the left side as it is.",
                )
            if len(same) > 1 and not own:
                raise self.error(
                    f"static parameter {name!r} may be any of several parameters of the left side.",
                    "give a sample in which no other parameter has the same value.",
                )
            found[name] = (own or same)[0]
        return found

    def instantiate(self, specs: Sequence[TensorSpec], params: Mapping[str, Any]) -> Equation:
        """Both sides for variables of `specs`.

        Args:
            specs: one for each variable.
            params: static parameters by name.

        Raises:
            RuleError: the rule is no equation: see the message.
            NncError: a command does not take the specs.
        """
        builder = GraphBuilder(self.name)
        variables = tuple([builder.input(spec) for spec in specs])
        with set_context(staging=builder, level=builder.level, source=self.source):
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
        if self.root not in (None, root.command):
            problem = f"the left side ends in {root.command.name}, not in {self.root.name}."
            raise self.error(problem, f"pass root={root.command.name}, or leave it out.")
        if [symbol.spec for symbol in left] != [symbol.spec for symbol in right]:
            raise self.error(
                f"the sides differ in spec: {', '.join(str(symbol.spec) for symbol in left)} = "
                f"{', '.join(str(symbol.spec) for symbol in right)}.",
                "convert the right side, or state a condition with when=.",
            )
        left_graph, right_graph = graph.restrict(left), graph.restrict(right)
        if root in right_graph.nodes:
            raise self.error("the right side reads the left side.", "write the right side without it.")
        return Equation(left_graph, right_graph, *_take_apart(left_graph))

    @cached_property
    def source(self) -> SourceLine:
        """The line that defines the rule."""
        code = self.function.__code__
        return SourceLine(code.co_filename, code.co_firstlineno, self.name)

    def error(self, problem: str, fix: str, operands: Mapping[str, Any] | None = None) -> RuleError:
        """Returns the error for a mistake in this rule.

        Args:
            problem: the mistake, a sentence.
            fix: the remedy, a sentence.
            operands: name -> spec or value, shown on lines of their own.
        """
        return user_error(RuleError, f"rule {self.name}", problem, operands=operands, fix=fix)


def rewrite_rule(
    *,
    when: Callable[..., bool] | None = None,
    exact: bool = True,
    samples: Sequence[Sample] = (),
    sole: bool = False,
    root: Command | None = None,
) -> Callable[[Callable[..., tuple[Any, Any]]], RewriteRule]:
    """Makes a rewrite rule of the decorated function.

    Its positional parameters are tensors of any spec, its keyword-only ones static parameters; the left side must pass each to
    some command unchanged. Commands called in it build the two sides, which it returns.

    Args:
        when: side condition `(*specs, **statics) -> bool`.
        exact: both sides are equal bit for bit, for all inputs.
        samples: specs that the commands take, at least one for each form of the left side: commands, wiring, names of
            parameters. If numbers in it vary with the specs, samples must show that. 2x3 float32 by default.
        sole: use it only where no other node reads intermediate values of the left side.
        root: the command that yields the left side. Programs without it do not run the rule's function at all.

    Raises:
        ArgumentError: there are static parameters, but no samples.

    Example:
        >>> from nnc.graph import apply_rules
        >>> @rewrite_rule()
        ... def double_negation(x):
        ...     return command("neg")(command("neg")(x)), x
        >>> graph = make_graph(lambda x: -(-x))(nnp.ones(2))
        >>> len(apply_rules(graph, [double_negation]).nodes)
        0
    """

    def make(function: Callable[..., tuple[Any, Any]]) -> RewriteRule:
        code = function.__code__
        if not samples and code.co_kwonlyargcount:
            problem = "it has static parameters, but no samples of them."
            fix = "pass samples=[sample(spec, ..., name=value)]."
            raise user_error(ArgumentError, f"rule {function.__name__}", problem, fix=fix)
        default = (Sample((_DEFAULT_SPEC,) * code.co_argcount),)
        return RewriteRule(function, when, exact, tuple(samples) or default, sole, root)

    return make


def number_of(constant: NDArray) -> Any:
    """Returns the number that a constant without axes is; None for other constants, and for NaN, which equals nothing."""
    if constant.ndim or not dtypes.is_known(constant.dtype):
        return None
    number = constant.item()
    return number if number == number else None


def _take_apart(left: Graph) -> tuple[Form, tuple[Symbol, ...], tuple[Node, ...]]:
    """Returns the form of a left side, and which symbols and nodes stand in it."""
    writers = {symbol: node for node in left.nodes for symbol in node.outputs}
    places = {symbol: i for i, symbol in enumerate(left.inputs)}
    steps: list[Step] = []
    nodes: list[Node] = []
    waiting = [(-1, left.nodes[-1])]
    while waiting:
        through, node = waiting.pop()
        outputs = tuple([places.setdefault(symbol, len(places)) for symbol in node.outputs])
        for symbol in node.inputs:
            if symbol not in places:
                places[symbol] = len(places)
                if symbol in writers:
                    waiting.append((places[symbol], writers[symbol]))
        inputs = tuple([places[symbol] for symbol in node.inputs])
        steps.append(Step(through, node.command, inputs, outputs, frozenset(node.params), len(node.graphs)))
        nodes.append(node)
    constants = tuple([(places[symbol], number_of(value)) for symbol, value in left.constants.items()])
    return Form(len(left.inputs), len(places), tuple(steps), constants), tuple(places), tuple(nodes)
