"""What the passes on `scan` share that take nodes out of its rounds: the nodes are copied so that they run for all rounds at once.

The column `batch` says how: the axis of time is one more leading axis.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

import nnc.commands.contract  # noqa: F401  (registers the products)
from nnc.commands.rules import alias, batch, effect, lead, scalar
from nnc.context import set_context
from nnc.dtypes import TAPE
from nnc.graph import GraphBuilder, Node, Symbol
from nnc.graph.graph import NDArray
from nnc.lower.passes.licm import cannot_fail
from nnc.lower.passes.loops import Loop
from nnc.options import Options

ROUNDS = 2  # a loop of fewer is left alone
_GROWTH = 4  # times the bytes that a loop reads and yields may be added for rows of all rounds
_ROWS = 256  # a product with so many rows in a round is not much faster in one piece


class AllRounds:
    """Copies of nodes of a round, for all rounds at once, on symbols of the graph around the loop.

    Args:     length: the number of rounds. rows: for symbols of the round, the tensor of what they are in each round.
              same: for symbols of the round that are the same in all, what they are. constants: those of the round.
    """

    def __init__(
        self, length: int, rows: Mapping[Symbol, Symbol], same: Mapping[Symbol, Symbol], constants: Mapping[Symbol, NDArray]
    ) -> None:
        self.length = length
        self.builder = GraphBuilder("all rounds")
        self._values: dict[Symbol, tuple[Any, bool]] = {}
        for known, varies in ((rows, True), (same, False)):
            for inner, outer in known.items():
                self.builder.adopt(outer)
                self._values[inner] = outer, varies
        self._inner_constants = constants

    def run(self, node: Node) -> None:
        """Appends what a node of the round computes in all rounds."""
        pairs = [self._value(symbol) for symbol in node.inputs]
        operands, varying = tuple(x for x, _ in pairs), tuple(on for _, on in pairs)
        with self.builder, set_context(source=node.source):
            if any(varying):
                outputs, on = batch[node.command](self.length, operands, varying, **node.params)
            else:
                given = self.builder.add(node.command, *operands, source=node.source, **node.params)
                outputs = given if isinstance(given, tuple) else (given,)
                on = (False,) * len(outputs)
        self._values.update(zip(node.outputs, zip(outputs, on, strict=True), strict=True))

    def rows(self, symbol: Symbol) -> Symbol:
        """The tensor of what a symbol of the round is in each round."""
        value, varies = self._value(symbol)
        with self.builder:
            stacked: Symbol = lead(self.length, value, varies)
        return stacked

    def _value(self, symbol: Symbol) -> tuple[Any, bool]:
        if symbol not in self._values and symbol in self._inner_constants:
            self._values[symbol] = self.builder.constant(self._inner_constants[symbol], name=symbol.name), False
        return self._values[symbol]

    def nodes(self, constants: dict[Symbol, NDArray]) -> tuple[Node, ...]:
        """The nodes so far; their constants are added to those given."""
        constants.update(self.builder.build().constants)
        return self.builder.nodes


def may_stack(node: Node) -> bool:
    """Whether a node can run for all rounds at once, before or after the loop, without anybody noticing."""
    if node.graphs or not node.outputs or node.command in effect or node.command not in batch:
        return False
    if any(symbol.spec.dtype == TAPE for symbol in (*node.inputs, *node.outputs)):
        return False
    return is_view(node) or node.command in scalar or cannot_fail.get(node.command, False)


def is_view(node: Node) -> bool:
    """Whether a node shows the elements of its only operand in another form."""
    return alias.get(node.command, None) == "view" and len(node.inputs) == 1


def is_thin_product(node: Node, varying: Collection[Symbol]) -> bool:
    """Whether a node multiplies few rows that differ from round to round by a tensor that does not."""
    if node.command.name != "dot":
        return False
    on = [symbol in varying for symbol in node.inputs]
    if on[0] == on[1]:
        return False
    rows, axes = node.inputs[on.index(True)], node.params["contract"][on.index(True)]
    return rows.spec.size < _ROWS * math.prod(rows.shape[axis] for axis in axes)


def fits(loop: Loop, added: int, options: Options) -> bool:
    """Whether `added` bytes may be held beside what a loop reads and yields; under a budget of memory none are."""
    if options.memory_budget is not None:
        return False
    held = {*loop.node.inputs, *loop.node.outputs}
    return added <= _GROWTH * sum(symbol.spec.nbytes for symbol in held)


def rows_bytes(symbols: Collection[Symbol]) -> int:
    """What symbols of a round take in one round."""
    return sum(symbol.spec.nbytes for symbol in symbols)
