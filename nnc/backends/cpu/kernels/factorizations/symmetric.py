"""Eigenvalues and -vectors of symmetric matrices: Householder tridiagonalisation, then implicit QL steps.

Tridiagonal form: Golub and Van Loan, algorithm 8.3.1. QL: Bowdler, Martin, Reinsch and Wilkinson, "The QR and QL algorithms for
symmetric matrices" (1968), with the tests and signs of LAPACK's `steqr`, so that vectors point as LAPACK's do up to 25 rows, above
which LAPACK divides. All matrices of a group take their steps together; one that needs no more of them stays as it is. About 9 n³
operations; Jacobi's method would take four times as many. The buffer holds the matrix, the eigenvectors as rows, and the vectors
d, e, tau and one of scratch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

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
from nnc.backends.printer import Bound, looping, minus, times
from nnc.base import dtypes
from nnc.lower.kernels.builder import Code, Slot, Value
from nnc.lower.plan.stages import Step

Element = Callable[[Bound], str]
_STEPS = 60  # of QL for one eigenvalue; more than 10 have not been seen


def _elements(specs: Specs, params: Params) -> int:
    n = specs[0].shape[-1]
    return 2 * n * n + 4 * n + 2


def read_symmetric(code: Code, step: Step, element: Element, pointers: Sequence[str]) -> None:
    """Reads half the sum of a matrix and its transpose."""
    x = step.inputs[0]
    n, (row_step, column_step) = x.spec.shape[-1], x.strides[-2:]

    def move(i: Value, j: Value, at: str) -> None:
        other = code.offset(code.offset(pointers[0], times(code, j, row_step)), times(code, i, column_step))
        half = code.constant(0.5, x.spec.dtype)
        total = code.fma(code.load(at, x.spec.dtype), half, code.mul(code.load(other, x.spec.dtype), half))
        code.store(element(position(code, i, j, n)), total)

    over_matrix(code, x, pointers[0], move)


@dataclass(frozen=True)
class _Spectrum:
    """Prints the algorithm for matrices of n rows."""

    group: Group
    n: int

    def behind(self, vectors: int) -> Group:
        """One of the vectors behind the matrices: d, e, tau, scratch, scale."""
        return self.group.behind(2 * self.n * self.n + vectors * self.n)

    def row(self, i: Bound) -> str:
        return self.group.at(times(self.group.code, i, self.n))

    def vector(self, i: Bound) -> str:
        return self.group.at(times(self.group.code, code_plus(self.group.code, i, self.n), self.n))

    def print(self) -> None:
        group, code, n = self.group, self.group.code, self.n
        largest = group.largest(0, n * n, group.pointer)
        rests = group.dot(0, n * n, group.pointer, group.pointer)
        scale = group.power_of_two(largest)
        wrong = code.or_(code.compare("uno", rests, rests), code.compare("eq", largest, group.number(np.inf)))
        with code.when(group.any(wrong)):
            group.refuse()
        self.behind(4).store(0, scale)
        group.scale(0, n * n, group.pointer, code.div(group.number(1), scale))
        with code.loop(0, n) as i:
            group.fill(0, n, self.vector(i), 0.0)
            group.store(i, group.number(1), self.vector(i))
        if n > 2:
            with code.loop(0, n - 2) as k:
                self._reduce(k)
            with code.loop(0, n - 2) as back:
                self._turn(code.integer(minus(code, code.integer(n - 3), back)))
        d, e = self.behind(0), self.behind(1)
        with code.loop(0, n) as i:
            d.store(i, group.load(i, self.row(i)))
        e.store(n - 1, group.number(0))
        if n > 1:
            e.store(n - 2, group.load(n - 1, self.row(n - 2)))
        self._diagonalise(d, e)
        group.scale(0, n, d.pointer, scale)
        self._sort(d)

    def _reduce(self, k: Value) -> None:
        """Makes row and column k tridiagonal: A -= v wᵀ + w vᵀ with w = p - (tau/2) (pᵀv) v, p = tau A v."""
        group, code, n = self.group, self.group.code, self.n
        first, v = code_next(code, k), self.row(k)
        beta, tau = group.reflect(first, n, v)
        self.behind(1).store(k, beta)
        self.behind(2).store(k, tau)
        w = self.behind(3)
        with code.loop(first, n) as i:
            w.store(i, code.mul(tau, group.dot(first, n, self.row(i), v)))
        inner = code.mul(code.mul(tau, group.number(-0.5)), group.dot(first, n, w.pointer, v))
        group.add_multiple(first, n, w.pointer, inner, v)
        with code.loop(first, n) as i:
            group.add_multiple(first, n, self.row(i), code.neg(group.load(i, v)), w.pointer)
            group.add_multiple(first, n, self.row(i), code.neg(w.load(i)), v)

    def _turn(self, k: Value) -> None:
        """Multiplies the vectors by reflection k."""
        group, code, n = self.group, self.group.code, self.n
        first, v, tau = code_next(code, k), self.row(k), self.behind(2).load(k)
        with code.loop(first, n) as i:
            row = self.vector(i)
            factor = code.neg(code.mul(tau, group.dot(first, n, row, v)))
            group.add_multiple(first, n, row, factor, v)

    def _flip(self, d: Group, e: Group) -> Value:
        """Turns matrices round whose last element is smaller than the first, as LAPACK then takes steps from the other end."""
        group, code, n = self.group, self.group.code, self.n
        first, last = (code.intrinsic("fabs", d.load(i)) for i in (0, n - 1))
        flipped = code.compare("lt", last, first)
        with code.loop(0, n // 2) as i:
            j = code.integer(minus(code, code.integer(n - 1), i))
            before = code.sub(j, code.integer(1))
            for vector, k, m in ((d, i, j), (e, i, before)):
                x, y = vector.load(k), vector.load(m)
                vector.store(k, code.select(flipped, y, x))
                vector.store(m, code.select(flipped, x, y))
            rows = self.vector(i), self.vector(j)

            def exchange(place: Value, lanes: int, rows: tuple[str, str] = rows) -> None:
                at = [code.offset(row, place) for row in rows]
                x, y = (code.load(pointer, group.dtype, lanes) for pointer in at)
                turned = code.splat(flipped, lanes)
                code.store(at[0], code.select(turned, y, x))
                code.store(at[1], code.select(turned, x, y))

            group.each(0, n, exchange)
        return flipped

    def _diagonalise(self, d: Group, e: Group) -> None:
        group, code, n = self.group, self.group.code, self.n
        flipped = self._flip(d, e)
        with code.loop(0, n - 1) as at:

            def goes_on(steps: Value, at: Value = at) -> Value:
                return code.and_(group.any(self._large(d, e, at)), code.compare("lt", steps, code.integer(_STEPS)))

            with looping(code, code.integer(0), goes_on, lambda steps: code.add(steps, code.integer(1))):
                self._step(d, e, at, flipped)
            with code.when(group.any(self._large(d, e, at))):
                group.refuse()

    def _large(self, d: Group, e: Group, i: Bound) -> Value:
        """Whether the element beside the diagonal in row i counts."""
        group, code, info = self.group, self.group.code, np.finfo(self.group.dtype)
        x, pair = e.load(i), code.mul(d.load(i), d.load(code_next(code, i)))
        share = code.mul(code.intrinsic("fabs", pair), group.number(float(info.eps) ** 2 / 4))
        return code.compare("gt", code.mul(x, x), code.add(share, group.number(float(info.tiny))))

    def _step(self, d: Group, e: Group, at: Value, flipped: Value) -> None:
        """One step on the block that begins at row `at`: of two rows at once, of others by QL with Wilkinson's shift."""
        group, code = self.group, self.group.code
        active, (end, last) = self._large(d, e, at), self._block_end(d, e, at)
        is_pair = code.compare(
            "eq", end, code.splat(code.convert(code.integer(code_next(code, at)), group.dtype), group.lanes)
        )
        pair = code.and_(active, is_pair)
        longer = code.and_(active, code.not_(is_pair))
        with code.when(group.any(longer)):
            self._chase(d, e, at, (end, last), longer)
        with code.when(group.any(pair)):
            self._solve_pair(d, e, at, flipped, pair)

    def _chase(self, d: Group, e: Group, at: Value, ends: tuple[Value, Value], active: Value) -> None:
        group, code, (end, last) = self.group, self.group.code, ends
        one, two = group.number(1), group.number(2)
        below = code.select(active, e.load(at), one)
        ratio = code.div(code.sub(d.load(code_next(code, at)), d.load(at)), code.mul(two, below))
        root = code.intrinsic("copysign", code.intrinsic("sqrt", code.fma(ratio, ratio, one)), ratio)
        shifted = code.add(code.sub(_gather(group, d, end), d.load(at)), code.div(below, code.add(ratio, root)))
        slots = [code.slot(x) for x in (shifted, one, one, group.number(0))]
        with code.loop(0, code.sub(last, at)) as back:
            i = code.sub(code.sub(last, code.integer(1)), back)
            place = code.splat(code.convert(i, group.dtype), group.lanes)
            self._rotate(d, e, i, slots, code.and_(active, code.compare("lt", place, end)))
        g, p = code.read(slots[0]), code.read(slots[3])
        d.store(at, code.select(active, code.sub(d.load(at), p), d.load(at)))
        e.store(at, code.select(active, g, e.load(at)))
        flags, stops = code.slot(code.select(active, one, group.number(0))), code.slot(end)
        with code.loop(0, max(group.lanes, 1)) as lane:  # the element that was chased out of the block
            shift = code.mul(lane, code.integer(group.dtype.itemsize))
            flag = code.load(code.offset(flags.name, shift), group.dtype)
            with code.when(code.compare("ne", flag, code.like(flag, 0))):
                row = code.convert(code.load(code.offset(stops.name, shift), group.dtype), dtypes.int64)
                code.store(code.offset(e.at(row), shift), code.constant(0, group.dtype))

    def _block_end(self, d: Group, e: Group, at: Value) -> tuple[Value, Value]:
        """Returns the last row of each matrix's block, as a number of the dtype, and the largest of them."""
        group, code, n = self.group, self.group.code, self.n
        whole = code.slot(code.constant(True, dtypes.bool_, group.lanes))
        end = code.slot(code.splat(code.convert(at, group.dtype), group.lanes))
        last = code.slot(at)
        with code.loop(at, n - 1) as i:
            still = code.and_(code.read(whole), self._large(d, e, i))
            code.write(whole, still)
            following = code.integer(code_next(code, i))
            here = code.splat(code.convert(following, group.dtype), group.lanes)
            code.write(end, code.select(still, here, code.read(end)))
            code.write(last, code.select(group.any(still), following, code.read(last)))
        return code.read(end), code.read(last)

    def _rotate(self, d: Group, e: Group, i: Value, slots: list[Slot], active: Value) -> None:
        """Chases the element outside of the tridiagonal form from row i + 1 to row i."""
        group, code = self.group, self.group.code
        after = code_next(code, i)
        g, s, c, p = old = [code.read(slot) for slot in slots]
        f, b = code.mul(s, e.load(i)), code.mul(c, e.load(i))
        square = code.fma(g, g, code.mul(f, f))
        zero, one, info = group.number(0), group.number(1), np.finfo(group.dtype)
        # Below this, squares have too few digits, and the element is nothing beside the matrix, which was scaled.
        fine = code.compare("gt", square, group.number(float(info.tiny) / float(info.eps)))
        root = code.intrinsic("copysign", code.intrinsic("sqrt", code.select(fine, square, one)), g)
        r = code.select(fine, root, zero)
        sine, cosine = code.select(fine, code.div(f, root), zero), code.select(fine, code.div(g, root), one)
        shifted = code.sub(d.load(after), p)
        turned = code.fma(code.sub(d.load(i), shifted), sine, code.mul(code.mul(group.number(2), cosine), b))
        moved = code.mul(sine, turned)
        e.store(after, code.select(active, r, e.load(after)))
        d.store(after, code.select(active, code.add(shifted, moved), d.load(after)))
        new = code.sub(code.mul(cosine, turned), b), sine, cosine, moved
        for slot, x, y in zip(slots, new, old, strict=True):
            code.write(slot, code.select(active, x, y))
        self._turn_rows(i, code.select(active, sine, zero), code.select(active, cosine, one))

    def _turn_rows(self, i: Value, sine: Value, cosine: Value) -> None:
        """Rotates eigenvectors i and i + 1."""
        group, code = self.group, self.group.code
        left, right = self.vector(i), self.vector(code_next(code, i))

        def turn(place: Value, lanes: int) -> None:
            low, high = code.offset(left, place), code.offset(right, place)
            x, y = code.load(low, group.dtype, lanes), code.load(high, group.dtype, lanes)
            s, c = code.splat(sine, lanes), code.splat(cosine, lanes)
            code.store(high, code.fma(s, x, code.mul(c, y)))
            code.store(low, code.fma(c, x, code.neg(code.mul(s, y))))

        group.each(0, self.n, turn)

    def _solve_pair(self, d: Group, e: Group, at: Value, flipped: Value, active: Value) -> None:
        """Solves blocks of two rows, as LAPACK's `laev2`: the eigenvalue of larger size comes first."""
        group, code = self.group, self.group.code
        after, zero, one = code_next(code, at), group.number(0), group.number(1)
        low, high, b = d.load(at), d.load(after), code.select(active, e.load(at), one)
        a, c = code.select(flipped, high, low), code.select(flipped, low, high)
        total, gap, twice = code.add(a, c), code.sub(a, c), code.add(b, b)
        sizes = [code.intrinsic("fabs", x) for x in (gap, twice, a, c)]
        wide = code.compare("gt", sizes[0], sizes[1])
        most, least = code.select(wide, sizes[0], sizes[1]), code.select(wide, sizes[1], sizes[0])
        share = code.div(least, most)
        root = code.mul(most, code.intrinsic("sqrt", code.fma(share, share, one)))
        signed = code.select(code.compare("lt", total, zero), code.neg(root), root)
        first = code.mul(group.number(0.5), code.add(total, signed))
        a_larger = code.compare("gt", sizes[2], sizes[3])
        larger, smaller = code.select(a_larger, a, c), code.select(a_larger, c, a)
        product = code.sub(code.mul(code.div(larger, first), smaller), code.mul(code.div(b, first), b))
        second = code.select(code.compare("eq", total, zero), code.neg(first), product)
        upward = code.compare("ge", gap, zero)
        cs = code.add(gap, code.select(upward, root, code.neg(root)))
        steep = code.compare("gt", code.intrinsic("fabs", cs), sizes[1])
        slope = code.select(steep, code.div(code.neg(twice), cs), code.div(code.neg(cs), twice))
        long = code.div(one, code.intrinsic("sqrt", code.fma(slope, slope, one)))
        short = code.mul(slope, long)
        cosine, sine = code.select(steep, short, long), code.select(steep, long, short)
        same = code.xor(code.compare("lt", total, zero), upward)
        cosine, sine = code.select(same, code.neg(sine), cosine), code.select(same, cosine, sine)
        d.store(at, code.select(active, code.select(flipped, second, first), low))
        d.store(after, code.select(active, code.select(flipped, first, second), high))
        e.store(at, code.select(active, zero, e.load(at)))
        sine = code.select(flipped, sine, code.neg(sine))
        self._turn_rows(at, code.select(active, sine, zero), code.select(active, cosine, one))

    def _sort(self, d: Group) -> None:
        """Leaves the places of the values in rising order in the scratch vector, for each matrix: by insertion."""
        group, code, n, size = self.group, self.group.code, self.n, self.group.dtype.itemsize
        order = self.behind(3)
        with code.loop(0, max(group.lanes, 1)) as lane:
            shift = code.mul(lane, code.integer(size))
            value_at, order_at = (code.offset(x.pointer, shift) for x in (d, order))
            with code.loop(0, n) as i:
                new = code.load(group.at(i, value_at), group.dtype)
                place = code.slot(code.integer(0))
                with code.loop(0, n) as k:  # its place: how many are smaller, or equal and before it
                    other = code.load(group.at(k, value_at), group.dtype)
                    equal = code.and_(code.compare("eq", other, new), code.compare("lt", k, i))
                    first = code.or_(code.compare("lt", other, new), equal)
                    more = code.add(code.read(place), code.integer(1))
                    code.write(place, code.select(first, more, code.read(place)))
                code.store(group.at(code.read(place), order_at), code.convert(i, group.dtype))


def _gather(group: Group, x: Group, index: Value) -> Value:
    """Returns of each matrix the element at its own index, a number of the dtype."""
    code = group.code
    if not group.lanes:
        return x.load(code.convert(index, dtypes.int64))
    indices, found = code.slot(index), code.slot(index)
    with code.loop(0, group.lanes) as lane:
        shift = code.mul(lane, code.integer(group.dtype.itemsize))
        row = code.convert(code.load(code.offset(indices.name, shift), group.dtype), dtypes.int64)
        code.store(code.offset(found.name, shift), code.load(code.offset(x.at(row), shift), group.dtype))
    return code.read(found)


def code_plus(code: Code, i: Bound, n: int) -> Bound:
    """i + n, folded where known."""
    return i + n if isinstance(i, int) else code.add(i, code.integer(n))


def _run(group: Group, step: Step) -> None:
    _Spectrum(group, step.inputs[0].spec.shape[-1]).print()


def _write(code: Code, step: Step, element: Element, pointers: Sequence[str]) -> None:
    w, v = step.outputs[:2]
    n, dtype = w.spec.shape[-1], w.spec.dtype
    with code.loop(0, n) as j:
        order = code.load(element(code.add(j, code.integer(2 * n * n + 3 * n))), dtype)
        chosen = code.convert(order, dtypes.int64)
        value = code.load(element(code.add(chosen, code.integer(2 * n * n))), dtype)
        code.store(code.offset(pointers[1], times(code, j, w.strides[-1])), value)
        column = code.offset(pointers[2], times(code, j, v.strides[-1]))
        row = code.mul(code.add(chosen, code.integer(n)), code.integer(n))
        with code.loop(0, n) as i:
            at = code.offset(column, times(code, i, v.strides[-2]))
            code.store(at, code.load(element(code.add(row, i)), dtype))


add_factorization("eigh", Factorization(_elements, read_symmetric, _run, _write, refuses=True, fast_rows=FAST_ROWS))
