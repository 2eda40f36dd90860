"""Families: the programs of one function at several sizes, which share their lowering and their machine code.

A new size is traced as any other, so that Python's `if`s on shapes, captures and errors are right. Its graph is then held against
those of earlier sizes:

size     its steps are found by                    its code
first    lowering                                  is made for the size alone
second   lowering                                  takes sizes as numbers (`Step.like`, and the entry's words)
third    lowering, which also makes a blueprint    is the second's where texts are equal, as mostly
later    evaluating the blueprint                  likewise, found by a template from about the sixth size on

A blueprint (nnc.compiled.blueprint) holds steps whose numbers are polynomials of sizes, and the conditions under which they are
right; a size that does not meet them is lowered like the third one. Texts of kernels are found from a program's own steps, and one
that turns out different is compiled, until a template (nnc.compiled.templates) knows the numbers of texts as polynomials, too. So
neither numbers nor texts are ever taken over because they were right for other sizes.

Constants whose values differ from size to size, such as the divisor of a mean, become inputs of the program, which the executable
passes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nnc.base.later import later, resolve
from nnc.base.options import Options
from nnc.compiled.blueprint import Blueprint, Values, same_steps
from nnc.compiled.dims import DynamicAxes
from nnc.compiled.forms import Form, Traced, bits, opened, sizes_of, take_apart
from nnc.compiled.signature import Call, Key, is_spec
from nnc.compiled.templates import Member, Templates
from nnc.device import CPU
from nnc.graph import Graph
from nnc.graph.graph import NDArray
from nnc.lower.plan.stages import Bound
from nnc.run.program import Program

if TYPE_CHECKING:
    from nnc.compiled.executable import Executable, Lowered
    from nnc.compiled.replay import Replay, ReplayedSize

Lower = Callable[[Graph], Bound]

_replay = later(f"{__package__}.replay", "Replay")

_BASES = 8  # of one kind of calls; the latest ones
_KNOWN = 4  # sizes of one form that a blueprint is made from and held against; the latest ones
_BLUEPRINTS = 8  # of one form
_FEWEST = 3  # traces of a form, against which a replay is held
_TRACES = 4  # for a replay of one form: when values that the function captures change, another one is made


class Family:
    """The programs whose steps are those of `base`.

    Args:
        number: the family's number, from 1.
        base: the first program.
    """

    def __init__(self, number: int, base: Program) -> None:
        self.number, self.base, self.members = number, base, 1
        self.problems: Mapping[str, str] = {}  # of the latest member: why its sizes are lowered, or printed, each


class Line:
    """The sizes at which traced graphs have one form."""

    def __init__(self, form: Form) -> None:
        self._first, self.parts = form, form.parts
        self.traced: list[Traced] = []  # the latest ones
        self.replay: Replay | None = None
        self.traces = 0  # that were made for a replay
        self.places: dict[int, None] = {}  # of constants that are inputs
        self._known: list[tuple[list[int], Bound]] = []  # integers of graphs, and their steps by lowering
        self._blueprints: dict[Blueprint, Templates] = {}
        self._trusted: set[Blueprint] = set()  # those that gave the same steps as lowering at another size
        self.problem = ""  # why there is no blueprint, or no further one
        self.needs_traces = ""  # why there is no replay

    @property
    def trusted(self) -> list[tuple[Blueprint, Templates]]:
        """The blueprints that may be used."""
        return [
            (blueprint, templates) for blueprint, templates in self._blueprints.items() if blueprint in self._trusted
        ]

    @property
    def problems(self) -> dict[str, str]:
        """The reasons why new sizes are lowered, or printed, each."""
        found = {"lowered": self.problem} if self.problem else {}
        printed = next((each.problem for each in self._blueprints.values() if each.problem), "")
        found = {**found, "printed": printed} if printed else found
        return {**found, "traced": self.needs_traces} if self.needs_traces else found

    def open(self, graph: Graph, form: Form) -> tuple[Graph, list[NDArray]]:
        """Returns the graph with inputs in the place of constants that differ from size to size, and their values."""
        pairs = zip(self._first.constants, form.constants, strict=True)
        other = {i: None for i, (x, y) in enumerate(pairs) if bits(x) != bits(y)}
        if not other.keys() <= self.places.keys():
            self.places |= other
            self._known, self._blueprints = [], {}  # their graphs have other inputs
        if not self.places:
            return graph, []
        found = opened(graph, self.places)
        values = [form.constants[i] for i in sorted(self.places)]
        if found is None or any(value.ndim for value in values):
            self.problem = "a constant with axes, or of a sub-graph, differs from size to size"
            return graph, []
        return found, values

    def takes(self, constants: Sequence[NDArray]) -> bool:
        """Whether constants differ from the first ones at most where they are inputs."""
        pairs = enumerate(zip(self._first.constants, constants, strict=True))
        return all(i in self.places or bits(x) == bits(y) for i, (x, y) in pairs)

    def note_trace(self, call: Call, lowered: Lowered, form: Form) -> None:
        """Notes a trace of this form, and makes the replay once there is a blueprint that may be used."""
        own = Traced(sizes_of(call.key), form.integers, form.constants)
        self.traced = [*(traced for traced in self.traced if traced.sizes != own.sizes), own][-_KNOWN:]
        if not self._trusted or len(self.traced) < _FEWEST or self.traces >= _TRACES:
            return
        self.traces += 1
        try:
            self.replay = resolve(_replay).of(call, lowered, self)  # type: ignore[attr-defined]
            self.needs_traces = "" if self.replay is not None else "a trace for many sizes gave another graph"
        except Exception as error:  # of code that cannot compute with sizes: each size is traced then
            self.replay, self.needs_traces = None, f"{type(error).__name__}: {error}"

    def member(self, graph: Graph, integers: list[int], lower: Lower) -> Member | None:
        """Returns a graph as a member of a blueprint; None where there is none that may be used."""
        for blueprint, templates in self._blueprints.items():
            values = blueprint.at(integers)
            if values is None:
                continue
            found = Member(blueprint, templates, values)
            if blueprint not in self._trusted and same_steps(found.bound(), lower(graph)):
                self._trusted.add(blueprint)
            if blueprint in self._trusted:
                return found
        return None

    def note(self, graph: Graph, integers: list[int], bound: Bound, lower: Lower) -> None:
        """Notes the steps of a size by lowering, and makes a blueprint from the third one on."""
        others = [(known, steps) for known, steps in self._known if known != integers]
        self._known = [*others, (integers, bound)][-_KNOWN:]
        if not others or len(self._blueprints) >= _BLUEPRINTS or self.problem:
            return
        try:
            blueprint = Blueprint.of(graph, [integers, *(known for known, _ in others)], lower)
        except Exception as error:  # code that cannot compute with sizes raises any error; lowering has done without
            self.problem = f"{type(error).__name__}: {error}"
            return
        if not self._holds(blueprint, integers, bound):
            self.problem = "a blueprint gave other steps than lowering"
            return
        self._blueprints[blueprint] = Templates(blueprint)
        if any(self._holds(blueprint, known, steps) for known, steps in others):
            self._trusted.add(blueprint)

    @staticmethod
    def _holds(blueprint: Blueprint, integers: Sequence[int], wanted: Bound) -> bool:
        """Whether a blueprint gives the steps of lowering."""
        values = blueprint.at(integers)
        return values is not None and same_steps(Values(values).bound(blueprint.bound), wanted)


class Kin:
    """The programs of calls of one kind, which differ in sizes at most."""

    def __init__(self) -> None:
        self.families: list[Family] = []
        self.graphs: list[Graph] = []  # of first programs, which were not taken apart yet
        self._lines: dict[Hashable, Line] = {}
        self._line: tuple[Line, list[int]] | None = None  # of the graph that is being lowered
        self._form: Form | None = None  # of this graph, if it was traced

    @property
    def problems(self) -> dict[str, str]:
        """The reasons why new sizes like the last one are lowered, or printed, each."""
        return {} if self._line is None else self._line[0].problems

    @property
    def bases(self) -> list[Program]:
        """The first program of each family, the latest first."""
        return [family.base for family in reversed(self.families)]

    def open(self, graph: Graph) -> tuple[Graph, list[NDArray]]:
        """Returns a traced graph with inputs in the place of constants that differ from size to size, and their values."""
        self._line = self._form = None
        if not self.families:  # the first program is made for its size alone
            return graph, []
        for earlier in self.graphs:
            form = take_apart(earlier)
            self._lines.setdefault(form.parts, Line(form))
        self.graphs = []
        form = self._form = take_apart(graph)
        line = self._lines.setdefault(form.parts, Line(form))
        self._line = line, form.integers
        return line.open(graph, form)

    def replay(self, call: Call) -> ReplayedSize | None:
        """Returns the size of a call that need not be traced; None where it has to be."""
        found = (line.replay.at(call) for line in self._lines.values() if line.replay is not None)
        return next((size for size in found if size is not None), None)

    def open_replayed(self, size: ReplayedSize) -> Graph:
        """Returns the graph of a size that is lowered without a trace, with inputs in the place of constants."""
        self._line, self._form = (size.replay.line, size.integers), None
        return size.graph()

    def note_trace(self, call: Call, lowered: Lowered) -> None:
        """Notes the trace whose graph was opened last."""
        if self._line is not None and self._form is not None:
            self._line[0].note_trace(call, lowered, self._form)

    def member(self, graph: Graph, lower: Lower) -> Member | None:
        """Returns the graph that was opened last as a member of a blueprint; None where it has to be lowered."""
        return None if self._line is None else self._line[0].member(graph, self._line[1], lower)

    def note(self, graph: Graph, bound: Bound, lower: Lower) -> None:
        """Notes the steps that lowering gave for the graph that was opened last."""
        if self._line is not None:
            line, integers = self._line
            line.note(graph, integers, bound, lower)


class Families:
    """The families of a compiled function.

    Args:
        fun: the function.
        axes: the axes whose sizes vary; None: any may.
        known: programs that were made before.
    """

    def __init__(
        self, fun: Callable[..., Any], axes: DynamicAxes | None, known: Mapping[Key, Executable], options: Options
    ) -> None:
        self._fun, self._axes = fun, axes
        self._kinds: dict[Hashable, Kin] = {}
        self._count = 0
        for key, executable in known.items():
            self.add(self.find(key, options.update(device=key.device)), executable)

    def __len__(self) -> int:
        return self._count

    def find(self, key: Key, options: Options) -> Kin | None:
        """Returns the programs that a new one for this key may share code with; None where there will be none.

        Raises:
            AxisError: an array has no such axis as is named.
            ShapeError: axes of one name have two sizes, or a size is larger than it may be.
        """
        may_share = self._axes is None or self._axes.check(key, self._fun)
        is_plain = options.native and options.device == CPU and not (options.guard or options.autotune)
        if not (may_share and is_plain and options.families):
            return None
        return self._kinds.setdefault(self._kind(key), Kin())

    def add(self, kin: Kin | None, executable: Executable) -> Family:
        """Notes a new program, and returns its family, which it may be the first of."""
        program = executable.program
        known = kin.families if kin is not None else []
        for family in known:
            if program.like is family.base:
                family.members += 1
                family.problems = kin.problems if kin is not None else {}
                return family
        self._count += 1
        family = Family(self._count, program)
        known.append(family)
        del known[:-_BASES]
        if kin is not None and len(known) == 1:
            kin.graphs = [executable.graph]
        return family

    def _kind(self, key: Key) -> Hashable:
        """Returns the part of a key that all calls of a kind have in common: everything but the sizes that vary."""
        places = None if self._axes is None else self._axes.places(key, self._fun)
        leaves: list[Any] = []
        for i, leaf in enumerate(key.leaves):
            if is_spec(leaf):
                spec, weak = leaf
                varies = [places is None or (i, axis) in places for axis in range(spec.ndim)]
                shape = tuple([None if v else n for n, v in zip(spec.shape, varies, strict=True)])
                leaf = shape, spec.dtype, spec.layout, weak
            leaves.append(leaf)
        return key._replace(leaves=tuple(leaves))
