"""Products that a `scan` only yields: one product of all rows after the loop instead of a small one in each iteration."""

from __future__ import annotations

from functools import partial

from nnc.base.options import Options
from nnc.commands.properties import is_view
from nnc.commands.roles import NodeRoles, Yield
from nnc.graph import Graph, Node, Symbol
from nnc.graph.remake import NewGraph, OncePerGraph, rewritten
from nnc.lower.passes.loops.all_iterations import KnownRows, is_thin_product, may_stack, take_long_loop, total_bytes
from nnc.lower.passes.simplify.dce import has_effect


def sink_products(graph: Graph, options: Options) -> Graph:
    """Multiplies rows after a `scan` whose iterations multiply a carried value by a captured tensor, only to yield the product.

    Logits of each step, and gradients of the inputs, are the cases in point. Elementwise commands, views and other products that
    lead from the product to the row go with it, unless the next iteration needs them. The product's operand becomes a row, where
    that takes no more bytes than the rows that leave, and where `all_iterations.fits` allows the memory: never under a memory
    budget.

    Ensures: the same values up to the order in which a product of another size sums.

    Example:
        scan(w) … {h = f(carried); yield dot(h, w)}  →  scan() … {h = f(carried); yield h}; dot(hs, w)
    """
    return rewritten(graph, partial(_Sunk, options=options))


class _Sunk(NewGraph):
    def __init__(self, passes: OncePerGraph, graph: Graph, *, options: Options) -> None:
        super().__init__(passes, graph)
        self.options = options

    def add(self, node: Node) -> None:
        """See the base."""
        loop = take_long_loop(node)
        self.nodes += [node] if loop is None else self._sink(loop)

    def _sink(self, loop: NodeRoles) -> list[Node]:
        """Returns the loop without the products that leave it, and the nodes after it that yield them."""
        rows, needed = _leaving(loop)
        known = KnownRows(loop, rows)
        region = _Region(known, needed, rows)
        new = known.missing(region.frontier)
        made = [s for inner in region.nodes if not is_view(inner) for s in inner.outputs]
        leaving = {row.inner[0] for row in rows}
        if not rows or total_bytes(new) > total_bytes(leaving) or not known.fits([*new, *made], self.options):
            return [loop.node]
        known.add(new)
        iterations = known.all_iterations()
        for symbol in region.frontier:
            for inner in known.chain(symbol):
                iterations.copy(inner)
        for inner in region.nodes:
            iterations.copy(inner)
        for row in rows:
            self.renamed[row.result] = iterations.rows(row.inner[0])
        kept = tuple(row for row in loop.rows if all(row is not x for x in rows))
        return [loop.update(rows=(*kept, *known.added)).join(), *iterations.nodes(self.constants)]


def _leaving(loop: NodeRoles) -> tuple[list[Yield], set[Symbol]]:
    """Returns the rows of products that no other row needs in the loop, and the symbols that the loop needs without them."""
    rows = list(loop.rows)
    while True:
        needed = _needed(loop, [row for row in loop.rows if row not in rows])
        left = [row for row in rows if _Region(KnownRows(loop, loop.rows), needed, [row]).has_product]
        if len(left) == len(rows):
            return rows, needed
        rows = left


def _needed(loop: NodeRoles, rows: list[Yield]) -> set[Symbol]:
    """Returns the symbols of an iteration that a later iteration, an effect or these rows depend on."""
    needed = {*(x.following for x in loop.carries), *(row.inner[0] for row in rows)}
    for node in reversed(loop.graphs[0].nodes):
        if not needed.isdisjoint(node.outputs) or has_effect(node):
            needed.update((*node.inputs, *node.outputs))
    return needed


class _Region:
    """Nodes that serve rows alone and can run for all iterations at once: `nodes` in order; `frontier` holds their operands in the
    loop.
    """

    def __init__(self, known: KnownRows, carried: set[Symbol], rows: list[Yield]) -> None:
        (body,) = known.loop.graphs
        wanted = {row.inner[0] for row in rows}
        found: list[Node] = []
        self.frontier: list[Symbol] = []
        for node in reversed(body.nodes):
            if wanted.isdisjoint(node.outputs):
                continue
            if may_stack(node) and carried.isdisjoint(node.outputs) and known.tensors.keys().isdisjoint(node.outputs):
                found.append(node)
                wanted.update(node.inputs)
            else:
                self.frontier += [s for s in node.outputs if s in wanted]
        same = {*known.same, *body.constants}
        self.frontier += [symbol for symbol in body.inputs if symbol in wanted and symbol not in same]
        self.nodes = tuple(reversed(found))
        varying = set(self.frontier)
        self.has_product = False
        for node in self.nodes:
            if not varying.isdisjoint(node.inputs):
                self.has_product |= is_thin_product(node, varying)
                varying.update(node.outputs)
