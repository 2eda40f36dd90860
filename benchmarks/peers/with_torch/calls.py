"""Calls of PyTorch: compiled ones on trees, and eager operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from benchmarks.peers.row import Inputs, Step
from benchmarks.peers.with_torch.wrap import Wrap, tensors

COMMANDS: dict[str, Callable[..., Any]] = {
    "add": lambda x, y, a, b: x + y,
    "exp": lambda x, y, a, b: torch.exp(x),
    "sum": lambda x, y, a, b: torch.sum(x),
    "matmul": lambda x, y, a, b: a @ b,
    "slice": lambda x, y, a, b: x[10:60],
    "where": lambda x, y, a, b: torch.where(x > y, x, y),
    "reshape": lambda x, y, a, b: torch.reshape(x, (10, 10)),
}


def leaves(inputs: Inputs, wrap: Wrap, *, calls: int) -> Step:
    """Twice each leaf of a dict."""
    function = wrap(lambda given: {name: 2 * x for name, x in given.items()})
    given = {name: torch.from_numpy(x) for name, x in inputs["leaves"].items()}

    def step() -> Any:
        out = None
        with torch.inference_mode():
            for _ in range(calls):
                out = function(given)
        return list(out.values()) if out is not None else []

    return step


def eager(inputs: Inputs, wrap: Wrap, *, command: str, calls: int) -> Step:
    """One operation, again and again."""
    function = wrap(COMMANDS[command])
    x, y, a, b = tensors(inputs, *"xyab")

    def step() -> Any:
        out = None
        for _ in range(calls):
            out = function(x, y, a, b)
        return out

    return step
