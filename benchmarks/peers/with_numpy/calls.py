"""Operations of NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.peers.row import Inputs, Step

COMMANDS: dict[str, Callable[..., Any]] = {
    "add": lambda x, y, a, b: x + y,
    "exp": lambda x, y, a, b: np.exp(x),
    "sum": lambda x, y, a, b: np.sum(x),
    "matmul": lambda x, y, a, b: a @ b,
    "slice": lambda x, y, a, b: x[10:60],
    "where": lambda x, y, a, b: np.where(x > y, x, y),
    "reshape": lambda x, y, a, b: np.reshape(x, (10, 10)),
}


def eager(inputs: Inputs, *, command: str, calls: int) -> Step:
    """One operation, again and again."""
    function = COMMANDS[command]
    x, y, a, b = (inputs[name] for name in "xyab")

    def step() -> Any:
        out = None
        for _ in range(calls):
            out = function(x, y, a, b)
        return out

    return step
