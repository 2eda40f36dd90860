"""Recurrent networks: one scan for each direction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

import nnc
import nnc.nn as nn
import nnc.numpy as nnp
from nnc.onnx.model import Node
from nnc.onnx.operators.table import operator

Function = Callable[..., Any]

# By name: the function, and the standard's defaults of alpha and beta.
_ACTIVATIONS: dict[str, tuple[Function, float, float]] = {
    "Sigmoid": (lambda x, a, b: nn.sigmoid(x), 0, 0),
    "Tanh": (lambda x, a, b: nnp.tanh(x), 0, 0),
    "Relu": (lambda x, a, b: nn.relu(x), 0, 0),
    "Affine": (lambda x, a, b: a * x + b, 1, 0),
    "LeakyRelu": (lambda x, a, b: nnp.where(x < 0, a * x, x), 0.01, 0),
    "ThresholdedRelu": (lambda x, a, b: nnp.where(x > a, x, 0), 1, 0),
    "ScaledTanh": (lambda x, a, b: a * nnp.tanh(b * x), 1, 1),
    "HardSigmoid": (lambda x, a, b: nnp.clip(a * x + b, 0, 1), 0.2, 0.5),
    "Elu": (lambda x, a, b: nnp.where(x < 0, a * nnp.expm1(x), x), 1, 0),
    "Softsign": (lambda x, a, b: x / (1 + nnp.abs(x)), 0, 0),
    "Softplus": (lambda x, a, b: nn.softplus(x), 0, 0),
}
_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
_DEFAULTS = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}


def _activations(node: Node, directions: int) -> list[list[Function]]:
    """Returns the activation functions of each direction. Alphas and betas are listed for those alone that have some."""
    names = node.attributes.get("activations") or _DEFAULTS[node.operator] * directions
    alphas, betas = list(node.attributes.get("activation_alpha", [])), list(node.attributes.get("activation_beta", []))
    found: list[Callable[..., Any]] = []
    for name in names:
        title = next(known for known in _ACTIVATIONS if known.lower() == name.lower())
        function, alpha, beta = _ACTIVATIONS[title]
        alpha = alphas.pop(0) if alphas and title in _WITH_ALPHA else alpha
        beta = betas.pop(0) if betas and title in _WITH_BETA else beta
        found.append(partial(function, a=alpha, b=beta))
    each = len(found) // directions
    return [found[index * each : (index + 1) * each] for index in range(directions)]


_WITH_ALPHA = ("Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh", "HardSigmoid", "Elu")
_WITH_BETA = ("Affine", "ScaledTanh", "HardSigmoid")


def _clipped(node: Node, x: Any) -> Any:
    limit = node.attributes.get("clip")
    return x if limit is None else nnp.clip(x, -limit, limit)


def _rnn_step(node: Node, act: list[Function], times: Function, bias: Any, peep: Any, state: Any, gates: Any) -> Any:
    (h,) = state
    return (act[0](_clipped(node, gates + times(h) + bias)),)


def _gru_step(node: Node, act: list[Function], times: Function, bias: Any, peep: Any, state: Any, gates: Any) -> Any:
    (h,) = state
    size = h.shape[-1]
    update_reset = _clipped(node, gates[:, : 2 * size] + times(h, slice(0, 2 * size)) + bias[: 2 * size])
    z, reset = act[0](update_reset[:, :size]), act[0](update_reset[:, size:])
    if node.attributes.get("linear_before_reset", 0):
        hidden = reset * (times(h, slice(2 * size, None)) + bias[2 * size :])
    else:
        hidden = times(reset * h, slice(2 * size, None)) + bias[2 * size :]
    fresh = act[1](_clipped(node, gates[:, 2 * size :] + hidden))
    return ((1 - z) * fresh + z * h,)


def _lstm_step(node: Node, act: list[Function], times: Function, bias: Any, peep: Any, state: Any, gates: Any) -> Any:
    h, c = state
    size = h.shape[-1]
    total = gates + times(h) + bias
    i, o, f, g = (total[:, part * size : (part + 1) * size] for part in range(4))
    if peep is not None:
        i, f = i + peep[:size] * c, f + peep[2 * size :] * c
    i, g = act[0](_clipped(node, i)), act[1](_clipped(node, g))
    f = 1 - i if node.attributes.get("input_forget", 0) else act[0](_clipped(node, f))
    c = f * c + i * g
    o = act[0](_clipped(node, o if peep is None else o + peep[size : 2 * size] * c))
    return o * act[2](c), c


_STEPS: dict[str, Function] = {"RNN": _rnn_step, "GRU": _gru_step, "LSTM": _lstm_step}


@operator("RNN", "GRU", "LSTM")
def recurrent(
    node: Node,
    x: Any,
    w: Any,
    r: Any,
    bias: Any = None,
    lengths: Any = None,
    h0: Any = None,
    c0: Any = None,
    peep: Any = None,
) -> Any:
    """x (time, batch, inputs), w (directions, gates · hidden, inputs), r (directions, gates · hidden, hidden)."""
    w, r = nnp.asarray(w), nnp.asarray(r)
    products = [(partial(_product, w[index]), partial(_product, r[index])) for index in range(w.shape[0])]
    return run_directions(node, x, products, r.shape[-1], bias, lengths, h0, c0, peep)


def _product(weights: Any, x: Any, rows: slice = slice(None)) -> Any:
    return x @ weights[rows].T


def run_directions(
    node: Node,
    x: Any,
    products: Sequence[tuple[Function, Function]],
    hidden: int,
    bias: Any = None,
    lengths: Any = None,
    h0: Any = None,
    c0: Any = None,
    peep: Any = None,
) -> Any:
    """Runs a network whose weights are functions.

    Args:
        products: for each direction the gates' parts of inputs, and of hidden states; these may be asked for some rows of weights.
        hidden: the size of the hidden states.
    """
    is_batch_first = bool(node.attributes.get("layout", 0))
    if is_batch_first:
        x = nnp.swapaxes(x, 0, 1)
        h0, c0 = (None if state is None else nnp.swapaxes(state, 0, 1) for state in (h0, c0))
    x, directions, width = nnp.asarray(x), len(products), _GATES[node.operator] * hidden
    activations = _activations(node, directions)
    states = 2 if node.operator == "LSTM" else 1
    outputs, ends = [], []
    for index, (of_inputs, of_hidden) in enumerate(products):
        is_reversed = node.attributes.get("direction", "forward") == "reverse" or index == 1
        both = nnp.zeros((2 * width,), x.dtype) if bias is None else nnp.asarray(bias)[index]
        given = [
            nnp.zeros((x.shape[1], hidden), x.dtype) if s is None else nnp.asarray(s)[index] for s in (h0, c0)[:states]
        ]
        peephole = None if peep is None else nnp.asarray(peep)[index]
        step = partial(_STEPS[node.operator], node, activations[index], of_hidden, both[width:], peephole)
        ys, last = _scan(step, of_inputs(x) + both[:width], tuple(given), lengths, is_reversed)
        outputs.append(ys)
        ends.append(last)
    y = nnp.stack(outputs, axis=1)
    lasts = [nnp.stack([end[part] for end in ends]) for part in range(states)]
    if is_batch_first:
        y, lasts = nnp.transpose(y, (2, 0, 1, 3)), [nnp.swapaxes(last, 0, 1) for last in lasts]
    return (y, *lasts)


def _scan(step: Function, gates: Any, state: tuple[Any, ...], lengths: Any, is_reversed: bool) -> tuple[Any, Any]:
    """Runs the steps; a sequence that has ended keeps its state, and its outputs are 0."""
    ends = None if lengths is None else nnp.expand_dims(nnp.asarray(lengths), 1)

    def run(state: tuple[Any, ...], now: tuple[Any, Any]) -> tuple[Any, Any]:
        at, inputs = now
        new = step(state, inputs)
        if ends is None:
            return new, new[0]
        is_here = at < ends
        kept = tuple(nnp.where(is_here, fresh, old) for fresh, old in zip(new, state, strict=True))
        return kept, nnp.where(is_here, new[0], nnp.zeros_like(new[0]))

    last, ys = nnc.scan(run, state, (np.arange(gates.shape[0], dtype=np.int32), gates), reverse=is_reversed)
    return ys, last
