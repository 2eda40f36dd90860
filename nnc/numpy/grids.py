"""Grids of indices, and the objects that turn slices into arrays (`mgrid`, `r_` …)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, overload

import numpy as np

from nnc.array.array import Array, as_value
from nnc.array.promote import broadcast_to_shape, to_dtype
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.commands import constants
from nnc.errors import ArgumentError, ShapeError, user_error
from nnc.errors.errors import check_choice
from nnc.numpy.creation import arange, linspace
from nnc.numpy.joining import concatenate, stack
from nnc.numpy.manipulation import reshape
from nnc.numpy.operands import check_not_inplace, static_int, to_shape, to_value, to_values
from nnc.numpy.searching import nonzero
from nnc.typing import ArrayLike, DTypeLike, No, Yes

__all__ = [
    "c_", "diag_indices", "diag_indices_from", "fill_diagonal", "index_exp", "indices", "ix_", "mask_indices", "meshgrid",
    "mgrid", "ogrid", "r_", "s_", "tril_indices", "tril_indices_from", "triu_indices", "triu_indices_from",
]  # fmt: skip


@spelled
def meshgrid(*arrays: ArrayLike, indexing: str = "xy", sparse: bool = False) -> list[Array]:
    """Returns, for each vector, an array that holds it along one axis and is constant along the others'.

    Args:
        *arrays: vectors.
        indexing: "ij": vector i runs along axis i; "xy": the first two are swapped, as in a picture.
        sparse: the other axes have size 1.

    Example:
        >>> [g.shape for g in meshgrid(np.ones(2), np.ones(3))]
        [(3, 2), (3, 2)]
    """
    check_choice("meshgrid", "indexing", indexing, ("xy", "ij"))
    values = [to_value(x, "meshgrid", f"array {i}") for i, x in enumerate(arrays)]
    for i, x in enumerate(values):
        if x.spec.ndim > 1:
            problem = f"array {i} is no vector."
            fix = "flatten it first."
            raise user_error(ArgumentError, "meshgrid", problem, operands={f"array {i}": x.spec}, fix=fix)
    axes = list(range(len(values)))
    if indexing == "xy" and len(values) > 1:
        axes[:2] = [1, 0]
    sizes = [1] * len(values)
    for axis, x in zip(axes, values, strict=True):
        sizes[axis] = x.spec.size
    grids = []
    for axis, x in zip(axes, values, strict=True):
        grid = reshape(x, tuple(n if i == axis else 1 for i, n in enumerate(sizes)))
        grids.append(grid if sparse else broadcast_to_shape(grid, tuple(sizes)))
    return grids


@overload
def indices(dimensions: ArrayLike, dtype: DTypeLike | None = None, sparse: No = False) -> Array: ...
@overload
def indices(dimensions: ArrayLike, dtype: DTypeLike | None = None, *, sparse: Yes) -> tuple[Array, ...]: ...
@spelled
def indices(dimensions: ArrayLike, dtype: DTypeLike | None = None, sparse: bool = False) -> Any:
    """Returns the index of each element of an array of shape `dimensions`: one grid for each axis, stacked (or, sparse, a tuple).

    Args:
        dimensions: an integer for each axis.
        dtype: int64 by default.
        sparse: leave the other axes of each grid at size 1.

    Example:
        >>> indices((2, 2))[1]
        Array([[0, 1],
               [0, 1]], dtype=int64)
    """
    shape = to_shape(dimensions, "indices")
    wanted = dtypes.DEFAULT_INT if dtype is None else to_dtype(dtype, "indices")
    if sparse:
        return tuple(
            constants.iota(shape=tuple(n if i == axis else 1 for i, n in enumerate(shape)), dtype=wanted, axis=axis)
            for axis, n in enumerate(shape)
        )
    grids = [constants.iota(shape=shape, dtype=wanted, axis=axis) for axis in range(len(shape))]
    return stack(grids) if grids else constants.full(shape=(0,), dtype=wanted, value=0)


@spelled
def ix_(*args: Any) -> tuple[Array, ...]:
    """Returns index arrays that select the rows, columns, … named by vectors of integers or bools.

    Args:
        *args: a vector of integers or bools for each axis.

    Raises:
        ShapeError: an argument is no vector.

    Example:
        >>> np.arange(6).reshape(2, 3)[ix_([0, 1], [2, 0])]
        array([[2, 0],
               [5, 3]])
    """
    found = []
    for i, arg in enumerate(args):
        x = to_value(arg, "ix_", f"argument {i}")
        if x.spec.ndim != 1:
            problem = f"argument {i} is no vector."
            raise user_error(ShapeError, "ix_", problem, operands={"x": x.spec}, fix="flatten it first.")
        if dtypes.is_bool(x.spec.dtype):
            (x,) = nonzero(x)
        if not x.spec.size:
            x = x.astype(dtypes.DEFAULT_INT)
        found.append(reshape(x, tuple(-1 if j == i else 1 for j in range(len(args)))))
    return tuple(found)


# -- triangles and diagonals -------------------------------------------------------------------------------------------


@spelled
def tril_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Array, Array]:
    """Returns the rows and columns of the elements on and below the diagonal `k` of an n by m matrix.

    Args:
        n: number of rows.
        k: number of the diagonal; 0 is the main one, positive ones lie above it.
        m: number of columns; `n` by default.

    Example:
        >>> tril_indices(2)
        (Array([0, 1, 1], dtype=int64), Array([0, 0, 1], dtype=int64))
    """
    return _triangle_indices("tril_indices", np.tril_indices, n, k, m)


@spelled
def triu_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Array, Array]:
    """Returns the rows and columns of the elements on and above the diagonal `k` of an n by m matrix.

    Args:
        n: number of rows.
        k: number of the diagonal; 0 is the main one, positive ones lie above it.
        m: number of columns; `n` by default.

    Example:
        >>> triu_indices(2)
        (Array([0, 0, 1], dtype=int64), Array([0, 1, 1], dtype=int64))
    """
    return _triangle_indices("triu_indices", np.triu_indices, n, k, m)


def _triangle_indices(where: str, function: Callable[..., Any], n: Any, k: Any, m: Any) -> tuple[Any, ...]:
    (rows,) = to_shape(n, where)
    (columns,) = (rows,) if m is None else to_shape(m, where)
    return tuple(as_value(i) for i in function(rows, static_int(k, where, "k"), columns))


@spelled
def tril_indices_from(x: ArrayLike, k: int = 0) -> tuple[Array, Array]:
    """Returns the rows and columns of the elements of the matrix `x` on and below its diagonal `k`.

    Args:
        x: (m, n).
        k: number of the diagonal; 0 is the main one, positive ones lie above it.

    Example:
        >>> tril_indices_from(nnp.ones((2, 2)))
        (Array([0, 1, 1], dtype=int64), Array([0, 0, 1], dtype=int64))
    """
    n, m = _matrix_shape("tril_indices_from", x)
    return tril_indices(n, k, m)


@spelled
def triu_indices_from(x: ArrayLike, k: int = 0) -> tuple[Array, Array]:
    """Returns the rows and columns of the elements of the matrix `x` on and above its diagonal `k`.

    Args:
        x: (m, n).
        k: number of the diagonal; 0 is the main one, positive ones lie above it.

    Example:
        >>> triu_indices_from(nnp.ones((2, 2)))
        (Array([0, 0, 1], dtype=int64), Array([0, 1, 1], dtype=int64))
    """
    n, m = _matrix_shape("triu_indices_from", x)
    return triu_indices(n, k, m)


def _matrix_shape(where: str, x: Any) -> tuple[int, ...]:
    spec = to_value(x, where).spec
    if spec.ndim != 2:
        raise user_error(ShapeError, where, "x must be a matrix.", operands={"x": spec}, fix="pass two axes.")
    shape: tuple[int, ...] = spec.shape
    return shape


@spelled
def mask_indices(n: int, mask_func: Callable[..., Any], k: ArrayLike = 0) -> tuple[Array, ...]:
    """Returns the indices of the elements of an n by n matrix that `mask_func(matrix, k)`, such as `triu`, leaves other than 0.

    Args:
        n: number of rows and columns.
        mask_func: function of a matrix and `k`.
        k: handed to `mask_func`.

    Example:
        >>> mask_indices(2, nnp.triu)
        (Array([0, 0, 1], dtype=int64), Array([0, 1, 1], dtype=int64))
    """
    return nonzero(
        mask_func(constants.full(shape=to_shape((n, n), "mask_indices"), dtype=dtypes.DEFAULT_INT, value=1), k)
    )


@spelled
def diag_indices(n: int, ndim: int = 2) -> tuple[Array, ...]:
    """Returns the indices of the diagonal of an array with `ndim` axes of size `n`.

    Args:
        n: size of each axis.
        ndim: number of axes.

    Example:
        >>> diag_indices(3)
        (Array([0, 1, 2], dtype=int64), Array([0, 1, 2], dtype=int64))
    """
    return (arange(n),) * static_int(ndim, "diag_indices", "ndim")


@spelled
def diag_indices_from(x: ArrayLike) -> tuple[Array, ...]:
    """Returns the indices of the diagonal of `x`, whose axes have one size.

    Args:
        x: at least two axes, all of one size.

    Example:
        >>> diag_indices_from(nnp.ones((3, 3)))
        (Array([0, 1, 2], dtype=int64), Array([0, 1, 2], dtype=int64))
    """
    shape = to_value(x, "diag_indices_from").spec.shape
    if len(shape) < 2 or len(set(shape)) > 1:
        problem = f"x has shape {shape}."
        raise user_error(ShapeError, "diag_indices_from", problem, fix="pass at least two axes, all of one size.")
    return diag_indices(shape[0], len(shape))


@spelled
def fill_diagonal(x: ArrayLike, val: ArrayLike, wrap: bool = False, *, inplace: bool = False) -> Array:
    """Returns `x` with `val` on its diagonal (NumPy writes into x instead).

    Args:
        x: at least two axes; of one size where they are more.
        val: a number, or values that are repeated along the diagonal.
        wrap: in matrices with more rows than columns the diagonal begins anew after each block.
        inplace: must be False, as arrays are immutable.

    Raises:
        ShapeError: x has fewer than two axes, or more of unequal sizes.
        ArgumentError: inplace=True.

    Example:
        >>> fill_diagonal(np.zeros((2, 2)), 5.0)
        Array([[5., 0.],
               [0., 5.]], dtype=float64)
    """
    x, values = to_values("fill_diagonal", x=x, val=val)
    shape = x.spec.shape
    check_not_inplace(inplace, "fill_diagonal")
    if len(shape) < 2 or (len(shape) > 2 and len(set(shape)) > 1):
        problem = f"x has shape {shape}."
        raise user_error(ShapeError, "fill_diagonal", problem, fix="pass a matrix, or more axes, all of one size.")
    step = shape[1] + 1 if len(shape) == 2 else 1 + int(np.cumprod(shape[:-1]).sum())
    stop = None if wrap or len(shape) > 2 else shape[1] * shape[1]
    places = np.arange(x.spec.size)[:stop:step]
    if values.spec.ndim:
        values = values.ravel()[np.arange(places.size) % values.spec.size]
    return reshape(x.ravel().at[places].set(values), shape)


# -- slices as arrays --------------------------------------------------------------------------------------------------


def _range_of(part: slice) -> Array:
    """start:stop:step as a range, or with an imaginary step as so many numbers from start to stop."""
    start = 0 if part.start is None else part.start
    if isinstance(part.step, complex):
        return linspace(start, part.stop, int(abs(part.step)))
    return arange(start, part.stop, 1 if part.step is None else part.step)


class _MeshGrid:
    """Makes grids of slices: stacked (`mgrid`) or, `sparse`, one array for each axis (`ogrid`)."""

    def __init__(self, sparse: bool) -> None:
        self.sparse = sparse

    def __getitem__(self, key: Any) -> Any:
        if not isinstance(key, tuple):
            return _range_of(key)
        grids = meshgrid(*(_range_of(part) for part in key), indexing="ij", sparse=self.sparse)
        return tuple(grids) if self.sparse else stack(grids)


class _Joined:
    """Joins slices, numbers and arrays along the first axis (`r_`), or vectors as columns along the last one (`c_`)."""

    def __init__(self, columns: bool) -> None:
        self.columns = columns

    def __getitem__(self, key: Any) -> Array:
        where = "c_" if self.columns else "r_"
        ranges = [
            _range_of(part) if isinstance(part, slice) else part for part in (key if isinstance(key, tuple) else (key,))
        ]
        for part in ranges:
            if isinstance(part, str):
                fix = "use nnp.concatenate or nnp.stack for another axis."
                raise user_error(ArgumentError, where, f"the directive {part!r} is unknown.", fix=fix)
        parts = []
        for x in to_values(where, **{f"part {i}": part for i, part in enumerate(ranges)}):
            x = x if x.spec.ndim else x.reshape(1)
            parts.append(x.reshape(-1, 1) if self.columns and x.spec.ndim == 1 else x)
        return concatenate(parts, -1 if self.columns else 0)


mgrid = _MeshGrid(sparse=False)
"""Grids of slices, stacked: start:stop:step, or with an imaginary step so many numbers from start to stop.

Example:
    >>> nnp.mgrid[0:2, 0:3]
    Array([[[0, 0, 0],
            [1, 1, 1]],
           [[0, 1, 2],
            [0, 1, 2]]], dtype=int64)
"""
ogrid = _MeshGrid(sparse=True)
"""Grids of slices, one array for each axis, which broadcast together.

Example:
    >>> nnp.ogrid[0:2, 0:1:3j]
    (Array([[0],
           [1]], dtype=int64), Array([[0. , 0.5, 1. ]], dtype=float32))
"""
r_ = _Joined(columns=False)
"""Slices, numbers and arrays, joined along the first axis.

Example:
    >>> nnp.r_[0:3, 7, nnp.asarray([5, 6])]
    Array([0, 1, 2, 7, 5, 6], dtype=int64)
"""
c_ = _Joined(columns=True)
"""Vectors as columns, and matrices, joined along the last axis.

Example:
    >>> nnp.c_[0:2, nnp.asarray([5, 6])]
    Array([[0, 5],
           [1, 6]], dtype=int64)
"""
s_ = np.s_
index_exp = np.index_exp
