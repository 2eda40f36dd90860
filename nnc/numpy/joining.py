"""Functions that join arrays and split them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeGuard

import numpy as np

from nnc.array.array import Array
from nnc.array.promote import promote, to_dtype
from nnc.calls.specialise import specialised
from nnc.calls.spelling import spelled
from nnc.commands import shape as commands
from nnc.commands.shape import slice_axis
from nnc.device.dlpack import is_foreign
from nnc.errors import ArgumentError, ArgumentTypeError, ShapeError, user_error
from nnc.numpy.manipulation import atleast_1d, atleast_2d, atleast_3d, expand_dims, ravel, reshape, squeeze
from nnc.numpy.operands import static_int, to_axis, to_value, to_values
from nnc.typing import ArrayLike, DTypeLike

__all__ = [
    "append", "array_split", "block", "column_stack", "concat", "concatenate", "dsplit", "dstack", "hsplit", "hstack", "split",
    "stack", "unstack", "vsplit", "vstack",
]  # fmt: skip

# -- joins -------------------------------------------------------------------------------------------------------------


def _several(arrays: Any, where: str, dtype: Any = None) -> list[Array]:
    """Converts the arrays to their common dtype, or to the given dtype."""
    if hasattr(arrays, "spec") or isinstance(arrays, np.ndarray) or is_foreign(type(arrays)):
        arrays = list(to_value(arrays, where))
    if not isinstance(arrays, (tuple, list)):
        problem = f"the arrays are given as {type(arrays).__name__}, not as a sequence."
        raise user_error(ArgumentTypeError, where, problem, fix=f"write {where}([x, y]).")
    if not arrays:
        raise user_error(ArgumentError, where, "there is nothing to join.", fix="pass at least one array.")
    wanted = None if dtype is None else to_dtype(dtype, where)
    return promote(*arrays, where=where, to=None if wanted is None else lambda _: wanted)


@specialised(1)
def concatenate(arrays: Sequence[ArrayLike], axis: int | None = 0, dtype: DTypeLike | None = None) -> Array:
    """Returns the arrays joined along `axis`.

    Args:
        arrays: a sequence of arrays of one shape but for that axis; dtypes are promoted.
        axis: None flattens them first.
        dtype: dtype of the result; the promoted one by default.

    Raises:
        ShapeError: shapes differ elsewhere.
        ArgumentError: there is no array.

    Example:
        >>> concatenate([np.zeros((2, 3)), np.zeros((1, 3))]).shape
        (3, 3)
    """
    values = _several(arrays, "concatenate", dtype)
    if axis is None:
        values, axis = [ravel(x) for x in values], 0
    if np.ndim(values[0]) == 0:
        static_int(axis, "concatenate", "axis")  # for example, a second array
        raise user_error(ShapeError, "concatenate", "0-d arrays have no axis to join.", fix="use stack, or axis=None.")
    return commands.concatenate(*values, axis=to_axis("concatenate", axis, np.ndim(values[0])))


concat = concatenate


@specialised(1)
def stack(arrays: Sequence[ArrayLike], axis: int = 0, dtype: DTypeLike | None = None) -> Array:
    """Returns the arrays, all of one shape, joined along a new axis.

    Args:
        arrays: a sequence of arrays of one shape.
        axis: where the new axis stands in the result.
        dtype: dtype of the result; the promoted one by default.

    Raises:
        ShapeError: shapes differ.

    Example:
        >>> stack([np.zeros(3), np.ones(3)], axis=-1).shape
        (3, 2)
    """
    values = _several(arrays, "stack", dtype)
    shapes = [np.shape(x) for x in values]
    if any(shape != shapes[0] for shape in shapes):
        problem = f"shapes differ: {', '.join(map(str, shapes))}."
        raise user_error(ShapeError, "stack", problem, fix="give all arrays one shape, or use concatenate.")
    at = to_axis("stack", axis, len(shapes[0]) + 1)
    return concatenate([expand_dims(x, at) for x in values], at)


@spelled
def hstack(arrays: Sequence[ArrayLike]) -> Array:
    """Returns the arrays joined side by side: along axis 1, vectors along axis 0.

    Args:
        arrays: a sequence of arrays whose shapes agree elsewhere.

    Example:
        >>> nnp.hstack([nnp.zeros(1), nnp.ones(2)])
        Array([0., 1., 1.], dtype=float32)
    """
    values = [atleast_1d(x) for x in _several(arrays, "hstack")]
    return concatenate(values, 0 if values[0].spec.ndim == 1 else 1)


@spelled
def vstack(arrays: Sequence[ArrayLike]) -> Array:
    """Returns the arrays joined one below the other, vectors as rows.

    Args:
        arrays: a sequence of arrays whose shapes agree elsewhere.

    Example:
        >>> nnp.vstack([nnp.zeros(2), nnp.ones(2)])
        Array([[0., 0.],
               [1., 1.]], dtype=float32)
    """
    return concatenate([atleast_2d(x) for x in _several(arrays, "vstack")])


@spelled
def dstack(arrays: Sequence[ArrayLike]) -> Array:
    """Returns the arrays joined along the third axis.

    Args:
        arrays: a sequence of arrays whose shapes agree elsewhere.

    Example:
        >>> nnp.dstack([nnp.zeros(2), nnp.ones(2)])
        Array([[[0., 1.],
                [0., 1.]]], dtype=float32)
    """
    return concatenate([atleast_3d(x) for x in _several(arrays, "dstack")], 2)


@spelled
def column_stack(arrays: Sequence[ArrayLike]) -> Array:
    """Returns the arrays joined side by side, vectors as columns.

    Args:
        arrays: a sequence of arrays whose shapes agree elsewhere.

    Example:
        >>> nnp.column_stack([nnp.zeros(2), nnp.ones(2)])
        Array([[0., 1.],
               [0., 1.]], dtype=float32)
    """
    return concatenate([x if np.ndim(x) > 1 else reshape(x, (-1, 1)) for x in _several(arrays, "column_stack")], 1)


@spelled
def append(x: ArrayLike, values: ArrayLike, axis: int | None = None) -> Array:
    """Returns `x` with `values` joined at its end; both flattened where `axis` is None.

    Args:
        x: any shape.
        values: as many axes as `x`; other sizes may differ along `axis` alone.
        axis: axis to join along; None flattens both.

    Example:
        >>> append(nnp.asarray([1, 2]), 3)
        Array([1, 2, 3], dtype=int64)
    """
    return concatenate([x, values], axis)


@spelled
def block(arrays: Sequence[ArrayLike]) -> Array:
    """Returns a matrix put together of blocks: inner lists are joined along the last axis, outer ones along the axes before.

    Args:
        arrays: nested lists of arrays.

    Example:
        >>> block([[nnp.eye(2), nnp.ones((2, 1))]])
        Array([[1., 0., 1.],
               [0., 1., 1.]], dtype=float32)
    """
    depth, probe = 0, arrays
    while isinstance(probe, list):
        if not probe:
            raise user_error(ArgumentError, "block", "a list of blocks is empty.", fix="give at least one block.")
        depth, probe = depth + 1, probe[0]

    blocks = iter(to_values("block", **{f"block {i}": part for i, part in enumerate(_parts_of(arrays))}))

    def join(part: Any, axis: int) -> Array:
        if isinstance(part, list):
            return concatenate([join(p, axis + 1) for p in part], axis)
        x = next(blocks)
        return x if x.spec.ndim >= depth else commands.reshape(x, shape=(1,) * (depth - x.spec.ndim) + x.spec.shape)

    return join(arrays, -depth) if depth else to_value(arrays, "block")


def _parts_of(part: Any) -> Iterator[Any]:
    """The blocks of nested lists, in their order."""
    if isinstance(part, list):
        for inner in part:
            yield from _parts_of(inner)
    else:
        yield part


# -- splits ------------------------------------------------------------------------------------------------------------


@spelled
def split(x: ArrayLike, indices_or_sections: ArrayLike, axis: int = 0) -> list[Array]:
    """Returns parts of `x` along `axis`.

    Args:
        x: any shape.
        indices_or_sections: how many equal parts, or where to cut.
        axis: axis to cut.

    Raises:
        ShapeError: the axis has no equal parts.

    Example:
        >>> [part.shape for part in split(np.ones(6), [1, 3])]
        [(1,), (2,), (3,)]
    """
    x = to_value(x, "split")
    at = to_axis("split", axis, x.spec.ndim)
    n = x.spec.shape[at]
    if not _is_sequence(indices_or_sections):
        parts = static_int(indices_or_sections, "split", "indices_or_sections")
        if parts < 1 or n % parts:
            problem = f"axis {at} of size {n} has no {parts} equal parts."
            fix = "use array_split for unequal parts, or give the places to cut."
            raise user_error(ShapeError, "split", problem, operands={"x": x.spec}, fix=fix)
    return array_split(x, indices_or_sections, at)


def _is_sequence(x: Any) -> TypeGuard[Sequence[Any]]:
    return isinstance(x, (tuple, list)) or bool(np.ndim(x) if isinstance(x, np.ndarray) else getattr(x, "ndim", 0))


@spelled
def array_split(x: ArrayLike, indices_or_sections: ArrayLike, axis: int = 0) -> list[Array]:
    """Returns parts of `x` along `axis`, whose sizes may differ by one; see `split`.

    Args:
        x: any shape.
        indices_or_sections: how many parts, or where to cut.
        axis: axis to cut.

    Example:
        >>> array_split(nnp.arange(5), 2)
        [Array([0, 1, 2], dtype=int64), Array([3, 4], dtype=int64)]
    """
    x = to_value(x, "array_split")
    at = to_axis("array_split", axis, x.spec.ndim)
    n = x.spec.shape[at]
    if _is_sequence(indices_or_sections):
        cuts = [static_int(i, "split", "indices_or_sections") for i in indices_or_sections]
        cuts = [min(n, i if i >= 0 else max(0, i + n)) for i in cuts]
    else:
        parts = static_int(indices_or_sections, "array_split", "indices_or_sections")
        if parts < 1:
            problem = f"{parts} is no number of parts."
            raise user_error(ArgumentError, "array_split", problem, fix="ask for at least one part.")
        small, larger = divmod(n, parts)
        cuts = [i * small + min(i, larger) for i in range(1, parts)]
    return [slice_axis(x, at, a, max(a, b)) for a, b in zip([0, *cuts], [*cuts, n], strict=True)]


@spelled
def hsplit(x: ArrayLike, indices_or_sections: ArrayLike) -> list[Array]:
    """Returns parts along axis 1, of vectors along axis 0.

    Args:
        x: any shape.
        indices_or_sections: how many equal parts, or where to cut.

    Example:
        >>> [part.shape for part in hsplit(nnp.ones((2, 4)), 2)]
        [(2, 2), (2, 2)]
    """
    return split(x, indices_or_sections, 0 if np.ndim(to_value(x, "hsplit")) == 1 else 1)


@spelled
def vsplit(x: ArrayLike, indices_or_sections: ArrayLike) -> list[Array]:
    """Returns parts along axis 0.

    Args:
        x: any shape.
        indices_or_sections: how many equal parts, or where to cut.

    Example:
        >>> [part.shape for part in vsplit(nnp.ones((4, 2)), 2)]
        [(2, 2), (2, 2)]
    """
    return split(x, indices_or_sections, 0)


@spelled
def dsplit(x: ArrayLike, indices_or_sections: ArrayLike) -> list[Array]:
    """Returns parts along axis 2.

    Args:
        x: any shape.
        indices_or_sections: how many equal parts, or where to cut.

    Example:
        >>> [part.shape for part in dsplit(nnp.ones((2, 3, 4)), 2)]
        [(2, 3, 2), (2, 3, 2)]
    """
    return split(x, indices_or_sections, 2)


@spelled
def unstack(x: ArrayLike, /, *, axis: int = 0) -> tuple[Array, ...]:
    """Returns the slices of `x` along `axis`, without that axis.

    Args:
        x: any shape.
        axis: axis that goes.

    Example:
        >>> [part.shape for part in unstack(np.ones((2, 3)))]
        [(3,), (3,)]
    """
    x = to_value(x, "unstack")
    at = to_axis("unstack", axis, x.spec.ndim)
    return tuple(squeeze(slice_axis(x, at, i, i + 1), axis=at) for i in range(x.spec.shape[at]))
