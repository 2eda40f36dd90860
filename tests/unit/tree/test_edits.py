"""Trees with other nodes in some places: `nnc.tree.at`."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import nn, tree
from nnc.errors import ArgumentError, ArgumentTypeError, TreeError


class Point(NamedTuple):
    x: Any
    y: Any


@dataclasses.dataclass(frozen=True, slots=True)
class Slotted:
    w: Any
    name: str = "slotted"


def test_a_leaf_is_replaced_and_the_tree_stays() -> None:
    value = {"a": [1, 2], "b": Point(3, None)}
    assert tree.at(lambda t: t["a"][1], value, replace=20) == {"a": [1, 20], "b": Point(3, None)}
    assert tree.at(lambda t: t["b"].x, value, replace_fn=lambda x: x + 1) == {"a": [1, 2], "b": Point(4, None)}
    assert value == {"a": [1, 2], "b": Point(3, None)}


def test_a_container_is_one_node_and_its_function_sees_it_whole() -> None:
    seen = []
    found = tree.at(lambda t: t["a"], {"a": (1, [2]), "b": 3}, replace_fn=lambda x: (seen.append(x), "new")[1])
    assert found == {"a": "new", "b": 3}
    assert seen == [(1, [2])]
    assert tree.at(lambda t: t, (1, 2), replace="all") == "all", "the root is a node, though it is a tuple"


def test_nodes_in_a_tuple_or_list_are_replaced_each_in_its_order() -> None:
    value = {"a": 1, "b": 2, "c": [3]}
    assert tree.at(lambda t: (t["c"], t["a"]), value, replace=("c", "a")) == {"a": "a", "b": 2, "c": "c"}
    assert tree.at(lambda t: [t["b"], t["a"]], value, replace_fn=lambda x: -x) == {"a": -1, "b": -2, "c": [3]}
    assert tree.at(lambda t: (), value, replace=()) == value


def test_leaves_that_are_one_object_are_told_apart() -> None:
    x = nnp.ones(2)
    found = tree.at(lambda t: t[1], [x, x, x], replace=None)
    assert found[0] is x and found[1] is None and found[2] is x
    assert tree.at(lambda t: t[2], ((), 1, ()), replace=5) == ((), 1, 5)


def test_none_is_a_node_where_it_is_a_leaf() -> None:
    layer = nn.Linear(2, 3, key=nnc.random.key(0), use_bias=False)
    with pytest.raises(TreeError, match=r"is None, which is no leaf[^$]*Fix: pass is_leaf=lambda x: x is None"):
        tree.at(lambda m: m.bias, layer, replace=nnp.zeros(3))
    found = tree.at(lambda m: m.bias, layer, replace=nnp.ones(3), is_leaf=lambda x: x is None)
    assert np.array_equal(found(nnp.zeros(2)), np.ones(3))
    assert layer.bias is None


def test_modules_and_dataclasses_with_slots_keep_their_settings() -> None:
    model = nn.Sequential(nn.Linear(2, 3, key=nnc.random.key(0)), nn.relu)
    wider = tree.at(lambda m: m.layers[0].weight, model, replace_fn=lambda w: 2 * w)
    assert wider.layers[0].in_features == 2
    assert np.array_equal(wider.layers[0].weight, 2 * model.layers[0].weight)
    assert tree.structure(wider) == tree.structure(model)
    assert tree.at(lambda m: m.w, Slotted(1.0), replace=2.0) == Slotted(2.0)


def test_it_is_traced_and_differentiated() -> None:
    @nnc.compile
    def loss(x: Any, scale: Any) -> Any:
        return nnp.sum(tree.at(lambda t: t["w"], {"w": x, "b": x}, replace_fn=lambda w: scale * w)["w"])

    assert np.array_equal(nnc.grad(loss)(np.ones(3), 2.0), [2.0, 2.0, 2.0])


@pytest.mark.parametrize(
    ("where", "problem"),
    [
        (lambda m: m.layers[0].in_features, "where.tree. is 2, no node of the tree"),
        (lambda m: (m.layers[0].weight, m.layers[0].in_features), r"where.tree.\[1\] is 2, no node"),
        (lambda m: {"a": m.layers[0]}, "is a new dict, no node of the tree"),
        (lambda m: (m.layers[0], m.layers[0].weight), "a node and a part of it"),
        (lambda m: (m.layers[0], m.layers[0]), r"where.tree.\[1\] is a node that where returns twice"),
        (lambda m: m.layers[0].weight[0], "reads the leaves of the tree"),
        (lambda m: [x for x in tree.leaves(m) if x.ndim == 2], "reads the leaves of the tree"),
    ],
)
def test_a_result_of_where_that_is_no_node_is_an_error(where: Any, problem: str) -> None:
    model = nn.Sequential(nn.Linear(2, 3, key=nnc.random.key(0)), nn.relu)
    with pytest.raises(TreeError, match=problem) as caught:
        tree.at(where, model, replace_fn=lambda x: x)
    assert "Fix: " in str(caught.value)


def test_mistakes_within_where_are_shown_as_they_are() -> None:
    with pytest.raises(KeyError, match="nowhere"):
        tree.at(lambda t: t["nowhere"], {"a": 1}, replace=2)


def test_wrong_arguments_are_errors() -> None:
    value = {"a": 1, "b": 2}
    with pytest.raises(ArgumentTypeError, match="neither of replace and replace_fn is given"):
        tree.at(lambda t: t["a"], value)
    with pytest.raises(ArgumentTypeError, match="both of replace and replace_fn are given"):
        tree.at(lambda t: t["a"], value, replace=1, replace_fn=abs)
    with pytest.raises(ArgumentTypeError, match="cannot be called"):
        tree.at("a", value, replace=1)  # type: ignore[arg-type]
    with pytest.raises(ArgumentTypeError, match="replace_fn is 3, which cannot be called"):
        tree.at(lambda t: t["a"], value, replace_fn=3)  # type: ignore[arg-type]
    for bad in ((1,), (1, 2, 3), 1):
        with pytest.raises(ArgumentError, match="where returns 2 nodes"):
            tree.at(lambda t: (t["a"], t["b"]), value, replace=bad)
