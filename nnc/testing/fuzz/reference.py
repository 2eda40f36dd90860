"""Runs commands by their references alone, if wanted with the rounding errors that any other way to run them might make.

A result may differ from the reference's by rounding, and by its consequences: a comparison or a `floor` that goes the other way,
a difference of nearly equal numbers. How far is found by running the program again with random errors of a few units in the last
place in all values that are not exact (Monte Carlo arithmetic; Parker, 1997). No tolerance is guessed, and exact results stay
exact.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import ml_dtypes
import numpy as np

from nnc.array.array import as_value, new_array
from nnc.base import dtypes
from nnc.base.context import with_mode
from nnc.commands.elementwise import stop_gradient, with_slope
from nnc.commands.loop import run_graph
from nnc.commands.properties import flops_of, moves_elements
from nnc.commands.weakness import with_inherited_weakness
from nnc.errors import NncError
from nnc.graph import Command, Graph, infer_specs, reference
from nnc.graph.dispatch import replaced_eager
from nnc.graph.registry import scalar
from nnc.testing.fuzz.examples.tables import FREEDOM, ROUNDED
from nnc.trace.core.eager import checked

NDArray = np.ndarray[Any, Any]

_MOST_EXACT = 1 << 14  # elements of a command's results
WIDE: dict[Any, dtypes.DType] = {  # a dtype in which a result shows whether it was rounded
    dtypes.float16: np.dtype(np.float64),
    dtypes.bfloat16: np.dtype(np.float64),
    dtypes.float32: np.dtype(np.float64),
    dtypes.float64: np.dtype(np.longdouble),
    dtypes.complex64: np.dtype(np.complex128),
    dtypes.complex128: np.dtype(np.clongdouble),
}
_UNITS = 2.0  # units in the last place of the errors that are made: printed functions of LLVM and oneDNN are that exact
_WITHIN = 256.0  # products, differences and parts of sums in a command may be denormal where its operands are not
MOST_OPERATIONS = 30_000_000  # of a command, or elements of its results: 0.1 s of NumPy, and more of a factorization


class TooCostlyError(NncError):
    """A command of a generated program would take too long."""


class ReferenceInterpreter:
    """Runs each command by its reference, with random errors where `rng` is given. `seen` takes the names of commands.

    Where there are errors, denormal numbers are 0 at random: of dtypes below float64, or of all or none, as `flushes` says.
    `cancels` tells whether infinities of opposite signs have met in a sum.
    """

    level = -1
    alive = True

    def __init__(
        self, rng: np.random.Generator | None = None, seen: set[str] | None = None, flushes: bool | None = None
    ) -> None:
        self.rng, self.seen, self.flushes = rng, set() if seen is None else seen, flushes
        self.flushes_all = rng is not None and rng.random() < 0.3
        self.cancels = False
        self.count = 0  # of the commands that have run

    def process(
        self, command: Command, args: Sequence[Any], params: dict[str, Any], graphs: tuple[Graph, ...]
    ) -> Sequence[Any]:
        """Runs a command."""
        self.count += 1
        values = [as_value(arg) for arg in args]
        specs = tuple([value.spec for value in values])
        outputs = infer_specs(command, specs, params, graphs)
        work = flops_of(command, specs, params) if not graphs else 0
        if max([work, *[spec.size for spec in outputs]]) > MOST_OPERATIONS:
            raise TooCostlyError(f"{command.name} takes too long")
        self.seen.add(command.name)
        arrays = [value.data for value in values]
        if self.rng is not None:
            within = 1.0 if command in scalar and len(arrays) == 1 else _WITHIN
            arrays = [_flushed(self.rng, x, within * smallest(x.dtype, self.flushes), self.flushes_all) for x in arrays]
        settings = {**params, "graphs": graphs, "run": run_graph} if graphs else params
        results = run_reference(command, arrays, settings)
        listed = checked(command, results, outputs)
        self.cancels = self.cancels or (command.name in ("add", "sub") and _has_new_nans(arrays, listed))
        if self.rng is not None and not graphs:
            listed = disturbed(self.rng, command, arrays, params, listed)
        found = [new_array(x, spec) for x, spec in zip(listed, outputs, strict=True)]
        return with_inherited_weakness(command, args, graphs, found)


class FrozenInterpreter(ReferenceInterpreter):
    """Runs commands by reference; a value that a derivative does not see (`stop_gradient`) stays as it was in the first of several
    runs, and one that has the derivative of another (`with_slope`) is the other.
    """

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[Any] = []
        self.next = 0

    def process(
        self, command: Command, args: Sequence[Any], params: dict[str, Any], graphs: tuple[Graph, ...]
    ) -> Sequence[Any]:
        """Runs a command, or returns its earlier results."""
        if command is with_slope:
            return [as_value(args[1])]
        if command is not stop_gradient:
            return super().process(command, args, params, graphs)
        if self.next == len(self.kept):
            self.kept.append(super().process(command, args, params, graphs))
        self.next += 1
        found: Sequence[Any] = self.kept[self.next - 1]
        return found


@contextmanager
def by_reference(
    rng: np.random.Generator | None = None, seen: set[str] | None = None, flushes: bool | None = None
) -> Iterator[ReferenceInterpreter]:
    """Within the block, commands on arrays run by their references, one by one; `seen` takes their names."""
    interpreter = ReferenceInterpreter(rng, seen, flushes)
    with replaced_eager(interpreter), with_mode("eager"), np.errstate(all="ignore"):
        yield interpreter


def _has_new_nans(arrays: Sequence[NDArray], results: Sequence[NDArray]) -> bool:
    """Whether results are NaN where no operand is."""
    known: Any = False
    for x in arrays:
        known = known | (x != x)
    return any(bool(np.any((y != y) & ~known)) for y in results)


def run_reference(command: Command, arrays: Sequence[NDArray], params: Mapping[str, Any]) -> list[NDArray]:
    """The list of a command's results by its reference."""
    results = reference[command](*arrays, **params)
    return list(results) if isinstance(results, (tuple, list)) else [results]


def disturbed(
    rng: np.random.Generator,
    command: Command,
    arrays: Sequence[NDArray],
    params: Mapping[str, Any],
    results: list[NDArray],
) -> list[NDArray]:
    """The results with errors of a few units in their last place, as results of operands with such errors; exact ones stay."""
    if any(is_inexact(x) and np.isnan(x).any() for x in arrays) and command in scalar:
        arrays = [_with_any_nans(rng, x) for x in arrays]
        results = run_reference(command, arrays, params)
    if not any(is_inexact(x) for x in results):
        return results
    if command not in scalar and not moves_elements(command):
        results = [_with_any_zeros(rng, x) for x in results]
    exact = _exact(command, arrays, params, results)
    if all(np.all(x) for x in exact):
        return results
    elementwise, moved = command in scalar, results
    with suppress(Exception):  # the operands may leave the domain, as a matrix that is no longer positive definite
        moved = run_reference(command, [_with_errors(rng, x, elementwise) for x in arrays], params)
    if any(x.shape != y.shape for x, y in zip(moved, results, strict=True)):
        moved = results
    found = [
        np.asarray(np.where(is_exact, y, _with_errors(rng, x, True)), y.dtype) if is_inexact(y) else y
        for x, y, is_exact in zip(moved, results, exact, strict=True)
    ]
    return FREEDOM[command.name](rng, found, **params) if command.name in FREEDOM else found


def _with_any_zeros(rng: np.random.Generator, x: NDArray) -> NDArray:
    """`x` with zeros of any sign: the order of a sum decides it."""
    if not is_inexact(x) or dtypes.is_complex(x.dtype):
        return x
    return np.where(x == 0, np.copysign(x, np.asarray(rng.uniform(-1, 1, x.shape), x.dtype)), x).astype(x.dtype)


def _with_any_nans(rng: np.random.Generator, x: NDArray) -> NDArray:
    """`x` with NaN of any sign: nothing decides it."""
    if not is_inexact(x) or dtypes.is_complex(x.dtype):
        return x
    return np.where(np.isnan(x), np.copysign(x, np.asarray(rng.uniform(-1, 1, x.shape), x.dtype)), x).astype(x.dtype)


def _flushed(rng: np.random.Generator, x: NDArray, least: float, everywhere: bool) -> NDArray:
    """`x`, in which numbers below `least` are 0: everywhere, or at random."""
    parts = [x.real, x.imag] if least and dtypes.is_complex(x.dtype) else [x]
    small = [(np.abs(part) < least) & (part != 0) for part in parts]
    if not least or not any(np.any(at) for at in small):
        return x
    share = 1.0 if everywhere else rng.choice([0.0, 0.5, 1.0])  # a kernel flushes all or nothing, kernels differ
    moved = x.copy()
    for part, at in zip([moved.real, moved.imag] if len(parts) > 1 else [moved], small, strict=True):
        part[at & (rng.random(x.shape) < share)] *= 0
    return moved


def smallest(dtype: dtypes.DType, flushes: bool | None) -> float:
    """The smallest normal number of a dtype in which programs may take smaller numbers as 0; 0 for others.

    No processor flushes float16. Programs flush float32 and less, unless they are told (`flushes`) to flush all or nothing.
    """
    if not (dtypes.is_known(dtype) and dtypes.is_inexact(dtype)) or dtype == dtypes.float16:
        return 0.0
    real = dtypes.real_dtype(dtype)
    may = real != dtypes.float64 if flushes is None else flushes
    return smallest_normal(dtype) if may else 0.0


def smallest_normal(dtype: dtypes.DType) -> float:
    """The smallest number of a dtype that has all its bits."""
    finfo: Any = ml_dtypes.finfo
    return float(finfo(dtypes.real_dtype(dtype)).smallest_normal)


def largest_number(dtype: dtypes.DType) -> float:
    """The largest finite number of a dtype."""
    finfo: Any = ml_dtypes.finfo
    return float(finfo(dtypes.real_dtype(dtype)).max)


def is_inexact(x: NDArray) -> bool:
    """Whether an array has floats or complex numbers."""
    return dtypes.is_known(x.dtype) and dtypes.is_inexact(x.dtype)


def _exact(
    command: Command, arrays: Sequence[NDArray], params: Mapping[str, Any], results: list[NDArray]
) -> list[NDArray]:
    """Returns which elements are exact, independent of the order and the precision of the operations that lead to them.

    A wider dtype gives such an element, too. This alone does not show it: one sum of float64 in 2,048 is the same with the eleven
    bits more of a long double, one sum of float32 in ten, and some references compute in one dtype for all operands. So
    it must also have few bits, where all operands have few, or have been moved: an element of an operand but for its sign and a
    power of two, in a wider dtype with more bits in each operand as well, and no smaller than the remainder of the largest one.
    Of many elements none is taken for exact: to find out takes minutes where a derivative integrates over nodes; nor is one of
    a factorization.
    """
    if sum(x.size for x in results) > _MOST_EXACT or command.name in ROUNDED:
        return [np.zeros(x.shape, bool) for x in results]
    wide = [x.astype(WIDE[x.dtype]) if is_inexact(x) else x for x in arrays]
    longer = [_with_more_bits(x, epsilon(y.dtype)) if is_inexact(y) else x for x, y in zip(wide, arrays, strict=True)]
    settings = {
        name: WIDE.get(value, value) if isinstance(value, np.dtype) else value for name, value in params.items()
    }
    try:
        again, moved = run_reference(command, wide, settings), run_reference(command, longer, settings)
    except Exception:  # NumPy has no such function for long doubles
        return [np.zeros(x.shape, bool) for x in results]
    given = np.concatenate([np.zeros(1), *[_significands(x).ravel() for x in longer if x.dtype in WIDE.values()]])
    found = []
    few = all(_has_few_bits(x).all() for x in arrays)
    for x, y, z in zip(again, results, moved, strict=True):
        same = ((x == y) | ((x != x) & (y != y))) if x.shape == y.shape else np.zeros(y.shape, bool)
        among = np.isin(_significands(z), given).all(-1) if x.shape == z.shape and is_inexact(y) else np.False_
        # 1 + 1e-40 - 1 is 0 in wider dtypes, too
        if command not in scalar and not moves_elements(command) and is_inexact(y):
            among = among & (np.abs(y) >= epsilon(y.dtype) * max(map(largest, arrays), default=0.0))
        found.append(same & (few & _has_few_bits(y) | among))
    return found


def largest(x: NDArray) -> float:
    """Returns the size of the largest finite element, 0 if there is none."""
    size = np.abs(x.astype(np.complex128))
    return float(np.max(size, where=np.isfinite(size), initial=0.0))


def _has_few_bits(x: NDArray) -> NDArray:
    """Returns which elements are small multiples of 1/64."""
    if not is_inexact(x):
        return np.ones(x.shape, bool)
    scaled = x.astype(np.complex128) * 64
    few: NDArray = (scaled == np.round(scaled)) & (np.abs(scaled) < 2**24)
    return np.asarray(few | (x != x))


def _with_more_bits(x: NDArray, eps: float) -> NDArray:
    """Returns `x` with other bits behind the bits that a dtype with this epsilon has; equal ones stay equal, powers of two as they
    are.
    """
    parts = np.stack([x.real, x.imag], -1)
    noise = np.where(np.abs(np.frexp(parts)[0]) == 0.5, 0, np.modf(np.abs(parts) * 12345.6789)[0])
    parts = parts + parts * noise * (eps / 8)
    return np.asarray(parts[..., 0] + 1j * parts[..., 1] if np.iscomplexobj(x) else parts[..., 0], x.dtype)


def _significands(x: NDArray) -> NDArray:
    """The significands of real and imaginary parts, along a last axis, without signs."""
    return np.asarray(np.abs(np.frexp(np.stack([x.real, x.imag], -1))[0]))


def epsilon(dtype: dtypes.DType) -> float:
    """The distance from 1 to the next number."""
    finfo: Any = ml_dtypes.finfo
    return float(finfo(dtypes.real_dtype(dtype)).eps)


def _with_errors(rng: np.random.Generator, x: NDArray, elementwise: bool) -> NDArray:
    """`x` with errors relative to each element, or to the largest one."""
    if not is_inexact(x) or not x.size:
        return x
    eps = _UNITS * epsilon(x.dtype)
    wide = x.astype(np.complex128 if dtypes.is_complex(x.dtype) else np.float64)
    finite = np.isfinite(wide)
    # denormal numbers have fewer bits
    size = np.where(wide == 0, 0, np.maximum(np.abs(wide), smallest_normal(x.dtype)))
    if not elementwise:
        most = np.max(size, where=finite, initial=0.0)
        # errors of sums grow with the root of their length
        size = np.full(x.shape, most * max(x.shape, default=1) ** 0.5)
    errors: Any = rng.uniform(-eps, eps, x.shape)
    if dtypes.is_complex(x.dtype):
        errors = errors + 1j * rng.uniform(-eps, eps, x.shape)
    return np.where(finite, wide + errors * size, wide).astype(x.dtype)
