"""Runs commands by their references in a wider dtype, each value with a bound of the error that rounding may have made.

This is running error analysis (Wilkinson; Higham, Accuracy and Stability of Numerical Algorithms, 3.3): a result's error is the
operands' errors times the partial derivatives, taken as differences, and the rounding of the result itself. Other than errors drawn
at random (`reference`), sums and differences take their operands as they are: digits may cancel in a difference that the
program writes, not in one that a compiler makes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from nnc.array.array import as_value
from nnc.base.context import with_mode
from nnc.commands.rules import reduction
from nnc.graph import Command, Graph
from nnc.graph.dispatch import replaced_eager
from nnc.graph.registry import scalar
from nnc.testing.fuzz.examples.tables import FREEDOM
from nnc.testing.fuzz.reference import (
    WIDE,
    ReferenceInterpreter,
    epsilon,
    is_inexact,
    largest_number,
    run_reference,
    smallest,
    smallest_normal,
)

NDArray = np.ndarray[Any, Any]
Shadow = tuple[NDArray, NDArray]  # the value in a wider dtype, and the bound of its error

_UNIT = 2.0  # units in the last place of a command's own error
_WITHIN = 256.0  # products and parts of sums in a command may be denormal where its results are not
_DRAWS = 6  # of signs of errors, where a result depends on many elements
_PLAIN = frozenset(("add", "sub", "mul", "neg", "abs", "copy", "maximum", "minimum", "square"))
# of sums, products and choices nothing but the result is rounded; other functions may be computed of operands that are


class BoundInterpreter(ReferenceInterpreter):
    """Runs each command by its reference, and beside it in a wider dtype with a bound of the error."""

    def __init__(self, flushes: bool | None = None) -> None:
        super().__init__(flushes=flushes)
        self.shadows: dict[int, tuple[NDArray, Shadow]] = {}
        self.undecided = False  # a decision may have been another one

    def process(
        self, command: Command, args: Sequence[Any], params: dict[str, Any], graphs: tuple[Graph, ...]
    ) -> Sequence[Any]:
        """Runs a command, and notes its results' bounds."""
        values = [as_value(arg) for arg in args]
        results = super().process(command, args, params, graphs)
        arrays = [value.data for value in values]
        found = [result.data for result in results]
        with np.errstate(all="ignore"):
            shadows = None if graphs else self._shadows(command, arrays, params, found)
        for i, x in enumerate(found):
            shadow = shadows[i] if shadows is not None else (_widened(x), np.full(x.shape, np.inf))
            self.shadows[id(x)] = (x, shadow)
            if not is_inexact(x) and x.ndim == 0 and np.any(shadow[1] > 0):
                self.undecided = True
        return results

    def shadow(self, x: NDArray) -> Shadow:
        """The value of an array in a wider dtype, and its bound."""
        known = self.shadows.get(id(x))
        return known[1] if known is not None else (_widened(x), np.zeros(x.shape))

    def _shadows(
        self, command: Command, arrays: Sequence[NDArray], params: Mapping[str, Any], found: Sequence[NDArray]
    ) -> list[Shadow] | None:
        """The results' values and bounds; None where nothing is known of them."""
        if not found:  # it is called for its effect, which must not come twice
            return []
        known = [self.shadow(x) for x in arrays]
        if not any(is_inexact(x) for x in arrays):
            changed = any(np.any(error > 0) for _, error in known)
            return None if changed else [(_widened(x), _rounding(x, _widened(x))) for x in found]
        if command.name in FREEDOM:
            return None
        settings = {k: WIDE.get(v, v) if isinstance(v, np.dtype) else v for k, v in params.items()}
        wide = [x for x, _ in known]
        try:
            center = run_reference(command, wide, settings)
        except Exception:  # NumPy has no such function of long doubles
            wide = [_narrowed(x) for x in wide]
            try:
                center = run_reference(command, wide, settings)
            except Exception:
                return None
        if any(x.shape != y.shape for x, y in zip(center, found, strict=True)):
            return None
        moves = command not in scalar and _only_moves(wide, center)
        errors = [self._error(command, x, y, e, moves) for x, y, (_, e) in zip(arrays, wide, known, strict=True)]
        try:
            moved = self._moved(command, wide, settings, errors, center)
        except Exception:  # the operands leave the domain
            return None
        rounded = [
            self._flushed(x, y, 1.0) if moves else _rounding(x, y) + self._flushed(x, y)
            for x, y in zip(found, center, strict=True)
        ]
        return [self._kept(x, y, error + own) for x, y, error, own in zip(found, center, moved, rounded, strict=True)]

    def _error(self, command: Command, x: NDArray, wide: NDArray, error: NDArray, moves: bool) -> NDArray:
        """The bound of an operand's error, with its rounding where the command may round it."""
        if not is_inexact(x) or moves:
            return error
        error = error + self._flushed(x, wide)
        if command.name in _PLAIN:
            return error
        unit = _UNIT * epsilon(x.dtype)
        if command in scalar or command in reduction:
            return error + unit * np.abs(wide)
        size = np.abs(wide)
        most = np.max(size, where=np.isfinite(size), initial=0.0)
        return np.asarray(error + unit * most * max(x.shape, default=1) ** 0.5)

    def _flushed(self, x: NDArray, wide: NDArray, within: float = _WITHIN) -> NDArray:
        """The bound of the loss where numbers as small as these, or parts of their sums, are taken as 0."""
        small = within * smallest(x.dtype, self.flushes) if is_inexact(x) else 0.0
        return np.where(np.abs(wide) < small, small, 0.0)

    def _moved(
        self, command: Command, wide: Sequence[NDArray], params: Any, errors: Sequence[NDArray], center: list[NDArray]
    ) -> list[NDArray]:
        """The distances by which results move where operands move by their errors."""
        if command.name == "select":
            chosen, x, y = errors
            return [np.where(chosen > 0, np.inf, np.where(wide[0], x, y))]
        if command.name == "sort" and np.iscomplexobj(wide[0]) and np.any(errors[0] > 0):  # ties of real parts may turn
            return [np.full(x.shape, np.inf) for x in center]
        total = [np.zeros(x.shape) for x in center]
        unknown = [np.isinf(error) for error in errors]
        if any(map(np.any, unknown)) and command not in scalar and not _only_moves(wide, center):
            return [np.full(x.shape, np.inf) for x in center]
        if command in scalar:
            for i, (x, error) in enumerate(zip(wide, errors, strict=True)):
                if not np.any(error > 0):
                    continue
                step = np.where(unknown[i], 0, error)
                zero = np.where(np.abs(x) <= step, -x, step)  # where it may be 0, a quotient may be anything
                most = [
                    _distances(run_reference(command, [*wide[:i], _shifted(x, s), *wide[i + 1 :]], params), center)
                    for s in (step, -step, zero)
                ]
                total = [t + np.maximum.reduce(each) for t, *each in zip(total, *most, strict=True)]
                total = [np.where(unknown[i], np.inf, t) for t in total]
            # nothing decides their sign
            turned = [np.where(np.isnan(x), -x, x) if x.dtype.kind == "f" else x for x in wide]
            apart = _distances(run_reference(command, turned, params), center)
            return [np.where(d > 0, np.inf, t) for d, t in zip(apart, total, strict=True)]
        rng = np.random.default_rng(len(self.shadows))
        for _ in range(_DRAWS if any(np.any(error > 0) for error in errors) else 0):
            shifted = [
                _shifted(x, rng.choice([-1, 1], x.shape) * np.where(np.isinf(error), 1e-3 * np.abs(x) + 1e-3, error))
                for x, error in zip(wide, errors, strict=True)
            ]
            total = [
                np.maximum(t, d)
                for t, d in zip(total, _distances(run_reference(command, shifted, params), center), strict=True)
            ]
        if any(map(np.any, unknown)):  # moved elements: those of unknown ones
            total = [np.where(t > 0, np.inf, t) for t in total]
        return total

    def _kept(self, x: NDArray, wide: NDArray, error: NDArray) -> Shadow:
        """A result's shadow. It is its own where the dtype's range ends."""
        if not is_inexact(x):
            return _widened(x), np.where(error > 0, np.inf, 0.0)
        error = np.where(np.isnan(error), np.inf, error)
        limit = 0.25 * largest_number(x.dtype)
        ends = ~np.isfinite(_widened(x)) | ~np.isfinite(wide) | (np.abs(wide) + error > limit)
        agrees = (x == wide) | (np.isnan(x) & np.isnan(wide))
        return np.where(ends, _widened(x), wide), np.where(ends & ~(agrees & (error == 0)), np.inf, error)


@contextmanager
def with_bounds(flushes: bool | None = None) -> Iterator[BoundInterpreter]:
    """Within the block, commands on arrays run by their references, with bounds of their errors."""
    interpreter = BoundInterpreter(flushes)
    with replaced_eager(interpreter), with_mode("eager"), np.errstate(all="ignore"):
        yield interpreter


def _widened(x: NDArray) -> NDArray:
    return x.astype(WIDE[x.dtype]) if is_inexact(x) else x


def _narrowed(x: NDArray) -> NDArray:
    """A long double as float64."""
    if x.dtype == np.longdouble:
        return x.astype(np.float64)
    return x.astype(np.complex128) if x.dtype == np.clongdouble else x


def _rounding(x: NDArray, wide: NDArray) -> NDArray:
    if not is_inexact(x):
        return np.zeros(x.shape)
    return np.asarray(_UNIT * epsilon(x.dtype) * np.maximum(np.abs(wide), smallest_normal(x.dtype)), np.float64)


def _shifted(x: NDArray, step: NDArray) -> NDArray:
    return (x + step).astype(x.dtype) if x.dtype.kind in "fc" else x


def _distances(xs: Sequence[NDArray], ys: Sequence[NDArray]) -> list[NDArray]:
    found = []
    for x, y in zip(xs, ys, strict=True):
        if x.dtype.kind not in "fc":
            found.append(np.where(x == y, 0.0, np.inf))
            continue
        same = (x == y) | ((x != x) & (y != y))
        found.append(np.where(same, 0.0, np.abs(x - y)).astype(np.float64))
    return found


def _only_moves(operands: Sequence[NDArray], results: Sequence[NDArray]) -> bool:
    """Whether all floats of the results are zeros or floats of the operands."""
    given = np.concatenate([np.zeros(1), *[np.abs(x).ravel() for x in operands if x.dtype.kind in "fc"]])
    return all(bool(np.isin(np.abs(x), given).all()) for x in results if x.dtype.kind in "fc")
