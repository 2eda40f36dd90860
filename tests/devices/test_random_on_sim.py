"""Draws on a simulated device are those of the CPU, bit for bit, at once and compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nnc
from nnc import random
from tests.unit.random.test_same_bits import DRAWS, FACTORED, KEY


@pytest.mark.parametrize("name", [*DRAWS, *FACTORED])
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_draws_are_those_of_the_cpu(name: str, compiled: bool) -> None:
    def draw(key: Any) -> Any:
        return {**DRAWS, **FACTORED}[name](key, lambda x: np.asarray(x, np.float32))

    run = nnc.compile(draw) if compiled else draw
    found, wanted = run(nnc.device_put(KEY, "sim:0")), run(KEY)
    assert found.device == "sim:0" and found.spec == wanted.spec
    assert np.asarray(found).tobytes() == np.asarray(wanted).tobytes()


@pytest.mark.parametrize("of", [lambda key: random.split(key, 3), lambda key: random.fold_in(key, 7), random.bits])
def test_keys_and_words_are_those_of_the_cpu(of: Any) -> None:
    with nnc.debug.transfers("error"):
        found = of(nnc.device_put(KEY, "sim:0"))
    assert found.device == "sim:0" and np.array_equal(found, of(KEY))
    with nnc.default_device("sim:0"):
        assert random.key(42).device == "sim:0" and np.array_equal(random.key(42), KEY)


def test_mapped_draws_stay_on_the_device() -> None:
    keys = random.split(nnc.device_put(KEY, "sim:0"), 4)
    with nnc.debug.transfers("error"):
        found = nnc.vmap(lambda key: random.normal(key, (3,)))(keys)
        counts = nnc.vmap(lambda key: random.poisson(key, 3.5, (2,)))(keys)
    wanted = random.split(KEY, 4)
    assert found.device == counts.device == "sim:0"
    assert np.array_equal(found, nnc.vmap(lambda key: random.normal(key, (3,)))(wanted))
    assert np.array_equal(counts, nnc.vmap(lambda key: random.poisson(key, 3.5, (2,)))(wanted))
