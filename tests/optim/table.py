"""One row for each optimizer: how it is made, and its steps written out in NumPy, float64."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from nnc import optim

Step = Callable[[float, np.ndarray, np.ndarray], np.ndarray]  # (learning rate, parameter, gradient) -> next parameter


def _sgd(momentum: float = 0.0, nesterov: bool = False, dampening: float = 0.0, weight_decay: float = 0.0) -> Step:
    memory: np.ndarray | None = None

    def step(rate: float, p: np.ndarray, g: np.ndarray) -> np.ndarray:
        nonlocal memory
        g = g + weight_decay * p
        memory = g if memory is None else momentum * memory + (1 - dampening) * g
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
            peak = np.maximum(peak, v)
            square = peak / (1 - b2**t)
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


def _nadam(b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8, momentum_decay: float = 4e-3) -> Step:
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


def _radam(b2: float, threshold: float, b1: float = 0.9, eps: float = 1e-8, nesterov: bool = False) -> Step:
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


def _adamax(b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8) -> Step:
    m, peak, t = np.zeros(1), np.zeros(1), 0

    def step(rate: float, p: np.ndarray, g: np.ndarray) -> np.ndarray:
        nonlocal m, peak, t
        t += 1
        m, peak = b1 * m + (1 - b1) * g, np.maximum(b2 * peak, np.abs(g) + eps)
        return p - rate * m / (1 - b1**t) / peak

    return step


def _lion(weight_decay: float, b1: float = 0.9, b2: float = 0.99) -> Step:
    m = np.zeros(1)

    def step(rate: float, p: np.ndarray, g: np.ndarray) -> np.ndarray:
        nonlocal m
        sign = np.sign(b1 * m + (1 - b1) * g)
        m = b2 * m + (1 - b2) * g
        return p - rate * (sign + weight_decay * p)

    return step


def _adagrad(start: float = 0.1, eps: float = 1e-7, outside: bool = False) -> Step:
    total = np.full(1, start)

    def step(rate: float, p: np.ndarray, g: np.ndarray) -> np.ndarray:
        nonlocal total
        total = total + g**2
        return p - rate * (g / (np.sqrt(total) + eps) if outside else g / np.sqrt(total + eps))

    return step


def _adadelta(eps: float, weight_decay: float, rho: float = 0.9) -> Step:
    v, w = np.zeros(1), np.zeros(1)

    def step(rate: float, p: np.ndarray, g: np.ndarray) -> np.ndarray:
        nonlocal v, w
        g = g + weight_decay * p
        v = rho * v + (1 - rho) * g**2
        u = np.sqrt(w + eps) / np.sqrt(v + eps) * g
        w = rho * w + (1 - rho) * u**2
        return p - rate * u

    return step


def _lars(weight_decay: float, trust: float, momentum: float = 0.9) -> Step:
    memory = np.zeros(1)

    def step(rate: float, p: np.ndarray, g: np.ndarray) -> np.ndarray:
        nonlocal memory
        u = g + weight_decay * p
        memory = momentum * memory - rate * trust * np.linalg.norm(p) / np.linalg.norm(u) * u
        return p + memory

    return step


def _adafactor(momentum: float | None = None, scaled: bool = True, weight_decay: float = 0.0) -> Step:
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


def _clipped_by_weights(share: float) -> Step:
    def step(rate: float, p: np.ndarray, g: np.ndarray) -> np.ndarray:
        return p - rate * g * min(1.0, share * max(np.linalg.norm(p), 1e-3) / np.linalg.norm(g))

    return step


def _mean(decay: float = 0.9) -> Step:
    m, t = np.zeros(1), 0

    def step(rate: float, p: np.ndarray, g: np.ndarray) -> np.ndarray:
        nonlocal m, t
        t += 1
        m = decay * m + (1 - decay) * g
        return p - rate * m / (1 - decay**t)

    return step


def _lbfgs(memory: int) -> Step:
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


@dataclass(frozen=True)
class Row:
    """`make(learning_rate)` is the optimizer; `reference()` a fresh stepper; `rate` one at which it converges.

    Rows without a reference are held against the recorded paths of peers alone.
    """

    name: str
    make: Callable[[Any], optim.GradientTransformation]
    reference: Callable[[], Step] | None = None
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


def _relatives() -> Iterator[Row]:
    yield Row("nadam", optim.nadam, lambda: _adam(nesterov=True))
    yield Row("nadam that warms up", lambda r: optim.nadam(r, momentum_decay=4e-3), _nadam)
    yield Row("radam", lambda r: optim.radam(r, b2=0.8, threshold=4.1), lambda: _radam(0.8, 4.1))
    yield Row(
        "radam with nesterov",
        lambda r: optim.radam(r, b2=0.8, threshold=4.1, nesterov=True),
        lambda: _radam(0.8, 4.1, nesterov=True),
    )
    yield Row("adamax", optim.adamax, _adamax)
    yield Row("lion", lambda r: optim.lion(r, weight_decay=0.02), lambda: _lion(0.02), 0.04)
    yield Row("adagrad", optim.adagrad, _adagrad, 0.5)
    yield Row(
        "adagrad with eps outside",
        lambda r: optim.adagrad(r, 0.0, 1e-3, eps_in_sqrt=False),
        lambda: _adagrad(0.0, 1e-3, outside=True),
        0.5,
    )
    yield Row("adadelta", lambda r: optim.adadelta(r, eps=1e-2, weight_decay=0.01), lambda: _adadelta(1e-2, 0.01), 1.0)
    yield Row("lars", lambda r: optim.lars(r, 0.01, trust_coefficient=0.1), lambda: _lars(0.01, 0.1), 0.5)
    yield Row("adafactor", lambda r: optim.adafactor(r, momentum=0.5), lambda: _adafactor(0.5), 0.2)
    yield Row(
        "adafactor with decay",
        lambda r: optim.adafactor(
            r, clipping_threshold=None, multiply_by_parameter_scale=False, weight_decay_rate=0.01
        ),
        lambda: _adafactor(scaled=False, weight_decay=0.01),
    )
    yield Row(
        "muon of vectors",
        lambda r: optim.muon(r, adam_weight_decay=0.02),
        lambda: _adam(nesterov=True, weight_decay=0.02),
    )


def _wrapped() -> Iterator[Row]:
    yield Row("clipped by its own norm", lambda r: _chained(r, optim.clip_by_norm(0.7)), lambda: _clipped(0.7, True))
    yield Row(
        "clipped by its mean square",
        lambda r: _chained(r, optim.clip_by_block_rms(0.7)),
        lambda: _clipped(0.7 * 3**0.5, True),
    )
    yield Row(
        "clipped by its weights",
        lambda r: _chained(r, optim.adaptive_grad_clip(0.1)),
        lambda: _clipped_by_weights(0.1),
        0.5,
    )
    yield Row("running mean", lambda r: _chained(r, optim.ema(0.9)), _mean)
    yield Row("masked", lambda r: optim.masked(optim.adam(r), True), _adam)
    yield Row("one group", lambda r: optim.multi_transform({"all": optim.adam(r)}, "all"), _adam)
    yield Row("every gradient a step", lambda r: optim.MultiSteps(optim.adam(r), 1).gradient_transformation(), _adam)
    yield Row("steps if finite", lambda r: optim.apply_if_finite(optim.adam(r), 2), _adam)
    yield Row("halves", lambda r: optim.split_real_and_imaginary(optim.adam(r)), _adam)
    yield Row("injected", lambda r: optim.inject_hyperparams(optim.adam)(r, b1=0.8), lambda: _adam(0.8))
    yield Row(
        "lbfgs without a search", lambda r: optim.lbfgs(r, memory_size=2, linesearch=None), lambda: _lbfgs(2), 0.3
    )


def _chained(r: Any, transformation: optim.GradientTransformation) -> optim.GradientTransformation:
    return optim.chain(transformation, optim.sgd(r))


def _given(make: Callable[[Any], optim.GradientTransformation], **extra: Callable[[Any, Any], Any]) -> Any:
    """An optimizer whose update gets arguments that it needs, made of the updates and the parameters."""

    def wrapped(rate: Any) -> optim.GradientTransformation:
        inner = make(rate)

        def update(updates: Any, state: Any, params: Any = None) -> Any:
            values = {name: value(updates, params) for name, value in extra.items()}
            return inner.update(updates, state, params, **values)

        return optim.GradientTransformation(inner.init, update)

    return wrapped


def _sharpness(rate: Any, **options: Any) -> optim.GradientTransformation:
    return optim.sam(optim.sgd(rate), optim.chain(optim.normalize(), optim.sgd(0.01)), **options)


def _recorded() -> Iterator[Row]:
    yield Row("yogi", optim.yogi)
    yield Row("adabelief", optim.adabelief)
    yield Row("adabelief with nesterov", lambda r: optim.adabelief(r, nesterov=True))
    yield Row("acprop", lambda r: optim.acprop(r, b2=0.9, weight_decay=0.01), rate=0.02)
    yield Row("novograd", lambda r: optim.novograd(r, weight_decay=0.01), rate=0.01)
    yield Row("prodigy", lambda r: optim.prodigy(r, estim_lr0=0.1), rate=1.0)
    yield Row("dadapt_adamw", lambda r: optim.dadapt_adamw(r, estim_lr0=0.1), rate=1.0)
    yield Row("schedule_free_adamw", optim.schedule_free_adamw)
    yield Row("schedule_free_sgd", optim.schedule_free_sgd)
    yield Row("sam of single steps", lambda r: _sharpness(r, sync_period=1), _sgd)
    yield Row(
        "sam in opaque mode",
        _given(lambda r: _sharpness(r, opaque_mode=True), grad_fn=lambda g, p: lambda q, i: g),
        _sgd,
    )


ROWS = [*_rows(), *_relatives(), *_wrapped(), *_recorded()]
