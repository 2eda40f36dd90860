"""The arrays of a pytree as one vector, and back."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from nnc.array.array import Array, asarray
from nnc.array.likes import ArrayLike
from nnc.array.promote import result_dtype
from nnc.base import dtypes
from nnc.commands.shape import concatenate
from nnc.errors import ArgumentTypeError, DTypeError, ShapeError, user_error
from nnc.errors.tracebacks import api_boundary
from nnc.tree.flattening import flatten_with_path, unflatten
from nnc.tree.registration import is_array

WHERE = "nnc.tree.ravel"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Unravel:
    """The function from a vector to a tree: equal for trees of one structure, shapes and dtypes, so it may be a static argument.

    Args:
        structure: the structure of the tree.
        shapes: the shapes of its leaves.
        kinds: dtypes of its leaves.
        dtype: the dtype of the vector where leaves have several; otherwise None, and leaves take the dtype of the vector.
    """

    structure: Any
    shapes: tuple[tuple[int, ...], ...]
    kinds: tuple[dtypes.DType, ...]
    dtype: dtypes.DType | None

    @api_boundary
    def __call__(self, vector: Any, /) -> Any:
        """Makes the tree of a vector.

        Raises:
            ShapeError: the vector has another length than the leaves together.
            DTypeError: leaves have several dtypes, and the vector another than they promote to.
        """
        sizes = [math.prod(shape) for shape in self.shapes]
        x = asarray(vector)
        if x.shape != (sum(sizes),):
            problem = f"the vector has shape {x.shape}, the leaves have {sum(sizes)} elements."
            fix = f"pass a vector of shape ({sum(sizes)},), as {WHERE} returns it."
            raise user_error(ShapeError, "unravel", problem, fix=fix)
        if self.dtype is not None and x.dtype != self.dtype:
            problem = f"the vector is {x.dtype.name}, {WHERE} made it as {self.dtype.name}."
            fix = f"convert it first: unravel(vector.astype({self.dtype.name!r}))."
            raise user_error(DTypeError, "unravel", problem, fix=fix)
        leaves, begin = [], 0
        for size, shape, kind in zip(sizes, self.shapes, self.kinds, strict=True):
            leaf = x[begin : begin + size].reshape(shape)
            leaves.append(leaf if self.dtype is None else _converted(leaf, kind))
            begin += size
        return unflatten(self.structure, leaves)


def _converted(x: Array, dtype: dtypes.DType) -> Array:
    """Returns a part of the vector in the dtype of its leaf; of complex numbers that a real leaf became, the real part."""
    is_narrower = dtypes.is_complex(x.dtype) and not dtypes.is_complex(dtype)
    return (x.real if is_narrower else x).astype(dtype)


@api_boundary
def ravel(tree: T) -> tuple[Array, Callable[[ArrayLike], T]]:
    """Joins all arrays of a tree into one vector, of the dtype that they promote to, and returns the way back.

    Args:
        tree: a pytree of arrays and numbers.

    Returns:
        the vector, (elements of all leaves,); and `unravel`, from such a vector to a tree of the same structure, shapes and dtypes.
        Where all leaves have one dtype, `unravel` takes vectors of any dtype, and leaves have the vector's.

    Raises:
        ArgumentTypeError: a leaf is no array and no number.

    Example:
        >>> vector, unravel = nnc.tree.ravel({"b": nnp.zeros(1), "w": nnp.ones((2, 2))})
        >>> vector
        Array([0., 1., 1., 1., 1.], dtype=float32)
        >>> unravel(vector * 2)["w"]
        Array([[2., 2.],
               [2., 2.]], dtype=float32)
    """
    pairs, structure = flatten_with_path(tree)
    for path, leaf in pairs:
        if not is_array(leaf):
            problem = f"the leaf at {path or 'the root'} is a {type(leaf).__name__}, not an array."
            fix = "part the tree first: nnc.nn.partition(tree) gives its floating-point arrays."
            raise user_error(ArgumentTypeError, WHERE, problem, fix=fix)
    arrays = [asarray(leaf) for _, leaf in pairs]
    kinds = tuple(x.dtype for x in arrays)
    dtype = result_dtype(*(np.empty((), kind) for kind in kinds), where=WHERE) if kinds else dtypes.DEFAULT_FLOAT
    unravel = Unravel(structure, tuple(x.shape for x in arrays), kinds, dtype if len(set(kinds)) > 1 else None)
    if not arrays:
        return asarray(np.empty(0, dtype)), unravel
    return concatenate(*[x.astype(dtype).ravel() for x in arrays], axis=0), unravel
