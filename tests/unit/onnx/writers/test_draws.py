"""Exported draws are those of nnc in every bit, in onnxruntime and when they are loaded again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnxruntime")

import nnc
import nnc.numpy as nnp
from nnc import nn, random
from nnc.errors import UnsupportedError
from tests.unit.onnx.writers.test_export import run

KEY = np.asarray(random.key(7))
LOGITS = np.random.default_rng(0).standard_normal(5).astype(np.float32)

DRAWS: dict[str, Callable[[Any], Any]] = {
    "bits": lambda key: tuple(random.bits(key, (50,), dtype) for dtype in ("uint8", "uint16", "uint32", "uint64")),
    "keys": lambda key: (random.split(key, 3), random.fold_in(key, 5)),
    "uniform": lambda key: (random.uniform(key, (50, 20)), random.uniform(key, (50,), dtype="float64", minval=-1, maxval=3)),
    "normal": lambda key: (random.normal(key, (2000,)), random.normal(key, (2000,), dtype="float64")),
    "half": lambda key: random.normal(key, (500,), dtype="float16"),
    "truncated": lambda key: random.truncated_normal(key, -1.0, 2.0, (1000,)),
    "integers": lambda key: random.randint(key, (100,), -5, 1000),
    "bernoulli": lambda key: random.bernoulli(key, 0.3, (100,)),
    "permutation": lambda key: (random.permutation(key, 50), random.choice(key, 10, (4,), replace=False)),
    "categorical": lambda key: random.categorical(key, LOGITS, shape=(200,)),
    "exponential": lambda key: (random.exponential(key, (500,)), random.gumbel(key, (500,)), random.laplace(key, (500,))),
    "counts": lambda key: (random.geometric(key, 0.3, (500,)), random.poisson(key, 4.0, (99,)), random.binomial(key, 9, 0.3, (9,))),
    "keys in a loop": lambda key: nnc.scan(lambda k, _: (random.split(k)[0], random.normal(k, (3,))), key, nnp.arange(4))[1],
}  # fmt: skip


@pytest.mark.parametrize("name", DRAWS)
def test_draws_are_the_same_in_every_bit(name: str) -> None:
    data = nnc.onnx.export(DRAWS[name], [KEY], input_names=["key"])
    for key in (KEY, np.array([123456789, 4000000000], np.uint32)):
        wanted = [np.asarray(value) for value in nnc.tree.leaves(nnc.compile(DRAWS[name])(key))]
        for found in (run(data, {"key": key}), nnc.onnx.load(data)({"key": key})):
            for value, other in zip(map(np.asarray, found), wanted, strict=True):
                assert (value.dtype, value.tobytes()) == (other.dtype, other.tobytes())


def test_a_step_with_dropout_is_exported() -> None:
    def loss(w: Any, x: Any, key: Any) -> Any:
        return nnp.mean(nn.dropout(key, nnp.tanh(x @ w), 0.4) ** 2)

    step, rng = nnc.grad(loss), np.random.default_rng(1)
    w, x = (rng.standard_normal(shape).astype(np.float32) for shape in ((6, 8), (5, 6)))
    data = nnc.onnx.export(step, [w, x, KEY], input_names=["w", "x", "key"])
    wanted = np.asarray(nnc.compile(step)(w, x, KEY))
    feeds = {"w": w, "x": x, "key": KEY}
    for (found,) in (run(data, feeds), nnc.onnx.load(data)(feeds)):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-6)
        np.testing.assert_array_equal(np.asarray(found) == 0, wanted == 0)


def test_draws_need_bitwise_operators() -> None:
    with pytest.raises(UnsupportedError, match="version 17 has no bitwise operators"):
        nnc.onnx.export(lambda key: random.uniform(key, (3,)), [KEY], opset=17)
    with pytest.raises(UnsupportedError, match="gamma_draw"):
        nnc.onnx.export(lambda key: random.gamma(key, 2.5, (3,)), [KEY])
