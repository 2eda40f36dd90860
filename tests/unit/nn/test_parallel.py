"""Layers whose weights are split over places: values, gradients and training are those of one place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import nn, optim
from nnc.distributed import PartitionSpec as P
from nnc.distributed import data_parallel, gather, make_mesh, partition_specs, shard_map
from nnc.errors import ArgumentError, NncError, OutOfBoundsError, ShapeError, UnboundAxisError
from nnc.trace.core.named import stage_named

RNG = np.random.default_rng(0)
KEY = nnc.random.key(0)
MESH = make_mesh((2,), ("model",), simulated=True)
X = RNG.standard_normal((3, 5, 8))
WHOLE = P()
WORDS, NEXT = RNG.integers(0, 12, (8, 5)), RNG.integers(0, 12, (8, 5))


class LanguageModel(nn.Module):
    table: nn.Embedding
    blocks: list[Any]

    def __init__(self, key: Any) -> None:
        keys = nnc.random.split(key, 3)
        self.table = nn.Embedding(12, 8, key=keys[0], dtype="float64")
        self.blocks = [
            nn.TransformerEncoderLayer(8, 4, 12, key=k, norm_first=True, dtype="float64") for k in (keys[1], keys[2])
        ]

    def __call__(self, words: Any) -> Any:
        x = self.table(words)
        for block in self.blocks:
            x = block(x, is_causal=True)
        return self.table.attend(x)


def close(found: Any, expected: Any) -> None:
    for a, b in zip(nnc.tree.leaves(found), nnc.tree.leaves(expected), strict=True):
        if nnc.tree.is_array(b):
            np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-9, atol=1e-11)


def at_places(f: Any, model: Any, *args: Any, out_specs: Any = WHOLE) -> Any:
    """The result of f(model, *args), each place with its part of the weights."""
    specs = (partition_specs(model), *[P()] * len(args))
    return nnc.compile(shard_map(f, mesh=MESH, in_specs=specs, out_specs=out_specs))(model, *args)


MODELS: dict[str, tuple[Any, Any]] = {
    "attention": (nn.MultiHeadAttention(8, 4, key=KEY, dtype="float64"), lambda m, x: m(x, is_causal=True)),
    "grouped": (nn.MultiHeadAttention(8, 4, kv_heads=2, key=KEY, dtype="float64"), lambda m, x: m(x, x[:, :2])),
    "encoder": (nn.TransformerEncoderLayer(8, 2, 6, key=KEY, dtype="float64"), lambda m, x: m(x)),
    "decoder": (nn.TransformerDecoderLayer(8, 2, key=KEY, dtype="float64"), lambda m, x: m(x, x[:, :3] * 2)),
    "embedding": (nn.Embedding(10, 8, key=KEY, dtype="float64"), lambda m, x: m(np.array([[0, 9, -1], [5, 4, 4]])) * x[0, 0]),
    "scores": (nn.Embedding(10, 8, key=KEY, dtype="float64"), lambda m, x: m.attend(x)),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_values_and_gradients_are_those_of_whole_weights(name: str) -> None:
    model, call = MODELS[name]
    split = nn.tensor_parallel(model, "model")
    close(call(split, X), call(model, X))
    run = lambda m, x: (call(m, x), nnc.grad(lambda m, x: (nnp.sin(call(m, x)) ** 2).sum(), argnums=(0, 1))(m, x))
    specs = partition_specs(split)
    value, (of_model, of_x) = at_places(run, split, X, out_specs=(P(), (specs, P())))
    expected, (model_wanted, x_wanted) = run(model, X)
    close((value, of_x), (expected, x_wanted))
    close(nnc.tree.leaves(of_model), nnc.tree.leaves(model_wanted))


def test_two_layers_add_once_forwards_and_once_backwards() -> None:
    model = [
        nn.ColumnParallelLinear(8, 6, axis_name="model", key=KEY), nn.RowParallelLinear(6, 4, axis_name="model", key=KEY),
    ]  # fmt: skip
    weights = [
        model[0].weight.reshape(2, 3, 8),
        model[0].bias.reshape(2, 3),
        nnp.moveaxis(model[1].weight.reshape(4, 2, 3), 1, 0),
    ]

    def loss(w: Any, b: Any, v: Any, x: Any) -> Any:
        first, second = model[0].replace(weight=w, bias=b), model[1].replace(weight=v)
        return (second(nnp.tanh(first(x))) ** 2).sum()

    x = nnp.asarray(X, "float32")
    for f, count in ((loss, 1), (nnc.grad(loss, argnums=3), 2)):
        staged, _ = stage_named(lambda *w, f=f: [f(*w, x)], "model", 2, weights, [True] * 3)
        assert sum(node.command.name == "psum" for node in staged.graph.walk()) == count


def training_step(optimizer: Any) -> Any:
    def step(model: Any, state: Any, words: Any, following: Any) -> Any:
        loss = lambda model: nn.softmax_cross_entropy(model(words), following).mean()
        value, gradient = nnc.value_and_grad(loss)(model)
        updates, state = optimizer.update(gradient, state, model)
        return optim.apply_updates(model, updates), state, value

    return step


def test_a_transformer_trains_on_two_axes_as_in_one_process() -> None:
    optimizer, model = optim.adam(1e-2), LanguageModel(KEY)
    split = nn.tensor_parallel(model, "model")
    mesh = make_mesh((2, 2), ("data", "model"), simulated=True)
    one = nnc.compile(training_step(optimizer))
    many = nnc.compile(data_parallel(training_step(optimizer), batch_argnums=(2, 3), mesh=mesh))
    a, b = (split, optimizer.init(split)), (model, optimizer.init(model))
    for _ in range(3):
        found, expected = many(*a, WORDS, NEXT), one(*b, WORDS, NEXT)
        close(found, expected)
        a, b = found[:2], expected[:2]
    assert gather(a[0], mesh=mesh).blocks[0].linear1.weight is a[0].blocks[0].linear1.weight


def test_the_state_of_a_sharded_optimizer_of_split_weights_is_refused() -> None:
    optimizer = optim.sharded(optim.adam(1e-2), "data")
    split = nn.tensor_parallel(LanguageModel(KEY), "model")
    mesh = make_mesh((2, 2), ("data", "model"), simulated=True)
    many = data_parallel(training_step(optimizer), batch_argnums=(2, 3), mesh=mesh)
    with pytest.raises(NncError, match="nnc.optim.sharded"):
        many(split, optimizer.init(split), WORDS, NEXT)


def test_norms_of_parts_are_refused() -> None:
    optimizer = optim.chain(optim.clip_by_global_norm(1e-3), optim.sgd(0.1))
    split = nn.tensor_parallel(LanguageModel(KEY), "model")
    mesh = make_mesh((2, 2), ("data", "model"), simulated=True)
    many = data_parallel(training_step(optimizer), batch_argnums=(2, 3), mesh=mesh)
    with pytest.raises(ArgumentError, match="varies over 'model', over which no mean is taken"):
        many(split, optimizer.init(split), WORDS, NEXT)


def test_weights_are_whole_on_a_mesh_without_their_axis() -> None:
    optimizer = optim.sgd(0.1)
    split = nn.tensor_parallel(LanguageModel(KEY), "model")
    mesh = make_mesh((4,), ("data",), simulated=True)
    many = data_parallel(training_step(optimizer), batch_argnums=(2, 3), mesh=mesh)
    state = optimizer.init(split)
    close(many(split, state, WORDS, NEXT), training_step(optimizer)(split, state, WORDS, NEXT))


def test_a_cache_holds_the_heads_of_the_place() -> None:
    model, _ = MODELS["grouped"]
    split = nn.tensor_parallel(model, "model")

    def decode(m: Any, x: Any) -> Any:
        cache, outs = m.make_cache((3,), 5, "float64"), []
        for i in range(5):
            out, cache = m(x[:, i : i + 1], cache=cache)
            outs.append(out)
        return nnp.concatenate(outs, axis=1)

    close(at_places(decode, split, X), decode(model, X))


def test_mistakes_are_named(tmp_path: Any) -> None:
    attention, call = MODELS["attention"]
    mesh = make_mesh((8,), ("model",), simulated=True)
    split = nn.tensor_parallel(attention, "model")
    run = lambda mesh, model: shard_map(call, mesh=mesh, in_specs=(partition_specs(model), P()), out_specs=P())(
        model, X
    )
    with pytest.raises(ArgumentError, match=r"heads do not split over the 8 places of 'model'(.|\n)*num_heads 4"):
        run(mesh, split)
    with pytest.raises(ShapeError, match="no multiple of the 8 places"):
        run(mesh, nn.tensor_parallel(nn.Embedding(12, 8, key=KEY), "model"))
    embedding = nn.tensor_parallel(MODELS["embedding"][0], "model")
    for wrong in (10, -11):
        with pytest.raises(OutOfBoundsError):
            at_places(lambda m, i: m(i), embedding, np.array([wrong]))
    part = embedding.replace(weight=embedding.weight[:5])
    with pytest.raises(UnboundAxisError, match="'model'"):
        part(np.array([1]))
    with pytest.raises(ArgumentError, match=r"weight is the part of this process(.|\n)*nnc.distributed.gather"):
        nnc.io.save(tmp_path / "model.safetensors", part)
    row = nn.RowParallelLinear(8, 4, axis_name="model", key=KEY)
    with pytest.raises(ShapeError, match="must be 4"):
        at_places(lambda m, x: m(x), row, nnp.asarray(X, "float32"))
    for make in (
        lambda: nn.tensor_parallel(attention, 3), lambda: nn.ColumnParallelLinear(2, 2, axis_name="", key=KEY),
        lambda: gather(part, mesh=2),
    ):  # fmt: skip
        with pytest.raises(NncError, match="axis_name must be a string|mesh must be a mesh"):
            make()  # type: ignore[no-untyped-call]
