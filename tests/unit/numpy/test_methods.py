from __future__ import annotations

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.errors import ArgumentTypeError, TraceError

X = np.random.default_rng(7).normal(size=(2, 3, 2))

CALLS = [
    ("sum", (1,)),
    ("prod", ()),
    ("mean", ((0, 1),)),
    ("var", ()),
    ("std", (0,)),
    ("max", (1,)),
    ("min", ()),
    ("any", ()),
    ("all", (1,)),
    ("argmax", (2,)),
    ("argmin", ()),
    ("cumsum", (0,)),
    ("cumprod", ()),
    ("reshape", (3, -1)),
    ("reshape", ((4, 3),)),
    ("reshape", (-1,)),
    ("transpose", ()),
    ("transpose", (2, 0, 1)),
    ("transpose", ((1, 0, 2),)),
    ("astype", ("int32",)),
    ("flatten", ()),
    ("ravel", ()),
    ("swapaxes", (0, 1)),
    ("take", ([0, 1], 1)),
    ("clip", (-0.5, 0.5)),
    ("round", (1,)),
    ("conj", ()),
    ("repeat", (2, 1)),
    ("argsort", (1,)),
    ("copy", ()),
    ("trace", ()),
    ("diagonal", (1,)),
    ("nonzero", ()),
]


@pytest.mark.parametrize(("name", "args"), CALLS)
def test_a_method_of_arrays_is_numpys(name, args, same):
    same(getattr(nnp.asarray(X), name)(*args), getattr(X, name)(*args))


def test_methods_that_differ_from_numpys_in_kind(same):
    x = nnp.asarray(X)
    same(x.sort(1), np.sort(X, 1))
    same(x[0].dot(x[0].T), X[0].dot(X[0].T))
    same(x[:1].squeeze(0), X[0])
    same(x[0, :, 0].sort().searchsorted(0.0), np.searchsorted(np.sort(X[0, :, 0]), 0.0))
    same(x.sum(axis=0, keepdims=True), X.sum(axis=0, keepdims=True))


def test_tracers_have_the_methods_of_arrays():
    graph = nnc.make_graph(lambda x: x.reshape(-1, 2).mean(0).clip(min=0).sum())(X)
    np.testing.assert_allclose(np.asarray(graph.evaluate([X])[0]), X.reshape(-1, 2).mean(0).clip(min=0).sum())
    with pytest.raises(TraceError):
        nnc.make_graph(lambda x: x.nonzero())(X)


def test_torch_spellings_name_numpys():
    with pytest.raises(ArgumentTypeError, match=r"(?s)mean: it has no argument 'dim'.*Fix: write axis="):
        nnp.asarray(X).mean(dim=1)


def test_the_namespace_of_arrays_is_nnc_numpy():
    assert nnp.asarray(X).__array_namespace__() is nnp


ARRAY_API = """
    abs acos acosh add all any arange argmax argmin argsort asarray asin asinh astype atan atan2 atanh bitwise_and
    bitwise_invert bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor broadcast_arrays broadcast_to can_cast ceil
    clip concat conj copysign cos cosh count_nonzero cumulative_prod cumulative_sum diff divide e empty empty_like equal exp
    expand_dims expm1 eye finfo flip floor floor_divide from_dlpack full full_like greater greater_equal hypot iinfo imag inf
    isdtype isfinite isinf isnan less less_equal linspace log log10 log1p log2 logaddexp logical_and logical_not logical_or
    logical_xor matmul matrix_transpose max maximum mean meshgrid min minimum moveaxis multiply nan negative newaxis nextafter
    nonzero not_equal ones ones_like permute_dims pi positive pow prod real reciprocal remainder repeat reshape result_type
    roll round searchsorted sign signbit sin sinh sort sqrt square squeeze stack std subtract sum take take_along_axis tan
    tanh tensordot tile tril triu trunc unique_all unique_counts unique_inverse unique_values unstack var vecdot where zeros
    zeros_like bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64 complex64 complex128
""".split()  # noqa: SIM905  (a list of words reads best as words)


def test_every_name_of_the_array_api_is_there():
    assert [name for name in ARRAY_API if not hasattr(nnp, name)] == []


def test_every_public_function_is_documented():
    assert [name for name in nnp.__all__ if callable(getattr(nnp, name)) and not getattr(nnp, name).__doc__] == []


def test_the_namespace_tells_its_dtypes_and_devices():
    info = nnp.__array_namespace_info__()
    assert info.default_dtypes()["real floating"] == nnp.float32
    assert set(info.dtypes(kind="real floating")) == {"float32", "float64"}  # the standard's
    assert info.default_device() in info.devices()
    assert info.capabilities()["max dimensions"] == 64


def test_methods_beyond_those_of_the_table(same):
    x, z = nnp.asarray(X), nnp.asarray(X + 1j)
    same(z.conjugate(), (X + 1j).conjugate())
    same(x.compress([True, False], 0), X.compress([True, False], 0))
    same(x.ptp(1), np.ptp(X, 1))
    assert x.tobytes() == X.tobytes()
    with pytest.raises(TraceError):
        nnc.compile(lambda x: x.tobytes())(X)


def test_products_of_matrices_with_vectors(same):
    m, v, z = X[0], X[0, 0], X[0] + 1j * X[1]
    same(nnp.matvec(X, v), X @ v)
    same(nnp.matvec(X, X[:, 0]), np.einsum("abc,ac->ab", X, X[:, 0]))
    same(nnp.vecmat(m[:, 0], m), m[:, 0] @ m)
    same(nnp.vecmat(z[:, 0], z), z[:, 0].conj() @ z)
    path, text = nnp.einsum_path("ij,jk,kl->il", m, m.T, m)
    assert path[0] == "einsum_path" and "il" in text
