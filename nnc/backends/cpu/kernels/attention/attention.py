"""Printed kernel of attention: blocks of queries by blocks of keys, whose scores stay in the caches.

Each block of queries has the greatest score so far, the sum of exponentials and the weighted values, which are scaled down when a
greater score appears (Milakov and Gimelshein, 2018). Threads share heads and blocks of queries.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from nnc.backends.cpu.kernels.attention.blocks import MatrixPlace
from nnc.backends.cpu.kernels.attention.scores import (
    AttentionSizes,
    Extra,
    QueryBlock,
    Tokens,
    exponential,
    finite,
    print_blocks,
    rows_of,
)
from nnc.backends.cpu.kernels.vectors import write_row
from nnc.backends.printer import Printer, add_native, times
from nnc.base.target import Target
from nnc.commands.attention import BIAS, Operands
from nnc.graph import TensorSpec
from nnc.lower.kernels.builder import Slot, Value, has_code
from nnc.lower.kernels.math.logarithm import log
from nnc.lower.kernels.math.terms import Term
from nnc.lower.kernels.native import Native
from nnc.lower.plan.stages import Step

_FEATURES = 256  # of a head: a block then takes a megabyte of stack


def is_printed(specs: Sequence[TensorSpec], biased: bool) -> bool:
    """Whether the kernels take operands."""
    x = Operands.of(specs, biased)
    return has_code(x.q.dtype) and max(x.q.shape[-1], x.v.shape[-1]) <= _FEATURES


def _native(step: Step, machine: Target) -> Native | None:
    params, (out, logarithms) = step.params, step.outputs
    printer = Printer(step, machine)
    if not logarithms.spec.size:
        return printer.native(inline=True)
    x = Operands.of(step.inputs, params["biased"])
    names = [f"%in{i}" for i in range(len(step.inputs))]
    form = AttentionSizes.of(x, names[3:], params["scale"], params["reach"], machine)

    def print_block(block: QueryBlock, at: Sequence[str], after: Sequence[str]) -> None:
        code = block.code
        q, k, v = (Tokens(view, here, there) for view, here, there in zip(x[:3], at, after, strict=False))
        state = _State.start(block)
        packed = block.pack(q.rows, form.features)
        block.scale(packed, form.features)
        room = form.tiling.room(code, form.tiling.keys, block.vectors)

        def keys(at_key: Value, n: Value, end: Value) -> None:
            near = block.near(k.rows.at(code, at_key), n, form.tiling.keys, form.features)
            ahead = k.ahead(block, at_key, end), q.following(block)
            block.print_scores(near, packed, room, at_key, n, ahead)
            values = block.near(v.rows.at(code, at_key), n, form.tiling.keys, form.value_features)
            state.take(block, room, values, n, v.ahead(block, at_key, end))

        block.each_keys(0, form.keys, keys)
        state.finish(block, rows_of(out, at[-2]), at[-1], logarithms.strides[-1])

    has_tokens = [*range(3), len(step.inputs)]
    print_blocks(printer, form, (*step.inputs, out, logarithms), has_tokens, [*names, "%out0", "%out1"], print_block)
    return printer.native()


class _State(NamedTuple):
    """The running results of a block's queries, which are in lanes: greatest scores, sums, the factors by which earlier sums are to
    be scaled, and weighted values.
    """

    top: MatrixPlace
    sums: MatrixPlace
    factors: MatrixPlace
    total: MatrixPlace

    @classmethod
    def start(cls, block: QueryBlock) -> _State:
        """Before all keys."""
        top, sums, factors = (block.tiling.room(block.code, 1, block.vectors) for _ in range(3))
        total = block.room(block.form.value_features)
        block.fill(top, 1, -math.inf)
        block.fill(sums, 1, 0)
        block.fill(total, block.form.value_features, 0)
        return cls(top, sums, factors, total)

    def take(self, block: QueryBlock, scores: MatrixPlace, values: MatrixPlace, n: Value, ahead: MatrixPlace) -> None:
        """Some more keys, whose scores become weights."""
        code, rows = block.code, block.form.value_features
        tops = [block.load(self.top, 0, v) for v in range(block.vectors)]
        greatest = [code.slot(top) for top in tops]
        with code.loop(0, n) as j:
            for v, slot in enumerate(greatest):
                x, best = block.load(scores, j, v), code.read(slot)
                code.write(slot, code.select(code.compare("gt", x, best), x, best))
        for v, (slot, top) in enumerate(zip(greatest, tops, strict=True)):
            new = code.read(slot)
            block.store(self.top, 0, v, new)
            block.store(self.factors, 0, v, code.sub(top, finite(code, new)))
        with block.each_vector() as w:
            factor = exponential(code, block.load(self.factors, 0, w))
            block.store(self.factors, 0, w, factor)
            sums = code.slot(code.mul(block.load(self.sums, 0, w), factor))
            shift = finite(code, block.load(self.top, 0, w))
            with code.loop(0, n) as j:
                weight = exponential(code, code.sub(block.load(scores, j, w), shift))
                block.store(scores, j, w, weight)
                code.write(sums, code.add(code.read(sums), weight))
            block.store(self.sums, 0, w, code.read(sums))
        sizes = rows, n, block.width
        block.helpers.multiply(
            code, values.turned, scores, self.total, *sizes, factors=self.factors, divisor=rows, ahead=[ahead]
        )

    def finish(self, block: QueryBlock, out: MatrixPlace, logarithms: str, step: int) -> None:
        """Writes the means and the logarithms of the sums."""
        code, lanes, rows = block.code, block.tiling.lanes, block.form.value_features
        with block.each_vector() as v:
            total = block.load(self.sums, 0, v)
            value = code.add(finite(code, block.load(self.top, 0, v)), log(Term(code, total)).value)
            at = code.offset(logarithms, times(code, code.add(block.first, code.integer(times(code, v, lanes))), step))
            write_row(code, at, 0, step, value, block.inside(v), value.dtype.itemsize)
            nothing = code.compare("eq", total, code.like(total, 0))
            share = code.div(code.like(total, 1), code.select(nothing, code.like(total, 1), total))
            with code.loop(0, rows) as j:
                block.store(self.total, j, v, code.mul(block.load(self.total, j, v), share))
        block.unpack(self.total, out, rows)


add_native("attention", _native, lambda specs, params: is_printed(specs, params["biased"]), sized=True)


# -- its tangent -------------------------------------------------------------------------------------------------------

# The printed kernel of attention's tangent: changes of scores, weighted anew from the logarithms of their sums.
#
# With w the weights and dx the tangent of x, per query,
#
#     c = w · (scale · (dq kᵀ + q dkᵀ) + dbias)    dlogarithm = sum of c    dout = c v + w dv - (sum of c) · out
#
# Blocks are cut as in attention itself, and nothing is kept of them.


def _supports_tangent(specs: Sequence[TensorSpec], params: Mapping[str, Any]) -> bool:
    return is_printed(specs[len(params["wrt"]) : -2], params["biased"])


class _Tangent:
    """The kernel of one step. Its operands are tangents, attention's operands, attention's results, then the results."""

    def __init__(self, step: Step, machine: Target) -> None:
        self.step, self.machine, self.wrt = step, machine, step.params["wrt"]
        self.views = (*step.inputs, *step.outputs)
        self.first, self.out = len(self.wrt), len(step.inputs) - 2
        self.names = [f"%in{i}" for i in range(len(step.inputs))] + ["%out0", "%out1"]
        x = Operands.of(step.inputs[self.first : self.out], step.params["biased"])
        extras = self.names[self.first + 3 : self.out]
        self.form = AttentionSizes.of(x, extras, step.params["scale"], step.params["reach"], machine)

    def native(self) -> Native:
        """Returns the finished kernel."""
        printer, first = Printer(self.step, self.machine), self.first
        if not self.step.outputs[1].spec.size:
            return printer.native(inline=True)
        moving = [place for place, i in enumerate(self.wrt) if i != BIAS]
        has_tokens = [*moving, *range(first, first + 3), self.out, self.out + 2]
        print_blocks(printer, self.form, self.views, has_tokens, self.names, self._print_block)
        return printer.native()

    def _print_block(self, block: QueryBlock, at: Sequence[str], after: Sequence[str]) -> None:
        code, form, tiling, first = block.code, block.form, block.tiling, self.first
        places = {i: place for place, i in enumerate(self.wrt)}
        q, k, v = (Tokens(self.views[i], at[i], after[i]) for i in range(first, first + 3))
        moved = {i: Tokens(self.views[p], at[p], after[p]) for i, p in places.items() if i != BIAS}
        turned = {"q": block.pack(q.rows, form.features)}
        if 0 in moved:
            turned["dq"] = block.pack(moved[0].rows, form.features)
        for packed in turned.values():
            block.scale(packed, form.features)
        shifts = block.shifts(at[self.out + 1], self.views[self.out + 1].strides[-1])
        weights, changes = (tiling.room(code, tiling.keys, block.vectors) for _ in range(2))
        zero = code.constant(0, tiling.wide, tiling.lanes)
        sums = [code.slot(zero) for _ in range(block.vectors)]
        total = block.room(form.value_features)
        block.fill(total, form.value_features, 0)

        def weigh(j: Value, w: int, x: Value) -> Value:
            """Multiplies a change by its weight, and adds it up."""
            change = code.mul(x, block.load(weights, j, w))
            code.write(sums[w], code.add(code.read(sums[w]), change))
            return change

        def keys(key: Value, n: Value, end: Value) -> None:
            close = block.near(k.rows.at(code, key), n, block.tiling.keys, form.features)
            ahead = k.ahead(block, key, end), q.following(block)
            block.print_scores(close, turned["q"], weights, key, n, ahead)
            block.weigh(weights, n, shifts)
            if set(self.wrt) - {2}:
                self._print_changes(block, close, turned, moved, at, changes, key, n, end)
                block.change(changes, n, weigh)
                self._add(block, v, changes, total, key, n, end)
            if 2 in moved:
                self._add(block, moved[2], weights, total, key, n, end)

        block.each_keys(0, form.keys, keys)
        self._finish(block, total, sums, at)

    def _print_changes(
        self, block: QueryBlock, close: MatrixPlace, turned: Mapping[str, MatrixPlace], moved: Mapping[int, Tokens],
        at: Sequence[str], changes: MatrixPlace, key: Value, n: Value, end: Value,
    ) -> None:  # fmt: skip
        """The tangents of the scores."""
        code, form = block.code, block.form
        if 0 in moved:
            block.print_products(close, turned["dq"], changes, n, form.features, ahead=[moved[0].following(block)])
        else:
            block.fill(changes, n, 0)
        if 1 in moved:
            rows = block.near(moved[1].rows.at(code, key), n, block.tiling.keys, form.features)
            ahead = [moved[1].ahead(block, key, end)]
            block.print_products(rows, turned["q"], changes, n, form.features, adds=True, ahead=ahead)
        if BIAS in self.wrt:
            place = self.wrt.index(BIAS)
            view = self.views[place]
            block.add_extra(Extra.of(self.names[place], view), at[place], changes, key, n)

    def _add(
        self, block: QueryBlock, values: Tokens, factors: MatrixPlace, total: MatrixPlace, key: Value, n: Value, end: Value
    ) -> None:  # fmt: skip
        """Adds values by factors."""
        code, columns = block.code, block.form.value_features
        rows = block.near(values.rows.at(code, key), n, block.tiling.keys, columns).turned
        ahead = [values.ahead(block, key, end)]
        block.helpers.multiply(
            code, rows, factors, total, columns, n, block.width, adds=True, divisor=columns, ahead=ahead
        )

    def _finish(self, block: QueryBlock, total: MatrixPlace, sums: Sequence[Slot], at: Sequence[str]) -> None:
        """Writes both results."""
        code, form, lanes = block.code, block.form, block.tiling.lanes
        out = block.pack(rows_of(self.views[self.out], at[self.out]), form.value_features)

        def less(j: Value, w: int, x: Value) -> Value:
            return code.sub(x, code.mul(block.load(out, j, w), code.read(sums[w])))

        block.change(total, form.value_features, less)
        block.unpack(total, rows_of(self.views[-2], at[-2]), form.value_features)
        step = self.views[-1].strides[-1]
        for w, slot in enumerate(sums):
            place = code.offset(at[-1], times(code, code.add(block.first, code.integer(w * lanes)), step))
            value = code.read(slot)
            write_row(code, place, 0, step, value, block.inside(w), value.dtype.itemsize)


add_native("attention_tangent", lambda step, machine: _Tangent(step, machine).native(), _supports_tangent)
