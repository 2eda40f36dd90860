"""Sums over the rounds of a `scan`: one product that sums over time, too, instead of a product and an addition in each round."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from nnc.commands.rules import lead
from nnc.graph import Graph, Node, Symbol, command, register_pass
from nnc.graph.graph import NDArray
from nnc.lower.passes.all_rounds import ROUNDS, AllRounds, fits, is_view, may_stack, rows_bytes
from nnc.lower.passes.loops import Carry, Loop, Yield, take_apart
from nnc.lower.passes.once import OncePerGraph
from nnc.options import Options

_SUMMED = {"dot": 2, "reduce_sum": 1}  # commands that can sum over time as well, and how many rows they read


@register_pass("sink_sums")
def sink_sums(graph: Graph, options: Options) -> Graph:
    """Sums after a `scan` what its rounds only add up: gradients of captured tensors are the case in point.

    A carried value that each round replaces by its sum with products (or sums, or rows) and reads nowhere else leaves the loop. The
    operands of the products are elements or rows already, or become rows; that is done where a round writes fewer bytes of new rows
    than it would read of the sum, and where `all_rounds.fits` allows the memory: never under a memory budget.

    Requires: `cse` and `dce`, so that each value is there once; dead code elimination must follow.
    Ensures:  values differ by rounding, since the sums are taken in another order, and in the sign of zero.
    Example:  scan(x, c=0) … {b = f(carried); c = c + dot(x[t].T, b)}  →  scan(x) … {b = f(carried); yield b}; c = dot(x.T, bs)
    """
    return _Sinker(options).graph(graph)


@dataclass(frozen=True, slots=True)
class _Term:
    """A summand of a round: views of what `core` yields, or of `rows[0]` where that is None. `rows` are the tensors to keep."""

    rows: tuple[Symbol, ...]
    core: Node | None
    views: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class _Sum:
    """A carried value that rounds only add to; `adds` are the nodes that do."""

    carry: Carry
    terms: tuple[_Term, ...]
    adds: tuple[Node, ...]


class _Sinker(OncePerGraph):
    """Inner loops come first: a sum over an inner loop's rounds may then be one over the outer loop's."""

    def __init__(self, options: Options) -> None:
        super().__init__()
        self.options = options

    def rewrite(self, graph: Graph) -> Graph:
        constants = dict(graph.constants)
        renamed: dict[Symbol, Symbol] = {}
        nodes: list[Node] = []
        for old in graph.nodes:
            node = self.renew(old, renamed)
            nodes.append(node)
            if node.command.name == "scan" and (node.params["length"] or 0) >= ROUNDS:
                nodes[-1:] = self._sink(node, _zeros(nodes, constants), constants, renamed)
        if len(nodes) == len(graph.nodes) and all(a is b for a, b in zip(nodes, graph.nodes, strict=True)):
            return graph
        outputs = tuple(renamed.get(symbol, symbol) for symbol in graph.outputs)
        return graph.update(nodes=tuple(nodes), outputs=outputs, constants=constants)

    def _sink(
        self, node: Node, zeros: set[Symbol], constants: dict[Symbol, NDArray], renamed: dict[Symbol, Symbol]
    ) -> list[Node]:
        """The loop without the sums that leave it, and the nodes after it that yield them."""
        loop = take_apart(node)
        assert loop is not None
        length = node.params["length"]
        known = KnownRows(loop)
        sums = [x for carry in loop.carries if (x := _find_sum(loop, carry, known)) is not None]
        taken: list[_Sum] = []
        for x in sorted(sums, key=lambda x: -x.carry.inner.spec.nbytes):
            new = known.missing(s for term in x.terms for s in term.rows)
            before = known.added
            if rows_bytes(new) <= x.carry.inner.spec.nbytes and fits(loop, length * rows_bytes([*before, *new]), self.options):
                known.add(new)
                taken.append(x)
        if not taken:
            return [node]
        rounds = known.all_rounds(length)
        for x in taken:
            total = None if x.carry.operand in zeros else x.carry.operand
            for term in x.terms:
                value = _total(rounds, term)
                with rounds.builder:
                    total = value if total is None else command("add")(total, value)
            assert total is not None
            renamed[x.carry.result] = total
        return [known.without(taken).join(), *rounds.nodes(constants)]
