from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import nnc
from nnc import random
from nnc.random import KeyReuseWarning

KEY = random.key(3)


@pytest.fixture(autouse=True)
def checked() -> Iterator[None]:
    with nnc.debug.check_keys():
        yield


def twice(key: Any) -> Any:
    x = random.normal(key)
    return x + random.uniform(key)


def transformed(function: Any) -> dict[str, Any]:
    return {
        "eager": lambda: function(KEY),
        "compile": lambda: nnc.compile(function)(KEY),
        "make_graph": lambda: nnc.make_graph(function)(KEY),
        "vmap": lambda: nnc.vmap(function)(random.split(random.key(9), 3)),
        "grad": lambda: nnc.grad(lambda w: function(KEY) * w)(1.0),
        "compiled grad": lambda: nnc.compile(nnc.grad(lambda w, k: function(k) * w))(1.0, KEY),
    }


@pytest.mark.parametrize("how", list(transformed(twice)))
def test_a_key_that_is_used_twice_is_warned_of_with_both_lines(how: str) -> None:
    with pytest.warns(KeyReuseWarning) as found:
        transformed(twice)[how]()
    assert len(found) == 1
    message = str(found[0].message)
    assert "x = random.normal(key)" in message and "return x + random.uniform(key)" in message
    assert "Fix: key, part = nnc.random.split(key)" in message
    assert found[0].filename == __file__


REUSES: dict[str, Any] = {
    "draw and split": lambda key: (random.split(key), random.bits(key)),
    "two elements": lambda key: (
        random.normal(random.split(key)[0]),
        random.split(random.fold_in(key, 1)),
        random.split(key),
    ),
    "the same part": lambda keys: (random.normal(keys[0]), random.normal(keys[0])),
    "gamma": lambda key: (random.gamma(key, 2.0), random.normal(key)),
    "beta": lambda key: (random.beta(key, 2.0, 1.0), random.beta(key, 2.0, 1.0)),
    "poisson": lambda key: (random.poisson(key, 2.0), random.permutation(key, 3)),
    "one number folded in twice": lambda key: (random.fold_in(key, 3), random.fold_in(key, 3)),
    "after a loop": lambda key: (random.normal(key), nnc.fori_loop(0, 3, lambda i, x: x + random.normal(key), 0.0)),
    "in every round": lambda key: nnc.fori_loop(0, 3, lambda i, x: x + random.normal(key), 0.0),
    "in every step": lambda key: nnc.scan(lambda c, _: (c, random.normal(key)), 0, length=3),
}


@pytest.mark.parametrize("name", REUSES)
@pytest.mark.parametrize("how", [lambda f: f, nnc.compile], ids=["eager", "compiled"])
def test_every_kind_of_reuse_is_warned_of(name: str, how: Any) -> None:
    argument = random.split(random.key(5)) if name == "the same part" else KEY
    with pytest.warns(KeyReuseWarning):
        how(REUSES[name])(argument)


PROPER: dict[str, Any] = {
    "split": lambda key: [random.normal(part) for part in random.split(key, 3)],
    "parts by index": lambda key: (lambda keys: (random.normal(keys[0]), random.normal(keys[1])))(random.split(key)),
    "chain": lambda key: (lambda a, b: (random.normal(b), random.split(a)))(*random.split(key)),
    "folded": lambda key: [random.normal(random.fold_in(key, i)) for i in range(1, 4)],
    "folded in a loop": lambda key: nnc.fori_loop(0, 3, lambda i, x: x + random.normal(random.fold_in(key, i)), 0.0),
    "branches": lambda key: nnc.cond(key[0] > 3, random.normal, random.uniform, key),
    "closed branches": lambda key: nnc.cond(key[0] > 3, lambda: random.normal(key), lambda: random.uniform(key)),
    "carried": lambda key: nnc.while_loop(lambda k: k[0] > 2**31, lambda k: random.split(k)[0], key),
    "scanned": lambda key: nnc.scan(lambda c, k: (c, random.normal(k)), 0, random.split(key, 3)),
    "choice": lambda key: random.choice(key, 5, (3,), replace=False),
    "categorical": lambda key: random.categorical(key, np.zeros(3, np.float32)),
    "poisson": lambda key: random.poisson(key, np.asarray([1.0, 20.0])),
    "binomial": lambda key: random.binomial(key, 30, 0.5),
    "multinomial": lambda key: random.multinomial(key, 30, np.asarray([0.5, 0.5])),
    "beta": lambda key: random.beta(key, 2.0, 3.0),
    "t": lambda key: random.t(key, 2.0),
    "ball": lambda key: random.ball(key, 3),
    "gradient": lambda key: nnc.grad(lambda a: random.gamma(key, a))(2.0),
    "checkpoint": lambda key: nnc.grad(nnc.checkpoint(lambda a: random.normal(key) * a * a))(2.0),
    "permutation": lambda key: random.permutation(key, np.arange(6).reshape(3, 2)),
    "orthogonal": lambda key: random.orthogonal(key, 3),
}


@pytest.mark.parametrize("name", PROPER)
@pytest.mark.parametrize("how", [lambda f: f, nnc.compile], ids=["eager", "compiled"])
def test_proper_uses_of_keys_are_not_warned_of(name: str, how: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        how(PROPER[name])(random.key(77))


def test_calls_of_one_function_may_take_one_key_and_nothing_is_noticed_outside_the_block() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled = nnc.compile(lambda key, x: random.normal(key, x.shape) + x)
        compiled(KEY, np.ones(2)), compiled(KEY, np.ones(3))
        with nnc.debug.eager(), random.reuse.unrecorded():
            twice(KEY)
