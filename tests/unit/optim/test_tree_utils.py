"""Arithmetic on trees beside NumPy, and parts of states by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import optim
from nnc.errors import ArgumentError, TreeError
from nnc.optim import tree_utils as tu

A = {"w": np.array([[1.0, -2.0], [3.0, 0.5]]), "b": [np.array(4.0), "name"]}
B = {"w": np.array([[2.0, 1.0], [-1.0, 4.0]]), "b": [np.array(-3.0), "name"]}


def flat(tree: Any) -> np.ndarray[Any, Any]:
    return np.concatenate([np.ravel(np.asarray(tree["w"])), np.ravel(np.asarray(tree["b"][0]))])


X, Y = flat(A), flat(B)


def test_arithmetic_is_leaf_by_leaf_and_leaves_names_alone() -> None:
    for ours, wanted in (
        (tu.tree_add(A, B, A), X + Y + X), (tu.tree_sub(A, B), X - Y), (tu.tree_mul(A, B), X * Y), (tu.tree_div(A, B), X / Y),
        (tu.tree_scale(3.0, A), 3 * X), (tu.tree_add_scale(A, 0.5, B), X + 0.5 * Y),
        (tu.tree_clip(A, -1.0, 2.0), np.clip(X, -1, 2)),
        (tu.tree_clip(A, max_value=0.0), np.minimum(X, 0)), (tu.tree_where(False, A, B), Y), (tu.tree_full_like(A, 7.0), 0 * X + 7),
        (tu.tree_zeros_like(A), 0 * X), (tu.tree_ones_like(A), 0 * X + 1),
    ):  # fmt: skip
        assert np.allclose(flat(ours), wanted) and ours["b"][1] == "name" and ours["w"].dtype == np.float64


def test_moving_averages_are_those_of_optax() -> None:
    """Numbers of optax.tree_utils 0.2.8, of decay 0.9 and 3 updates."""
    g = {"w": np.array([[1.0, -2.0], [3.0, 0.5]], np.float32), "name": "x"}
    m = {"w": np.array([[0.5, 1.0], [-1.0, 2.0]], np.float32), "name": "x"}
    for ours, wanted in (
        (tu.tree_update_moment(g, m, 0.9, 1), [0.55, 0.7, -0.6, 1.85]),
        (tu.tree_update_moment(g, m, 0.9, 2), [0.55, 1.3, 0.0, 1.825]),
        (tu.tree_update_moment_per_elem_norm(g, m, 0.9, 2), [0.55, 1.3, 0.0, 1.825]),
        (tu.tree_update_infinity_moment(g, m, 0.9, 0.25), [1.25, 2.25, 3.25, 1.8]),
        (tu.tree_bias_correction(m, 0.9, 3), [1.8450184, 3.6900368, -3.6900368, 7.3800735]),
    ):
        np.testing.assert_allclose(np.ravel(ours["w"]), wanted, rtol=1e-6, atol=1e-7)
        assert ours["name"] == "x" and ours["w"].dtype == np.float32
    z = {"z": np.array([3 + 4j, 1j], np.complex64)}
    moved = tu.tree_update_moment_per_elem_norm(z, {"z": np.ones(2, np.float32)}, 0.9, 3)["z"]
    np.testing.assert_allclose(moved, [13.4, 1.0], rtol=1e-6)
    assert moved.dtype == np.float32
    half = tu.tree_bias_correction({"w": nnp.ones(1, "bfloat16")}, 0.999, 1)["w"]  # 0.999 is 1 in bfloat16
    assert half.dtype == nnp.bfloat16 and float(half[0]) == 1000.0
    assert [x.shape for x in nnc.tree.leaves(tu.tree_batch_shape([1.0, np.ones(3)], (2, 4)))] == [(2, 4), (2, 4, 3)]
    with pytest.raises(TreeError):
        tu.tree_update_moment(g, {"w": m["w"]}, 0.9, 1)


def test_sums_run_over_all_leaves() -> None:
    assert np.isclose(tu.tree_sum(A), X.sum()) and np.isclose(tu.tree_vdot(A, B), X @ Y) and tu.tree_size(A) == 5
    assert float(tu.tree_max(A)) == 4.0 and float(tu.tree_min(A)) == -2.0
    for order in (None, 1, 2, np.inf):
        assert np.isclose(tu.tree_norm(A, order), np.linalg.norm(X, order))
        assert np.isclose(tu.tree_norm(A, order, squared=True), np.linalg.norm(X, order) ** 2)
    z = {"z": np.array([3 + 4j])}
    assert float(tu.tree_norm(z)) == 5.0 and complex(tu.tree_vdot(z, {"z": np.array([1j])})) == (3 - 4j) * 1j
    assert complex(tu.tree_conj(z)["z"][0]) == 3 - 4j and float(tu.tree_real(z)["z"][0]) == 3.0


def test_trees_without_arrays_have_neutral_sums() -> None:
    assert tu.tree_sum({}) == 0 and tu.tree_max({}) == -np.inf and tu.tree_min({}) == np.inf and tu.tree_size({}) == 0
    assert float(tu.tree_norm({})) == 0.0 and bool(tu.tree_allclose({}, {}))


def test_close_trees() -> None:
    assert bool(tu.tree_allclose(A, tu.tree_scale(1 + 1e-7, A))) and not bool(tu.tree_allclose(A, B))


def test_dtypes_change_of_floats_alone() -> None:
    tree = {"w": nnp.ones(2), "n": np.arange(2)}
    cast = tu.tree_cast(tree, "bfloat16")
    assert str(cast["w"].dtype) == "bfloat16" and cast["n"].dtype == np.int64 and tu.tree_cast(tree, None) is tree
    assert tu.tree_cast_like(cast, tree)["w"].dtype == np.float32


def test_random_leaves_are_independent() -> None:
    drawn = tu.tree_random_like(nnc.random.key(0), [np.zeros(2000), np.zeros(2000)])
    assert drawn[0].dtype == np.float64 and abs(np.corrcoef(*drawn)[0, 1]) < 0.1
    bits = tu.tree_random_like(nnc.random.key(0), [np.zeros(9)], nnc.random.rademacher, "int32")
    assert set(np.asarray(bits[0]).tolist()) == {-1, 1} and bits[0].dtype == np.int32


@dataclass(frozen=True)
class Box:
    count: int
    inner: Any


STATE = optim.chain(optim.adam(0.1), optim.ema(0.9)).init({"w": nnp.ones(2)})


def test_parts_are_found_by_the_names_of_fields_and_keys() -> None:
    assert np.array_equal(tu.tree_get(STATE, "nu")["w"], [0, 0])
    assert tu.tree_get(STATE, "absent") is None and tu.tree_get(STATE, "absent", default=3) == 3
    box = Box(1, {"count": [2, {"count": 3}]})
    assert tu.tree_get_all_with_path(box, "count") == [(("count",), 1), (("inner", "count"), [2, {"count": 3}])]
    second = tu.tree_get(STATE, "count", filtering=lambda path, part: path[0] == 1)
    assert second is STATE[1].count


def test_parts_are_replaced_and_the_rest_stays() -> None:
    new = tu.tree_set(STATE, count=nnp.asarray(7))
    assert int(new[0][0].count) == 7 == int(new[1].count) and new[1].ema is STATE[1].ema
    one = tu.tree_set(STATE, lambda path, part: path[0] == 1, count=nnp.asarray(7))
    assert int(one[0][0].count) == 0 and int(one[1].count) == 7 and one[0] is STATE[0]
    assert tu.tree_set(Box(1, [{"a": 2}]), a=5, count=6) == Box(6, [{"a": 5}])


def test_mistakes_are_named() -> None:
    with pytest.raises(ArgumentError, match=r"2 parts are called 'count'(.|\n)*Fix: choose one"):
        tu.tree_get(STATE, "count")
    with pytest.raises(ArgumentError, match="no part is called 'rate'(.|\n)*Fix:"):
        tu.tree_set(STATE, rate=1.0)
    with pytest.raises(ArgumentError, match="ord is 3(.|\n)*Fix:"):
        tu.tree_norm(A, 3)
    with pytest.raises(TreeError):
        tu.tree_add(A, {"w": A["w"]})
