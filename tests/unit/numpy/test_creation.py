from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nnc
import nnc.numpy as nnp
from nnc.errors import ArgumentError, ArgumentTypeError, DTypeError, ShapeError, TraceError, UnsupportedError
from nnc.trace.core.specs import make_graph


def test_new_arrays_have_the_default_dtypes():
    assert nnp.zeros(2).dtype == nnp.ones((1, 2)).dtype == nnp.full(2, 0.5).dtype == nnp.eye(2).dtype == nnp.float32
    assert nnp.arange(3).dtype == nnp.full(2, 1).dtype == nnp.asarray([1, 2]).dtype == nnp.int64
    assert nnp.arange(3.0).dtype == nnp.linspace(0, 1).dtype == nnp.asarray([0.5]).dtype == nnp.float32
    assert nnp.full(2, True).dtype == nnp.bool_
    assert nnp.asarray(np.ones(2)).dtype == nnp.float64
    assert nnp.asarray([1j]).dtype == nnp.complex64


@pytest.mark.parametrize("name", ["zeros", "ones", "empty"])
def test_filled_arrays_have_the_shape_and_dtype_asked_for(name):
    for shape in (3, (2, 3), (), [2, 0]):
        x = getattr(nnp, name)(shape, "int16")
        assert x.shape == np.zeros(shape).shape
        assert x.dtype == nnp.int16
    assert nnp.ones((2, 2)).tolist() == [[1, 1], [1, 1]]


def test_like_functions_copy_shape_and_dtype():
    x = np.ones((2, 3), np.int8)
    assert (
        nnp.zeros_like(x).dtype
        == nnp.ones_like(x).dtype
        == nnp.full_like(x, 7).dtype
        == nnp.empty_like(x).dtype
        == nnp.int8
    )
    assert nnp.full_like(x, 7).tolist() == [[7] * 3] * 2
    assert nnp.zeros_like(x, "float64", shape=4).shape == (4,)


def test_full_broadcasts_an_array(same):
    same(nnp.full((2, 3), np.arange(3)), np.full((2, 3), np.arange(3)))


RANGES = [(5,), (2, 5), (5, 2), (1, 10, 3), (10, 1, -3), (0.0, 1.0, 0.25), (1.5,), (0, 5, 2.5), (3, 3)]


@pytest.mark.parametrize("args", RANGES)
def test_arange_agrees_with_numpy(args, same):
    same(nnp.arange(*args), np.arange(*args))
    same(nnp.arange(*args, dtype="float64"), np.arange(*args, dtype="float64"))
    same(nnp.arange(*args, dtype="int32"), np.arange(*args).astype("int32"))


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((0, 1), {}),
        ((0, 1, 5), {}),
        ((2.0, 3.0, 4), {"endpoint": False}),
        ((5, 1, 1), {}),
        ((0, 1, 0), {}),
        ((0, 10, 11), {"dtype": "int64"}),
        ((np.zeros(3), np.arange(3.0), 4), {}),
        ((np.zeros(3), 1.0, 4), {"axis": 1}),
        ((0, 1j, 3), {}),
        ((0, 1, 5), {"retstep": True}),
    ],
)
def test_linspace_agrees_with_numpy(args, kwargs, same):
    same(nnp.linspace(*args, **kwargs), np.linspace(*args, **kwargs))


@given(st.floats(-1e3, 1e3), st.floats(-1e3, 1e3), st.integers(2, 50))
def test_linspace_hits_both_ends(start, stop, num):
    x = np.asarray(nnp.linspace(start, stop, num))
    assert x[0] == np.float32(start)
    assert x[-1] == np.float32(stop)


def test_logarithmic_ranges_agree_with_numpy(same):
    same(nnp.logspace(0, 3, 7), np.logspace(0, 3, 7))
    same(nnp.logspace(0, 3, 4, base=2.0, endpoint=False), np.logspace(0, 3, 4, base=2.0, endpoint=False))
    same(nnp.geomspace(1, 1000, 4), np.geomspace(1, 1000, 4))
    same(
        nnp.geomspace(np.asarray([-1.0, 2.0]), np.asarray([-8.0, 4.0]), 3, axis=1),
        np.geomspace([-1.0, 2.0], [-8.0, 4.0], 3, axis=1),
    )


M = np.arange(24.0).reshape(2, 3, 4)


@pytest.mark.parametrize("k", [-5, -1, 0, 2, 7])
def test_matrices_and_bands_agree_with_numpy(k, same):
    same(nnp.eye(3, 4, k=k, dtype="float64"), np.eye(3, 4, k=k))
    same(nnp.tri(3, 4, k, dtype="float64"), np.tri(3, 4, k))
    same(nnp.tril(M, k=k), np.tril(M, k))
    same(nnp.triu(M, k=k), np.triu(M, k))
    same(nnp.diag(np.arange(3), k), np.diag(np.arange(3), k))
    same(nnp.diag(M[0], k), np.diag(M[0], k))
    same(nnp.diagflat(M[0, :2], k), np.diagflat(M[0, :2], k))
    same(nnp.tril_indices(3, k, 4), np.tril_indices(3, k, 4))
    same(nnp.triu_indices(3, k), np.triu_indices(3, k))


def test_other_matrices_agree_with_numpy(same):
    same(nnp.identity(3, "float64"), np.identity(3))
    same(nnp.vander(np.arange(1.0, 4)), np.vander(np.arange(1.0, 4)))
    same(nnp.vander(np.arange(1, 4), 2, increasing=True), np.vander(np.arange(1, 4), 2, increasing=True))
    same(nnp.triu(M > 3), np.triu(M > 3))


@pytest.mark.parametrize("indexing", ["xy", "ij"])
@pytest.mark.parametrize("sparse", [False, True])
def test_meshgrid_agrees_with_numpy(indexing, sparse, same):
    vectors = [np.arange(2), np.arange(3.0), np.arange(4)]
    for n in range(4):
        same(
            nnp.meshgrid(*vectors[:n], indexing=indexing, sparse=sparse),
            np.meshgrid(*vectors[:n], indexing=indexing, sparse=sparse),
        )


def test_indices_name_every_element(same):
    same(nnp.indices((2, 3)), np.indices((2, 3)))
    same(nnp.indices((2, 3), sparse=True), np.indices((2, 3), sparse=True))


def test_conversions_and_copies_keep_values(same):
    x = nnp.asarray(np.arange(3.0))
    assert nnp.astype(x, "int32").tolist() == [0, 1, 2]
    assert x.astype(nnp.float16).dtype == nnp.float16
    assert nnp.array([1, 2], ndmin=3).shape == (1, 1, 2)
    assert nnp.from_dlpack(np.arange(3)).tolist() == [0, 1, 2]
    same(nnp.copy(x), np.arange(3.0))


def test_array_copies_and_asarray_shares():
    x = np.zeros(2)
    copied, shared = nnp.array(x), nnp.asarray(x)
    x[0] = 1
    assert copied.tolist() == [0, 0]
    assert shared.tolist() == [1, 0]


def test_a_traced_size_raises_with_the_remedy():
    with pytest.raises(TraceError, match="static_argnums"):
        make_graph(lambda n: nnp.arange(n))(3)


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: nnp.zeros(-1), ArgumentError, "zeros: shape .* negative"),
        (lambda: nnp.zeros(1.5), ArgumentTypeError, "zeros: shape is 1.5"),
        (lambda: nnp.zeros(2, dtype="str"), DTypeError, "zeros: "),
        (lambda: nnp.zeros(2, device="gpu:9"), UnsupportedError, "zeros: there is no device"),
        (lambda: nnp.arange(0, 1, 0), ArgumentError, "arange: step is 0"),
        (lambda: nnp.arange(np.ones(2)), ArgumentTypeError, "arange: start must be a number"),
        (lambda: nnp.linspace(0, 1, -1), ArgumentError, "linspace: num is -1"),
        (lambda: nnp.full((2,), np.ones(3)), ShapeError, "does not broadcast"),
        (lambda: nnp.full(2, 300, "uint8"), DTypeError, "full: the number 300 does not fit"),
        (lambda: nnp.diag(np.ones((2, 2, 2))), ArgumentError, "diag: v has 3 axes"),
        (lambda: nnp.tril(np.ones(2)), ArgumentError, "tril: a triangle needs a matrix"),
        (lambda: nnp.meshgrid(np.ones((2, 2))), ArgumentError, "meshgrid: array 0 is no vector"),
        (lambda: nnp.meshgrid(np.ones(2), indexing="yx"), ArgumentError, "meshgrid: indexing"),
        (lambda: nnp.from_dlpack([1]), ArgumentTypeError, "from_dlpack: list"),
        (lambda: nnp.zeros(size=3), ArgumentTypeError, "(?s)zeros: it has no argument 'size'.*shape="),
        (lambda: nnp.arange(None), ArgumentTypeError, "arange: start is None"),
        (lambda: nnp.vander(np.ones((2, 2))), ArgumentError, "vander: x is no vector"),
        (lambda: nnp.tril_indices(3, "a"), ArgumentTypeError, "tril_indices: k is 'a'"),
    ],
)
def test_a_mistake_is_answered_with_the_functions_name(call, kind, message):
    with pytest.raises(kind, match=message):
        call()


def test_buffers_and_iterators_become_arrays(same):
    raw = np.arange(6, dtype=np.int16).tobytes()
    same(nnp.frombuffer(raw, "int16", count=2, offset=4), np.frombuffer(raw, "int16", count=2, offset=4))
    assert nnp.frombuffer(bytes(8)).dtype == nnp.float32
    same(nnp.fromiter((n * n for n in range(4)), "int32"), np.arange(4, dtype="int32") ** 2)
    same(nnp.fromiter(iter([1.5, 2.5, 3.5]), "float64", 2), np.array([1.5, 2.5]))


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
@pytest.mark.parametrize("endpoint", [True, False])
def test_linspace_has_every_bit_of_numpys(dtype, endpoint):
    rng = np.random.default_rng(0)
    ends = [(-1.0, 1.0), (0.1, 0.7), (-3.3, 1e6), (2.0, 2.0), (1.0, -0.3), (5e-324, 1e-323)]
    pairs = [tuple(np.asarray(x, dtype) for x in pair) for pair in ends]
    pairs += [tuple(rng.normal(size=(2, 3)).astype(dtype)), (np.ones(3, dtype), np.array([1.0, 1.5, -1.0], dtype))]
    for (start, stop), num in itertools.product(pairs, (0, 1, 2, 3, 10, 49)):
        wanted = np.linspace(start, stop, num, endpoint)
        function = lambda a, b, num=num: nnp.linspace(a, b, num, endpoint)
        for got in (function(start, stop), nnc.compile(function)(start, stop)):
            assert np.asarray(got).tobytes() == wanted.tobytes(), (start, stop, num)


def test_linspace_of_numbers_is_numpys_in_the_dtype_that_is_asked_for():
    for start, stop, num in ((-1.0, 1.0, 41), (0, 1, 11), (-0.7, 30, 50), (3, -4, 8)):
        for dtype in ("float32", "float64"):
            np.testing.assert_array_equal(
                nnp.linspace(start, stop, num, dtype=dtype), np.linspace(start, stop, num, dtype=dtype)
            )
    np.testing.assert_array_equal(nnp.linspace(-7.5, 30.1, 9, dtype="int32"), np.linspace(-7.5, 30.1, 9, dtype="int32"))
    assert np.isnan(nnp.linspace(0.0, 1.0, 1, retstep=True)[1])  # of one number there is no distance


def test_both_ends_of_geomspace_are_exact():
    values = nnp.geomspace(1.0, 1000.0, 4, dtype="float64")
    assert (values[0], values[-1]) == (1.0, 1000.0)
    np.testing.assert_allclose(values, np.geomspace(1.0, 1000.0, 4), rtol=1e-15)
