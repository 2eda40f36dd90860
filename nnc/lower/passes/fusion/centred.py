"""Finds tensors less their own mean, for passes that rewrite sums."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from nnc.base import dtypes
from nnc.commands.properties import chooses, element_as, is_sum, is_view, multiplies, view_axes
from nnc.commands.rules import Quotient, Sum
from nnc.graph import Node, Symbol
from nnc.graph.graph import NDArray

Axes = tuple[int | None, ...]


class Centred(NamedTuple):
    """Finds centred tensors in a graph, given the writers of symbols and the constants."""

    writers: Mapping[Symbol, Node]
    constants: Mapping[Symbol, NDArray]

    def total(self, symbol: Symbol, axes: tuple[int, ...]) -> Node | None:
        """For a symbol x - mean(x), the node that sums x over the axes; None where the symbol is no such difference."""
        node = self.writers.get(symbol)
        if node is None or element_as(node.command, Sum) != Sum((1, -1)):
            return None
        x, mean = node.inputs
        found, at = self._under_views(mean, tuple(range(x.spec.ndim)))
        if found is not None and self._is_finite_choice(found):
            found, at = self._under_views(found.inputs[1], at)
        count = math.prod(x.shape[axis] for axis in axes)
        divides = found is not None and element_as(found.command, Quotient) is not None
        if found is None or not (divides or multiplies(found)) or not count:
            return None
        factor = self.number(found.inputs[1])
        total, at = self._under_views(found.inputs[0], at)
        wanted = count if divides else 1 / count
        if factor is None or total is None or not math.isclose(factor, wanted, rel_tol=1e-6):
            return None
        if not is_sum(total.command) or total.inputs != (x,) or tuple(total.params["axes"]) != tuple(axes):
            return None
        kept = [axis for axis in range(x.spec.ndim) if axis not in axes]
        place = dict(zip(kept, range(len(kept)), strict=True))
        is_mean = all(at[axis] == place.get(axis) for axis in range(x.spec.ndim) if x.shape[axis] != 1)
        return total if is_mean else None

    def _is_finite_choice(self, node: Node) -> bool:
        """Whether a node takes a mean unless the sum overflows, and else one that is found in another way."""
        condition = self.writers.get(node.inputs[0]) if chooses(node) else None
        return condition is not None and condition.command.name == "isfinite"

    def _under_views(self, symbol: Symbol, at: Axes) -> tuple[Node | None, Axes]:
        """Finds the node whose numbers a tensor shows in another form, and which of the node's axes are those of the tensor.

        Args:
            symbol: the symbol of the tensor.
            at: for each axis of some tensor, the axis of `symbol` that equals it; None where the tensor repeats elements.
        """
        node = self.writers.get(symbol)
        while node is not None and is_view(node):
            pairs = view_axes(node)
            if pairs is None:
                return None, at
            before, after = node.inputs[0].shape, node.outputs[0].shape
            same = {j: i for i, j in pairs if before[i] == after[j]}
            at = tuple(same.get(axis) if axis is not None else None for axis in at)
            node = self.writers.get(node.inputs[0])
        return node, at

    def number(self, symbol: Symbol) -> float | None:
        """Returns the number that a tensor holds everywhere; None if it is not known."""
        node = self.writers.get(symbol)
        source = node.inputs[0] if node is not None and is_view(node) else symbol
        value = self.constants.get(source)
        if value is None or value.size != 1 or dtypes.is_complex(value.dtype):
            return None
        return float(value.reshape(-1)[0])
