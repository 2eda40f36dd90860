"""Rows of a mapped function run in lockstep, and collectives give the values of their definitions."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.testing.fuzz.lockstep import Lockstep, RowsDisagreeError
from nnc.testing.fuzz.plain import Plain
from nnc.testing.fuzz.reference import by_reference

X = np.random.default_rng(0).normal(size=(2, 3, 4, 5))


def along(n: Any, body: Any) -> Any:
    """`body` mapped over three named axes."""
    return n.vmap(n.vmap(n.vmap(body, axis_name="k"), axis_name="j"), axis_name="i")


@pytest.mark.parametrize("name", ["i", "j", "k"])
def test_sums_over_each_of_three_axes_are_numpy_s(name: str) -> None:
    axis = "ijk".index(name)
    n = Plain()
    with by_reference():
        found = along(n, lambda x: n.psum(x, name))(nnp.asarray(X))
    np.testing.assert_allclose(np.asarray(found), np.broadcast_to(X.sum(axis, keepdims=True), X.shape), rtol=1e-6)


def test_sums_over_several_axes_and_places_along_them_are_numpy_s() -> None:
    n = Plain()
    with by_reference():
        found = along(n, lambda x: n.pmax(x, ("i", "k")) + n.axis_index(("j", "i")))(nnp.asarray(X))
    places = np.arange(3)[None, :, None, None] * 2 + np.arange(2)[:, None, None, None]
    wanted = np.broadcast_to(X.max((0, 2), keepdims=True), X.shape) + places
    np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-6)


def test_parts_go_where_they_belong() -> None:
    n, x = Plain(), np.arange(2 * 2 * 4.0).reshape(2, 2, 4)
    with by_reference():
        exchanged = n.vmap(lambda x: n.all_to_all(x, "i", 0, 0), axis_name="i")(nnp.asarray(x))
        blocks = n.vmap(lambda x: n.all_to_all(x, "i", 1, 0, tiled=True), axis_name="i")(nnp.asarray(x))
        shares = n.vmap(lambda x: n.psum_scatter(x, "i"), axis_name="i")(nnp.asarray(x))
        moved = n.vmap(lambda x: n.ppermute(x, "i", [(0, 1)]), axis_name="i")(nnp.asarray(x))
        gathered = n.vmap(lambda x: n.all_gather(x, "i", axis=1), axis_name="i")(nnp.asarray(x))
    assert np.array_equal(np.asarray(exchanged), x.swapaxes(0, 1))
    assert np.array_equal(np.asarray(blocks), [[*x[0, :, :2], *x[1, :, :2]], [*x[0, :, 2:], *x[1, :, 2:]]])
    assert np.array_equal(np.asarray(shares), x.sum(0))
    assert np.array_equal(np.asarray(moved), [np.zeros((2, 4)), x[0]])
    assert np.array_equal(np.asarray(gathered), np.broadcast_to(x.swapaxes(0, 1), (2, 2, 2, 4)))


def test_a_rule_under_a_name_has_the_gradient_that_it_has_without() -> None:
    n = Plain()
    h = n.custom_vjp(lambda w: w * w)
    h.defvjp(lambda w: (w * w, w), lambda w, ct: (2 * w * ct,))
    x = nnp.asarray([1.0, 2.0, 4.0])
    with by_reference():
        named = nnc.grad(lambda w: nnp.sum(n.vmap(lambda x: h(w) * x, axis_name="i")(x)))(nnp.asarray(3.0))
    assert float(named) == 42


def test_rows_that_meet_at_different_collectives_are_refused_and_no_thread_stays() -> None:
    n = Plain()
    before = threading.active_count()

    def body(x: Any) -> Any:
        return n.psum(x, "i") if float(x) > 1 else x

    with by_reference(), pytest.raises(RowsDisagreeError):
        n.vmap(body, axis_name="i")(nnp.asarray([1.0, 2.0, 3.0]))
    assert threading.active_count() == before


def test_an_error_in_one_row_ends_all_of_them() -> None:
    n = Plain()
    before = threading.active_count()

    def body(x: Any) -> Any:
        total = n.psum(x, "i")
        return total if float(x) < 3 else nnp.zeros((2,)) @ nnp.zeros((3,))

    with by_reference(), pytest.raises(nnc.errors.ShapeError):
        n.vmap(body, axis_name="i")(nnp.asarray([1.0, 2.0, 3.0]))
    assert threading.active_count() == before


def test_a_row_that_comes_to_no_collective_is_given_up() -> None:
    never, lockstep = threading.Event(), Lockstep(patience=0.05)
    with pytest.raises(RowsDisagreeError, match=r"row 1 comes to no collective within 0\.05 s"):
        lockstep.run("i", [lambda: lockstep.meet("i", lambda values: values, 1), never.wait])
    never.set()
