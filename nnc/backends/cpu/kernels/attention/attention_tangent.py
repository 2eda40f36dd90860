"""The printed kernel of attention's tangent: changes of scores, weighted anew from the logarithms of their sums.

With w the weights and dx the tangent of x, per query,

    c = w · (scale · (dq kᵀ + q dkᵀ) + dbias)    dlogarithm = sum of c    dout = c v + w dv - (sum of c) · out

Blocks are cut as in attention itself, and nothing is kept of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nnc.backends.cpu.kernels.attention.attention import is_printed
from nnc.backends.cpu.kernels.attention.blocks import MatrixPlace
from nnc.backends.cpu.kernels.attention.scores import AttentionSizes, Extra, QueryBlock, Tokens, print_blocks, rows_of
from nnc.backends.cpu.kernels.vectors import write_row
from nnc.backends.printer import Printer, add_native, times
from nnc.commands.attention import BIAS, Operands
from nnc.device.target import Target
from nnc.graph import TensorSpec
from nnc.lower.kernels.builder import Slot, Value
from nnc.lower.kernels.native import Native
from nnc.lower.plan.stages import Step


def _supports(specs: Sequence[TensorSpec], params: Mapping[str, Any]) -> bool:
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
            block.print_scores(close, turned["q"], weights, at[first + 3 : self.out], key, n, ahead)
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


add_native("attention_tangent", lambda step, machine: _Tangent(step, machine).native(), _supports)
