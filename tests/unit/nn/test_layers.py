"""Layers: their results, on any batch axes, how they start, and that they learn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import nn, tree
from nnc.errors import ArgumentError, ArgumentTypeError, ShapeError

RNG = np.random.default_rng(0)
KEY = nnc.random.key(0)


def normal(*shape: int) -> Any:
    return RNG.normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("batch", [(), (3,), (2, 3), (0,)])
def test_linear_applies_to_the_last_axis(batch: tuple[int, ...]) -> None:
    layer, x = nn.Linear(4, 5, key=KEY), normal(*batch, 4)
    want = x @ np.asarray(layer.weight).T + np.asarray(layer.bias)
    np.testing.assert_allclose(np.asarray(layer(x)), want, rtol=1e-5, atol=1e-6)


def test_linear_starts_uniform_within_one_over_the_root_of_its_inputs() -> None:
    weight = np.asarray(nn.Linear(100, 300, key=KEY).weight)
    assert 0.099 < np.abs(weight).max() <= 0.1
    assert nn.Linear(2, 3, key=KEY, use_bias=False).bias is None
    assert nn.Linear(2, 3, key=KEY, dtype="float64").weight.dtype == np.float64
    other = np.asarray(nn.Linear(100, 300, key=nnc.random.key(1)).weight)
    assert not np.array_equal(weight, other)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_conv_is_the_function_with_its_weights(layout: str) -> None:
    layer = nn.Conv(2, 4, (3, 2), key=KEY, stride=2, padding="SAME", groups=2, layout=layout)
    x = normal(3, 2, 6, 6) if layout == "NCHW" else normal(3, 6, 6, 2)
    assert layer.weight.shape == (4, 1, 3, 2)
    bias = np.asarray(layer.bias).reshape((4, 1, 1) if layout == "NCHW" else 4)
    want = np.asarray(nn.conv(x, layer.weight, stride=2, padding="SAME", groups=2, layout=layout)) + bias
    np.testing.assert_allclose(np.asarray(layer(x)), want, rtol=1e-6)
    np.testing.assert_allclose(np.asarray(layer(x[0])), want[0], rtol=1e-5, atol=1e-6)


def test_conv_layers_have_any_rank() -> None:
    assert nn.Conv(2, 4, 3, key=KEY, layout="NWC")(normal(1, 8, 2)).shape == (1, 6, 4)
    assert nn.Conv(2, 4, 3, key=KEY, layout="NCDHW")(normal(1, 2, 4, 5, 6)).shape == (1, 4, 2, 3, 4)


def test_conv_transpose_undoes_the_shape_of_conv() -> None:
    x = normal(1, 2, 9, 9)
    down = nn.Conv(2, 4, 3, key=KEY, stride=2)(x)
    up = nn.ConvTranspose(4, 2, 3, key=KEY, stride=2)
    assert up.weight.shape == (4, 2, 3, 3)
    assert up(down).shape == x.shape


def test_pools_flatten_and_identity() -> None:
    x = normal(2, 3, 4, 4)
    np.testing.assert_array_equal(np.asarray(nn.MaxPool(2)(x)), np.asarray(nn.max_pool(x, 2)))
    np.testing.assert_array_equal(np.asarray(nn.MaxPool(2)(x[0])), np.asarray(nn.max_pool(x, 2))[0])
    np.testing.assert_array_equal(
        np.asarray(nn.AvgPool(3, stride=1, padding="SAME", count_include_pad=False)(x)),
        np.asarray(nn.avg_pool(x, 3, stride=1, padding="SAME", count_include_pad=False)),
    )
    assert nn.Flatten()(x).shape == (2, 48)
    assert nn.Flatten(axes=2)(x).shape == (2, 3, 16)
    assert nn.Identity()(x) is x


def test_embedding_takes_rows() -> None:
    layer = nn.Embedding(5, 3, key=KEY)
    ids = np.array([[0, 4], [2, 2]])
    np.testing.assert_array_equal(np.asarray(layer(ids)), np.asarray(layer.weight)[ids])
    gradient = nnc.grad(lambda layer: layer(ids).sum())(layer)
    np.testing.assert_array_equal(np.asarray(gradient.weight)[:, 0], [1, 0, 2, 0, 1])
    with pytest.raises(IndexError):
        layer(np.array([5]))


def test_layer_norm_and_batch_norm_layers() -> None:
    x = normal(8, 3)
    np.testing.assert_allclose(np.asarray(nn.LayerNorm(3)(x)), np.asarray(nn.layer_norm(x)), rtol=1e-6)
    layer = nn.BatchNorm(3)
    out, updated = layer(x)
    np.testing.assert_allclose(np.asarray(out).std(0), np.ones(3), rtol=1e-3)
    np.testing.assert_allclose(np.asarray(updated.mean), 0.1 * x.mean(0), rtol=1e-5)
    again, same = nn.inference_mode(updated)(x)
    np.testing.assert_array_equal(np.asarray(same.mean), np.asarray(updated.mean))
    want = (x - np.asarray(updated.mean)) / np.sqrt(np.asarray(updated.variance) + 1e-5)
    np.testing.assert_allclose(np.asarray(again), want, rtol=1e-5)


def test_dropout_keeps_the_mean_and_drops_the_share() -> None:
    x = np.ones(10000, np.float32)
    out = np.asarray(nn.dropout(KEY, x, 0.25))
    assert set(np.unique(out)) == {np.float32(0), np.float32(1 / 0.75)}
    assert abs((out == 0).mean() - 0.25) < 0.02
    np.testing.assert_array_equal(np.asarray(nn.Dropout(0.25)(x, key=KEY)), out)
    np.testing.assert_array_equal(np.asarray(nn.Dropout(0.25, inference=True)(x)), x)
    np.testing.assert_array_equal(np.asarray(nn.dropout(None, x, 0.25, deterministic=True)), x)


def test_sequential_hands_each_layer_that_wants_one_a_key_of_its_own() -> None:
    model = nn.Sequential([nn.Dropout(0.5), nn.Lambda(lambda x: x + 0), nn.Sequential(nn.Dropout(0.5))])
    x = np.ones(1000, np.float32)
    out = np.asarray(model(x, key=KEY))
    assert set(np.unique(out)) == {0.0, 4.0}
    assert abs((out == 4).mean() - 0.25) < 0.06  # both draws keep it: they are independent
    np.testing.assert_array_equal(np.asarray(nn.inference_mode(model)(x)), x)
    assert len(model) == 3
    assert isinstance(model[0], nn.Dropout)
    assert len(model[1:]) == 2


def test_mlp_has_depth_hidden_layers() -> None:
    model = nn.MLP(2, 3, width=8, depth=2, key=KEY, activation=nnp.tanh, final_activation=nn.softmax)
    assert [layer.weight.shape for layer in model.layers] == [(8, 2), (8, 8), (3, 8)]
    np.testing.assert_allclose(np.asarray(model(normal(5, 2))).sum(-1), np.ones(5), rtol=1e-5)


def test_norm_layers_are_the_functions_with_their_parameters() -> None:
    x, scale, bias = normal(2, 4, 3, 5), normal(4), normal(4)
    pairs = [
        (nn.GroupNorm(2, 4), nn.group_norm(x, 2, scale, bias)),
        (nn.InstanceNorm(4, use_scale=True, use_bias=True), nn.instance_norm(x, scale, bias)),
    ]
    for layer, want in pairs:
        layer = layer.replace(scale=nnp.asarray(scale), bias=nnp.asarray(bias))
        np.testing.assert_allclose(np.asarray(layer(x)), np.asarray(want), rtol=1e-5, atol=1e-6)
    last = nn.RMSNorm(5).replace(scale=nnp.full(5, 2.0))
    np.testing.assert_allclose(np.asarray(last(x)), 2 * np.asarray(nn.rms_norm(x)), rtol=1e-5)
    assert nn.InstanceNorm(4).scale is None
    channels_last = nn.GroupNorm(1, 5, axis=-1)(x)
    np.testing.assert_allclose(
        np.asarray(channels_last), np.asarray(nn.group_norm(x, 1, axis=-1)), rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("x_dtype", ["bfloat16", "float32", "float64"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_running_averages_keep_their_dtype(dtype: str, x_dtype: str) -> None:
    _, layer = nn.BatchNorm(3, dtype=dtype)(nnp.asarray(normal(4, 3)).astype(x_dtype))
    assert (layer.mean.dtype.name, layer.variance.dtype.name) == (dtype, dtype)


def test_dropout_may_drop_whole_channels() -> None:
    out = np.asarray(nn.Dropout(0.5, shared_axes=(2, 3))(np.ones((4, 50, 3, 3), np.float32), key=KEY))
    assert set(np.unique(out)) == {0.0, 2.0}
    assert np.all(out == out[:, :, :1, :1])


def test_checkpoint_changes_no_value_and_no_gradient() -> None:
    block = nn.Sequential(nn.Linear(3, 4, key=KEY), nn.BatchNorm(4), nn.gelu, nn.Dropout(0.5), nn.Linear(4, 2, key=KEY))
    kept, x = nn.Checkpoint(block), normal(6, 3)

    def loss(model: Any) -> Any:
        out, new = model(x, key=KEY)
        return (out**2).sum(), new

    (value, new), gradient = nnc.value_and_grad(loss, has_aux=True)(block)
    (same, renewed), again = nnc.compile(nnc.value_and_grad(loss, has_aux=True))(kept)
    np.testing.assert_allclose(float(same), float(value), rtol=1e-5)
    for a, b in zip(tree.leaves((renewed.layer, again.layer)), tree.leaves((new, gradient)), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-4, atol=1e-5)
    assert isinstance(renewed, nn.Checkpoint)
    assert nn.Checkpoint(nn.relu)(x).shape == x.shape


def test_layers_are_made_and_called_under_vmap() -> None:
    models = nnc.vmap(lambda key: nn.MLP(3, 2, width=4, depth=1, key=key))(nnc.random.split(KEY, 5))
    x = normal(6, 3)
    out = nnc.vmap(lambda model: model(x))(models)
    assert out.shape == (5, 6, 2)
    one = nn.MLP(3, 2, width=4, depth=1, key=nnc.random.split(KEY, 5)[3])
    np.testing.assert_allclose(np.asarray(out)[3], np.asarray(one(x)), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (
            lambda: nn.Linear(4, 2, key=KEY)(normal(3, 5)),
            ShapeError,
            r"Linear: axis -1 of the input must be 4(.|\n)*\(3, 5\)",
        ),
        (lambda: nn.Conv(4, 2, 3, key=KEY)(normal(1, 3, 8, 8)), ShapeError, "Conv: axis -3 of the input must be 4"),
        (lambda: nn.Conv(4, 2, 3, key=KEY, groups=3), ArgumentError, "groups=3 does not divide in_features=4"),
        (lambda: nn.Conv(4, 2, (3,), key=KEY), ArgumentError, "kernel=\\(3,\\) has 1 entries"),
        (lambda: nn.Dropout(0.5)(normal(3)), ArgumentError, "there is no key to draw with"),
        (lambda: nn.dropout(KEY, normal(3), 1.0), ArgumentError, "rate=1.0 is not in"),
        (lambda: nn.dropout(normal(3), 0.5, KEY), ShapeError, r"rate must be one number(.|\n)*dropout\(key, x, 0.5\)"),
        (lambda: nn.Linear(3, 2), ArgumentTypeError, "'key' is missing(.|\n)*key="),  # type: ignore[call-arg]
        (lambda: nn.models.resnet18(), ArgumentTypeError, "ResNet: the argument 'key' is missing"),
        (lambda: nn.Linear(-3, 2, key=KEY), ArgumentTypeError, r"weights cannot have the shape \(2, -3\)"),
        (lambda: nn.Linear(3.0, 2, key=KEY), ArgumentTypeError, r"the shape \(2, 3.0\)"),  # type: ignore[arg-type]
        (
            lambda: nn.Embedding(-3, 2, key=KEY),
            ArgumentTypeError,
            r"Embedding: weights cannot have the shape \(-3, 2\)",
        ),
        (lambda: nn.Dropout(p=0.5), ArgumentTypeError, "Dropout: it has no argument 'p'(.|\n)*rate="),  # type: ignore[call-arg]
        (lambda: nn.MaxPool(kernel_size=2), ArgumentTypeError, "MaxPool: (.|\n)*window="),  # type: ignore[call-arg]
        (lambda: nn.glu(normal(2, 3)), ShapeError, "glu: axis -1 of x has the odd size 3"),
        (lambda: nn.Sequential(3), ArgumentTypeError, "layer 0 is 3"),
        (lambda: nn.GroupNorm(3, 4), ArgumentError, "groups=3 does not divide features=4"),
        (lambda: nn.BatchNorm(3)(normal(2, 4)), ShapeError, "BatchNorm: axis -1 of the input must be 3"),
        (lambda: nn.Conv(3, 4, kernel_size=3, key=KEY), ArgumentTypeError, "write kernel="),  # type: ignore[call-arg]
        (lambda: nn.LayerNorm(3)(normal(2, 4)), ShapeError, "LayerNorm: axis -1 of the input must be 3"),
    ],
)
def test_mistakes_are_named(call: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        call()


def test_a_small_convolutional_network_learns() -> None:
    """Bars against dots: the loss falls to almost nothing, with every layer's gradient at work."""
    bars = np.zeros((32, 1, 8, 8), np.float32)
    bars[np.arange(16), 0, RNG.integers(0, 8, 16)] = 1
    bars[np.arange(16, 32), 0, :, RNG.integers(0, 8, 16)] = 1
    x, labels = bars + 0.1 * normal(*bars.shape), np.arange(32) // 16
    keys = nnc.random.split(KEY, 3)
    model = nn.Sequential(
        nn.Conv(1, 4, 3, key=keys[0], padding="SAME"), nn.relu, nn.MaxPool(2),
        nn.Conv(4, 8, 3, key=keys[1]), nn.gelu, nn.AvgPool(2), nn.Flatten(), nn.Linear(8, 2, key=keys[2]),
    )  # fmt: skip

    def loss(model: Any) -> Any:
        return nn.softmax_cross_entropy(model(x), labels).mean()

    step = nnc.value_and_grad(loss)
    first = float(loss(model))
    for _ in range(60):
        value, gradient = step(model)
        model = tree.map(lambda p, g: p - 0.5 * g, model, gradient)
    assert float(value) < 0.1 < first


@pytest.mark.parametrize(
    ("layer", "remedy"),
    [
        (nn.Linear(4, 5, key=KEY), "of shape (..., 4)."),
        (nn.Conv(4, 5, 3, key=KEY), "of shape (..., 4, ...)."),
    ],
)
def test_the_remedy_for_another_number_of_features_shows_where_they_stand(layer: Any, remedy: str) -> None:
    with pytest.raises(ShapeError) as caught:
        layer(normal(2, 3, 9, 9))
    assert remedy in str(caught.value)


@pytest.mark.parametrize("run", [lambda f: f, nnc.compile], ids=["eager", "compiled"])
def test_an_error_names_the_layer_in_which_it_arose(run: Any) -> None:
    inner = nn.Sequential(nn.Linear(2, 2, key=KEY), nn.relu, nn.Linear(3, 1, key=KEY))
    model = nn.Sequential(nn.Linear(2, 2, key=KEY), inner)
    with pytest.raises(ShapeError, match="axis -1 of the input must be 3") as found:
        run(lambda x: model(x))(np.ones((4, 2), np.float32))
    assert found.value.__notes__ == [
        "It arose in layers[2] of a Sequential, a Linear.", "It arose in layers[1] of a Sequential, a Sequential.",
    ]  # fmt: skip
