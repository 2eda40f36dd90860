"""Types for annotations: arguments that stand for an array, a number or a dtype.

`nnc.Array` is the static type of every value, also where a function is traced: tracers have the operators and methods of arrays,
so that a function annotated with `nnc.Array` type-checks once for all transforms. Python's types cannot say "the same tree with
other leaves"; where that is the result, it is an `object`, which a checker lets nobody use before it is narrowed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Concatenate, Literal, ParamSpec, TypedDict, TypeVar, TypeVarTuple, cast

from nnc.array.likes import ArrayLike, Convertible, DTypeLike, ForeignArray, Index, Leaf, Nested

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
