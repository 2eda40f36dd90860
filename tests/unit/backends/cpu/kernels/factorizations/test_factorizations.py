"""Printed factorisations put the matrix together again within n · eps · norm, and decide as LAPACK does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.backends.blas.lapack import lapack
from nnc.backends.cpu.compiler.jit import compiler
from nnc.backends.factorizations import pays
from nnc.errors import LinAlgError
from nnc.graph import TensorSpec, command, find_kernel, infer_specs, reference
from nnc.graph.kernels import Kernel, kernels_for
from tests.figures import HERE

pytestmark = pytest.mark.skipif(compiler() is None, reason="there is no compiler")

SIZES = (1, 2, 3, 5, 17, 33, 64)
BATCHES: tuple[tuple[int, ...], ...] = ((), (1,), (7,), (3, 2))
DTYPES = ("float32", "float64")


def printed(name: str) -> Kernel:
    return next(k for k in kernels_for(command(name), HERE) if k.backend == "cpu")


def run(name: str, *inputs: np.ndarray, **params: Any) -> list[np.ndarray]:
    """The outputs of the printed kernel, from NaN in every output and in the workspace."""
    specs = tuple(TensorSpec(x.shape, x.dtype) for x in inputs)
    kernel = printed(name)
    assert kernel.supports(specs, params)
    outputs = [
        np.full(s.shape, -1 if s.dtype.kind == "i" else np.nan, s.dtype)
        for s in infer_specs(command(name), specs, params)
    ]
    nbytes = kernel.workspace(specs, params)
    kernel.run(list(inputs), [*outputs, *([np.full(nbytes, 255, np.uint8)] * (nbytes > 0))], params)
    return outputs


def adjoint(x: np.ndarray) -> np.ndarray:
    return x.swapaxes(-1, -2)


def norm(x: np.ndarray) -> np.ndarray:
    """The Frobenius norm of each matrix, without overflow, broadcast to the matrix."""
    x = x.astype(np.longdouble)
    return np.sqrt((x * x).sum((-1, -2), keepdims=True))


def close(x: np.ndarray, y: np.ndarray, scale: Any, n: int) -> bool:
    bound = 4 * (n + 2) * np.finfo(x.dtype).eps * scale
    return bool((abs(x.astype(np.longdouble) - y) <= bound).all())


def orthonormal(q: np.ndarray) -> bool:
    return close(adjoint(q) @ q, np.eye(q.shape[-1]), 1, q.shape[-2])


def ill(kind: str, shape: tuple[int, ...], dtype: str, seed: int) -> np.ndarray:
    """Matrices of one kind, named after its difficulty."""
    rng = np.random.default_rng(seed)
    m, n = shape[-2:]
    x, tiny, huge = rng.normal(size=shape), *((1e-150, 1e150) if dtype == "float64" else (1e-30, 1e30))
    if kind == "singular":
        x[..., -1] = x[..., 0]
    elif kind == "ill-conditioned":
        x = x * np.logspace(0, -12, n) @ rng.normal(size=(n, n)) if n > 1 else x
    elif kind == "near-equal":
        x = np.eye(m, n) + 1e-12 * x
    elif kind == "graded":
        x = x * np.logspace(0, -30, m)[:, None] * np.logspace(0, -5, n)
    elif kind == "zero":
        x = 0 * x
    elif kind == "of integers":
        x = rng.integers(-2, 3, size=shape).astype(float)
    elif kind == "mixed scales":
        x = x * np.where(rng.random(size=(*shape[:-2], 1, 1)) < 0.5, tiny, huge)
    return (x * {"tiny": tiny, "huge": huge}.get(kind, 1.0)).astype(dtype)


KINDS = (
    "random", "singular", "ill-conditioned", "near-equal", "graded", "zero", "of integers", "tiny", "huge", "mixed scales",
)  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("batch", BATCHES)
def test_symmetric_matrices_are_made_of_their_eigenvectors(batch: tuple[int, ...], n: int, dtype: str) -> None:
    for seed, kind in enumerate(KINDS):
        x = ill(kind, (*batch, n, n), dtype, seed)
        symmetric = 0.5 * x + 0.5 * adjoint(x)
        w, v = run("eigh", x)
        assert orthonormal(v), kind
        assert (np.diff(w, axis=-1) >= 0).all(), kind
        together = v.astype(np.longdouble) * w[..., None, :] @ adjoint(v)
        assert close(symmetric, together, norm(symmetric), n), kind


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("batch", [(), (9,)])
def test_eigenvectors_point_as_those_of_lapack(batch: tuple[int, ...], dtype: str) -> None:
    blas = next((k for k in kernels_for(command("eigh"), HERE) if k.backend == "blas"), None)
    if lapack() is None or blas is None:
        pytest.skip("NumPy brings no LAPACK that compiled code can call")
    for n in (1, 2, 3, 4, 6):
        x = np.random.default_rng(n).normal(size=(*batch, n, n)).astype(dtype)
        specs = (TensorSpec(x.shape, x.dtype),)
        w, v = np.empty(x.shape[:-1], dtype), np.empty(x.shape, dtype)
        blas.run([x], [w, v, np.empty(blas.workspace(specs, {}), np.uint8)], {})
        assert ((run("eigh", x)[1] * v).sum(-2) > 0.99).all(), n


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(n, n) for n in SIZES] + [(7, 4), (4, 7), (33, 5), (1, 9), (9, 1)])
@pytest.mark.parametrize("batch", BATCHES)
def test_orthogonal_and_triangular_factors_make_up_the_matrix(
    batch: tuple[int, ...], shape: tuple[int, int], dtype: str
) -> None:
    for seed, kind in enumerate(KINDS):
        x = ill(kind, (*batch, *shape), dtype, seed)
        for full in (False, True):
            q, r = run("qr", x, full_matrices=full)
            assert orthonormal(q), kind
            assert (r == np.triu(r)).all(), kind
            columns = np.sqrt((x.astype(np.longdouble) ** 2).sum(-2, keepdims=True))
            assert close(x, q.astype(np.longdouble) @ r, columns, max(shape)), kind  # column by column
        if kind in ("random", "graded"):
            wanted = np.sign(np.diagonal(np.linalg.qr(x)[1], 0, -2, -1))
            np.testing.assert_array_equal(np.sign(np.diagonal(r, 0, -2, -1)), wanted)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(n, n) for n in SIZES] + [(7, 4), (4, 7), (1, 9), (9, 1)])
@pytest.mark.parametrize("batch", BATCHES)
def test_triangles_with_pivots_make_up_the_matrix(batch: tuple[int, ...], shape: tuple[int, int], dtype: str) -> None:
    m, k = shape[0], min(shape)
    for seed, kind in enumerate(KINDS):
        x = ill(kind, (*batch, *shape), dtype, seed)
        packed, pivots, rows = run("lu", x)
        lower = np.tril(packed[..., :k], -1) + np.eye(m, k, dtype=dtype)
        assert (abs(lower) <= 1).all(), kind
        moved = np.take_along_axis(x, rows[..., None].astype(np.int64), -2)
        upper = np.triu(packed[..., :k, :]).astype(np.longdouble)
        size = (abs(lower) @ abs(upper)).max((-1, -2), keepdims=True)
        assert close(moved, lower.astype(np.longdouble) @ upper, size, k), kind
        for each, order in zip(pivots.reshape(-1, k), rows.reshape(-1, m), strict=True):
            expected = np.arange(m)
            for j, p in enumerate(each):
                assert j <= p < m
                expected[[j, p]] = expected[[p, j]]
            np.testing.assert_array_equal(order, expected)
        if kind == "random":
            np.testing.assert_array_equal(pivots, reference[command("lu")](x)[1])


def test_the_first_of_equal_candidates_is_the_pivot_and_nan_comes_before_numbers() -> None:
    x = np.array([[1.0, 2.0], [-3.0, 1.0], [3.0, 5.0]])
    for batch in ((), (5,)):
        same = np.broadcast_to(x, (*batch, 3, 2)).copy()
        assert (run("lu", same)[1][..., 0] == 1).all()
        same[..., 2, 0] = np.nan
        assert (run("lu", same)[1][..., 0] == 2).all()
        np.testing.assert_array_equal(run("lu", same)[1], reference[command("lu")](same)[1])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 2, 3, 5, 17, 33])
@pytest.mark.parametrize("batch", BATCHES)
def test_determinants_are_products_of_pivots_with_their_sign(batch: tuple[int, ...], n: int, dtype: str) -> None:
    x = np.random.default_rng(n).normal(size=(*batch, n, n)).astype(dtype)
    sign, log = np.linalg.slogdet(x.astype(np.float64))
    got = run("slogdet", x)
    tolerance = 1e5 * float(np.finfo(dtype).eps)
    np.testing.assert_array_equal(got[0], sign)
    np.testing.assert_allclose(got[1], log, tolerance, tolerance)
    np.testing.assert_allclose(run("det", x)[0], sign * np.exp(log), 10 * tolerance)


@pytest.mark.parametrize("batch", [(), (4,)])
def test_determinants_of_scales_that_cancel_do_not_overflow_on_the_way(batch: tuple[int, ...]) -> None:
    x = np.broadcast_to(np.diag([1e200, -1e200, 1e-200, 1e-200, 3.0]), (*batch, 5, 5)).copy()
    np.testing.assert_allclose(run("det", x)[0], -3.0, 1e-10)
    x[..., 4, 4] = 0
    assert (run("det", x)[0] == 0).all()
    sign, log = run("slogdet", x)
    assert (sign == 0).all() and (log == -np.inf).all()


@pytest.mark.parametrize("name", ["lu", "det", "slogdet", "qr"])
def test_nan_stays_in_its_own_matrix(name: str) -> None:
    x = np.random.default_rng(3).normal(size=(9, 4, 4))
    clean = run(name, x)
    bad = x.copy()
    bad[5, 2, 1] = np.nan
    for y, z in zip(run(name, bad), clean, strict=True):
        np.testing.assert_array_equal(np.delete(y, 5, 0), np.delete(z, 5, 0))
    assert any(np.isnan(y[5]).any() for y in run(name, bad))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("n", [1, 2, 3, 30, 40])
def test_eigenvalues_of_matrices_that_are_not_finite_are_refused(n: int, value: float) -> None:
    for batch in ((), (3,)):
        x = np.zeros((*batch, n, n)) + np.eye(n)
        x[..., n - 1, n - 1] = value
        for function in (nnp.linalg.eigh, nnc.compile(nnp.linalg.eigh)):
            with pytest.raises(LinAlgError, match="converge"):
                function(x)


@pytest.mark.parametrize("name", ["lu", "det", "slogdet", "qr", "eigh"])
def test_matrices_may_lie_anyhow(name: str) -> None:
    x = np.random.default_rng(8).normal(size=(2, 3, 5, 5))
    wanted = run(name, x)
    apart = np.zeros((2, 3, 5, 10))
    apart[..., ::2] = x
    for strided in (
        adjoint(adjoint(x).copy()),
        apart[..., ::2],
        x[::-1].copy()[::-1],
        x.transpose(1, 0, 2, 3).copy().transpose(1, 0, 2, 3),
    ):
        for y, z in zip(run(name, strided), wanted, strict=True):
            np.testing.assert_array_equal(y, z)


def test_small_matrices_are_printed_and_large_ones_left_to_lapack() -> None:
    small, large = (TensorSpec((n, n), "float64") for n in (8, 200))
    for name in ("lu", "det", "slogdet", "qr", "eigh"):
        found = [find_kernel(command(name), (spec,), {}) for spec in (small, large)]
        assert [k.backend for k in found if k is not None] == ["cpu", "blas" if lapack() is not None else "cpu"]
        assert pays(name, (small,)) and not pays(name, (large,))
        assert printed(name).supports((large,), {})


@pytest.mark.parametrize("name", ["lu", "det", "slogdet", "qr", "eigh"])
@pytest.mark.parametrize("shape", [(0, 0), (0, 4, 4), (3, 0, 0)])
def test_empty_batches_and_matrices_are_left_to_the_reference(name: str, shape: tuple[int, ...]) -> None:
    x = np.zeros(shape)
    assert find_kernel(command(name), (TensorSpec(shape, "float64"),), {}) is None
    wanted = reference[command(name)](x)
    got = nnc.compile(command(name))(x)
    shapes = [np.shape(y) for y in (wanted if isinstance(wanted, tuple) else (wanted,))]
    assert [np.shape(y) for y in (got if isinstance(got, tuple) else (got,))][: len(shapes)] == shapes
