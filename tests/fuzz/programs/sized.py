"""Generated programs of arrays of any length."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

SIZES = (1, 2, 3, 17, 33, 64, 100)
WIDTH = 16  # flat kernels of two of the sizes have 1024 elements or more, and share a text
_WEIGHTS = np.random.default_rng(0).normal(size=(WIDTH, WIDTH)).astype(np.float32) / 4

Step = Callable[[Any, Any], Any]  # of the module, which is numpy or nnc.numpy, and of an array (n, 16)


def _softmax(xp: Any, scores: Any) -> Any:
    weights = xp.exp(scores - xp.max(scores, axis=-1, keepdims=True))
    return weights / xp.sum(weights, axis=-1, keepdims=True)


def _by_length(xp: Any, x: Any) -> Any:
    return xp.tanh(x) if x.shape[0] > 20 else x * 0.5


STEPS: dict[str, Step] = {
    "tanh": lambda xp, x: xp.tanh(x),
    "polynomial": lambda xp, x: x * x - 0.5 * x,
    "product": lambda xp, x: x @ xp.asarray(_WEIGHTS),
    "mean of rows": lambda xp, x: x - xp.mean(x, axis=1, keepdims=True),
    "mean of columns": lambda xp, x: x - xp.mean(x, axis=0),
    "attention": lambda xp, x: _softmax(xp, x @ x.T) @ x,
    "all pairs": lambda xp, x: x * xp.mean(xp.tanh(xp.reshape(x @ x.T, (-1,)))),
    "largest": lambda xp, x: x - xp.max(x, axis=0, keepdims=True),
    "positions": lambda xp, x: x + xp.arange(x.shape[0], dtype=np.float32)[:, None] / np.float32(x.shape[0]),
    "branch": _by_length,
    "reverse": lambda xp, x: x[::-1] + x,
    "flat": lambda xp, x: xp.reshape(xp.reshape(x, (-1,)) * 0.9, x.shape),
    "twice": lambda xp, x: xp.concatenate([x, xp.sin(x)])[x.shape[0] // 2 :][: x.shape[0]],
    "stride": lambda xp, x: x + xp.mean(x[::3]),
}


@dataclass(frozen=True)
class SizedProgram:
    """A chain of steps on an array of n rows, then sums over all of it and over rows."""

    names: tuple[str, ...]

    @classmethod
    def draw(cls, seed: int) -> SizedProgram:
        """Draws a program of two to five steps."""
        draws = np.random.default_rng(seed)
        return cls(tuple(str(name) for name in draws.choice(list(STEPS), draws.integers(2, 6))))

    def __call__(self, xp: Any, x: Any) -> tuple[Any, Any, Any]:
        for name in self.names:
            x = STEPS[name](xp, x)
        return x, xp.mean(x * x), xp.sum(x, axis=0)


def rows(n: int) -> np.ndarray:
    """Returns numbers for a program of n rows."""
    return np.random.default_rng(n).normal(size=(n, WIDTH)).astype(np.float32)
