"""gather, scatter and the dynamic slices where the contract suite does not reach: repeated indices, ties, zeros, bounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nnc
from nnc.commands.index import dynamic_slice, dynamic_update_slice, gather, scatter
from nnc.errors import ArgumentError, DTypeError, OutOfBoundsError, ShapeError

RNG = np.random.default_rng(5)
ROWS: dict[str, Any] = {"axes": (0,), "batch": 0, "mode": "error"}


def gradient(function: Any, *args: Any) -> list[Any]:
    """Gradients of the sum of a function's outputs weighted by 1, 2, 3 …"""
    out, pull = nnc.vjp(function, *args)
    return [np.asarray(x) for x in pull(nnc.asarray(1.0 + np.arange(float(out.size)).reshape(out.shape)))]


@st.composite
def gathers(draw: st.DrawFn) -> tuple[Any, list[Any], dict[str, Any]]:
    """An array, index arrays and parameters."""
    ndim = draw(st.integers(1, 4))
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=ndim, max_size=ndim)))
    batch = draw(st.integers(0, ndim - 1))
    axes = draw(st.permutations(range(batch, ndim)))[: draw(st.integers(1, ndim - batch))]
    inner = tuple(draw(st.lists(st.integers(0, 3), max_size=2)))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    indices = [rng.integers(0, shape[axis], (*shape[:batch], *inner)) for axis in axes]
    return rng.normal(size=shape), indices, {"axes": tuple(axes), "batch": batch, "mode": "error"}


def looped_gather(x: Any, indices: list[Any], axes: tuple[int, ...], batch: int) -> Any:
    """The definition of gather, an element at a time."""
    rest = [axis for axis in range(batch, x.ndim) if axis not in axes]
    shape = (*indices[0].shape, *(x.shape[axis] for axis in rest))
    out = np.empty(shape)
    for place in np.ndindex(indices[0].shape):
        where: list[Any] = [slice(None)] * x.ndim
        for axis in range(batch):
            where[axis] = place[axis]
        for index, axis in zip(indices, axes, strict=True):
            where[axis] = index[place]
        out[place] = x[tuple(where)]
    return out


@given(gathers())
def test_gather_is_its_definition(case: tuple[Any, list[Any], dict[str, Any]]) -> None:
    x, indices, params = case
    got = gather(x, *indices, **params)
    np.testing.assert_array_equal(np.asarray(got), looped_gather(x, indices, params["axes"], params["batch"]))


@given(gathers())
def test_set_values_are_gathered_where_indices_do_not_repeat(
    case: tuple[Any, list[Any], dict[str, Any]],
) -> None:
    x, indices, params = case
    numbers = np.arange(float(x.size)).reshape(x.shape)
    places = np.asarray(gather(numbers, *indices, **params)).ravel().astype(int)
    updates = RNG.normal(size=gather(x, *indices, **params).shape)
    want = x.copy()
    for place, value in zip(places, updates.ravel(), strict=True):
        want.reshape(-1)[place] = value
    np.testing.assert_array_equal(np.asarray(scatter(x, updates, *indices, op="set", **params)), want)


def test_the_last_of_repeated_writes_stays_and_has_the_gradient() -> None:
    index = np.asarray([1, 0, 1, 1])
    x, updates = np.asarray([10.0, 20.0, 30.0]), np.asarray([1.0, 2.0, 3.0, 4.0])
    write = lambda x, u: scatter(x, u, index, op="set", **ROWS)
    np.testing.assert_array_equal(np.asarray(write(x, updates)), [2, 4, 30])
    ct_x, ct_updates = gradient(write, x, updates)
    np.testing.assert_array_equal(ct_x, [0, 0, 3])
    np.testing.assert_array_equal(ct_updates, [0, 1, 0, 2])


def test_products_with_zeros_and_repeats_have_gradients_of_both_orders() -> None:
    index = np.asarray([0, 0, 1, 0])
    x, updates = np.asarray([2.0, 3.0, 5.0]), np.asarray([0.0, 4.0, 0.0, 7.0])
    multiply = lambda x, u: scatter(x, u, index, op="mul", **ROWS)
    ct_x, ct_updates = gradient(multiply, x, updates)
    np.testing.assert_allclose(ct_x, [0, 0, 3])
    np.testing.assert_allclose(ct_updates, [2 * 4 * 7, 0, 2 * 3, 0])
    hessian = nnc.jacfwd(nnc.grad(lambda u: multiply(x, u)[0]))(nnc.asarray(updates))
    want = np.zeros((4, 4))
    want[0, 1] = want[1, 0] = 2 * 7
    want[0, 3] = want[3, 0] = 2 * 4
    np.testing.assert_allclose(np.asarray(hessian), want)


def test_equal_extremes_share_the_gradient() -> None:
    index = np.asarray([0, 0, 1])
    ct_x, ct_updates = gradient(
        lambda x, u: scatter(x, u, index, op="max", **ROWS), np.asarray([3.0, 1.0]), np.asarray([3.0, 3.0, 0.0])
    )
    np.testing.assert_allclose(ct_x, [1 / 3, 2])
    np.testing.assert_allclose(ct_updates, [1 / 3, 1 / 3, 0])


def test_filled_elements_are_constant_to_derivatives() -> None:
    index = np.asarray([2, 9, -1])
    (ct,) = gradient(lambda x: gather(x, index, axes=(0,), batch=0, mode="fill"), np.zeros(3))
    np.testing.assert_array_equal(ct, [0, 0, 1])
    for dtype, fill in (("int8", -128), ("uint8", 255), ("bool", True), ("complex64", np.nan)):
        got = np.asarray(gather(np.ones(3, dtype), index, axes=(0,), batch=0, mode="fill"))
        np.testing.assert_array_equal(got, np.asarray([1, fill, fill], dtype))


def test_dropped_updates_have_no_gradient_for_any_op() -> None:
    index = np.asarray([5, 0])
    for op in ("set", "add", "mul", "min", "max"):
        out, (ct_x, ct_updates) = (
            scatter(np.ones(2), np.asarray([0.0, 1.5]), index, axes=(0,), batch=0, mode="drop", op=op),
            gradient(
                lambda x, u, op=op: scatter(x, u, index, axes=(0,), batch=0, mode="drop", op=op),
                np.ones(2), np.asarray([0.0, 1.5]),
            ),
        )  # fmt: skip
        assert float(out[1]) == 1 and ct_x[1] == 2, op
        assert ct_updates[0] == 0 and np.isfinite(ct_updates).all(), op


@pytest.mark.parametrize("op", ["set", "add", "mul", "min", "max"])
def test_bool_and_integer_arrays_are_scattered_into(op: str) -> None:
    index = np.asarray([1, 1])
    expected = {"set": [1, 5, 1], "add": [1, 8, 1], "mul": [1, 10, 1], "min": [1, 1, 1], "max": [1, 5, 1]}[op]
    got = scatter(np.ones(3, np.int8), np.asarray([2, 5], np.int8), index, op=op, **ROWS)
    assert got.dtype == np.int8
    np.testing.assert_array_equal(np.asarray(got), expected)
    got = scatter(np.asarray([True, True, False]), np.asarray([True, False]), index, op=op, **ROWS)
    np.testing.assert_array_equal(np.asarray(got), [True, op in ("add", "max"), False])


def test_indices_out_of_range_raise_with_index_axis_and_size() -> None:
    with pytest.raises(OutOfBoundsError, match="index 4 is out of range for axis 1, which has size 3"):
        gather(np.zeros((2, 3)), np.asarray([0, 4]), axes=(1,), batch=0, mode="error")
    with pytest.raises(OutOfBoundsError, match="index -1"):
        scatter(np.zeros(3), np.zeros(1), np.asarray([-1]), op="add", **ROWS)
    with pytest.raises(OutOfBoundsError, match="size 0"):
        gather(np.zeros(0), np.asarray([0]), axes=(0,), batch=0, mode="clip")


def test_wrong_operands_are_refused() -> None:
    x = np.zeros((2, 3))
    with pytest.raises(DTypeError, match="integer"):
        gather(x, np.zeros(2), **ROWS)
    with pytest.raises(ShapeError, match="1 index arrays for axes"):
        gather(x, np.asarray([0]), axes=(0, 1), batch=0, mode="error")
    with pytest.raises(ShapeError, match="shared axes"):
        gather(x, np.zeros((3, 1), int), axes=(1,), batch=1, mode="error")
    with pytest.raises(ShapeError, match="the updates have shape"):
        scatter(x, np.zeros(3), np.asarray([0]), op="add", **ROWS)
    with pytest.raises(DTypeError, match="dtypes differ"):
        scatter(x, np.zeros((1, 3), np.float32), np.asarray([0]), op="add", **ROWS)
    with pytest.raises(ArgumentError, match="op is 'sub'"):
        scatter(x, np.zeros((1, 3)), np.asarray([0]), op="sub", **ROWS)
    with pytest.raises(ArgumentError, match="mode is 'fill'"):
        scatter(x, np.zeros((1, 3)), np.asarray([0]), op="add", axes=(0,), batch=0, mode="fill")
    with pytest.raises(ShapeError, match="1 starts"):
        dynamic_slice(x, np.asarray(0), sizes=(1, 1), mode="error")
    with pytest.raises(ShapeError, match="does not fit"):
        dynamic_update_slice(x, np.zeros((3, 3)), np.asarray(0), np.asarray(0), mode="error")


@pytest.mark.parametrize("mode", ["error", "clip"])
@pytest.mark.parametrize("varying", [(True, True), (True, False), (False, True), (False, False)])
@pytest.mark.parametrize("x_batched", [True, False])
def test_dynamic_slices_of_a_batch_are_those_of_its_rows(
    mode: str, varying: tuple[bool, bool], x_batched: bool
) -> None:
    x = RNG.normal(size=(3, 4, 5))[slice(None) if x_batched else 0]
    update = RNG.normal(size=(3, 2, 5))
    rows = [np.asarray([0, 2, 1]) if mode == "error" else np.asarray([-4, 9, 1]), np.asarray([0, 0, 0])]
    starts = [row if vary else row[0] for row, vary in zip(rows, varying, strict=True)]
    axes = (0 if x_batched else None, 0, *(0 if vary else None for vary in varying))
    both = lambda x, u, i, j: (
        dynamic_slice(x, i, j, sizes=(2, 5), mode=mode),
        dynamic_update_slice(x, u, i, j, mode=mode),
    )
    got = nnc.vmap(both, in_axes=axes)(x, update, *starts)
    for k in range(3):
        i, j = (start[k] if vary else start for start, vary in zip(starts, varying, strict=True))
        want = both(x[k] if x_batched else x, update[k], i, j)
        for a, b in zip(got, want, strict=True):
            np.testing.assert_array_equal(np.asarray(a)[k], np.asarray(b))


def test_sums_of_16_bit_updates_do_not_stall() -> None:
    got = scatter(np.zeros(1, np.float16), np.ones(4096, np.float16), np.zeros(4096, int), op="add", **ROWS)
    assert float(got[0]) == 4096  # one by one in float16 it would stay at 2048


@pytest.mark.parametrize("mode", ["error", "clip"])
@pytest.mark.parametrize("compiled", [False, True])
def test_the_transpose_of_an_update_takes_its_box_out_of_the_cotangent(mode: str, compiled: bool) -> None:
    x, update, ct = np.ones((4, 5)), np.ones((2, 3)), np.arange(20.0).reshape(4, 5) + 1
    starts = np.array([1, 2] if mode == "error" else [1, 4])  # which "clip" moves to 2
    write = lambda x, update: nnc.dynamic_update_slice(x, update, starts, mode=mode)
    want_x = ct.copy()
    want_x[1:3, 2:5] = 0

    def pulled(x: Any, update: Any) -> Any:
        return nnc.vjp(write, x, update)[1](ct)

    of_x, of_update = (nnc.compile(pulled) if compiled else pulled)(x, update)
    np.testing.assert_array_equal(of_x, want_x)
    np.testing.assert_array_equal(of_update, ct[1:3, 2:5])
    only = nnc.linear_transpose(lambda update: write(np.zeros((4, 5)), update), update)(ct)
    np.testing.assert_array_equal(nnc.tree.leaves(only)[0], ct[1:3, 2:5])
