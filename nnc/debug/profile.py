"""How long each step of a compiled function takes."""

from __future__ import annotations

from typing import Any

from nnc.compiled.compiled import BoundMethod, Compiled
from nnc.compiled.reports import ScheduleReport
from nnc.errors import ArgumentTypeError, TraceError, user_error
from nnc.errors.tracebacks import api_boundary


@api_boundary
def profile(compiled: Any, /, *args: Any, **kwargs: Any) -> ScheduleReport:
    """Runs a compiled function once and measures each step; the report has the form of the planned schedule.

    `print` shows it, `save("trace.json")` writes it for https://ui.perfetto.dev, `nnc.view.schedule` draws it. The first run of a
    function is slower than later ones, since its memory is new: measure twice. Donated arguments are used up.

    Args:
        compiled: a function that nnc.compile returned.
        *args: arguments of the call.
        **kwargs: arguments of the call by name.

    Raises:
        ArgumentTypeError: `compiled` was not made by nnc.compile.
        TraceError: it captures values of an enclosing trace.

    Example:
        >>> f = nnc.compile(lambda x: nnp.sum(nnp.sin(x) @ x))
        >>> run = nnc.debug.profile(f, nnp.ones((8, 8)))
        >>> [row.command for row in run.rows], run.measured, run.duration > 0
        (['fused', 'dot', 'fused'], True, True)
    """
    if isinstance(compiled, BoundMethod):
        return profile(compiled.compiled, compiled.instance, *args, **kwargs)
    if not isinstance(compiled, Compiled):
        fix = "pass the result of nnc.compile, then its arguments."
        raise user_error(ArgumentTypeError, "nnc.debug.profile", f"{compiled!r} is no compiled function.", fix=fix)
    executable, leaves = compiled.find(*args, **kwargs)
    if executable is None:
        problem = "the function captures a value of an enclosing trace."
        raise user_error(TraceError, "nnc.debug.profile", problem, fix="measure it outside of grad, vmap and the like.")
    return executable.profile(leaves)
