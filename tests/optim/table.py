"""One row for each optimizer: how it is made, and its steps written out in NumPy, float64."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from nnc import optim

Step = Callable[[float, np.ndarray, np.ndarray], np.ndarray]  # (learning rate, parameter, gradient) -> next parameter


def _sgd(momentum: float = 0.0, nesterov: bool = False, dampening: float = 0.0, weight_decay: float = 0.0) -> Step:
    memory = np.zeros(1)

    def step(rate: float, p: np.ndarray, g: np.ndarray) -> np.ndarray:
        nonlocal memory
        g = g + weight_decay * p
        memory = momentum * memory + (1 - dampening) * g
        return p - rate * (g + momentum * memory if nesterov else memory)

    return step


def _adam(
    b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8, weight_decay: float = 0.0, *, amsgrad: bool = False,
    nesterov: bool = False, layerwise: bool = False, eps_root: float = 0.0,
) -> Step:  # fmt: skip
    m, v, peak, t = np.zeros(1), np.zeros(1), np.zeros(1), 0

    def step(rate: float, p: np.ndarray, g: np.ndarray) -> np.ndarray:
        nonlocal m, v, peak, t
        t += 1
        m = b1 * m + (1 - b1) * g
        v = b2 * v + (1 - b2) * g**2
        mean, square = m / (1 - b1**t), v / (1 - b2**t)
        if nesterov:
            mean = b1 * m / (1 - b1 ** (t + 1)) + (1 - b1) * g / (1 - b1**t)
        if amsgrad:
            square = peak = np.maximum(peak, square)
        update = mean / (np.sqrt(square + eps_root) + eps) + weight_decay * p
        if layerwise:
            update = update * np.linalg.norm(p) / np.linalg.norm(update)
        return p - rate * update

    return step


def _rmsprop(
    decay: float = 0.9, eps: float = 1e-8, initial_scale: float = 0.0, momentum: float = 0.0, *, centered: bool = False,
    outside: bool = False, nesterov: bool = False, corrected: bool = False,
) -> Step:  # fmt: skip
    m, v, memory, t = np.zeros(1), np.full(1, initial_scale), np.zeros(1), 0

    def step(rate: float, p: np.ndarray, g: np.ndarray) -> np.ndarray:
        nonlocal m, v, memory, t
        t += 1
        m = decay * m + (1 - decay) * g
        v = decay * v + (1 - decay) * g**2
        scale = 1 - decay**t if corrected else 1.0
        spread = v / scale - (m / scale) ** 2 if centered else v / scale
        u = -rate * (g / (np.sqrt(spread) + eps) if outside else g / np.sqrt(spread + eps))
        memory = momentum * memory + u
        return p + (u + momentum * memory if nesterov else memory)

    return step


def _clipped(limit: float, by_norm: bool) -> Step:
    def step(rate: float, p: np.ndarray, g: np.ndarray) -> np.ndarray:
        return p - rate * (g * min(1.0, limit / np.linalg.norm(g)) if by_norm else np.clip(g, -limit, limit))

    return step


@dataclass(frozen=True)
class Row:
    """`make(learning_rate)` is the optimizer; `reference()` a fresh stepper; `rate` one at which it converges."""

    name: str
    make: Callable[[Any], optim.GradientTransformation]
    reference: Callable[[], Step]
    rate: float = 0.05


def _rows() -> Iterator[Row]:
    yield Row("sgd", optim.sgd, _sgd)
    yield Row("sgd with momentum", lambda r: optim.sgd(r, momentum=0.9), lambda: _sgd(0.9))
    yield Row("sgd with nesterov", lambda r: optim.sgd(r, 0.9, True), lambda: _sgd(0.9, nesterov=True))
    yield Row(
        "sgd with everything",
        lambda r: optim.sgd(r, momentum=0.8, nesterov=True, dampening=0.3, weight_decay=0.01),
        lambda: _sgd(0.8, True, 0.3, 0.01),
    )
    yield Row("adam", optim.adam, _adam)
    yield Row(
        "adam with other decays",
        lambda r: optim.adam(r, 0.8, 0.9, 1e-3, 1e-2),
        lambda: _adam(0.8, 0.9, 1e-3, eps_root=1e-2),
    )
    yield Row("adam without momentum", lambda r: optim.adam(r, b1=0.0), lambda: _adam(0.0))
    yield Row("adam with amsgrad", lambda r: optim.adam(r, b2=0.5, amsgrad=True), lambda: _adam(b2=0.5, amsgrad=True))
    yield Row("adam with nesterov", lambda r: optim.adam(r, nesterov=True), lambda: _adam(nesterov=True))
    yield Row("adamw", lambda r: optim.adamw(r, weight_decay=0.02), lambda: _adam(weight_decay=0.02))
    yield Row(
        "lamb", lambda r: optim.lamb(r, weight_decay=0.02), lambda: _adam(eps=1e-6, weight_decay=0.02, layerwise=True)
    )
    yield Row("rmsprop", optim.rmsprop, _rmsprop, 0.02)
    yield Row(
        "rmsprop that starts at one",
        lambda r: optim.rmsprop(r, initial_scale=1.0),
        lambda: _rmsprop(initial_scale=1.0),
        0.02,
    )
    yield Row(
        "rmsprop with eps outside, corrected",
        lambda r: optim.rmsprop(r, eps=1e-3, eps_in_sqrt=False, bias_correction=True),
        lambda: _rmsprop(eps=1e-3, outside=True, corrected=True),
        0.02,
    )
    yield Row(
        "rmsprop, centered",
        lambda r: optim.rmsprop(r, eps=1e-2, centered=True, momentum=0.5),
        lambda: _rmsprop(eps=1e-2, centered=True, momentum=0.5),
        0.01,
    )
    yield Row(
        "rmsprop with nesterov",
        lambda r: optim.rmsprop(r, momentum=0.5, nesterov=True),
        lambda: _rmsprop(momentum=0.5, nesterov=True),
        0.01,
    )
    yield Row("clipped by value", lambda r: optim.chain(optim.clip(0.5), optim.sgd(r)), lambda: _clipped(0.5, False))
    yield Row(
        "clipped by norm",
        lambda r: optim.chain(optim.clip_by_global_norm(0.7), optim.sgd(r)),
        lambda: _clipped(0.7, True),
    )


ROWS = list(_rows())
