"""The printed kernel of attention's gradient: the weights are computed anew from the logarithms of their sums, block by block.

Gradients of keys and values are added up by one thread for each head of the keys, so the order of the sums does not depend on the
number of threads (Dao, "FlashAttention-2", 2023). With c the sum of an output's products with its cotangent, per query,

    dv = wᵀ ct    ds = scale · w · (ct vᵀ - c)    dq = ds k    dk = dsᵀ q
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from nnc.backends.cpu.attention import is_printed, key_blocks
from nnc.backends.cpu.blocks import Matrix, Squares, copy_rows, print_product
from nnc.backends.cpu.printer import Bound, Printer, add_native, times
from nnc.backends.cpu.scores import KEYS, Block, Form, exponential, finite, rows_of
from nnc.commands.attention import BIAS, Operands
from nnc.graph import TensorSpec
from nnc.lower.codegen.builder import Code, Value
from nnc.lower.codegen.native import Native
from nnc.lower.stages import Step, View

_PART_VOLUME = 1 << 19  # multiplications that a thread must have


def _supports(specs: Sequence[TensorSpec], params: Mapping[str, Any]) -> bool:
    return BIAS not in params["wrt"] and is_printed(specs[2:-2], params["biased"])


def _workspace(specs: Sequence[TensorSpec], params: Mapping[str, Any]) -> int:
    """Sums of gradients, where those are stored in a shorter dtype."""
    wide = specs[1].dtype.itemsize
    x = Operands.of(specs[2:-2], params["biased"])
    return 0 if wide == x.k.dtype.itemsize else wide * sum((x.k, x.v)[i - 1].size for i in params["wrt"] if i)


class _Gradient:
    """The kernel of one step: its views, and what is wanted."""

    def __init__(self, step: Step) -> None:
        params, inputs = step.params, step.inputs
        self.x = Operands.of(inputs[2:-2], params["biased"])
        self.ct, self.ct_sum, self.out, self.logarithms = *inputs[:2], *inputs[-2:]
        self.wrt: tuple[int, ...] = params["wrt"]
        self.has_room = len(step.outputs) > len(self.wrt)
        self.printer = Printer(step, workspace=self.has_room)
        self.results: dict[int, View] = dict(zip(self.wrt, step.outputs, strict=False))
        self.views = [*inputs, *self.results.values()]
        self.names = [f"%in{i}" for i in range(len(inputs))] + [f"%out{i}" for i in range(len(self.wrt))]
        self.form = Form.of(self.x, self.names[5 : len(inputs) - 2], params["scale"], params["reach"])
        self.squares = Squares(self.printer, self.form.tiling)
        with_tokens = {0, 2, 3, 4, len(inputs) - 2, *range(len(inputs), len(self.views))}
        self.loops = self.form.loops(self.views, [i in with_tokens for i in range(len(self.views))])

    def native(self) -> Native:
        """The finished kernel."""
        form = self.form
        parts = math.prod(form.lead)
        volume = form.shared * form.blocks * form.volume * 5 // 2

        def body(code: Code, begin: Bound, end: Bound) -> None:
            with code.loop(begin, end) as part:
                self._print_part(code, part)

        self.printer.parts(parts, max(1, _PART_VOLUME // max(1, volume)), body)
        return self.printer.native()

    def _print_part(self, code: Code, part: Value) -> None:
        """All queries that share one head of keys."""
        form = self.form
        first = code.mul(part, code.integer(form.shared))
        outer = self.loops.at(code, self.names, first)
        sums = {i: self._sums(code, i, part, outer) for i in self.wrt if i}
        for i, matrix in sums.items():
            copy_rows(code, form.tiling, None, matrix, form.keys, self._columns(i))
        with code.loop(0, form.shared) as head:
            at = self.loops.at(code, self.names, code.add(first, head))
            with code.loop(0, form.blocks) as number:
                place = code.mul(number, code.integer(form.width))

                def print_block(vectors: int) -> None:
                    self._print_block(Block(code, form, self.squares, place, vectors), at, sums)

                form.each_width(code, number, print_block)
        if self.has_room:
            for i, matrix in sums.items():
                target = rows_of(self.results[i], self._result(outer, i))
                copy_rows(code, form.tiling, matrix, target, form.keys, self._columns(i))

    def _result(self, pointers: Sequence[str], i: int) -> str:
        return pointers[len(self.names) - len(self.wrt) + self.wrt.index(i)]

    def _columns(self, i: int) -> int:
        return self.form.value_features if i == 2 else self.form.features

    def _sums(self, code: Code, i: int, part: Value, pointers: Sequence[str]) -> Matrix:
        """Where the gradients of keys (1) or values (2) are added up."""
        if not self.has_room:
            return rows_of(self.results[i], self._result(pointers, i))
        form, unit = self.form, self.form.tiling.wide.itemsize
        begin = 0
        if i == 2 and 1 in self.wrt:
            begin = math.prod(form.lead) * form.keys * form.features * unit
        own = times(code, part, form.keys * self._columns(i) * unit)
        pointer = code.offset(code.offset("%workspace", begin), own)
        return Matrix(pointer, self._columns(i) * unit, unit, form.tiling.wide)

    # -- a block of queries --------------------------------------------------------------------------------------------

    def _print_block(self, block: Block, at: Sequence[str], sums: Mapping[int, Matrix]) -> None:
        code, form, tiling = block.code, block.form, block.tiling
        q, k, v, ct = (
            rows_of(x, p) for x, p in ((self.x.q, at[2]), (self.x.k, at[3]), (self.x.v, at[4]), (self.ct, at[0]))
        )
        extras = at[5 : 5 + len(form.extras)]
        packed = block.pack(q, form.features)
        block.scale(packed, form.features)
        logarithms, step = at[6 + len(form.extras)], self.logarithms.strides[-1]
        shifts = [finite(code, block.column(logarithms, step, tiling.wide, w)) for w in range(block.vectors)]
        weights, changes = (tiling.room(code, KEYS, block.vectors) for _ in range(2))
        moves_scores = 0 in self.wrt or 1 in self.wrt
        if moves_scores:
            packed_ct = block.pack(ct, form.value_features)
            products = self._row_sums(block, packed_ct, at)
        if 1 in sums:
            near_q = block.near(q.at(code, block.first), block.size, block.width, form.features, dense=True)
        if 2 in sums:
            near_ct = block.near(ct.at(code, block.first), block.size, block.width, form.value_features, dense=True)
        of_q = tiling.rows_room(code, block.width, form.features)
        if 0 in self.wrt:
            copy_rows(code, tiling, None, of_q, block.size, form.features)

        def change(j: Value, w: int, x: Value) -> Value:
            scaled = code.mul(block.load(weights, j, w), code.like(x, form.scale))
            return code.mul(scaled, code.sub(x, products[w]))

        def keys(key: Value, n: Value) -> None:
            near_k = block.near(k.at(code, key), n, KEYS, form.features, dense=True)
            block.print_scores(near_k, packed, weights, extras, key, n)
            block.change(weights, n, lambda j, w, x: exponential(code, code.sub(x, shifts[w])))
            if 2 in sums:
                self._add(block, weights, near_ct, sums[2].at(code, key), n, form.value_features)
            if not moves_scores:
                return
            near_v = block.near(v.at(code, key), n, KEYS, form.value_features, dense=True)
            print_product(
                code, tiling, near_v, packed_ct, changes, n, form.value_features, block.width, divisor=form.keys_divisor
            )
            block.change(changes, n, change)
            if 0 in self.wrt:
                divisor = math.gcd(form.count, tiling.lanes)
                print_product(
                    code, tiling, changes.turned, near_k, of_q, block.size, n, form.features, adds=True, divisor=divisor
                )
            if 1 in sums:
                self._add(block, changes, near_q, sums[1].at(code, key), n, form.features)

        key_blocks(block, keys)
        if 0 in self.wrt:
            target = rows_of(self.results[0], self._result(at, 0)).at(code, block.first)
            copy_rows(code, tiling, of_q, target, block.size, form.features)

    def _add(self, block: Block, factors: Matrix, rows: Matrix, sums: Matrix, n: Value, columns: int) -> None:
        """Adds to the rows of some keys those of the block's queries, by factors."""
        code, form, tiling = block.code, block.form, block.tiling
        near = block.near(sums, n, KEYS, columns, dense=True)
        print_product(code, tiling, factors, rows, near, n, block.size, columns, adds=True, divisor=form.keys_divisor)
        if near is not sums:
            copy_rows(code, tiling, near, sums, n, columns)

    def _row_sums(self, block: Block, packed_ct: Matrix, at: Sequence[str]) -> list[Value]:
        """Each query's sum of the output's products with its cotangent, less the cotangent of its logarithm."""
        code, form, tiling = block.code, block.form, block.tiling
        packed = block.pack(rows_of(self.out, at[5 + len(form.extras)]), form.value_features)
        found = [code.slot(code.constant(0, tiling.wide, tiling.lanes)) for _ in range(block.vectors)]
        with code.loop(0, form.value_features) as j:
            for w, slot in enumerate(found):
                x, y = block.load(packed, j, w), block.load(packed_ct, j, w)
                code.write(slot, code.fma(x, y, code.read(slot)))
        step = self.ct_sum.strides[-1]
        return [code.sub(code.read(slot), block.column(at[1], step, tiling.wide, w)) for w, slot in enumerate(found)]


def _native(step: Step) -> Native | None:
    return _Gradient(step).native()


add_native("attention_gradient", _native, _supports, _workspace)
