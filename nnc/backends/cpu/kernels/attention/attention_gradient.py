"""The printed kernel of attention's gradient: the weights are computed anew from the logarithms of their sums, block by block.

With c the sum of an output's products with its cotangent, per query,

    dv = wᵀ ct    ds = w · (ct vᵀ - c)    dq = scale · ds k    dk = scale · dsᵀ q    dbias = ds, summed over queries

One thread goes through the queries of each head of the keys, so the order of sums does not depend on the number of threads (Dao,
"FlashAttention-2", 2023). It takes a span of keys at a time, whose numbers and gradients stay in the second-level cache, without
gaps between rows; meanwhile it asks memory for the rows that come next. A bias's gradient is summed for each head by itself, and
over heads and batches in the end.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

from nnc.backends.cpu.kernels.attention.attention import is_printed
from nnc.backends.cpu.kernels.attention.blocks import MatrixPlace, copy_rows
from nnc.backends.cpu.kernels.attention.scores import AttentionSizes, QueryBlock, Tokens, near, rows_of
from nnc.backends.cpu.kernels.vectors import masks_of, read_row, write_row
from nnc.backends.printer import Bound, Printer, add_native, times
from nnc.base.dtypes import accumulator
from nnc.base.target import Target
from nnc.commands.attention import BIAS, Operands
from nnc.graph import TensorSpec
from nnc.lower.kernels.builder import Code, Value
from nnc.lower.kernels.native import Native
from nnc.lower.kernels.sizes import derived, is_number
from nnc.lower.plan.stages import Step, View


def _supports(specs: Sequence[TensorSpec], params: Mapping[str, Any]) -> bool:
    x = Operands.of(specs[2:-2], params["biased"])
    of_keys = BIAS not in params["wrt"] or (x.bias.shape[-2] == 1 and x.bias.shape[-1] == x.shape[-1] > 0)
    return of_keys and is_printed(specs[2:-2], params["biased"])


def _workspace(specs: Sequence[TensorSpec], params: Mapping[str, Any], machine: Target) -> int:
    """Sums of the queries' gradients, where those are stored in a shorter dtype, and the bias's gradient for each head."""
    x, wide = Operands.of(specs[2:-2], params["biased"]), accumulator(specs[2].dtype)
    return wide.itemsize * sum(_room(x.shape, x.q, x.v.shape[-1], params["wrt"], machine))


def _room(
    scores: Sequence[int], q: TensorSpec, value_features: int, wrt: Sequence[int], machine: Target
) -> tuple[int, int]:
    """Numbers in the dtype of sums, for queries and for the bias."""
    is_short = accumulator(q.dtype) != q.dtype
    sums = is_short and 0 in wrt and scores[-1] > _span(q, value_features, machine)
    return q.size if sums else 0, math.prod(scores[:-2]) * scores[-1] if BIAS in wrt else 0


def _span(q: TensorSpec, value_features: int, machine: Target) -> int:
    """Keys of a span: they, their values and the gradients of both take half of the second-level cache."""
    block = machine.attention.keys
    nbytes = 2 * max(1, q.shape[-1] + value_features) * accumulator(q.dtype).itemsize * block
    return max(1, machine.memory.second_cache_bytes // 2 // nbytes) * block


class _Gradient:
    """The kernel of one step: its views, and which gradients are wanted."""

    def __init__(self, step: Step, machine: Target) -> None:
        params, inputs = step.params, step.inputs
        self.x = Operands.of(inputs[2:-2], params["biased"])
        self.ct, self.ct_sum, self.out, self.logarithms = *inputs[:2], *inputs[-2:]
        self.wrt: tuple[int, ...] = params["wrt"]
        self.printer = Printer(step, machine, workspace=len(step.outputs) > len(self.wrt))
        self.results: dict[int, View] = dict(zip(self.wrt, step.outputs, strict=False))
        tokens = [i for i in self.wrt if i != BIAS]
        self.views = [*inputs, *(self.results[i] for i in tokens)]
        outputs = {i: f"%out{k}" for k, i in enumerate(self.wrt)}
        self.names = [f"%in{i}" for i in range(len(inputs))] + [outputs[i] for i in tokens]
        self.place = {i: len(inputs) + k for k, i in enumerate(tokens)}
        self.form = AttentionSizes.of(
            self.x, self.names[5 : len(inputs) - 2], params["scale"], params["reach"], machine
        )
        self.helpers = self.form.helpers(self.printer)
        with_tokens = {0, 2, 3, 4, len(inputs) - 2, *range(len(inputs), len(self.views))}
        self.loops = self.form.loops(self.views, [i in with_tokens for i in range(len(self.views))])
        q, features, form = self.x.q.spec, self.form.value_features, self.form
        heads = (*form.lead[:-1], form.lead[-1] * form.shared)
        self.room = _room((*heads, form.count, form.keys), q, features, self.wrt, machine)
        self.span = min(_span(q, features, machine), max(form.keys, 1))
        self.spans = -(-form.keys // self.span)
        self.bias = f"%out{self.wrt.index(BIAS)}" if BIAS in self.wrt else ""

    def native(self) -> Native:
        """Returns the finished kernel."""
        form = self.form
        parts = math.prod(form.lead)
        volume = form.shared * form.blocks * form.volume * 5 // 2

        def body(code: Code, begin: Bound, end: Bound) -> None:
            with code.loop(begin, end) as part:
                self._print_part(code, part)

        self.printer.parts(parts, derived(max, 1, self.printer.machine.products.part_volume // max(1, volume)), body)
        if self.bias:
            self._add_heads(self.printer.main)
        return self.printer.native()

    def _print_part(self, code: Code, part: Value) -> None:
        """All queries that share one head of keys."""
        form = self.form
        first = code.mul(part, code.integer(form.shared))
        if self.bias:
            rows = code.integer(form.shared)
            copy_rows(code, form.tiling, None, self._bias_sums(code, first), rows, form.keys)
        if self.spans <= 1:
            self._print_span(code, first, 0, form.keys)
        else:
            with code.loop(0, form.keys, self.span) as begin:
                end = code.intrinsic("smin", code.add(begin, code.integer(self.span)), code.integer(form.keys))
                self._print_span(code, first, begin, end)
        if self.room[0]:
            with code.loop(0, form.shared) as head:
                number = code.add(first, head)
                target = rows_of(self.results[0], self.loops.at(code, self.names, number)[self.place[0]])
                copy_rows(code, form.tiling, self._query_sums(code, number), target, form.count, form.features)

    def _print_span(self, code: Code, first: Value, begin: Bound, end: Bound) -> None:
        """Some keys of a head, and all queries that share them."""
        form, tiling = self.form, self.form.tiling
        outer = self.loops.at(code, self.names, first)
        n = code.sub(code.integer(end), code.integer(begin))
        close: dict[int, MatrixPlace] = {}
        for i, view in ((1, self.x.k), (2, self.x.v)):
            rows = rows_of(view, outer[i + 2]).at(code, begin)
            close[i] = near(code, tiling, rows, n, self.span, self._columns(i), dense=True)
        sums = {i: tiling.rows_room(code, self.span, self._columns(i)) for i in self.wrt if i in (1, 2)}
        for i, matrix in sums.items():
            copy_rows(code, tiling, None, matrix, n, self._columns(i))
        with code.loop(0, form.shared) as head:
            number = code.add(first, head)
            at = self.loops.at(code, self.names, number)
            after = self.loops.at(code, self.names, code.add(number, code.integer(1)))
            with code.loop(0, form.blocks) as block_number:
                place = code.mul(block_number, code.integer(form.width))

                def print_block(vectors: int) -> None:
                    block = QueryBlock(code, form, self.helpers, place, vectors, at[5 : 5 + len(form.extras)])
                    here = _Here(begin, end, number, at, after, close, sums)
                    with ExitStack() as stack:
                        if self.spans > 1:
                            low, high = block.range(begin, end)
                            is_first = code.compare("eq", code.integer(begin), code.integer(0))
                            stack.enter_context(code.when(code.or_(is_first, code.compare("lt", low, high))))
                        self._print_block(block, here)

                form.each_width(code, block_number, print_block)
        for i, matrix in sums.items():
            target = rows_of(self.results[i], outer[self.place[i]]).at(code, begin)
            copy_rows(code, tiling, matrix, target, n, self._columns(i))

    def _columns(self, i: int) -> int:
        return self.form.value_features if i == 2 else self.form.features

    def _query_sums(self, code: Code, number: Value) -> MatrixPlace:
        """The address at which the gradients of a head's queries are added up."""
        form, unit = self.form, self.form.tiling.wide.itemsize
        own = times(code, number, form.count * form.features * unit)
        return MatrixPlace(code.offset("%workspace", own), form.features * unit, unit, form.tiling.wide)

    def _bias_sums(self, code: Code, number: Value) -> MatrixPlace:
        """The address at which a head adds up the gradient of the bias."""
        form, unit = self.form, self.form.tiling.wide.itemsize
        pointer = code.offset("%workspace", self.room[0] * unit)
        return MatrixPlace(pointer, form.keys * unit, unit, form.tiling.wide).at(code, number)

    # -- a block of queries --------------------------------------------------------------------------------------------

    def _print_block(self, block: QueryBlock, here: _Here) -> None:
        code, form, tiling, at = block.code, block.form, block.tiling, here.at
        q, ct = rows_of(self.x.q, at[2]), rows_of(self.ct, at[0])
        out = 5 + len(form.extras)
        packed = block.pack(q, form.features)
        block.scale(packed, form.features)
        shifts = block.shifts(at[out + 1], self.logarithms.strides[-1])
        weights, changes = (tiling.room(code, tiling.keys, block.vectors) for _ in range(2))
        moves_scores = any(i != 2 for i in self.wrt)
        if moves_scores:
            packed_ct = block.pack(ct, form.value_features)
            products = self._row_sums(block, packed_ct, rows_of(self.out, at[out]), at[1])
        if 1 in self.wrt:
            near_q = block.near(q.at(code, block.first), block.size, block.width, form.features, dense=True)
        if 2 in self.wrt:
            near_ct = block.near(ct.at(code, block.first), block.size, block.width, form.value_features, dense=True)
        if 0 in self.wrt:
            of_q = tiling.rows_room(code, block.width, form.features)
            lies_there = rows_of(self.results[0], at[self.place[0]])
            target = (self._query_sums(code, here.number) if self.room[0] else lies_there).at(code, block.first)
            self._start_queries(block, here, target, of_q)
        soon = [Tokens(self.views[i], at[i], here.after[i]).following(block) for i in (2, 0, out)]
        if 0 in self.wrt:
            soon.append(target)

        def keys(key: Value, n: Value, end: Value) -> None:
            row = code.sub(key, code.integer(here.begin))
            near_k, near_v = (here.close[i].at(code, row) for i in (1, 2))
            # The rows of the next span, or of the next head if there is one span only, are prefetched meanwhile.
            pointers, place = (here.after, key) if self.spans <= 1 else (at, code.add(key, code.integer(self.span)))
            next_k, next_v = (rows_of(x, pointers[i]).at(code, place) for x, i in ((self.x.k, 3), (self.x.v, 4)))
            written = [rows_of(self.results[i], at[self.place[i]]).at(code, key) for i in here.sums]
            block.print_scores(near_k, packed, weights, key, n, (next_k, soon[0], *written))
            block.weigh(weights, n, shifts)
            if 2 in self.wrt:
                self._add(block, weights, near_ct, here.sums[2].at(code, row), n, form.value_features)
            if not moves_scores:
                return
            block.print_products(near_v, packed_ct, changes, n, form.value_features, ahead=(next_v, *soon[1:]))
            self._change(block, weights, changes, products, here, key, n)
            if 0 in self.wrt:
                divisor = 1 if is_number(form.count) else math.gcd(form.count, tiling.lanes)
                block.helpers.multiply(
                    code, changes.turned, near_k, of_q, block.size, n, form.features, adds=True, divisor=divisor
                )
            if 1 in self.wrt:
                self._add(block, changes, near_q, here.sums[1].at(code, row), n, form.features)

        block.each_keys(here.begin, here.end, keys)
        if 0 in self.wrt:
            copy_rows(code, tiling, of_q, target, block.size, form.features)

    def _start_queries(self, block: QueryBlock, here: _Here, target: MatrixPlace, of_q: MatrixPlace) -> None:
        """The sums of the spans before, or zeros."""
        code, tiling, features = block.code, block.form.tiling, block.form.features
        copy_rows(code, tiling, None, of_q, block.size, features)
        if self.spans > 1:
            with code.when(code.compare("gt", code.integer(here.begin), code.integer(0))):
                copy_rows(code, tiling, target, of_q, block.size, features)

    def _change(
        self, block: QueryBlock, weights: MatrixPlace, changes: MatrixPlace, products: MatrixPlace, here: _Here,
        key: Value, n: Value,
    ) -> None:  # fmt: skip
        """Computes the scores' cotangents, times the scale, from the weights' cotangents; their sums over queries go to the
        bias.
        """
        code, scale = block.code, block.form.scale
        with code.loop(0, n) as j:
            total = code.constant(0, block.tiling.wide, block.tiling.lanes)
            for w in range(block.vectors):
                weight = block.load(weights, j, w)
                x = code.mul(weight, code.sub(block.load(changes, j, w), block.load(products, 0, w)))
                x = code.select(code.compare("eq", weight, code.like(x, 0)), weight, x)  # also beside NaN
                block.store(changes, j, w, code.mul(x, code.like(x, scale)))
                total = code.add(total, code.select(block.inside(w), x, code.like(x, 0))) if self.bias else total
            if self.bias:
                place = self._bias_sums(code, here.number).at(code, 0, code.add(key, j)).pointer
                before = code.load(place, total.dtype)
                code.store(place, code.reduce("fadd", total, before))

    def _add(
        self, block: QueryBlock, factors: MatrixPlace, rows: MatrixPlace, sums: MatrixPlace, n: Value, columns: int
    ) -> None:
        """Adds rows of the block's queries, multiplied by factors, to the rows of some keys."""
        divisor = block.form.keys_divisor
        block.helpers.multiply(block.code, factors, rows, sums, n, block.size, columns, adds=True, divisor=divisor)

    def _row_sums(self, block: QueryBlock, packed_ct: MatrixPlace, out: MatrixPlace, ct_sum: str) -> MatrixPlace:
        """Each query's sum of the output's products with its cotangent, less the cotangent of its logarithm."""
        code, form, tiling = block.code, block.form, block.tiling
        packed, found = block.pack(out, form.value_features), tiling.room(code, 1, block.vectors)
        with block.each_vector() as w:
            total = code.slot(code.constant(0, tiling.wide, tiling.lanes))
            with code.loop(0, form.value_features) as j:
                x, y = block.load(packed, j, w), block.load(packed_ct, j, w)
                code.write(total, code.fma(x, y, code.read(total)))
            of_sum = block.column(ct_sum, self.ct_sum.strides[-1], tiling.wide, w)
            block.store(found, 0, w, code.sub(code.read(total), of_sum))
        return found

    # -- the bias --------------------------------------------------------------------------------------------------------

    def _add_heads(self, code: Code) -> None:
        """Adds up the gradients of heads, in their order, where they share a bias."""
        form, view, tiling = self.form, self.results[BIAS], self.form.tiling
        sizes = (*form.lead[:-1], form.lead[-1] * form.shared)
        with ExitStack() as stack:
            number, target = code.integer(0), MatrixPlace(self.bias, 0, view.strides[-1], view.spec.dtype)
            summed = []
            for axis, (size, own) in enumerate(zip(sizes, view.spec.shape, strict=False)):
                step = math.prod(sizes[axis + 1 :])
                if own == 1:
                    summed.append((size, step))
                    continue
                i = stack.enter_context(code.loop(0, size))
                number = code.add(number, code.mul(i, code.integer(step)))
                target = target._replace(pointer=code.offset(target.pointer, times(code, i, view.strides[axis])))
            lanes = tiling.lanes

            def columns(at: Bound, width: int) -> None:
                (mask,) = masks_of(code, lanes, width)
                total = code.slot(code.constant(0, tiling.wide, lanes))
                with ExitStack() as inner:
                    head = number
                    for size, step in summed:
                        j = inner.enter_context(code.loop(0, size))
                        head = code.add(head, code.mul(j, code.integer(step)))
                    row = self._bias_sums(code, head).at(code, 0, at)
                    x = read_row(code, row.pointer, 0, row.column, row.dtype, lanes, mask)
                    code.write(total, code.add(code.read(total), x))
                value = code.convert(code.read(total), target.dtype)
                place = target.at(code, 0, at).pointer
                write_row(code, place, 0, target.column, value, mask, target.dtype.itemsize)

            if form.keys >= lanes:
                with code.loop(0, form.keys // lanes * lanes, lanes) as at:
                    columns(at, lanes)
            if form.keys % lanes:
                columns(form.keys // lanes * lanes, form.keys % lanes)


class _Here(NamedTuple):
    """The meeting of a span of keys, begin..end, with a head of queries: the head's number, pointers for it and for the one after
    it, the span's keys (1) and values (2) without gaps, and the sums of their gradients.
    """

    begin: Bound
    end: Bound
    number: Value
    at: Sequence[str]
    after: Sequence[str]
    close: Mapping[int, MatrixPlace]
    sums: Mapping[int, MatrixPlace]


add_native(
    "attention_gradient", lambda step, machine: _Gradient(step, machine).native(), _supports, _workspace, sized=True
)
