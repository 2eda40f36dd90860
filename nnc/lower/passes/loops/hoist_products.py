"""Products of elements of sequences with captured tensors: one product before the loop instead of a small one in each iteration."""

from __future__ import annotations

from functools import partial

from nnc.base.options import Options
from nnc.commands.properties import is_view
from nnc.commands.roles import NodeRoles, Read
from nnc.graph import Graph, Node, Symbol
from nnc.graph.remake import NewGraph, OncePerGraph, rewritten
from nnc.lower.passes.loops.all_iterations import (
    AllIterations,
    fits,
    is_thin_product,
    known_length,
    may_stack,
    take_long_loop,
    total_bytes,
)
from nnc.lower.passes.simplify.dce import has_effect


def hoist_products(graph: Graph, options: Options) -> Graph:
    """Multiplies whole sequences before a `scan` whose iterations multiply their elements by a captured tensor.

    The product of each iteration has few rows, so it reads the captured tensor for little work. Nodes that lead from elements to a
    product by elementwise commands, views and other products goes with it. The results are a sequence more that the loop reads;
    where that takes several times the bytes that the loop reads and yields already, or under a memory budget, the loop stays as it
    is.

    Ensures: the same values up to the order in which a product of another size sums.

    Example:
        scan(x, w) … {a = dot(x[t], w); c = carried + a}  →  a = dot(x, w); scan(a) … {c = carried + a[t]}
    """
    return rewritten(graph, partial(_Hoisted, options=options))


class _Hoisted(NewGraph):
    def __init__(self, passes: OncePerGraph, graph: Graph, *, options: Options) -> None:
        super().__init__(passes, graph)
        self.options = options

    def add(self, node: Node) -> None:
        """See the base."""
        loop = take_long_loop(node)
        if loop is not None:
            before, node = self._hoist(loop)
            self.nodes += before
        self.nodes.append(node)

    def _hoist(self, loop: NodeRoles) -> tuple[tuple[Node, ...], Node]:
        """Returns the nodes to run before the loop, and the loop that reads their results."""
        (body,) = loop.graphs
        elements = {x.inner[0]: x.operand for x in loop.sequences}
        varying, known = set(elements), {*elements, *(x.inner[0] for x in loop.captured), *body.constants}
        products: set[Node] = set()
        for inner in body.nodes:
            if known.issuperset(inner.inputs) and may_stack(inner):
                if is_thin_product(inner, varying):
                    products.add(inner)
                known.update(inner.outputs)
                if not varying.isdisjoint(inner.inputs):
                    varying.update(inner.outputs)
        leaving = _read_without(body, products)
        moved = body.restrict(tuple(leaving)).nodes
        made = [s for inner in moved if not is_view(inner) for s in inner.outputs if s in varying]
        if not leaving or not fits(loop, known_length(loop) * total_bytes(made), self.options):
            return (), loop.node
        iterations = AllIterations(loop, elements)
        for inner in moved:
            iterations.copy(inner)
        sequences = (*loop.sequences, *(Read(iterations.rows(symbol), (symbol,)) for symbol in leaving))
        return iterations.nodes(self.constants), _reading(loop, sequences, set(leaving)).join()


def _read_without(body: Graph, products: set[Node]) -> list[Symbol]:
    """Returns the results of products that the iteration still needs, if it computes none of them, in order."""
    needed = set(body.outputs)
    for node in reversed(body.nodes):
        if node not in products and (not needed.isdisjoint(node.outputs) or has_effect(node)):
            needed.update(node.inputs)
    return [symbol for node in body.nodes if node in products for symbol in node.outputs if symbol in needed]


def _reading(loop: NodeRoles, sequences: tuple[Read, ...], read: set[Symbol]) -> NodeRoles:
    """Returns the loop that reads symbols of its iterations from sequences instead of computing them."""
    (body,) = loop.graphs
    nodes = tuple(node for node in body.nodes if read.isdisjoint(node.outputs))
    return loop.update(sequences=sequences, graphs=(body.update(nodes=nodes),))
