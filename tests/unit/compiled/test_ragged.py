"""The last batch of an epoch, which has fewer rows: it takes the machine code of the other batches' family."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import nn, optim
from nnc.backends.cpu.compiler.engine import Engine


def mlp(key: Any) -> tuple[Any, Any]:
    first, last = nnc.random.split(key)
    model = nn.Sequential([nn.Linear(16, 64, key=first), nn.relu, nn.Linear(64, 10, key=last)])
    return model, lambda model, x, y: nnp.mean(nn.softmax_cross_entropy(model(x), y))


def transformer(key: Any) -> tuple[Any, Any]:
    keys = nnc.random.split(key)
    layer = nn.TransformerEncoderLayer(64, 2, 128, key=keys[0], norm_first=True)
    model = nn.Sequential([layer, lambda x: nnp.mean(x, axis=-2), nn.Linear(64, 10, key=keys[1])])
    return model, lambda model, x, y: nnp.mean(nn.softmax_cross_entropy(model(x), y))


# objects that are linked for a new size, once the family is known: one product of the transformer, whose result lies transposed,
# takes its columns' number as a constant, and the program's text is printed anew with it
MOST = {mlp: 0, transformer: 2}


@pytest.mark.parametrize(("make", "shape"), [(mlp, (16,)), (transformer, (24, 64))])
def test_rests_of_epochs_are_hardly_compiled(
    make: Any, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    model, loss = make(nnc.random.key(0))
    optimizer = optim.adam(1e-2)
    state, linked, found, counts = optimizer.init(model), [], [], []
    link = Engine.link

    def counted(self: Any, *args: Any) -> Any:
        linked.append(args)
        return link(self, *args)

    monkeypatch.setattr(Engine, "link", counted)

    @nnc.compile
    def step(model: Any, state: Any, x: Any, y: Any) -> Any:
        value, grads = nnc.value_and_grad(loss)(model, x, y)
        updates, state = optimizer.update(grads, state, model)
        return optim.apply_updates(model, updates), state, value

    for rows in (128 + 50, 128 + 40, 128 + 56, 128 + 45, 128 + 61):
        arrays = rng.normal(size=(rows, *shape)).astype(np.float32), rng.integers(0, 10, rows)
        for x, y in nnc.data.batches(arrays, 64):
            before = model
            model, state, value = step(model, state, x, y)
            found.append((value, before, x, y))
        counts.append(len(linked))
    assert max(b - a for a, b in itertools.pairwise(counts[2:])) <= MOST[make] < counts[0]
    for value, *args in found:
        np.testing.assert_allclose(float(value), float(loss(*args)), rtol=1e-5)
