"""Calls of compiled functions that are like the one before: calls that are taken for alike, and calls that are not."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.errors import ArgumentTypeError

X = nnp.asarray([1.0, 2.0], dtype="float32")
A = np.asarray([1.0, 2.0], np.float32)


def test_calls_with_arrays_numpy_arrays_and_numbers_share_no_mistake() -> None:
    compiled = nnc.compile(lambda x, y: x * y)
    for x, y, dtype in [
        (X, 2.0, "float32"),
        (A, 2.0, "float32"),
        (X, A, "float32"),
        (A.astype("f8"), X, "float64"),
        (3, 2, "int64"),
    ]:
        for _ in range(3):
            found = compiled(x, y)
            assert found.dtype.name == dtype
            np.testing.assert_array_equal(found, np.asarray(x) * np.asarray(y))


def test_arrays_one_by_one_are_told_from_their_containers() -> None:
    compiled = nnc.compile(lambda *xs: sum(nnp.sum(x) for x in nnc.tree.leaves(xs)))
    others: list[tuple[Any, ...]] = [(X,), (X, X, X), ([X, X],), ((X, X),), (X, None), (X, [X]), (X, 2.0), (X, A)]
    for given in others:
        for _ in range(3):
            assert float(compiled(X, X)) == 6
            assert float(compiled(*given)) == sum(float(np.sum(x)) for x in nnc.tree.leaves(given))


def test_a_weak_array_is_not_taken_for_another_one() -> None:
    compiled = nnc.compile(lambda x: x * nnp.ones((), "float64"))
    weak = nnp.exp(0.0)
    assert [compiled(x).dtype.name for x in (weak, weak, weak, nnp.asarray(1.0, "float32"), weak)] == ["float64"] * 5
    half = nnc.compile(lambda x: x * nnp.ones((), "float16"))
    kinds = [half(x).dtype.name for x in (weak, weak, nnp.asarray(1.0, "float32"), weak, 1.0, 1.0)]
    assert kinds == ["float16", "float16", "float32", "float16", "float16", "float16"]


def test_a_dict_is_not_taken_for_an_ordered_one() -> None:
    compiled = nnc.compile(lambda tree: next(iter(tree.values())))
    one, two = nnp.asarray(1.0), nnp.asarray(2.0)
    assert [float(compiled({"a": one, "b": two})) for _ in range(2)] == [1, 1]
    assert [float(compiled(OrderedDict(b=two, a=one))) for _ in range(2)] == [2, 2]
    assert [float(compiled({"a": one, "b": two})) for _ in range(2)] == [1, 1]


def test_a_leaf_is_not_taken_for_an_unusual_container_of_one() -> None:
    compiled = nnc.compile(lambda tree: nnc.tree.map(lambda x: x * 2, tree))
    for _ in range(3):
        assert type(compiled(OrderedDict(a=X))) is OrderedDict
        assert type(compiled(X)) is nnc.Array


def test_arguments_by_name_and_by_position_reach_their_parameters() -> None:
    compiled = nnc.compile(lambda x, y, z=1.0: x - y * z)
    one, two, three = (nnp.asarray(float(n)) for n in (1, 2, 3))
    for _ in range(3):
        assert float(compiled(one, two)) == -1
        assert float(compiled(y=one, x=two)) == 1
        assert float(compiled(two, y=one)) == 1
        assert float(compiled(one, two, z=three)) == -5
        assert float(compiled(one, z=two, y=three)) == -5
    assert compiled.cache_info().size <= 3


def test_static_leaves_select_a_program() -> None:
    compiled = nnc.compile(lambda tree: tree["x"] * 2 if tree["mode"] == "double" else tree["x"])
    for _ in range(3):
        assert compiled({"x": X, "mode": "double"}).tolist() == [2, 4]
        assert compiled({"x": X, "mode": "plain"}).tolist() == [1, 2]


def test_static_arguments_select_a_program() -> None:
    compiled = nnc.compile(lambda x, n: x * n, static_argnums=1)
    for _ in range(3):
        assert [compiled(X, n).tolist() for n in (2, 3)] == [[2, 4], [3, 6]]


def test_a_changed_capture_is_seen_in_a_call_like_the_last() -> None:
    box = {"factor": 2.0}
    compiled = nnc.compile(lambda x: x * box["factor"])
    assert [compiled(X).tolist() for _ in range(3)] == [[2, 4]] * 3
    box["factor"] = 3.0
    assert [compiled(X).tolist() for _ in range(3)] == [[3, 6]] * 3


def test_donated_arrays_are_gone_after_each_call() -> None:
    compiled = nnc.compile(lambda state, x: state + x, donate_argnums=0)
    state = nnp.zeros(2)
    for n in range(4):
        before, state = state, compiled(state, X)
        assert before.is_deleted()
        assert state.tolist() == [n + 1, 2 * (n + 1)]
    assert not X.is_deleted()


@pytest.mark.parametrize("times", [1, 3])
def test_a_donated_array_is_refused(times: int) -> None:
    compiled = nnc.compile(lambda x: x + 1)
    x = nnp.ones(2)
    for _ in range(times):
        compiled(x)
    x.delete()
    with pytest.raises(ArgumentTypeError, match="donated"):
        compiled(x)


def test_hits_are_counted_and_explained() -> None:
    compiled = nnc.compile(lambda x: x + 1)
    for _ in range(4):
        compiled(X)
    assert compiled.cache_info() == (type(compiled.cache_info()))(3, 1, 1, 1)
    assert "reused" in compiled.explain()
    compiled(nnp.ones(3))
    assert "traced, because argument x changed" in compiled.explain()


def test_results_are_new_each_time_and_read_only() -> None:
    compiled = nnc.compile(lambda x: (x, x))
    for _ in range(3):
        first, second = compiled(X)
        memory = {np.asarray(x).__array_interface__["data"][0] for x in (first, second, X)}
        assert len(memory) >= 2
        with pytest.raises(ValueError, match="read-only"):
            np.asarray(first)[0] = 5
    assert X.tolist() == [1, 2]


@pytest.mark.parametrize("make", [nnp.asarray, lambda x: x, float])
def test_calls_within_modes_do_as_the_modes_say(make: Callable[[Any], Any]) -> None:
    compiled = nnc.compile(lambda x: nnp.log(x))
    x = make(np.float32(0.0))
    for _ in range(3):
        assert float(compiled(x)) == -np.inf
    with nnc.debug.check_finite(), pytest.raises(nnc.errors.NncError):
        compiled(x)
    assert float(compiled(x)) == -np.inf


def test_donated_leaves_are_those_of_donated_arguments_wherever_they_stand() -> None:
    def f(a: Any, b: Any, *, c: Any, d: Any) -> Any:
        return a, b, c, d

    compiled = nnc.compile(f, donate_argnums=0, donate_argnames=("d",), static_argnums=1)
    a, c, d = {"x": X + 1, "label": "text", "y": [X + 2]}, X + 3, {"z": (X + 4,)}
    compiled(a, "static", c=c, d=d)
    deleted = [leaf.is_deleted() for leaf in (a["x"], a["y"][0], c, d["z"][0])]
    assert deleted == [True, True, False, True]
