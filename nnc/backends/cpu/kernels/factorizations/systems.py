"""Linear systems by elimination, and Cholesky's factorisation, row by row; both refuse matrices without an answer.

A system's buffer holds the rows of the matrix, each with its right-hand sides, so that the elimination takes these along.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import nnc.commands.factor  # noqa: F401  (registers the commands)
from nnc.backends.cpu.kernels.factorizations.elimination import eliminate
from nnc.backends.cpu.kernels.factorizations.lanes import (
    FAST_ROWS,
    Factorization,
    Group,
    Params,
    add_factorization,
    code_next,
    over_matrix,
    position,
)
from nnc.backends.cpu.kernels.factorizations.symmetric import read_symmetric
from nnc.backends.factorizations import Specs
from nnc.backends.printer import Bound, minus, times
from nnc.lower.kernels.builder import Code, Value
from nnc.lower.plan.stages import Step

Element = Callable[[Bound], str]
_FAST_CHOLESKY = 8  # rows; in batches 1.03 to 1.6 times as fast as by panels on Zen 4, at 16 rows 0.6 to 0.8 times

# -- systems -----------------------------------------------------------------------------------------------------------


def _sizes(specs: Specs) -> tuple[int, int]:
    """Rows, and columns with the right-hand sides."""
    n, k = specs[1].shape[-2:]
    return n, n + k


def _system_elements(specs: Specs, params: Params) -> int:
    n, width = _sizes(specs)
    return n * width + n


def _read_system(code: Code, step: Step, element: Element, pointers: Sequence[str]) -> None:
    n, width = _sizes(step.input_specs)
    for view, pointer, first in zip(step.inputs, pointers, (0, n), strict=False):

        def move(i: Value, j: Value, at: str, first: int = first) -> None:
            place = code.add(code.integer(position(code, i, j, width)), code.integer(first))
            code.store(element(place), code.load(at, step.inputs[0].spec.dtype))

        over_matrix(code, view, pointer, move)


def _solve(group: Group, step: Step) -> None:
    code, (n, width) = group.code, _sizes(step.input_specs)
    eliminate(group, n, width)
    with code.loop(0, n) as back:
        i = code.integer(minus(code, code.integer(n - 1), back))
        row = group.at(times(code, i, width))
        pivot = group.load(i, row)
        with code.when(group.any(code.compare("eq", pivot, group.number(0)))):
            group.refuse()
        with code.loop(code_next(code, i), n) as j:
            group.add_multiple(n, width, row, code.neg(group.load(j, row)), group.at(times(code, j, width)))

        def divide(place: Value, lanes: int, row: str = row, pivot: Value = pivot) -> None:
            at = code.offset(row, place)
            code.store(at, code.div(code.load(at, group.dtype, lanes), code.splat(pivot, lanes)))

        group.each(n, width, divide)


def _write_solution(code: Code, step: Step, element: Element, pointers: Sequence[str]) -> None:
    n, width = _sizes(step.input_specs)

    def move(i: Value, j: Value, at: str) -> None:
        place = code.add(code.integer(position(code, i, j, width)), code.integer(n))
        code.store(at, code.load(element(place), step.inputs[0].spec.dtype))

    over_matrix(code, step.outputs[0], pointers[2], move)


# -- Cholesky ----------------------------------------------------------------------------------------------------------


def _square_elements(specs: Specs, params: Params) -> int:
    return specs[0].shape[-1] ** 2


def _cholesky(group: Group, step: Step) -> None:
    """Row i of L from the rows before it."""
    code, n = group.code, step.inputs[0].spec.shape[-1]
    with code.loop(0, n) as i:
        row = group.at(times(code, i, n))
        with code.loop(0, i) as j:
            before = group.at(times(code, j, n))
            rest = code.sub(group.load(j, row), group.dot(0, j, row, before))
            group.store(j, code.div(rest, group.load(j, before)), row)
        square = code.sub(group.load(i, row), group.dot(0, i, row, row))
        with code.when(group.any(code.compare("le", square, group.number(0)))):
            group.refuse()
        group.store(i, code.intrinsic("sqrt", square), row)


def _write_lower(code: Code, step: Step, element: Element, pointers: Sequence[str]) -> None:
    out = step.outputs[0]

    def move(i: Value, j: Value, at: str) -> None:
        value = code.load(element(position(code, i, j, out.spec.shape[-1])), out.spec.dtype)
        code.store(at, code.select(code.compare("le", j, i), value, code.like(value, 0)))

    over_matrix(code, out, pointers[1], move)


add_factorization(
    "solve", Factorization(_system_elements, _read_system, _solve, _write_solution, refuses=True, fast_rows=FAST_ROWS)
)
add_factorization(
    "cholesky",
    Factorization(_square_elements, read_symmetric, _cholesky, _write_lower, refuses=True, fast_rows=_FAST_CHOLESKY),
)
