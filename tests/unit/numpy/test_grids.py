from __future__ import annotations

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.errors import ArgumentError, ShapeError

X = np.arange(12.0).reshape(3, 4)


def test_index_arrays_select_rows_and_columns(same):
    same(nnp.ix_([0, 2], [1, 3, 3]), np.ix_([0, 2], [1, 3, 3]))
    same(nnp.ix_(np.array([True, False, True]), [1]), np.ix_(np.array([True, False, True]), [1]))
    same(nnp.asarray(X)[nnp.ix_([0, 2], [1, 3])], X[np.ix_([0, 2], [1, 3])])


def test_indices_of_triangles_and_diagonals_agree_with_numpy(same):
    for k in (-1, 0, 2):
        same(nnp.tril_indices(3, k, 4), np.tril_indices(3, k, 4))
        same(nnp.triu_indices(3, k), np.triu_indices(3, k))
        same(nnp.tril_indices_from(X, k), np.tril_indices_from(X, k))
        same(nnp.triu_indices_from(X, k), np.triu_indices_from(X, k))
        same(nnp.mask_indices(4, nnp.triu, k), np.mask_indices(4, np.triu, k))
    same(nnp.diag_indices(3, 3), np.diag_indices(3, 3))
    same(nnp.diag_indices_from(X[:, :3]), np.diag_indices_from(X[:, :3]))


@pytest.mark.parametrize("shape", [(3, 4), (7, 2), (4, 4), (3, 3, 3)])
@pytest.mark.parametrize("wrap", [False, True])
def test_diagonals_are_filled_as_in_numpy(shape, wrap, same):
    for values in (5.0, [1.0, 2.0], np.arange(9.0)):
        want = np.zeros(shape)
        np.fill_diagonal(want, values, wrap)
        same(nnp.fill_diagonal(np.zeros(shape), values, wrap), want)


def test_slices_become_arrays_as_in_numpy(same):
    same(nnp.mgrid[0:3, 1:7:2], np.mgrid[0:3, 1:7:2])
    same(nnp.ogrid[0:3, 1:7:2], np.ogrid[0:3, 1:7:2])
    same(nnp.mgrid[0:1:5j], np.mgrid[0:1:5j])
    same(nnp.mgrid[:2, -1:1:3j], np.mgrid[:2, -1:1:3j])
    same(nnp.r_[1:4, 0, np.array([5, 6])], np.r_[1:4, 0, np.array([5, 6])])
    same(nnp.r_[X, X], np.r_[X, X])
    same(nnp.c_[X[0], X[1]], np.c_[X[0], X[1]])
    same(nnp.c_[X, X[:, 0]], np.c_[X, X[:, 0]])
    same(nnp.asarray(X)[nnp.s_[1:, ::2]], X[1:, ::2])
    assert nnc.compile(lambda x: nnp.r_[x, 0.0])(X[0]).tolist() == [0, 1, 2, 3, 0]


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: nnp.ix_(X), ShapeError, "ix_: argument 0 is no vector"),
        (lambda: nnp.fill_diagonal(X[0], 1.0), ShapeError, "fill_diagonal: x has shape"),
        (lambda: nnp.fill_diagonal(X, 1.0, inplace=True), ArgumentError, "fill_diagonal: arrays are immutable"),
        (lambda: nnp.diag_indices_from(X), ShapeError, "diag_indices_from: x has shape"),
        (lambda: nnp.tril_indices_from(X[0]), ShapeError, "tril_indices_from: x must be a matrix"),
        (lambda: nnp.r_["0,2", 1], ArgumentError, "r_: the directive '0,2'"),
    ],
)
def test_a_mistake_is_answered_with_the_functions_name(call, kind, message):
    with pytest.raises(kind, match=message):
        call()
