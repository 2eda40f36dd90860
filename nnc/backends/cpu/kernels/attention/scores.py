"""Parts of all printed kernels of attention: where operands lie, blocks of queries, and the scores of a block.

Scores stand with a key a row and queries in lanes. So the greatest score of a query, its sum and all that is computed of them are
vectors, and keys and values are read element by element as they lie; only the queries of a block are turned. Lanes behind the last
query do its work once more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from nnc.backends.cpu.kernels.attention.blocks import MOST_ROWS, Helpers, MatrixPlace, Tiling, copy_rows
from nnc.backends.cpu.kernels.vectors import cases, split
from nnc.backends.printer import Bound, Printer, times
from nnc.base import dtypes
from nnc.base.dtypes import DType
from nnc.base.target import Target
from nnc.commands.attention import Operands
from nnc.commands.attention_formulas import Reach
from nnc.lower.kernels.axes import Axes
from nnc.lower.kernels.builder import Code, Value, known_integer
from nnc.lower.kernels.math.exponential import exp
from nnc.lower.kernels.math.terms import Term
from nnc.lower.kernels.sizes import derived, is_number
from nnc.lower.plan.stages import View

_SPARE_SHARE = 16  # of blocks of any number of queries, one vector in so many may be without queries


class Extra(NamedTuple):
    """A bias or a mask: its name, bytes between elements of neighbouring queries and keys (0: shared), and its dtype. A mask of
    integers holds the first key of a query and the one behind its last.
    """

    name: str
    query: int
    key: int
    dtype: DType

    @classmethod
    def of(cls, name: str, view: View) -> Extra:
        """Returns a view."""
        return cls(name, _stride(view, -2), _stride(view, -1), view.spec.dtype)

    @property
    def is_range(self) -> bool:
        """Whether it holds ranges of keys."""
        return self.dtype == dtypes.int32


@dataclass(frozen=True)
class AttentionSizes:
    """Sizes of an attention, and how many queries are taken together."""

    tiling: Tiling
    dtype: DType
    count: int
    keys: int
    features: int
    value_features: int
    scale: float
    reach: Reach
    lead: tuple[int, ...]  # batches and heads of keys
    shared: int
    extras: tuple[Extra, ...]

    @classmethod
    def of(cls, x: Operands, names: Sequence[str], scale: float, reach: Reach, machine: Target) -> AttentionSizes:
        """Returns the form of views; `names` are the names of pointers to the bias and the masks."""
        spec = x.q.spec
        *batch, count, heads, features = spec.shape
        own = int(x.k.spec.shape[-2])
        views = [*([] if x.bias is None else [x.bias]), *x.masks]
        extras = tuple(Extra.of(name, view) for name, view in zip(names, views, strict=True))
        tiling, far = Tiling.of(dtypes.accumulator(spec.dtype), machine), count + x.k.spec.shape[-3]
        before, after = (None if n is None or n >= far else max(n, -far) for n in reach)
        return cls(
            tiling, spec.dtype, count, x.k.spec.shape[-3], int(features), int(x.v.spec.shape[-1]), scale, (before, after),
            (*batch, own), int(heads) // max(own, 1), extras,
        )  # fmt: skip

    # -- blocks of queries ---------------------------------------------------------------------------------------------

    @property
    def width(self) -> int:
        """Queries of a block: all blocks are nearly as long."""
        most = self.tiling.lanes * self.tiling.vectors
        return (
            int(-(-self.count // -(-self.count // most) // self.tiling.lanes)) * self.tiling.lanes
            if self.count
            else most
        )

    @property
    def blocks(self) -> int:
        """The number of blocks."""
        return -(-self.count // self.width)

    @property
    def keys_divisor(self) -> int:
        """A number that divides the number of keys of each block."""
        return 1 if is_number(self.keys) else math.gcd(self.keys, MOST_ROWS)

    @property
    def volume(self) -> int:
        """Multiplications of a block."""
        return self.width * self.keys * (self.features + self.value_features)

    def helpers(self, printer: Printer) -> Helpers:
        """Returns the functions that blocks call."""
        return Helpers(printer, self.tiling, max(self.features, self.value_features) * self.dtype.itemsize)

    def each_width(self, code: Code, block: Bound, body: Callable[[int], None]) -> None:
        """Runs `body(vectors)` with the number of vectors that hold the queries of a block."""
        lanes = self.tiling.lanes
        full, last = self.width // lanes, -(-(self.count - (self.blocks - 1) * self.width) // lanes)
        is_like_others = is_number(last) and (full - last) * _SPARE_SHARE <= self.blocks * full
        last = full if is_like_others else int(last)
        for vectors, only_last in cases(full, last, self.blocks):
            if only_last is None:
                body(vectors)
                continue
            is_last = code.compare("eq", code.integer(block), code.integer(self.blocks - 1))
            with code.when(is_last if only_last else code.not_(is_last)):
                body(vectors)

    def loops(self, views: Sequence[View], is_tokens: Sequence[bool]) -> Axes:
        """Batches, heads of keys, the queries' heads that share one; in operands where tokens stand before heads, or behind."""
        strides = []
        for view, tokens in zip(views, is_tokens, strict=True):
            at = len(self.lead) if tokens else len(self.lead) - 1
            head = _stride(view, at)
            grouped = (head * self.shared, head) if view.spec.shape[at] == self.lead[-1] * self.shared else (head, 0)
            batch = tuple(_stride(view, axis) for axis in range(len(self.lead) - 1))
            strides.append((*batch, *grouped))
        return Axes((*self.lead, self.shared), tuple(strides))


def _stride(view: View, axis: int) -> int:
    return 0 if view.spec.shape[axis] == 1 else view.strides[axis]


def rows_of(view: View, pointer: str) -> MatrixPlace:
    """The tokens of one head, each a row of features."""
    return MatrixPlace(pointer, view.strides[-3], view.strides[-1], view.spec.dtype)


def print_blocks(
    printer: Printer, form: AttentionSizes, views: Sequence[View], has_tokens: Collection[int], names: Sequence[str],
    body: Callable[[QueryBlock, Sequence[str], Sequence[str]], None],
) -> None:  # fmt: skip
    """Prints all blocks of queries, which threads share: `body(block, pointers, pointers to the next block's head)`."""
    loops = form.loops(views, [i in has_tokens for i in range(len(views))])
    total = math.prod(loops.shape) * form.blocks
    loops, helpers = loops.merged(), form.helpers(printer)

    def part(code: Code, begin: Bound, end: Bound) -> None:
        with code.loop(begin, end) as number:
            head, place = split(code, number, form.blocks)
            next_head, _ = split(code, code.add(number, code.integer(1)), form.blocks)
            at, after = (loops.at(code, names, code.integer(i)) for i in (head, next_head))
            first = times(code, place, form.width)
            extras = [at[names.index(extra.name)] for extra in form.extras]
            form.each_width(
                code, place, lambda vectors: body(QueryBlock(code, form, helpers, first, vectors, extras), at, after)
            )

    printer.parts(total, derived(max, 1, printer.machine.products.part_volume // max(1, form.volume)), part)


class Tokens(NamedTuple):
    """An operand with tokens: its view, where a block's head begins, and where the next block's head does."""

    view: View
    at: str
    after: str

    @property
    def rows(self) -> MatrixPlace:
        """The tokens of the block's head."""
        return rows_of(self.view, self.at)

    def ahead(self, block: QueryBlock, key: Value, end: Value) -> MatrixPlace:
        """Returns the rows that are read after the block of keys at a place, of which the last one ends at `end`."""
        code = block.code
        following = code.add(key, code.integer(block.tiling.keys))
        is_last = code.compare("ge", following, end)
        return self.rows.at(code, following).unless(code, is_last, rows_of(self.view, self.after))

    def following(self, block: QueryBlock) -> MatrixPlace:
        """Returns the rows that the next block of queries reads."""
        code, form = block.code, block.form
        rows = rows_of(self.view, self.after)
        if form.blocks > 1:
            following = self.rows.at(code, code.add(block.first, code.integer(form.width)))
            return following.unless(code, code.compare("eq", block.end, code.integer(form.count)), rows)
        return rows


def exponential(code: Code, x: Value) -> Value:
    """e^x."""
    return exp(Term(code, x)).value


def finite(code: Code, x: Value) -> Value:
    """x, but 0 for the greatest of no scores."""
    return code.select(code.compare("eq", x, code.like(x, -math.inf)), code.like(x, 0), x)


def near(
    code: Code, tiling: Tiling, source: MatrixPlace, rows: Bound, most: int, columns: int, *, dense: bool = False
) -> MatrixPlace:
    """The same numbers in the dtype of sums, neighbours side by side.

    Args:
        dense: whether rows lie side by side, too. At distances of a power of two they would share few places of the first
            cache, which costs time where many matrices are in use.
    """
    unit = source.dtype.itemsize
    if source.dtype == tiling.wide and source.column == unit and not (dense and source.row != columns * unit):
        return source
    room = tiling.rows_room(code, most, columns)
    copy_rows(code, tiling, source, room, rows, columns)
    return room


# -- a block of queries ------------------------------------------------------------------------------------------------


class QueryBlock:
    """A block of queries that is being printed: `vectors` of them from `first` on; `extras` are pointers to the bias and masks."""

    def __init__(
        self, code: Code, form: AttentionSizes, helpers: Helpers, first: Bound, vectors: int, extras: Sequence[str]
    ) -> None:
        self.code, self.form, self.tiling = code, form, form.tiling
        self.helpers = helpers
        self.first, self.vectors, self.width = code.integer(first), vectors, vectors * form.tiling.lanes
        self.last = code.integer(form.count - 1)
        end = code.add(self.first, code.integer(self.width))
        self.end = code.intrinsic("smin", end, code.integer(form.count))
        self._pointers = code.room(8 * form.tiling.lanes)
        self.extras = list(zip(form.extras, extras, strict=True))
        self.ranges = [_Ranges.read(self, extra, at) for extra, at in self.extras if extra.is_range]

    @property
    def size(self) -> Value:
        """The number of queries."""
        return self.code.sub(self.end, self.first)

    def range(self, begin: Bound, end: Bound) -> tuple[Value, Value]:
        """Returns the keys of a span that some query of the block may attend to, from the first to behind the last, in whole
        tiles if the span is.
        """
        code, (before, after) = self.code, self.form.reach
        begin, end = code.integer(begin), code.integer(end)
        more = MOST_ROWS - 1
        firsts, ends = [x.first for x in self.ranges], [code.add(x.end, code.integer(more)) for x in self.ranges]
        if before is not None:
            firsts.append(code.sub(self.first, code.integer(before)))
        if after is not None:
            ends.append(code.add(self.end, code.integer(after + more)))
        for first in firsts:
            begin = code.and_(code.intrinsic("smax", begin, first), code.integer(-MOST_ROWS))
        for behind in ends:
            end = code.intrinsic("smin", end, code.and_(behind, code.integer(-MOST_ROWS)))
        return begin, end

    def each_keys(self, begin: Bound, end: Bound, body: Callable[[Value, Value, Value], None]) -> None:
        """Runs `body(at, n, end)` for blocks of a span of keys, so far as queries of the block may attend to them."""
        code, (first, last) = self.code, self.range(begin, end)
        with code.loop(first, last, self.tiling.keys) as at:
            body(at, code.intrinsic("smin", code.sub(last, at), code.integer(self.tiling.keys)), last)

    @contextmanager
    def each_vector(self) -> Iterator[Value]:
        """Prints a loop over vectors, in which the block runs: code that takes LLVM long, as exponentials do, is printed once."""
        with self.code.loop(0, self.vectors) as v:
            yield v

    def _lanes(self, v: Bound, dtype: DType) -> Value:
        """Returns the numbers of a vector's queries within the block."""
        code, lanes, kind = self.code, self.tiling.lanes, "i64" if dtype == dtypes.int64 else "i32"
        first = code.integer(times(code, v, lanes))
        known = known_integer(first)
        numbers = ", ".join(f"{kind} {i + (known or 0)}" for i in range(lanes))
        steps = Value(f"<{numbers}>", dtype, lanes)
        return steps if known is not None else code.add(steps, code.splat(code.convert(first, dtype), lanes))

    def places(self, v: Bound, dtype: DType = dtypes.int64) -> Value:
        """Returns the numbers of the queries of a vector."""
        code, steps = self.code, self._lanes(v, dtype)
        return code.intrinsic("smin", code.add(code.convert(self.first, dtype), steps), code.convert(self.last, dtype))

    def inside(self, v: Bound) -> Value:
        """Returns a mask of the lanes of a vector that hold a query."""
        return self.code.compare("lt", self._lanes(v, dtypes.int64), self.size)

    def pointers(self, source: MatrixPlace, v: Value) -> str:
        """The memory with pointers to the rows of a vector's queries; behind the last query, to its row."""
        code, lanes = self.code, self.tiling.lanes
        with code.loop(0, lanes) as i:
            at = code.add(code.add(self.first, code.mul(v, code.integer(lanes))), i)
            row = source.at(code, code.intrinsic("smin", at, self.last)).pointer
            code.line(f"store ptr {row}, ptr {code.offset(self._pointers, times(code, i, 8))}, align 8")
        return self._pointers

    def column(self, pointer: str, step: int, dtype: DType, v: Bound) -> Value:
        """Returns a number of each query of a vector."""
        code = self.code
        if step == 0:
            return code.splat(code.load(pointer, dtype), self.tiling.lanes)
        return code.gather(pointer, code.mul(self.places(v), code.integer(step)), dtype)

    def room(self, rows: int) -> MatrixPlace:
        """A matrix on the stack with queries in lanes, which `unpack` takes."""
        return self.tiling.squares_room(self.code, rows, self.vectors)

    def pack(self, source: MatrixPlace, columns: int) -> MatrixPlace:
        """The block's rows of a matrix, turned."""
        code, target = self.code, self.room(columns)
        with code.loop(0, self.vectors) as v:
            to = target.at(code, 0, times(code, v, self.tiling.lanes))
            self.helpers.turn_squares(code, self.pointers(source, v), source, columns, to)
        return target

    def unpack(self, source: MatrixPlace, target: MatrixPlace, columns: int) -> None:
        """Writes such a matrix to the block's rows of another."""
        code = self.code
        with code.loop(0, self.vectors) as v:
            of = source.at(code, 0, times(code, v, self.tiling.lanes))
            self.helpers.turn_squares(code, self.pointers(target, v), target, columns, of, writes=True)

    def near(self, source: MatrixPlace, rows: Bound, most: int, columns: int, *, dense: bool = False) -> MatrixPlace:
        """The function of this name."""
        return near(self.code, self.tiling, source, rows, most, columns, dense=dense)

    # -- rows of vectors -------------------------------------------------------------------------------------------------

    def load(self, matrix: MatrixPlace, row: Bound, v: Bound) -> Value:
        """A vector of a matrix with queries in lanes."""
        at = matrix.at(self.code, row, times(self.code, v, self.tiling.lanes))
        return self.code.load(at.pointer, self.tiling.wide, self.tiling.lanes)

    def store(self, matrix: MatrixPlace, row: Bound, v: Bound, x: Value) -> None:
        """Writes one."""
        self.code.store(matrix.at(self.code, row, times(self.code, v, self.tiling.lanes)).pointer, x)

    def change(self, matrix: MatrixPlace, rows: Bound, body: Callable[[Value, int, Value], Value]) -> None:
        """Replaces each vector x of the first rows by `body(row, v, x)`."""
        with self.code.loop(0, rows) as j:
            for v in range(self.vectors):
                self.store(matrix, j, v, body(j, v, self.load(matrix, j, v)))

    def fill(self, matrix: MatrixPlace, rows: Bound, number: float) -> None:
        """Writes a number to the first rows."""
        x = self.code.constant(number, self.tiling.wide, self.tiling.lanes)
        with self.code.loop(0, rows) as j:
            for v in range(self.vectors):
                self.store(matrix, j, v, x)

    def scale(self, packed: MatrixPlace, rows: int) -> None:
        """Multiplies by the scale of scores."""
        self.change(packed, rows, lambda j, v, x: self.code.mul(x, self.code.like(x, self.form.scale)))

    # -- scores ----------------------------------------------------------------------------------------------------------

    def print_scores(
        self, keys: MatrixPlace, packed: MatrixPlace, out: MatrixPlace, at: Value, n: Value,
        ahead: Sequence[MatrixPlace] = (),
    ) -> None:  # fmt: skip
        """The scores of `n` keys from number `at` on, which `keys` begins with; -inf where a query does not attend."""
        self.print_products(keys, packed, out, n, self.form.features, ahead=ahead)
        for extra, pointer in self.extras:
            if not extra.is_range:
                self.add_extra(extra, pointer, out, at, n)
        self._limit(out, at, n)

    def shifts(self, logarithms: str, step: int) -> MatrixPlace:
        """The logarithms of the sums of the queries' weights."""
        found = self.tiling.room(self.code, 1, self.vectors)
        with self.each_vector() as v:
            self.store(found, 0, v, finite(self.code, self.column(logarithms, step, self.tiling.wide, v)))
        return found

    def weigh(self, scores: MatrixPlace, n: Value, shifts: MatrixPlace) -> None:
        """Scores become weights."""
        code = self.code
        with self.each_vector() as v:
            shift = self.load(shifts, 0, v)
            with code.loop(0, n) as j:
                x = self.load(scores, j, v)
                is_none = code.compare("eq", x, code.like(x, -math.inf))  # its weight is 0 also where the sum is NaN
                weight = exponential(code, code.sub(x, shift))
                self.store(scores, j, v, code.select(is_none, code.like(x, 0), weight))

    def print_products(
        self, rows: MatrixPlace, packed: MatrixPlace, out: MatrixPlace, n: Value, features: int, *, adds: bool = False,
        ahead: Sequence[MatrixPlace] = (),
    ) -> None:  # fmt: skip
        """The products of `n` rows, one for each key, with the block's turned rows."""
        divisor = self.form.keys_divisor
        self.helpers.multiply(
            self.code, rows, packed, out, n, features, self.width, adds=adds, divisor=divisor, ahead=ahead
        )

    def add_extra(self, extra: Extra, pointer: str, out: MatrixPlace, at: Value, n: Value) -> None:
        """A bias is added to scores, which are -inf where a mask forbids them."""
        code, lanes = self.code, self.tiling.lanes
        if extra.key == 0:
            columns = [self.column(pointer, extra.query, extra.dtype, v) for v in range(self.vectors)]
            self.change(out, n, lambda j, v, x: self._with(x, columns[v]))
        elif extra.query == 0:
            with code.loop(0, n) as j:
                one = code.load(code.offset(pointer, times(code, code.add(at, j), extra.key)), extra.dtype)
                for v in range(self.vectors):
                    self.store(out, j, v, self._with(self.load(out, j, v), code.splat(one, lanes)))
        else:
            self._add_turned(extra, pointer, out, at, n)

    def _add_turned(self, extra: Extra, pointer: str, out: MatrixPlace, at: Value, n: Value) -> None:
        """Adds a bias or mask that differs from query to query and from key to key: neighbours are keys, so it is turned."""
        code, wide = self.code, self.tiling.wide
        room = self.tiling.squares_room(code, self.tiling.keys, 1)
        source = MatrixPlace(pointer, extra.query, extra.key, extra.dtype)
        with code.loop(0, self.vectors) as v:
            self.helpers.turn_squares(code, self.pointers(source.at(code, 0, at), v), source, n, room)
            with code.loop(0, n) as j:
                x = self.load(room, j, 0)
                value = code.compare("ne", x, code.constant(0, wide)) if dtypes.is_bool(extra.dtype) else x
                self.store(out, j, v, self._with(self.load(out, j, v), value))

    def _with(self, x: Value, extra: Value) -> Value:
        code = self.code
        if dtypes.is_bool(extra.dtype):
            return code.select(extra, x, code.like(x, -math.inf))
        return code.add(x, code.convert(extra, x.dtype))

    def _limit(self, out: MatrixPlace, at: Value, n: Value) -> None:
        """Masks scores that are out of reach, in blocks of which not all is within."""
        code, (before, after) = self.code, self.form.reach
        far = code.constant(False, dtypes.bool_)
        if after is not None:
            ahead = code.sub(code.sub(code.add(at, n), code.integer(1)), self.first)
            far = code.or_(far, code.compare("gt", ahead, code.integer(after)))
        if before is not None:
            behind = code.sub(code.sub(self.end, code.integer(1)), at)
            far = code.or_(far, code.compare("gt", behind, code.integer(before)))
        for x in self.ranges:
            far = code.or_(far, code.compare("lt", at, x.last_first))
            far = code.or_(far, code.compare("gt", code.add(at, n), x.first_end))
        if before is None and after is None and not self.ranges:
            return
        with code.when(far):
            queries = [self.places(v, dtypes.int32) for v in range(self.vectors)]

            def cut(j: Value, v: int, x: Value) -> Value:
                key = code.splat(code.convert(code.add(at, j), dtypes.int32), self.tiling.lanes)
                for limit, distance in ((after, code.sub(key, queries[v])), (before, code.sub(queries[v], key))):
                    if limit is not None:
                        within = code.compare("le", distance, code.like(distance, limit))
                        x = code.select(within, x, code.like(x, -math.inf))
                for y in self.ranges:
                    begin, end = y.keys[v]
                    within = code.and_(code.compare("le", begin, key), code.compare("lt", key, end))
                    x = code.select(within, x, code.like(x, -math.inf))
                return x

            self.change(out, n, cut)


@dataclass(frozen=True)
class _Ranges:
    """The keys that each query of a block may attend to, from a first one to the one behind the last, by vectors; and of all
    queries, the first and the last beginning, and the first and the last end.
    """

    keys: Sequence[tuple[Value, Value]]
    first: Value
    last_first: Value
    first_end: Value
    end: Value

    @classmethod
    def read(cls, block: QueryBlock, extra: Extra, pointer: str) -> _Ranges:
        """Reads those of a block. A query without keys widens the ranges of no block."""
        code, kind = block.code, extra.dtype
        most = 2**31 - 1
        keys = []
        for v in range(block.vectors):
            begin, end = (block.column(code.offset(pointer, i * extra.key), extra.query, kind, v) for i in (0, 1))
            is_none = code.compare("ge", begin, end)
            keys.append(
                (code.select(is_none, code.like(begin, most), begin), code.select(is_none, code.like(end, 0), end))
            )

        def of_all(which: int, name: str) -> Value:
            found = keys[0][which]
            for pair in keys[1:]:
                found = code.intrinsic(name, found, pair[which])
            return code.convert(code.reduce(name, found), dtypes.int64)

        return cls(keys, *(of_all(i, name) for i in (0, 1) for name in ("smin", "smax")))
