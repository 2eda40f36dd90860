"""Well-known networks: the published numbers of parameters, shapes, gradients, files, and training steps traced abstractly."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnc
from nnc import nn, tree
from nnc.errors import ArgumentError, ShapeError
from nnc.nn import models

KEY = nnc.random.key(0)
S = nnc.ShapeDtypeStruct

PUBLISHED: dict[str, tuple[Any, int]] = {
    "resnet18": (models.resnet18, 11_689_512),
    "resnet34": (models.resnet34, 21_797_672),
    "resnet50": (models.resnet50, 25_557_032),
    "resnet101": (models.resnet101, 44_549_160),
    "densenet121": (models.densenet121, 7_978_856),
    "vgg11": (models.vgg11, 132_863_336),
    "vgg13": (models.vgg13, 133_047_848),
    "vgg16": (models.vgg16, 138_357_544),
    "vgg19": (models.vgg19, 143_667_240),
    "vgg16_bn": (lambda key: models.vgg16(key=key, batch_norm=True), 138_365_992),
    "googlenet": (lambda key: models.GoogLeNet(key=key, wide=3), 6_624_904),
    "vit_b16": (models.vit_b16, 86_567_656),
    "vit_b32": (models.vit_b32, 88_224_232),
    "vit_l16": (models.vit_l16, 304_326_632),
    "lenet": (models.LeNet, 61_706),
    "unet": (lambda key: models.UNet(3, 2, key=key), 31_037_698),
}

SMALL: dict[str, tuple[Any, tuple[int, ...], tuple[int, ...]]] = {
    "basic blocks": (
        lambda key: models.ResNet(models.BasicBlock, (1, 1, 1, 1), key=key, num_classes=7, small_images=True),
        (2, 3, 8, 8), (2, 7),
    ),
    "bottlenecks": (
        lambda key: models.ResNet(models.Bottleneck, (1, 1, 1, 1), key=key, num_classes=7), (2, 3, 32, 32), (2, 7),
    ),
    "densenet": (lambda key: models.DenseNet(4, (2, 2), width=8, key=key, num_classes=7), (2, 3, 16, 16), (2, 7)),
    "vgg_bn": (
        lambda key: models.vgg11(key=key, image_size=32, hidden_features=8, num_classes=7, batch_norm=True), (2, 3, 32, 32), (2, 7),
    ),
    "inception": (lambda key: models.InceptionBlock(3, (4, 2, 4, 2, 4, 4), key=key), (2, 3, 8, 8), (2, 16, 8, 8)),
    "vit": (
        lambda key: models.ViT(
            key=key, image_size=8, patch_size=4, features=8, num_layers=2, num_heads=2, hidden_features=16, num_classes=7
        ),
        (2, 3, 8, 8), (2, 7),
    ),
    "lenet": (models.LeNet, (2, 1, 28, 28), (2, 10)),
    "unet": (lambda key: models.UNet(1, 2, key=key, width=4, depth=2), (2, 1, 8, 8), (2, 2, 8, 8)),
}  # fmt: skip


def output_of(model: Any, x: Any, **options: Any) -> tuple[Any, Any]:
    """The output and the model after the call."""
    out = model(x, **options)
    return out if nn.is_stateful(model) else (out, model)


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_number_of_parameters_is_the_published_one(name: str) -> None:
    make, count = PUBLISHED[name]
    model = nnc.eval_shape(lambda key: make(key=key), KEY)
    assert sum(math.prod(x.shape) for x in nn.parameters(model).values()) == count


@pytest.mark.parametrize("name", SMALL)
def test_networks_run_and_every_parameter_has_a_gradient(name: str) -> None:
    make, shape, out_shape = SMALL[name]
    model, x = make(key=KEY), np.random.default_rng(0).normal(size=shape).astype(np.float32)
    options = {"key": KEY} if name == "vgg_bn" else {}
    params, rest = nn.partition(model)

    def loss(params: Any) -> Any:
        out, new = output_of(nn.combine(params, rest), x, **options)
        return (out.astype("float32") ** 2).mean(), (out, new)

    (_, (out, new)), grads = nnc.compile(nnc.value_and_grad(loss, has_aux=True))(params)
    assert out.shape == out_shape
    assert tree.structure(new) == tree.structure(model)
    assert nn.is_stateful(model) == (name not in ("vit", "lenet"))
    # biases before a batch norm, and biases of keys, have no effect
    moved = {path for path, gradient in nn.parameters(grads).items() if np.asarray(gradient).any()}
    assert {path for path in nn.parameters(grads) if not path.endswith(".bias")} <= moved


def test_networks_are_saved_and_loaded(tmp_path: Path) -> None:
    make, shape, _ = SMALL["densenet"]
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    _, model = make(key=KEY)(x)
    nnc.io.save(tmp_path / "model.safetensors", model)
    again = nnc.io.load(tmp_path / "model.safetensors", like=nnc.eval_shape(lambda key: make(key=key), KEY))
    want, _ = nn.inference_mode(model)(x)
    np.testing.assert_array_equal(np.asarray(nn.inference_mode(again)(x)[0]), np.asarray(want))


def test_images_of_a_batch_are_independent_in_inference_and_under_vmap() -> None:
    make, shape, _ = SMALL["basic blocks"]
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    model = nn.inference_mode(make(key=KEY))
    want = np.asarray(model(x)[0])
    np.testing.assert_allclose(np.asarray(model(x[1:])[0]), want[1:], rtol=1e-4, atol=1e-5)
    rows = nnc.vmap(lambda image: model(image[None])[0][0])(x)
    np.testing.assert_allclose(np.asarray(rows), want, rtol=1e-4, atol=1e-5)


def test_forward_mode_agrees_with_reverse_mode() -> None:
    make, shape, _ = SMALL["unet"]
    params, rest = nn.partition(make(key=KEY))
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    direction = tree.map(lambda p: np.random.default_rng(1).normal(size=p.shape).astype(np.float32), params)

    def loss(params: Any) -> Any:
        return (nn.combine(params, rest)(x)[0] ** 2).mean()

    _, forward = nnc.jvp(loss, (params,), (direction,))
    grads = nnc.grad(loss)(params)
    backward = sum(float((g * d).sum()) for g, d in zip(tree.leaves(grads), tree.leaves(direction), strict=True))
    np.testing.assert_allclose(float(forward), backward, rtol=1e-3)


@pytest.mark.parametrize("make", [models.resnet50, models.densenet121], ids=lambda f: f.__name__)
def test_a_training_step_on_full_images_is_traced_without_values(make: Any) -> None:
    params, rest = nn.partition(nnc.eval_shape(lambda key: make(key=key), KEY))

    def step(params: Any, rest: Any, x: Any, labels: Any) -> Any:
        def loss(params: Any) -> Any:
            out, new = output_of(nn.combine(params, rest), x)
            return nn.softmax_cross_entropy(out, labels).mean(), nn.partition(new)[1]

        (value, new), grads = nnc.value_and_grad(loss, has_aux=True)(params)
        return tree.map(lambda p, g: p - 0.1 * g, params, grads), new, value

    graph = nnc.make_graph(step)(params, rest, S((8, 3, 224, 224), "float32"), S((8,), "int32"))
    shapes = [leaf.shape for leaf in tree.leaves((params, rest))]
    assert [spec.shape for spec in graph.output_specs[:-1]] == shapes
    assert graph.output_specs[-1].shape == ()


def test_googlenet_ends_in_images_of_7_pixels() -> None:
    found = nn.summary(
        nnc.eval_shape(lambda key: models.GoogLeNet(key=key), KEY), S((1, 3, 224, 224), "float32"), depth=1
    )
    last_block = [row for row in found.rows if row.path.startswith("blocks.")][-1]
    assert last_block.outputs[0].shape == (1, 1024, 7, 7)
    assert found.rows[0].outputs[0].shape == (1, 1000)


def test_mistakes_are_named() -> None:
    with pytest.raises(ArgumentError, match="patch_size=5 does not divide image_size=8"):
        models.ViT(key=KEY, image_size=8, patch_size=5)
    with pytest.raises(ShapeError, match=r"no multiples of 4"):
        models.UNet(1, 2, key=KEY, width=4, depth=2)(np.ones((1, 1, 6, 8), np.float32))
    with pytest.raises(ArgumentError, match="depth is 12"):
        models.VGG(12, key=KEY)


@pytest.mark.parametrize("name", SMALL)
def test_no_two_parameters_are_drawn_with_one_key(name: str) -> None:
    drawn: dict[bytes, str] = {}
    for path, leaf in nn.parameters(SMALL[name][0](key=KEY)).items():
        first = np.asarray(leaf, np.float32).ravel()[:24]
        if len(first) < 24 or not first.std() > 0:
            continue
        shape = np.round((first / np.abs(first).max()), 4)  # the same for one key at any scale of the draw
        assert drawn.setdefault(shape.tobytes(), path) == path
    assert drawn
