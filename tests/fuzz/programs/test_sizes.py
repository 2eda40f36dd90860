"""Functions that are called with arrays of many sizes give the results of each size alone."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import tree
from nnc.compiled.forms import take_apart
from tests.fuzz.programs.sized import SIZES, SizedProgram, rows
from tests.sampling import sampled

SEEDS = range(40)
MANY = sampled(range(500), 8)
_DIVIDING = {"mean of columns", "all pairs", "positions", "stride"}  # steps with a constant that follows from the size


def _compiled(program: SizedProgram) -> Any:
    return nnc.compile(partial(program, nnp))


def _alone(program: SizedProgram) -> Any:
    return nnc.compile(partial(program, nnp), dynamic_axes={})


def _bits(results: Any) -> list[bytes]:
    return [np.asarray(each).tobytes() for each in tree.leaves(results)]


def _assert_alike(found: Any, wanted: Any, program: SizedProgram, n: int) -> None:
    """Results of a shared function and of one of this size alone have the same bits. Where a program divides by its size, sums may
    be added in another order (docs/sizes.md).
    """
    if not _DIVIDING.intersection(program.names):
        assert _bits(found[0]) == _bits(wanted[0]) and _bits(found[2]) == _bits(wanted[2]), (program, n)
    for each, expected in zip(found, wanted, strict=True):
        largest = max(1.0, float(np.abs(np.asarray(expected)).max()))
        np.testing.assert_allclose(np.asarray(each), np.asarray(expected), rtol=2e-6, atol=2e-6 * largest)


@pytest.mark.parametrize("seed", MANY)
def test_a_function_of_many_sizes_agrees_with_functions_of_one_size(seed: int) -> None:
    """A shared function meets sizes up and down, so that each call but the first follows one of another size."""
    program = SizedProgram.draw(seed)
    shared = _compiled(program)
    for n in (*SIZES, *reversed(SIZES)):
        found = shared(rows(n))
        _assert_alike(found, _alone(program)(rows(n)), program, n)
        exact = program(np, rows(n).astype(np.float64))
        rounding = 1e-5 * n * max(1.0, np.abs(exact[0]).max())  # of sums of n numbers, which may cancel
        for each, expected in zip(found, exact, strict=True):
            np.testing.assert_allclose(np.asarray(each), expected, rtol=1e-4, atol=rounding)


@pytest.mark.parametrize("seed", MANY)
def test_sizes_that_share_a_blueprint_agree_with_functions_of_one_size(seed: int) -> None:
    """The programs of the later sizes are made without a trace, and with a template."""
    program = SizedProgram.draw(seed)
    shared = _compiled(program)
    for n in (40, 46, 52, 58, 64, 70, 58, 34, 76, 28, 43, 61):
        _assert_alike(shared(rows(n)), _alone(program)(rows(n)), program, n)


@pytest.mark.parametrize("seed", SEEDS[:6])
def test_threads_may_call_a_function_with_different_sizes_at_once(seed: int) -> None:
    """Calls of seven sizes at once, of which most are the first of their size, agree with calls in turn."""
    program = SizedProgram.draw(seed)
    shared, wanted = _compiled(program), {n: _alone(program)(rows(n)) for n in SIZES}
    calls = [n for _ in range(6) for n in SIZES]
    with ThreadPoolExecutor(7) as pool:
        found = list(pool.map(lambda n: shared(rows(n)), calls))
    for n, each in zip(calls, found, strict=True):
        _assert_alike(each, wanted[n], program, n)


@pytest.mark.parametrize("seed", SEEDS)
def test_integers_of_graphs_are_polynomials_of_the_size(seed: int) -> None:
    """Sizes on one side of the branch, with equal rests of divisions by 2 and 3, have graphs of one form. Its integers are
    polynomials of degree 2 at most, so those of three sizes give those of a fourth.
    """
    program = SizedProgram.draw(seed)
    forms, integers = set[str](), list[list[int]]()
    for n in (22, 28, 34, 40):
        form = take_apart(nnc.make_graph(partial(program, nnp))(rows(n)))
        integers.append(form.integers)
        forms.add(repr(form.parts))
    assert len(forms) == 1, program
    for a, b, c, d in zip(*integers, strict=True):
        assert d - 3 * c + 3 * b - a == 0, (program, a, b, c, d)


def test_a_branch_on_the_size_gives_graphs_of_two_forms() -> None:
    """Sizes on either side of the branch must not be taken for one program."""
    run = nnc.make_graph(partial(SizedProgram(("branch",)), nnp))
    below, above = (take_apart(run(rows(n))).parts for n in (17, 33))
    assert below != above
