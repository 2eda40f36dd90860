"""Calls of JAX: compiled ones on trees, and eager operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.peers.row import Inputs, Step

COMMANDS: dict[str, Callable[..., Any]] = {
    "add": lambda x, y, a, b: x + y,
    "exp": lambda x, y, a, b: jnp.exp(x),
    "sum": lambda x, y, a, b: jnp.sum(x),
    "matmul": lambda x, y, a, b: a @ b,
    "slice": lambda x, y, a, b: x[10:60],
    "where": lambda x, y, a, b: jnp.where(x > y, x, y),
    "reshape": lambda x, y, a, b: jnp.reshape(x, (10, 10)),
}


def leaves(inputs: Inputs, *, calls: int) -> Step:
    """Twice each leaf of a dict."""
    function = jax.jit(lambda given: jax.tree.map(lambda x: 2 * x, given))
    given = jax.tree.map(jnp.asarray, inputs["leaves"])

    def step() -> Any:
        out = None
        for _ in range(calls):
            out = function(given)
        jax.block_until_ready(out)
        return list(out.values()) if out is not None else []

    return step


def eager(inputs: Inputs, *, command: str, calls: int) -> Step:
    """One operation, again and again."""
    function = COMMANDS[command]
    x, y, a, b = (jnp.asarray(inputs[name]) for name in "xyab")

    def step() -> Any:
        out = None
        for _ in range(calls):
            out = function(x, y, a, b)
        return jax.block_until_ready(out)

    return step
