"""Calls of nnc: compiled ones on trees, and eager commands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import nnc
import nnc.numpy as nnp
from benchmarks.peers.row import Inputs, Step

COMMANDS: dict[str, Callable[..., Any]] = {
    "add": lambda x, y, a, b: x + y,
    "exp": lambda x, y, a, b: nnp.exp(x),
    "sum": lambda x, y, a, b: nnp.sum(x),
    "matmul": lambda x, y, a, b: a @ b,
    "slice": lambda x, y, a, b: x[10:60],
    "where": lambda x, y, a, b: nnp.where(x > y, x, y),
    "reshape": lambda x, y, a, b: nnp.reshape(x, (10, 10)),
}


def leaves(inputs: Inputs, *, calls: int) -> Step:
    """Twice each leaf of a dict."""
    function = nnc.compile(lambda given: nnc.tree.map(lambda x: 2 * x, given))
    given = nnc.tree.map(nnc.asarray, inputs["leaves"])

    def step() -> Any:
        out = None
        for _ in range(calls):
            out = function(given)
        return list(out.values()) if out is not None else []

    return step


def eager(inputs: Inputs, *, command: str, calls: int) -> Step:
    """One command, again and again."""
    function = COMMANDS[command]
    x, y, a, b = (nnc.asarray(inputs[name]) for name in "xyab")

    def step() -> Any:
        out = None
        for _ in range(calls):
            out = function(x, y, a, b)
        return out

    return step
