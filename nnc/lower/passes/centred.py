"""Tensors less their own mean, which passes that rewrite sums look for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from nnc.graph import Node, Symbol
from nnc.graph.graph import NDArray


@dataclass(frozen=True)
class Centred:
    """Finds them in a graph, of which the writers of symbols and the constants are given."""

    writers: Mapping[Symbol, Node]
    constants: Mapping[Symbol, NDArray]

    def total(self, symbol: Symbol, axes: tuple[int, ...]) -> Node | None:
        """The sum over the axes of what a symbol is, less its mean over the axes; None where it is no such difference."""
        node = self.writers.get(symbol)
        if node is None or node.command.name != "sub":
            return None
        x, mean = node.inputs
        found = self._under_views(mean)
        count = math.prod(x.shape[axis] for axis in axes)
        if found is None or found.command.name not in ("mul", "div"):
            return None
        factor = self._number(found.inputs[1])
        total = self._under_views(found.inputs[0])
        wanted = count if found.command.name == "div" else 1 / count
        if factor is None or total is None or not math.isclose(factor, wanted, rel_tol=1e-6):
            return None
        is_sum = (
            total.command.name == "reduce_sum" and total.inputs == (x,) and tuple(total.params["axes"]) == tuple(axes)
        )
        return total if is_sum else None

    def _under_views(self, symbol: Symbol) -> Node | None:
        """Finds the node whose numbers a tensor shows in another form."""
        node = self.writers.get(symbol)
        while node is not None and node.command.name in ("broadcast_to", "reshape"):
            node = self.writers.get(node.inputs[0])
        return node

    def _number(self, symbol: Symbol) -> float | None:
        """Returns the number that a tensor holds everywhere; None if it is not known."""
        node = self.writers.get(symbol)
        source = node.inputs[0] if node is not None and node.command.name == "broadcast_to" else symbol
        value = self.constants.get(source)
        return float(value.reshape(-1)[0]) if value is not None and value.size == 1 else None
