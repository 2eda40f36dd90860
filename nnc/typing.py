"""Types for annotations: arguments that stand for an array, a number or a dtype.

`nnc.Array` is the static type of every value, also where a function is traced: tracers have the operators and methods of arrays,
so that a function annotated with `nnc.Array` type-checks once for all transforms. Python's types cannot say "the same tree with
other leaves"; where that is the result, it is an `object`, which a checker lets nobody use before it is narrowed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import EllipsisType
from typing import Concatenate, Literal, ParamSpec, Protocol, TypedDict, TypeVar, TypeVarTuple

import numpy as np

from nnc import dtypes
from nnc.array import Array

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
    """Nested lists or tuples of leaves; unlike `Sequence` no string is one."""

    def __len__(self, /) -> int:
        """The number of items."""

    def __getitem__(self, index: int, /) -> T_co | Nested[T_co]:
        """One item."""

    def __contains__(self, item: object, /) -> bool:
        """Whether there is an equal item."""

    def __iter__(self, /) -> Iterator[T_co | Nested[T_co]]:
        """The items in order."""


class ForeignArray(Protocol):
    """An array of another library that shares its memory by DLPack: PyTorch's, JAX's, CuPy's."""

    def __dlpack_device__(self) -> tuple[int, int]:
        """The device of the memory."""


NumPyArray = np.ndarray[tuple[int, ...], np.dtype[np.generic]]


class Convertible(Protocol):
    """An object that NumPy makes an array of: a series or a table of pandas."""

    def __array__(self) -> NumPyArray:
        """The elements as a NumPy array."""


Leaf = Array | NumPyArray | np.generic | complex  # complex stands for bool, int and float, too
ArrayLike = Leaf | ForeignArray | Convertible | Nested[Leaf]
DTypeLike = str | type | np.dtype[np.generic] | dtypes.NamedDType
Axis = int | Sequence[int] | None
Shape = tuple[int, ...]
ShapeLike = int | Sequence[int]
Place = int | slice | EllipsisType | None | Array | NumPyArray | np.integer | np.bool | Sequence[int] | Sequence[bool]
Index = Place | tuple[Place, ...]


class Kinds(TypedDict, total=False):
    """Options that leave the type of a gradient as it is."""

    holomorphic: bool
    allow_int: bool


class Jacobians(TypedDict, total=False):
    """Options that leave the type of a Jacobian as it is."""

    holomorphic: bool
    chunk_size: int | None


First = Callable[Concatenate[A, P], R]  # a function, by its first argument, the others and its result
Second = Callable[Concatenate[X, A, P], R]
Zero = Literal[0]
No = Literal[False]
Yes = Literal[True]


def __dir__() -> list[str]:
    return sorted(__all__)
