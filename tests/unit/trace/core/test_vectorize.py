"""vmap: against a loop, over every place of the axis, in chunks, and nested with derivatives."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.errors import ArgumentError, ArgumentTypeError, NncError, ShapeError, TraceError, TreeError

X = np.arange(24.0).reshape(2, 3, 4) / 10
Pair = namedtuple("Pair", "a b")


def close(a: Any, b: Any) -> bool:
    a, b = np.asarray(a), np.asarray(b)
    return a.shape == b.shape and np.allclose(a, b, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("in_axis", [0, 1, 2, -1, -2, -3])
@pytest.mark.parametrize("out_axis", [0, 1, 2, -1, -2, -3])
def test_the_axis_may_stand_anywhere(in_axis: int, out_axis: int) -> None:
    rows = np.moveaxis(X, in_axis, 0)
    expected = np.moveaxis(np.stack([np.sin(row).T for row in rows]), 0, out_axis)
    assert close(nnc.vmap(lambda x: nnp.sin(x).T, in_axis, out_axis)(X), expected)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 100])
def test_chunks_give_the_same_rows(size: int) -> None:
    rows = np.arange(10.0).reshape(5, 2)
    mapped = nnc.vmap(lambda x, w: (nnp.sum(x * w), w, 3.0), (0, None), (0, None, 0), chunk_size=size)
    sums, shared, constant = mapped(rows, np.array([1.0, 2.0]))
    assert close(sums, rows @ [1, 2]) and close(shared, [1.0, 2.0])
    assert np.asarray(constant).tolist() == [3.0] * 5
    assert close(
        nnc.grad(lambda r: nnp.sum(mapped(r, np.array([1.0, 2.0]))[0] ** 2))(rows), 2 * np.outer(rows @ [1, 2], [1, 2])
    )


def test_an_axis_of_size_zero_gives_empty_results() -> None:
    found, shared = nnc.vmap(lambda x: (x * 2, 3.0), out_axes=(0, None))(np.zeros((0, 2)))
    assert found.shape == (0, 2) and found.dtype == np.float64 and shared == 3
    assert nnc.vmap(lambda x: nnp.sum(x), chunk_size=2)(np.zeros((0, 2))).shape == (0,)


def test_axes_are_given_as_trees_that_begin_like_the_arguments() -> None:
    tree = {"w": X, "deep": [X, Pair(X, None)], "none": None, "name": "text"}

    def f(t: Any, s: Any) -> Any:
        return {
            "sum": nnp.sum(t["w"]) + nnp.sum(t["deep"][0]) * s + nnp.sum(t["deep"][1].a),
            "name": t["name"],
            "none": None,
        }

    for axes in (
        ({"w": 1, "deep": [None, Pair(-2, None)], "none": None, "name": None}, None),
        ({"w": 1, "deep": [None, 1], "none": 0, "name": 0}, None),
        ({"w": 1, "deep": [None, Pair(1, 0)], "none": None, "name": 5}, None),
    ):
        found = nnc.vmap(f, axes)(tree, 2.0)
        expected = X.sum((0, 2)) * 2 + 2 * X.sum()
        assert close(found["sum"], expected) and found["name"] == "text" and found["none"] is None


def test_none_in_results_does_not_shift_the_axes_of_later_leaves() -> None:
    found = nnc.vmap(lambda x: (None, x, {"k": 2.0, "n": None}, x.T), out_axes=(None, 1, {"k": None, "n": None}, -1))(X)
    assert found[0] is None and close(found[1], np.moveaxis(X, 0, 1)) and found[2] == {"k": 2.0, "n": None}
    assert close(found[3], np.stack([row.T for row in X], -1))


def test_none_in_arguments_does_not_shift_the_axes_of_later_leaves() -> None:
    found = nnc.vmap(lambda t: t["b"] + t["z"], ({"a": None, "b": 0, "z": None},))(
        {"a": None, "b": np.ones(3), "z": np.float64(1)}
    )
    assert close(found, [2.0, 2, 2])


def test_a_shared_result_is_the_result_itself_and_one_that_differs_is_refused() -> None:
    assert close(nnc.vmap(lambda x, w: w * 2, (0, None), None)(X, np.ones(2)), np.full(2, 2.0))
    with pytest.raises(ArgumentError, match="differs from row to row"):
        nnc.vmap(lambda x: x, out_axes=None)(X)


def test_keyword_arguments_are_mapped_over_their_first_axis() -> None:
    assert close(
        nnc.vmap(lambda x, *, w: nnp.sum(x) * w, in_axes=1)(X[0], w=np.arange(4.0)), X[0].sum(0) * np.arange(4)
    )


def test_axis_size_serves_functions_without_mapped_arguments() -> None:
    assert close(nnc.vmap(lambda: nnp.ones(2, "float64"), axis_size=3)(), np.ones((3, 2)))
    assert close(nnc.vmap(lambda x: x, in_axes=None, axis_size=2)(X[0]), np.stack([X[0], X[0]]))


def test_nested_maps_and_derivatives_equal_loops() -> None:
    def f(x: Any, w: Any) -> Any:
        return nnp.sum(nnp.sin(x) * w) ** 2

    w = np.arange(4.0)
    both = nnc.vmap(nnc.vmap(nnc.grad(f), (0, None)), (0, None))(X, w)
    assert close(both, np.stack([[nnc.grad(f)(x, w) for x in row] for row in X]))
    table = nnc.vmap(nnc.vmap(f, (None, 0)), (0, None))(X[0], X[1])
    assert close(table, np.array([[float(f(x, y)) for y in X[1]] for x in X[0]]))
    hessians = nnc.vmap(nnc.hessian(f), (0, None))(X[0], w)
    assert close(hessians, np.stack([nnc.hessian(f)(x, w) for x in X[0]]))
    per_example = nnc.vmap(nnc.grad(f, 1), (0, None))(X[0], w)
    assert close(nnp.sum(per_example, axis=0), nnc.grad(lambda v: nnp.sum(nnc.vmap(f, (0, None))(X[0], v)))(w))
    deep = nnc.grad(lambda v: nnp.sum(nnc.vmap(nnc.grad(f), (0, None))(X[0], v) ** 2))
    nnc.testing.check_grads(lambda v: nnp.sum(nnc.vmap(nnc.grad(f), (0, None))(X[0], v) ** 2), (w,), order=2)
    assert close(nnc.compile(deep)(w), deep(w))


def test_integers_and_booleans_are_mapped_too() -> None:
    x = np.array([[3, 1, 2], [9, 8, 7]])
    assert np.asarray(nnc.vmap(nnp.argmax)(x)).tolist() == [0, 0]
    assert np.asarray(nnc.vmap(lambda row, i: row[i])(x, np.array([2, 1]))).tolist() == [2, 8]
    assert np.asarray(nnc.vmap(lambda row: row > 2)(x)).tolist() == (x > 2).tolist()


def test_mistakes_name_the_argument() -> None:
    with pytest.raises(ShapeError, match="different sizes"):
        nnc.vmap(lambda x, y: x)(np.ones(2), np.ones(3))
    with pytest.raises(ShapeError, match="0-d"):
        nnc.vmap(lambda x: x)(1.0)
    with pytest.raises(ArgumentError, match="no argument is mapped"):
        nnc.vmap(lambda x: x, None)(1.0)
    with pytest.raises(ArgumentError, match="2 entries for 1"):
        nnc.vmap(lambda x: x, (0, 0))(X)
    with pytest.raises(ShapeError, match="out of range"):
        nnc.vmap(lambda x: x, 3)(X)
    with pytest.raises(ShapeError, match="out of range"):
        nnc.vmap(lambda x: x, 0, 3)(X)
    for axes in ("0", 0.0, True):
        with pytest.raises(ArgumentTypeError, match="int or None"):
            nnc.vmap(lambda x: x, axes)(X)
        with pytest.raises(ArgumentTypeError, match="int or None"):
            nnc.vmap(lambda x: x, 0, axes)(X)
    with pytest.raises(TreeError):
        nnc.vmap(lambda x: x, ({"a": 0},))({"b": X})
    with pytest.raises(TreeError):
        nnc.vmap(lambda x: (x, x), 0, (0, 0, 0))(X)


def test_a_row_has_no_python_value() -> None:
    with pytest.raises(TraceError, match=r"test_vectorize\.py"):
        nnc.vmap(lambda x: x if x > 0 else -x)(np.ones(3))
    with pytest.raises(NncError):
        nnc.vmap(lambda x: np.sin(x))(np.ones(3))


def test_broadcasts_of_one_value_along_different_axes_are_told_apart() -> None:
    """An array that all members return, and one that each member spreads itself, have one shape and differ."""

    def both(x: Any) -> Any:
        return nnc.vmap(lambda row: (x, nnc.vmap(lambda _: row)(x)))(x)

    x = np.arange(4.0).reshape(2, 2)
    for f in (both, nnc.compile(both), nnc.compile(lambda x: both(x)[::-1])):
        got = {np.asarray(y).tobytes() for y in f(nnp.asarray(x))}
        assert got == {np.stack([x, x]).tobytes(), np.repeat(x[:, None], 2, 1).tobytes()}
