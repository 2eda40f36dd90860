"""Runs commands by their references alone, if wanted with the rounding errors that any other way to run them might make.

A result may differ from the reference's by rounding, and by what that leads to: a comparison or a `floor` that goes the other way,
a difference of nearly equal numbers. How far is found by running the program again with random errors of a few units in the last
place in whatever is not exact (Monte Carlo arithmetic; Parker, 1997). No tolerance is guessed, and exact results stay exact.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, cast

import ml_dtypes
import numpy as np

from nnc import dtypes
from nnc.array import as_value, new_array
from nnc.commands.elementwise import stop_gradient
from nnc.commands.loop import run_graph
from nnc.commands.rules import alias, cost, freedom, scalar
from nnc.context import with_mode
from nnc.errors import NncError
from nnc.graph import Command, Graph, infer_specs, reference
from nnc.graph.dispatch import replaced_eager
from nnc.trace.eager import checked

NDArray = np.ndarray[Any, Any]

_WIDE: dict[Any, dtypes.DType] = {  # a dtype in which a result shows whether it was rounded
    dtypes.float16: np.dtype(np.float64),
    dtypes.bfloat16: np.dtype(np.float64),
    dtypes.float32: np.dtype(np.float64),
    dtypes.float64: np.dtype(np.longdouble),
    dtypes.complex64: np.dtype(np.complex128),
    dtypes.complex128: np.dtype(np.clongdouble),
}
_NEARLY_ONE = 1 + np.longdouble(2) ** -56  # in a wide dtype another number than 1, in float64 not
_UNITS = 2.0  # units in the last place of the errors that are made: printed functions of LLVM and oneDNN are that exact


MOST_OPERATIONS = 30_000_000  # of a command, or elements of its results: 0.1 s of NumPy, and more of a factorization


class TooCostlyError(NncError):
    """A command of a generated program would take too long."""


class ReferenceInterpreter:
    """Runs each command by its reference, with random errors where `rng` is given. `seen` takes the names of commands.

    Where there are errors, denormal numbers are 0 at random: of dtypes below float64, with `flushes` of float64, too.
    """

    level = -1
    alive = True

    def __init__(
        self, rng: np.random.Generator | None = None, seen: set[str] | None = None, flushes: bool = False
    ) -> None:
        self.rng, self.seen, self.flushes = rng, set() if seen is None else seen, flushes

    def process(
        self, command: Command, args: Sequence[Any], params: dict[str, Any], graphs: tuple[Graph, ...]
    ) -> Sequence[Any]:
        """Runs a command."""
        values = [as_value(arg) for arg in args]
        specs = tuple([value.spec for value in values])
        outputs = infer_specs(command, specs, params, graphs)
        work = cost[command](*specs, **params) if command in cost and not graphs else 0
        if max([work, *[spec.size for spec in outputs]]) > MOST_OPERATIONS:
            raise TooCostlyError(f"{command.name} takes too long")
        self.seen.add(command.name)
        arrays = [value.data for value in values]
        if self.rng is not None:
            arrays = [_flushed(self.rng, x, self.flushes) for x in arrays]
        settings = {**params, "graphs": graphs, "run": run_graph} if graphs else params
        results = _run(command, arrays, settings)
        listed = checked(command, results, outputs)
        if self.rng is not None and not graphs:
            listed = disturbed(self.rng, command, arrays, params, listed)
        return [new_array(x, spec) for x, spec in zip(listed, outputs, strict=True)]


class FrozenInterpreter(ReferenceInterpreter):
    """Runs commands by reference; what a derivative does not see (`stop_gradient`) stays as it was in the first of several runs."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[Any] = []
        self.next = 0

    def process(
        self, command: Command, args: Sequence[Any], params: dict[str, Any], graphs: tuple[Graph, ...]
    ) -> Sequence[Any]:
        """Runs a command, or returns what it gave before."""
        if command is not stop_gradient:
            return super().process(command, args, params, graphs)
        if self.next == len(self.kept):
            self.kept.append(super().process(command, args, params, graphs))
        self.next += 1
        found: Sequence[Any] = self.kept[self.next - 1]
        return found


@contextmanager
def by_reference(
    rng: np.random.Generator | None = None, seen: set[str] | None = None, flushes: bool = False
) -> Iterator[None]:
    """Within the block, commands on arrays run by their references, one by one; `seen` takes their names."""
    with replaced_eager(ReferenceInterpreter(rng, seen, flushes)), with_mode("eager"), np.errstate(all="ignore"):
        yield


def _run(command: Command, arrays: Sequence[NDArray], params: Mapping[str, Any]) -> list[NDArray]:
    results = reference[command](*arrays, **params)
    return list(results) if isinstance(results, (tuple, list)) else [results]


def disturbed(
    rng: np.random.Generator,
    command: Command,
    arrays: Sequence[NDArray],
    params: Mapping[str, Any],
    results: list[NDArray],
) -> list[NDArray]:
    """The results with errors of a few units in their last place, as those of operands that have such errors; exact ones stay."""
    if not any(_is_inexact(x) for x in results):
        return results
    if command not in scalar and command not in alias:
        results = [_with_any_zeros(rng, x) for x in results]
    exact = _exact(command, arrays, params, results)
    if all(np.all(x) for x in exact) and command not in freedom:
        return results
    elementwise, moved = command in scalar, results
    with suppress(Exception):  # the operands may leave the domain, as a matrix that is no longer positive definite
        moved = _run(command, [_with_errors(rng, x, elementwise) for x in arrays], params)
    if any(x.shape != y.shape for x, y in zip(moved, results, strict=True)):
        moved = results
    found = [
        np.asarray(np.where(is_exact, y, _with_errors(rng, x, True)), y.dtype) if _is_inexact(y) else y
        for x, y, is_exact in zip(moved, results, exact, strict=True)
    ]
    return list(freedom[command](rng, found, **params)) if command in freedom else found


def _with_any_zeros(rng: np.random.Generator, x: NDArray) -> NDArray:
    """`x` with zeros of any sign: the order of a sum decides it."""
    if not _is_inexact(x) or dtypes.is_complex(x.dtype):
        return x
    return np.where(x == 0, np.copysign(x, np.asarray(rng.uniform(-1, 1, x.shape), x.dtype)), x).astype(x.dtype)


def _flushed(rng: np.random.Generator, x: NDArray, flushes: bool) -> NDArray:
    """`x`, in which denormal numbers are 0 at random where programs may take them as 0."""
    least = smallest(x.dtype, flushes)
    parts = [x.real, x.imag] if least and dtypes.is_complex(x.dtype) else [x]
    small = [(np.abs(part) < least) & (part != 0) for part in parts]
    if not least or not any(np.any(at) for at in small):
        return x
    moved = x.copy()
    for part, at in zip([moved.real, moved.imag] if len(parts) > 1 else [moved], small, strict=True):
        part[at & (rng.random(x.shape) < 0.5)] *= 0
    return moved


def smallest(dtype: dtypes.DType, flushes: bool) -> float:
    """The smallest normal number of a dtype in which programs may take what lies below as 0; 0 for others.

    No processor flushes float16. Programs that compute in float64 keep its denormal numbers unless they are told otherwise.
    """
    if not (dtypes.is_known(dtype) and dtypes.is_inexact(dtype)) or dtype == dtypes.float16:
        return 0.0
    real, finfo = dtypes.real_dtype(dtype), cast(Any, ml_dtypes.finfo)
    return float(finfo(real).smallest_normal) if flushes or real != dtypes.float64 else 0.0


def _is_inexact(x: NDArray) -> bool:
    return dtypes.is_known(x.dtype) and dtypes.is_inexact(x.dtype)


def _exact(
    command: Command, arrays: Sequence[NDArray], params: Mapping[str, Any], results: list[NDArray]
) -> list[NDArray]:
    """Which elements are the same if the command runs in a wider dtype: they were not rounded.

    Some references compute in the dtypes that they know, whatever they are given. Where nothing follows a change that a narrow
    dtype does not show, only elements of few bits are taken to be exact.
    """
    wide = [x.astype(_WIDE[x.dtype]) if _is_inexact(x) else x for x in arrays]
    settings = {
        name: _WIDE.get(value, value) if isinstance(value, np.dtype) else value for name, value in params.items()
    }
    try:
        again = _run(command, wide, settings)
        moved = _run(command, [x * _NEARLY_ONE if x.dtype in _WIDE.values() else x for x in wide], settings)
    except Exception:  # NumPy has no such function for long doubles
        return [np.zeros(x.shape, bool) for x in results]
    found = []
    for x, y, z in zip(again, results, moved, strict=True):
        if x.shape != y.shape or (x.dtype == y.dtype and _is_inexact(y)):
            found.append(np.zeros(y.shape, bool))
            continue
        same = (x == y) | ((x != x) & (y != y))
        found.append(same & _has_few_bits(y) if x.shape == z.shape and bool(np.all((x == z) | (x != x))) else same)
    return found


def _has_few_bits(x: NDArray) -> NDArray:
    """Which elements are small multiples of 1/64."""
    if not _is_inexact(x):
        return np.ones(x.shape, bool)
    scaled = x.astype(np.complex128) * 64
    few: NDArray = (scaled == np.round(scaled)) & (np.abs(scaled) < 2**24)
    return np.asarray(few | (x != x))


def epsilon(dtype: dtypes.DType) -> float:
    """The distance from 1 to the next number."""
    finfo: Any = ml_dtypes.finfo
    return float(finfo(dtypes.real_dtype(dtype)).eps)


def _with_errors(rng: np.random.Generator, x: NDArray, elementwise: bool) -> NDArray:
    """`x` with errors relative to each element, or to the largest one."""
    if not _is_inexact(x) or not x.size:
        return x
    eps = _UNITS * epsilon(x.dtype)
    wide = x.astype(np.complex128 if dtypes.is_complex(x.dtype) else np.float64)
    finite = np.isfinite(wide)
    size = np.abs(wide)
    if not elementwise:
        most = np.max(size, where=finite, initial=0.0)
        size = np.full(
            x.shape, most * max(x.shape, default=1) ** 0.5
        )  # errors of sums grow with the root of their length
    errors: Any = rng.uniform(-eps, eps, x.shape)
    if dtypes.is_complex(x.dtype):
        errors = errors + 1j * rng.uniform(-eps, eps, x.shape)
    return np.where(finite, wide + errors * size, wide).astype(x.dtype)
