"""The iterative solvers find the solutions of SciPy's; their derivatives are those of the solution."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse.linalg

import nnc
import nnc.numpy as nnp
import nnc.scipy.sparse.linalg as sl
from nnc.errors import ArgumentError, ArgumentTypeError, ShapeError, TreeError
from nnc.testing import check_grads

RNG = np.random.default_rng(3)
N = 9
A = RNG.normal(size=(N, N)) + 5 * np.eye(N)
S = A @ A.T
B = RNG.normal(size=N)
SOLVERS: dict[str, tuple[Any, np.ndarray]] = {
    "cg": (sl.cg, S),
    "bicgstab": (sl.bicgstab, A),
    "gmres": (sl.gmres, A),
    "gmres incremental": (lambda *xs, **kw: sl.gmres(*xs, **kw, solve_method="incremental"), A),
}
solvers = pytest.mark.parametrize("name", SOLVERS)


@solvers
def test_solutions_are_within_the_tolerance_at_once_compiled_and_in_float32(name: str) -> None:
    solve, a = SOLVERS[name]
    want = np.linalg.solve(a, B)
    for run in (solve, nnc.compile(solve, static_argnames=("tol",))):
        x, info = run(a, B, tol=1e-13)
        np.testing.assert_allclose(np.asarray(x), want, rtol=1e-11)
        assert x.dtype == np.float64 and info.dtype == np.int32 and int(info) == 0
    x, info = solve(a.astype(np.float32), B.astype(np.float32), tol=1e-6)
    np.testing.assert_allclose(np.asarray(x), want, rtol=1e-4)
    assert x.dtype == np.float32 and int(info) == 0


@pytest.mark.parametrize("name", ["cg", "bicgstab", "gmres"])
def test_derivatives_in_both_modes_and_of_second_order_are_those_of_the_solution(name: str) -> None:
    solve, a = SOLVERS[name]

    def ours(a: Any, b: Any) -> Any:
        return (solve(a, b, tol=1e-13)[0] ** 2).sum()

    def direct(a: Any, b: Any) -> Any:
        return (nnp.linalg.solve(a, b) ** 2).sum()

    def along(f: Any) -> Any:
        return nnc.jvp(nnc.grad(f, argnums=(0, 1)), (a, B), (S, B + 1))

    got, want = nnc.tree.leaves(along(ours)), nnc.tree.leaves(along(direct))
    for x, y in zip(got, want, strict=True):
        np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=0, atol=1e-11 * np.abs(np.asarray(y)).max())
    compiled = nnc.compile(nnc.grad(ours))(a, B)
    np.testing.assert_allclose(np.asarray(compiled), np.asarray(nnc.grad(direct)(a, B)), rtol=0, atol=1e-11)


@pytest.mark.parametrize("name", ["cg", "gmres"])
def test_rows_of_a_batch_are_solved_and_differentiated_as_alone(name: str) -> None:
    solve, a = SOLVERS[name]
    many, right = np.stack([a, a + np.eye(N), 2 * a]), RNG.normal(size=(3, N))

    def total(a: Any, b: Any) -> Any:
        return (solve(a, b, tol=1e-13)[0] ** 2).sum()

    got = nnc.vmap(lambda b: solve(a, b, tol=1e-13)[0])(right)
    np.testing.assert_allclose(np.asarray(got), np.linalg.solve(a, right.T).T, rtol=1e-10)

    def direct(a: Any, b: Any) -> Any:
        return (nnp.linalg.solve(a, b) ** 2).sum()

    close = {"rtol": 1e-8, "atol": 1e-12}
    got = nnc.vmap(nnc.grad(total))(many, right)
    np.testing.assert_allclose(np.asarray(got), np.asarray(nnc.vmap(nnc.grad(direct))(many, right)), **close)
    shared = nnc.grad(lambda a: nnc.vmap(total, in_axes=(None, 0))(a, right).sum())
    shared = (nnc.compile(shared) if name == "cg" else shared)(a)
    want = sum(np.asarray(nnc.grad(direct)(a, b)) for b in right)
    np.testing.assert_allclose(np.asarray(shared), want, **close)


def test_a_system_of_pytrees_is_given_by_a_function_that_reads_differentiated_values() -> None:
    def solution(k: Any, b: Any) -> Any:
        def matvec(v: Any) -> Any:
            return {"u": k * v["u"] + v["w"].sum(), "w": 3 * v["w"] + v["u"][:2]}

        return sl.gmres(matvec, b, tol=1e-13)[0]

    b = {"u": np.array([1.0, 2, 3]), "w": np.array([0.5, -1])}
    matrix = np.block(
        [[4 * np.eye(3), np.ones((3, 2))], [np.eye(2, 3), 3 * np.eye(2)]],
    )
    want = np.linalg.solve(matrix, np.concatenate([b["u"], b["w"]]))
    got = solution(4.0, b)
    np.testing.assert_allclose(np.concatenate([np.asarray(got["u"]), np.asarray(got["w"])]), want, rtol=1e-12)
    check_grads(solution, (np.float64(4), b), order=1, rtol=1e-4)


@pytest.mark.parametrize("name", ["cg", "bicgstab"])
def test_iterations_in_a_loop_that_is_differentiated(name: str) -> None:
    solve, a = SOLVERS[name]

    def decayed(b: Any, solver: Any) -> Any:
        """Three implicit steps of x' = -A x."""
        step = lambda x, _: (solver(np.eye(N) + a / 10, x), None)
        return (nnc.scan(step, b, None, length=3)[0] ** 2).sum()

    got = nnc.compile(nnc.grad(lambda b: decayed(b, lambda a, x: solve(a, x, tol=1e-13)[0])))(B)
    want = nnc.grad(lambda b: decayed(b, nnp.linalg.solve))(B)
    np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-9)


@pytest.mark.parametrize("name", ["cg", "bicgstab", "gmres"])
def test_complex_systems(name: str) -> None:
    solve, a = SOLVERS[name]
    skew = RNG.normal(size=(N, N)) / 9
    z = a + 1j * (skew - skew.T)
    b = B + 1j * B[::-1]
    x, info = solve(z, b, tol=1e-13)
    assert int(info) == 0
    np.testing.assert_allclose(np.asarray(x), np.linalg.solve(z, b), rtol=1e-10)
    if name != "cg":  # moves from a Hermitian matrix in all directions
        check_grads(lambda z, b: solve(z, b, tol=1e-13)[0], (z, b), order=1, rtol=1e-5)


def test_info_counts_the_iterations_of_a_system_that_is_not_solved() -> None:
    hard = np.diag(np.logspace(0, 8, N)) + RNG.normal(size=(N, N)) / 9
    spd = hard @ hard.T
    assert int(sl.cg(spd, B, tol=1e-15, maxiter=4)[1]) == scipy.sparse.linalg.cg(spd, B, rtol=1e-15, maxiter=4)[1] == 4
    assert int(sl.bicgstab(hard, B, tol=1e-15, maxiter=3)[1]) == 3
    assert int(sl.gmres(hard, B, tol=1e-15, restart=2, maxiter=3)[1]) == 3
    assert int(sl.cg(spd, B * np.nan)[1]) == 1
    x, info = sl.bicgstab(np.array([[0.0, 1], [-1, 0]]), np.array([1.0, 0]))  # it breaks down at once
    assert int(info) == -11 and not np.asarray(x).any()


def test_a_guess_that_solves_the_system_is_kept_and_zeros_solve_zeros() -> None:
    for solve, a in SOLVERS.values():
        x = np.linalg.solve(a, B)
        got, info = solve(a, B, x0=x, maxiter=0, tol=1e-12)
        np.testing.assert_array_equal(np.asarray(got), x)
        assert int(info) == 0
        got, info = solve(a, np.zeros(N))
        np.testing.assert_array_equal(np.asarray(got), np.zeros(N))
        assert int(info) == 0


def test_a_preconditioner_saves_iterations_and_leaves_solution_and_derivative() -> None:
    scale = np.diag(np.logspace(0, 6, N))
    spd, inverse = S + scale, np.diag(1 / np.diag(S + scale))
    for name, (solve, _) in SOLVERS.items():
        plain = solve(
            spd, B, tol=1e-8, maxiter=1 if "gmres" in name else N - 2, **({"restart": 5} if "gmres" in name else {})
        )
        assert int(plain[1]) > 0, name
        x, info = solve(spd, B, tol=1e-10, M=lambda v: inverse @ v)
        assert int(info) == 0
        np.testing.assert_allclose(np.asarray(x), np.linalg.solve(spd, B), rtol=1e-6)
    got = nnc.grad(lambda m: sl.cg(spd, B, tol=1e-13, M=m)[0].sum())(inverse)
    np.testing.assert_array_equal(np.asarray(got), np.zeros((N, N)))


def test_gmres_ends_in_an_invariant_space_and_begins_anew_after_restart_vectors() -> None:
    projection = np.eye(N) + np.outer(B, B)  # two different eigenvalues: two vectors suffice
    for method in ("batched", "incremental"):
        x, info = sl.gmres(projection, B + 1, tol=1e-13, maxiter=1, solve_method=method)
        assert int(info) == 0
        np.testing.assert_allclose(np.asarray(x), np.linalg.solve(projection, B + 1), rtol=1e-12)
    x, info = sl.gmres(A, B, tol=1e-12, restart=3)
    np.testing.assert_allclose(np.asarray(x), np.linalg.solve(A, B), rtol=1e-10)
    want, failed = scipy.sparse.linalg.gmres(A, B, rtol=1e-12, restart=3)
    assert failed == 0
    np.testing.assert_allclose(np.asarray(x), want, rtol=1e-10)


def test_integers_become_float32_and_wider_functions_widen() -> None:
    assert sl.cg(2 * np.eye(2, dtype=np.int32), np.ones(2, np.int32))[0].dtype == np.float32
    assert sl.cg(lambda v: v * np.full(2, 2.0), np.ones(2, np.float32))[0].dtype == np.float64
    assert sl.cg(2 * np.eye(2, dtype=np.float32), np.ones(2, np.float32), x0=np.ones(2))[0].dtype == np.float64


MISTAKES = {
    "matrix of another size": (lambda: sl.cg(np.eye(3), np.ones(2)), ShapeError, "does not fit b"),
    "matrix of trees": (lambda: sl.cg(np.eye(2), {"a": np.ones(2)[None]}), ShapeError, "does not fit b"),
    "no matrix": (lambda: sl.cg(None, np.ones(2)), ArgumentTypeError, "A is None"),
    "no vector": (lambda: sl.gmres(np.eye(2), None), ArgumentTypeError, "holds no array"),
    "guess of another shape": (lambda: sl.cg(np.eye(2), np.ones(2), np.ones(3)), ShapeError, "x0 and b differ"),
    "guess of another structure": (lambda: sl.cg(np.eye(2), np.ones(2), [np.ones(2)]), TreeError, "x0"),
    "function of another shape": (lambda: sl.bicgstab(lambda v: v[:1], np.ones(2)), ShapeError, "the result of A"),
    "tolerance": (lambda: sl.cg(np.eye(2), np.ones(2), tol=-1.0), ArgumentError, "tol is -1.0"),
    "iterations": (lambda: sl.gmres(np.eye(2), np.ones(2), maxiter=-1), ArgumentError, "maxiter is -1"),
    "restart": (lambda: sl.gmres(np.eye(2), np.ones(2), restart=0), ArgumentError, "restart is 0"),
    "method": (lambda: sl.gmres(np.eye(2), np.ones(2), solve_method="qr"), ArgumentError, "solve_method is 'qr'"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_worded(name: str) -> None:
    call, error, text = MISTAKES[name]
    with pytest.raises(error, match=text) as found:
        call()
    assert "Fix:" in str(found.value)
