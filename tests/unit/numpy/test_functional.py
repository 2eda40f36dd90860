from __future__ import annotations

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.errors import ArgumentError, ShapeError

X = np.random.default_rng(6).normal(size=(2, 3, 4))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_functions_along_an_axis_agree_with_numpy(axis, same):
    same(nnp.apply_along_axis(nnp.sum, axis, X), np.apply_along_axis(np.sum, axis, X))
    same(nnp.apply_along_axis(nnp.cumsum, axis, X), np.apply_along_axis(np.cumsum, axis, X))
    outer = nnp.apply_along_axis(lambda v: nnp.outer(v, v[:2]), axis, X)
    same(outer, np.apply_along_axis(lambda v: np.outer(v, v[:2]), axis, X))
    same(nnp.apply_along_axis(lambda v, n: v[n], axis, X, 1), np.apply_along_axis(lambda v, n: v[n], axis, X, 1))


def test_functions_over_axes_agree_with_numpy(same):
    same(nnp.apply_over_axes(nnp.sum, X, [0, -1]), np.apply_over_axes(np.sum, X, [0, -1]))
    same(nnp.apply_over_axes(lambda x, axis: nnp.cumsum(x, axis), X, 1), np.cumsum(X, 1))


def test_functions_of_indices_agree_with_numpy(same):
    same(
        nnp.fromfunction(lambda i, j: i * 10 + j, (2, 3), dtype=int),
        np.fromfunction(lambda i, j: i * 10 + j, (2, 3), dtype=int),
    )
    assert nnp.fromfunction(lambda i: i, 3).dtype == nnp.float32


def test_functions_by_pieces_agree_with_numpy(same):
    for conditions, functions in (
        ([X < -0.5, X > 0.5], [lambda x: -x, 2.0, np.square]),
        ([X < 0], [lambda x: x + 1]),
        ([X < 0, X < 1], [1.0, 2.0]),
        (np.stack([X > 0, X > 1]), [0.5, 1.5]),
    ):
        twins = [nnp.square if f is np.square else f for f in functions]
        same(nnp.piecewise(X, conditions, twins), np.piecewise(X, conditions, functions))
    same(nnp.piecewise(np.arange(4), [np.arange(4) > 1], [1.7]), np.piecewise(np.arange(4), [np.arange(4) > 1], [1.7]))
    same(nnp.piecewise(X, [X > 0], [lambda x, a, b: a * x + b], 2, b=3), np.where(X > 0, 2 * X + 3, 0))
    slope = nnc.grad(lambda x: nnp.piecewise(x, [x > 0], [nnp.sqrt, 0.0]))
    assert [float(slope(v)) for v in (0.0, 4.0)] == [0, 0.25]


def test_functions_of_numbers_become_functions_of_arrays(same):
    @nnp.vectorize
    def larger(a, b):
        return nnc.cond(a > b, lambda: a * 1, lambda: b + a * 0)

    same(larger(X[:, :1], X[0]), np.maximum(X[:, :1], X[0]))
    same(larger(X, 0.0), np.maximum(X, 0.0))
    assert larger(1.0, 2.0).shape == ()
    both = nnp.vectorize(lambda a, b=1.0: (a + b, a - b))
    same(both(X, b=X[:1]), (X + X[:1], X - X[:1]))
    shifted = nnp.vectorize(lambda a, how: a + len(how), excluded=(1,))
    same(shifted(X, "abc"), X + 3)
    named = nnp.vectorize(lambda a, *, how: a + len(how), excluded={"how"})
    same(named(X, how="ab"), X + 2)


def test_a_signature_names_the_axes_of_each_call(same):
    product = nnp.vectorize(lambda a, b: a @ b, signature="(m, n),(n)->(m)")
    a, b = X, X[:, None, 0]
    same(product(a, X[0, 0]), np.matmul(a, X[0, 0]))
    same(product(a[:, None], b), np.einsum("amn,abn->abm", a, b))
    norm = nnp.vectorize(signature="(n)->()")(lambda v: nnp.sqrt(nnp.sum(v * v)))
    same(norm(X), np.linalg.norm(X, axis=-1))
    nnc.testing.check_grads(norm, (X,), order=2)
    assert nnc.compile(norm)(X).shape == (2, 3)
    crossed = nnp.vectorize(lambda a, b: nnp.cross(a, b), signature="(3),(3)->(3)")
    same(crossed(X[..., :3], X[0, 0, :3]), np.cross(X[..., :3], X[0, 0, :3]))


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: nnp.vectorize(len, signature="n->n"), ArgumentError, "vectorize: signature 'n->n' cannot be read"),
        (lambda: nnp.vectorize(len, signature="(n)->()")(X, X), ArgumentError, "vectorize: 2 arrays are given"),
        (lambda: nnp.vectorize(len, signature="(n)->()")(1.0), ShapeError, "vectorize: argument 0 has 0 axes"),
        (
            lambda: nnp.vectorize(len, signature="(n),(n)->()")(X, X[..., :2]),
            ShapeError,
            "core axis n of argument 1 has size 2",
        ),
        (lambda: nnp.vectorize(len, signature="(3)->()")(X), ShapeError, "core axis 3 of argument 0 has size 4"),
        (lambda: nnp.piecewise(X, [X > 0], [1, 2, 3]), ArgumentError, "piecewise: 1 conditions go with 3 functions"),
        (lambda: nnp.apply_along_axis(nnp.sum, 1, X[:0]), ShapeError, "apply_along_axis: there is no vector"),
        (
            lambda: nnp.apply_over_axes(lambda x, axis: x.sum(), X, 0),
            ShapeError,
            "apply_over_axes: func returns 0 axes for 3",
        ),
    ],
)
def test_a_mistake_is_answered_with_the_functions_name(call, kind, message):
    with pytest.raises(kind, match=message):
        call()
