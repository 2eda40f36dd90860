"""Types for annotations: arguments that stand for an array, a number or a dtype.

`nnc.Array` is the static type of every value, also where a function is traced: tracers have the operators and methods of arrays,
so that a function annotated with `nnc.Array` type-checks once for all transforms. Python's types cannot say "the same tree with
other leaves"; where that is the result, it is an `object`, which a checker lets nobody use before it is narrowed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import EllipsisType
from typing import Concatenate, Literal, ParamSpec, Protocol, TypedDict, TypeVar, TypeVarTuple, cast

import numpy as np

from nnc.array.array import Array
from nnc.base import dtypes

__all__ = [
    "ArrayLike",
    "Axis",
    "Convertible",
    "DTypeLike",
    "ForeignArray",
    "Index",
    "Leaf",
    "Nested",
    "Shape",
    "ShapeLike",
]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

# for signatures of functions that take functions
A = TypeVar("A")  # an argument, a pytree
B = TypeVar("B")
C = TypeVar("C")  # the carry of a loop
X = TypeVar("X")
Y = TypeVar("Y")
R = TypeVar("R")  # a result
R_co = TypeVar("R_co", covariant=True)
S = TypeVar("S")
Aux = TypeVar("Aux")
P = ParamSpec("P")
Q = ParamSpec("Q")
Ts = TypeVarTuple("Ts")


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
Axis = int | Sequence[int] | None
"""Axes to reduce: one, several, or None for all.

Example:
    >>> axis: Axis = (0, 1)
    >>> nnp.sum(nnp.ones((2, 3)), axis=axis)
    Array(6., dtype=float32)
"""
Shape = tuple[int, ...]
"""The sizes of all axes.

Example:
    >>> shape: Shape = nnp.ones((2, 3)).shape
    >>> shape
    (2, 3)
"""
ShapeLike = int | Sequence[int]
"""A shape, or the size of the only axis.

Example:
    >>> shape: ShapeLike = 3
    >>> nnp.zeros(shape).shape
    (3,)
"""
Place = int | slice | EllipsisType | None | Array | NumPyArray | np.integer | np.bool | Sequence[int] | Sequence[bool]
Index = Place | tuple[Place, ...]
"""An index of an array: one for the first axis, or one for each of several.

Example:
    >>> index: Index = (slice(1, 3), ..., 0)
    >>> nnp.ones((4, 5, 6))[index].shape
    (2, 5)
"""


class Kinds(TypedDict, total=False):
    """Options that leave the type of a gradient as it is."""

    holomorphic: bool
    allow_int: bool


class Jacobians(TypedDict, total=False):
    """Options that leave the type of a Jacobian as it is."""

    holomorphic: bool
    chunk_size: int | None


def typed_like(function: T) -> Callable[[Callable[..., object]], T]:
    """Gives the decorated function the types of another one, overloads included."""
    return lambda decorated: cast(T, decorated)


First = Callable[Concatenate[A, P], R]  # a function, by its first argument, the others and its result
Second = Callable[Concatenate[X, A, P], R]
Zero = Literal[0]
No = Literal[False]
Yes = Literal[True]


def __dir__() -> list[str]:
    return sorted(__all__)
