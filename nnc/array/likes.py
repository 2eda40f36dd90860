"""The types of arguments that functions take for an array, a dtype or an index."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import EllipsisType
from typing import Protocol, TypeVar

import numpy as np

from nnc.array.array import Array
from nnc.base import dtypes

T_co = TypeVar("T_co", covariant=True)


class Nested(Protocol[T_co]):
    """Nested lists or tuples of leaves; unlike `Sequence` no string is one.

    Example:
        >>> rows: Nested[int] = [[1, 2], [3, 4]]
        >>> nnp.asarray(rows).shape
        (2, 2)
    """

    def __len__(self, /) -> int:
        """The number of items."""

    def __getitem__(self, index: int, /) -> T_co | Nested[T_co]:
        """One item."""

    def __contains__(self, item: object, /) -> bool:
        """Whether there is an equal item."""

    def __iter__(self, /) -> Iterator[T_co | Nested[T_co]]:
        """The items in order."""


class ForeignArray(Protocol):
    """An array of another library that shares its memory by DLPack: PyTorch's, JAX's, CuPy's.

    Example:
        >>> x: ForeignArray = np.ones(2)
        >>> nnp.asarray(x)
        Array([1., 1.], dtype=float64)
    """

    def __dlpack_device__(self) -> tuple[int, int]:
        """The device of the memory."""


NumPyArray = np.ndarray[tuple[int, ...], np.dtype[np.generic]]


class Convertible(Protocol):
    """An object that NumPy makes an array of: a series or a table of pandas.

    Example:
        >>> class Two:
        ...     def __array__(self, dtype=None, copy=None):
        ...         return np.ones(2)
        >>> x: Convertible = Two()
        >>> nnp.asarray(x)
        Array([1., 1.], dtype=float64)
    """

    def __array__(self) -> NumPyArray:
        """The elements as a NumPy array."""


Leaf = Array | NumPyArray | np.generic | complex
"""An array or a number: `complex` stands for bool, int and float, too.

Example:
    >>> x: Leaf = 2.5
    >>> nnp.asarray(x)
    Array(2.5, dtype=float32)
"""
ArrayLike = Leaf | ForeignArray | Convertible | Nested[Leaf]
"""All that functions take for an array.

Example:
    >>> def double(x: ArrayLike) -> nnc.Array:
    ...     return nnp.asarray(x) * 2
    >>> double([1, 2])
    Array([2, 4], dtype=int64)
"""
DTypeLike = str | type | np.dtype[np.generic] | dtypes.NamedDType
"""All that functions take for a dtype.

Example:
    >>> dtype: DTypeLike = "bfloat16"
    >>> nnp.zeros(2, dtype)
    Array([0., 0.], dtype=bfloat16)
"""
Place = int | slice | EllipsisType | None | Array | NumPyArray | np.integer | np.bool | Sequence[int] | Sequence[bool]
Index = Place | tuple[Place, ...]
"""An index of an array: one for the first axis, or one for each of several.

Example:
    >>> index: Index = (slice(1, 3), ..., 0)
    >>> nnp.ones((4, 5, 6))[index].shape
    (2, 5)
"""
