"""Makes programs at random: each step is tried on the values at hand by references, and kept if its results are usable."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

import nnc
from nnc.array.array import Array
from nnc.base import dtypes
from nnc.errors import NncError, ShapeError
from nnc.graph import TensorSpec
from nnc.testing.fuzz.control import CONTROL, Maker
from nnc.testing.fuzz.custom import custom_jvp, custom_vjp
from nnc.testing.fuzz.derived import second_derivative
from nnc.testing.fuzz.named import collective_offers, named
from nnc.testing.fuzz.offer import Offer
from nnc.testing.fuzz.plain import Plain
from nnc.testing.fuzz.program import Program, Ref, Step, rename, rename_names, step_source, walk
from nnc.testing.fuzz.reference import by_reference, largest_number
from nnc.testing.fuzz.settings import DTYPES, SHORT, SIZES
from nnc.testing.fuzz.subject import namespace
from nnc.testing.fuzz.values import LAYOUTS, Input, literal
from nnc.testing.fuzz.weak import draw_numbers

NDArray = np.ndarray[Any, Any]

MOST_ELEMENTS = 5000  # of a value: references are slow, and so are Python's loops over rows
_LARGEST = {"float16": 50.0, "bfloat16": 1e4, "float32": 1e4, "float64": 1e4, "complex64": 1e3, "complex128": 1e3}
KINDS = (
    ["grid", "grid", "grid", "uniform"],
    ["special", "extreme", "grid"],
    ["denormal", "denormal", "grid"],
    ["huge", "tiny", "wide", "wide", "uniform"],
    ["uniform", "grid"],
)  # of inputs
MAKERS: tuple[Maker, ...] = (*CONTROL, named, named, named, custom_vjp, custom_jvp, second_derivative)
FORCED: dict[str, tuple[Maker, ...]] = {"custom": (custom_vjp, custom_jvp), "named": (named,)}
_TRIES = 12  # calls that are tried for a step


@dataclass
class Generator:
    """A program as it grows. `scope` holds the value of every name, `visible` the names that the next step may read."""

    rng: random.Random
    offers: Sequence[Offer]
    inputs: list[Input] = field(default_factory=list)
    scope: dict[str, Any] = field(default_factory=lambda: namespace(Plain()))
    visible: list[str] = field(default_factory=list)
    count: int = 0
    sizes: list[int] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    dtype_pool: list[str] = field(default_factory=list)
    untraceable: list[str] = field(default_factory=list)
    collectives: Sequence[Offer] = field(default_factory=collective_offers)
    depth: int = 0
    axes: dict[str, int] = field(default_factory=dict)  # the named axes around the next step
    common: set[str] = field(default_factory=set)  # names of values that are the same along all of them
    is_open: bool = True  # whether the next step may read inputs that nobody passed to the function around it
    is_mapped: bool = False
    is_wild: bool = False  # sizes are anything that does not overflow
    made: list[Step] = field(default_factory=list)

    # -- values at hand ------------------------------------------------------------------------------------------------

    def spec(self, ref: Ref) -> TensorSpec:
        """The spec of a value."""
        found: TensorSpec = self.scope[ref.name].spec
        return found

    def pick(self, accepts: Callable[[TensorSpec], bool] = lambda spec: True) -> Ref:
        """A value at hand, the latest more often than others; sometimes a new input."""
        fitting = [name for name in self.visible if accepts(self.scope[name].spec)]
        if not fitting or self.rng.random() < 0.08:
            for _ in range(6):
                spec = TensorSpec(self._shape(), self.rng.choice(self.dtype_pool))
                if accepts(spec):
                    return self.new_input(spec)
        if not fitting:
            return self.pick()
        return Ref(fitting[-1 - min(int(self.rng.expovariate(0.4)), len(fitting) - 1)])

    def like(self, spec: TensorSpec) -> Ref:
        """A value of a spec, the same for several operands now and then."""
        fitting = [name for name in self.visible if self.scope[name].spec == spec]
        if fitting and self.rng.random() < 0.9:
            return Ref(self.rng.choice(fitting))
        return self.new_input(spec)

    def new_input(self, spec: TensorSpec) -> Ref:
        """An array given to the program."""
        if not spec.shape and spec.dtype.name in ("float32", "int64") and self.rng.random() < 0.5:
            return self._add(Input(self.name(), (), spec.dtype.name, "number", self.rng.randrange(1000)))
        layout = self.rng.choice(LAYOUTS) if self.rng.random() < 0.3 else "rows"
        kind = self.rng.choice(self.kinds)
        return self._add(Input(self.name(), spec.shape, spec.dtype.name, kind, self.rng.randrange(1000), layout))

    def number(self, whole: bool) -> Ref:
        """A Python number that the program is given."""
        numbers = draw_numbers(self.rng, whole)
        new = Input(self.name(), (), "int64" if whole else "float64", "python", elements=numbers)
        known = [x for x in self.inputs if x.kind == "python" and x.dtype == new.dtype]
        if known and self.rng.random() < 0.5:
            return Ref(self.rng.choice(known).name)
        return self._add(new)

    def given(self, x: Any) -> Ref:
        """An array with these elements."""
        return self._add(literal(self.name(), np.asarray(x)))

    def _add(self, new: Input) -> Ref:
        if not self.is_open:
            raise LookupError("a function with rules of its own takes all values as arguments")
        self.inputs.append(new)
        self.scope[new.name] = new.array()
        if new.kind != "python":
            self.visible.insert(0, new.name)
        return Ref(new.name)

    def name(self) -> str:
        """A name that nothing has."""
        self.count += 1
        return f"v{self.count}"

    def _shape(self) -> tuple[int, ...]:
        rank = self.rng.choice((0, 0, 1, 1, 2, 2, 2, 3, 3, 4))
        shape = tuple(1 if self.rng.random() < 0.15 else self.rng.choice(self.sizes) for _ in range(rank))
        return shape if TensorSpec(shape, "bool").size <= MOST_ELEMENTS // 2 else shape[:1]

    # -- steps -----------------------------------------------------------------------------------------------------------

    def steps(self, count: int, control: float = 0.12) -> list[Step]:
        """Steps on the values at hand, which they extend."""
        made: list[Step] = []
        for _ in range(count):
            for _ in range(_TRIES):
                step = self.step(control)
                if step is not None:
                    made.append(step)
                    self.made.append(step)
                    break
        return made

    def burst(self) -> list[Step]:
        """Operators on a few values, several of them broadcast to the shape of one, again and again."""
        first = self.pick(lambda spec: spec.size > 1)
        small = TensorSpec(
            self.spec(first).shape[1:] if self.rng.random() < 0.3 else (), self.rng.choice(("float32", "int64"))
        )
        others = [self.new_input(small) for _ in range(self.rng.randint(1, 3))]
        found = []
        for _ in range(self.rng.randint(2, 6)):
            pair = [first, self.rng.choice(others)]
            self.rng.shuffle(pair)
            step = None
            with suppress(Exception):
                step = self.accept(
                    Step("result", self.rng.choice(("{0} + {1}", "{0} * {1}", "{0} - {1}")), tuple(pair))
                )
            if step is not None:
                found.append(step)
        return found

    def step(self, control: float) -> Step | None:
        """Makes a step whose results are usable; None where the attempt is not."""
        turn = self.rng.random()
        if self.depth < 2 and turn < control:
            return self._attempt(self._control)
        return self._attempt(
            self._echo if turn > 0.93 else self._collective if self.axes and turn > 0.6 else self._call
        )

    def _attempt(self, make: Callable[[], Step | None]) -> Step | None:
        inputs, visible, axes, mapped = list(self.inputs), list(self.visible), self.axes, self.is_mapped
        step = None
        with suppress(Exception):  # a call that raises is not taken
            step = make()
        self.enter(axes)
        self.is_mapped = mapped
        if step is None:
            self.inputs, self.visible = inputs, visible
        return step

    def enter(self, axes: dict[str, int]) -> None:
        """Makes these the named axes around the next step."""
        self.axes = axes
        self.scope["nnc"].lockstep.sizes = axes

    def forced(self, kind: str) -> Step | None:
        """A step that one of the makers with this name makes; None where several attempts fail."""
        for _ in range(4):
            step = self._attempt(partial(self._control, FORCED[kind]))
            if step is not None:
                self.made.append(step)
                return step
        return None

    def _control(self, makers: Sequence[Maker] = MAKERS) -> Step | None:
        make = self.rng.choice(makers)
        self.depth += 1
        visible = list(self.visible)
        try:
            step = make(self)
        finally:
            self.depth -= 1
            new = [x.name for x in self.inputs if x.name in self.visible and x.name not in visible]
            self.visible = [*new, *visible]
        return self.accept(step) if step is not None else None

    def _echo(self) -> Step | None:
        """The same call as before on other values of the same specs, so that both are there to be added or compared."""
        known = [step for step in self.made if step.reads and all(name in self.visible for name in step.reads)]
        if not known:
            return None
        step = self.rng.choice(known[-4:])
        others = {name: self.like(self.spec(Ref(name))).name for name in sorted(step.reads)}
        names = {name: self.name() for name in step.defines}
        echo = rename(step, lambda name: others.get(name, name))
        return self.accept(replace(echo, results=rename_names(step.results, names.__getitem__)))

    def _call(self) -> Step | None:
        offer = self.rng.choices(self.offers, [o.weight for o in self.offers])[0]
        call = offer.make(self)
        if call is None:
            return None
        target, args, settings = call
        return self.accept(Step("result", target, args, settings))

    def _collective(self) -> Step | None:
        call = self.rng.choice(self.collectives).make(self)
        return self.accept(Step("result", *call)) if call is not None else None

    def accept(self, step: Step) -> Step | None:
        """Runs a step and names its results; None where they are of no use."""
        name = self.name()
        trial = replace(step, results=name) if step.results == "result" else step
        before = set(self.scope)
        with by_reference():
            exec(step_source(trial), self.scope)
        if trial is step:
            return self._take(step, [self.scope[n] for n in step.defines]) if set(step.defines) - before else None
        value = self.scope.pop(name)
        parts = list(value) if isinstance(value, (tuple, list)) else [value]
        names = [self.name() for _ in parts]
        results: Any = tuple(names) if isinstance(value, (tuple, list)) else names[0]
        for n, part in zip(names, parts, strict=True):
            self.scope[n] = part
        return self._take(replace(step, results=results), parts)

    def _take(self, step: Step, parts: Sequence[Any]) -> Step | None:
        operands = [self.scope[name] for name in step.reads if name in self.scope]
        if (
            not parts
            or not all(isinstance(x, Array) for x in parts)
            or not all(self._is_usable(x, operands) for x in parts)
        ):
            return None
        if not self._is_traceable(step):
            self.untraceable.append(step.call)
            return None
        self.visible += step.defines
        return step

    def _is_traceable(self, step: Step) -> bool:
        """Whether the shapes of results do not depend on values: nnc says so, where they do. A loop of an offer and a rule whose
        shapes nnc refuses though references run them are taken, and found.
        """
        reads = sorted(name for name in step.reads if name in self.scope)
        source = step_source(step)

        def traced(*values: Any) -> Any:
            names = {**namespace(), **dict(zip(reads, values, strict=True))}
            exec(source, names)
            return [names[name] for name in step.defines]

        function: Callable[..., Any] = traced
        for name, size in reversed(self.axes.items()):
            function = nnc.vmap(function, in_axes=None, axis_name=name, axis_size=size)
        try:
            nnc.eval_shape(function, *[self.scope[name] for name in reads])
        except ShapeError:
            return "nnc.scan(lambda" in step.call or any("nnc.custom_" in inner.call for inner in walk([step]))
        except NncError:
            return False
        return True

    def _is_usable(self, x: Array, operands: Sequence[Any]) -> bool:
        """Whether a result is small enough, finite where the operands are, and of a size that is not badly conditioned."""
        if x.spec.size > MOST_ELEMENTS or x.spec.ndim > 6:
            return False
        data = np.asarray(x)
        if not dtypes.is_inexact(data.dtype) or not data.size:
            return True
        wide = np.abs(data.astype(np.complex128 if dtypes.is_complex(data.dtype) else np.float64))
        finite = np.isfinite(wide)
        if not finite.all() and all(_is_finite(y) for y in operands):
            return self.rng.random() < 0.03
        wide = wide[finite]
        if self.is_wild:
            return bool(np.all(wide <= 1e-2 * largest_number(data.dtype)))
        least = 0.0 if any(map(_has_denormals, operands)) else 1e-6
        return bool(np.all((wide <= _LARGEST[data.dtype.name]) & ((wide == 0) | (wide > least))))


def _is_finite(x: Any) -> bool:
    return not isinstance(x, Array) or bool(np.all(np.isfinite(np.asarray(x))))


def _has_denormals(x: Any) -> bool:
    """Whether elements are so small that no cancellation leads to them."""
    if not isinstance(x, Array) or not dtypes.is_inexact(x.dtype):
        return False
    size = np.abs(np.asarray(x).astype(np.complex128))
    return bool(np.any((size > 0) & (size < 1e-30)))


def generate(seed: Sequence[int], offers: Sequence[Offer], first: Sequence[Offer] | None = None) -> Program:
    """The program of a seed; the last number of the seed says with which offer of `first` it begins."""
    rng = random.Random(repr(list(seed)))
    g = Generator(rng, offers)
    g.sizes = rng.sample(SIZES if rng.random() < 0.7 else SHORT, 3)
    g.kinds = rng.choices(KINDS, (0.68, 0.1, 0.06, 0.06, 0.1))[0]
    g.is_wild = g.kinds in KINDS[3:]  # the sizes of values, or of their differences
    g.dtype_pool = ["float64"] if rng.random() < 0.25 else rng.sample(DTYPES, 2)
    for _ in range(rng.randint(1, 3)):
        g.new_input(TensorSpec(g._shape(), rng.choice(g.dtype_pool)))
    g.offers = [(first or offers)[seed[-1] % len(first or offers)]]
    steps = g.steps(1, control=0.0)
    g.offers = offers
    steps += g.burst() if rng.random() < 0.3 else []
    steps += g.steps(rng.randint(0, 8))
    last = g.forced("named") if rng.random() < 0.15 else None
    steps += [last] if last is not None else []
    made = [name for step in steps for name in step.defines]
    made = [name for name in made if name in g.visible] or [g.inputs[0].name]
    read = set().union(*(step.reads for step in steps))
    ends = [name for name in made if name not in read]
    results = list(
        dict.fromkeys([made[-1], *rng.sample(ends, min(len(ends), 4)), *rng.sample(made, rng.randint(0, 1))])
    )
    return Program.of(g.inputs, steps, results)
