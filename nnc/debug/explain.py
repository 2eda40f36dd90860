"""Why a compiled function was traced."""

from __future__ import annotations

from typing import Any

from nnc.calls.spelling import spelled
from nnc.compiled.compiled import BoundMethod, Compiled
from nnc.errors import ArgumentTypeError, user_error


@spelled
def explain(compiled: Any) -> str:
    """Says why the last call of a compiled function traced it, or that it did not. Of a call on a GPU it lists the commands without
    a printed kernel, which libraries or the host run, and how many steps they are.

    Args:
        compiled: a function that nnc.compile returned.

    Raises:
        ArgumentTypeError: `compiled` was not made by nnc.compile.

    Example:
        >>> f = nnc.compile(lambda x: x + 1)
        >>> y = f(nnp.ones(2)), f(nnp.ones(3))
        >>> nnc.debug.explain(f)
        '<lambda>: the last call traced, because argument x changed from float32[2] to float32[3]'
    """
    if not isinstance(compiled, (Compiled, BoundMethod)):
        fix = "pass the result of nnc.compile."
        raise user_error(ArgumentTypeError, "nnc.debug.explain", f"{compiled!r} is no compiled function.", fix=fix)
    return str(compiled.explain())
