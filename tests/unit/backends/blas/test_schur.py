"""LU and Schur decompositions and Sylvester's equation in compiled code, for any layout of the operands."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg

import nnc
from nnc.backends.blas import schur  # noqa: F401  (adds the kernels)
from nnc.graph import command, reference
from tests.unit.backends.blas.test_lapack import layouts, run, with_lapack

TOLERANCE = {"float32": 3e-4, "float64": 1e-11}
shapes = pytest.mark.parametrize("shape", [(1, 1), (5, 5), (3, 4, 4), (2, 0, 3), (30, 30), (2, 4, 7), (7, 4)])
dtypes = pytest.mark.parametrize("dtype", ["float32", "float64"])


@with_lapack
@dtypes
@shapes
def test_triangular_factors_and_exchanges_are_those_of_the_reference(shape: tuple[int, ...], dtype: str) -> None:
    x = np.random.default_rng(0).normal(size=shape).astype(dtype)
    for y in layouts(x)[:4] if x.size else []:
        got, want = run("lu", "blas", [y]), reference[command("lu")](y)
        np.testing.assert_array_equal(got[1], want[1])
        np.testing.assert_array_equal(got[2], want[2])
        np.testing.assert_allclose(got[0], want[0], atol=TOLERANCE[dtype])


@with_lapack
@dtypes
@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (5, 5), (3, 4, 4), (30, 30)])
def test_schur_factors_make_up_the_matrix_in_compiled_code_and_in_the_reference(
    shape: tuple[int, ...], dtype: str
) -> None:
    x = np.random.default_rng(1).normal(size=shape).astype(dtype)
    for y in layouts(x):
        for t, z in (run("schur", "blas", [y]), reference[command("schur")](y)):
            np.testing.assert_allclose(z @ t @ z.swapaxes(-1, -2), y, atol=TOLERANCE[dtype])
            np.testing.assert_allclose(z @ z.swapaxes(-1, -2) - np.eye(shape[-1]), 0 * y, atol=TOLERANCE[dtype])
            assert not np.tril(t, -2).any()


MATRICES = {
    "a cycle": np.eye(5)[[1, 2, 3, 4, 0]],
    "zeros": np.zeros((3, 3)),
    "a Jordan block": np.eye(6) * 2 + np.eye(6, k=1),
    "rank one": np.ones((30, 30)),
    "sizes apart": np.diag([1e10, 1, 1e-10]) + np.triu(np.ones((3, 3)), 1),
    "equal pairs": np.kron(np.eye(2), [[1.0, 2.0], [-2.0, 1.0]]) + np.triu(np.ones((4, 4)), 2),
    "tiny": np.full((4, 4), 1e-300) + np.diag([1e-300, 3e-300, 0, -1e-300]),
    "huge": np.full((4, 4), 1e300) - np.diag([1e300, 3e300, 0, -1e300]),
    "symmetric": np.add.outer(np.arange(6.0), np.arange(6.0)),
}


@pytest.mark.parametrize("name", MATRICES)
@pytest.mark.parametrize("factor", [1, 1 + 0.5j])
def test_the_reference_decomposes_matrices_that_are_hard_for_shifts(name: str, factor: complex) -> None:
    x = MATRICES[name] * factor
    t, z = reference[command("schur")](x)
    assert not np.tril(t, -1 if np.iscomplexobj(x) else -2).any()
    np.testing.assert_allclose(z @ t @ z.conj().T, x, atol=3e-14 * np.abs(x).max())
    np.testing.assert_allclose(z @ z.conj().T, np.eye(len(x)), atol=3e-14)


def test_blocks_of_two_rows_have_equal_diagonals_and_no_real_eigenvalues() -> None:
    for n in (2, 3, 8, 15):
        t, _ = reference[command("schur")](np.random.default_rng(n).normal(size=(n, n)))
        for i in np.flatnonzero(np.diagonal(t, -1)):
            assert t[i, i] == t[i + 1, i + 1] and t[i, i + 1] * t[i + 1, i] < 0
        assert not (np.diagonal(t, -1)[1:] * np.diagonal(t, -1)[:-1]).any()  # blocks do not overlap


@pytest.mark.parametrize("sign", [1, -1])
def test_a_block_with_equal_diagonal_stays_as_it_is_as_with_lapack(sign: int) -> None:
    x = np.array([[2.0, 1.0], [-3.0, 2.0]])[::sign, ::sign]
    for t, z in (reference[command("schur")](x), scipy.linalg.schur(x)):
        np.testing.assert_array_equal(t, x)
        np.testing.assert_array_equal(z, np.eye(2))


@with_lapack
@dtypes
@pytest.mark.parametrize("shape", [(1, 1), (5, 5), (3, 4, 4), (2, 3, 4, 4), (20, 20)])
def test_sylvesters_equation_holds_in_any_layout(shape: tuple[int, ...], dtype: str) -> None:
    rng = np.random.default_rng(2)
    x = (rng.normal(size=shape) + 9 * np.eye(shape[-1])).astype(dtype)
    b, c = (rng.normal(size=(*shape[:-2], n, 3)).astype(dtype) for n in (3, shape[-1]))
    for y in layouts(x)[:4]:
        for found in (run("sylvester", "blas", [y, b, c])[0], reference[command("sylvester")](y, b, c)):
            np.testing.assert_allclose(y @ found + found @ b, c, atol=TOLERANCE[dtype])


@with_lapack
def test_common_eigenvalues_make_all_numbers_nan_as_in_the_reference() -> None:
    a = np.array([[1.0, 2.0], [0.0, 3.0]])
    assert np.isnan(run("sylvester", "blas", [a, -a, a])[0]).all()
    assert np.isnan(reference[command("sylvester")](a, -a, a)).all()


@pytest.mark.parametrize("name", ["schur", "sylvester"])
def test_numbers_that_are_not_finite_are_refused_with_the_user_s_line(name: str) -> None:
    x = np.array([[1.0, np.inf], [0.0, 1.0]])
    operands = (x,) if name == "schur" else (x, np.eye(2), np.eye(2))
    with pytest.raises(nnc.errors.LinAlgError, match="infinite or NaN"):
        nnc.compile(lambda *xs: command(name)(*xs))(*operands)
