"""Means and variances of rows that do not fit into a cache, in one pass over memory."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from nnc.base import dtypes
from nnc.base.options import Options
from nnc.base.target import Fusion, Target
from nnc.commands.properties import is_sum, multiplies, squared
from nnc.device import machine_of
from nnc.graph import Graph, Node, Symbol
from nnc.graph.remake import OncePerGraph, Remake, rewritten
from nnc.lower.kernels.domain import can_fuse
from nnc.lower.passes.fusion.centred import Centred
from nnc.lower.passes.simplify.dce import dce

_LEAST = 16  # elements of a block: of shorter ones the sums are as many numbers as the elements


def moments_in_blocks(graph: Graph, options: Options) -> Graph:
    """Finds mean and sum of centred squares of blocks that stay in the cache, and joins them: memory is read once.

    With the mean m_b and the sum q_b of centred squares of each block of n elements, the sum of all is
    sum(q_b) + n · sum((m_b - m)²) (Chan, Golub, LeVeque, 1983). All terms are positive, so nothing cancels. Rounded means leave
    small sums of centred values, whose squares are subtracted, for m unless the program uses that sum to do so itself. Sums of
    terms times a number, by which means stay in range, and sums of squares times one are found along with the others. Rows that a
    kernel goes through twice for nothing stay as they are, and so do results of elementwise commands, and rows whose length has
    no divisor for blocks.

    Ensures: the same values up to the errors of sums.

    Example:
        s = reduce_sum(x); m = s / n; v = reduce_sum(square(x - m))
        →  b = reshape(x); t = reduce_sum(b) over blocks; c = t / k; q = reduce_sum(square(b - c)) over blocks
           s = reduce_sum(t); m = s / n; v = reduce_sum(q) + k · reduce_sum(square(c - m))
    """
    changed = rewritten(graph, partial(_Moments, machine=machine_of(options))) if options.native else graph
    return graph if changed is graph else dce(changed, options)


# a shape, the axes within blocks, those of the blocks
_Blocks = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]


class _Moments(Remake):
    def __init__(self, passes: OncePerGraph, graph: Graph, *, machine: Target) -> None:
        super().__init__(passes, graph)
        self.limits = machine.fusion
        writers = {symbol: node for node in graph.nodes for symbol in node.outputs}
        centred = Centred(writers, graph.constants)
        # of sums of squares: the sum of the squared operand, before it was centred
        self.total_of: dict[Symbol, Symbol] = {}
        self.sums: dict[tuple[Symbol, float], Symbol] = {}  # of totals, and factors of terms: the sums of these
        self.moments: dict[tuple[Symbol, float], Symbol] = {}  # of totals, and factors of squares: the sums of these
        # of sums of centred values, which are about the rounding errors of means: the sum of the operand
        self.rests_of: dict[Symbol, Symbol] = {}
        self.rests: dict[Symbol, Symbol] = {}  # of totals: the sums of centred values
        for node in graph.nodes:
            base = _squared(node, writers)
            total = centred.total(base, node.params["axes"]) if base is not None else None
            made = writers.get(total.inputs[0]) if total is not None else None
            if total is not None and _blocks(total, self.limits) and (made is None or not can_fuse(made, machine)):
                self.total_of[node.outputs[0]] = total.outputs[0]
        self.totals = set(self.total_of.values())
        for node in graph.nodes:
            total = centred.total(node.inputs[0], node.params["axes"]) if is_sum(node.command) else None
            if total is not None and total.outputs[0] in self.totals:
                self.rests_of[node.outputs[0]] = total.outputs[0]
        sums = [node for node in graph.nodes if is_sum(node.command)]
        in_blocks = {
            (node.inputs[0], node.params["axes"]): node
            for node in sums
            if node.outputs[0] in self.totals or node.outputs[0] in self.total_of
        }
        # of sums of the same terms times a number: the sum of the terms, and the number
        self.scaled: dict[Symbol, tuple[Node, float]] = {}
        for node in sums:
            product = writers.get(node.inputs[0])
            if product is not None and multiplies(product):
                other = in_blocks.get((product.inputs[0], node.params["axes"]))
                factor = centred.number(product.inputs[1])
                if other is not None and factor is not None:
                    self.scaled[node.outputs[0]] = other, factor

    def new_form(self, node: Node) -> Symbol | None:
        """See the base."""
        (out,) = node.outputs if len(node.outputs) == 1 else (None,)
        if out is None:
            return None
        base, factor = self.scaled.get(out, (node, 1.0))
        (found,) = base.outputs
        if found in self.totals:
            if (found, factor) not in self.sums:
                self._sums(base)
            return self.sums[found, factor]
        if found in self.rests_of:
            return self.rests[self.rests_of[found]]
        return self.moments[self.total_of[found], factor] if found in self.total_of else None

    def _over_blocks(self, parts: Symbol, inner: tuple[int, ...], outer: tuple[int, ...]) -> Symbol:
        """Sums results of blocks."""
        return self.make("reduce_sum", parts, axes=tuple(axis - sum(i < axis for i in inner) for axis in outer))

    def _sums(self, node: Node) -> None:
        """Makes the sums of terms, once and times numbers, that a node and others compute, and those of squares."""
        (x,), (out,) = node.inputs, node.outputs
        blocks = _blocks(node, self.limits)
        assert blocks is not None
        shape, inner, outer = blocks
        x = self.reshape(self.renamed.get(x, x), shape)
        count, parts = (math.prod(shape[axis] for axis in axes) for axes in (inner, outer))
        of_terms = {factor: self._times(x, factor) for factor in self._factors(out, lambda base: base)}
        of_terms = {factor: self.make("reduce_sum", terms, axes=inner) for factor, terms in of_terms.items()}
        sums = of_terms[1.0]
        means = self._times(sums, 1 / count)
        factors = self._factors(out, self.total_of.get)
        within, left = self._squares(x, means, inner, factors)
        axes = tuple(axis - sum(i < axis for i in inner) for axis in outer)
        for factor, of_blocks in of_terms.items():
            self.sums[out, factor] = self._over_blocks(of_blocks, inner, outer)
        mean = self._times(self.sums[out, 1.0], 1 / (count * parts))
        is_corrected = out in self.rests_of.values()  # by the program itself
        between, rest = self._squares(means, mean, axes, factors, self._times(left, 1 / count), is_corrected)
        self.rests[out] = self._times(rest, count)
        for factor, of_blocks, of_means in zip(factors, within, between, strict=True):
            total = self._over_blocks(of_blocks, inner, outer)
            self.moments[out, factor] = self.make("add", total, self._times(of_means, count))

    def _factors(self, total: Symbol, total_of: Callable[[Symbol], Symbol | None]) -> tuple[float, ...]:
        """1, and the other numbers by which terms or squares of a total are multiplied."""
        scaled = (factor for base, factor in self.scaled.values() if total_of(base.outputs[0]) is total)
        return tuple(dict.fromkeys((1.0, *scaled)))

    def _squares(
        self, x: Symbol, means: Symbol, axes: tuple[int, ...], factors: tuple[float, ...], more: Symbol | None = None,
        is_corrected: bool = False,
    ) -> tuple[list[Symbol], Symbol]:  # fmt: skip
        """Sums over axes the squares of x + more less its mean, times each factor, and x less its rounded mean, which corrects the
        squares, unless others do so.
        """
        kept = tuple(1 if axis in axes else n for axis, n in enumerate(x.shape))
        centred = self.make("sub", x, self.make("broadcast_to", self.reshape(means, kept), shape=x.shape))
        if more is not None:
            centred = self.make("add", centred, more)
        left = self.make("reduce_sum", centred, axes=axes)
        squares, share = (self.make("square", values) for values in (centred, left))
        found = [self.make("reduce_sum", self._times(squares, factor), axes=axes) for factor in factors]
        if is_corrected:
            return found, left
        count = math.prod(x.shape[axis] for axis in axes)
        rest = [self.make("sub", y, self._times(share, f / count)) for y, f in zip(found, factors, strict=True)]
        return [self.make("maximum", y, self.number(0, y, y.shape)) for y in rest], left

    def _times(self, x: Symbol, factor: float) -> Symbol:
        return x if factor == 1 else self.make("mul", x, self.number(factor, x, x.shape))


def _squared(node: Node, writers: dict[Symbol, Node]) -> Symbol | None:
    """Returns the symbol whose squares a node adds; None if it adds no squares."""
    made = writers.get(node.inputs[0]) if is_sum(node.command) else None
    if made is None or node.outputs[0].dtype not in (dtypes.float32, dtypes.float64):
        return None
    return squared(made)


def _blocks(total: Node, limits: Fusion) -> _Blocks | None:
    """Returns the blocks of rows that no kernel goes through more than once; None where rows are short, or have no such blocks."""
    shape, axes = total.inputs[0].shape, sorted(total.params["axes"])
    last = max((axis for axis, n in enumerate(shape) if n > 1), default=0)
    most = limits.row_elements if last in axes else limits.column_elements
    inner: list[int] = []
    count = 1
    while axes and count * shape[axes[-1]] <= most:
        inner.insert(0, axes.pop())
        count *= shape[inner[0]]
    if not axes:
        return None
    *outer, split = axes
    part = max(n for n in range(1, most // count + 1) if shape[split] % n == 0)
    if count * part < _LEAST:
        return None
    new = (*shape[:split], shape[split] // part, part, *shape[split + 1 :])
    return new, (split + 1, *(axis + 1 for axis in inner)), (*outer, split)
