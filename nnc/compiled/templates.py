"""Templates: a program for many sizes as far as machine code is concerned, with the numbers that its entry reads as polynomials.

A blueprint (nnc.compiled.blueprint) gives the steps of a size; their kernels must still be found, and the entry be printed. Both
are done here for steps with `Size`s in the place of numbers, and for offsets in the arena that are not known yet. A size that takes
the same decisions then has the program's text, with these polynomials' values for numbers.

As with blueprints, numbers and guards are derived by the code that prints any program. A template must give the program that was
printed for the size that it is made with, and that of another size before it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from nnc.base.size import Evaluation, Size, Sizes, hint
from nnc.compiled.blueprint import Blueprint, Values
from nnc.compiled.device_kinds import aligned
from nnc.compiled.forms import changed
from nnc.lower.alloc import Block
from nnc.lower.plan.liveness import walk
from nnc.lower.plan.stages import Bound, Kind, Loop, Planned
from nnc.run.native_program import NativeCode, Printed, ProgramAbi
from nnc.run.program import Program

Print = Callable[[Planned], NativeCode]  # finds the kernels of steps, and prints the entry

_MOST = 16  # of one blueprint, for different decisions
_LEAST = 6  # after which there are no more, if none of them was right for another size


class Place(NamedTuple):
    """The memory plan of a size: the offset of each buffer in the arena."""

    offsets: tuple[int | None, ...]
    arena_bytes: int


class Found(NamedTuple):
    """The program of a size: the one that it is like, its interface and its text."""

    base: Program
    outside: ProgramAbi
    printed: Printed


class _Moved(Evaluation):
    """Gives sizes of a lowering a new home, in which all of their atoms are given."""

    def __init__(self, home: Sizes) -> None:
        super().__init__(home.values)
        self._home = home

    def of(self, size: Any) -> Any:
        return self._home.make(dict(size.terms)) if isinstance(size, Size) else size


@dataclass(frozen=True, eq=False)
class Template:
    """A program for many sizes.

    Attributes:
        sizes: its guards. Given are the values of the blueprint's sizes, then the offsets of buffers in the arena.
        base: the program that its steps are like.
        outside: its interface, with sizes.
        printed: its text, with sizes for numbers.
        varying: the fields of the interface that hold sizes, and where they hold them.
    """

    sizes: Sizes
    base: Program
    outside: ProgramAbi
    printed: Printed
    varying: tuple[tuple[str, tuple[int, ...]], ...]

    @classmethod
    def of(
        cls, blueprint: Blueprint, values: Evaluation, program: Program, base: Program, print_code: Print
    ) -> Template:
        """Makes the template of a program that was made by a blueprint, and whose steps are like those of `base`."""
        sizes = Sizes()
        for value in values.values:
            sizes.give(value)
        offsets = tuple([None if offset is None else sizes.give(offset) for offset in program.offsets])
        bound = Values(_Moved(sizes)).bound(blueprint.bound)
        steps = aligned(bound.steps, base.bound.steps)
        code = print_code(replace(program.planned, bound=replace(bound, steps=steps), offsets=offsets))
        code.expect(False)
        parts = [(name, enumerate(getattr(code.outside, name))) for name in ("inputs", "made", "results")]
        varying = [(name, tuple([i for i, x in part if changed(x, hint) is not x])) for name, part in parts]
        return cls(sizes, base, code.outside, code.printed[False], tuple(varying))

    def at(self, values: Evaluation, place: Place) -> Found | None:
        """Returns the interface and the text of the program of other sizes; None where other decisions would be taken."""
        found = self.sizes.at([*values.values, *(offset for offset in place.offsets if offset is not None)])
        if found is None:
            return None
        text, outside = self.printed.text, self.outside
        parts: dict[str, Any] = {}
        for name, places in self.varying:
            values_of = list(getattr(outside, name))
            for i in places:
                values_of[i] = changed(values_of[i], found.of)
            parts[name] = tuple(values_of)
        outside = outside._replace(arena_bytes=place.arena_bytes, **parts)
        text = text._replace(numbers=tuple(map(found.of, text.numbers)))
        return Found(self.base, outside, self.printed._replace(text=text))

    def gives(self, program: Program, values: Evaluation) -> bool | None:
        """Whether the template gives a program; None where it is not made for its sizes."""
        code, place = program.code, Place(program.offsets, program.arena_bytes)
        found = self.at(values, place)
        if found is None or code is None:
            return None
        mine, theirs = found.printed.text, code.printed[False].text
        same = (mine.text, mine.numbers) == (theirs.text, theirs.numbers)
        return same and found.outside._replace(constants=()) == code.outside._replace(constants=())


class Templates:
    """The templates of a blueprint."""

    def __init__(self, blueprint: Blueprint) -> None:
        self._blueprint = blueprint
        bound = blueprint.bound
        self._inside = [i for i, buffer in enumerate(bound.buffers) if buffer.kind is Kind.ARENA]
        self._found: list[Template] = []
        self._trusted: set[Template] = set()  # those that gave the program that was printed for another size
        self.problem = ""  # why there is no template, or no further one
        if any(isinstance(step.region, Loop) for step in walk(bound.steps)):
            self.problem = "how often a loop looks for interrupts depends on sizes"

    def blocks(self, values: Evaluation) -> list[Block]:
        """Returns the blocks of the arena for other sizes, if streams run nothing at once."""
        bound = self._blueprint.bound
        return [Block(values.of(bound.buffers[i].nbytes), bound.intervals[i]) for i in self._inside]

    def place(self, offsets: Sequence[int], arena_bytes: int) -> Place:
        """Returns the memory plan, made of the offsets of blocks."""
        known = dict(zip(self._inside, offsets, strict=True))
        return Place(tuple(map(known.get, range(len(self._blueprint.bound.buffers)))), arena_bytes)

    def at(self, values: Evaluation, place: Place) -> Found | None:
        """Returns the interface and the text of a size's program; None where it has to be printed."""
        found = (each.at(values, place) for each in self._found if each in self._trusted)
        return next((each for each in found if each is not None), None)

    def note(self, values: Evaluation, program: Program, print_code: Print) -> None:
        """Notes the program of a size that was made by the blueprint and printed."""
        code, base = program.code, program.like
        if base is None or code is None or self.problem:
            return
        for template in self._found:
            same = template.gives(program, values)
            if same is not None:
                self._trusted.add(template)
                if not same:
                    self._refuse("a template gave another program than printing at another size")
                return
        if len(self._found) >= (_MOST if self._trusted else _LEAST):
            return
        printed = code.printed[False]
        if printed.states or printed.text.blocks:
            self.problem = "a step has a state, or runs in Python"
            return
        try:
            template = Template.of(self._blueprint, values, program, base, print_code)
            if template.sizes.fixes(len(values.values)):
                self.problem = "a kernel is made for each size"
            elif template.gives(program, values):
                self._found.append(template)
            else:
                self.problem = "a kernel is not remembered"
        except Exception as error:  # code that cannot compute with sizes raises any error; printing has done without
            self.problem = f"{type(error).__name__}: {error}"

    def _refuse(self, problem: str) -> None:
        self._found.clear()
        self._trusted.clear()
        self.problem = problem


class Member(NamedTuple):
    """A size for which a blueprint is made: the values of the blueprint's sizes."""

    blueprint: Blueprint
    templates: Templates
    values: Evaluation

    def bound(self) -> Bound:
        """Returns the steps."""
        return Values(self.values).bound(self.blueprint.bound)
