"""Printed kernel of attention: blocks of queries by blocks of keys, of which nothing is kept but in the caches.

Each block of queries has the greatest score so far, the sum of exponentials and the weighted values, which are scaled down when a
greater score appears (Milakov and Gimelshein, 2018). Threads share heads and blocks of queries.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from nnc.backends.cpu.blocks import Ahead, Matrix, print_product
from nnc.backends.cpu.printer import Printer, add_native, times
from nnc.backends.cpu.scores import KEYS, Block, Form, Tokens, exponential, finite, print_blocks, rows_of
from nnc.backends.cpu.vectors import write_row
from nnc.commands.attention import Operands
from nnc.graph import TensorSpec
from nnc.lower.codegen.builder import Slot, Value, has_code
from nnc.lower.codegen.math.logarithm import log
from nnc.lower.codegen.math.terms import Term
from nnc.lower.codegen.native import Native
from nnc.lower.stages import Step

_MOST_FEATURES = 256  # a block then takes a megabyte of stack


def is_printed(specs: Sequence[TensorSpec], biased: bool) -> bool:
    """Whether the kernels take operands."""
    x = Operands.of(specs, biased)
    return has_code(x.q.dtype) and max(x.q.shape[-1], x.v.shape[-1]) <= _MOST_FEATURES


def _native(step: Step) -> Native | None:
    params, (out, logarithms) = step.params, step.outputs
    printer = Printer(step)
    if not logarithms.spec.size:
        return printer.native(inline=True)
    x = Operands.of(step.inputs, params["biased"])
    names = [f"%in{i}" for i in range(len(step.inputs))]
    form = Form.of(x, names[3:], params["scale"], params["reach"])

    def print_block(block: Block, at: Sequence[str], after: Sequence[str]) -> None:
        code = block.code
        q, k, v = (Tokens(view, here, there) for view, here, there in zip(x[:3], at, after, strict=False))
        state = _State.start(block)
        packed = block.pack(q.rows, form.features)
        block.scale(packed, form.features)
        room = form.tiling.room(code, KEYS, block.vectors)

        def keys(at_key: Value, n: Value, end: Value) -> None:
            near = block.near(k.rows.at(code, at_key), n, KEYS, form.features)
            ahead = k.ahead(code, at_key, end), q.following(block)
            block.print_scores(near, packed, room, at[3:-2], at_key, n, ahead)
            values = block.near(v.rows.at(code, at_key), n, KEYS, form.value_features)
            state.take(block, room, values, n, v.ahead(code, at_key, end))

        block.each_keys(0, form.keys, keys)
        state.finish(block, rows_of(out, at[-2]), at[-1], logarithms.strides[-1])

    has_tokens = [*range(3), len(step.inputs)]
    print_blocks(printer, form, (*step.inputs, out, logarithms), has_tokens, [*names, "%out0", "%out1"], print_block)
    return printer.native()


@dataclass(frozen=True)
class _State:
    """What is known of a block's queries: greatest scores, sums, and weighted values with queries in lanes."""

    top: list[Slot]
    sums: list[Slot]
    total: Matrix

    @classmethod
    def start(cls, block: Block) -> _State:
        """Before all keys."""
        code, tiling, rows = block.code, block.tiling, block.form.value_features
        zero = code.constant(0, tiling.wide, tiling.lanes)
        total = block.room(rows)
        block.clear(total, rows)
        tops = [code.slot(code.like(zero, -math.inf)) for _ in range(block.vectors)]
        return cls(tops, [code.slot(zero) for _ in range(block.vectors)], total)

    def take(self, block: Block, scores: Matrix, values: Matrix, n: Value, ahead: Ahead) -> None:
        """Some more keys, whose scores become weights."""
        code, vectors = block.code, range(block.vectors)
        greatest = [code.slot(code.read(self.top[v])) for v in vectors]
        with code.loop(0, n) as j:
            for v, slot in enumerate(greatest):
                x, best = block.load(scores, j, v), code.read(slot)
                code.write(slot, code.select(code.compare("gt", x, best), x, best))
        shifts, factors = [], []
        for v in vectors:
            new = code.read(greatest[v])
            shifts.append(finite(code, new))
            factors.append(exponential(code, code.sub(code.read(self.top[v]), shifts[v])))
            code.write(self.top[v], new)
            code.write(self.sums[v], code.mul(code.read(self.sums[v]), factors[v]))

        def weigh(j: Value, v: int, x: Value) -> Value:
            weight = exponential(code, code.sub(x, shifts[v]))
            code.write(self.sums[v], code.add(code.read(self.sums[v]), weight))
            return weight

        block.change(scores, n, weigh)
        rows = block.form.value_features
        tiling, total = block.tiling, self.total
        print_product(
            code,
            tiling,
            values.turned,
            scores,
            total,
            rows,
            n,
            block.width,
            factors=factors,
            divisor=rows,
            ahead=[ahead],
        )

    def finish(self, block: Block, out: Matrix, logarithms: str, step: int) -> None:
        """Writes the means and the logarithms of the sums."""
        code, lanes = block.code, block.tiling.lanes
        for v in range(block.vectors):
            total = code.read(self.sums[v])
            value = code.add(finite(code, code.read(self.top[v])), log(Term(code, total)).value)
            at = code.offset(logarithms, times(code, code.add(block.first, code.integer(v * lanes)), step))
            write_row(code, at, 0, step, value, block.inside(v), value.dtype.itemsize)
            nothing = code.compare("eq", total, code.like(total, 0))
            share = code.div(code.like(total, 1), code.select(nothing, code.like(total, 1), total))
            code.write(self.sums[v], share)

        def scale(j: Value, v: int, x: Value) -> Value:
            return code.mul(x, code.read(self.sums[v]))

        block.change(self.total, block.form.value_features, scale)
        block.unpack(self.total, out, block.form.value_features)


add_native("attention", _native, lambda specs, params: is_printed(specs, params["biased"]))
