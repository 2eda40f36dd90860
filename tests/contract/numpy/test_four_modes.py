"""Creation, promotion and indexing do the same at once, compiled, inside a derivative and mapped: one table, four modes."""

from __future__ import annotations

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp

X = np.array([[1.5, -2.0, 0.5, 3.0], [0.0, 4.0, -1.5, 2.5], [7.0, -3.5, 1.0, -0.5]])
MASK = X[:, 0] > 0.5
ROWS, COLUMNS = np.array([2, 0, -1]), np.array([[1], [3]])


def differentiated(function):
    """The function inside a derivative, which hands on its result."""

    def run(x):
        inside = nnc.value_and_grad(lambda x: (nnp.real(nnp.sum(x)) * 0.0, function(x)), has_aux=True, allow_int=True)
        return inside(x)[0][1]

    return run


def mapped(function):
    """The function mapped over a batch of equal rows, of which the last is returned."""
    return lambda x: nnc.tree.map(lambda y: y[1], nnc.vmap(function)(np.stack([x, x])))


MODES = {
    "at once": lambda f: lambda x: f(nnp.asarray(x)),
    "compiled": nnc.compile,
    "grad": differentiated,
    "vmap": mapped,
}

# name -> the same expression for NumPy and nnc, and the dtypes of its operand
FLOAT, ANY = ("float32", "float64"), ("float64", "float32", "int64", "int8", "uint8", "complex64", "bool")
CREATION = {
    "zeros": (lambda xp, x: xp.zeros(x.shape, x.dtype) + x, FLOAT),
    "ones of a size": (lambda xp, x: xp.ones(x.shape[0], "int32"), FLOAT),
    "full": (lambda xp, x: xp.full((2, *x.shape), x), ANY),
    "full_like": (lambda xp, x: xp.full_like(x, 2), ANY[:-1]),
    "arange": (lambda xp, x: xp.arange(1, x.size, 3), FLOAT),
    "arange of floats": (lambda xp, x: xp.arange(0.5, 2.0, 0.25, dtype="float64"), FLOAT),
    "linspace": (lambda xp, x: xp.linspace(x[0], x[1], 3), FLOAT),
    "eye": (lambda xp, x: xp.eye(3, dtype=x.dtype) @ x, FLOAT),
    "lists": (lambda xp, x: xp.asarray([x[0], x[1]]), ANY),
    "nested lists": (lambda xp, x: xp.asarray([[x[0, 0], x[1, 1]], [x[2, 0], x[2, 2]]]), ANY),
    "stack": (lambda xp, x: xp.stack([x, x], axis=1), ANY),
    "meshgrid": (lambda xp, x: tuple(xp.meshgrid(x[0], x[:, 1])), ANY),
    "tril": (lambda xp, x: xp.tril(x, -1), ANY),
    "diag": (lambda xp, x: xp.diag(x[0]), ANY),
    "astype": (lambda xp, x: (xp.astype(x, "int32"), xp.astype(x, "float64"), xp.astype(x, "bool")), ("float32", "int8")),
    "copy": (lambda xp, x: xp.copy(x), ANY),
    "fromfunction": (lambda xp, x: xp.fromfunction(lambda i, j: i * 2 + j, x.shape, dtype="int64"), FLOAT),
}  # fmt: skip
PROMOTION = {
    "a weak integer": (lambda xp, x: (x + 1, 2 * x, x - True), ANY[:-1]),
    "a weak float": (lambda xp, x: (x * 0.5, 2.5 - x), (*FLOAT, "complex64")),
    "a weak complex": (lambda xp, x: (x * 1j, 1j + x), (*FLOAT, "complex64")),
    "a wider array": (lambda xp, x: (x + np.ones(4), x * np.float32(2)), FLOAT),
    "integers of two signs": (
        lambda xp, x: (x + np.ones(4, "int8"), x * np.ones(4, "uint8")),
        ("int8", "uint8", "int64"),
    ),
    "bools": (lambda xp, x: (x & True, x | np.array([True, False, True, False]), x ^ x), ("bool",)),
    "powers": (lambda xp, x: (x**2, x**3), ("float64", "float32", "int64", "int8", "complex64")),
    "powers of two": (lambda xp, x: 2 ** (x % 5), ("int64", "uint8")),
    "whole quotients": (lambda xp, x: (x // 2, x % 3, divmod(x, 2)[0]), ("float64", "float32", "int64", "int8")),
    "comparisons": (lambda xp, x: (x < 1, x == x[0], x <= 2, x != 300), ("float64", "int8", "uint8")),
    "where": (lambda xp, x: (xp.where(x == 0, x, 0), xp.where(x == 0, np.ones(4, x.dtype), x)), ANY),
    "sums": (lambda xp, x: (x.sum(), x.sum(0), xp.cumsum(x, 1), x.prod(1)), ANY),
    "extremes": (lambda xp, x: (x.max(), xp.minimum(x, x[0]), x.argmin(1)), ("float64", "int8", "uint8", "bool")),
    "shifts": (lambda xp, x: (x << 1, x >> 1, ~x), ("int64", "uint8")),
    "signs": (lambda xp, x: (-x, abs(x), +x), ("float64", "int8", "complex64")),
    "concatenation": (lambda xp, x: xp.concatenate([x, np.ones((1, 4), "float64")]), ("float32", "float64")),
}
INDEXING = {
    "numbers": (lambda xp, x: (x[0], x[-1, 2], x[1, -4]), ANY),
    "slices": (lambda xp, x: (x[1:], x[:, ::2], x[::-1, 3:0:-2], x[5:], x[-2:2]), ANY),
    "new axes": (lambda xp, x: (x[None], x[:, None, 1], x[..., None], x[None, ..., 0, None]), ANY),
    "ellipses": (lambda xp, x: (x[...], x[..., 1], x[0, ...]), ANY),
    "arrays": (lambda xp, x: (x[ROWS], x[:, COLUMNS], x[ROWS, ROWS], x[ROWS, 1], x[COLUMNS % 3, ROWS]), ANY),
    "lists": (lambda xp, x: (x[[2, 0]], x[[0, 1], [3, 2]], x[:, [True, False, True, False]]), ANY),
    "masks": (lambda xp, x: (x[MASK], x[MASK, 1], x[MASK][:, 0], x[X > 1], x[:, X[0] > 0]), ANY),
    "mixtures": (
        lambda xp, x: (x[ROWS, :2], x[None, ROWS, 1:], x[0, ROWS], x[ROWS, ..., None], x[[0], None, 1:3]),
        ANY,
    ),
    "apart": (
        lambda xp, x: (x[None][:, ROWS][0], x.reshape(3, 2, 2)[ROWS, :, 1], x.reshape(3, 2, 2)[1, :, ROWS % 2]),
        ANY,
    ),
    "empty": (lambda xp, x: (x[[]], x[:0], x[np.zeros(3, bool)], x[:, 2:2]), ANY),
    "take": (lambda xp, x: (xp.take(x, ROWS), xp.take(x, COLUMNS, axis=1), xp.take_along_axis(x, COLUMNS[:1], 1)), ANY),
    "0-d arrays": (lambda xp, x: (x[np.array(1)], x[np.int8(-1)], x[np.array(True)]), ANY),
}
WRITES = {
    "a row": (np.s_[0], 5),
    "a strided box": (np.s_[::2, 1:3], np.array([7, 8])),
    "backwards": (np.s_[::-1, 0], np.array([1, 2, 3])),
    "rows by number": (ROWS[:2], 9),
    "elements": (([0, 1], [2, 3]), np.array([4, 6])),
    "a mask": (X > 1, 3),
    "a mask of rows": (MASK, np.array([1, 2, 3, 4])),
    "nothing": (np.s_[3:], 1),
}
TABLE = {**CREATION, **PROMOTION, **INDEXING}


def check(got, want):
    if isinstance(want, tuple):
        assert len(got) == len(want)
        for one, other in zip(got, want, strict=True):
            check(one, other)
        return
    want = np.asarray(want)
    got = np.asarray(got)
    assert (got.shape, got.dtype) == (want.shape, want.dtype)
    np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", TABLE)
def test_an_expression_agrees_with_numpy_in_every_mode(name, mode):
    function, kinds = TABLE[name]
    for dtype in kinds:
        x = np.abs(X).astype(dtype) if dtype == "uint8" else X.astype(dtype)
        check(MODES[mode](lambda x: function(nnp, x))(x), function(np, x))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", WRITES)
def test_writes_agree_with_numpy_in_every_mode(name, mode):
    index, values = WRITES[name]
    for dtype in ("float64", "int64", "complex64"):
        want = X.astype(dtype)
        want[index] = values
        check(MODES[mode](lambda x: x.at[index].set(values))(X.astype(dtype)), want)
        want = X.astype(dtype)
        np.add.at(want, index, values)
        check(MODES[mode](lambda x: x.at[index].add(values))(X.astype(dtype)), want)


MISTAKES = {
    "a number": (lambda x: x[3], IndexError),
    "a negative number": (lambda x: x[0, -5], IndexError),
    "an array": (lambda x: x[np.array([0, 3])], IndexError),
    "take": (lambda x: nnp.take(x, 12), IndexError),
    "a traced number": (lambda x: x[nnp.argmax(x) + 3], IndexError),
    "too many": (lambda x: x[0, 0, 0], IndexError),
    "a float": (lambda x: x[1.0], IndexError),
    "a mask of another size": (lambda x: x[np.ones(2, bool)], IndexError),
    "a write": (lambda x: x.at[5].set(0), IndexError),
    "a number that does not fit": (lambda x: nnp.astype(x, "int8") + 1000, TypeError),
    "shapes": (lambda x: x + np.ones(3), ValueError),
    "an unsigned and a signed integer": (lambda x: nnp.astype(x, "uint64") + nnp.astype(x, "int64"), TypeError),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_refused_in_every_mode(name, mode):
    function, kind = MISTAKES[name]
    with pytest.raises(kind):
        MODES[mode](function)(X)
