"""Makes steps of programs: an offer draws a call of values at hand; calls that raise when they run are not taken."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from nnc.graph import TensorSpec
from nnc.testing.fuzz.program import Code, Ref

SORTED = ("bins", "xp", "steps")  # parameters whose values must be sorted
Settings = tuple[tuple[str, Any], ...]
Call = tuple[str, tuple[Any, ...], Settings]  # the callee, its operands, its settings


class Source(Protocol):
    """Values at hand, while a program is made."""

    rng: random.Random
    axes: dict[str, int]  # the named axes around, by name, with their sizes
    is_mapped: bool  # the next step stands within a mapped function

    def pick(self, accepts: Callable[[TensorSpec], bool] = ...) -> Ref:
        """A value, which is made where none is accepted."""

    def like(self, spec: TensorSpec) -> Ref:
        """A value of a spec."""

    def given(self, x: Any) -> Ref:
        """A value with these elements."""

    def number(self, whole: bool) -> Ref:
        """A Python number that the program is given, an int where `whole`."""

    def spec(self, ref: Ref) -> TensorSpec:
        """The spec of a value."""


@dataclass(frozen=True)
class Offer:
    """One thing to call; `weight` is how often it is taken."""

    name: str
    make: Callable[[Source], Call | None]
    weight: float = 1.0


def sorted_rows(x: Any) -> Code:
    """The rows of a value, sorted."""
    return Code("nnp.sort({0})", (x,))


def related(source: Source, base: TensorSpec | None) -> Ref:
    """A value whose shape fits: any first, then one of the same shape, one that broadcasts, or any."""
    if base is None:
        return source.pick()
    turn = source.rng.random()
    if turn < 0.5:
        return source.pick(lambda spec: spec.shape == base.shape)
    if turn < 0.8:
        return source.pick(lambda spec: spec.ndim <= base.ndim and all(
            n in (1, m) for n, m in zip(spec.shape[::-1], base.shape[::-1], strict=False)
        ))  # fmt: skip
    return source.pick()
