"""Methods of arrays whose call differs from the function of that name, and methods of functions defined lower down."""

from __future__ import annotations

from typing import Any

import nnc.numpy
from nnc.array.array import Array
from nnc.array.operators import ArrayMethods, array_method
from nnc.errors import ArgumentError, user_error
from nnc.errors.tracebacks import api_boundary
from nnc.numpy import contractions, elementwise, manipulation, searching
from nnc.typing import ArrayLike

_API_VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12")


def _from_arguments(arguments: tuple[Any, ...]) -> Any:
    """x.reshape(2, 3) and x.reshape((2, 3)) mean the same."""
    return arguments[0] if len(arguments) == 1 and isinstance(arguments[0], (tuple, list)) else arguments


@array_method
def reshape(self: Any, *shape: ArrayLike, order: str = "C") -> Array:
    """Returns the elements in another shape; one size may be -1.

    Args:
        *shape: sizes, or one sequence of them; one size may be -1: the rest.
        order: "C" reads and fills the last axis first, "F" the first one.
    """
    return manipulation.reshape(self, _from_arguments(shape), order)


@array_method
def transpose(self: Any, *axes: ArrayLike) -> Array:
    """Returns the axes in another order; by default reversed.

    Args:
        *axes: each axis once, or one sequence of them; reversed by default.
    """
    order = _from_arguments(axes)
    return manipulation.transpose(self, None if order == () or order == (None,) else order)


@array_method
def flatten(self: Any, order: str = "C") -> Array:
    """Returns the elements in one axis.

    Args:
        order: "C": the last axis runs fastest; "F": the first.
    """
    return manipulation.ravel(self, order)


@array_method
def clip(self: Any, min: ArrayLike | None = None, max: ArrayLike | None = None) -> Array:
    """Limited to [min, max].

    Args:
        min: least value, a number or an array that broadcasts; None is no limit.
        max: greatest value, a number or an array that broadcasts; None is no limit.
    """
    return elementwise.clip(self, min, max)


@array_method
def round(self: Any, decimals: int = 0) -> Array:
    """Rounded to `decimals` places, halves to even.

    Args:
        decimals: number of places behind the point; negative ones round to tens, hundreds, ….
    """
    return elementwise.round(self, decimals)


@array_method
def conj(self: Any) -> Array:
    """Returns the complex conjugate."""
    return elementwise.conj(self)


@array_method
def conjugate(self: Any) -> Array:
    """Returns the complex conjugate."""
    return elementwise.conj(self)


@array_method
def compress(self: Any, condition: ArrayLike, axis: int | None = None) -> Array:
    """Returns the slices along `axis` for which `condition` is true.

    Args:
        condition: vector of bools, known while tracing.
        axis: axis to choose along; None flattens first.
    """
    return searching.compress(condition, self, axis)


@array_method
def tobytes(self: Any) -> bytes:
    """Returns the elements as bytes, where the value is known."""
    data: bytes = self.concrete("tobytes").tobytes()
    return data


@array_method
def dot(self: Any, other: ArrayLike) -> Array:
    """Returns the dot product with `other`.

    Args:
        other: any shape that `dot` takes.
    """
    return contractions.dot(self, other)


@api_boundary
def __array_namespace__(self: Any, *, api_version: str | None = None) -> Any:  # noqa: N807  (the standard's name)
    """`nnc.numpy`, for libraries that work with arrays of any kind.

    Args:
        api_version: the version of the Array API standard; None: any.
    """
    if api_version not in (None, *_API_VERSIONS):
        problem = f"nnc.numpy has no version {api_version!r} of the Array API standard."
        fix = f"ask for one of {', '.join(_API_VERSIONS)}, or for none."
        raise user_error(ArgumentError, "__array_namespace__", problem, fix=fix)
    return nnc.numpy


setattr(ArrayMethods, __array_namespace__.__name__, __array_namespace__)
