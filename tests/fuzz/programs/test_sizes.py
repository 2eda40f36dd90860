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
from tests.fuzz.programs.sized import SIZES, SizedProgram, form, rows

SEEDS = range(40)


def _compiled(program: SizedProgram) -> Any:
    return nnc.compile(partial(program, nnp))


def _bits(results: Any) -> list[bytes]:
    return [np.asarray(each).tobytes() for each in tree.leaves(results)]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_function_of_many_sizes_gives_the_bits_of_functions_of_one_size(seed: int) -> None:
    """A shared function meets sizes up and down, so that each call but the first follows one of another size."""
    program = SizedProgram.draw(seed)
    shared = _compiled(program)
    for n in (*SIZES, *reversed(SIZES)):
        found = shared(rows(n))
        assert _bits(found) == _bits(_compiled(program)(rows(n))), (program, n)
        exact = program(np, rows(n).astype(np.float64))
        rounding = 1e-5 * n * max(1.0, np.abs(exact[0]).max())  # of sums of n numbers, which may cancel
        for each, expected in zip(found, exact, strict=True):
            np.testing.assert_allclose(np.asarray(each), expected, rtol=1e-4, atol=rounding)


@pytest.mark.parametrize("seed", SEEDS[:6])
def test_threads_may_call_a_function_with_different_sizes_at_once(seed: int) -> None:
    """Calls of seven sizes at once, of which most are the first of their size, give the bits of calls in turn."""
    program = SizedProgram.draw(seed)
    shared, wanted = _compiled(program), {n: _bits(_compiled(program)(rows(n))) for n in SIZES}
    calls = [n for _ in range(6) for n in SIZES]
    with ThreadPoolExecutor(7) as pool:
        found = list(pool.map(lambda n: _bits(shared(rows(n))), calls))
    assert found == [wanted[n] for n in calls]


@pytest.mark.parametrize("seed", SEEDS)
def test_integers_of_graphs_are_polynomials_of_the_size(seed: int) -> None:
    """Sizes on one side of the branch, with equal rests of divisions by 2 and 3, have graphs of one form. Its integers are
    polynomials of degree 2 at most, so those of three sizes give those of a fourth.
    """
    program = SizedProgram.draw(seed)
    forms, integers = set[str](), list[list[int]]()
    for n in (22, 28, 34, 40):
        integers.append([])
        forms.add(repr(form(nnc.make_graph(partial(program, nnp))(rows(n)), integers[-1], [])))
    assert len(forms) == 1, program
    for a, b, c, d in zip(*integers, strict=True):
        assert d - 3 * c + 3 * b - a == 0, (program, a, b, c, d)


def test_a_branch_on_the_size_gives_graphs_of_two_forms() -> None:
    """Sizes on either side of the branch must not be taken for one program."""
    run = nnc.make_graph(partial(SizedProgram(("branch",)), nnp))
    below, above = (form(run(rows(n)), [], []) for n in (17, 33))
    assert below != above
