"""QR by Householder reflections, column by column, with LAPACK's signs (Golub and Van Loan, algorithm 5.2.1).

The buffer holds the matrix by columns, then the scalars tau, then the columns of Q.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import nnc.commands.factor  # noqa: F401  (registers the command)
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
from nnc.backends.factorizations import Specs
from nnc.backends.printer import Bound, minus, times
from nnc.lower.kernels.builder import Code, Value
from nnc.lower.plan.stages import Step

Element = Callable[[Bound], str]


def _sizes(specs: Specs, params: Params) -> tuple[int, int, int]:
    """Rows, columns, and columns of Q."""
    m, n = specs[0].shape[-2:]
    return m, n, m if params.get("full_matrices", False) else min(m, n)


def _elements(specs: Specs, params: Params) -> int:
    m, n, wide = _sizes(specs, params)
    return m * n + 2 * min(m, n) + m * wide


def _read(code: Code, step: Step, element: Element, pointers: Sequence[str]) -> None:
    x = step.inputs[0]

    def move(i: Value, j: Value, at: str) -> None:
        code.store(element(position(code, j, i, x.spec.shape[-2])), code.load(at, x.spec.dtype))

    over_matrix(code, x, pointers[0], move)


def _run(group: Group, step: Step) -> None:
    code = group.code
    m, n, wide = _sizes(step.input_specs, step.params)
    k = min(m, n)
    taus, betas, q = group.behind(m * n), group.behind(m * n + k), group.behind(m * n + 2 * k)
    with code.loop(0, k) as j:
        column = group.at(times(code, j, m))
        beta, tau = group.reflect(j, m, column)
        betas.store(j, beta)
        taus.store(j, tau)
        with code.loop(code_next(code, j), n) as i:
            _reflect_row(group, j, m, group.at(times(code, i, m)), tau, column)
    with code.loop(0, wide) as i:
        row = q.at(times(code, i, m))
        q.fill(0, m, row, 0.0)
        q.store(i, q.number(1), row)
    with code.loop(0, k) as back:
        j = code.integer(minus(code, code.integer(k - 1), back))
        column, tau = group.at(times(code, j, m)), taus.load(j)
        with code.loop(j, wide) as i:
            _reflect_row(group, j, m, q.at(times(code, i, m)), tau, column)


def _reflect_row(group: Group, begin: Bound, end: int, row: str, tau: Value, v: str) -> None:
    """Row -= tau (row · v) v."""
    factor = group.code.mul(tau, group.dot(begin, end, row, v))
    group.add_multiple(begin, end, row, group.code.neg(factor), v)


def _write(code: Code, step: Step, element: Element, pointers: Sequence[str]) -> None:
    m, n, _ = _sizes(step.input_specs, step.params)
    k, dtype = min(m, n), step.inputs[0].spec.dtype
    q, r = step.outputs[:2]

    def move_q(i: Value, j: Value, at: str) -> None:
        place = code.add(code.integer(position(code, j, i, m)), code.integer(m * n + 2 * k))
        code.store(at, code.load(element(place), dtype))

    def move_r(i: Value, j: Value, at: str) -> None:
        value = code.load(element(position(code, j, i, m)), dtype)
        zero = code.like(value, 0)
        code.store(at, code.select(code.compare("lt", i, j), value, zero))

    over_matrix(code, q, pointers[1], move_q)
    over_matrix(code, r, pointers[2], move_r)
    with code.loop(0, k) as i:
        at = code.offset(pointers[2], times(code, i, sum(r.strides[-2:])))
        code.store(at, code.load(element(code.add(i, code.integer(m * n + k))), dtype))


add_factorization("qr", Factorization(_elements, _read, _run, _write, fast_rows=FAST_ROWS))
