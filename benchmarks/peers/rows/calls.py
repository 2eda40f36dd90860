"""Cost of a call beside its work: of compiled functions with few and with many arrays, and of eager commands."""

from __future__ import annotations

from functools import partial

import numpy as np

from benchmarks.peers.row import Inputs, Row, Work, draw, normal

EAGER = ("nnc", "jax", "torch", "numpy")


def _leaves(count: int) -> Inputs:
    rng = draw()
    return {"leaves": {f"leaf{i:03d}": normal(rng, 8) for i in range(count)}}


def _small() -> Inputs:
    rng = draw()
    return {
        "x": np.abs(normal(rng, 100)),
        "y": np.abs(normal(rng, 100)),
        "a": normal(rng, 8, 8),
        "b": normal(rng, 8, 8),
    }


_COMMANDS = {
    "add": "x + y, 100 float32",
    "exp": "exp(x), 100 float32",
    "sum": "sum(x), 100 float32",
    "matmul": "a @ b, 8 x 8",
    "slice": "x[10:60]",
    "where": "where(x > y, x, y), 100 float32",
    "reshape": "reshape(x, (10, 10))",
}

ROWS = (
    *(
        Row(
            f"leaves{count}",
            f"compiled call, {count} {'leaf' if count == 1 else 'leaves'} in and out",
            "calls.leaves",
            partial(_leaves, count),
            Work(),
            "leaves",
            {"calls": 1000 // count},
            frameworks=("nnc", "jax", "torch.compile"),
            calls=1000 // count,
        )
        for count in (1, 100)
    ),
    *(
        Row(
            f"eager-{name}",
            f"eager {title}",
            "calls.eager",
            _small,
            Work(),
            "eager",
            {"command": name, "calls": 1000},
            frameworks=EAGER,
            calls=1000,
        )
        for name, title in _COMMANDS.items()
    ),
)
