"""Trees of a known structure, taken apart without finding the structure out."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, namedtuple
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnc import tree
from nnc.trace.core.pattern import MISMATCHES, make_pattern

Pair = namedtuple("Pair", "x y")


@dataclass
class Layer:
    weight: Any
    bias: Any
    name: str = "layer"
    rate: int = field(default=1, metadata={"static": True})


@dataclass(frozen=True, slots=True)
class Slim:
    weight: Any
    name: str = "slim"


LEAVES = st.floats(allow_nan=False)
TREES = st.recursive(
    LEAVES | st.none(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.sampled_from("abcd"), inner, max_size=3)
        | st.builds(Pair, inner, inner)
        | st.builds(Layer, LEAVES, LEAVES, st.sampled_from(["p", "q"]))
        | st.builds(Slim, LEAVES)
    ),
    max_leaves=12,
)


def taken_apart(pattern: Any, value: Any) -> list[Any] | None:
    leaves: list[Any] = []
    try:
        pattern(value, leaves)
    except MISMATCHES:
        return None
    return leaves


@given(TREES)
def test_a_pattern_gives_the_leaves_in_the_order_of_a_flat_tree(value: Any) -> None:
    leaves, _ = tree.flatten(value)
    pattern = make_pattern(value)
    assert pattern is not None
    assert taken_apart(pattern, value) == leaves


@given(TREES, TREES)
def test_a_pattern_takes_another_tree_only_if_the_structure_is_the_same(value: Any, other: Any) -> None:
    structure = tree.structure(value)
    found, other_structure = tree.flatten(other)
    taken = taken_apart(make_pattern(value), other)
    are_leaves = taken is not None and all(isinstance(leaf, float) for leaf in taken)  # checked by the caller
    assert are_leaves == (structure == other_structure)
    if are_leaves:
        assert taken == found


@pytest.mark.parametrize(
    "other",
    [
        OrderedDict(a=1.0, b=2.0), defaultdict(float, a=1.0, b=2.0), {"a": 1.0}, {"a": 1.0, "b": 2.0, "c": 3.0},
        {"a": 1.0, "c": 2.0}, [1.0, 2.0], None,
    ],
)  # fmt: skip
def test_a_dict_is_taken_for_a_dict_of_its_keys_alone(other: Any) -> None:
    pattern = make_pattern({"a": 1.0, "b": 2.0})
    assert taken_apart(pattern, {"b": 4.0, "a": 3.0}) == [3.0, 4.0]
    assert taken_apart(pattern, other) is None


@pytest.mark.parametrize("other", [Pair(1.0, 2.0), [1.0, 2.0], (1.0,), (1.0, 2.0, 3.0)])
def test_a_tuple_is_taken_for_a_tuple_of_its_length_alone(other: Any) -> None:
    pattern = make_pattern((1.0, 2.0))
    assert taken_apart(pattern, (3.0, 4.0)) == [3.0, 4.0]
    assert taken_apart(pattern, other) is None


def test_a_dataclass_is_taken_while_its_settings_stay() -> None:
    first = Layer(1.0, 2.0)
    tree.flatten(first)
    pattern = make_pattern(first)
    assert taken_apart(pattern, Layer(3.0, 4.0)) == [3.0, 4.0]
    assert taken_apart(pattern, Layer(3.0, 4.0, "other")) is None
    assert taken_apart(pattern, Layer(3.0, 4.0, rate=True)) is None  # equal to 1, but no function takes it for 1
    assert taken_apart(pattern, Slim(1.0)) is None
    assert taken_apart(pattern, tree.map(lambda x: x + 1, first)) == [2.0, 3.0]


def test_a_dataclass_with_a_field_without_value_has_no_pattern() -> None:
    layer = Layer(1.0, 2.0)
    del layer.name
    default = Layer.name
    del Layer.name
    try:
        tree.flatten(layer)
        assert make_pattern(layer) is None
    finally:
        Layer.name = default


@pytest.mark.parametrize(
    "value", [OrderedDict(a=1.0), defaultdict(float, a=1.0), {1: 1.0, "a": 2.0}, [OrderedDict(a=1.0)]]
)
def test_unusual_containers_have_no_pattern(value: Any) -> None:
    assert make_pattern(value) is None
