"""The values of forward differentiation; dual.py runs commands on them. Programs without derivatives load this file alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nnc.array.promote import with_weakness
from nnc.base.dtypes import Weakness
from nnc.base.source import SourceLine
from nnc.trace.core.axes import Axes, varying_over
from nnc.trace.core.tracer import Tracer

if TYPE_CHECKING:
    from nnc.trace.core.dual import DualTrace
    from nnc.trace.core.powers import Origin


class DualTracer(Tracer):
    """A value of the enclosing level and its tangent; `origin` tells of roots and powers, `number` of equal values."""

    __slots__ = ("number", "origin", "primal", "tangent")

    def __init__(
        self, trace: DualTrace, primal: Any, tangent: Any, source: SourceLine | None, weak: Weakness = False
    ) -> None:
        self.owner, self.spec, self.source, self.weak = trace, primal.spec, source, weak
        self.primal, self.tangent = primal, tangent
        self.origin: Origin = None
        self.number: Any = None

    def as_weak(self, weak: Weakness = True) -> Any:
        """The same value, of which commands take the primal's weakness."""
        twin: Any = super().as_weak(weak)
        twin.primal = with_weakness(self.primal, weak)
        return twin

    def varying_over(self) -> Axes | None:
        """Returns the axes over which the primal varies; its tangent varies over the same."""
        return varying_over(self.primal)

    def concrete(self, what: str, fix: str = "") -> np.ndarray[Any, Any]:
        """Returns the primal's value, where it has one."""
        if not self.owner.alive:
            return super().concrete(what, fix)
        value: np.ndarray[Any, Any] = self.primal.concrete(what, fix)
        return value


def is_nested(x: Any, dual: int) -> bool:
    """Whether a primal is itself being differentiated by a trace further out, or may be, since it stands for a value within a
    derivative whose outermost trace has the level `dual` (0: none).
    """
    while x is not None and not hasattr(x, "tangent"):
        if hasattr(x, "symbol"):
            return bool(0 < dual < x.owner.level)
        x = getattr(x, "value", None)  # of a tracer of rows
    return x is not None
