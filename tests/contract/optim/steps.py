"""Steps of optimizers written out in NumPy, float64."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Step = Callable[[float, np.ndarray, np.ndarray], np.ndarray]  # (learning rate, parameter, gradient) -> next parameter


def sgd(momentum: float = 0.0, nesterov: bool = False, dampening: float = 0.0, weight_decay: float = 0.0) -> Step:
    memory: np.ndarray | None = None

    def step(rate: float, p: np.ndarray, g: np.ndarray) -> np.ndarray:
        nonlocal memory
        g = g + weight_decay * p
        memory = g if memory is None else momentum * memory + (1 - dampening) * g
        return p - rate * (g + momentum * memory if nesterov else memory)

    return step


def adam(
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
            peak = np.maximum(peak, v)
            square = peak / (1 - b2**t)
        update = mean / (np.sqrt(square + eps_root) + eps) + weight_decay * p
        if layerwise:
            update = update * np.linalg.norm(p) / np.linalg.norm(update)
        return p - rate * update

    return step


def rmsprop(
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


def clipped(limit: float, by_norm: bool) -> Step:
    def step(rate: float, p: np.ndarray, g: np.ndarray) -> np.ndarray:
        return p - rate * (g * min(1.0, limit / np.linalg.norm(g)) if by_norm else np.clip(g, -limit, limit))

    return step


def nadam(b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8, momentum_decay: float = 4e-3) -> Step:
    m, v, product, t = np.zeros(1), np.zeros(1), 1.0, 0

    def step(rate: float, p: np.ndarray, g: np.ndarray) -> np.ndarray:
        nonlocal m, v, product, t
        t += 1
        now, ahead = (b1 * (1 - 0.5 * 0.96 ** (n * momentum_decay)) for n in (t, t + 1))
        product *= now
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g**2
        mean = ahead * m / (1 - product * ahead) + (1 - now) * g / (1 - product)
        return p - rate * mean / (np.sqrt(v / (1 - b2**t)) + eps)

    return step


def radam(b2: float, threshold: float, b1: float = 0.9, eps: float = 1e-8, nesterov: bool = False) -> Step:
    m, v, t = np.zeros(1), np.zeros(1), 0
    limit = 2 / (1 - b2) - 1

    def step(rate: float, p: np.ndarray, g: np.ndarray) -> np.ndarray:
        nonlocal m, v, t
        t += 1
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g**2
        mean = m / (1 - b1**t)
        if nesterov:
            mean = b1 * m / (1 - b1 ** (t + 1)) + (1 - b1) * g / (1 - b1**t)
        rho = limit - 2 * t * b2**t / (1 - b2**t)
        if rho < threshold:
            return p - rate * mean
        r = np.sqrt((rho - 4) * (rho - 2) * limit / ((limit - 4) * (limit - 2) * rho))
        return p - rate * r * mean / (np.sqrt(v / (1 - b2**t)) + eps)

    return step


def adamax(b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8) -> Step:
    m, peak, t = np.zeros(1), np.zeros(1), 0

    def step(rate: float, p: np.ndarray, g: np.ndarray) -> np.ndarray:
        nonlocal m, peak, t
        t += 1
        m, peak = b1 * m + (1 - b1) * g, np.maximum(b2 * peak, np.abs(g) + eps)
        return p - rate * m / (1 - b1**t) / peak

    return step


def lion(weight_decay: float, b1: float = 0.9, b2: float = 0.99) -> Step:
    m = np.zeros(1)

    def step(rate: float, p: np.ndarray, g: np.ndarray) -> np.ndarray:
        nonlocal m
        sign = np.sign(b1 * m + (1 - b1) * g)
        m = b2 * m + (1 - b2) * g
        return p - rate * (sign + weight_decay * p)

    return step


def adagrad(start: float = 0.1, eps: float = 1e-7, outside: bool = False) -> Step:
    total = np.full(1, start)

    def step(rate: float, p: np.ndarray, g: np.ndarray) -> np.ndarray:
        nonlocal total
        total = total + g**2
        return p - rate * (g / (np.sqrt(total) + eps) if outside else g / np.sqrt(total + eps))

    return step


def adadelta(eps: float, weight_decay: float, rho: float = 0.9) -> Step:
    v, w = np.zeros(1), np.zeros(1)

    def step(rate: float, p: np.ndarray, g: np.ndarray) -> np.ndarray:
        nonlocal v, w
        g = g + weight_decay * p
        v = rho * v + (1 - rho) * g**2
        u = np.sqrt(w + eps) / np.sqrt(v + eps) * g
        w = rho * w + (1 - rho) * u**2
        return p - rate * u

    return step


def lars(weight_decay: float, trust: float, momentum: float = 0.9) -> Step:
    memory = np.zeros(1)

    def step(rate: float, p: np.ndarray, g: np.ndarray) -> np.ndarray:
        nonlocal memory
        u = g + weight_decay * p
        memory = momentum * memory - rate * trust * np.linalg.norm(p) / np.linalg.norm(u) * u
        return p + memory

    return step


def adafactor(momentum: float | None = None, scaled: bool = True, weight_decay: float = 0.0) -> Step:
    v, m, t = np.zeros(1), np.zeros(1), 0

    def step(rate: float, p: np.ndarray, g: np.ndarray) -> np.ndarray:
        nonlocal v, m, t
        t += 1
        decay = 1 - t**-0.8
        v = decay * v + (1 - decay) * (g**2 + 1e-30)
        u = g / np.sqrt(v)
        if scaled:
            u = u / max(1.0, np.sqrt(np.mean(u**2))) * max(np.sqrt(np.mean(p**2)), 1e-3)
        u = rate * u
        if momentum is not None:
            u = m = momentum * m + (1 - momentum) * u
        return p - u - weight_decay * p

    return step


def clipped_by_weights(share: float) -> Step:
    def step(rate: float, p: np.ndarray, g: np.ndarray) -> np.ndarray:
        return p - rate * g * min(1.0, share * max(np.linalg.norm(p), 1e-3) / np.linalg.norm(g))

    return step


def mean(decay: float = 0.9) -> Step:
    m, t = np.zeros(1), 0

    def step(rate: float, p: np.ndarray, g: np.ndarray) -> np.ndarray:
        nonlocal m, t
        t += 1
        m = decay * m + (1 - decay) * g
        return p - rate * m / (1 - decay**t)

    return step


def lbfgs(memory: int) -> Step:
    """The inverse Hessian as a matrix, by the update of Broyden, Fletcher, Goldfarb and Shanno."""
    pairs: list[tuple[np.ndarray, np.ndarray]] = []
    last: tuple[np.ndarray, np.ndarray] | None = None

    def step(rate: float, p: np.ndarray, g: np.ndarray) -> np.ndarray:
        nonlocal last
        h = min(1.0, 1 / np.linalg.norm(g)) * np.eye(len(p))
        if last is not None:
            pairs.append((p - last[0], g - last[1]))
            s, y = pairs[-1]
            h = (s @ y) / (y @ y) * np.eye(len(p))
        for s, y in pairs[-memory:]:
            left = np.eye(len(p)) - np.outer(s, y) / (s @ y)
            h = left @ h @ left.T + np.outer(s, s) / (s @ y)
        last = p, g
        return p - rate * h @ g

    return step
