"""Algebra: replaces the left side of a rule by a simpler expression that has the same value, bit for bit."""

from __future__ import annotations

import math
from types import MappingProxyType

import numpy as np

from nnc.base import dtypes
from nnc.base.options import Options
from nnc.commands.properties import element_as, is_view
from nnc.commands.rules import Quotient
from nnc.graph import Graph, Node, Symbol, apply_rules, command, register_pass
from nnc.graph.graph import NDArray
from nnc.graph.passes import Fact
from nnc.graph.remake import NewGraph, OncePerGraph, rewritten
from nnc.lower.passes.simplify.algebra import ARITHMETIC
from nnc.lower.passes.simplify.moves import MOVES

RULES = (*ARITHMETIC, *MOVES)


@register_pass("simplify", requires=[Fact.COMMANDS, Fact.FOLDED], ensures=[Fact.SIMPLIFIED], invalidates=[Fact.NO_DEAD])
def simplify(graph: Graph, options: Options) -> Graph:
    """Applies the rules of algebra.py and moves.py until none fits, in sub-graphs, too; all are exact.

    Ensures: no rule applies; new nodes have the source line of the node that they replace.

    Example:
        a = neg(x); b = neg(a); c = stop_gradient(b); return c  →  return x
    """
    return apply_rules(rewritten(graph, _Reciprocals), RULES, exact=True)


class _Reciprocals(NewGraph):
    """Turns quotients by a power of two into products, which are faster and equal; a rule would be one for each number."""

    def __init__(self, passes: OncePerGraph, graph: Graph) -> None:
        super().__init__(passes, graph)
        self.numbers = {s: x for s, x in graph.constants.items() if x.ndim == 0 and dtypes.is_known(x.dtype)}

    def add(self, node: Node) -> None:
        """See the base."""
        if is_view(node) and node.inputs[0] in self.numbers:
            self.numbers[node.outputs[0]] = self.numbers[node.inputs[0]]
        divisor = self.numbers.get(node.inputs[1]) if element_as(node.command, Quotient) else None
        inverse = _exact_inverse(divisor) if divisor is not None else None
        if inverse is not None:
            factor = Symbol(node.outputs[0].spec.update(shape=()))
            self.constants[factor] = inverse
            if node.outputs[0].spec.ndim:
                spread = Symbol(node.outputs[0].spec)
                params = MappingProxyType({"shape": spread.shape, "axes": ()})
                self.nodes.append(Node(command("broadcast_to"), (factor,), (spread,), params, source=node.source))
                factor = spread
            node = node.update(command=command("mul"), inputs=(node.inputs[0], factor))
        self.nodes.append(node)


def _exact_inverse(divisor: NDArray) -> NDArray | None:
    """1 / divisor where that is a power of two and both are normal numbers; None elsewhere."""
    if not dtypes.is_float(divisor.dtype):
        return None
    value = float(divisor)
    if not math.isfinite(value) or abs(math.frexp(value)[0]) != 0.5 or abs(math.frexp(value)[1]) > 14:
        return None  # within 2^14 every dtype has both
    return np.asarray(1 / value).astype(divisor.dtype)
