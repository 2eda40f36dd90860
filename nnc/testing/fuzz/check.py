"""Runs a program in a mode and compares the results with the expected ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nnc.array.array import Array
from nnc.base import dtypes
from nnc.base.options import Options
from nnc.commands.fft import fft, irfft, rfft
from nnc.commands.fit import fit
from nnc.commands.loop import case_of
from nnc.errors import DTypeError, LinAlgError, NncError, UnsupportedError
from nnc.graph import run_passes
from nnc.lower.phases import SIMPLIFYING, names_of
from nnc.testing.fuzz.bounds import with_bounds
from nnc.testing.fuzz.modes import FORWARD, Mode
from nnc.testing.fuzz.reference import (
    by_reference,
    epsilon,
    is_inexact,
    largest,
    largest_number,
    smallest,
    smallest_normal,
)
from nnc.testing.fuzz.subject import NDArray, Subject, execute, run_leaves

_MARGIN = 16.0  # times the largest of a few random errors: the worst error of all is no larger
_ROUNDS = (range(4), range(4, 16))
_NOT_FITTING = "does not fit into"
_UNITS = 8.0  # units in the last place by which a result may always differ


@dataclass(frozen=True)
class Finding:
    """A result that is not as expected.

    `kind` is "value", "form" (shape or dtype), "error" (nnc raises, references do not), "silence" (nnc takes a number that does
    not fit, and references do not), "cancellation" (a result lies beyond the running bound of its error), "reference" (a
    reference or a rule raises an error that is not nnc's), or "crash".
    """

    mode: str
    kind: str
    text: str
    leaf: int = 0
    found: NDArray | None = None
    expected: NDArray | None = None
    bound: float = 0.0

    @property
    def likeness(self) -> tuple[str, str]:
        """Equal for findings that may have one cause."""
        return self.kind, self.text.splitlines()[0].partition(" ")[2].partition(" ")[0] if self.kind in (
            "error",
            "reference",
        ) else ""


class _RefusedError(Exception):
    """References refuse a Python number that does not fit into a dtype; every mode must."""


class Unsupported(Exception):  # noqa: N818
    """nnc says that it does not run a program in a mode."""


def check(
    subject: Subject, mode: Mode, seen: set[str] | None = None, alive: Callable[[], object] = lambda: None
) -> Finding | None:
    """Returns the finding on a program in a mode; None where it is right. `seen` takes the names of its commands, and `alive` is
    called before each run.

    Raises:
        Unsupported: nnc says that it does not do this.
    """
    try:
        expected = _expected(subject, mode, seen)
    except _RefusedError as error:
        return _silence(subject, mode, str(error))
    except Exception as error:  # a reference, or a rule, is at fault: users get errors of nnc, or none
        return Finding(mode.name, "reference", f"{type(error).__name__}: {error}")
    if expected is None:
        return None
    alive()
    try:
        found = execute(subject.source(mode.source(subject)))
    except UnsupportedError as error:
        raise Unsupported(str(error).partition("\n")[0]) from None
    except LinAlgError as error:
        if mode.name in FORWARD:
            return Finding(mode.name, "error", f"{type(error).__name__}: {error}")
        raise Unsupported(
            f"a derivative that nothing reads, at a singular matrix: {str(error).partition(chr(10))[0]}"
        ) from None
    except Exception as error:
        return Finding(mode.name, "error", f"{type(error).__name__}: {error}")
    if len(found) != len(expected):
        return Finding(mode.name, "form", f"{len(found)} results, expected {len(expected)}")
    for i, (x, y) in enumerate(zip(found, expected, strict=True)):
        if (x.shape, x.dtype) != (y.shape, y.dtype):
            text = f"result {i} is {x.dtype.name}{list(x.shape)}, expected {y.dtype.name}{list(y.shape)}"
            return Finding(mode.name, "form", text, i, x, y)
    # Σ (w · ∞) is NaN for weights of either sign, and (Σ w) · ∞ is not: both are the rule's answer
    if mode.name not in FORWARD or _transforms_infinities(subject):
        expected = [np.where(_are_poles(x, y), x, y) for x, y in zip(found, expected, strict=True)]
        if any(map(_has_nans, found)) and _may_skip_infinities(subject):
            expected = [np.where(x != x, x, y) for x, y in zip(found, expected, strict=True)]
    if mode.slack and any(map(_has_nans, found)) and _meets_infinities(subject, mode):
        expected = [np.where(x != x, x, y) for x, y in zip(found, expected, strict=True)]
    suspects = [i for i, (x, y) in enumerate(zip(found, expected, strict=True)) if not _is_close(x, y)]
    if not suspects:
        alive()
        return _beyond_bounds(subject, mode, found)
    spreads = [_slack(mode, x) for x in expected]
    for rounds in _ROUNDS:  # more of them where a few do not explain it: a sign comes up the same four times in eight
        _widen(spreads, subject, mode, expected, rounds, alive)
        wrong = [~_is_within(x, y, spread) for x, y, spread in zip(found, expected, spreads, strict=True)]
        suspects = [i for i in suspects if np.any(wrong[i])]
        if not suspects:
            alive()
            return _beyond_bounds(subject, mode, found)
    at = suspects[0]
    return _describe(mode.name, at, found[at], expected[at], spreads[at], wrong[at])


def _beyond_bounds(subject: Subject, mode: Mode, found: Sequence[NDArray]) -> Finding | None:
    """The finding that a result is further from the exact one than rounding of each command accounts for: something has
    cancelled that the program does not subtract.
    """
    if mode.slack:
        return None
    source = subject.source((mode.plain or mode.source)(subject))
    try:
        with with_bounds(mode.flushes) as interpreter:
            leaves = run_leaves(source, mode.namespaces[0])
    except NncError:
        return None
    if interpreter.undecided:
        return None
    for i, (leaf, x) in enumerate(zip(leaves, found, strict=True)):
        if not isinstance(leaf, Array) or not is_inexact(x):
            continue
        exact, error = interpreter.shadow(leaf.data)
        bound = _MARGIN * error + _UNITS * epsilon(x.dtype) * np.maximum(np.abs(exact), smallest_normal(x.dtype))
        kind = np.complex128 if dtypes.is_complex(x.dtype) else np.float64
        with np.errstate(all="ignore"):
            away = np.abs(x.astype(kind) - exact)
            overflows = np.isinf(x) & (np.abs(exact) > largest_number(x.dtype))  # in the dtype that a weak value shows
            wrong = ~((away <= bound) | np.isinf(error) | ~np.isfinite(exact) | overflows)
        if np.any(wrong):
            y = exact.astype(kind)
            finding = _describe(mode.name, i, x, y.astype(x.dtype), bound.astype(np.float64) / _MARGIN, wrong)
            return replace(finding, kind="cancellation", bound=float(np.max(bound[wrong])))
    return None


def _expected(subject: Subject, mode: Mode, seen: set[str] | None) -> list[NDArray] | None:
    """Returns the results expected of a mode; None where references refuse the values.

    Raises:
        _RefusedError: a Python number does not fit.
    """
    source = subject.source((mode.plain or mode.source)(subject))
    try:
        with by_reference(seen=seen):
            return execute(source, mode.namespaces[0])
    except DTypeError as error:
        if _NOT_FITTING in str(error) and mode.name in FORWARD:
            raise _RefusedError(str(error).partition("\n")[0]) from None
        return None
    except NncError:
        return None


def _silence(subject: Subject, mode: Mode, refused: str) -> Finding | None:
    """The finding that a mode computes with a number that references refuse, and that results depend on."""
    with suppress(NncError):
        read = run_passes(subject.graph, names_of(SIMPLIFYING), Options())
        traced, left = (any(node.command is fit for node in graph.walk()) for graph in (subject.graph, read))
        if traced and not left:
            return None  # nothing reads it: programs leave it out
    try:
        execute(subject.source(mode.source(subject)))
    except (NncError, OverflowError):
        return None
    except Exception as error:
        return Finding(mode.name, "error", f"{type(error).__name__}: {error}")
    return Finding(mode.name, "silence", f"no error, expected DTypeError: {refused}")


def _has_nans(x: NDArray) -> bool:
    return bool(np.any(x != x))


def _transforms_infinities(subject: Subject) -> bool:
    """Whether infinities meet in a Fourier transform, where the order of the sums decides which results are NaN."""
    return subject.specials and any(node.command in (fft, rfft, irfft) for node in subject.graph.walk())


def _may_skip_infinities(subject: Subject) -> bool:
    """Whether a branch that is not taken may reach an infinity: operands that it alone reaches get zeros where another is taken,
    and zero times infinity is NaN (in JAX, too).
    """
    return subject.specials and any(node.command is case_of for node in subject.graph.walk())


def _meets_infinities(subject: Subject, mode: Mode) -> bool:
    """Whether ∞ - ∞ arises in a program by its references. A backward pass adds up cotangents behind an infinite partial, where a
    forward pass has added up tangents to 0 before it.
    """
    with by_reference() as interpreter:
        execute(subject.source(mode.source(subject)))
    return interpreter.cancels


def _are_poles(x: NDArray, y: NDArray) -> NDArray:
    """Returns which elements are infinite or NaN in both."""
    if not dtypes.is_inexact(y.dtype):
        return np.zeros(y.shape, bool)
    kind = np.complex128 if dtypes.is_complex(y.dtype) else np.float64
    return np.asarray(~np.isfinite(x.astype(kind)) & ~np.isfinite(y.astype(kind)))


def _is_close(x: NDArray, y: NDArray) -> bool:
    """Whether two results are equal but for the last digits."""
    return bool(np.all(_is_within(x, y, np.zeros(y.shape))))


def _is_within(x: NDArray, y: NDArray, spread: NDArray) -> NDArray:
    """Returns for each element of `x` whether it equals `y`'s but for rounding."""
    if not dtypes.is_inexact(y.dtype):
        return np.asarray((x == y) | (spread > 0))
    kind = np.complex128 if dtypes.is_complex(y.dtype) else np.float64
    a, b = x.astype(kind), y.astype(kind)
    eps = epsilon(y.dtype)
    with np.errstate(all="ignore"):
        near = np.abs(a - b) <= _MARGIN * spread + _UNITS * eps * np.maximum(np.abs(b), smallest_normal(y.dtype))
        same = (a == b) | (np.isnan(a) & np.isnan(b))
    return np.asarray(near | same | ~np.isfinite(spread))


def _slack(mode: Mode, expected: NDArray) -> NDArray:
    """The possible error of the expected values themselves; a difference that is not finite has left the domain, and says
    nothing.
    """
    if not mode.slack:
        return np.full(expected.shape, 2 * smallest(expected.dtype, mode.flushes) / _MARGIN)
    slack = max(mode.slack, _UNITS * epsilon(expected.dtype)) if dtypes.is_inexact(expected.dtype) else mode.slack
    return np.where(np.isfinite(expected), slack / _MARGIN * (1 + largest(expected)), np.inf)


def _widen(
    spreads: list[NDArray], subject: Subject, mode: Mode, expected: Sequence[NDArray], rounds: Sequence[int],
    alive: Callable[[], object],
) -> None:  # fmt: skip
    """Notes how far each element moves when everything that is rounded has random errors; infinite where its nature changes."""
    source = subject.source((mode.plain or mode.source)(subject))
    runs: list[tuple[Any, Any]] = [(mode.namespaces[0], np.random.default_rng(seed)) for seed in rounds]
    if mode.namespaces[1:]:
        runs = [(other, None) for other in mode.namespaces[1:]]
    for of_nnc, rng in runs:
        alive()
        try:
            with by_reference(rng, flushes=mode.flushes):
                moved = execute(source, of_nnc)
        except NncError:  # a condition of the values does not hold any more
            spreads[:] = [np.full(x.shape, np.inf) for x in expected]
            return
        for i, (x, y) in enumerate(zip(moved, expected, strict=True)):
            spreads[i] = np.maximum(spreads[i], _distance(x, y)) if x.shape == y.shape else np.full(y.shape, np.inf)


def _distance(x: NDArray, y: NDArray) -> NDArray:
    kind = np.complex128 if dtypes.is_complex(y.dtype) else np.float64
    a, b = x.astype(kind), y.astype(kind)
    with np.errstate(all="ignore"):
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        return np.where(same, 0.0, np.where(np.isfinite(a) & np.isfinite(b), np.abs(a - b), np.inf))


def _describe(mode: str, i: int, x: NDArray, y: NDArray, spread: NDArray, wrong: NDArray) -> Finding:
    at = tuple(int(n) for n in np.argwhere(wrong)[0])
    allowed = _MARGIN * spread[at]
    text = (
        f"result {i} ({y.dtype.name}{list(y.shape)}): {int(np.sum(wrong))} of {y.size} elements are wrong; at {at} it is {x[at]}, "
        f"expected {y[at]} (rounding accounts for {allowed:.2g})"
    )
    if not dtypes.is_inexact(y.dtype):
        return Finding(mode, "value", text, i, x, y)
    eps = epsilon(y.dtype)
    error = _distance(x, y)[at]
    bound = min(_MARGIN * float(np.max(spread)) + _UNITS * eps * largest(y), error / 2)
    return Finding(mode, "value", text, i, x, y, bound)
