"""Pytrees: containers, paths, mismatches, prefixes."""

from __future__ import annotations

import collections
import dataclasses
import re
from typing import Any, NamedTuple

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import tree
from nnc.errors import ArgumentTypeError, TreeError


class Point(NamedTuple):
    x: Any
    y: Any


@dataclasses.dataclass
class Layer:
    w: Any
    b: Any = None
    name: str = "layer"
    size: int = 3
    act: Any = None
    rate: float = 0.5
    kept: Any = dataclasses.field(default=1.0, metadata={"static": True})


@pytest.mark.parametrize(
    ("value", "leaves"),
    [
        (1, [1]),
        (None, []),
        ([], []),
        ([1, (2, [3])], [1, 2, 3]),
        ({"b": 2, "a": 1}, [1, 2]),
        (collections.OrderedDict(b=2, a=1), [2, 1]),
        (collections.defaultdict(int, b=2, a=1), [1, 2]),
        (collections.deque([1, 2]), [1, 2]),
        (Point(1, {"k": 2}), [1, 2]),
        (Layer(1.0, [2.0]), [1.0, 2.0, 0.5]),
        ("text", ["text"]),
        ({1: "x", "a": 2, None: 3, (1, 2): 4}, None),
    ],
    ids=repr,
)
def test_every_container_comes_apart_and_together_again(value: Any, leaves: Any) -> None:
    found, treedef = tree.flatten(value)
    assert leaves is None or found == leaves
    again = tree.unflatten(treedef, found)
    assert again == value
    assert type(again) is type(value)
    assert tree.structure(again) == treedef
    assert len(tree.leaves(value)) == treedef.num_leaves


def test_the_order_of_dict_keys_does_not_matter_even_if_they_do_not_sort() -> None:
    for keys in (("b", "a"), (1, "a"), ((1,), None, "z")):
        one = dict.fromkeys(keys, 0)
        other = dict.fromkeys(reversed(keys), 0)
        assert tree.structure(one) == tree.structure(other)
        assert hash(tree.structure(one)) == hash(tree.structure(other))


def test_a_dict_keeps_its_order_of_insertion() -> None:
    assert list(tree.map(lambda x: x + 1, {"b": 1, "a": 2})) == ["b", "a"]


def test_dataclass_fields_are_children_unless_they_hold_settings() -> None:
    def act(x: Any) -> Any:
        return x

    leaves, treedef = tree.flatten(Layer(nnp.ones(2), np.ones(3), "first", 7, act))
    assert [np.shape(x) for x in leaves] == [(2,), (3,), ()]
    again = tree.unflatten(treedef, [1, 2, 3])
    assert (again.w, again.b, again.rate, again.name, again.size, again.act) == (1, 2, 3, "first", 7, act)
    assert tree.structure(Layer(1.0)) != tree.structure(Layer(1.0, name="other"))
    assert tree.structure(Layer(1.0)) != tree.structure(Layer(1.0, kept=2.0))
    assert tree.structure(Layer(1.0)) != tree.structure(Layer(1.0, size=4))
    assert tree.structure(Layer(1.0)) == tree.structure(Layer(5.0, rate=0.1))


def test_fields_without_a_value_are_left_out_in_every_kind_of_dataclass() -> None:
    @dataclasses.dataclass
    class Unset:
        w: Any
        act: Any
        kept: Any = dataclasses.field(metadata={"static": True})

    layer: Any = object.__new__(Unset)
    layer.w = np.ones(2)
    assert len(tree.leaves(layer)) == 1 and str(tree.structure(layer)).count("kept") == 0
    layer.kept = 2.0
    assert len(tree.leaves(layer)) == 1 and "kept=2.0" in str(tree.structure(layer))
    layer.act = np.ones(3)
    mask = tree.map(lambda x: True, layer)
    assert tree.leaves(mask) == [True, True], "what was a child stays one, though bools are settings"
    del mask.w
    assert tree.leaves(mask) == [True]


def test_static_floats_are_told_apart_as_python_shows_them() -> None:
    def of(value: Any) -> Any:
        return tree.structure(Layer(1.0, kept=value))

    assert of(0.0) != of(-0.0)
    assert of(1) != of(1.0)
    assert of(1) != of(True)
    assert of(float("nan")) == of(float("nan"))
    assert of((1, "a")) == of((1, "a"))
    assert of((1,)) != of((1.0,))


def test_frozen_and_nested_dataclasses_and_those_with_inheritance() -> None:
    @dataclasses.dataclass(frozen=True)
    class Base:
        a: Any

    @dataclasses.dataclass(frozen=True)
    class Derived(Base):
        layers: tuple[Layer, ...] = ()

    value = Derived(1.0, (Layer(2.0), Layer(3.0)))
    doubled = tree.map(lambda x: x * 2, value)
    assert isinstance(doubled, Derived)
    assert [doubled.a, doubled.layers[0].w, doubled.layers[1].w] == [2, 4, 6]


def test_a_registered_class_is_a_container() -> None:
    class Box:
        def __init__(self, content: Any, label: str) -> None:
            self.content, self.label = content, label

    tree.register(Box, lambda box: ((box.content,), box.label), lambda label, children: Box(*children, label))
    box = tree.map(lambda x: x + 1, Box({"k": 1}, "red"))
    assert (box.content, box.label) == ({"k": 2}, "red")
    assert tree.structure(Box(1, "red")) != tree.structure(Box(1, "blue"))
    gradient = nnc.grad(lambda box: box.content * 3)(Box(2.0, "red"))
    assert float(gradient.content) == 3


def test_paths_read_as_python_expressions() -> None:
    class Model(nnc.nn.Module):
        layers: Any

    value = {"m": Model([Layer(1.0, rate=2.0), Point(3.0, None)]), 'it"s': 4.0, "o'k": 5.0, 7: 6.0}
    paths = dict(tree.leaves_with_path(value))
    assert paths['["m"].layers[0].w'] == 1
    assert paths['["m"].layers[0].rate'] == 2
    assert paths['["it\\"s"]'] == 4
    assert paths['["o\'k"]'] == 5
    assert paths["[7]"] == 6
    for path, leaf in paths.items():
        assert eval("value" + path) == leaf
    assert tree.leaves_with_path(1.0) == [("", 1.0)]
    pairs, treedef = tree.flatten_with_path(value)
    assert pairs == tree.leaves_with_path(value)
    assert treedef == tree.structure(value)
    assert tree.leaves_with_path({"a": None}) == []
    assert tree.leaves_with_path({"a": None, "b": [1]}, is_leaf=lambda x: not isinstance(x, dict)) == [
        ('["a"]', None), ('["b"]', [1]),
    ]  # fmt: skip


def test_functions_of_leaves_are_told_their_paths() -> None:
    value = {"a": [1, 2], "b": Point(3, None)}
    assert tree.map_with_path(lambda path, x: f"{path}={x}", value) == {
        "a": ['["a"][0]=1', '["a"][1]=2'], "b": Point('["b"].x=3', None),
    }  # fmt: skip
    assert tree.map_with_path(lambda path, *xs: (path, sum(xs)), [1], [10], [100]) == [("[0]", 111)]
    kept = tree.map_with_path(lambda path, x: (path, x), [(1, 2)], is_leaf=lambda x: isinstance(x, tuple))
    assert kept == [("[0]", (1, 2))]
    with pytest.raises(TreeError, match="tree.map_with_path: the first tree and tree 3 differ"):
        tree.map_with_path(lambda *xs: 0, {"a": 1}, {"a": 2}, {"b": 3})


def test_is_leaf_stops_early() -> None:
    assert tree.leaves([(1, 2), 3], is_leaf=lambda x: isinstance(x, tuple)) == [(1, 2), 3]
    assert tree.map(len, [(1, 2), (3,)], is_leaf=lambda x: isinstance(x, tuple)) == [2, 1]
    assert tree.leaves({"a": None}, is_leaf=lambda x: x is None) == [None]


def test_map_reduce_and_all_leaves() -> None:
    assert tree.map(lambda *xs: sum(xs), {"a": 1}, {"a": 10}, {"a": 100}) == {"a": 111}
    assert tree.map(lambda x, y: x + y, (1, None), (2, None)) == (3, None)
    assert tree.reduce(lambda a, b: a * b, [2, {"k": 3}], 1) == 6
    assert tree.reduce(lambda a, b: a - b, [2, {"k": (3, None)}]) == -1
    assert tree.reduce(max, [], initializer=7) == 7
    with pytest.raises(TreeError, match="no leaves"):
        tree.reduce(max, [])
    assert tree.all_leaves([1, "a"])
    assert not tree.all_leaves([1, [2]])


def test_transpose_turns_a_tree_inside_out() -> None:
    outer, inner = tree.structure([0, 0]), tree.structure({"a": 0})
    assert tree.transpose(outer, inner, [{"a": 1}, {"a": 2}]) == {"a": [1, 2]}


def test_a_mismatch_lists_every_path_on_both_sides() -> None:
    left = {"w": nnp.ones(2), "b": 1.0, "deep": [1, {"x": 2}]}
    right = {"w": nnp.ones(2), "c": 1.0, "deep": [1, {"y": 2}]}
    with pytest.raises(TreeError) as caught:
        tree.map(lambda a, b: a, left, right)
    text = str(caught.value)
    for path in ('["b"]: 1.0 on the left', '["c"]: nothing on the left', '["deep"][1]["x"]', '["deep"][1]["y"]'):
        assert path in text
    assert '["w"]' not in text
    assert re.search("^Fix: ", text, re.MULTILINE)


@pytest.mark.parametrize(
    ("left", "right"),
    [((1, 2), [1, 2]), ((1,), (1, 2)), (1, [1]), ({"a": 1}, {"a": None}), (Layer(1.0), Layer(1.0, name="z"))],
)
def test_mismatches_without_a_common_shape_are_reported(left: Any, right: Any) -> None:
    with pytest.raises(TreeError, match="differ in structure"):
        tree.map(lambda a, b: a, left, right)


def test_a_prefix_is_spread_over_the_leaves_below_it() -> None:
    value = {"a": [1, 2], "b": (3, None)}
    assert tree.broadcast_prefix(0, value) == [0, 0, 0]
    assert tree.broadcast_prefix({"a": 0, "b": 1}, value) == [0, 0, 1]
    assert tree.broadcast_prefix({"a": [0, None], "b": 1}, value, is_leaf=lambda x: x is None) == [0, None, 1]
    assert tree.broadcast_prefix(None, value, is_leaf=lambda x: x is None) == [None] * 3
    assert tree.broadcast_prefix(Layer(7.0, 8.0, rate=9.0), Layer([1, 2], 3.0)) == [7, 7, 8, 9]
    for bad in ({"a": 0}, {"a": (0, 0), "b": 1}, {"a": [0, 0, 0], "b": 1}):
        with pytest.raises(TreeError, match="does not fit"):
            tree.broadcast_prefix(bad, value)


def test_none_in_the_tree_has_no_value_of_the_prefix() -> None:
    value = (None, 1, None, 2)
    assert tree.broadcast_prefix((None, 5, 6, 7), value, is_leaf=lambda x: x is None) == [5, 7]
    x = nnp.ones((2, 3))
    mapped = nnc.vmap(lambda p: p["x"] + p["y"], in_axes=({"gone": None, "x": 1, "y": None},))
    assert mapped({"gone": None, "x": x, "y": 1.0}).shape == (3, 2)


def test_settings_are_the_non_children_of_dataclasses() -> None:
    found = tree.settings([Layer(1.0, act=len), {"k": Layer(Layer(2.0, name="inner"))}])
    assert (len, "act") in found
    assert ("inner", "name") in found
    assert all(name not in ("w", "rate") for _, name in found)


def test_values_without_a_hash_are_no_static_arguments() -> None:
    tree.check_hashable("f", "n", (1, "a"))
    with pytest.raises(ArgumentTypeError, match="static argument n is a list"):
        tree.check_hashable("f", "n", [1])


def test_leaves_that_do_not_fit_a_structure_are_refused() -> None:
    treedef = tree.structure({"a": 0, "b": 0})
    with pytest.raises(ArgumentTypeError, match=r"treedef is a list, not a structure[\s\S]*structure comes first"):
        tree.unflatten([1, 2], treedef)
    for leaves in ([1], [1, 2, 3]):
        with pytest.raises(TreeError, match=f"{len(leaves)} leaves for a structure of 2"):
            tree.unflatten(treedef, iter(leaves))
