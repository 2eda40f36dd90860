"""Parameters by path: listing, freezing, parting, casting, assigning, and arrays that stand in two places."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import nn, optim, tree
from nnc.errors import ArgumentError, ArgumentTypeError, DTypeError, ShapeError, TreeError

KEY = nnc.random.key(0)
IDS = np.array([[1, 2, 3]])


def make_model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4, key=KEY), nn.BatchNorm(4), nn.relu, nn.Linear(4, 2, key=KEY))


def make_language() -> nn.Sequential:
    return nn.Sequential(nn.Embedding(5, 3, key=KEY), nn.LayerNorm(3), nn.Linear(3, 5, key=KEY))


def test_parameters_are_the_trained_leaves_by_path() -> None:
    assert list(nn.parameters(make_model())) == [
        "layers.0.weight", "layers.0.bias", "layers.1.scale", "layers.1.bias", "layers.3.weight", "layers.3.bias",
    ]  # fmt: skip
    assert list(nn.parameters(make_model(), ["*.bias", "layers.3"])) == [
        "layers.0.bias", "layers.1.bias", "layers.3.weight", "layers.3.bias",
    ]  # fmt: skip
    assert set(nn.parameters({"0": nnp.ones(1), 1: nnp.ones(1)})) == {'"0"', "1"}
    assert list(nn.parameters({"a.b": [nnp.ones(1), 3], "n": None, "f": 2.0, "i": nnp.asarray(1)})) == ['"a.b".0', "f"]


def test_paths_are_those_of_files(tmp_path: Path) -> None:
    model = make_language()
    nnc.io.save(tmp_path / "model.safetensors", model)
    from_file = nnc.io.load(tmp_path / "model.safetensors")["layers"][2]["weight"]
    np.testing.assert_array_equal(np.asarray(from_file), np.asarray(nn.parameters(model)["layers.2.weight"]))


def test_trainable_leaves_out_states_and_frozen_leaves() -> None:
    mask = nn.trainable(make_model(), freeze="layers.0")
    assert [mask.layers[i].weight for i in (0, 3)] == [False, True]
    assert (mask.layers[1].scale, mask.layers[1].mean) == (True, False)
    assert tree.structure(mask) == tree.structure(make_model())


def test_masked_and_frozen_parameters_stay() -> None:
    params = {"encoder": {"w": nnp.ones(2)}, "head": nnp.ones(2)}
    mask = nn.trainable(params, freeze="encoder.*")
    labels = tree.map(lambda on: "train" if on else "freeze", mask)
    optimizer = optim.multi_transform({"train": optim.adamw(0.1), "freeze": optim.set_to_zero()}, labels)
    updates, _ = optimizer.update(params, optimizer.init(params), params)
    new = optim.apply_updates(params, updates)
    np.testing.assert_array_equal(np.asarray(new["encoder"]["w"]), [1, 1])
    assert np.all(np.asarray(new["head"]) < 1)


def test_partition_and_combine_are_inverse() -> None:
    model = make_model()
    for where in (None, "layers.3", ["*.bias"], nn.trainable(model, freeze="*.bias")):
        chosen, rest = nn.partition(model, where)
        again = nn.combine(chosen, rest)
        assert tree.structure(again) == tree.structure(model)
        for a, b in zip(tree.leaves(again), tree.leaves(model), strict=True):
            assert a is b
        assert len(tree.leaves(chosen)) + len(tree.leaves(rest)) == len(tree.leaves(model))
    chosen, rest = nn.partition(model)
    assert (chosen.layers[1].mean, rest.layers[1].scale) == (None, None)


def test_a_partitioned_model_trains_with_its_states() -> None:
    x, labels = np.random.default_rng(0).normal(size=(16, 3)).astype(np.float32), np.arange(16) % 2
    optimizer = optim.adamw(0.05, weight_decay=0.1)

    def loss(params: Any, rest: Any) -> Any:
        scores, model = nn.combine(params, rest)(x)
        return nn.softmax_cross_entropy(scores, labels).mean(), nn.partition(model)[1]

    @nnc.compile(max_traces=1)
    def step(params: Any, rest: Any, state: Any) -> Any:
        (value, rest), grads = nnc.value_and_grad(loss, has_aux=True)(params, rest)
        updates, state = optimizer.update(grads, state, params)
        return optim.apply_updates(params, updates), rest, state, value

    params, rest = nn.partition(make_model())
    state, values = optimizer.init(params), []
    for _ in range(30):
        params, rest, state, value = step(params, rest, state)
        values.append(float(value))
    assert values[-1] < 0.8 * values[0]
    model = nn.combine(params, rest)
    mean = np.asarray(model.layers[0](x)).mean(0)
    np.testing.assert_allclose(np.asarray(model.layers[1].mean), mean, atol=0.3)
    assert np.abs(np.asarray(model.layers[1].mean)).max() > 0.01


def test_cast_converts_floats_by_path() -> None:
    model = {"net": make_model(), "step": nnp.asarray(3)}
    half = nn.cast(model, "bfloat16")
    assert {x.dtype.name for x in tree.leaves(half["net"])} == {"bfloat16"}
    assert half["step"].dtype == model["step"].dtype
    some = nn.cast(model, "float16", "net.layers.3")
    assert [some["net"].layers[i].weight.dtype.name for i in (0, 3)] == ["float32", "float16"]
    abstract = nn.cast(nnc.eval_shape(make_model), "bfloat16")
    assert abstract.layers[0].weight == nnc.ShapeDtypeStruct((4, 3), "bfloat16")
    gradient = nnc.grad(lambda m: nn.cast(m, "bfloat16")(np.ones((8, 3), np.float32))[0].sum().astype("float32"))
    assert gradient(make_model()).layers[0].weight.dtype == np.float32


def test_assign_replaces_arrays() -> None:
    model = nn.assign(make_model(), {"layers.0.bias": nnp.full(4, 7.0)})
    np.testing.assert_array_equal(np.asarray(model.layers[0].bias), [7, 7, 7, 7])


def test_tied_arrays_are_one_leaf_and_get_the_sum_of_gradients() -> None:
    model = make_language()
    tied = nn.tie(model, {"layers.2.weight": "layers.0.weight"})
    assert len(tree.leaves(tied)) == len(tree.leaves(model)) - 1
    whole = tied.whole()
    assert whole.layers[2].weight is whole.layers[0].weight

    def loss(model: Any) -> Any:
        return nnp.sum(nnp.tanh(model(IDS)))

    apart = nnc.grad(loss)(whole)
    together = nnc.grad(loss)(tied)
    total = np.asarray(apart.layers[0].weight) + np.asarray(apart.layers[2].weight)
    np.testing.assert_allclose(np.asarray(together.model.layers[0].weight), total, rtol=1e-5, atol=1e-6)
    optimizer = optim.adam(0.1)
    updates, _ = optimizer.update(together, optimizer.init(tied), tied)
    new = optim.apply_updates(tied, updates)
    assert new.whole().layers[2].weight is new.whole().layers[0].weight
    assert not np.array_equal(np.asarray(new.whole().layers[0].weight), np.asarray(model.layers[0].weight))
    np.testing.assert_allclose(np.asarray(nnc.compile(loss)(new)), np.asarray(loss(new)), rtol=1e-5)


def test_a_tied_model_passes_states_and_keys_on() -> None:
    model = nn.Sequential(nn.Linear(3, 3, key=KEY), nn.BatchNorm(3), nn.Dropout(0.5), nn.Linear(3, 3, key=KEY))
    tied = nn.tie(model, {"layers.3.weight": "layers.0.weight"})
    _, new = nn.Sequential(tied)(np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32), key=KEY)
    assert tree.structure(new) == tree.structure(nn.Sequential(tied))
    assert np.abs(np.asarray(new[0].model.layers[1].mean)).max() > 0


def test_one_module_used_twice_gets_the_sum_of_gradients() -> None:
    embed = nn.Embedding(5, 3, key=KEY)
    gradient = nnc.grad(lambda e: e.attend(e(IDS)).sum())(embed).weight
    table = np.asarray(embed.weight)
    want = np.tile(table[IDS[0]].sum(0), (5, 1))
    want[IDS[0]] += table.sum(0)
    np.testing.assert_allclose(np.asarray(gradient), want, rtol=1e-5)


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: nn.parameters(make_model(), "layer.*"), ArgumentError, r"no path of the model matches 'layer\.\*'"),
        (lambda: nn.trainable(make_model(), freeze="encoder"), ArgumentError, "matches 'encoder'"),
        (lambda: nn.parameters(make_model(), [3]), ArgumentTypeError, "the pattern 3 is a int"),  # type: ignore[list-item]
        (lambda: nn.partition(make_model(), {"a": True}), TreeError, "differ in structure"),
        (lambda: nn.combine({"a": None}, {"b": 1.0}), TreeError, "differ in structure"),
        (lambda: nn.cast(make_model(), "int32"), DTypeError, "dtype is int32"),
        (lambda: nn.assign(make_model(), {"layers.0.wieght": 1}), TreeError, r"'layers\.0\.wieght'(.|\n)*layers\.0\.weight"),
        (lambda: nn.assign(make_model(), {"layers.0.bias": nnp.ones(3)}), ShapeError, r"layers\.0\.bias is float32\[4\]"),
        (lambda: nn.tie(make_model(), {"layers.0.weight": "layers.3.weight"}), ShapeError, r"layers\.0\.weight is float32\[4,3\]"),
        (lambda: nn.tie(make_model(), {"head": "layers.3.weight"}), ArgumentError, "no array at 'head'"),
        (lambda: nn.tie({"a": nnp.ones(1)}, {"a": "a"}), ArgumentError, "'a' shares another array itself"),
    ],
)  # fmt: skip
def test_mistakes_are_named(call: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        call()


class _Averaged(nn.Module):
    weight: nnc.Array
    averages: dict[str, Any] = nn.field(state=True)
    averages_of_users: dict[str, Any]


def test_a_state_that_is_a_dict_holds_no_parameters() -> None:
    one, norm = nnp.ones(2), nn.BatchNorm(2)
    model = _Averaged(one, {"mean": one, "deep": {"var": [one]}}, {"w": one})
    assert set(nn.parameters(model)) == {"weight", "averages_of_users.w"}
    assert set(nn.parameters({"a": model, "b": [norm]})) == {
        "a.weight",
        "a.averages_of_users.w",
        "b.0.scale",
        "b.0.bias",
    }
    mask = nn.trainable({"a": model})
    assert nnc.tree.leaves(mask["a"].averages) == [False, False]
