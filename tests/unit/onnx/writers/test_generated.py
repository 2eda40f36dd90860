"""Generated functions are exported, accepted by the checker, equal in onnxruntime, and the same when they are loaded again.

`python -m tests.unit.onnx.writers.test_generated 150` tries more of them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnxruntime")

import nnc
import nnc.numpy as nnp
from nnc import nn
from tests.sampling import sampled
from tests.unit.onnx.writers.test_export import check

ROWS, COLUMNS = 4, 6
Step = Callable[[np.random.Generator, list[Any]], Any]  # values so far, each of (ROWS, COLUMNS), to a new one


def one(rng: np.random.Generator, values: list[Any]) -> Any:
    return values[int(rng.integers(len(values)))]


def weight(rng: np.random.Generator, *shape: int) -> Any:
    return nnp.asarray((rng.standard_normal(shape) / 2).astype(np.float32))


def elementwise(rng: np.random.Generator, values: list[Any]) -> Any:
    functions: list[Any] = [
        nnp.tanh, nnp.sin, nnp.cos, nn.sigmoid, nn.relu, nn.gelu, nn.silu, nn.softplus, nnp.abs, nnp.square, nnp.arctan, nnp.floor,
        nnp.sign, nnp.expm1, lambda x: nnp.exp(-nnp.square(x)), lambda x: nnp.log1p(nnp.abs(x)), lambda x: nnp.sqrt(1 + x * x),
        lambda x: nnp.erf(x), lambda x: nnp.arcsinh(x), lambda x: nnp.clip(x, -0.5, 1.5), lambda x: 1 / (1 + nnp.abs(x)),
    ]  # fmt: skip
    return functions[int(rng.integers(len(functions)))](nnp.tanh(one(rng, values)) * 2)


def binary(rng: np.random.Generator, values: list[Any]) -> Any:
    x, y = one(rng, values), one(rng, values)
    functions: list[Any] = [
        nnp.add, nnp.subtract, lambda x, y: nnp.tanh(x) * y, nnp.maximum, nnp.minimum, lambda x, y: x / (2 + nnp.abs(y)),
        lambda x, y: nnp.where(x > y, x, -y), lambda x, y: nnp.hypot(x, y), lambda x, y: nnp.arctan2(x, 3 + nnp.abs(y)),
    ]  # fmt: skip
    return functions[int(rng.integers(len(functions)))](x, y)


def reduced(rng: np.random.Generator, values: list[Any]) -> Any:
    x, axis = one(rng, values), int(rng.integers(2))
    functions: list[Any] = [nnp.sum, nnp.mean, nnp.max, nnp.min, nnp.var, nnp.logsumexp, nnp.linalg.norm]
    return x - functions[int(rng.integers(len(functions)))](x, axis=axis, keepdims=True)


def normalised(rng: np.random.Generator, values: list[Any]) -> Any:
    x = one(rng, values)
    ways: list[Any] = [nn.softmax, nn.log_softmax, nn.layer_norm, nnp.cumsum]
    return ways[int(rng.integers(len(ways)))](x, axis=-1) if rng.random() < 0.9 else nnp.sort(x, axis=1)


def product(rng: np.random.Generator, values: list[Any]) -> Any:
    x = one(rng, values)
    match int(rng.integers(4)):
        case 0:
            return x @ weight(rng, COLUMNS, COLUMNS) + weight(rng, COLUMNS)
        case 1:
            return nnp.einsum("ij,kj,kl->il", x, weight(rng, 3, COLUMNS), weight(rng, 3, COLUMNS))
        case 2:
            return (x @ one(rng, values).T) @ weight(rng, ROWS, COLUMNS)
        case _:
            image = nnp.reshape(x, (1, 2, 3, ROWS))
            return nnp.reshape(nn.conv(image, weight(rng, 2, 2, 3, 3), padding=1), (ROWS, COLUMNS))


def moved(rng: np.random.Generator, values: list[Any]) -> Any:
    x = one(rng, values)
    places = np.asarray(rng.integers(-COLUMNS, COLUMNS, COLUMNS))
    ways: list[Any] = [
        lambda: nnp.reshape(x.T, (ROWS, COLUMNS)), lambda: nnp.flip(x, axis=1), lambda: nnp.roll(x, 2, axis=1),
        lambda: x[:, places],
        lambda: nnp.concatenate([x[:, 2:], one(rng, values)[:, :2]], axis=1), lambda: nnp.pad(x[1:, :-2], ((1, 0), (2, 0))),
        lambda: nnp.tile(x[:, :2], (1, 3)), lambda: nnp.take_along_axis(x, nnp.argsort(x, axis=1), axis=1),
        lambda: x.at[:, places[:3]].add(1.5), lambda: nnp.stack([x, x], axis=2)[:, :, 1], lambda: nnp.repeat(x[:2], 2, axis=0),
        lambda: nnp.where(nnp.isfinite(x), nnp.triu(x), 0), lambda: nnp.broadcast_to(x[:1], x.shape) + x,
    ]  # fmt: skip
    return ways[int(rng.integers(len(ways)))]()


def looped(rng: np.random.Generator, values: list[Any]) -> Any:
    x, w = one(rng, values), weight(rng, COLUMNS, COLUMNS)
    match int(rng.integers(3)):
        case 0:
            return nnc.scan(
                lambda c, row: (nnp.tanh(c @ w + row), c * 2), nnp.zeros(COLUMNS), x, reverse=bool(rng.integers(2))
            )[1]
        case 1:
            return nnc.fori_loop(0, 3, lambda i, c: nnp.sin(c) + i * 0.5, x)
        case _:
            return nnc.cond(nnp.sum(x) > 0, lambda x: x * 2, lambda x: nnp.tanh(x), x)


def halved(rng: np.random.Generator, values: list[Any]) -> Any:
    """A loop of unknown length, of which no gradient is exported."""
    return nnc.while_loop(lambda c: nnp.sum(c * c) > 1, lambda c: c * 0.5, one(rng, values))


def counted(rng: np.random.Generator, values: list[Any]) -> Any:
    """Computes with integers on the way."""
    x = one(rng, values)
    whole = nnp.astype(nnp.floor(nnp.tanh(x) * 8.7), "int32")
    ways: list[Any] = [
        lambda: whole // 4, lambda: whole % 5, lambda: whole * whole - 3, lambda: nnp.maximum(whole, -whole),
        lambda: nnp.cumsum(whole, axis=0), lambda: nnp.astype(whole > 2, "int32") + nnp.argmax(x, axis=1)[:, None],
    ]  # fmt: skip
    return nnp.astype(ways[int(rng.integers(len(ways)))](), "float32")


def drawn(rng: np.random.Generator, values: list[Any]) -> Any:
    """Draws random numbers by a key that depends on a value."""
    x = one(rng, values)
    key = nnc.random.fold_in(
        nnc.random.key(int(rng.integers(99))), nnp.astype(nnp.floor(nnp.abs(nnp.tanh(x[0, 0])) * 3.7), "uint32")
    )
    ways: list[Any] = [
        lambda: nnc.random.normal(key, x.shape), lambda: nnc.random.uniform(key, x.shape) * x, lambda: nn.dropout(key, x, 0.3),
        lambda: nnc.random.permutation(key, x), lambda: nnp.where(nnc.random.bernoulli(key, 0.5, x.shape), x, -x),
    ]  # fmt: skip
    return ways[int(rng.integers(len(ways)))]()


def transformed(rng: np.random.Generator, values: list[Any]) -> Any:
    """Computes with complex numbers on the way."""
    x, y = one(rng, values), one(rng, values)
    z = nnp.tanh(x) + 1j * nnp.tanh(y)
    ways: list[Any] = [
        lambda: nnp.fft.irfft(nnp.fft.rfft(x, axis=1) * weight(rng, COLUMNS // 2 + 1), COLUMNS, axis=1),
        lambda: nnp.real(nnp.fft.ifft2(nnp.fft.fft2(z) * weight(rng, ROWS, COLUMNS))), lambda: nnp.imag(z * z + nnp.exp(z)),
        lambda: nnp.abs(z) - nnp.real(nnp.roll(z, 1, axis=1) / (3 + z)), lambda: nnp.real((z @ z.T) @ z),
    ]  # fmt: skip
    return ways[int(rng.integers(len(ways)))]()


STEPS: list[Step] = [
    elementwise,
    elementwise,
    binary,
    binary,
    reduced,
    normalised,
    product,
    product,
    moved,
    moved,
    looped,
    counted,
    drawn,
    transformed,
]


def program(seed: int) -> Callable[[Any, Any], Any]:
    """A function of two arrays; every third is the gradient of its smooth part."""

    steps = [*STEPS, halved] if seed % 3 else STEPS

    def fun(x: Any, y: Any) -> Any:
        rng = np.random.default_rng([7, seed])
        values = [x, y]
        for _ in range(int(rng.integers(3, 9))):
            step = steps[int(rng.integers(len(steps)))]
            values.append(step(rng, values))
        return tuple(values[-2:])

    if seed % 3:
        return fun
    return nnc.grad(lambda x, y: nnp.sum(nnp.tanh(fun(x, y)[1])), argnums=(0, 1))


def try_program(seed: int) -> None:
    rng = np.random.default_rng([8, seed])
    x, y = (rng.standard_normal((ROWS, COLUMNS)).astype(np.float32) for _ in range(2))
    check(program(seed), x, y, tolerance=2e-4)


@pytest.mark.parametrize("seed", sampled(list(range(150)), 12))
def test_a_generated_function_is_the_same_in_onnxruntime_and_when_it_is_loaded_again(seed: int) -> None:
    try_program(seed)


if __name__ == "__main__":
    failed = 0
    for seed in range(int(sys.argv[1])):
        try:
            try_program(seed)
        except Exception as error:
            failed += 1
            print(f"seed {seed}: {type(error).__name__}: {str(error)[:600]}", flush=True)
    print(f"{int(sys.argv[1]) - failed} of {sys.argv[1]} programs pass")
