"""Codes of vectors: the nearest entries of a code book, which nnc.scipy.cluster.vq shows."""

from __future__ import annotations

from nnc.array.array import Array
from nnc.array.promote import astype, promote
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.errors import ShapeError, user_error
from nnc.numpy.linalg import vector_norm
from nnc.numpy.operands import to_value
from nnc.numpy.reductions import argmin
from nnc.numpy.reductions import sum as sum_
from nnc.numpy.searching import take
from nnc.trace.core.differentiate import stop_gradient
from nnc.typing import ArrayLike


@spelled
def vq(obs: ArrayLike, code_book: ArrayLike) -> tuple[Array, Array]:
    """Returns the number of the nearest entry of a code book, and the distance to it, for each vector.

    The distance is differentiated for the entry that is the nearest. Time and memory are O(m k n).

    Args:
        obs: (m, n) vectors; or (m,) numbers.
        code_book: (k, n), or (k,) beside numbers, k ≥ 1.

    Returns:
        (m,) int32, and (m,), dtype of the operands; integers become float32.

    Raises:
        ShapeError: the shapes do not fit, or the code book is empty.

    Example:
        >>> vq(np.asarray([[1.0, 1.0], [4.0, 7.0]]), np.asarray([[1.0, 2.0], [4.0, 4.0]]))
        (Array([0, 1], dtype=int32), Array([1., 3.], dtype=float64))
    """
    obs, code_book = promote(obs, code_book, where="vq", to=dtypes.to_float)
    x, codes = to_value(obs, "vq", "obs"), to_value(code_book, "vq", "code_book")
    shapes = x.spec.shape, codes.spec.shape
    if (
        len(shapes[0]) not in (1, 2)
        or len(shapes[0]) != len(shapes[1])
        or shapes[0][1:] != shapes[1][1:]
        or not shapes[1][0]
    ):
        problem = "obs and code_book must be vectors of one size, or numbers."
        fix = "pass (m, n) and (k, n), or (m,) and (k,), with k ≥ 1."
        raise user_error(ShapeError, "vq", problem, operands={"obs": x.spec, "code_book": codes.spec}, fix=fix)
    if x.spec.ndim == 1:
        x, codes = x[:, None], codes[:, None]
    apart = stop_gradient(x)[:, None] - stop_gradient(codes)
    nearest = argmin(sum_(apart**2, axis=-1), axis=-1)
    return astype(nearest, dtypes.int32), vector_norm(x - take(codes, nearest, axis=0), axis=-1)
