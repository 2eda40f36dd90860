"""SpectralNorm and WeightNorm around layers of all kinds; test_layer_oracles.py has PyTorch's numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import nn, tree
from nnc.errors import ArgumentError, ArgumentTypeError, AxisError, TreeError

KEY = nnc.random.key(0)
X = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)


def linear() -> nn.Linear:
    return nn.Linear(3, 4, key=KEY)


def singular_value(layer: Any) -> float:
    weight = np.asarray(layer.weight)
    return float(np.linalg.norm(weight.reshape(weight.shape[0], -1), 2))


def test_the_largest_singular_value_becomes_one() -> None:
    layer = nn.SpectralNorm(linear(), key=KEY)
    for _ in range(20):
        out, layer = layer(X)
    merged = layer.merged()
    assert singular_value(merged) == pytest.approx(1, abs=1e-5)
    np.testing.assert_allclose(out, merged(X), rtol=1e-4, atol=1e-6)
    assert np.array_equal(layer.layer.weight, linear().weight), "the layer's own weight stays"
    assert np.array_equal(merged.bias, linear().bias)


def test_vectors_move_in_training_and_stay_in_inference() -> None:
    layer = nn.SpectralNorm(linear(), key=KEY)
    layer = layer.replace(left=layer.left * 0 + 0.5, right=layer.right * 0 + 0.5)
    assert nn.is_stateful(layer) and set(nn.parameters(layer)) == {"layer.weight", "layer.bias"}
    moved = layer(X)[1]
    assert not np.array_equal(moved.left, layer.left)
    still = nn.inference_mode(moved)
    assert np.array_equal(still(X)[1].right, moved.right)


def test_it_is_trained_within_other_modules() -> None:
    first, last = nn.SpectralNorm(linear(), key=KEY), nn.SpectralNorm(nn.Linear(4, 1, key=KEY), key=KEY)
    model = nn.Sequential(first, nn.relu, nn.BatchNorm(4), last)
    params, rest = nn.partition(model)

    @nnc.compile
    def step(params: Any, rest: Any) -> Any:
        def loss(params: Any) -> Any:
            out, new = nn.combine(params, rest)(X)
            return nnp.sum(out**2), nn.partition(new)[1]

        (value, rest), gradient = nnc.value_and_grad(loss, has_aux=True)(params)
        return nnc.tree.map(lambda p, g: p - 0.1 * g, params, gradient), rest, value

    start = step(params, rest)[2]
    for _ in range(30):
        params, rest, value = step(params, rest)
    assert float(value) < float(start)
    trained = nn.combine(params, rest)
    assert not np.array_equal(trained.layers[0].left, model.layers[0].left)
    assert singular_value(trained.layers[0].merged()) == pytest.approx(1, abs=1e-2)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda layer: nn.SpectralNorm(layer, key=KEY, name="layers.0.weight"),
        lambda layer: nn.WeightNorm(layer, name="layers.0.weight"),
    ],
)
def test_layers_with_a_state_and_a_key_keep_both(wrap: Any) -> None:
    inner = nn.Sequential(linear(), nn.BatchNorm(4), nn.Dropout(0.5))
    layer = wrap(inner)
    out, new = layer(X, key=KEY)
    assert type(new) is type(layer) and not np.array_equal(new.layer.layers[1].mean, inner.layers[1].mean)
    assert np.array_equal(new.layer.layers[0].weight, inner.layers[0].weight)
    assert (np.asarray(out) == 0).any()
    assert tree.structure(new) == tree.structure(layer)


def test_convolutions_are_matrices_of_their_outputs() -> None:
    conv = nn.SpectralNorm(nn.Conv(3, 4, 3, key=KEY), key=KEY, steps=30)
    assert singular_value(conv(np.ones((1, 3, 5, 5), np.float32))[1].merged()) == pytest.approx(1, abs=1e-4)
    assert nn.SpectralNorm(nn.ConvTranspose(3, 4, 3, key=KEY), key=KEY).left.shape == (4,)
    assert nn.WeightNorm(nn.ConvTranspose(3, 4, 3, key=KEY)).scale.shape == (1, 4, 1, 1)
    assert nn.SpectralNorm(nn.Conv(3, 4, 3, key=KEY), key=KEY, axis=-1).left.shape == (3,)


def test_weight_norm_begins_with_the_weight_and_trains_length_and_direction() -> None:
    layer = nn.WeightNorm(linear())
    assert not nn.is_stateful(layer)
    np.testing.assert_allclose(layer(X), linear()(X), rtol=1e-6, atol=1e-7)
    doubled = layer.replace(scale=layer.scale * 2, layer=layer.layer.replace(weight=layer.layer.weight * 7))
    np.testing.assert_allclose(doubled.merged().weight, linear().weight * 2, rtol=1e-5)
    gradient = nnc.compile(nnc.grad(lambda m: nnp.sum(m(X) ** 2)))(layer)
    along = nnp.sum(gradient.layer.weight * layer.layer.weight, axis=1)
    np.testing.assert_allclose(along, np.zeros(4), atol=1e-4, err_msg="the direction's gradient is orthogonal to it")
    assert set(nn.parameters(layer)) == {"layer.weight", "layer.bias", "scale"}
    assert nn.WeightNorm(linear(), axis="all").scale.shape == ()


def test_they_are_saved_loaded_and_made_of_shapes(tmp_path: Path) -> None:
    for make in (lambda: nn.SpectralNorm(linear(), key=KEY), lambda: nn.WeightNorm(linear()), lambda: nn.PReLU(3)):
        layer, shapes = make(), nnc.eval_shape(make)
        nnc.io.save(tmp_path / "layer.safetensors", layer)
        again = nnc.io.load(tmp_path / "layer.safetensors", like=shapes)
        assert all(np.array_equal(a, b) for a, b in zip(tree.leaves(again), tree.leaves(layer), strict=True))


def test_slopes_of_prelu_are_parameters_of_channels() -> None:
    layer = nn.PReLU(3, negative_slope=0.5)
    assert set(nn.parameters(layer)) == {"weight"}
    np.testing.assert_allclose(layer(-np.ones((2, 3, 4, 4), np.float32)), np.full((2, 3, 4, 4), -0.5))
    last = nn.PReLU(3, axis=-1).replace(weight=nnp.asarray([1.0, 2.0, 3.0]))
    np.testing.assert_allclose(last(-np.ones((2, 2, 3), np.float32))[0, 0], [-1, -2, -3])
    loaded = nn.load_torch(nn.Sequential(nn.PReLU(2)), {"0.weight": np.array([0.1, 0.2], np.float32)})
    np.testing.assert_allclose(loaded(np.array([[-1.0, -1.0]], np.float32)), [[-0.1, -0.2]])


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: nn.SpectralNorm(linear()), ArgumentTypeError, "'key' is missing"),
        (lambda: nn.SpectralNorm(linear(), key=KEY, name="kernel"), TreeError, "no parameter 'kernel'(.|\n)*weight, bias"),
        (lambda: nn.SpectralNorm(linear(), key=KEY, steps=0), ArgumentError, "steps is 0"),
        (lambda: nn.SpectralNorm(linear(), key=KEY, axis=2), AxisError, "axis 2 is out of range"),
        (lambda: nn.SpectralNorm(X, key=KEY), ArgumentTypeError, "not a module"),  # type: ignore[arg-type]
        (lambda: nn.SpectralNorm(nn.Dropout(), key=KEY), TreeError, "no parameter 'weight'(.|\n)*layer with parameters"),
        (lambda: nn.WeightNorm(linear(), axis="rows"), ArgumentError, "axis is 'rows'"),
        (lambda: nn.WeightNorm(nn.Linear(0, 4, key=KEY)), ArgumentError, "no axes or no elements"),
        (lambda: nn.PReLU(-1), ArgumentTypeError, r"shape \(-1\)"),
        (lambda: nn.PReLU(num_parameters=3), ArgumentTypeError, "no argument 'num_parameters'"),  # type: ignore[call-arg]
    ],
)  # fmt: skip
def test_mistakes_are_named(call: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        call()
