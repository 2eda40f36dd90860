"""Factorisations and solvers in compiled code agree with the reference, and refuse the same operands."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.backends.blas import lapack
from nnc.backends.cpu.compiler.jit import compiler
from nnc.backends.cpu.kernels.products import triangular
from nnc.backends.factorizations import pays
from nnc.base.target import Target
from nnc.errors import LinAlgError
from nnc.graph import TensorSpec, command, reference
from nnc.graph.kernels import kernels_for
from nnc.lower.plan.stages import Step, View
from tests.figures import HERE, with_figures

with_lapack = pytest.mark.skipif(
    compiler() is None or lapack.lapack() is None, reason="NumPy brings no LAPACK that compiled code can call"
)
with_compiler = pytest.mark.skipif(compiler() is None, reason="there is no compiler")

TOLERANCE = {"float32": 3e-4, "float64": 1e-9}
SHAPES = {
    "cholesky": [(1, 1), (5, 5), (40, 40), (64, 64), (3, 7, 7), (2, 3, 4, 4), (131, 131)],
    "det": [(1, 1), (6, 6), (3, 5, 5)],
    "slogdet": [(1, 1), (6, 6), (3, 5, 5)],
    "eigh": [(1, 1), (5, 5), (33, 33), (2, 3, 6, 6)],
    "qr": [(1, 1), (7, 4), (4, 7), (3, 5, 5), (40, 33)],
    "svd": [(1, 1), (7, 4), (4, 7), (3, 5, 5), (40, 33)],
}
WHOLE = ("qr", "svd")  # commands with the parameter full_matrices


def view(x: np.ndarray) -> View:
    return View(0, TensorSpec(x.shape, x.dtype), 0, x.strides)


def run(name: str, backend: str, inputs: list[np.ndarray], machine: Target = HERE, **params: Any) -> list[np.ndarray]:
    """The outputs of a backend's compiled kernel, from NaN in every output and in the workspace."""
    specs = tuple(TensorSpec(x.shape, x.dtype) for x in inputs)
    found = next(k for k in kernels_for(command(name), machine) if k.backend == backend)
    assert found.supports(specs, params) or pays(name, specs)
    wanted = reference[command(name)](*inputs, **params)
    outputs = [
        np.full(y.shape, -1 if y.dtype.kind == "i" else np.nan, y.dtype)
        for y in (wanted if isinstance(wanted, tuple) else (wanted,))
    ]
    nbytes = found.workspace(specs, params)
    room = [np.full(nbytes, 255, np.uint8)] * (nbytes > 0)
    step = Step(command(name), tuple(map(view, inputs)), tuple(map(view, [*outputs, *room])), params)
    assert found.native is not None and found.native(step) is not None
    found.run(inputs, [*outputs, *room], params)
    return outputs


def symmetric(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    x = rng.normal(size=shape)
    return (x @ x.swapaxes(-1, -2) + shape[-1] * np.eye(shape[-1])).astype(dtype)


def layouts(x: np.ndarray) -> list[np.ndarray]:
    """The same numbers as they are, transposed, with elements between them, and broadcast from a stride of 0."""
    apart = np.zeros((*x.shape[:-1], 2 * x.shape[-1]), x.dtype)
    apart[..., ::2] = x
    backwards = x[..., ::-1, :].copy()[..., ::-1, :]
    same = np.broadcast_to(x[..., :1, :1], x.shape)
    return [x, x.swapaxes(-1, -2).copy().swapaxes(-1, -2), apart[..., ::2], backwards, same]


@with_lapack
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("name", "shape"), [(name, shape) for name, shapes in SHAPES.items() for shape in shapes])
def test_factors_are_those_of_the_reference(name: str, shape: tuple[int, ...], dtype: str) -> None:
    rng = np.random.default_rng(0)
    x = symmetric(rng, shape, dtype) if name in ("cholesky", "eigh") else rng.normal(size=shape).astype(dtype)
    if name == "eigh":
        x = x + rng.normal(size=shape).astype(dtype)  # of which the symmetric part counts
    for full in (False, True) if name in WHOLE else (False,):
        params = {"full_matrices": full} if name in WHOLE else {}
        wanted = reference[command(name)](x, **params)
        for strided in layouts(x)[:4]:
            got = run(name, "blas", [strided], **params)
            for y, z in zip(got, wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
                if name in ("eigh", "svd"):  # whose vectors may point the other way: the next test puts them together
                    y, z = np.abs(y), np.abs(z)
                np.testing.assert_allclose(y, z, TOLERANCE[dtype], TOLERANCE[dtype] * max(1, float(np.abs(z).max())))


@with_lapack
def test_vectors_and_values_make_up_the_matrix() -> None:
    rng = np.random.default_rng(7)
    x = rng.normal(size=(3, 6, 6))
    u, s, vh = run("svd", "blas", [x])
    np.testing.assert_allclose(u * s[:, None, :] @ vh, x, atol=1e-12)
    w, v = run("eigh", "blas", [x])
    np.testing.assert_allclose(v * w[:, None, :] @ v.swapaxes(-1, -2), (x + x.swapaxes(-1, -2)) / 2, atol=1e-12)


@with_lapack
def test_symmetric_matrices_that_lie_anyhow_are_factorised() -> None:
    x = symmetric(np.random.default_rng(1), (9, 9), "float64")
    room = np.asfortranarray(np.kron(x, np.eye(2)))[::2, ::2]
    (lower,) = run("cholesky", "blas", [room])
    np.testing.assert_allclose(lower @ lower.T, x)
    assert (lower == np.tril(lower)).all()


@with_lapack
def test_lapack_decides_where_the_printed_factorisation_meets_a_pivot_that_is_not_positive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lapack, "print_cholesky", lambda code, *rest: code.constant(True, nnc.base.dtypes.bool_))
    x = symmetric(np.random.default_rng(8), (3, 30, 30), "float64")
    np.testing.assert_array_equal(run("cholesky", "blas", [x])[0], reference[command("cholesky")](x))


@with_lapack
def test_a_batch_is_refused_for_one_matrix_that_is_not_positive_definite() -> None:
    x = symmetric(np.random.default_rng(9), (4, 20, 20), "float64")
    x[2, 19, 19] = -1
    with pytest.raises(LinAlgError):
        nnc.compile(nnp.linalg.cholesky)(x)


@with_lapack
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("vector_bytes", [16, 32])
def test_short_vectors_serve_machines_without_long_ones(dtype: str, vector_bytes: int) -> None:
    machine = replace(HERE, vector_bytes=vector_bytes)
    x = symmetric(np.random.default_rng(10), (45, 45), dtype)
    (lower,) = run("cholesky", "blas", [x], machine)
    np.testing.assert_allclose(lower, reference[command("cholesky")](x), TOLERANCE[dtype], TOLERANCE[dtype])
    (y,) = run("triangular_solve", "cpu", [lower, x], machine, lower=True)
    np.testing.assert_allclose(y, lower.T, 10 * TOLERANCE[dtype], 10 * TOLERANCE[dtype])


@with_lapack
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_systems_are_solved_for_any_number_of_right_hand_sides(dtype: str) -> None:
    rng = np.random.default_rng(2)
    for n, k, batch in ((1, 1, ()), (6, 1, ()), (7, 9, ()), (5, 2, (3,))):
        a, b = rng.normal(size=(*batch, n, n)).astype(dtype), rng.normal(size=(*batch, n, k)).astype(dtype)
        wanted = reference[command("solve")](a, b)
        for strided, right in zip(layouts(a)[:4], layouts(b)[:4], strict=True):
            (x,) = run("solve", "blas", [strided, right])
            np.testing.assert_allclose(x, wanted, 100 * TOLERANCE[dtype], 100 * TOLERANCE[dtype])


@with_lapack
def test_the_determinant_of_a_singular_matrix_is_0_and_its_logarithm_minus_infinity() -> None:
    x = np.arange(9.0).reshape(3, 3)
    x[1] = 0
    assert run("det", "blas", [x])[0] == 0
    sign, log = run("slogdet", "blas", [x])
    assert (sign, log) == (0, -np.inf)


@with_lapack
@pytest.mark.parametrize("name", ["det", "slogdet", "cholesky", "solve", "qr"])
def test_nan_goes_through_as_in_the_reference(name: str) -> None:
    x = symmetric(np.random.default_rng(3), (6, 6), "float64")
    x[5, 5] = np.nan
    inputs = [x, x] if name == "solve" else [x]
    wanted = reference[command(name)](*inputs)
    for y, z in zip(run(name, "blas", inputs), wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
        np.testing.assert_array_equal(np.isnan(y), np.isnan(z))


REFUSED = {
    "cholesky": (nnp.linalg.cholesky, -np.eye(4)),
    "svd": (lambda x: nnp.linalg.svd(x), np.full((3, 3), np.nan)),
    "solve": (lambda x: nnp.linalg.solve(x, x), np.zeros((3, 3))),
    "triangular_solve": (lambda x: nnp.linalg.solve_triangular(x, x, lower=True), np.diag([1.0, 2.0, 0.0])),
}


@pytest.mark.parametrize("name", REFUSED)
def test_programs_raise_the_errors_of_the_reference(name: str) -> None:
    function, x = REFUSED[name]
    with pytest.raises(LinAlgError):
        nnc.compile(function)(x)


@with_compiler
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("n", "k", "batch"), [(1, 1, ()), (5, 3, ()), (8, 24, ()), (37, 53, ()), (60, 1, ()), (20, 5, (3,)), (9, 2, (2, 3))]
)
def test_triangles_are_solved_from_both_ends_in_any_layout(n: int, k: int, batch: tuple[int, ...], dtype: str) -> None:
    rng = np.random.default_rng(4)
    a = (rng.normal(size=(*batch, n, n)) / n + 2 * np.eye(n)).astype(dtype)
    b = rng.normal(size=(*batch, n, k)).astype(dtype)
    pairs = zip(layouts(a)[:4], layouts(b)[:4], strict=True)
    for (lower, transpose, unit), (left, right) in zip(
        itertools.product((False, True), repeat=3), itertools.cycle(pairs), strict=False
    ):
        params = {"lower": lower, "transpose_a": transpose, "unit_diagonal": unit}
        wanted = reference[command("triangular_solve")](a, b, **params)
        (x,) = run("triangular_solve", "cpu", [left, right], **params)
        np.testing.assert_allclose(x, wanted, TOLERANCE[dtype], TOLERANCE[dtype])


@with_compiler
def test_triangles_too_long_for_a_buffer_read_solved_rows_from_the_result() -> None:
    machine = with_figures("products", solved_buffer_bytes=64)
    rng = np.random.default_rng(5)
    a, b = rng.normal(size=(31, 31)) / 31 + 2 * np.eye(31), rng.normal(size=(31, 40))
    step = Step(command("triangular_solve"), (view(a), view(b)), (view(b),), {"lower": True, "transpose_a": True})
    assert not triangular.Solver.of(triangular._system(step, **step.params), machine).buffered
    (x,) = run("triangular_solve", "cpu", [a, b], machine, lower=True, transpose_a=True, unit_diagonal=True)
    wanted = reference[command("triangular_solve")](a, b, lower=True, transpose_a=True, unit_diagonal=True)
    np.testing.assert_allclose(x, wanted)


@with_compiler
def test_the_other_triangle_is_not_read() -> None:
    a, b = np.tril(np.ones((11, 11))) + np.eye(11), np.ones((11, 7))
    a[np.triu_indices(11, 1)] = np.nan
    (x,) = run("triangular_solve", "cpu", [a, b], lower=True)
    assert np.isfinite(x).all()


@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("transpose_a", [False, True])
def test_rows_solved_before_a_nan_stay_free_of_it(lower: bool, transpose_a: bool) -> None:
    rng = np.random.default_rng(6)
    a, b = rng.normal(size=(5, 5)) + 4 * np.eye(5), rng.normal(size=(5, 3))
    b[2] = np.nan
    params = {"lower": lower, "transpose_a": transpose_a}
    wanted = reference[command("triangular_solve")](a, b, **params)
    (x,) = run("triangular_solve", "cpu", [a, b], **params)
    assert np.isfinite(wanted[:2] if lower != transpose_a else wanted[3:]).all()
    np.testing.assert_allclose(x, wanted, 1e-12, 1e-12)


@with_compiler
@pytest.mark.parametrize("shape", [(0, 0), (3, 0)])
def test_empty_systems_are_left_to_the_reference(shape: tuple[int, int]) -> None:
    a, b = np.eye(shape[0]), np.ones(shape)
    out = nnc.compile(lambda a, b: nnp.linalg.solve_triangular(a, b, lower=True))(a, b)
    assert out.shape == shape


def log_likelihood(params: Any, x: Any, y: Any) -> Any:
    distance = x[:, None, :] - x[None, :, :]
    eye = nnp.eye(x.shape[0], dtype=x.dtype)
    covariance = (
        nnp.exp(params[0] - nnp.sum(distance * distance, axis=-1) * nnp.exp(params[1])) + nnp.exp(params[2]) * eye
    )
    lower = nnp.linalg.cholesky(covariance)
    whitened = nnp.linalg.solve_triangular(lower, y[:, None], lower=True)
    return -0.5 * nnp.sum(whitened * whitened) - nnp.sum(nnp.log(nnp.diagonal(lower)))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_gaussian_process_and_its_gradient_agree_with_and_without_the_libraries(
    dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(6)
    x, y, params = rng.normal(size=(50, 3)).astype(dtype), rng.normal(size=50).astype(dtype), np.zeros(3, dtype)
    gradient = nnc.value_and_grad(log_likelihood)
    compiled, wanted = nnc.compile(gradient)(params, x, y), gradient(params, x, y)
    monkeypatch.setattr(lapack, "lapack", lambda: None)
    without = nnc.compile(lambda *args: gradient(*args))(params, x, y)
    for value, slope in (compiled, without):
        np.testing.assert_allclose(value, wanted[0], TOLERANCE[dtype])
        np.testing.assert_allclose(slope, wanted[1], 10 * TOLERANCE[dtype], 10 * TOLERANCE[dtype])
