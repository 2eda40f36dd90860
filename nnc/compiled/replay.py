"""Replay: programs of new sizes without a trace.

When a line of traced graphs (nnc.compiled.families) has a blueprint, the function is traced once more with traced sizes
(nnc.base.traced_size) in place of the sizes of its arguments: the trace's integers become polynomials of these, and Python's
decisions by them guards. A size that meets the guards would be traced to the graph that these polynomials give, so its program is
made without a trace. There is no replay where

- the graph of such a trace differs from those that were traced, at any size known,
- code that ran in the trace asks for classes by `type`, or for identities by `id`, which traced sizes do not see,
- the function captured values that have changed, or other values at other sizes.
"""

from __future__ import annotations

import builtins
import enum
import inspect
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nnc.array.traced_scalar import TracedScalar
from nnc.base.context import set_context
from nnc.base.size import Evaluation, Sizes
from nnc.base.source import is_internal
from nnc.base.traced_size import TracedSize
from nnc.compiled.blueprint import Blueprint, generated
from nnc.compiled.forms import Form, Traced, bits, opened, sizes_of, take_apart, with_integers
from nnc.compiled.signature import Call
from nnc.compiled.templates import Member
from nnc.errors import NncError
from nnc.graph import Graph, Symbol, TensorSpec
from nnc.graph.graph import NDArray
from nnc.trace.core.staging import Staged, stage

if TYPE_CHECKING:
    from nnc.compiled.executable import Lowered
    from nnc.compiled.families import Line

_UNSEEN = (type, id)  # by these a traced size can be told from an int
# code that asks for classes of members of enumerations, of functions and of dtypes
_HARMLESS = frozenset({enum.__file__, inspect.__file__, np.iinfo.__init__.__code__.co_filename})


class ReplayedSize(NamedTuple):
    """A size for which a replay holds.

    Attributes:
        replay: the replay.
        values: the values of its sizes.
    """

    replay: Replay
    values: Evaluation

    def constant(self, value: NDArray) -> NDArray:
        """Returns the value at this size of a constant of the replay's graph."""
        scalar = self.replay.scalars.get(id(value))
        return value if scalar is None else np.asarray(scalar.at(self.values))

    @property
    def constants(self) -> list[NDArray]:
        """The constants of the size's graph, in the order in which they are read."""
        return list(map(self.constant, self.replay.form.constants))

    @property
    def integers(self) -> list[int]:
        """The integers of the size's graph."""
        return list(map(self.values.of, self.replay.form.integers))

    def graph(self) -> Graph:
        """Returns the size's graph, with inputs in the place of constants that differ from size to size."""
        integers = iter(self.integers)
        graph = with_integers(self.replay.graph, lambda: next(integers))
        graph = graph.update(constants={s: self.constant(x) for s, x in graph.constants.items()})
        places = self.replay.line.places
        found = opened(graph, places) if places else graph
        assert found is not None
        return found

    def member(self) -> Member | None:
        """Returns the size as a member of a blueprint; None where none is made for it."""
        for blueprint, templates in self.replay.line.trusted:
            link = self.replay.link(blueprint)
            values = link.at(self.values) if link is not None else None
            if values is not None:
                return Member(blueprint, templates, values)
        return None

    def specs(self, specs: Sequence[TensorSpec]) -> tuple[TensorSpec, ...]:
        """Returns the values of specs."""
        of, known = self.values.of, dict[TensorSpec, TensorSpec]()
        for spec in specs:
            if spec not in known:
                known[spec] = spec.update(shape=tuple(map(of, spec.shape)))
        return tuple([known[spec] for spec in specs])


class _Link(NamedTuple):
    """The sizes of a blueprint, made of those of a replay.

    Attributes:
        blueprint: the blueprint.
        given: the blueprint's given sizes.
        pairs: integers of the replay's graph that must be equal to those of the blueprint.
    """

    blueprint: Blueprint
    given: tuple[Any, ...]
    pairs: tuple[tuple[Any, Any], ...]

    @classmethod
    def of(cls, integers: Sequence[Any], blueprint: Blueprint) -> _Link | None:
        """Returns the link; None where the blueprint is made for other graphs."""
        pairs: dict[Any, tuple[Any, Any]] = {}
        for own, other in zip(integers, blueprint.integers, strict=True):
            if type(own) is int and type(other) is int:
                if own != other:
                    return None
                continue
            pairs[_terms(own), _terms(other)] = own, other
        return cls(blueprint, tuple([integers[place] for place in blueprint.given]), tuple(pairs.values()))

    def at(self, values: Evaluation) -> Evaluation | None:
        """Returns the values of the blueprint's sizes; None where it is not made for them."""
        found = self.blueprint.at_sizes(list(map(values.of, self.given)))
        if found is None or any(values.of(own) != found.of(other) for own, other in self.pairs):
            return None
        return found


def _terms(integer: Any) -> Any:
    return integer if type(integer) is int else integer.terms


@dataclass(frozen=True, eq=False)
class Replay:
    """A trace for many sizes.

    Attributes:
        lowered: the trace of one of these sizes.
        line: the sizes at which traced graphs have this form.
        sizes: the guards.
        given: the places of the given sizes, among the sizes of arguments.
        arguments: the sizes of arguments.
        graph: the graph of wanted outputs; its integers are sizes.
        used: which inputs of the trace the graph has.
        form: the graph, taken apart.
        scalars: the origins of constants that are made of sizes, by the identity of the constants.
    """

    lowered: Lowered
    line: Line
    sizes: Sizes
    given: tuple[int, ...]
    arguments: tuple[Any, ...]
    graph: Graph
    used: list[int]
    form: Form
    scalars: dict[int, TracedScalar]
    _links: dict[Blueprint, _Link | None]

    @classmethod
    def of(cls, call: Call, lowered: Lowered, line: Line) -> Replay | None:
        """Traces the function of a call for many sizes.

        Args:
            call: the call.
            lowered: its trace.
            line: the sizes at which traced graphs have the same form.

        Returns:
            None where the graph differs from the traced ones.

        Raises:
            Exception: the function, or code that traces it, cannot compute with sizes.
        """
        sizes = Sizes(TracedSize)
        own = sizes_of(call.key)
        known = [own, *(traced.sizes for traced in line.traced if traced.sizes != own)]
        given, functions = generated(list(zip(*known, strict=True)))
        atoms = [sizes.give(own[place]) for place in given]
        arguments = tuple([function(atoms) for function in functions])
        rest = iter(arguments)
        specs = [spec.update(shape=tuple([next(rest) for _ in spec.shape])) for spec, _ in call.key.specs()]
        with _codes() as codes, set_context(program=lowered.options, call=call):
            flat = call.flat_function()
            weak = [weak for _, weak in call.key.specs()]
            staged = stage(flat, specs, weak=weak, name=lowered.graph.name)
        for code, names in codes.items():
            _check_code(code, names)
        staged, scalars = _settled(staged)
        other = lowered.traced_as(staged, flat)
        if other is None:
            return None
        graph, used = other.wanted()
        form = take_apart(graph)
        found = cls(lowered, line, sizes, given, arguments, graph, used, form, scalars, {})
        return found if form.parts == line.parts and all(map(found._gives, line.traced)) else None

    def _gives(self, traced: Traced) -> bool:
        """Whether the replay gives a graph that was traced; a size for which it does not hold counts, too."""
        found = self._at_sizes(traced.sizes)
        if found is None:
            return True
        constants = list(map(bits, found.constants))
        return found.integers == traced.integers and constants == list(map(bits, traced.constants))

    def _at_sizes(self, arguments: Sequence[int]) -> ReplayedSize | None:
        values = self.sizes.at([arguments[place] for place in self.given])
        if values is None or list(map(values.of, self.arguments)) != list(arguments):
            return None
        return ReplayedSize(self, values)

    def at(self, call: Call) -> ReplayedSize | None:
        """Returns the size of a call; None where the function has to be traced."""
        if not (self.lowered.snapshot.unchanged() and self.lowered.lasts_as(call)):
            return None
        found = self._at_sizes(sizes_of(call.key))
        return found if found is not None and self.line.takes(found.constants) else None

    def link(self, blueprint: Blueprint) -> _Link | None:
        """Returns the sizes of a blueprint, made of those of the replay; None where it is made for other graphs."""
        if blueprint not in self._links:
            self._links[blueprint] = _Link.of(self.form.integers, blueprint)
        return self._links[blueprint]


def _settled(staged: Staged) -> tuple[Staged, dict[int, TracedScalar]]:
    """Returns a trace with constants in the place of inputs that are made of sizes, and their origins, by identity."""
    graph, count = staged.graph, staged.num_explicit
    pairs = list(zip(graph.inputs[count:], staged.captured, strict=True))
    made = {symbol: value for symbol, value in pairs if type(value) is TracedScalar}
    constants: dict[Symbol, NDArray] = {symbol: np.array(value.value) for symbol, value in made.items()}
    inputs = (*graph.inputs[:count], *(symbol for symbol, _ in pairs if symbol not in made))
    graph = graph.update(inputs=inputs, constants={**graph.constants, **constants})
    captured = tuple([value for symbol, value in pairs if symbol not in made])
    return staged._replace(graph=graph, captured=captured), {id(constants[s]): value for s, value in made.items()}


@contextmanager
def _codes() -> Iterator[dict[CodeType, dict[str, Any]]]:
    """A block that notes the code of all Python functions that run in it, with their global names."""
    if sys.getprofile() is not None:
        raise NncError("a profiler runs")
    codes: dict[CodeType, dict[str, Any]] = {}

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            codes.setdefault(frame.f_code, frame.f_globals)

    sys.setprofile(note)
    try:
        yield codes
    finally:
        sys.setprofile(None)


def _check_code(code: CodeType, names: dict[str, Any]) -> None:
    """Raises an error for code that may tell a traced size from an int unnoticed."""
    if is_internal(code.co_filename) or code.co_filename in _HARMLESS:
        return
    for name in code.co_names:
        if any(names.get(name, vars(builtins).get(name)) is unseen for unseen in _UNSEEN):
            raise NncError(f"{code.co_name} asks for the {name} of a value")
