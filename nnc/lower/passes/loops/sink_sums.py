"""Sums over the iterations of a `scan`: one product that sums over time, too, instead of a product and an addition in each
iteration.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from nnc.base.dtypes import TAPE
from nnc.base.options import Options
from nnc.base.source import SourceLine
from nnc.commands.properties import element_as, is_sum, is_view
from nnc.commands.roles import Carry, NodeRoles
from nnc.commands.rules import Sum
from nnc.graph import Graph, Node, Symbol, command
from nnc.graph.registry import joined
from nnc.graph.remake import NewGraph, OncePerGraph, rewritten
from nnc.lower.passes.loops.all_iterations import AllIterations, KnownRows, is_short_sum, take_long_loop, total_bytes


def sink_sums(graph: Graph, options: Options) -> Graph:
    """Takes sums over all iterations out of a `scan`: gradients of captured tensors are the case in point.

    A carried value that each iteration replaces by its sum with products (or sums, or rows) and reads nowhere else leaves the loop,
    if the products sum over few rows each. Their operands are elements or rows already, or become rows; that is done if an
    iteration writes fewer bytes of new rows than it would read of the sum, and `all_iterations.fits` allows it: never under a
    memory budget. Rows that an iteration subtracts from, or adds to, one another before stay there: they may cancel.

    Ensures: values differ by rounding, since the sums are taken in another order, and in the sign of zero.

    Example:
        scan(x, c=0) … {b = f(carried); c = c + dot(x[t].T, b)}
        →  scan(x) … {b = f(carried); yield b}; c = dot(x.T, bs)
    """
    return rewritten(graph, partial(_SunkSums, options=options))


class _Summand(NamedTuple):
    """A summand of an iteration: views of the result of `core`, or of `rows[0]` where that is None. `rows` are the tensors to
    keep.
    """

    rows: tuple[Symbol, ...]
    core: Node | None
    views: tuple[Node, ...]
    source: SourceLine | None


class _LoopSum(NamedTuple):
    """A carried value that iterations only add to; `adds` are the nodes that do. Terms are added, or taken away."""

    carry: Carry
    terms: tuple[tuple[_Summand, bool], ...]
    adds: tuple[Node, ...]


class _SunkSums(NewGraph):
    """Inner loops come first: a sum over an inner loop's iterations may then be one over the outer loop's."""

    def __init__(self, passes: OncePerGraph, graph: Graph, *, options: Options) -> None:
        super().__init__(passes, graph)
        self.options = options
        self.zeros = {symbol for symbol, value in graph.constants.items() if value.ndim == 0 and value == 0}

    def add(self, node: Node) -> None:
        """See the base."""
        if is_view(node) and node.inputs[0] in self.zeros:
            self.zeros.add(node.outputs[0])
        loop = take_long_loop(node)
        self.nodes += [node] if loop is None else self._sink(loop)

    def _sink(self, loop: NodeRoles) -> list[Node]:
        """Returns the loop without the sums that leave it, and the nodes after it that yield them."""
        known = KnownRows(loop)
        taken = self._choose(known)
        if not taken:
            return [loop.node]
        iterations = known.all_iterations()
        for x in taken:
            start = None if x.carry.operand in self.zeros else x.carry.operand
            self.renamed[x.carry.result] = _total(iterations, known, x, start)
        (body,) = loop.graphs
        gone = {add for x in taken for add in x.adds}
        kept = tuple(carry for carry in loop.carries if all(carry is not x.carry for x in taken))
        graphs = (body.update(nodes=tuple(node for node in body.nodes if node not in gone)),)
        return [
            loop.update(graphs=graphs, carries=kept, rows=(*loop.rows, *known.added)).join(),
            *iterations.nodes(self.constants),
        ]

    def _choose(self, known: KnownRows) -> list[_LoopSum]:
        """Returns the sums that leave the loop; the rows that they need are added, large sums first, so that small ones find
        them there.
        """
        sums = [x for carry in known.loop.carries if (x := _find_sum(known, carry)) is not None]
        taken: list[_LoopSum] = []
        for x in sorted(sums, key=lambda x: -x.carry.inner.spec.nbytes):
            new = known.missing(symbol for term, _ in x.terms for symbol in term.rows)
            if total_bytes(new) <= x.carry.inner.spec.nbytes and known.fits(new, self.options):
                known.add(new)
                taken.append(x)
        return taken


def _find_sum(known: KnownRows, carry: Carry) -> _LoopSum | None:
    """Finds the terms that the iterations add to a carried value; None where they do more with it, or a term would have to be kept
    for that alone.
    """
    if known.readers[carry.inner] != 1 or carry.following is carry.inner or carry.inner.spec.dtype == TAPE:
        return None
    summands: list[tuple[_Summand, bool]] = []
    adds: list[Node] = []
    found = False
    totals = _totals(known, carry)
    todo = [(carry.following, True, True)]
    while todo:
        symbol, added, is_apart = todo.pop()
        node = known.writers.get(symbol)
        if symbol is carry.inner and added:
            found = True
        elif node is not None and (total := element_as(node.command, Sum)) is not None and known.readers[symbol] == 1:
            adds.append(node)
            signs = zip(node.inputs, total.signs, strict=True)
            todo += [(x, added == (sign > 0), symbol in totals) for x, sign in signs][::-1]
        elif (term := _find_term(known, symbol)) is not None and (is_apart or term.core is not None):
            summands.append((term, added))
        else:
            return None
    return _LoopSum(carry, tuple(summands), tuple(adds)) if found else None


def _totals(known: KnownRows, carry: Carry) -> set[Symbol]:
    """Returns the carried value and its sums with others."""
    totals = {carry.inner}
    for node in known.loop.graphs[0].nodes:
        if element_as(node.command, Sum) is not None and not totals.isdisjoint(node.inputs):
            totals.update(node.outputs)
    return totals


def _find_term(known: KnownRows, symbol: Symbol) -> _Summand | None:
    """Returns a summand that can be summed over time without being made in each iteration."""
    if not known.missing([symbol]):
        return _Summand((symbol,), None, (), known.loop.node.source)
    views: list[Node] = []
    at = symbol
    while known.readers[at] == 1 and (node := known.writers.get(at)) is not None:
        if is_short_sum(node) and all(map(known.varies, node.inputs)):
            return _Summand(node.inputs, node, tuple(reversed(views)), node.source)
        if len(node.inputs) != 1 or not (
            is_view(node) or element_as(node.command, Sum) is not None or node.command in joined
        ):
            return None  # for others, the result of a sum is not the sum of the results of its terms
        views.append(node)
        at = node.inputs[0]
    return None


def _total(iterations: AllIterations, known: KnownRows, x: _LoopSum, total: Symbol | None) -> Symbol:
    """Adds the terms of all iterations to `total`."""
    source = x.adds[-1].source
    for term, added in x.terms:
        value = _over_time(iterations, known, term)
        if total is not None:
            total = iterations.append(command("add" if added else "sub"), (total, value), source)
        else:
            total = value if added else iterations.append(command("neg"), (value,), source)
    assert total is not None
    return total


def _over_time(iterations: AllIterations, known: KnownRows, term: _Summand) -> Symbol:
    """Returns the sum of a summand over all iterations."""
    for symbol in term.rows:
        for node in known.chain(symbol):
            iterations.copy(node)
    rows = tuple(map(iterations.rows, term.rows))
    core, source = term.core, term.source
    if core is None:
        total = iterations.append(command("reduce_sum"), rows, source, axes=(0,))
    elif is_sum(core.command):
        total = iterations.append(core.command, rows, source, axes=(0, *_behind_time(core.params["axes"])))
    else:
        contract = tuple((0, *_behind_time(axes)) for axes in core.params["contract"])
        batch = tuple(map(_behind_time, core.params["batch"]))
        total = iterations.append(core.command, rows, source, contract=contract, batch=batch)
    for node in term.views:
        total = iterations.append(node.command, (total,), node.source, **node.params)
    return total


def _behind_time(axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(axis + 1 for axis in axes)
