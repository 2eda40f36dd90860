from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import nnc
import nnc.numpy as nnp
from nnc.errors import ArgumentError, ArgumentTypeError, DTypeError, ShapeError

RNG = np.random.default_rng(1)
X = RNG.normal(size=(3, 4, 2))
N = RNG.integers(-3, 4, (3, 4, 2))
B = RNG.random((3, 4, 2)) < 0.5
MASK = RNG.random((3, 4, 2)) < 0.7
NAMES = ["sum", "prod", "mean", "var", "std", "max", "min", "any", "all"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("axis", [None, 0, -1, (0, 2), ()])
def test_a_reduction_agrees_with_numpy(name, axis, same):
    for x in (X, N, B):
        for keepdims in (False, True):
            want = getattr(np, name)(x, axis=axis, keepdims=keepdims)
            same(getattr(nnp, name)(x, axis=axis, keepdims=keepdims), want, 1e-10)


@pytest.mark.parametrize("name", ["sum", "prod", "mean", "std", "any", "all"])
def test_where_says_which_elements_count(name, same):
    same(getattr(nnp, name)(X, axis=1, where=MASK), getattr(np, name)(X, axis=1, where=MASK), 1e-10)


@pytest.mark.parametrize("name", ["sum", "prod", "max", "min"])
def test_initial_joins_in(name, same):
    same(getattr(nnp, name)(X, axis=1, initial=0.25), getattr(np, name)(X, axis=1, initial=0.25), 1e-10)
    same(getattr(nnp, name)(X, 1, initial=0.25, where=MASK), getattr(np, name)(X, 1, initial=0.25, where=MASK), 1e-10)
    same(getattr(nnp, name)(X[:, :0], 1, initial=2), getattr(np, name)(X[:, :0], 1, initial=2))


def test_sums_of_small_integers_are_64_bits_wide():
    assert nnp.sum(np.ones(3, np.int8)).dtype == nnp.int64
    assert nnp.prod(np.ones(3, np.uint8)).dtype == nnp.uint64
    assert nnp.cumsum(np.ones(3, np.bool_)).dtype == nnp.int64
    assert nnp.sum(np.ones(3, np.int8), dtype="int16").dtype == nnp.int16
    assert int(nnp.sum(np.full(300, 100, np.int8))) == 30000


def test_means_of_half_precision_do_not_overflow():
    x = np.full(100, 60000, np.float16)
    assert nnp.mean(x).dtype == nnp.float16
    assert float(nnp.mean(x)) == 60000
    assert float(nnp.var(x)) == 0


def test_variance_is_computed_from_centred_values():
    x = np.asarray([1e8, 1e8 + 1, 1e8 + 2])
    assert abs(float(nnp.var(x)) - 2 / 3) < 1e-12


def test_ddof_and_correction_estimate_the_population(same):
    same(nnp.var(X, 0, ddof=1), np.var(X, 0, ddof=1))
    same(nnp.std(X, 0, correction=1), np.std(X, 0, ddof=1))
    same(nnp.var(X + 1j * X[::-1], 0), np.var(X + 1j * X[::-1], 0))
    assert np.isnan(np.asarray(nnp.var(np.ones(1), ddof=1)))


def test_empty_sums_are_neutral_and_empty_means_are_nan(same):
    empty = np.zeros((0, 3))
    same(nnp.sum(empty, 0), np.zeros(3))
    same(nnp.prod(empty, 0), np.ones(3))
    same(nnp.all(empty, 0), np.ones(3, bool))
    assert np.isnan(np.asarray(nnp.mean(empty, 0))).all()
    same(nnp.sum(empty, 1), np.zeros(0))


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_arg_extremes_agree_with_numpy(name, same):
    for x in (X, N, B):
        for axis in (None, 0, -1):
            for keepdims in (False, True):
                want = getattr(np, name)(x, axis=axis, keepdims=keepdims)
                same(getattr(nnp, name)(x, axis=axis, keepdims=keepdims), want)


@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
def test_running_sums_and_products_agree_with_numpy(name, same):
    for x in (X, N, B):
        for axis in (None, 0, -1):
            same(getattr(nnp, name)(x, axis), getattr(np, name)(x, axis), 1e-10)
    same(nnp.cumulative_sum(X, axis=1, include_initial=True), np.cumulative_sum(X, axis=1, include_initial=True))
    same(nnp.cumulative_prod(X[:, 0, 0], include_initial=True), np.cumulative_prod(X[:, 0, 0], include_initial=True))


def test_running_extremes_agree_with_numpy(same):
    same(nnp.cummax(X, 1), np.maximum.accumulate(X, 1))
    same(nnp.cummin(N), np.minimum.accumulate(N.ravel()))


def test_differences_counts_and_ranges_agree_with_numpy(same):
    same(nnp.diff(X, axis=0), np.diff(X, axis=0))
    same(nnp.diff(N, 2, 1), np.diff(N, 2, 1))
    same(nnp.diff(B), np.diff(B))
    same(nnp.diff(np.zeros((2, 0))), np.diff(np.zeros((2, 0))))
    same(nnp.count_nonzero(N, 1), np.count_nonzero(N, 1))
    same(nnp.ptp(X, 1), np.ptp(X, 1))


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: nnp.sum(X, axis=3), ShapeError, "sum: axis 3 is out of range"),
        (lambda: nnp.sum(X, axis=(0, 0)), ShapeError, "sum: axes .* twice"),
        (lambda: nnp.max(X[:0], axis=0), ShapeError, "max: it has no value over an axis of size 0"),
        (lambda: nnp.argmin(X[:0]), ShapeError, "argmin: there is no element"),
        (lambda: nnp.max(X, where=MASK), ArgumentError, "max: where= may leave no element"),
        (lambda: nnp.mean(X, axis="rows"), ArgumentTypeError, "mean: axis is 'rows'"),
        (lambda: nnp.max(X + 1j), DTypeError, "max: x must be"),
        (lambda: nnp.sum(X, dtype="float128x"), DTypeError, "sum: "),
        (lambda: nnp.cumulative_sum(X), ArgumentError, "cumulative_sum: axis must be given"),
        (lambda: nnp.sum(X, dim=0), ArgumentTypeError, "(?s)sum: it has no argument 'dim'.*Fix: write axis="),
        (
            lambda: nnp.asarray(X).sum(0, keepdim=True),
            ArgumentTypeError,
            "(?s)sum: it has no argument 'keepdim'.*keepdims=",
        ),
        (lambda: nnp.sum(X, out=X), ArgumentTypeError, "(?s)sum: it has no argument 'out'.*immutable"),
        (lambda: nnp.diff(X, n=-1), ArgumentError, "diff: n is -1"),
    ],
)
def test_a_mistake_is_answered_with_the_functions_name(call, kind, message):
    with pytest.raises(kind, match=message):
        call()


@given(
    hnp.arrays(np.float64, hnp.array_shapes(min_dims=1, max_dims=3, max_side=4), elements=st.floats(-100, 100)),
    st.data(),
)
def test_sum_and_extremes_agree_with_numpy_for_any_axes(x, data):
    axes = tuple(data.draw(st.sets(st.integers(0, x.ndim - 1))))
    np.testing.assert_allclose(nnp.sum(x, axes), np.sum(x, axes), atol=1e-10)
    assert np.array_equal(nnp.max(x, axes), np.max(x, axes))


@pytest.mark.parametrize(("name", "sign"), [("cummax", 1.0), ("cummin", -1.0)])
def test_the_first_of_equal_elements_holds_the_record(name, sign):
    x = sign * np.array([1.0, 1.0, 0.5, 2.0, 2.0, 2.0, 1.0])
    gradient = nnc.grad(lambda x: getattr(nnp, name)(x).sum())
    for run in (gradient, nnc.compile(gradient)):
        np.testing.assert_array_equal(run(x), [3, 0, 0, 4, 0, 0, 0])


NEGATIVE_ZEROS = (
    lambda x: nnp.sum(x), lambda x: nnp.mean(x), lambda x: nnp.sum(x, axis=0), lambda x: nnp.sum(x, axis=1, keepdims=True),
    lambda x: nnp.mean(x, axis=0), lambda x: nnp.sum(-nnp.abs(x), axis=1), lambda x: nnp.sum(-nnp.abs(x)),
    lambda x: nnp.sum(nnp.broadcast_to(x, (3, *x.shape)), axis=0), lambda x: x.sum(0).sum(0), lambda x: nnp.nansum(x),
    lambda x: nnp.sum(x[None, None], axis=(0, 1)) if x.size else nnp.sum(x), lambda x: nnp.average(x, axis=0),
)  # fmt: skip


@pytest.mark.parametrize("reduce", NEGATIVE_ZEROS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "complex64"])
@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (5, 1), (3, 40), (0, 2)])
@pytest.mark.filterwarnings("ignore:.*was traced and called only once")
def test_sums_of_negative_zeros_are_zero(reduce, dtype, shape):
    if 0 in shape and reduce not in NEGATIVE_ZEROS[:1] + NEGATIVE_ZEROS[2:4] + NEGATIVE_ZEROS[8:10]:
        return
    x = nnp.full(shape, -0.0, dtype) if dtype != "complex64" else nnp.full(shape, complex(-0.0, -0.0), dtype)
    for run in (reduce, nnc.compile(reduce)):
        total = np.asarray(run(x)).astype("complex64")
        assert not np.signbit([total.real, total.imag]).any()
        assert not total.any()
        if 0 not in shape and dtype == "float32":
            assert not np.signbit([np.sum(np.asarray(x)), np.mean(np.asarray(x))]).any()


@pytest.mark.parametrize(
    ("running", "x", "want"),
    [
        (nnp.cummax, [1.0, np.nan, 3.0], [1.0, 110.0, 0.0]),
        (nnp.cummin, [3.0, np.nan, 1.0], [1.0, 110.0, 0.0]),
        (nnp.cummax, [np.nan, 1.0, np.nan], [111.0, 0.0, 0.0]),
        (nnp.cummin, [1.0, 1.0, np.nan], [11.0, 0.0, 100.0]),
        (nnp.cummax, [np.inf, np.nan, np.inf], [1.0, 110.0, 0.0]),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.filterwarnings("ignore:.*was traced and called only once")
def test_cotangents_of_running_extremes_go_to_the_nan_that_was_chosen(running, x, want, dtype):
    weights = nnp.asarray([1.0, 10.0, 100.0], dtype)
    slope = nnc.grad(lambda x: nnp.sum(running(x) * weights))
    for run in (slope, nnc.compile(slope)):
        np.testing.assert_array_equal(np.asarray(run(nnp.asarray(x, dtype))).astype(float), want)
    _, tangent = nnc.jvp(running, (nnp.asarray(x, dtype),), (nnp.asarray([1.0, 10.0, 100.0], dtype),))
    chosen = [int(np.argmax(np.isnan(x[: i + 1]))) if np.isnan(x[: i + 1]).any() else 0 for i in range(3)]
    np.testing.assert_array_equal(np.asarray(tangent).astype(float), np.array([1.0, 10.0, 100.0])[chosen])
