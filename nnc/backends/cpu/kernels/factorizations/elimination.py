"""LU with partial pivoting, row by row: `lu`, `det` and `slogdet`.

The buffer of a matrix holds its rows, then the position of each step's pivot. Rows are exchanged in memory, since each matrix of a
group has pivots of its own; of equal candidates the first is taken, as LAPACK does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import nnc.commands.determinants
import nnc.commands.lu  # noqa: F401  (registers the commands)
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
from nnc.backends.printer import Bound, times
from nnc.base import dtypes
from nnc.lower.kernels.builder import Code, Slot, Value
from nnc.lower.plan.stages import Step

Element = Callable[[Bound], str]


def eliminate(group: Group, m: int, n: int) -> None:
    """Overwrites matrices of m rows with their factors; behind them the pivots are written, as numbers of the dtype."""
    code, pivots = group.code, group.behind(m * n)
    with code.loop(0, min(m, n)) as j:
        best, at = _find_pivot(group, m, n, j)
        pivots.store(j, at)
        _exchange(group, pivots, j, n)
        top, after = group.at(times(code, j, n)), code_next(code, j)
        is_zero = code.compare("eq", best, group.number(0))
        divisor = code.select(is_zero, group.number(1), group.load(j, top))
        with code.loop(after, m) as i:
            row = group.at(times(code, i, n))
            factor = code.div(group.load(j, row), divisor)
            group.store(j, factor, row)
            group.add_multiple(after, n, row, code.neg(factor), top)


def _find_pivot(group: Group, m: int, n: int, j: Value) -> tuple[Value, Value]:
    """Returns the size of the first largest element in the rest of column j, and its row; NaN is larger than any number."""
    code = group.code
    first = code.splat(code.convert(j, group.dtype), group.lanes)
    best, at = code.slot(code.intrinsic("fabs", group.load(position(code, j, j, n)))), code.slot(first)
    with code.loop(code_next(code, j), m) as i:
        size, now = code.intrinsic("fabs", group.load(position(code, i, j, n))), code.read(best)
        fresh = code.and_(code.compare("uno", size, size), code.not_(code.compare("uno", now, now)))
        larger = code.or_(code.compare("gt", size, now), fresh)
        code.write(best, code.select(larger, size, now))
        here = code.splat(code.convert(i, group.dtype), group.lanes)
        code.write(at, code.select(larger, here, code.read(at)))
    return code.read(best), code.read(at)


def _exchange(group: Group, pivots: Group, j: Value, n: int) -> None:
    code, size = group.code, group.dtype.itemsize
    with code.loop(0, max(group.lanes, 1)) as lane:
        shift = code.mul(lane, code.integer(size))
        chosen = code.load(code.offset(pivots.at(j), shift), group.dtype)
        row = code.convert(chosen, dtypes.int64)
        with code.when(code.compare("ne", row, j)):
            places = [code.offset(group.at(times(code, x, n)), shift) for x in (row, j)]

            def swap(at: Value, lanes: int) -> None:
                pair = [code.offset(place, at) for place in places]
                values = [code.load(place, group.dtype, lanes) for place in pair]
                for place, value in zip(pair, reversed(values), strict=True):
                    code.store(place, value)

            if group.lanes:
                with code.loop(0, n) as k:
                    swap(code.mul(k, code.integer(group.step)), 0)
            else:
                group.each(0, n, swap)


def _elements(specs: Specs, params: Params) -> int:
    m, n = specs[0].shape[-2:]
    return m * n + min(m, n) + m


def read_matrix(code: Code, step: Step, element: Element, pointers: Sequence[str]) -> None:
    """Reads the first operand."""
    x = step.inputs[0]

    def move(i: Value, j: Value, at: str) -> None:
        code.store(element(position(code, i, j, x.spec.shape[-1])), code.load(at, x.spec.dtype))

    over_matrix(code, x, pointers[0], move)


def _run(group: Group, step: Step) -> None:
    eliminate(group, *step.inputs[0].spec.shape[-2:])


def _write_lu(code: Code, step: Step, element: Element, pointers: Sequence[str]) -> None:
    packed, pivots, rows = step.outputs[:3]
    (m, n), dtype = packed.spec.shape[-2:], packed.spec.dtype

    def move(i: Value, j: Value, at: str) -> None:
        code.store(at, code.load(element(position(code, i, j, n)), dtype))

    over_matrix(code, packed, pointers[1], move)
    with code.loop(0, m) as i:
        code.store(code.offset(pointers[3], times(code, i, rows.strides[-1])), code.convert(i, dtypes.int32))
    with code.loop(0, min(m, n)) as j:
        row = code.convert(code.load(element(code.add(j, code.integer(m * n))), dtype), dtypes.int64)
        code.store(code.offset(pointers[2], times(code, j, pivots.strides[-1])), code.convert(row, dtypes.int32))
        pair = [code.offset(pointers[3], times(code, x, rows.strides[-1])) for x in (row, j)]
        values = [code.load(place, dtypes.int32) for place in pair]
        for place, value in zip(pair, reversed(values), strict=True):
            code.store(place, value)


def _determinant(group: Group, step: Step) -> None:
    """Leaves the sign and the logarithm at the first two places behind the pivots, and the determinant at the third."""
    code, n = group.code, step.inputs[0].spec.shape[-1]
    eliminate(group, n, n)
    pivots, one = group.behind(n * n), group.number(1)
    sign, log, singular = (
        code.slot(x) for x in (one, group.number(0), code.constant(False, dtypes.bool_, group.lanes))
    )
    by_logarithm = step.command.outputs == 2  # the sign and the logarithm
    with code.loop(0, n) as j:
        x = group.load(position(code, j, j, n))
        moved = code.compare("ne", pivots.load(j), code.splat(code.convert(j, group.dtype), group.lanes))
        negative = code.xor(moved, code.compare("lt", x, group.number(0)))
        code.write(sign, code.select(negative, code.neg(code.read(sign)), code.read(sign)))
        code.write(singular, code.or_(code.read(singular), code.compare("eq", x, group.number(0))))
        if by_logarithm:
            code.write(log, code.add(code.read(log), code.intrinsic("log", code.intrinsic("fabs", x))))
    results = group.behind(n * n + n)
    nothing = code.read(singular)
    results.store(0, code.select(nothing, group.number(0), code.read(sign)))
    if by_logarithm:
        results.store(1, code.select(nothing, group.number(-math.inf), code.read(log)))
        return
    results.store(1, code.select(nothing, group.number(0), _product(group, n, sign)))


def _product(group: Group, n: int, sign: Slot) -> Value:
    """Returns the product of the diagonal, with its sign; by logarithms where products on the way leave the normal numbers."""
    code = group.code
    product, inside = code.slot(group.number(1)), code.slot(code.constant(True, dtypes.bool_, group.lanes))
    least, most = (group.number(2.0**e) for e in ((-1000, 1000) if group.dtype.itemsize == 8 else (-120, 120)))
    with code.loop(0, n) as j:
        x = code.mul(code.read(product), code.intrinsic("fabs", group.load(position(code, j, j, n))))
        code.write(product, x)
        kept = code.and_(code.compare("ge", x, least), code.compare("le", x, most))
        code.write(inside, code.and_(code.read(inside), kept))
    with code.when(group.any(code.not_(code.read(inside)))):
        log = code.slot(group.number(0))
        with code.loop(0, n) as j:
            x = code.intrinsic("log", code.intrinsic("fabs", group.load(position(code, j, j, n))))
            code.write(log, code.add(code.read(log), x))
        by_log = code.intrinsic("exp", code.read(log))
        code.write(product, code.select(code.read(inside), code.read(product), by_log))
    return code.mul(code.read(sign), code.read(product))


def _write_numbers(code: Code, step: Step, element: Element, pointers: Sequence[str]) -> None:
    n = step.inputs[0].spec.shape[-1]
    outputs = pointers[1:]  # the sign and the logarithm, or the determinant alone
    for pointer, number in zip(outputs, (0, 1)[-len(outputs) :], strict=True):
        code.store(pointer, code.load(element(n * n + n + number), step.inputs[0].spec.dtype))


def _numbers(specs: Specs, params: Params) -> int:
    return _elements(specs, params) + 2


add_factorization("lu", Factorization(_elements, read_matrix, _run, _write_lu, fast_rows=FAST_ROWS))
_DETERMINANT = Factorization(_numbers, read_matrix, _determinant, _write_numbers, fast_rows=FAST_ROWS)
add_factorization("det", _DETERMINANT)
add_factorization("slogdet", _DETERMINANT)
