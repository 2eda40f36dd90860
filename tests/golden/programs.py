"""The programs whose texts are kept: small networks and algorithms, most of them one training step with its gradient and optimizer.

They are written as users write them. Between them they take every part of lowering: products with epilogues, convolutions in
blocked layouts, pools, batch norm, attention, loops of known and of unknown length with their tapes, factors of matrices.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import nnc
import nnc.numpy as nnp
from nnc import nn, optim
from nnc.nn.models.resnet import BasicBlock

Params = dict[str, Any]


@dataclass(frozen=True)
class Program:
    """A function to compile, and its arguments: arrays, or their specs."""

    name: str
    fun: Callable[..., Any]
    arguments: tuple[Any, ...]


def array(*shape: int, dtype: type[np.generic] = np.float32) -> nnc.ShapeDtypeStruct:
    """The spec of an argument."""
    return nnc.ShapeDtypeStruct(shape, dtype)


def classification_step(make_model: Callable[[], Any], optimizer: optim.GradientTransformation, *batch: Any) -> Any:
    """A training step of a classifier, and the specs of its arguments."""

    def loss(params: Any, rest: Any, inputs: Any, labels: Any) -> Any:
        result = nn.combine(params, rest)(inputs)
        scores, model = result if isinstance(result, tuple) else (result, None)
        return nnp.mean(nn.softmax_cross_entropy(scores, labels)), nn.partition(model)[1]

    def step(params: Any, rest: Any, state: Any, inputs: Any, labels: Any) -> Any:
        (value, rest), grads = nnc.value_and_grad(loss, has_aux=True)(params, rest, inputs, labels)
        updates, state = optimizer.update(grads, state, params)
        return optim.apply_updates(params, updates), rest, state, value

    params, rest = nn.partition(make_model())
    return step, (params, rest, optimizer.init(params), *batch)


def mlp() -> Program:
    """Three dense layers on 64 rows, with Adam."""
    make = lambda: nn.MLP(32, 10, 64, 2, key=nnc.random.key(0))
    step, arguments = classification_step(make, optim.adam(1e-3), array(64, 32), array(64, dtype=np.int64))
    return Program("mlp", step, arguments)


def lenet() -> Program:
    """LeNet-5 on 16 images, with SGD."""
    make = lambda: nn.models.LeNet(key=nnc.random.key(0))
    step, arguments = classification_step(make, optim.sgd(0.1), array(16, 1, 28, 28), array(16, dtype=np.int64))
    return Program("lenet", step, arguments)


def resnet_block() -> Program:
    """A residual block that halves the image, and its classifier, with momentum."""

    def make() -> Any:
        keys = nnc.random.split(nnc.random.key(0), 2)
        block = BasicBlock(16, 32, 2, key=keys[0])
        return nn.Sequential(block, nn.GlobalAvgPool(), nn.Linear(32, 10, key=keys[1]))

    optimizer = optim.sgd(0.1, momentum=0.9)
    step, arguments = classification_step(make, optimizer, array(8, 16, 16, 16), array(8, dtype=np.int64))
    return Program("resnet_block", step, arguments)


def transformer() -> Program:
    """A causal language model of one layer, with clipped gradients."""
    width, symbols = 64, 50
    keys = nnc.random.split(nnc.random.key(0), 3)
    params = {
        "embedding": nn.Embedding(symbols, width, key=keys[0]),
        "layer": nn.TransformerEncoderLayer(width, 4, key=keys[1], norm_first=True, activation=nn.gelu),
        "head": nn.Linear(width, symbols, key=keys[2]),
    }
    optimizer = optim.chain(optim.clip_by_global_norm(1.0), optim.sgd(0.1))

    def loss(params: Params, tokens: Any) -> Any:
        x = params["layer"](params["embedding"](tokens[:, :-1]), is_causal=True)
        return nnp.mean(nn.softmax_cross_entropy(params["head"](x), tokens[:, 1:]))

    def step(params: Params, state: Any, tokens: Any) -> Any:
        value, grads = nnc.value_and_grad(loss)(params, tokens)
        updates, state = optimizer.update(grads, state, params)
        return optim.apply_updates(params, updates), state, value

    return Program("transformer", step, (params, optimizer.init(params), array(4, 33, dtype=np.int64)))


def lstm() -> Program:
    """A recurrent network that predicts the next of 12 rows of features, with SGD; the scan's reverse pass included."""
    keys = nnc.random.split(nnc.random.key(0), 2)
    params = {"lstm": nn.LSTM(16, 32, key=keys[0]), "head": nn.Linear(32, 16, key=keys[1])}

    def loss(params: Params, rows: Any) -> Any:
        hidden, _ = params["lstm"](rows[:, :-1])
        return nnp.mean((params["head"](hidden) - rows[:, 1:]) ** 2)

    def step(params: Params, rows: Any) -> Any:
        value, grads = nnc.value_and_grad(loss)(params, rows)
        return nnc.tree.map(lambda x, gradient: x - 0.1 * gradient, params, grads), value

    return Program("lstm", step, (params, array(8, 13, 16)))


def rk4() -> Program:
    """Runge and Kutta's method on a pendulum with friction, 20 steps; the gradient of where it ends."""

    def slope(y: Any, friction: Any) -> Any:
        return nnp.stack([y[1], -nnp.sin(y[0]) - friction * y[1]])

    def advance(y: Any, friction: Any, h: float) -> Any:
        a = slope(y, friction)
        b = slope(y + h / 2 * a, friction)
        c = slope(y + h / 2 * b, friction)
        d = slope(y + h * c, friction)
        return y + h / 6 * (a + 2 * b + 2 * c + d)

    def end(start: Any, friction: Any) -> Any:
        y = nnc.fori_loop(0, 20, lambda i, y: advance(y, friction, 0.05), start)
        return nnp.sum(y**2)

    return Program("rk4", nnc.value_and_grad(end, argnums=(0, 1)), (array(2, 100), array()))


def while_loop() -> Program:
    """Newton's method for square roots until all are near, and its gradient: on a tape that grows, and on one of 30 rows."""

    def root(x: Any, max_steps: int | None) -> Any:
        is_far = lambda carry: nnp.any(nnp.abs(carry * carry - x) > 1e-5 * x)
        return nnp.sum(nnc.while_loop(is_far, lambda carry: 0.5 * (carry + x / carry), x, max_steps=max_steps))

    def both(x: Any) -> Any:
        return nnc.value_and_grad(root)(x, None), nnc.value_and_grad(root)(x, 30)

    return Program("while_loop", both, (array(64),))


def gaussian_process() -> Program:
    """The negative log marginal likelihood of 40 observations, in float64, and its gradient."""

    def surprise(params: Params, x: Any, y: Any) -> Any:
        scaled = x / nnp.exp(params["log_length"])
        squares = nnp.sum((scaled[:, None] - scaled[None]) ** 2, axis=-1)
        covariance = nnp.exp(-0.5 * squares) + nnp.exp(params["log_noise"]) * nnp.eye(len(y), dtype=y.dtype)
        lower = nnp.linalg.cholesky(covariance)
        half = nnp.linalg.solve_triangular(lower, y, lower=True)
        log_determinant = 2 * nnp.sum(nnp.log(nnp.diagonal(lower)))
        return 0.5 * (nnp.sum(half * half) + log_determinant + len(y) * math.log(2 * math.pi))

    params = {"log_length": array(3, dtype=np.float64), "log_noise": array(dtype=np.float64)}
    arguments = params, array(40, 3, dtype=np.float64), array(40, dtype=np.float64)
    return Program("gaussian_process", nnc.value_and_grad(surprise), arguments)


PROGRAMS = (mlp, lenet, resnet_block, transformer, lstm, rk4, while_loop, gaussian_process)
