"""Means and variances of rows that do not fit into a cache, in one pass over memory."""

from __future__ import annotations

import math

from nnc.base import dtypes
from nnc.base.options import Options
from nnc.commands.facts import is_sum, squared
from nnc.device import kind_of
from nnc.device.targets import cpu_target
from nnc.graph import Graph, Node, Symbol, register_pass
from nnc.lower.kernels.domain import can_fuse
from nnc.lower.passes.fusion.centred import Centred
from nnc.lower.passes.once import OncePerGraph
from nnc.lower.passes.remake import Remake

_FUSION = cpu_target().fusion

_LEAST = 16  # elements of a block: of shorter ones the sums are as many numbers as the elements


@register_pass("moments_in_blocks")
def moments_in_blocks(graph: Graph, options: Options) -> Graph:
    """Finds mean and sum of centred squares of blocks that stay in the cache, and joins them: memory is read once.

    With the mean m_b and the sum q_b of centred squares of each block of n elements, the sum of all is
    sum(q_b) + n · sum((m_b - m)²) (Chan, Golub, LeVeque, 1983). All terms are positive, so nothing cancels. Rounded means leave
    small sums of centred values, whose squares are subtracted. Rows that a kernel goes through twice for nothing stay as they are,
    and so do results of elementwise commands, and rows whose length has no divisor for blocks.

    Requires: the layout is the one that will run; `fuse` follows.
    Ensures:  the same values up to the errors of sums.

    Example:
        s = reduce_sum(x); m = s / n; v = reduce_sum(square(x - m))
        →  b = reshape(x); t = reduce_sum(b) over blocks; c = t / k; q = reduce_sum(square(b - c)) over blocks
           s = reduce_sum(t); m = s / n; v = reduce_sum(q) + k · reduce_sum(square(c - m))
    """
    return _InBlocks(kind_of(options.device)).graph(graph) if options.native else graph


_Blocks = tuple[
    tuple[int, ...], tuple[int, ...], tuple[int, ...]
]  # a shape, the axes within blocks, those of the blocks


class _InBlocks(OncePerGraph):
    def __init__(self, device: str) -> None:
        super().__init__()
        self.device = device

    def rewrite(self, graph: Graph) -> Graph:
        return _Moments(self, graph).result()


class _Moments(Remake):
    def __init__(self, passes: _InBlocks, graph: Graph) -> None:
        super().__init__(passes, graph)
        writers = {symbol: node for node in graph.nodes for symbol in node.outputs}
        centred = Centred(writers, graph.constants)
        self.total_of: dict[
            Symbol, Symbol
        ] = {}  # of sums of squares: the sum of the squared operand, before it was centred
        self.moments: dict[Symbol, Symbol] = {}  # of totals: the sums of squares
        for node in graph.nodes:
            base = _squared(node, writers)
            total = centred.total(base, node.params["axes"]) if base is not None else None
            made = writers.get(total.inputs[0]) if total is not None else None
            if total is not None and _blocks(total) and (made is None or not can_fuse(made, passes.device)):
                self.total_of[node.outputs[0]] = total.outputs[0]
        self.totals = set(self.total_of.values())

    def new_form(self, node: Node) -> Symbol | None:
        """See the base."""
        (out,) = node.outputs if len(node.outputs) == 1 else (None,)
        if out in self.totals:
            return self._sums(node)
        return self.moments[self.total_of[out]] if out in self.total_of else None

    def _sums(self, node: Node) -> Symbol:
        """Makes the sum that a node computes; the sum of squares is kept for its node."""
        (x,), (out,) = node.inputs, node.outputs
        blocks = _blocks(node)
        assert blocks is not None
        shape, inner, outer = blocks
        x = self.reshape(x, shape)
        count, parts = (math.prod(shape[axis] for axis in axes) for axes in (inner, outer))
        sums = self.make("reduce_sum", x, axes=inner)
        means = self._times(sums, 1 / count)
        within, left = self._squares(x, means, inner)
        axes = tuple(axis - sum(i < axis for i in inner) for axis in outer)
        whole = self.make("reduce_sum", sums, axes=axes)
        mean = self._times(whole, 1 / (count * parts))
        between, _ = self._squares(means, mean, axes, self._times(left, 1 / count))
        within = self.make("reduce_sum", within, axes=axes)
        self.moments[out] = self.make("add", within, self._times(between, count))
        return whole

    def _squares(
        self, x: Symbol, means: Symbol, axes: tuple[int, ...], more: Symbol | None = None
    ) -> tuple[Symbol, Symbol]:
        """Sums over axes the squares of x + more less its mean, and x less its rounded mean, which corrects the squares."""
        kept = tuple(1 if axis in axes else n for axis, n in enumerate(x.shape))
        centred = self.make("sub", x, self.make("broadcast_to", self.reshape(means, kept), shape=x.shape))
        if more is not None:
            centred = self.make("add", centred, more)
        left = self.make("reduce_sum", centred, axes=axes)
        squares = self.make("reduce_sum", self.make("square", centred), axes=axes)
        share = self._times(self.make("square", left), 1 / math.prod(x.shape[axis] for axis in axes))
        rest = self.make("sub", squares, share)
        return self.make("maximum", rest, self.number(0, rest, rest.shape)), left

    def _times(self, x: Symbol, factor: float) -> Symbol:
        return self.make("mul", x, self.number(factor, x, x.shape))


def _squared(node: Node, writers: dict[Symbol, Node]) -> Symbol | None:
    """Returns the symbol whose squares a node adds; None if it adds no squares."""
    made = writers.get(node.inputs[0]) if is_sum(node.command) else None
    if made is None or node.outputs[0].dtype not in (dtypes.float32, dtypes.float64):
        return None
    return squared(made)


def _blocks(total: Node) -> _Blocks | None:
    """The blocks of rows that no kernel goes through more than once; None where rows are short, or have no such blocks."""
    shape, axes = total.inputs[0].shape, sorted(total.params["axes"])
    last = max((axis for axis, n in enumerate(shape) if n > 1), default=0)
    most = _FUSION.row_elements if last in axes else _FUSION.column_elements
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
