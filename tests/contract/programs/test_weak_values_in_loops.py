"""Weak values that loops carry, stack and capture, against the same programs written out."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp

Step = Callable[[Any, Any], tuple[Any, Any]]
Loop = Callable[[Step, Any, Any], tuple[Any, Any]]  # the last carry, and the stacked values; None where a loop has none
Kinds = tuple[str, str, str]  # of the carried, the stacked and the captured value
COUNT = 3


def written_out(step: Step, carry: Any, xs: Any) -> tuple[Any, Any]:
    """The program without a loop."""
    rows = []
    for i in range(COUNT):
        carry, row = step(carry, xs[i])
        rows.append(row)
    return carry, nnc.tree.map(lambda *parts: nnp.stack(parts), *rows)


def _repeat(step: Step, carry: Any, xs: Any, **options: Any) -> tuple[Any, Any]:
    body = lambda c: (c[0] + 1, step(c[1], xs[c[0]])[0])
    return nnc.while_loop(lambda c: c[0] < COUNT, body, (0, carry), **options)[1], None


def _count(step: Step, carry: Any, xs: Any, first: Any = 0, **options: Any) -> tuple[Any, Any]:
    return nnc.fori_loop(first, COUNT, lambda i, c: step(c, xs[i])[0], carry, **options), None


def _backwards(step: Step, carry: Any, xs: Any) -> tuple[Any, Any]:
    carry, rows = nnc.scan(step, carry, xs[::-1], reverse=True)
    return carry, nnc.tree.map(lambda x: x[::-1], rows)


LOOPS: dict[str, Loop] = {
    "scan": nnc.scan,
    "reversed scan": _backwards,
    "unrolled scan": partial(nnc.scan, unroll=2),
    "checkpointed scan": partial(nnc.scan, checkpoint="sqrt"),
    "while_loop": _repeat,
    "while_loop with a limit": partial(_repeat, max_steps=4),
    "fori_loop": _count,
    "unrolled fori_loop": partial(_count, unroll=True),
    "fori_loop of unknown length": partial(_count, first=nnp.asarray(0)),
    "cond": lambda f, c, xs: written_out(lambda c, x: nnc.cond(abs(x) < 9, f, lambda c, x: f(c, x), c, x), c, xs),
    "switch": lambda f, c, xs: written_out(
        lambda c, x: nnc.switch(nnp.asarray(0), [lambda: f(c, x), lambda: f(c, x)]), c, xs
    ),
    "checkpoint": lambda f, c, xs: written_out(nnc.checkpoint(f), c, xs),
    "map": lambda f, c, xs: (None, nnc.map(lambda x: f(c, x)[1], xs)),
    "map in batches": lambda f, c, xs: (None, nnc.map(lambda x: f(c, x)[1], xs, batch_size=2)),
}
KINDS: dict[str, Callable[[Any], Any]] = {
    "weak": lambda a: a * 1.0,
    "float32": lambda a: nnp.asarray(a, "float32"),
    "float64": lambda a: nnp.asarray(a, "float64"),
}


def program(loop: Loop, kinds: Kinds, carries: bool, a: Any) -> Any:
    """A loop over values of these kinds; `carries`: whether an iteration changes the carried values."""
    carry, element, captured = (KINDS[kind](a * k) for kind, k in zip(kinds, (1, 1 / 3, 0.7), strict=True))

    def step(c: Any, x: Any) -> tuple[Any, Any]:
        first, second = c
        rows = {"own": first * 0.5, "both": first * x, "row": x * 2, "mixed": first * captured}
        return ((first * 0.3 + x, second * captured) if carries else c), rows

    return loop(step, (carry, carry), nnp.stack([element, element * 3, element / 7]))


def total(*program_of: Any) -> Any:
    return sum(nnp.sum(x) * 0.3 for x in nnc.tree.leaves(program(*program_of)))


NUMBERS = nnp.stack([0.1, 0.2])
RUNS: dict[str, Callable[[Callable[..., Any], Callable[..., Any]], Any]] = {
    "eager": lambda f, g: f(0.1),
    "compiled": lambda f, g: nnc.compile(f)(0.1),
    "mapped": lambda f, g: nnc.vmap(f)(NUMBERS),
    "compiled and mapped": lambda f, g: nnc.compile(nnc.vmap(f))(NUMBERS),
    "mapped along a name": lambda f, g: nnc.vmap(lambda a: f(nnc.pmean(a, "i") + a), axis_name="i")(NUMBERS),
    "tangents": lambda f, g: nnc.jvp(f, (0.1,), (0.7,)),
    "gradient": lambda f, g: nnc.value_and_grad(g)(0.1),
    "compiled gradient": lambda f, g: nnc.compile(nnc.value_and_grad(g))(0.1),
    "mapped gradient": lambda f, g: nnc.vmap(nnc.grad(g))(NUMBERS),
    "gradient of a checkpoint": lambda f, g: nnc.grad(nnc.checkpoint(g))(0.1),
    "second derivative": lambda f, g: nnc.grad(nnc.grad(g))(0.1),
}


def check_same(found: Any, wanted: Any, digits: float, absolute: float = 0.0) -> None:
    for x, y in zip(nnc.tree.leaves(found), nnc.tree.leaves(wanted), strict=True):
        x, y = nnp.stack([x]), nnp.stack([y])
        assert (x.dtype, x.weak, x.spec.dtype, x.shape) == (y.dtype, y.weak, y.spec.dtype, y.shape)
        np.testing.assert_allclose(
            *(np.asarray(v, np.result_type(v.dtype, float)) for v in (x, y)), rtol=digits, atol=absolute
        )


def _reference(loop: str, step: Step, carry: Any, xs: Any) -> tuple[Any, Any]:
    """The results of a loop, of the program written out."""
    last, rows = written_out(step, carry, xs)
    return None if "map" in loop else last, None if "_loop" in loop else rows


@pytest.mark.filterwarnings("ignore::nnc.errors.RetraceWarning")
@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("run", RUNS)
def test_a_loop_has_the_weakness_and_the_digits_of_the_program_written_out(loop: str, run: str) -> None:
    for kinds in product(KINDS, repeat=3):
        if kinds[0] == "float32" and "float64" in kinds[1:]:
            continue  # an array that loops carry keeps its dtype
        found, wanted = (
            RUNS[run](partial(program, f, kinds, "map" not in loop), partial(total, f, kinds, "map" not in loop))
            for f in (LOOPS[loop], partial(_reference, loop))
        )
        check_same(found, wanted, 1e-6 if "float32" in kinds else 1e-14)


OTHERS: dict[str, Callable[[Any], Any]] = {  # numbers that are not real, by the number that runs are given
    "weak integer": lambda a: 3,
    "int16": lambda a: nnp.asarray(3, "int16"),
    "weak complex": lambda a: a * 1j,
    "complex64": lambda a: (nnp.asarray(a) * 1j).astype("complex64"),
    "weak": KINDS["weak"],
}


def _others(loop: Loop, kinds: Kinds, carries: bool, a: Any) -> Any:
    carry, element, captured = (OTHERS[kind](a) for kind in kinds)

    def step(c: Any, x: Any) -> tuple[Any, Any]:
        rows = {"own": c * 2, "both": c * x, "row": x + 1, "mixed": c - captured}
        return (c * captured + x if carries else c), rows

    return loop(step, carry, nnp.stack([element, element * 2, element - 1]))


def _keeps_dtypes(kinds: Kinds) -> bool:
    """Whether the carry is weak or keeps its dtype beside the others."""
    carry, *others = (OTHERS[kind](0.1) for kind in kinds)
    return "weak" in kinds[0] or all((carry * nnp.stack([x])[0]).dtype == carry.dtype for x in others)


@pytest.mark.filterwarnings("ignore::nnc.errors.RetraceWarning")
@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("run", ["eager", "compiled"])
def test_integers_and_complex_numbers_likewise(loop: str, run: str) -> None:
    for kinds in filter(_keeps_dtypes, product(OTHERS, repeat=3)):
        found, wanted = (
            RUNS[run](partial(_others, f, kinds, "map" not in loop), lambda a: a)
            for f in (LOOPS[loop], partial(_reference, loop))
        )
        check_same(found, wanted, 1e-6, 1e-8)


def _prefixes(fn: Callable[[Any, Any], Any], xs: Any) -> Any:
    rows = [xs[0]]
    for i in range(1, len(xs)):
        rows.append(fn(rows[-1], xs[i]))
    return nnp.stack(rows)


@pytest.mark.parametrize("run", ["eager", "compiled", "mapped", "tangents", "gradient"])
@pytest.mark.parametrize("element", KINDS)
@pytest.mark.parametrize("captured", KINDS)
def test_prefixes_have_the_weakness_of_the_program_written_out(run: str, element: str, captured: str) -> None:
    def prefixes(scan: Callable[..., Any], a: Any) -> Any:
        x, c = KINDS[element](a), KINDS[captured](a * 3)
        return scan(lambda x, y: x * y * c, nnp.stack([x, x * 2, x / 3, x, x * 7]))

    if (element, captured) == ("float32", "float64"):
        with pytest.raises(nnc.errors.DTypeError, match="must keep shape and dtype"):
            prefixes(nnc.associative_scan, 0.1)
        return
    found, wanted = (
        RUNS[run](partial(prefixes, scan), lambda a, scan=scan: nnp.sum(prefixes(scan, a)))
        for scan in (nnc.associative_scan, _prefixes)
    )
    check_same(found, wanted, 1e-6 if "float32" in (element, captured) else 1e-14)
