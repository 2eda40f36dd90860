"""Splits sums over terms that depend on other sums: sums of the terms' parts need not wait for them, so memory is read once
less.
"""

from __future__ import annotations

from collections import Counter
from types import MappingProxyType
from typing import NamedTuple

from nnc.base import dtypes
from nnc.base.options import Options
from nnc.commands.facts import is_addition, is_sum, multiplies, spread_axes
from nnc.graph import Command, Graph, Node, Symbol, TensorSpec, command
from nnc.graph.remake import NewGraph, OncePerGraph, rewritten
from nnc.lower.passes.fusion.centred import Centred

_LEAST = 1 << 10  # elements for each sum's element; below, a sum is no work
_TERMS = 4


def split_sums(graph: Graph, options: Options) -> Graph:
    """Takes sums of products with row-wise factors apart, where the factors come from sums and the whole is read again.

    The gradient of a batch norm is the case in point: with row sums f and g, ct · f + x · g is summed to be centred. As the sums
    of ct and x do not wait for f and g, all sums of a norm's gradient are found in one pass over memory. The values differ by
    rounding, also since the sum of centred values is 0.

    Ensures: no `reduce_sum` over many elements reads a sum of products with broadcast factors, one of them dependent on another
    sum.

    Example:
        y = ct · broadcast(f) + x · broadcast(g); s = reduce_sum(y)  →  s = reduce_sum(ct) · f + reduce_sum(x) · g
    """
    return rewritten(graph, _Split)


class _ProductTerm(NamedTuple):
    """A product among the terms: a tensor, the commands of the products, and the factors without the axes that are summed."""

    base: Symbol
    factors: tuple[tuple[Command, Symbol], ...]


class _Split(NewGraph):
    """The new form of one graph."""

    def __init__(self, passes: OncePerGraph, graph: Graph) -> None:
        super().__init__(passes, graph)
        self.writer = {symbol: node for node in graph.nodes for symbol in node.outputs}
        self.centred = Centred(self.writer, graph.constants)
        self.readers = Counter(symbol for node in graph.nodes for symbol in dict.fromkeys(node.inputs))
        self.summed: set[Symbol] = set()  # symbols that depend on a sum
        self.made: list[Node] = []  # for the sum at hand
        self.unscaled: dict[Symbol, Symbol] = {}  # tensors times a number, and the tensors

    def add(self, node: Node) -> None:
        """See the base."""
        parts = self._parts(node) if is_sum(node.command) else None
        if is_sum(node.command) or not self.summed.isdisjoint(node.inputs):
            self.summed.update(node.outputs)
        self.nodes += [node] if parts is None else parts

    def _parts(self, node: Node) -> list[Node] | None:
        """Returns the nodes that stand for a sum; None where it stays."""
        (whole,), (out,) = node.inputs, node.outputs
        if not self._is_read_again(whole) or not dtypes.is_float(out.dtype) or whole.spec.size < _LEAST * out.spec.size:
            return None
        self.made = []
        terms = self._terms(whole, node.params["axes"], out)
        if not 2 <= len(terms) <= _TERMS or not all(term.factors for term in terms):
            return None
        if all(self.summed.isdisjoint((factor,)) for term in terms for _, factor in term.factors):
            return None
        total: Symbol | None = None
        for term in terms:
            if self.centred.total(self.unscaled.get(term.base, term.base), node.params["axes"]) is not None:
                continue
            part = self._make("reduce_sum", (term.base,), out.spec, dict(node.params))
            for product, factor in term.factors:
                part = self._make(product, (part, factor), out.spec)
            total = part if total is None else self._make("add", (total, part), out.spec)
        if total is None:
            return None
        *others, last = self.made
        return [*(n.update(source=node.source) for n in others), last.update(outputs=(out,), source=node.source)]

    def _is_read_again(self, whole: Symbol) -> bool:
        """Whether something else reads a tensor, or, of one times a number, that one."""
        node = self.writer.get(whole)
        while self.readers[whole] < 2 and node is not None and multiplies(node):
            if self.centred.number(node.inputs[1]) is None:
                return False
            whole = node.inputs[0]
            node = self.writer.get(whole)
        return self.readers[whole] >= 2

    def _make(
        self, name: Command | str, inputs: tuple[Symbol, ...], spec: TensorSpec, params: dict[str, object] | None = None
    ) -> Symbol:
        out = Symbol(spec)
        self.made.append(Node(command(name), inputs, (out,), MappingProxyType(params or {})))
        return out

    def _terms(self, symbol: Symbol, axes: tuple[int, ...], out: Symbol) -> list[_ProductTerm]:
        """Returns the terms of a sum."""
        node = self.writer.get(symbol)
        if node is not None and is_addition(node.command):
            return [term for part in node.inputs for term in self._terms(part, axes, out)]
        if node is not None and multiplies(node) and self.centred.number(node.inputs[1]) is not None:
            terms = self._terms(node.inputs[0], axes, out)
            if len(terms) > 1:
                return [self._times(term, node) for term in terms]
        factors: list[tuple[Command, Symbol]] = []
        while node is not None and multiplies(node):
            rows = [self._row(part, axes, out) for part in node.inputs]
            if (rows[0] is None) == (rows[1] is None):
                break
            symbol, row = (node.inputs[0], rows[1]) if rows[0] is None else (node.inputs[1], rows[0])
            assert row is not None
            factors.append((node.command, row))
            node = self.writer.get(symbol)
        return [_ProductTerm(symbol, tuple(factors))]

    def _times(self, term: _ProductTerm, product: Node) -> _ProductTerm:
        """Returns a term times the number of a product. The number comes first, as it may keep the sum in range."""
        base = self._make(product.command, (term.base, product.inputs[1]), term.base.spec)
        self.unscaled[base] = term.base
        return term._replace(base=base)

    def _row(self, symbol: Symbol, axes: tuple[int, ...], out: Symbol) -> Symbol | None:
        """Returns a tensor that is the same along the axes, without them; None where it is not known to be."""
        node = self.writer.get(symbol)
        if node is None:
            return None
        if multiplies(node):
            first, second = (self._row(part, axes, out) for part in node.inputs)
            if first is None or second is None:
                return None
            row = self._make(node.command, (first, second), out.spec)
            if not self.summed.isdisjoint((first, second)):
                self.summed.add(row)
            return row
        places = spread_axes(node)
        if places is None:
            return None
        (source,) = node.inputs
        if any(place in axes and n != 1 for place, n in zip(places, source.shape, strict=True)):
            return None
        kept = [place for place in places if place not in axes]
        shape = tuple(n for place, n in zip(places, source.shape, strict=True) if place not in axes)
        flat = (
            source
            if shape == source.shape
            else self._make("reshape", (source,), source.spec.update(shape=shape), {"shape": shape})
        )
        target = tuple(place - sum(axis < place for axis in axes) for place in kept)
        row = flat
        if shape != out.shape:
            row = self._make("broadcast_to", (flat,), out.spec, {"shape": out.shape, "axes": target})
        if source in self.summed:
            self.summed.add(row)
        return row
