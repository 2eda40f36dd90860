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

_SAMPLES = 4  # along each axis


@register_pass("shifted_sums")
def shifted_sums(graph: Graph, options: Options) -> Graph:
    """Sums the squares of centred values without waiting for the mean: elements are taken relative to the mean of some of them.

    With d = x - near, the sum of squares is sum(d²) - sum(d)² / n (Chan, Golub, LeVeque, 1983), with a relative error of about
    (near - mean)² / variance roundings more than two passes have. The excess is less than 1 as a rule; since those m elements are
    among the n, it is never more than n / m. Rows that a kernel goes through twice for nothing stay as they are, and so do results
    of elementwise commands.

    Requires: the layout is the one that will run; `fuse` follows.
    Ensures:  the same values up to the errors of such sums.

    Example:
        m = reduce_sum(x) / n; v = reduce_sum(square(x - m))
        →  c = mean(x[::k]); d = x - c; s = reduce_sum(d); m = (s + c · n) / n; v = reduce_sum(square(d)) - s · s / n
    """
    return _Shifted(kind_of(options.device)).graph(graph) if options.native else graph


class _Shifted(OncePerGraph):
    def __init__(self, device: str) -> None:
        super().__init__()
        self.device = device

    def rewrite(self, graph: Graph) -> Graph:
        return _Moments(self, graph).result()


class _Moments(Remake):
    def __init__(self, passes: _Shifted, graph: Graph) -> None:
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
            if total is not None and _is_long(total) and (made is None or not can_fuse(made, passes.device)):
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
        axes = node.params["axes"]
        count = math.prod(x.shape[axis] for axis in axes)
        near = self._near_mean(x, axes, out)
        kept = tuple(1 if axis in axes else n for axis, n in enumerate(x.shape))
        shifted = self.make("sub", x, self.make("broadcast_to", self.reshape(near, kept), shape=x.shape))
        total = self.make("reduce_sum", shifted, axes=axes)
        squares = self.make("reduce_sum", self.make("square", shifted), axes=axes)
        part = self.make("mul", self.make("mul", total, total), self.number(1 / count, out, out.shape))
        rest = self.make("sub", squares, part)
        self.moments[out] = self.make("maximum", rest, self.number(0, out, out.shape))
        return self.make("add", total, self.make("mul", near, self.number(count, out, out.shape)))

    def _near_mean(self, x: Symbol, axes: tuple[int, ...], out: Symbol) -> Symbol:
        """The mean of a few elements of each row, from all over it."""
        taken = [min(n, _SAMPLES) if axis in axes else n for axis, n in enumerate(x.shape)]
        stride = tuple(n // m for n, m in zip(x.shape, taken, strict=True))
        start = tuple(step // 2 for step in stride)
        limit = tuple(a + (m - 1) * step + 1 for a, m, step in zip(start, taken, stride, strict=True))
        sample = self.make("slice", x, start=start, limit=limit, stride=stride)
        share = 1 / math.prod(taken[axis] for axis in axes)
        return self.make("mul", self.make("reduce_sum", sample, axes=axes), self.number(share, out, out.shape))


def _squared(node: Node, writers: dict[Symbol, Node]) -> Symbol | None:
    """Returns the symbol whose squares a node adds; None if it adds no squares."""
    made = writers.get(node.inputs[0]) if is_sum(node.command) else None
    if made is None or node.outputs[0].dtype not in (dtypes.float32, dtypes.float64):
        return None
    return squared(made)


def _is_long(total: Node) -> bool:
    """Whether no kernel goes more than once through rows as long as the rows that a sum adds up."""
    shape, axes = total.inputs[0].shape, total.params["axes"]
    last = max((axis for axis, n in enumerate(shape) if n > 1), default=0)
    return bool(
        math.prod(shape[axis] for axis in axes) > (_FUSION.row_elements if last in axes else _FUSION.column_elements)
    )
