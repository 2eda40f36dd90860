"""Networks in JAX: functions of a dict of weights, images in NHWC, which XLA prefers on processors; steps donate their state."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks.peers.row import Inputs, Step
from benchmarks.peers.rows.networks import DENSENET121

OPTIMIZERS = {"adam": optax.adam, "sgd": partial(optax.sgd, momentum=0.9)}
Apply = Callable[["Net", Any], Any]


class Net:
    """Layers by the name of their weights; batch norms leave new running statistics in `updates`."""

    def __init__(self, weights: dict[str, Any], statistics: dict[str, Any]) -> None:
        self.weights, self.statistics = weights, statistics
        self.updates: dict[str, Any] = {}

    def linear(self, name: str, x: Any) -> Any:
        """x · weight + bias."""
        return x @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"]

    def conv(self, name: str, x: Any, stride: int = 1, padding: int = 0) -> Any:
        """A convolution, with a bias if it has one."""
        weight, bias = self.weights[f"{name}.weight"], self.weights.get(f"{name}.bias")
        out = jax.lax.conv_general_dilated(
            x, weight, (stride, stride), ((padding, padding),) * 2, dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        return out if bias is None else out + bias

    def norm(self, name: str, x: Any) -> Any:
        """A batch norm in training, the variance in one pass, as Flax has it."""
        mean = jnp.mean(x, axis=(0, 1, 2))
        variance = jnp.maximum(jnp.mean(x * x, axis=(0, 1, 2)) - mean * mean, 0)
        for field, value in (("running_mean", mean), ("running_var", variance)):
            key = f"{name}.{field}"
            self.updates[key] = 0.9 * self.statistics[key] + 0.1 * value
        factor = jax.lax.rsqrt(variance + 1e-5) * self.weights[f"{name}.weight"]
        return (x - mean) * factor + self.weights[f"{name}.bias"]

    def layer_norm(self, name: str, x: Any) -> Any:
        """A layer norm over the last axis."""
        mean = jnp.mean(x, axis=-1, keepdims=True)
        centred = x - mean
        variance = jnp.mean(centred * centred, axis=-1, keepdims=True)
        return centred * jax.lax.rsqrt(variance + 1e-5) * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]

    def encoder_layer(self, name: str, x: Any, heads: int, approximate: bool) -> Any:
        """Attention and two linear layers, norms after the sums."""
        weights = self.weights[f"{name}.self_attn.in_proj_weight"], self.weights[f"{name}.self_attn.in_proj_bias"]
        parts = jnp.split(x @ weights[0].T + weights[1], 3, axis=-1)
        q, k, v = (part.reshape(*x.shape[:2], heads, -1) for part in parts)
        mixed = jax.nn.dot_product_attention(q, k, v).reshape(x.shape)
        x = self.layer_norm(f"{name}.norm1", x + self.linear(f"{name}.self_attn.out_proj", mixed))
        hidden = jax.nn.gelu(self.linear(f"{name}.linear1", x), approximate=approximate)
        return self.layer_norm(f"{name}.norm2", x + self.linear(f"{name}.linear2", hidden))


def _pool(x: Any, width: int, stride: int, padding: int = 0) -> Any:
    pads = ((0, 0), (padding, padding), (padding, padding), (0, 0))
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, width, width, 1), (1, stride, stride, 1), pads)


def _read(inputs: Inputs) -> tuple[dict[str, Any], dict[str, Any]]:
    """Weights and running statistics, the weights of convolutions as HWIO."""
    arrays = {
        name: jnp.asarray(np.transpose(array, (2, 3, 1, 0)) if array.ndim == 4 else array)
        for name, array in inputs["weights"].items()
    }
    running = {name for name in arrays if "running" in name}
    return {k: v for k, v in arrays.items() if k not in running}, {k: v for k, v in arrays.items() if k in running}


def _training(apply: Apply, inputs: Inputs, optimizer: str, rate: float) -> Step:
    transform = OPTIMIZERS[optimizer](rate)
    images = inputs["x"]
    x = jnp.asarray(np.transpose(images, (0, 2, 3, 1)) if images.ndim == 4 else images)
    labels = jnp.asarray(inputs["labels"])
    weights, statistics = _read(inputs)

    def loss(weights: Any, statistics: Any, x: Any, labels: Any) -> Any:
        net = Net(weights, statistics)
        scores = apply(net, x)
        return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(scores, labels)), net.updates

    def update(weights: Any, statistics: Any, state: Any, x: Any, labels: Any) -> Any:
        (value, statistics), grads = jax.value_and_grad(loss, has_aux=True)(weights, statistics, x, labels)
        updates, state = transform.update(grads, state, weights)
        return optax.apply_updates(weights, updates), statistics, state, value

    compiled = jax.jit(update, donate_argnums=(0, 1, 2))
    kept = [weights, statistics, transform.init(weights)]

    def step() -> Any:
        *kept[:], value = jax.block_until_ready(compiled(*kept, x, labels))
        return value

    return step


def mlp(inputs: Inputs, *, optimizer: str, rate: float) -> Step:
    """Linear layers with relu between."""

    def apply(net: Net, x: Any) -> Any:
        for i in range(2):
            x = jax.nn.relu(net.linear(f"layers.{i}", x))
        return net.linear("layers.2", x)

    return _training(apply, inputs, optimizer, rate)


def lstm(inputs: Inputs, *, optimizer: str, rate: float) -> Step:
    """An LSTM over sequences, the inputs' part of the gates computed for all steps at once."""

    def apply(net: Net, x: Any) -> Any:
        weights = net.weights
        given = jnp.moveaxis(x @ weights["lstm.weight_ih_l0"].T + weights["lstm.bias_ih_l0"], 1, 0)

        def advance(state: Any, row: Any) -> Any:
            hidden, cell = state
            gates = row + hidden @ weights["lstm.weight_hh_l0"].T + weights["lstm.bias_hh_l0"]
            enter, forget, new, leave = jnp.split(gates, 4, axis=-1)
            cell = jax.nn.sigmoid(forget) * cell + jax.nn.sigmoid(enter) * jnp.tanh(new)
            hidden = jax.nn.sigmoid(leave) * jnp.tanh(cell)
            return (hidden, cell), None

        zeros = jnp.zeros((x.shape[0], weights["lstm.weight_hh_l0"].shape[1]), x.dtype)
        (hidden, _), _ = jax.lax.scan(advance, (zeros, zeros), given)
        return net.linear("head", hidden)

    return _training(apply, inputs, optimizer, rate)


def lenet(inputs: Inputs, *, optimizer: str, rate: float) -> Step:
    """LeNet. Its first linear layer reads channels first, so the image is turned before it."""

    def apply(net: Net, x: Any) -> Any:
        x = _pool(jax.nn.relu(net.conv("conv1", x, padding=2)), 2, 2)
        x = _pool(jax.nn.relu(net.conv("conv2", x)), 2, 2)
        x = jnp.transpose(x, (0, 3, 1, 2)).reshape(len(x), -1)
        x = jax.nn.relu(net.linear("fc1", x))
        return net.linear("fc3", jax.nn.relu(net.linear("fc2", x)))

    return _training(apply, inputs, optimizer, rate)


def resnet(inputs: Inputs, *, optimizer: str, rate: float, depths: tuple[int, ...], expansion: int) -> Step:
    """A residual network."""

    def block(net: Net, name: str, x: Any, stride: int) -> Any:
        widths = (3, 3) if expansion == 1 else (1, 3, 1)
        strided = 0 if expansion == 1 else 1
        out = x
        for k, width in enumerate(widths):
            by = stride if k == strided else 1
            out = net.norm(f"{name}.bn{k + 1}", net.conv(f"{name}.conv{k + 1}", out, by, width // 2))
            if k < len(widths) - 1:
                out = jax.nn.relu(out)
        if f"{name}.downsample.0.weight" in net.weights:
            x = net.norm(f"{name}.downsample.1", net.conv(f"{name}.downsample.0", x, stride))
        return jax.nn.relu(out + x)

    def apply(net: Net, x: Any) -> Any:
        small = net.weights["conv1.weight"].shape[0] == 3
        x = net.conv("conv1", x, 1, 1) if small else net.conv("conv1", x, 2, 3)
        x = jax.nn.relu(net.norm("bn1", x))
        if not small:
            x = _pool(x, 3, 2, 1)
        for i, depth in enumerate(depths):
            for j in range(depth):
                x = block(net, f"layer{i + 1}.{j}", x, 2 if i and not j else 1)
        return net.linear("fc", jnp.mean(x, axis=(1, 2)))

    return _training(apply, inputs, optimizer, rate)


def densenet(inputs: Inputs, *, optimizer: str, rate: float) -> Step:
    """DenseNet-121."""

    def apply(net: Net, x: Any) -> Any:
        x = _pool(jax.nn.relu(net.norm("norm0", net.conv("conv0", x, 2, 3))), 3, 2, 1)
        for i, depth in enumerate(DENSENET121):
            for j in range(depth):
                name = f"blocks.{i}.layers.{j}"
                out = net.conv(f"{name}.conv1", jax.nn.relu(net.norm(f"{name}.norm1", x)))
                out = net.conv(f"{name}.conv2", jax.nn.relu(net.norm(f"{name}.norm2", out)), padding=1)
                x = jnp.concatenate([x, out], axis=-1)
            if i < len(DENSENET121) - 1:
                name = f"transitions.{i}"
                x = net.conv(f"{name}.conv", jax.nn.relu(net.norm(f"{name}.norm", x)))
                n, height, width, channels = x.shape
                x = x.reshape(n, height // 2, 2, width // 2, 2, channels).mean((2, 4))
        return net.linear("classifier", jnp.mean(jax.nn.relu(net.norm("norm5", x)), axis=(1, 2)))

    return _training(apply, inputs, optimizer, rate)


def transformer(inputs: Inputs, *, optimizer: str, rate: float) -> Step:
    """An encoder and a linear layer on the mean over time."""

    def apply(net: Net, x: Any) -> Any:
        for i in range(4):
            x = net.encoder_layer(f"encoder.layers.{i}", x, 4, approximate=True)
        return net.linear("head", jnp.mean(x, axis=1))

    return _training(apply, inputs, optimizer, rate)


def minilm(inputs: Inputs, *, depth: int, heads: int) -> Step:
    """Vectors of sentences."""
    weights, _ = _read(inputs)
    ids = jnp.asarray(inputs["ids"])

    @jax.jit
    def apply(weights: Any, ids: Any) -> Any:
        net = Net(weights, {})
        x = net.layer_norm("norm", weights["words.weight"][ids] + weights["places.weight"])
        for i in range(depth):
            x = net.encoder_layer(f"encoder.layers.{i}", x, heads, approximate=False)
        return jnp.mean(x, axis=1)

    return lambda: jax.block_until_ready(apply(weights, ids))
