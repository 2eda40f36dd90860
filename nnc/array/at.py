"""`x.at[index].set(...)` and its kin: updates of immutable arrays, written as methods of a place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nnc.array.indexing import fit_values, getitem, set_at
from nnc.array.promote import broadcast_to_shape, is_weak, with_weakness
from nnc.base import dtypes
from nnc.commands.constants import full
from nnc.commands.elementwise import div, neg, select
from nnc.errors import ArgumentError, DTypeError, user_error
from nnc.errors.tracebacks import api_boundary
from nnc.graph import spec_of

if TYPE_CHECKING:
    from nnc.array.array import Array
    from nnc.array.likes import ArrayLike, Index


@dataclass(frozen=True, slots=True)
class AtIndexer:
    """`x.at`: index it to say which elements change."""

    array: Array

    def __getitem__(self, index: Index) -> AtPlace:
        return AtPlace(self.array, index)


@dataclass(frozen=True, slots=True)
class AtPlace:
    """`x.at[index]`: each method returns a new array. Repeated indices count each time (`set`: the last value stays).

    `mode` sets the treatment of an index out of range (see `getitem`, `set_at`). `unique_indices` promises that no element is
    indexed twice, `indices_are_sorted` that indices rise; a program may rely on promises.

    Example:
        >>> x = nnp.zeros(4)
        >>> x.at[1].set(5).at[nnp.asarray([0, 0])].add(1)
        Array([2., 5., 0., 0.], dtype=float32)
    """

    array: Array
    index: Index

    @api_boundary
    def set(
        self, values: ArrayLike, *, mode: str = "error", unique_indices: bool = False, indices_are_sorted: bool = False
    ) -> Array:
        """`x[index] = values`."""
        return set_at(self.array, self.index, values, "set", mode, unique_indices)

    @api_boundary
    def add(
        self, values: ArrayLike, *, mode: str = "error", unique_indices: bool = False, indices_are_sorted: bool = False
    ) -> Array:
        """`x[index] += values`."""
        return set_at(self.array, self.index, values, "add", mode, unique_indices)

    @api_boundary
    def subtract(
        self, values: ArrayLike, *, mode: str = "error", unique_indices: bool = False, indices_are_sorted: bool = False
    ) -> Array:
        """`x[index] -= values`."""
        news = neg(fit_values(self.array, values, "x.at[...].subtract"))
        return set_at(self.array, self.index, news, "add", mode, unique_indices)

    @api_boundary
    def multiply(
        self, values: ArrayLike, *, mode: str = "error", unique_indices: bool = False, indices_are_sorted: bool = False
    ) -> Array:
        """`x[index] *= values`."""
        return set_at(self.array, self.index, values, "mul", mode, unique_indices)

    mul = multiply

    @api_boundary
    def divide(
        self, values: ArrayLike, *, mode: str = "error", unique_indices: bool = False, indices_are_sorted: bool = False
    ) -> Array:
        """`x[index] /= values`, for floating-point arrays."""
        spec = spec_of(self.array)
        if not dtypes.is_inexact(spec.dtype):
            problem = f"an array of {spec.dtype.name} cannot hold quotients."
            fix = "convert it first: x.astype('float32').at[...].divide(...)."
            raise user_error(DTypeError, "x.at[...].divide", problem, operands={"x": spec}, fix=fix)
        one = with_weakness(full(shape=spec.shape, dtype=spec.dtype, value=1), is_weak(self.array))
        return div(self.array, set_at(one, self.index, values, "mul", mode, unique_indices))

    @api_boundary
    def power(
        self, values: ArrayLike, *, mode: str = "error", unique_indices: bool = False, indices_are_sorted: bool = False
    ) -> Array:
        """`x[index] **= values`; an element that is indexed twice is raised once."""
        return self.set(self.get(mode=mode) ** values, mode=mode)

    @api_boundary
    def min(
        self, values: ArrayLike, *, mode: str = "error", unique_indices: bool = False, indices_are_sorted: bool = False
    ) -> Array:
        """`x[index] = minimum(x[index], values)`."""
        return set_at(self.array, self.index, values, "min", mode, unique_indices)

    @api_boundary
    def max(
        self, values: ArrayLike, *, mode: str = "error", unique_indices: bool = False, indices_are_sorted: bool = False
    ) -> Array:
        """`x[index] = maximum(x[index], values)`."""
        return set_at(self.array, self.index, values, "max", mode, unique_indices)

    @api_boundary
    def apply(
        self, function: Callable[[Array], Array], *, mode: str = "error", unique_indices: bool = False,
        indices_are_sorted: bool = False,
    ) -> Array:  # fmt: skip
        """`x[index] = function(x[index])`; an element that is indexed twice is replaced once."""
        return self.set(function(self.get(mode=mode)), mode=mode)

    @api_boundary
    def get(
        self,
        *,
        mode: str = "error",
        fill_value: complex | None = None,
        unique_indices: bool = False,
        indices_are_sorted: bool = False,
    ) -> Array:
        """`x[index]`, with a choice of the value read at an index out of range: with mode "fill" it is `fill_value`.

        Raises:
            ArgumentError: a `fill_value` with another mode.
            DTypeError: it does not fit into the dtype of x.
        """
        if fill_value is None:
            return getitem(self.array, self.index, mode)
        where, spec = "x.at[...].get", spec_of(self.array)
        if mode != "fill":
            raise user_error(
                ArgumentError, where, f"fill_value is given, but mode is {mode!r}.", fix='pass mode="fill", too.'
            )
        outside = fit_values(self.array, fill_value, where)
        there = getitem(full(shape=spec.shape, dtype=dtypes.bool_, value=True), self.index, "drop")
        read = getitem(self.array, self.index, "drop")
        return select(there, read, broadcast_to_shape(outside, spec_of(read).shape))
