"""Commands that look at values while a program runs. They have an effect, so no pass drops, merges or reorders them.

They yield nothing: their effects cannot change a result. Derivatives pass them by, and under vmap they run row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nnc.base import dtypes
from nnc.base.source import SourceLine
from nnc.commands.rules import batch_leading
from nnc.errors import NotFiniteError, user_error
from nnc.graph import TensorSpec, register, spec_of
from nnc.graph.rules import Rules, Value

NDArray = np.ndarray[Any, Any]

# -- callback ----------------------------------------------------------------------------------------------------------


def _run_callback(*arrays: NDArray, function: Callable[..., object]) -> tuple[()]:
    values = [np.array(x) for x in arrays]  # the program writes to its memory again
    for x in values:
        x.flags.writeable = False
    function(*values)
    return ()


def _callback_rows(
    size: int, operands: tuple[Value, ...], batched: tuple[bool, ...], function: Callable[..., object]
) -> tuple[tuple[()], tuple[()]]:
    def each_row(*arrays: NDArray) -> None:
        for i in range(size):
            function(*(np.asarray(x[i]) if on else x for x, on in zip(arrays, batched, strict=True)))

    callback(*operands, function=each_row)
    return (), ()


# function: called with the operands as NumPy arrays; its result is ignored
callback = register(
    "callback", Rules(
        infer=lambda *specs, function: (), reference=_run_callback, batch=_callback_rows, effect="debug",
    ), arity=None, outputs=None,
)  # fmt: skip

# -- check_finite ------------------------------------------------------------------------------------------------------


def _check(*arrays: NDArray, name: str, results: int, source: SourceLine | None) -> tuple[()]:
    raise_unless_finite(name, arrays[results:], arrays[:results], source)
    return ()


# the results of the command `name`, then its operands; `source` is the line that made the command
check_finite = register(
    "check_finite", Rules(
        infer=lambda *specs, name, results, source: (), reference=_check, batch=batch_leading("check_finite"), effect="debug",
    ), arity=None, outputs=None,
)  # fmt: skip


def raise_unless_finite(
    name: str, operands: Sequence[NDArray], results: Sequence[NDArray], source: SourceLine | None = None
) -> None:
    """Raises NotFiniteError where a command made a NaN, or an infinity that no operand held.

    Constants (such as -inf) have no operands and are wanted as they are; commands that turn NaN into numbers are no mistake.
    """
    if not operands:
        return
    for result in results:
        if not is_checked(spec_of(result)) or np.isfinite(result).all():
            continue
        floats = [x for x in operands if is_checked(spec_of(x))]
        has_nan = bool(np.isnan(result).any())
        if not has_nan and any(not np.isfinite(x).all() for x in floats):
            continue
        count = int(np.sum(~np.isfinite(result)))
        what = "NaN" if has_nan else "infinity"
        came_in = has_nan and any(np.isnan(x).any() for x in floats)
        problem = f"{count} of {result.size} elements of its result are not finite (the first kind: {what})" + (
            ", and an operand held NaN already." if came_in else ", though its operands are."
        )
        shown = {f"input {i}": _range(x) for i, x in enumerate(operands)}
        fix = (
            "look at the arguments, which held NaN before the first command."
            if came_in
            else "keep operands inside the command's domain: add a small number, clip, or choose with nnp.where before."
        )
        raise user_error(NotFiniteError, name, problem, operands=shown, fix=fix, source=source)


def is_checked(spec: TensorSpec) -> bool:
    """Whether values of this spec can be NaN or infinite."""
    return dtypes.is_inexact(spec.dtype)


def _range(x: NDArray) -> str:
    spec = spec_of(x)
    if not x.size or not (dtypes.is_float(spec.dtype) or dtypes.is_integer(spec.dtype)):
        return str(spec)
    return f"{spec} from {float(np.min(x)):g} to {float(np.max(x)):g}"
