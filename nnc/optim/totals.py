"""Numbers that all leaves of a tree share: sums over their elements, rates, and the dtype in which those are kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import nnc.numpy as nnp
from nnc import tree
from nnc.array.array import Array, asarray
from nnc.array.promote import as_operand, astype, result_dtype
from nnc.base import dtypes
from nnc.optim.arguments import Scalar, is_trainable
from nnc.optim.base import make_state, map_trainable, number, scalar, widen
from nnc.optim.clipping import squared_magnitude
from nnc.optim.schedules import Schedule


def joint_dtype(values: Any) -> dtypes.DType:
    """Returns the real dtype to which all trainable leaves promote; float32 for 16-bit floats, and for a tree without any."""
    leaves = [asarray(x) for x in tree.leaves(values) if is_trainable(x)]
    if not leaves:
        return dtypes.float32
    return dtypes.real_dtype(dtypes.accumulator(result_dtype(*leaves, where="joint_dtype")))


def shared(value: Scalar, params: Any) -> Array:
    """Returns a number as a 0-d array, in the dtype that all trainable leaves share."""
    return asarray(value, joint_dtype(params))


def total(where: str, function: Callable[..., Array], name: str, first: Any, **others: Any) -> Array:
    """Returns the sum of all elements of `function(leaf, leaves beside it in the other trees)`, a 0-d array of
    `joint_dtype(first)`.
    """
    dtype = joint_dtype(first)
    sums = map_trainable(where, lambda *xs: astype(nnp.sum(function(*xs)), dtype), name, first, **others)
    parts = [part for part, x in zip(tree.leaves(sums), tree.leaves(first), strict=True) if is_trainable(x)]
    result = asarray(np.zeros((), dtype))
    for i, part in enumerate(parts):
        result = part if i == 0 else result + part
    return result


def squared_norm(where: str, values: Any) -> Array:
    """Returns the sum of |x|² over all trainable leaves."""
    return total(where, lambda x: squared_magnitude(widen(x)), "updates", values)


def magnitudes(where: str, values: Any) -> Array:
    """Returns the sum of |x| over all trainable leaves."""
    return total(where, lambda x: nnp.abs(widen(x)), "updates", values)


def inner_product(where: str, name: str, first: Any, **second: Any) -> Array:
    """Returns the real part of the sum of conj(x) · y over all trainable leaves of two trees."""

    def product(x: Array, y: Any) -> Array:
        wide = widen(x)
        terms = nnp.conj(wide) * astype(as_operand(y), wide.dtype)
        return terms.real if dtypes.is_complex(terms.dtype) else terms

    return total(where, product, name, first, **second)


def broadcast_like(values: Any, numbers: Any) -> Any:
    """Returns a tree like `values`, whose trainable leaves are the numbers beside them, in the shape of the leaf."""
    leaves = [
        nnp.broadcast_to(n, asarray(x).shape) if is_trainable(x) else x
        for x, n in zip(tree.leaves(values), tree.leaves(numbers), strict=True)
    ]
    return tree.unflatten_like(values, leaves)


def rate_at(learning_rate: Scalar | Schedule, count: Any, dtype: dtypes.DType) -> Any:
    """Returns a hyperparameter or the value of its schedule, as a factor that does not change `dtype`."""
    return number(scalar(learning_rate(count)) if callable(learning_rate) else learning_rate, dtype)


def copies(where: str, params: Any, *, wide: bool = False) -> Any:
    """Returns the parameters in buffers of their own, so that state and parameters may be donated together."""
    return make_state(where, lambda p: nnp.copy(widen(p) if wide else p), params)
