"""The arrays of a pytree as one vector: `nnc.tree.ravel`."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import tree
from nnc.errors import ArgumentTypeError, DTypeError, ShapeError

TREE = {"w": np.arange(6.0).reshape(2, 3), "b": (np.array(7.0), None, np.zeros((0, 2)))}
MIXED = {"i": np.array([1, 2], np.int16), "f": np.array([[0.5]], np.float32), "on": np.array([True, False])}


def same(a: Any, b: Any) -> bool:
    assert tree.structure(a) == tree.structure(b)
    pairs = zip(map(nnp.asarray, tree.leaves(a)), map(nnp.asarray, tree.leaves(b)), strict=True)
    return all(x.dtype == y.dtype and x.shape == y.shape and bool((x == y).all()) for x, y in pairs)


def test_the_vector_holds_the_leaves_in_order_and_unravel_brings_them_back() -> None:
    vector, unravel = tree.ravel(TREE)
    assert vector.dtype == np.float64
    assert vector.tolist() == [7, 0, 1, 2, 3, 4, 5]
    assert same(unravel(vector), TREE)
    assert tree.ravel(3.5)[1](np.array([2.0], np.float32)) == 2


def test_leaves_are_promoted_and_come_back_in_their_dtypes() -> None:
    vector, unravel = tree.ravel(MIXED)
    assert vector.dtype == np.float32
    assert vector.tolist() == [0.5, 1, 2, 1, 0]
    assert same(unravel(vector), MIXED)
    narrow = {"a": np.ones(2, ml_dtypes.bfloat16), "b": np.ones(2, np.float16)}
    assert tree.ravel(narrow)[0].dtype == np.float32
    assert same(tree.ravel(narrow)[1](tree.ravel(narrow)[0]), narrow)
    waves = {"re": np.array([1.0]), "z": np.array([2 + 3j])}
    vector, unravel = tree.ravel(waves)
    assert vector.dtype == np.complex128
    assert same(unravel(vector), waves)


def test_leaves_of_one_dtype_take_the_dtype_of_the_vector() -> None:
    vector, unravel = tree.ravel(TREE)
    assert {x.dtype for x in tree.leaves(unravel(vector.astype("float32")))} == {np.dtype("float32")}


def test_a_tree_without_leaves_is_an_empty_vector() -> None:
    vector, unravel = tree.ravel({"a": None, "b": ()})
    assert vector.shape == (0,) and vector.dtype == np.float32
    assert unravel(vector) == {"a": None, "b": ()}


def test_gradients_go_through_both_ways() -> None:
    _, unravel = tree.ravel(TREE)
    weights = np.arange(1.0, 8.0)

    def through_vector(value: Any) -> Any:
        return nnp.sum(weights * tree.ravel(value)[0] ** 2)

    assert same(nnc.grad(through_vector)(TREE), unravel(2 * weights * tree.ravel(TREE)[0]))
    gradient = nnc.grad(lambda v: nnp.sum(unravel(v)["w"] ** 2))(nnp.ones(7))
    assert gradient.tolist() == [0, 2, 2, 2, 2, 2, 2]
    hessian = nnc.hessian(lambda v: nnp.sum(unravel(v)["w"][0] ** 3))(nnp.ones(7))
    assert np.array_equal(hessian, np.diag([0, 6.0, 6, 6, 0, 0, 0]))


def test_it_maps_over_rows_and_compiles() -> None:
    rows = {"w": np.arange(12.0).reshape(2, 2, 3), "b": (np.array([7.0, 8]), None, np.zeros((2, 0, 2)))}
    vectors = nnc.vmap(lambda value: tree.ravel(value)[0])(rows)
    assert vectors.shape == (2, 7)
    assert same(nnc.vmap(tree.ravel(TREE)[1])(vectors), rows)
    doubled = nnc.compile(lambda value: tree.ravel(value)[1](2 * tree.ravel(value)[0]))
    assert same(doubled(MIXED)["f"], np.array([[1.0]], np.float32))
    assert same(doubled(TREE), tree.map(lambda x: 2 * x, TREE))


def test_unravel_is_a_static_argument_that_is_traced_once() -> None:
    traced = []

    @nnc.compile(static_argnums=0)
    def first(unravel: Any, vector: Any) -> Any:
        traced.append(vector)
        return unravel(vector)["w"][0]

    for _ in range(3):
        vector, unravel = tree.ravel(TREE)
        first(unravel, vector)
    assert len(traced) == 1


def test_vectors_that_do_not_fit_are_errors() -> None:
    unravel = tree.ravel(MIXED)[1]
    with pytest.raises(
        ShapeError, match=r"shape \(4,\), the leaves have 5 elements.*\n(.*\n)*Fix: pass a vector of shape \(5,\)"
    ):
        unravel(nnp.ones(4))
    with pytest.raises(ShapeError, match=r"shape \(1, 5\)"):
        unravel(nnp.ones((1, 5)))
    with pytest.raises(DTypeError, match="the vector is float64, nnc.tree.ravel made it as float32"):
        unravel(nnp.ones(5, "float64"))


def test_leaves_that_are_no_arrays_are_named_by_their_path() -> None:
    with pytest.raises(ArgumentTypeError, match=r'the leaf at \["a"\]\[1\] is a str, not an array'):
        tree.ravel({"a": [1.0, "x"]})
