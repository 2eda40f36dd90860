"""Programs that are exported: (function, arguments), by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import nnc
import nnc.numpy as nnp
from nnc import nn, optim, random

Case = tuple[Callable[..., Any], tuple[Any, ...]]


def draw(*shape: int, seed: int = 0, dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def mlp() -> Case:
    """One training step with Adam."""
    params = {"w1": draw(32, 64) / 8, "b1": draw(64), "w2": draw(64, 10, seed=1) / 8, "b2": draw(10, seed=2)}
    adam = optim.adam(1e-3)
    state = nnc.tree.map(np.asarray, adam.init(nnc.tree.map(nnp.asarray, params)))

    def loss(params: Any, x: Any, y: Any) -> Any:
        h = nn.relu(x @ params["w1"] + params["b1"])
        return nn.softmax_cross_entropy(h @ params["w2"] + params["b2"], y).mean()

    def step(params: Any, state: Any, x: Any, y: Any) -> Any:
        value, grads = nnc.value_and_grad(loss)(params, x, y)
        updates, state = adam.update(grads, state, params)
        return value, optim.apply_updates(params, updates), state

    return step, (params, state, draw(16, 32), np.arange(16, dtype=np.int32) % 10)


def lenet() -> Case:
    w1, w2, w3, w4 = draw(6, 1, 5, 5) / 5, draw(16, 6, 5, 5) / 12, draw(256, 84) / 16, draw(84, 10) / 9

    def f(x: Any) -> Any:
        h = nn.max_pool(nn.relu(nn.conv(x, w1)), 2)
        h = nn.max_pool(nn.relu(nn.conv(h, w2)), 2).reshape(x.shape[0], -1)
        return nn.softmax(nn.relu(h @ w3) @ w4)

    return f, (draw(2, 1, 28, 28),)


def convolution_gradients() -> Case:
    def f(x: Any, w: Any) -> Any:
        y = nn.conv(x, w, stride=2, padding=1, dilation=1)
        return (nn.avg_pool(nnp.tanh(y), 2) ** 2).sum()

    return nnc.grad(f, argnums=(0, 1)), (draw(2, 3, 11, 9), draw(5, 3, 3, 3))


def grouped_convolution() -> Case:
    return lambda x, w: nn.conv(x, w, padding=(1, 2), dilation=2, groups=2), (draw(1, 4, 9, 8), draw(6, 2, 3, 3))


def transformer() -> Case:
    """A block that appends to a cache of keys and values."""
    d, heads, most = 32, 4, 16
    w = {name: draw(d, d, seed=i) / 6 for i, name in enumerate("qkvo")}
    w |= {"up": draw(d, 64, seed=5) / 6, "down": draw(64, d, seed=6) / 8}

    def f(w: Any, x: Any, keys: Any, values: Any, at: Any) -> Any:
        h = nn.layer_norm(x, np.ones(d, np.float32), np.zeros(d, np.float32))
        q, k, v = ((h @ w[name]).reshape(1, heads, d // heads) for name in "qkv")
        keys = nnc.dynamic_update_slice(keys, k, (at, 0, 0))
        values = nnc.dynamic_update_slice(values, v, (at, 0, 0))
        seen = (nnp.arange(most) <= at)[None, None, :]
        scores = nnp.where(seen, nnp.einsum("qhd,khd->hqk", q, keys) / np.float32(8**0.5), -nnp.inf)
        x = x + nnp.einsum("hqk,khd->qhd", nn.softmax(scores), values).reshape(1, d) @ w["o"]
        return x + nn.gelu(x @ w["up"]) @ w["down"], keys, values

    cache = np.zeros((most, heads, d // heads), np.float32)
    return f, (w, draw(1, d), cache, cache, np.int32(3))


def attention_gradient() -> Case:
    def f(q: Any, k: Any, v: Any) -> Any:
        return (nn.dot_product_attention(q, k, v, is_causal=True) ** 2).sum()

    return nnc.grad(f, argnums=(0, 1, 2)), (draw(2, 9, 2, 8), draw(2, 9, 2, 8, seed=1), draw(2, 9, 2, 8, seed=2))


def lstm() -> Case:
    cell = nn.LSTM(8, 16, key=random.key(0))
    params = nnc.tree.map(lambda x: np.asarray(x) if isinstance(x, nnc.Array) else x, cell)

    def f(cell: Any, xs: Any) -> Any:
        out = cell(xs)
        return nnc.tree.leaves(out)

    return f, (params, draw(12, 8))


def while_gradient() -> Case:
    """A square root by iteration until it is exact enough, and its gradient."""

    def root(a: Any) -> Any:
        def goes_on(s: Any) -> Any:
            return nnp.abs(s * s - a).max() > 1e-5

        return nnc.while_loop(goes_on, lambda s: 0.5 * (s + a / s), nnp.ones_like(a)).sum()

    return nnc.value_and_grad(root), (np.abs(draw(5)) + 1,)


def kalman() -> Case:
    f, h = np.array([[1, 0.1], [0, 1]]), np.array([[1.0, 0.0]])

    def step(carry: Any, z: Any) -> Any:
        x, p = carry
        x, p = f @ x, f @ p @ f.T + 0.01 * np.eye(2)
        gain = p @ h.T / (h @ p @ h.T + 0.1)
        x = x + gain @ (z - h @ x)
        return (x, p - gain @ h @ p), x

    return lambda zs: nnc.scan(step, (np.zeros(2), np.eye(2)), zs), (draw(20, 1, dtype=np.float64),)


def rk4() -> Case:
    def field(y: Any) -> Any:
        return nnp.stack([y[1], (1 - y[0] ** 2) * y[1] - y[0]])

    def f(y: Any) -> Any:
        def step(i: Any, y: Any) -> Any:
            a = field(y)
            b = field(y + 0.05 * a)
            c = field(y + 0.05 * b)
            return y + 0.1 / 6 * (a + 2 * b + 2 * c + field(y + 0.1 * c))

        return nnc.fori_loop(0, 100, step, y)

    return f, (np.array([1.0, 0.5]),)


def sorting() -> Case:
    def f(x: Any) -> Any:
        return nnp.sort(x, axis=1), nnp.argsort(x, axis=0), nnp.top_k(x, 3), nnp.searchsorted(nnp.sort(x[0]), x[1])

    return f, (draw(6, 40),)


def spectrum() -> Case:
    return lambda x: nnp.abs(nnp.fft.rfft(x)) ** 2, (draw(3, 48),)


def spectrum_without_fft() -> Case:
    n = np.arange(32)
    angles = 2 * np.pi * np.outer(n, n) / 32

    def f(x: Any) -> Any:
        return (x @ nnp.cos(angles)) ** 2 + (x @ nnp.sin(angles)) ** 2

    return f, (draw(4, 32, dtype=np.float64),)


def random_walk() -> Case:
    def f(key: Any) -> Any:
        def step(carry: Any, key: Any) -> Any:
            carry = carry + random.normal(key, (3,)) + random.bernoulli(key, 0.3, (3,))
            return carry, carry

        return nnc.scan(step, nnp.zeros(3), random.split(key, 50))[1]

    return f, (np.asarray(random.key(7)),)


def molecular_dynamics() -> Case:
    def energy(x: Any) -> Any:
        d2 = ((x[:, None] - x[None]) ** 2).sum(-1) + nnp.eye(8)
        r6 = 1 / d2**3
        return (nnp.where(nnp.eye(8) > 0, 0, 4 * (r6**2 - r6))).sum() / 2

    def f(x: Any, v: Any) -> Any:
        def step(carry: Any, _: Any) -> Any:
            x, v = carry
            v = v - 0.0005 * nnc.grad(energy)(x)
            x = x + 0.001 * v
            return (x, v - 0.0005 * nnc.grad(energy)(x)), energy(x)

        return nnc.scan(step, (x, v), None, length=20)

    grid = np.stack(np.meshgrid([0, 1.1], [0, 1.1], [0, 1.1]), -1).reshape(8, 3)
    return f, (grid + 0.01 * draw(8, 3, dtype=np.float64), draw(8, 3, dtype=np.float64))


def gaussian_process() -> Case:
    """Marginal likelihood and its gradient, by a Cholesky factor."""
    x, y = draw(24, 2, dtype=np.float64), draw(24, dtype=np.float64, seed=1)

    def f(scale: Any, noise: Any) -> Any:
        d2 = ((x[:, None] - x[None]) ** 2).sum(-1)
        factor = nnp.linalg.cholesky(nnp.exp(-d2 / scale) + noise * np.eye(24))
        z = nnp.linalg.solve_triangular(factor, y, lower=True)
        return 0.5 * z @ z + nnp.log(nnp.diagonal(factor)).sum()

    return nnc.value_and_grad(f, argnums=(0, 1)), (np.float64(1.5), np.float64(0.1))


def branches() -> Case:
    def f(x: Any, i: Any) -> Any:
        y = nnc.switch(i, [lambda x: x * 2, nnp.sin, lambda x: x.sum() + x], x)
        return nnc.cond(y[0] > 0, lambda y: y + 1, lambda y: -y, y)

    return f, (draw(7), np.int32(2))


def scatters() -> Case:
    def f(x: Any, i: Any) -> Any:
        return x.at[i].add(1.0), x[i], nnp.zeros(5).at[i % 5].max(x[i, 0]), nnp.cumsum(x, 0), nnp.take(x, i, axis=0)

    return f, (nnp.asarray(draw(9, 4)), np.array([3, 0, 3, 8]))


def mixed_precision() -> Case:
    def f(x: Any, w: Any) -> Any:
        y = nnp.exp(x.astype("bfloat16")) @ w.astype("bfloat16")
        return y.astype("float32"), x.astype("float16").sum(), (x > 0).any(0), (x * 100).astype("int8")

    return f, (draw(6, 8), draw(8, 3))


def complex_numbers() -> Case:
    def f(z: Any) -> Any:
        return nnp.exp(z) * nnp.conj(z) / (1 + nnp.abs(z)), nnp.fft.fft(z).real, (z @ z.T).imag

    return f, (draw(4, 8) + 1j * draw(4, 8, seed=1),)


def statistics() -> Case:
    def f(x: Any) -> Any:
        return x.mean(0), x.var(1), nnp.median(x, 0), nnp.argmax(x, 1), nnp.logaddexp(x, -x), nnp.power(nnp.abs(x), 1.7)

    return f, (draw(33, 17),)


def edges() -> Case:
    """Results that are arguments, constants, views, numbers, empty, or there twice."""
    c = nnp.asarray(draw(3, 4))

    def f(x: Any, n: Any) -> Any:
        y = x + n
        return x, c, y, y, y.T, x[::2, ::-1], c[1:], 3.5, nnp.zeros((0, 3)), n, nnp.broadcast_to(x[0], (2, 6))

    return f, (draw(5, 6), 2.0)


PROGRAMS: dict[str, Callable[[], Case]] = {
    function.__name__: function
    for function in (
        mlp, lenet, convolution_gradients, grouped_convolution, transformer, attention_gradient, lstm, kalman, rk4, sorting,
        spectrum, spectrum_without_fft, random_walk, molecular_dynamics, branches, scatters, mixed_precision, complex_numbers,
        statistics, edges,
    )
}  # fmt: skip
