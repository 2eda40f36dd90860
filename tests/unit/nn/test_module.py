"""Modules: frozen dataclasses and pytrees by inheriting."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import nn, tree
from nnc.errors import ArgumentTypeError


class Affine(nn.Module):
    scale: nnc.Array
    shift: nnc.Array | None = None
    power: int = 1
    name: str = "affine"
    activation: Callable[..., Any] = nnp.tanh
    rate: float = 0.5

    def __call__(self, x: Any) -> Any:
        return self.activation(self.scale * x**self.power) * self.rate


class Pair(nn.Module):
    """One with an `__init__` of its own, and modules in containers."""

    parts: list[nn.Module]
    named: dict[str, nnc.Array]
    size: int

    def __init__(self, size: int) -> None:
        self.parts = [Affine(nnp.ones(size)), Affine(nnp.zeros(size))]
        self.named = {"w": nnp.ones((size, 2))}
        self.size = size


class Triple(Pair):
    extra: nnc.Array

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.extra = nnp.ones(3)


class Inherits(Pair):
    """Has its parent's `__init__`."""


@dataclasses.dataclass(frozen=True)
class Decorated(nn.Module):
    weight: nnc.Array
    size: int = nn.field(static=True, default=3)


def test_only_arrays_are_leaves() -> None:
    leaves = tree.leaves(Affine(nnp.ones(2)))
    assert [leaf.shape for leaf in leaves] == [(2,)]
    assert [path for path, _ in tree.leaves_with_path(Pair(3))] == [
        ".parts[0].scale", ".parts[1].scale", '.named["w"]',
    ]  # fmt: skip


def test_a_module_survives_flattening() -> None:
    model = Triple(2)
    leaves, structure = tree.flatten(model)
    again = tree.unflatten(structure, leaves)
    assert (type(again), again.size, again.parts[0].name) == (Triple, 2, "affine")
    assert tree.structure(again) == structure
    doubled = tree.map(lambda x: x * 2, model)
    np.testing.assert_array_equal(np.asarray(doubled.extra), [2, 2, 2])
    np.testing.assert_array_equal(np.asarray(model.extra), [1, 1, 1])


def test_settings_are_part_of_the_structure() -> None:
    one, other = Affine(nnp.ones(2)), Affine(nnp.ones(2), power=2)
    assert tree.structure(one) != tree.structure(other)
    assert tree.structure(one) == tree.structure(Affine(nnp.zeros(2)))


def test_transforms_take_modules() -> None:
    model, x = Affine(nnp.asarray([1.0, 2.0]), power=2), np.array([3.0, 4.0], np.float32)
    value, gradient = nnc.value_and_grad(lambda m: m(x).sum())(model)
    assert isinstance(gradient, Affine)
    slope = (1 - np.tanh(np.asarray(model.scale) * x**2) ** 2) * x**2 * 0.5
    np.testing.assert_allclose(np.asarray(gradient.scale), slope, rtol=1e-5, atol=1e-6)
    assert value.shape == ()
    np.testing.assert_allclose(np.asarray(nnc.compile(lambda m, x: m(x))(model, x)), np.asarray(model(x)), rtol=1e-6)
    stacked = tree.map(lambda a: nnp.stack([a, a + 1]), model)
    assert nnc.vmap(lambda m: m(x))(stacked).shape == (2, 2)


def test_modules_are_immutable() -> None:
    model = Affine(nnp.ones(2))
    with pytest.raises(ArgumentTypeError, match=r"scale cannot be assigned(.|\n)*replace\(scale="):
        model.scale = nnp.zeros(2)
    with pytest.raises(ArgumentTypeError, match="scale cannot be deleted"):
        del model.scale
    with pytest.raises(ArgumentTypeError, match="size cannot be assigned"):
        Pair(2).size = 3
    rebuilt = tree.map(lambda x: x, Pair(2))
    with pytest.raises(ArgumentTypeError, match="size cannot be assigned"):
        rebuilt.size = 3


def test_replace_makes_a_changed_copy() -> None:
    model = Pair(2)
    changed = model.replace(size=5)
    assert (model.size, changed.size, changed.parts is model.parts) == (2, 5, True)
    with pytest.raises(ArgumentTypeError, match="there is no field 'width'(.|\n)*the fields are parts, named, size"):
        model.replace(width=3)


def test_an_init_is_inherited_extended_or_generated() -> None:
    assert Inherits(2).size == 2
    assert Triple(2).extra.shape == (3,)
    assert Affine(nnp.ones(1), name="a").name == "a"
    assert dataclasses.is_dataclass(Affine)


def test_the_dataclass_decorator_may_be_written_out() -> None:
    model = Decorated(nnp.ones(2))
    assert [leaf.shape for leaf in tree.leaves(model)] == [(2,)]
    assert tree.map(lambda x: x, model).size == 3
    with pytest.raises((AttributeError, TypeError)):
        model.size = 4  # type: ignore[misc]


def test_an_init_must_assign_all_fields_and_no_others() -> None:
    class Forgets(nn.Module):
        weight: nnc.Array
        bias: nnc.Array

        def __init__(self) -> None:
            self.weight = nnp.ones(2)

    class Invents(nn.Module):
        weight: nnc.Array

        def __init__(self) -> None:
            self.weight = self.other = nnp.ones(2)

    with pytest.raises(ArgumentTypeError, match="__init__ leaves bias without a value"):
        Forgets()
    with pytest.raises(ArgumentTypeError, match="other is assigned in __init__, but is no field"):
        Invents()


def test_the_text_shows_shapes_and_settings() -> None:
    text = "Affine(scale=float32[2], shift=None, power=1, name='affine', activation=tanh, rate=0.5)"
    assert repr(Affine(nnp.ones(2))) == text
    nested = text.replace("float32[2]", "float32[1]")
    assert repr(Pair(1)) == (
        f"Pair(\n  parts=[\n    {nested},\n    {nested},\n  ],\n  named={{'w': float32[1,2]}},\n  size=1,\n)"
    )


def test_the_text_leaves_out_settings_that_are_the_default_of_an_own_init() -> None:
    conv = nn.Conv(2, 4, 3, key=nnc.random.key(0), use_bias=False, stride=2)
    text = "weight=float32[4,2,3,3], bias=None, in_features=2, out_features=4, stride=(2, 2)"
    assert repr(conv) == f"Conv({text})"
    assert "axis" not in repr(nn.BatchNorm(3))
    assert "axis=-1" in repr(nn.BatchNorm(3, axis=-1))


def test_modules_can_be_copied_and_pickled() -> None:
    model = Affine(nnp.ones(2), activation=np.tanh)
    for again in (copy.copy(model), copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(np.asarray(again.scale), [1, 1])
        assert again.power == 1


def test_inference_mode_reaches_modules_in_containers() -> None:
    model = {"a": [nn.Dropout(0.5), nn.Sequential(nn.Dropout(0.3), nn.relu)]}
    off = nn.inference_mode(model)
    assert (off["a"][0].inference, off["a"][1].layers[0].inference) == (True, True)
    assert not model["a"][0].inference
    assert not nn.inference_mode(off, value=False)["a"][0].inference
