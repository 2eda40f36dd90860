"""Products that are only added, as processors and XLA compute them: in one instruction, rounded once."""

from __future__ import annotations

from types import MappingProxyType

from nnc.base import dtypes
from nnc.base.options import Options
from nnc.commands.properties import element_as
from nnc.commands.rules import Product, Sum
from nnc.graph import Graph, Node, Symbol, command
from nnc.graph.remake import NewGraph, OncePerGraph, rewritten

_DTYPES = (dtypes.float32, dtypes.float64)


def contract_products(graph: Graph, options: Options) -> Graph:
    """Joins products with the one sum or difference that reads them, if `options.contract` allows it.

    Results differ in the last digit, from eager commands' too.

    Ensures: no sum of float32 or float64 has an operand that is a product and read nowhere else.

    Example:
        p = mul(x, y); s = add(p, z)  →  s = multiply_add(x, y, z)
    """
    return rewritten(graph, _Contracted)


class _Contracted(NewGraph):
    """`products` are the factors of products that one node reads; `gone` are products that have become part of it."""

    def __init__(self, passes: OncePerGraph, graph: Graph) -> None:
        super().__init__(passes, graph)
        self.products: dict[Symbol, list[Symbol]] = {}
        self.gone: set[Symbol] = set()

    def add(self, node: Node) -> None:
        """See the base."""
        product, total = element_as(node.command, Product), element_as(node.command, Sum)
        is_exact = product and not product.keeps_zero  # infinities and NaNs stay so, as on processors
        if product and is_exact and node.outputs[0].dtype in _DTYPES and self.reads[node.outputs[0]] == 1:
            self.products[node.outputs[0]] = [node.inputs[i] for i in product.factors]
        found = next((x for x in node.inputs if x in self.products), None)
        if total is None or len(total.signs) != 2 or found is None:
            self.nodes.append(node)
        else:
            self.gone.add(found)
            self.nodes += _joined(node, total.signs, found, self.products[found])

    def result(self) -> Graph:
        """See the base."""
        graph = super().result()
        if not self.gone:
            return graph
        return graph.update(nodes=tuple(node for node in graph.nodes if self.gone.isdisjoint(node.outputs)))


def _joined(node: Node, signs: tuple[int, ...], found: Symbol, factors: list[Symbol]) -> list[Node]:
    """Joins a sum with a product to one node; in a difference the subtracted operand changes its sign, which is exact."""
    place = 0 if node.inputs[0] is found else 1
    before: list[Node] = []

    def signed(symbol: Symbol, sign: int) -> Symbol:
        if sign > 0:
            return symbol
        negative = Symbol(symbol.spec)
        params: MappingProxyType[str, object] = MappingProxyType({})
        before.append(node.update(command=command("neg"), inputs=(symbol,), outputs=(negative,), params=params))
        return negative

    x, y = signed(factors[0], signs[place]), factors[1]
    z = signed(node.inputs[1 - place], signs[1 - place])
    return [*before, node.update(command=command("multiply_add"), inputs=(x, y, z), params=MappingProxyType({}))]
