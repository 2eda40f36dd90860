"""The command that runs a user's Python function for its results, and the checks of these results.

The function is pure, so a program may leave it out where nothing reads its results; it is never merged, moved out of a loop or run
again, since the user sees each call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nnc.commands.rules import is_differentiable, lead
from nnc.errors import UnsupportedError, user_error
from nnc.graph import TensorSpec, register
from nnc.graph.rules import Derivative, Rules, Tangents, Value

NDArray = np.ndarray[Any, Any]
Specs = tuple[TensorSpec, ...]
HostFunction = Callable[[Sequence[NDArray], Specs], list[NDArray]]  # (operands, specs of the results) -> results
WHERE = "nnc.pure_callback"
METHODS = ("sequential", "expand_dims", "broadcast_all")


def _run(*arrays: NDArray, function: HostFunction, results: Specs, method: str, name: str) -> tuple[NDArray, ...]:
    # Copies: the program writes to its memory again, and functions may write to their arguments.
    return tuple(function([np.array(x) for x in arrays], results))


def _rows(
    size: int, operands: tuple[Value, ...], batched: tuple[bool, ...], function: HostFunction, results: Specs, method: str,
    name: str,
) -> tuple[Any, tuple[bool, ...]]:  # fmt: skip
    def each_row(arrays: Sequence[NDArray], wanted: Specs) -> list[NDArray]:
        stacked = [np.empty(spec.shape, spec.dtype) for spec in wanted]
        for i in range(size):
            row = function([np.array(x[i] if on else x) for x, on in zip(arrays, batched, strict=True)], results)
            for whole, part in zip(stacked, row, strict=True):
                whole[i] = part
        return stacked

    wider = tuple(spec.update(shape=(size, *spec.shape)) for spec in results)
    if method == "sequential":
        outputs = pure_callback(*operands, function=each_row, results=wider, method=method, name=name)
    else:
        one = 1 if method == "expand_dims" else size
        moved = [x if on else lead(one, x, on) for x, on in zip(operands, batched, strict=True)]
        outputs = pure_callback(*moved, function=function, results=wider, method=method, name=name)
    found = outputs if isinstance(outputs, tuple) else (outputs,)
    return found, (True,) * len(found)


def _differentiate(
    primals: tuple[Value, ...], tangents: Tangents, function: HostFunction, results: Specs, method: str, name: str
) -> tuple[Sequence[Value], Tangents]:
    if any(t is not None for t in tangents) and any(map(is_differentiable, results)):
        problem = f"{name} is a function of Python, which has no derivative rule."
        operands = {f"input {i}": x.spec for i, x in enumerate(primals)}
        fix = (
            "call it within a function with nnc.custom_jvp (or nnc.custom_vjp), whose rule you define with .defjvp; "
            "where no derivative is wanted, pass nnc.stop_gradient(x)."
        )
        raise user_error(UnsupportedError, WHERE, problem, operands=operands, fix=fix)
    found = pure_callback(*primals, function=function, results=results, method=method, name=name)
    outputs = found if isinstance(found, tuple) else (found,)
    return outputs, (None,) * len(outputs)


# function: of NumPy arrays and the specs of its results; method: how it takes batches; name: of the user's function
pure_callback = register(
    "pure_callback", Rules(
        infer=lambda *specs, function, results, method, name: results, reference=_run, batch=_rows,
        derivative=Derivative(push=_differentiate, linearize=_differentiate), effect="host",
    ), arity=None, outputs=None,
)  # fmt: skip
