"""Results of `solve_ivp`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from nnc import tree
from nnc.array.array import Array
from nnc.numpy import elementwise as el
from nnc.numpy.manipulation import moveaxis
from nnc.numpy.operands import in_dtype, known
from nnc.numpy.searching import searchsorted, take
from nnc.scipy.integrate.steps import Method
from nnc.trace.core.vectorize import vmap
from nnc.typing import ArrayLike

MESSAGES = {
    0: "The solver successfully reached the end of the integration interval.",
    1: "A termination event occurred.",
    -1: "Required step size is less than spacing between numbers.",
}


@tree.register_dataclass
@dataclass(frozen=True)
class OdeSolution:
    """The solution between the steps of an integration, a function of time: `solution(t)`.

    Args:
        ts: (m + 1,), the ends of the steps, rising or falling.
        ys: (m, n), the solution where each step begins.
        terms: (m, k, n), the terms that interpolate each step.
        method: the method of the steps.
        lengths: (m,), the lengths of the steps; the last may reach beyond an event.

    Example:
        >>> decay = lambda t, y: -y
        >>> result = nnc.scipy.integrate.solve_ivp(decay, (0.0, 1.0), nnp.asarray([1.0]), dense_output=True)
        >>> nnp.round(result.sol(0.5), 2)
        Array([0.61], dtype=float32)
    """

    ts: Array
    ys: Array
    terms: Array
    method: Method
    lengths: Array

    def __call__(self, t: ArrayLike) -> Array:
        """Returns the solution: (n,) for a number, (n, m) for m times. Times outside are extrapolated from the nearest step.

        Args:
            t: a number, or a vector.
        """
        ts = self.ts
        falling = el.less(ts[-1], ts[0])
        sign = el.where(falling, -1, 1)

        def one(t: Any) -> Any:
            i = el.clip(searchsorted(ts * sign, t * sign, side="left") - 1, 0, ts.shape[0] - 2)
            h = take(self.lengths, i)
            x = (t - take(ts, i)) / el.where(h != 0, h, 1)
            return self.method.between(x, h, take(self.ys, i, axis=0), take(self.terms, i, axis=0))

        times = in_dtype(t, ts.dtype, "OdeSolution", "t")
        return moveaxis(vmap(one)(times), 0, -1) if times.ndim else one(times)


class OdeResult(NamedTuple):
    """The result of `solve_ivp`.

    Attributes:
        t: (m,), times.
        y: (n, m), the solution at these times.
        sol: the solution as a function of time, with dense_output=True; else None.
        t_events: for each event the times at which it occurred; None without events.
        y_events: for each event the solution at those times, (m, n).
        nfev: number of evaluations of the function.
        njev: number of Jacobians made.
        nlu: number of LU decompositions.
        status: 0 at the end of the interval, 1 after a terminal event, -1 where a step failed.
        success: whether status is 0 or 1.

    Example:
        >>> result = nnc.scipy.integrate.solve_ivp(lambda t, y: -y, (0.0, 1.0), nnp.asarray([1.0]))
        >>> result.message
        'The solver successfully reached the end of the integration interval.'
    """

    t: Any
    y: Any
    sol: OdeSolution | None
    t_events: Sequence[Any] | None
    y_events: Sequence[Any] | None
    nfev: Any
    njev: Any
    nlu: Any
    status: Any
    success: Any

    @property
    def message(self) -> str:
        """The status in words; outside of compiled functions."""
        return MESSAGES[int(known(self.status, "message", "read it from the result outside of the traced function."))]
