"""Index expressions against NumPy: `x[index]`, `x.at[index]`, take, take_along_axis, dynamic slices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nnc
from nnc.array.indexing import (
    dynamic_slice,
    dynamic_update_slice,
    getitem,
    put_along_axis,
    set_at,
    take,
    take_along_axis,
)
from nnc.commands.index import gather
from nnc.errors import ArgumentError, DTypeError, IndexingError, OutOfBoundsError, ShapeError, TraceError
from nnc.graph import GraphBuilder

VIEWS = {"slice", "flip", "reshape", "transpose"}


@st.composite
def entries(draw: st.DrawFn, size: int, joint: tuple[int, ...]) -> Any:
    """An index of one axis of `size`; arrays broadcast to `joint`."""
    bounds = st.none() | st.integers(-size - 2, size + 2)
    kind = draw(st.sampled_from(["slice", "slice", "int", "array", "mask"] if size else ["slice", "mask"]))
    if kind == "slice":
        return slice(draw(bounds), draw(bounds), draw(st.none() | st.integers(-3, 3).filter(bool)))
    if kind == "int":
        return draw(st.integers(-size, size - 1))
    if kind == "mask":  # selects as many as the arrays have, so that they broadcast
        mask = np.zeros(size, bool)
        mask[: joint[-1] if joint and joint[-1] <= size else 1] = True
        return draw(st.permutations(list(mask)).map(np.asarray))
    shape = draw(st.sampled_from([joint[i:] for i in range(len(joint) + 1)]))
    ones = draw(st.lists(st.booleans(), min_size=len(shape), max_size=len(shape)))
    shape = tuple(1 if one else n for one, n in zip(ones, shape, strict=True))
    values = draw(st.lists(st.integers(-size, size - 1), min_size=int(np.prod(shape)), max_size=int(np.prod(shape))))
    return np.asarray(values, draw(st.sampled_from(["int8", "int32", "int64"]))).reshape(shape)


@st.composite
def indexed(draw: st.DrawFn) -> tuple[np.ndarray, tuple[Any, ...]]:
    """An array and an index of it that NumPy takes."""
    shape = tuple(draw(st.lists(st.integers(0, 4), max_size=4)))
    joint = tuple(draw(st.lists(st.integers(1, 3), max_size=2)))
    index: list[Any] = [draw(entries(n, joint)) for n in shape[: draw(st.integers(0, len(shape)))]]
    for extra in draw(st.lists(st.sampled_from([None, None, True, np.asarray(True)]), max_size=2)):
        index.insert(draw(st.integers(0, len(index))), extra)
    if draw(st.booleans()):
        index.insert(draw(st.integers(0, len(index))), Ellipsis)
    x = np.arange(float(np.prod(shape, dtype=int))).reshape(shape)
    try:
        x[tuple(index)]
    except IndexError:  # masks that select another number than the arrays have, axes that "..." gave to the wrong entry
        index = [Ellipsis]
    return x, tuple(index)


@given(indexed())
def test_getitem_agrees_with_numpy(case: tuple[np.ndarray, tuple[Any, ...]]) -> None:
    x, index = case
    got = nnc.asarray(x)[index]
    assert got.shape == x[index].shape
    np.testing.assert_array_equal(np.asarray(got), x[index])


@given(indexed())
def test_getitem_of_traced_indices_agrees_with_numpy(case: tuple[np.ndarray, tuple[Any, ...]]) -> None:
    x, index = case
    dynamic = [
        i for i, entry in enumerate(index) if isinstance(entry, (np.ndarray, int)) and np.asarray(entry).dtype != bool
    ]
    builder = GraphBuilder()
    with builder:
        symbols = [builder.input(np.shape(index[i]), np.asarray(index[i]).dtype) for i in dynamic]
        entries = list(index)
        for i, symbol in zip(dynamic, symbols, strict=True):
            entries[i] = symbol
        out = getitem(builder.constant(x), tuple(entries))
    got = builder.build(out)(*(np.asarray(index[i]) for i in dynamic))
    np.testing.assert_array_equal(np.asarray(got), x[index])


@given(indexed(), st.sampled_from(["set", "add", "mul", "min", "max"]), st.booleans())
def test_set_at_agrees_with_numpy(case: tuple[np.ndarray, tuple[Any, ...]], op: str, scalar: bool) -> None:
    x, index = case
    shape = x[index].shape
    values = np.asarray(7.0) if scalar else 3 - np.arange(float(np.prod(shape, dtype=int))).reshape(shape)
    want = x.copy()
    if op == "set":
        flat = np.arange(x.size).reshape(x.shape)[index].ravel()
        for i, v in zip(flat, np.broadcast_to(values, shape).ravel(), strict=True):  # NumPy leaves the order open
            want.reshape(-1)[i] = v
        want = want.reshape(-1)[np.arange(x.size)].reshape(x.shape)
    else:
        {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}[op].at(want, index, values)
    np.testing.assert_array_equal(np.asarray(set_at(nnc.asarray(x), index, values, op)), want)


@pytest.mark.parametrize(
    "index",
    [1, -1, (0, 1), np.s_[1:3], np.s_[::-1, ::2], np.s_[..., None], np.s_[None, 1, ..., ::-2], np.s_[5:1:-2, :0]],
)
def test_indices_without_arrays_are_views(index: Any) -> None:
    builder = GraphBuilder()
    x = np.arange(42.0).reshape(6, 7)
    with builder:
        graph_input = builder.input(x.shape, x.dtype)
        graph = builder.build(getitem(graph_input, index))
    assert {node.command.name for node in graph.nodes} <= VIEWS
    np.testing.assert_array_equal(np.asarray(graph(x)), x[index])


def test_arrays_that_stand_apart_put_their_axes_first() -> None:
    x = np.arange(120.0).reshape(2, 3, 4, 5)
    a = nnc.asarray(x)
    for index in (
        np.s_[0, :, [0, 1]],
        np.s_[[0, 1], :, 2],
        np.s_[:, [0, 1], [2, 3]],
        np.s_[:, 0, :, [1, 2]],
        np.s_[[0], ..., [1, 2]],
    ):
        assert a[index].shape == x[index].shape
        np.testing.assert_array_equal(np.asarray(a[index]), x[index])


def test_empty_lists_and_lists_of_bools_are_indices() -> None:
    x = nnc.asarray(np.arange(4.0))
    assert x[[]].shape == (0,)
    np.testing.assert_array_equal(np.asarray(x[[True, False, True, False]]), [0, 2])


def test_small_index_dtypes_reach_the_end_of_long_axes() -> None:
    x = nnc.asarray(np.arange(1000))
    builder = GraphBuilder()
    with builder:
        i = builder.input((2,), "int8")
        graph = builder.build(getitem(builder.constant(np.arange(1000)), i))
    np.testing.assert_array_equal(np.asarray(graph(np.asarray([-1, -128], np.int8))), [999, 872])
    assert int(x[np.int8(-1)]) == 999
    for mode, want in (("wrap", [999, 872]), ("clip", [0, 0]), ("drop", [0, 0])):
        got = gather(nnc.asarray(np.arange(1000)), np.asarray([-1, -128], np.int8), axes=(0,), batch=0, mode=mode)
        assert np.asarray(got).tolist() == want


def test_masks_and_numbers_are_known_while_differentiating() -> None:
    x = np.asarray([3.0, -1.0, 2.0])
    gradient = nnc.grad(lambda x: (x[x > 0] ** 2).sum())(x)
    np.testing.assert_array_equal(np.asarray(gradient), [6, 0, 4])
    gradient = nnc.grad(lambda x: x[::-1][nnc.asarray(0)] * x.at[1].set(x[0])[1])(x)
    np.testing.assert_array_equal(np.asarray(gradient), [2, 0, 3])


@pytest.mark.parametrize(
    ("index", "kind", "words"),
    [
        (5, OutOfBoundsError, "index 5 is out of range for axis 0, which has size 3"),
        ((0, -5), OutOfBoundsError, "index -5 is out of range for axis 1"),
        ([0, 3], OutOfBoundsError, "index 3"),
        ((0, 0, 0), IndexingError, "3 indices for an array of 2 axes"),
        (1.0, IndexingError, "float"),
        (np.asarray([0.5]), IndexingError, "float64"),
        ("a", IndexingError, "str"),
        (slice(0.5, 2), IndexingError, "slice"),
        (np.ones((2, 4), bool), IndexingError, "mask of shape"),
        (([0, 1], [0, 1, 2]), IndexingError, "do not broadcast"),
        ((..., 0, ...), IndexingError, "one `...`"),
        (slice(None, None, 0), ArgumentError, "step of a slice is 0"),
    ],
)
def test_wrong_indices_are_explained(index: Any, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words.replace("...", r"\.\.\.")) as caught:
        nnc.asarray(np.zeros((3, 4)))[index]
    assert "Fix:" in str(caught.value)
    assert kind is ArgumentError or isinstance(caught.value, IndexError)


def test_traced_indices_out_of_range_raise_when_run() -> None:
    builder = GraphBuilder()
    with builder:
        i = builder.input((), "int64")
        graph = builder.build(getitem(builder.constant(np.arange(3.0)), i))
    assert float(graph(np.asarray(-3))) == 0
    for wrong in (3, -4):
        with pytest.raises(OutOfBoundsError):
            graph(np.asarray(wrong))


def test_modes_set_the_value_read_out_of_range() -> None:
    x = nnc.asarray(np.asarray([10.0, 11.0, 12.0]))
    index = np.asarray([0, 4, -1, -5])
    for place in (index, nnc.asarray(index)):
        np.testing.assert_array_equal(np.asarray(x.at[place].get(mode="clip")), [10, 12, 12, 10])
        np.testing.assert_array_equal(np.asarray(x.at[place].get(mode="wrap")), [10, 11, 12, 11])
        np.testing.assert_array_equal(np.asarray(x.at[place].get(mode="drop")), [10, 0, 12, 0])
        np.testing.assert_array_equal(np.asarray(x.at[place].get(mode="fill")), [10, np.nan, 12, np.nan])
    assert np.isnan(float(x.at[7].get(mode="fill")))
    assert float(x.at[7].get(mode="clip")) == 12
    with pytest.raises(ArgumentError, match="mode is 'clamp'"):
        x.at[0].get(mode="clamp")


@pytest.mark.parametrize("mode", ["clip", "wrap", "drop", "fill"])
def test_derivatives_of_reads_out_of_range_follow_the_mode(mode: str) -> None:
    index, weights = np.asarray([0, 4, -1, -5, 1]), np.asarray([1.0, 2, 3, 4, 5])
    rows = {"clip": [0, 2, 2, 0, 1], "wrap": [0, 1, 2, 1, 1]}.get(mode, [0, None, 2, None, 1])
    slope = np.asarray([[float(j == row) for j in range(3)] for row in rows])
    read = lambda x: x.at[nnc.asarray(index)].get(mode=mode)
    x = nnc.asarray(np.asarray([10.0, 11.0, 12.0]))
    np.testing.assert_array_equal(nnc.jacfwd(read)(x), slope)
    np.testing.assert_array_equal(nnc.jacrev(read)(x), slope)
    np.testing.assert_array_equal(nnc.compile(nnc.vjp(read, x)[1])(weights)[0], weights @ slope)


@pytest.mark.parametrize("stride", [1, 2, 3, 7])
def test_derivatives_of_slices_stand_where_their_elements_were(stride: int) -> None:
    x = nnc.asarray(np.arange(5.0))
    for start in range(6):
        for limit in range(start, 6):
            where = slice(start, limit, stride)
            found, pull = nnc.vjp(lambda x, where=where: x[where], x)
            wanted, weights = np.zeros(5), np.arange(1.0, found.size + 1)
            wanted[where] = weights
            np.testing.assert_array_equal(pull(nnc.asarray(weights))[0], wanted)


def test_modes_set_the_effect_of_writes_out_of_range() -> None:
    x = nnc.asarray(np.zeros(3))
    place = nnc.asarray(np.asarray([1, 5]))
    np.testing.assert_array_equal(np.asarray(x.at[place].set(7, mode="drop")), [0, 7, 0])
    np.testing.assert_array_equal(np.asarray(x.at[place].set(7, mode="clip")), [0, 7, 7])
    np.testing.assert_array_equal(np.asarray(x.at[5].set(7, mode="drop")), [0, 0, 0])
    with pytest.raises(OutOfBoundsError):
        x.at[place].set(7)


def test_at_methods_agree_with_their_operators() -> None:
    x = np.asarray([1.0, 2.0, 4.0])
    at = nnc.asarray(x).at[np.asarray([0, 0, 2])]
    np.testing.assert_array_equal(np.asarray(at.add(3)), [7, 2, 7])
    np.testing.assert_array_equal(np.asarray(at.subtract(3)), [-5, 2, 1])
    np.testing.assert_array_equal(np.asarray(at.multiply(3)), [9, 2, 12])
    np.testing.assert_array_equal(np.asarray(at.divide(2)), [0.25, 2, 2])
    np.testing.assert_array_equal(np.asarray(at.min(0)), [0, 2, 0])
    np.testing.assert_array_equal(np.asarray(at.max([3, 5, 0])), [5, 2, 4])
    np.testing.assert_array_equal(np.asarray(at.apply(lambda v: v * 10)), [10, 2, 40])
    np.testing.assert_array_equal(np.asarray(at.set([7, 8, 9])), [8, 2, 9])


def test_values_that_do_not_fit_the_dtype_are_refused() -> None:
    x = nnc.asarray(np.zeros(3, np.int32))
    with pytest.raises(DTypeError, match=r"x\.astype\('float32'\)"):
        x.at[0].set(0.5)
    with pytest.raises(DTypeError, match="float64"):
        nnc.asarray(np.zeros(3, np.float32)).at[0].set(np.zeros(()))
    with pytest.raises(DTypeError, match="quotients"):
        x.at[0].divide(2)
    assert x.at[0].set(True).dtype == np.int32
    with pytest.raises(ShapeError, match="do not broadcast"):
        x.at[:2].set(np.zeros(3, np.int32))


def test_masked_writes_work_on_traced_masks() -> None:
    builder = GraphBuilder()
    x = np.arange(6.0).reshape(2, 3)
    with builder:
        mask = builder.input((2,), "bool")
        graph = builder.build(set_at(builder.constant(x), mask, np.asarray([7.0, 8.0, 9.0]), "add"))
    np.testing.assert_array_equal(np.asarray(graph(np.asarray([False, True]))), [[0, 1, 2], [10, 12, 14]])


def test_traced_masks_and_slice_bounds_name_the_remedy() -> None:
    with pytest.raises(TraceError, match=r"nnp\.where"):
        nnc.make_graph(lambda x: x[x > 0])(np.zeros(3))
    with pytest.raises(TraceError, match="dynamic_slice"):
        nnc.make_graph(lambda i: nnc.asarray(np.zeros(3))[i:])(np.asarray(1))


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("indices", [1, [0, 2, -1], [[0], [1]], []])
def test_take_agrees_with_numpy(axis: int | None, indices: Any) -> None:
    x = np.arange(12.0).reshape(3, 4)
    want = np.take(x, np.asarray(indices, int), axis)
    np.testing.assert_array_equal(np.asarray(take(nnc.asarray(x), indices, axis)), want)


@pytest.mark.parametrize("axis", [0, 1, 2, -1, None])
def test_take_and_put_along_axis_agree_with_numpy(axis: int | None) -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(3, 4, 5))
    order = np.argsort(x, axis)
    np.testing.assert_array_equal(np.asarray(take_along_axis(x, order, axis)), np.take_along_axis(x, order, axis))
    want = x.copy()
    part = order[:2] if axis is None else np.take(order, [0, 1], axis)
    np.put_along_axis(want, part, 5.0, axis)
    np.testing.assert_array_equal(np.asarray(put_along_axis(x, part, 5.0, axis)), want)


def test_take_along_axis_broadcasts_the_other_axes() -> None:
    x = np.arange(12.0).reshape(1, 3, 4)
    index = np.asarray([[[0], [-1], [2]], [[1], [1], [1]]])
    np.testing.assert_array_equal(np.asarray(take_along_axis(x, index, 2)), np.take_along_axis(x, index, 2))


def test_take_along_axis_reads_with_one_index_for_each_element() -> None:
    graph = nnc.make_graph(lambda x, i: take_along_axis(x, i, 1))(np.zeros((8, 9)), np.zeros((8, 2), int))
    (node,) = [node for node in graph.nodes if node.command is gather]
    assert node.params["batch"] == 1
    assert node.inputs[1].spec.shape == (8, 2)


def test_dynamic_slices_read_and_write_boxes() -> None:
    x = np.arange(12.0).reshape(3, 4)
    np.testing.assert_array_equal(np.asarray(dynamic_slice(x, [nnc.asarray(1), -3], (2, 2))), x[1:3, 1:3])
    want = x.copy()
    want[1:3, 0:2] = -1
    for starts in ([1, 0], nnc.asarray([1, 0]), np.asarray([-2, 0])):
        np.testing.assert_array_equal(np.asarray(dynamic_update_slice(x, -np.ones((2, 2)), starts)), want)


def test_dynamic_slices_never_clamp_silently() -> None:
    x = np.arange(5)
    for start in (3, nnc.asarray(3), nnc.asarray(-9)):
        with pytest.raises(OutOfBoundsError):
            dynamic_slice(x, [start], [3])
    np.testing.assert_array_equal(np.asarray(dynamic_slice(x, [nnc.asarray(3)], [3], mode="clip")), [2, 3, 4])
    with pytest.raises(ShapeError, match="does not fit"):
        dynamic_slice(x, [0], [6])
    with pytest.raises(ShapeError, match="2 starts"):
        dynamic_slice(x, [0, 0], [2])
    with pytest.raises(IndexingError):
        dynamic_slice(x, [0.5], [2])


def test_an_index_that_counts_too_far_from_the_end_is_said_to_lie_before_the_first_element() -> None:
    x = np.arange(6.0)
    read = nnc.compile(lambda x, i: x[i])
    assert float(read(x, -6)) == 0
    with pytest.raises(
        IndexError, match="index -1, 1 before the first element, is out of range .* counted from the end it was -7"
    ):
        read(x, -7)
    with pytest.raises(IndexError, match="3 before the first element"):
        nnc.compile(lambda x, i: x.at[i].set(0))(x, -9)
