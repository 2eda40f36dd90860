from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nnc
import nnc.numpy as nnp
from nnc.errors import ArgumentError, OutOfBoundsError, ShapeError, TraceError
from nnc.trace.core.differentiate import grad
from nnc.trace.core.specs import make_graph

RNG = np.random.default_rng(2)
X = RNG.normal(size=(4, 5))
N = RNG.integers(0, 4, (4, 5))


@pytest.mark.parametrize("axis", [None, 0, -1])
def test_sorts_agree_with_numpy(axis, same):
    for x in (X, N, N > 1, np.where(N == 2, np.nan, X)):
        same(nnp.sort(x, axis), np.sort(x, axis))
        same(nnp.argsort(x, axis), np.argsort(x, axis, stable=True))
    same(nnp.sort(X, axis, descending=True), -np.sort(-X, axis))


def test_lexsort_orders_by_several_keys(same):
    same(nnp.lexsort((X[0], N[0])), np.lexsort((X[0], N[0])))
    same(nnp.lexsort((X, N), axis=0), np.lexsort((X, N), axis=0))


def test_top_k_takes_the_largest_of_each_row(same):
    values, places = nnp.top_k(X, 2, axis=0)
    same(values, -np.sort(-X, 0)[:2])
    same(values, np.take_along_axis(X, np.asarray(places), 0))


@pytest.mark.parametrize("side", ["left", "right"])
def test_searches_agree_with_numpy(side, same):
    steps = np.sort(N.ravel())
    same(nnp.searchsorted(steps, N, side), np.searchsorted(steps, N, side))
    same(nnp.searchsorted(N[0], 2, side, np.argsort(N[0])), np.searchsorted(N[0], 2, side, np.argsort(N[0])))
    same(nnp.digitize(X, [-1, 0, 1], right=side == "right"), np.digitize(X, [-1, 0, 1], right=side == "right"))


@pytest.mark.parametrize("number", [256, 300, -1, 2**63, 44])
@pytest.mark.parametrize("dtype", ["uint8", "int16", "int64"])
@pytest.mark.parametrize("name", ["isin", "searchsorted", "digitize", "setdiff1d"])
def test_integers_are_searched_exactly_though_they_do_not_fit_into_the_dtype_of_the_array(name, dtype, number, same):
    if number == 2**63 and dtype != "uint8":
        return  # no dtype holds both
    x, swapped = np.array([0, 1, 44, 100], dtype), name == "digitize"
    f = lambda x, n: getattr(nnp, name)(*((n, x) if swapped else (x, n)))
    want = getattr(np, name)(*((number, x) if swapped else (x, number)))
    same(f(nnp.asarray(x), number), want)
    if name == "setdiff1d":  # its size depends on values
        return
    same(nnc.compile(f)(x, number), want)
    same(nnc.compile(lambda x: f(x, number))(x), want)
    again = lambda n, _: (n, nnc.checkpoint(f)(nnp.asarray(x), n))
    same(nnc.scan(again, number, None, 1)[1][0], want)


def test_taking_and_putting_agree_with_numpy(same):
    same(nnp.take(X, [0, -1, 3]), np.take(X, [0, -1, 3]))
    same(nnp.take(X, N[:2], axis=1), np.take(X, N[:2], axis=1))
    same(nnp.take(X, 9, axis=0, mode="clip"), np.take(X, 9, axis=0, mode="clip"))
    same(nnp.take_along_axis(X, N, axis=1), np.take_along_axis(X, N, axis=1))
    changed = X.copy()
    np.put_along_axis(changed, N[:1], 9.0, axis=0)
    same(nnp.put_along_axis(X, N[:1], 9.0, axis=0), changed)
    same(nnp.compress([True, False, True], X, axis=1), np.compress([True, False, True], X, axis=1))
    same(nnp.extract(X > 0, X), np.extract(X > 0, X))
    same(nnp.delete(X, [0, 2], 1), np.delete(X, [0, 2], 1))
    same(nnp.delete(X, slice(1, 3), 0), np.delete(X, slice(1, 3), 0))
    same(nnp.insert(X, 1, 7, 0), np.insert(X, 1, 7, 0))
    same(nnp.insert(X[0], 2, [7, 8]), np.insert(X[0], 2, [7, 8]))
    same(nnp.select([X > 1, X > 0], [X, -X], 5), np.select([X > 1, X > 0], [X, -X], 5))


def test_an_index_out_of_range_raises():
    with pytest.raises(IndexError):
        nnp.take(X, 20)
    with pytest.raises(IndexError):
        nnp.take_along_axis(X, N + 9, axis=1)


def test_positions_of_true_elements_agree_with_numpy(same):
    same(nnp.nonzero(N), np.nonzero(N))
    same(nnp.flatnonzero(N), np.flatnonzero(N))
    same(nnp.argwhere(X > 0), np.argwhere(X > 0))
    same(nnp.unravel_index(N, (2, 3)), np.unravel_index(N, (2, 3)))
    same(nnp.ravel_multi_index((1, N), (2, 5)), np.ravel_multi_index((np.ones_like(N), N), (2, 5)))


def test_nonzero_of_a_given_size_pads_or_cuts(same):
    rows, columns = np.nonzero(N)
    for size in (0, 3, 25):
        got = nnp.nonzero(N, size=size, fill_value=-1)
        for places, want in zip(got, (rows, columns), strict=True):
            same(places, np.concatenate([want, np.full(25, -1)])[:size])


def test_nonzero_of_a_given_size_traces(same):
    graph = make_graph(lambda x: nnp.nonzero(x, size=4)[0])(N[0])
    same(nnp.asarray(graph.evaluate([N[1]])[0]), np.pad(np.nonzero(N[1])[0], (0, 4))[:4])


def test_distinct_elements_agree_with_numpy(same):
    same(nnp.unique(N), np.unique(N))
    same(nnp.unique(N, True, True, True), np.unique(N, True, True, True))
    same(nnp.unique(N, axis=1, return_counts=True), np.unique(N, axis=1, return_counts=True))
    same(nnp.unique(np.array([1.0, np.nan, np.nan])), np.array([1.0, np.nan]))
    same(tuple(nnp.unique_all(N)), tuple(np.unique_all(N)))
    same(tuple(nnp.unique_counts(N)), tuple(np.unique_counts(N)))
    same(tuple(nnp.unique_inverse(N)), tuple(np.unique_inverse(N)))
    same(nnp.unique_values(np.array([np.nan, 1.0, np.nan])), np.array([1.0, np.nan, np.nan]))


def test_distinct_elements_carry_derivatives():
    assert grad(lambda x: (nnp.unique(x) * nnp.asarray([1.0, 2.0])).sum())(np.array([3.0, 1.0, 3.0])).tolist() == [
        2,
        1,
        0,
    ]


def test_shapes_that_depend_on_traced_values_raise_with_the_remedy():
    for function in (nnp.nonzero, nnp.unique, nnp.bincount, nnp.argwhere):
        with pytest.raises(TraceError, match=r"is not known while the function is traced"):
            make_graph(function)(N[0])


def test_membership_and_counts_agree_with_numpy(same):
    same(nnp.isin(N, [1, 3]), np.isin(N, [1, 3]))
    same(nnp.isin(N, [1, 3], invert=True), np.isin(N, [1, 3], invert=True))
    same(nnp.isin(N, np.zeros(0, int)), np.isin(N, []))
    same(nnp.bincount(N[0]), np.bincount(N[0]))
    same(nnp.bincount(N[0], X[0], 7), np.bincount(N[0], X[0], 7))
    same(nnp.bincount(N[0], length=4), np.bincount(N[0], minlength=4))


@given(st.lists(st.integers(-5, 5), max_size=10), st.lists(st.integers(-5, 5), max_size=4))
def test_isin_agrees_with_python(xs, tests):
    assert nnp.isin(np.asarray(xs, int), np.asarray(tests, int)).tolist() == [x in tests for x in xs]


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: nnp.sort(X, 2), ShapeError, "sort: axis 2"),
        (lambda: nnp.top_k(X, 6), ShapeError, "top_k: there are no 6 largest"),
        (lambda: nnp.searchsorted(X, 1), ShapeError, "searchsorted: x1 has 2 axes"),
        (lambda: nnp.searchsorted(X[0], 1, "middle"), ArgumentError, "searchsorted: side="),
        (lambda: nnp.nonzero(1), ArgumentError, "nonzero: a 0-d array"),
        (lambda: nnp.bincount(np.asarray([-1])), ArgumentError, "bincount: element -1"),
        (lambda: nnp.select([X], []), ArgumentError, "select: 1 conditions go with 0"),
        (lambda: nnp.lexsort([]), ArgumentError, "lexsort: there is no key"),
        (lambda: nnp.delete(X, 30), OutOfBoundsError, "delete: index 30"),
        (lambda: nnp.unique(X, axis=3), ShapeError, "unique: axis 3"),
        (lambda: nnp.ravel_multi_index((1, 2), (3,)), ArgumentError, "ravel_multi_index: 2 indices"),
    ],
)
def test_a_mistake_is_answered_with_the_functions_name(call, kind, message):
    with pytest.raises(kind, match=message):
        call()


@pytest.mark.parametrize("axis", [None, 0, -1])
def test_partitions_put_an_element_in_its_place(axis, same):
    for kth in (0, 2, -1, (1, 3)):
        parts = np.asarray(nnp.partition(X, kth, axis))
        order = nnp.argpartition(X, kth, axis)
        same(nnp.take_along_axis(X, order, axis), parts)
        same(nnp.asarray(X).argpartition(kth, axis), np.asarray(order))
        assert (
            np.take(parts, kth, -1 if axis is None else axis)
            == np.take(np.sort(X, axis), kth, -1 if axis is None else axis)
        ).all()
    with pytest.raises(OutOfBoundsError, match="partition: kth is 99"):
        nnp.partition(X, 99, axis)


def test_elements_are_chosen_by_number_as_in_numpy(same):
    number = np.array([[0, 1], [2, 0]])
    choices = [np.arange(2), 10, np.array([[5], [6]])]
    same(nnp.choose(number, choices), np.choose(number, choices))
    same(nnp.asarray(number).choose(choices), np.choose(number, choices))
    for mode in ("wrap", "clip"):
        same(nnp.choose(number * 2 - 1, choices, mode=mode), np.choose(number * 2 - 1, choices, mode=mode))
    with pytest.raises(OutOfBoundsError):
        nnp.choose([3], choices)
    nnc.testing.check_grads(lambda x: nnp.choose(number, [x, 2 * x, x * x]), (X[:2, :2],), order=2)


def test_elements_are_put_as_in_numpy(same):
    for values in (9.0, [1.0, 2.0, 3.0], np.arange(30.0)):
        for name, where in (("put", [3, 0, 7]), ("place", N > 2), ("putmask", N > 2)):
            want = X.copy()
            getattr(np, name)(want, where, np.atleast_1d(values))
            same(getattr(nnp, name)(X, where, values), want)
    assert nnp.put(X, [], 1.0, inplace=False).tolist() == X.tolist()
    for call in (lambda: nnp.put(X, [0], 1.0, inplace=True), lambda: nnp.place(X, X > 0, 1.0, inplace=True)):
        with pytest.raises(ArgumentError, match="arrays are immutable"):
            call()
    with pytest.raises(ShapeError, match="place: mask must have the size"):
        nnp.place(X, [True], 1.0)
    nnc.testing.check_grads(lambda x, v: nnp.place(x, N > 2, v), (X, X[0]), order=1)
    assert nnc.compile(lambda x, m: nnp.place(x, m, [1.0]))(X, N > 9).tolist() == X.tolist()


def test_places_of_small_integers_do_not_overflow(same):
    places = np.array([200, 150], np.uint8)
    same(nnp.ravel_multi_index((places, places), (256, 256)), np.ravel_multi_index((places, places), (256, 256)))
    same(nnp.unravel_index(places, (300, 2)), np.unravel_index(places, (300, 2)))


def test_axes_roll_as_in_numpy(same):
    cube = X.reshape(2, 2, 5)
    for axis in range(-3, 3):
        for start in range(-3, 4):
            same(nnp.rollaxis(cube, axis, start), np.rollaxis(cube, axis, start))


SIZES = {
    "nonzero": (lambda x: nnp.nonzero(x), "pass size=n"),
    "where": (lambda x: nnp.where(x > 1), "pass size=n"),
    "argwhere": (lambda x: nnp.argwhere(x), "pass size=n"),
    "flatnonzero": (lambda x: nnp.flatnonzero(x), "pass size=n"),
    "unique": (lambda x: nnp.unique(x), "with size=n"),
    "unique_all": (lambda x: nnp.unique_all(x), "nnp.unique with size=n"),
    "union1d": (lambda x: nnp.union1d(x, x), "pass size=n"),
    "bincount": (lambda x: nnp.bincount(x), "pass length=n"),
    "compress": (lambda x: nnp.compress(x > 1, x), "which keeps the shape"),
    "a mask": (lambda x: x[x > 1], "keep the shape"),
    "segment_sum": (lambda x: nnp.segment_sum(x, x), "pass num_segments=n"),
    "zeros": (lambda x: nnp.zeros(x[0]), "from x.shape"),
    "arange": (lambda x: nnp.arange(x[0]), "from x.shape"),
    "trim_zeros": (lambda x: nnp.trim_zeros(x), "leave it out of the traced function"),
    "roots": (lambda x: nnp.roots(x), "strip_zeros=False"),
}


@pytest.mark.parametrize("name", SIZES)
def test_a_shape_that_depends_on_traced_values_names_the_remedy(name):
    function, remedy = SIZES[name]
    with pytest.raises(TraceError, match="is not known while|no values yet") as error:
        nnc.compile(function)(np.arange(4))
    assert remedy in str(error.value).partition("Fix:")[2]


def test_where_of_a_known_size_finds_traced_values():
    found = nnc.compile(lambda x: nnp.where(x > 1, size=3, fill_value=-1))(np.array([0, 5, 1, 7]))[0]
    assert found.tolist() == [1, 3, -1]


def test_take_fills_with_a_number():
    x = np.arange(6.0).reshape(2, 3)
    assert nnp.take(x, [0, 9], mode="fill", fill_value=-1).tolist() == [0, -1]
    assert nnp.take(x, [2, -1, 3], axis=1, mode="fill", fill_value=-1).tolist() == [[2, 2, -1], [5, 5, -1]]


def test_truth_values_are_counted():
    assert nnp.bincount(np.array([True, False, True])).tolist() == [1, 2]


@pytest.mark.parametrize("right", [False, True])
def test_digitize_takes_bins_that_fall(right):
    x = np.array([-2.0, 0.5, 1.0, 1.25, 2.0, 7.0, np.nan])
    for bins in (np.array([2.0, 1.0, 0.5]), np.array([0.5, 1.0, 2.0]), np.ones(3), np.array([2.0]), np.zeros(0)):
        wanted = np.digitize(x, bins, right)
        np.testing.assert_array_equal(nnp.digitize(x, bins, right), wanted)
        np.testing.assert_array_equal(nnc.compile(lambda x, b: nnp.digitize(x, b, right))(x, bins), wanted)
    with pytest.raises(ArgumentError, match="neither rise nor fall"):
        nnp.digitize(x, [1.0, 3.0, 2.0])


@pytest.mark.parametrize("dtype", ["int8", "int64", "uint8"])
def test_bincount_of_a_known_length_counts_no_negative_number_from_the_end(dtype):
    counted = nnc.compile(lambda x: nnp.bincount(x, length=200))
    x = np.array([0, 3, 3], dtype)
    np.testing.assert_array_equal(counted(x), np.bincount(x, minlength=200))
    if dtype[0] == "i":
        with pytest.raises(ArgumentError, match="element -1 is negative"):
            nnp.bincount(np.array([1, -1], dtype), length=200)
        with pytest.raises(IndexError, match="-1"):
            counted(np.array([1, 1, -1], dtype))


def test_indices_that_are_not_there_are_not_taken_apart():
    for call in (lambda: nnp.unravel_index(-1, (2, 3)), lambda: nnp.unravel_index([0, 6], (2, 3))):
        with pytest.raises(OutOfBoundsError, match="unravel_index: index -?[16] is out of range for size 6"):
            call()
    with pytest.raises(OutOfBoundsError, match="ravel_multi_index: index -1 is out of range for size 2"):
        nnp.ravel_multi_index(([-1], [0]), (2, 3))


@pytest.mark.parametrize(
    "call",
    [
        lambda x: nnp.bincount(x, length=-1),
        lambda x: nnp.bincount(x, minlength=-1),
        lambda x: nnp.nonzero(x, size=-1),
        lambda x: nnp.unique(x, size=-1),
        lambda x: nnp.vander(x, -1),
        lambda x: nnp.fft.fft(x, -1),
        lambda x: nnp.linspace(0, 1, -1),
    ],
)
def test_sizes_below_zero_are_refused(call):
    with pytest.raises(ArgumentError, match="-1"):
        call(np.array([1, 2, 3]))


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
@pytest.mark.parametrize("run", [lambda f: f, nnc.compile])
def test_bincount_counts_integers_alone(dtype, run):
    with pytest.raises(nnc.errors.DTypeError, match="bincount"):
        run(lambda x: nnp.bincount(x, length=3))(np.ones(2, dtype))
    with pytest.raises(nnc.errors.DTypeError, match="bincount"):
        nnp.bincount(np.ones(2, dtype))
