"""Selection of leaves: patterns, predicates and their negation, in trainable, partition, parameters and cast."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import nn, tree
from nnc.errors import ArgumentError, ArgumentTypeError

KEY = nnc.random.key(0)
PARAMS = {
    "encoder": {"w": nnp.ones((2, 2)), "b": nnp.ones(2)},
    "decoder": {"w": nnp.ones((2, 2)), "b": nnp.ones(2), "steps": nnp.asarray(3)},
    "head": nnp.ones(2),
}


def make_model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4, key=KEY), nn.BatchNorm(4), nn.relu, nn.Linear(4, 2, key=KEY))


def on(mask: Any) -> list[str]:
    """The paths that a mask marks."""
    pairs = tree.leaves_with_path(mask)
    return [path.replace('"]["', ".").strip('[]"') for path, value in pairs if value]


@pytest.mark.parametrize(
    ("options", "paths"),
    [
        ({}, ["decoder.b", "decoder.w", "encoder.b", "encoder.w", "head"]),
        ({"only": "encoder"}, ["encoder.b", "encoder.w"]),
        ({"only": "*.b"}, ["decoder.b", "encoder.b"]),
        ({"only": "!*.b"}, ["decoder.w", "encoder.w", "head"]),
        ({"only": ["encoder", "head"]}, ["encoder.b", "encoder.w", "head"]),
        ({"only": ["encoder", "!*.b", "head"]}, ["encoder.w", "head"]),
        ({"only": ["!encoder", "encoder.b"]}, ["decoder.b", "decoder.w", "encoder.b", "head"]),
        ({"freeze": "!encoder"}, ["encoder.b", "encoder.w"]),
        ({"freeze": ["encoder", "!*.b"]}, ["decoder.b", "decoder.w", "encoder.b", "head"]),
        ({"only": "*.w", "freeze": "encoder"}, ["decoder.w"]),
        ({"only": lambda path, x: x.ndim == 2}, ["decoder.w", "encoder.w"]),
        ({"only": lambda path, x: not path.startswith("encoder")}, ["decoder.b", "decoder.w", "head"]),
        ({"freeze": lambda path, x: x.ndim == 2}, ["decoder.b", "encoder.b", "head"]),
        ({"only": [lambda path, x: x.ndim == 1, "!head", "encoder.w"]}, ["decoder.b", "encoder.b", "encoder.w"]),
        ({"only": "encoder", "freeze": "encoder"}, []),
    ],
)
def test_only_and_freeze_take_patterns_predicates_and_negations(options: Any, paths: list[str]) -> None:
    assert on(nn.trainable(PARAMS, **options)) == paths


def test_predicates_are_asked_about_parameters_alone() -> None:
    seen: dict[str, Any] = {}
    nn.trainable(make_model(), only=lambda path, x: bool(seen.setdefault(path, x) is x))
    assert list(seen) == list(nn.parameters(make_model()))
    assert seen["layers.0.weight"].shape == (4, 3)


def test_partition_parameters_and_cast_take_them_too() -> None:
    model = make_model()
    chosen, rest = nn.partition(model, lambda path, x: x.ndim == 2)
    assert list(nn.parameters(chosen)) == ["layers.0.weight", "layers.3.weight"]
    assert tree.structure(nn.combine(chosen, rest)) == tree.structure(model)
    chosen, _ = nn.partition(PARAMS, ["!decoder", lambda path, x: path == "decoder.steps"])
    assert on(tree.map(lambda x: True, chosen)) == ["decoder.steps", "encoder.b", "encoder.w", "head"]
    assert list(nn.parameters(model, "!layers.0")) == [
        "layers.1.scale", "layers.1.bias", "layers.3.weight", "layers.3.bias",
    ]  # fmt: skip
    halved = nn.cast(model, "bfloat16", lambda path, x: x.size > 8)
    assert {path for path, x in nn.parameters(halved).items() if x.dtype == "bfloat16"} == {"layers.0.weight"}


def test_masks_that_are_modules_are_no_predicates() -> None:
    model = nn.Linear(2, 2, key=KEY)
    chosen, _ = nn.partition([model, model], [nn.trainable(model, only="weight"), nn.trainable(model, only="bias")])
    assert list(nn.parameters(chosen)) == ["0.weight", "1.bias"]


def test_the_gradient_and_the_optimizer_see_selected_parameters_alone() -> None:
    model = make_model()
    params, frozen = nn.partition(model, nn.trainable(model, only="layers.3"))

    def loss(params: Any) -> Any:
        return nn.combine(params, frozen)(nnp.ones((5, 3)))[0].sum()

    gradient = nnc.compile(nnc.grad(loss))(params)
    assert list(nn.parameters(gradient)) == ["layers.3.weight", "layers.3.bias"]
    assert np.array_equal(gradient.layers[3].bias, [5, 5])


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: nn.trainable(PARAMS, only="coder"), ArgumentError, "matches 'coder'(.|\n)*Fix"),
        (lambda: nn.trainable(PARAMS, freeze="!coder"), ArgumentError, "matches 'coder'"),
        (lambda: nn.trainable(PARAMS, only=lambda path, x: False), ArgumentError, "the predicate selects none of 5 leaves"),
        (lambda: nn.trainable(PARAMS, only=lambda path, x: None), ArgumentTypeError, "returns None for decoder.b, not a bool"),
        (lambda: nn.trainable(PARAMS, only="decoder.steps"), ArgumentError, "selects no parameter(.|\n)*integers are not"),
        (lambda: nn.trainable(PARAMS, only=3), ArgumentTypeError, "the pattern 3 is a int"),  # type: ignore[arg-type]
        (lambda: nn.trainable(PARAMS, only=["head", 3]), ArgumentTypeError, "the pattern 3 is a int"),  # type: ignore[list-item]
    ],
)  # fmt: skip
def test_mistakes_are_named(call: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        call()
