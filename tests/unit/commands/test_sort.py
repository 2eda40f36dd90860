"""Sorting against NumPy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import nnc
import nnc.numpy as nnp
from nnc.commands.sort import argsort, searchsorted, sort, top_k
from nnc.errors import ArgumentError, ShapeError

FEW = st.sampled_from([0.0, -1.0, 1.0, 2.5, np.inf, -np.inf, np.nan])
ARRAYS = hnp.arrays(np.float64, hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=5), elements=FEW)


@given(ARRAYS, st.data())
def test_sort_and_argsort_agree_with_numpy(x: Any, data: st.DataObject) -> None:
    axis = data.draw(st.integers(0, x.ndim - 1))
    np.testing.assert_array_equal(np.asarray(sort(x, axis=axis, descending=False)), np.sort(x, axis))
    order = argsort(x, axis=axis, descending=False, stable=True)
    np.testing.assert_array_equal(np.asarray(order), np.argsort(x, axis, kind="stable"))
    down = sort(x, axis=axis, descending=True)
    np.testing.assert_array_equal(np.asarray(down), np.flip(np.sort(x, axis), axis))


@given(ARRAYS)
def test_equal_elements_keep_their_order_in_both_directions(x: Any) -> None:
    axis = x.ndim - 1
    order = np.asarray(argsort(x, axis=axis, descending=True, stable=True))
    found = np.take_along_axis(x, order, axis)
    same = (found[..., 1:] == found[..., :-1]) | (np.isnan(found[..., 1:]) & np.isnan(found[..., :-1]))
    assert (np.diff(order, axis=axis)[same] > 0).all()


@given(ARRAYS, st.data())
def test_top_k_are_the_first_of_the_descending_order(x: Any, data: st.DataObject) -> None:
    k = data.draw(st.integers(0, x.shape[-1]))
    values, places = top_k(x, k=k)
    np.testing.assert_array_equal(np.asarray(values), np.flip(np.sort(x, -1), -1)[..., :k])
    np.testing.assert_array_equal(np.take_along_axis(x, np.asarray(places), -1), np.asarray(values))


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "float16", "bfloat16", "complex64"])
def test_every_kind_of_dtype_is_sorted(dtype: str) -> None:
    values = np.asarray([1, 0, 3, 2, 1]).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    got = sort(values, axis=0, descending=False)
    assert got.dtype == values.dtype
    np.testing.assert_array_equal(np.asarray(got).astype(complex), np.sort(values.astype(complex)))


def test_gradients_go_back_to_where_the_elements_came_from() -> None:
    x = np.asarray([3.0, 1.0, 2.0])
    weights = nnc.asarray([1.0, 10.0, 100.0], dtype="float64")
    pull = nnc.vjp(lambda x: sort(x, axis=0, descending=False), x)[1]
    np.testing.assert_array_equal(np.asarray(pull(weights)[0]), [100, 1, 10])
    pull = nnc.vjp(lambda x: top_k(x, k=2)[0], x)[1]
    np.testing.assert_array_equal(np.asarray(pull(weights[:2])[0]), [1, 0, 10])


@given(
    hnp.arrays(np.float64, st.integers(0, 6), elements=FEW),
    hnp.arrays(np.float64, (2, 3), elements=FEW),
    st.sampled_from(["left", "right"]),
)
def test_searchsorted_agrees_with_numpy(steps: Any, values: Any, side: Any) -> None:
    steps = np.sort(steps)
    np.testing.assert_array_equal(
        np.asarray(searchsorted(steps, values, side=side)), np.searchsorted(steps, values, side)
    )


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ShapeError, match="4 largest of 3"):
        top_k(np.zeros(3), k=4)
    with pytest.raises(ShapeError, match="no axis"):
        top_k(np.zeros(()), k=1)
    with pytest.raises(ShapeError, match="axis 1"):
        sort(np.zeros(3), axis=1, descending=False)
    with pytest.raises(ArgumentError, match="side is 'middle'"):
        searchsorted(np.zeros(3), np.zeros(2), side="middle")
    with pytest.raises(ShapeError, match="do not fit"):
        searchsorted(np.zeros((2, 3)), np.zeros(3), side="left")


@pytest.mark.parametrize("outer", [(0, None), (None, 0)])
@pytest.mark.parametrize("inner", [(0, None), (None, 0)])
def test_one_of_the_operands_of_a_search_may_be_mapped(outer: Any, inner: Any) -> None:
    rng = np.random.default_rng(0)
    all_steps, all_values = np.sort(rng.normal(size=(2, 3, 5))), rng.normal(size=(2, 3, 4))
    own = [tuple(slice(None) if axes[k] == 0 else 0 for axes in (outer, inner)) for k in range(2)]
    steps, values = all_steps[own[0]], all_values[own[1]]
    search = nnc.vmap(nnc.vmap(nnp.searchsorted, in_axes=inner), in_axes=outer)
    for found in (search(steps, values), nnc.compile(search)(steps, values)):
        for i, j in np.ndindex(2, 3):
            row, sought = (
                x[i if axes[0] == 0 else 0, j if axes[1] == 0 else 0]
                for x, axes in zip((all_steps, all_values), zip(outer, inner, strict=True), strict=True)
            )
            assert np.asarray(found)[i, j].tolist() == np.searchsorted(row, sought).tolist()
