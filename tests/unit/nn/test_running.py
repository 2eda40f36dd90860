"""The convention of stateful layers: (output, new self), through Sequential, Run and users' modules; keys for layers that draw."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import nn
from nnc.errors import ArgumentError, ArgumentTypeError

KEY = nnc.random.key(0)
X = np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32)


class Counter(nn.Module):
    """A user's layer with a state of its own."""

    count: nnc.Array = nn.field(state=True)

    def __call__(self, x: Any) -> Any:
        return x * 1.0, self.replace(count=self.count + 1)


class Block(nn.Module):
    """A user's module of others, in all kinds of containers."""

    first: nn.Linear
    norms: list[nn.BatchNorm]
    named: dict[str, Any]
    sizes: tuple[int, ...] = nn.field(static=True, default=(1, 2))

    def __call__(self, x: Any, *, key: Any = None) -> Any:
        run = nn.Run(self, key=key)
        x = run.first(x)
        for norm in run.norms:
            x = norm(x)
        x = run.named["drop"](x)
        return run.result(run.named["counter"](run.named["counter"](x)))


def make_block(rate: float = 0.0) -> Block:
    named = {"counter": Counter(nnp.zeros(())), "drop": nn.Dropout(rate)}
    return Block(nn.Linear(3, 3, key=KEY), [nn.BatchNorm(3), nn.BatchNorm(3)], named)


class Outer(nn.Module):
    block: Block
    tail: nn.Sequential

    def __call__(self, x: Any, *, key: Any = None) -> Any:
        run = nn.Run(self, key=key)
        return run.result(run.tail(run.block(x)))


def test_a_module_is_stateful_where_a_part_of_it_is() -> None:
    assert nn.is_stateful(nn.BatchNorm(2))
    assert nn.is_stateful(nn.Sequential(nn.relu, nn.Sequential(nn.BatchNorm(2))))
    assert nn.is_stateful({"a": [Counter(nnp.zeros(()))]})
    assert not nn.is_stateful(nn.Sequential(nn.LayerNorm(2), nn.Dropout(0.5)))
    assert nn.is_stateful(nn.inference_mode(nn.BatchNorm(2)))


def test_sequential_returns_its_new_self_where_a_layer_has_one() -> None:
    model = nn.Sequential(nn.Linear(3, 4, key=KEY), nn.BatchNorm(4), nn.relu, nn.Sequential(nn.BatchNorm(4)))
    out, new = model(X)
    assert (out.shape, type(new)) == ((8, 4), nn.Sequential)
    _, norm = model[1](model[0](X))
    np.testing.assert_array_equal(np.asarray(new[1].mean), np.asarray(norm.mean))
    assert np.abs(np.asarray(new[3][0].mean)).max() > 0
    assert np.abs(np.asarray(model[1].mean)).max() == 0
    assert nn.Sequential(nn.relu)(X).shape == (8, 3)


def test_states_pass_through_modules_of_users() -> None:
    model = Outer(make_block(), nn.Sequential(nn.BatchNorm(3)))
    out, new = model(X)
    assert float(new.block.named["counter"].count) == 2
    for norm in (*new.block.norms, new.tail[0]):
        assert np.abs(np.asarray(norm.variance) - 1).max() > 0
    assert new.block.first.weight is model.block.first.weight
    compiled_out, compiled = nnc.compile(lambda model, x: model(x))(model, X)
    np.testing.assert_allclose(np.asarray(compiled_out), np.asarray(out), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(np.asarray(compiled.tail[0].mean), np.asarray(new.tail[0].mean), rtol=1e-5, atol=1e-6)


def test_inference_returns_the_same_form_and_changes_no_average() -> None:
    model = nn.inference_mode(Outer(make_block(0.5), nn.Sequential(nn.BatchNorm(3))))
    out, new = model(X)
    np.testing.assert_array_equal(np.asarray(new.tail[0].mean), np.asarray(model.tail[0].mean))
    np.testing.assert_array_equal(np.asarray(model(X)[0]), np.asarray(out))


def test_a_run_gives_each_part_a_key_of_its_own() -> None:
    model = nn.Sequential(nn.Dropout(0.5), nn.Dropout(0.5))
    out = np.asarray(model(np.ones(1000, np.float32), key=KEY))
    assert abs((out == 4).mean() - 0.25) < 0.06  # both keep it: the draws are independent
    np.testing.assert_array_equal(np.asarray(model(np.ones(1000, np.float32), key=KEY)), out)
    with pytest.raises(ArgumentError, match="there is no key to draw with"):
        make_block(0.5)(X)
    assert make_block(0.5)(X, key=KEY)[0].shape == X.shape


def test_a_run_shows_parts_and_settings() -> None:
    run = nn.Run(make_block())
    assert run.sizes == (1, 2)
    assert run.first.in_features == 3
    assert len(run.norms) == 2
    assert len(run.norms[1:]) == 1
    assert sorted(run.named) == ["counter", "drop"]
    with pytest.raises(AttributeError):
        run.missing  # noqa: B018


def test_a_module_that_keeps_a_new_self_to_itself_is_told() -> None:
    class Forgets(nn.Module):
        norm: nn.BatchNorm

        def __call__(self, x: Any) -> Any:
            return self.norm(x)[0]

    with pytest.raises(ArgumentTypeError, match=r"Forgets: it holds a state(.|\n)*nnc.nn.Run\(self\)"):
        nn.Sequential(Forgets(nn.BatchNorm(3)))(X)
