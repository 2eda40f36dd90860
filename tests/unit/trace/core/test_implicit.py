"""linear_solve and root: derivatives of solutions are those of their equations, for any algorithm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.errors import UnsupportedError
from nnc.trace.core.implicit import linear_solve, root

A = np.array([[3.0, 1.0, 0.5], [-1.0, 4.0, 0.0], [0.2, 0.3, 5.0]])
B = np.array([1.0, -2.0, 3.0])


def dense(matvec: Any, precondition: Any, b: list[Any], guess: list[Any]) -> tuple[list[Any], list[Any]]:
    """An algorithm that has no derivative of its own."""
    matrix = nnp.stack([matvec([e])[0] for e in np.eye(3)], axis=1)
    x = nnp.linalg.solve(nnc.stop_gradient(matrix), nnc.stop_gradient(b[0]))
    return [x], [nnp.asarray(7)]


def solution(a: Any, b: Any) -> Any:
    found, (seven,) = linear_solve(dense, lambda xs: [a @ xs[0]], [b])
    assert not hasattr(seven, "tangent")
    return found[0]


def test_solutions_are_differentiated_by_the_system_in_both_modes_and_any_order() -> None:
    def ours(a: Any, b: Any) -> Any:
        return nnp.sin(solution(a, b)).sum()

    def direct(a: Any, b: Any) -> Any:
        return nnp.sin(nnp.linalg.solve(a, b)).sum()

    for transform in (
        lambda f: nnc.grad(f, argnums=(0, 1)),
        lambda f: lambda *xs: nnc.jvp(f, xs, xs),
        lambda f: nnc.hessian(f, argnums=1),
        lambda f: nnc.jacfwd(nnc.grad(f)),
        lambda f: nnc.grad(lambda a, b: nnc.grad(f, argnums=1)(a, b).sum()),
        lambda f: nnc.compile(nnc.jacrev(nnc.grad(f))),
    ):
        got, want = transform(ours)(A, B), transform(direct)(A, B)
        for x, y in zip(nnc.tree.leaves(got), nnc.tree.leaves(want), strict=True):
            np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=1e-12, atol=1e-14)


def test_a_solution_that_is_linear_in_b_is_transposed() -> None:
    (got,) = nnc.linear_transpose(lambda b: solution(A, b), B)(B)
    np.testing.assert_allclose(np.asarray(got), np.linalg.solve(A.T, B), rtol=1e-14)


def test_a_map_that_moves_with_the_right_hand_side_is_not_linear() -> None:
    with pytest.raises(UnsupportedError, match="linear_solve|not linear"):
        nnc.linear_transpose(lambda b: solution(A * b, b), B)(B)


@pytest.mark.parametrize("where", [(0, None), (None, 0), (0, 0)])
def test_rows_are_solved_and_differentiated_as_alone(where: Any) -> None:
    many, right = np.stack([A, A + np.eye(3)]), np.stack([B, 2 * B])
    operands = [x if axis == 0 else y for axis, x, y in zip(where, (many, right), (A, B), strict=True)]

    def moved(a: Any, b: Any) -> Any:
        return nnc.jvp(nnc.grad(lambda a, b: (solution(a, b) ** 2).sum(), argnums=(0, 1)), (a, b), (a * 0.1 + 1, b))

    got = nnc.vmap(moved, in_axes=where)(*operands)
    for i in range(2):
        want = moved(*(x[i] if axis == 0 else x for axis, x in zip(where, operands, strict=True)))
        for x, y in zip(nnc.tree.leaves(got), nnc.tree.leaves(want), strict=True):
            np.testing.assert_allclose(np.asarray(x)[i], np.asarray(y), rtol=1e-12)


def cubic(c: Any) -> Any:
    """The root of x³ + 3 c x = 1, whose function holds a loop."""

    def fun(x: Any) -> list[Any]:
        power = nnc.while_loop(lambda s: s[1] < 3, lambda s: (s[0] * x, s[1] + 1), (x * 0 + 1, 0))[0]
        return [power + 3 * c * x - 1]

    def find(x: Any) -> list[Any]:
        step = lambda x: x - fun(x)[0] / (3 * x * x + 3 * nnc.stop_gradient(c))
        return [nnc.fori_loop(0, 60, lambda _, x: step(x), x), nnp.asarray(3)]

    def solve(matvec: Any, precondition: Any, b: Sequence[Any], guess: Any) -> tuple[list[Any], list[Any]]:
        return [b[0] / matvec([nnp.ones_like(b[0])])[0]], []

    (x,), (count,) = root(fun, find, solve, [nnp.asarray(np.float64(0.5))])
    return x * count


def test_roots_of_functions_with_loops_are_differentiated() -> None:
    c = np.float64(2)
    x = np.asarray(cubic(c)) / 3
    want = -9 * x / (3 * x * x + 6)  # of 3 x: (3 x² + 3 c) dx = −3 x dc
    for derivative in (nnc.grad(cubic), nnc.jacfwd(cubic), nnc.compile(nnc.grad(cubic))):
        np.testing.assert_allclose(np.asarray(derivative(c)), want, rtol=1e-13)
    second = np.asarray(nnc.jacfwd(nnc.grad(cubic))(c))
    slope = (np.asarray(nnc.grad(cubic)(c + 1e-5)) - np.asarray(nnc.grad(cubic)(c - 1e-5))) / 2e-5
    np.testing.assert_allclose(second, slope, rtol=1e-8)
    rows = np.asarray(nnc.vmap(nnc.grad(cubic))(np.array([2.0, 3])))
    np.testing.assert_allclose(rows[0], want, rtol=1e-13)
