"""Epilogues as oneDNN's post-ops: chains of functions and of combinations with other tensors that begin at the product.

`relu`, and the maximum of two tensors, are none of them: the library makes NaN a 0 there (3.2, on x86), which commands do not. Nor
is `safe_mul`, whose product of 0 and infinity is 0. Nor is `tanh`: the library rounds it otherwise than printed kernels do, so a
value that is computed again in another kernel would have other bits.
"""

from __future__ import annotations

from typing import NamedTuple

from nnc.backends.onednn.library import Eltwise
from nnc.graph import Attribute, Node, Symbol
from nnc.graph.registry import commutes
from nnc.lower.kernels.domain import UNIT, is_view
from nnc.lower.kernels.epilogue import Epilogue

post_op: Attribute[Eltwise | str] = Attribute(
    "onednn_post_op", "oneDNN's function of a result, or the name of its operation on the result and another tensor"
)
post_op.set("abs", Eltwise("abs"))
post_op.set("square", Eltwise("square"))
post_op.set("sqrt", Eltwise("sqrt"))
post_op.set("add", "add")
post_op.set("mul", "mul")
post_op.set("sub", "sub")
post_op.set("div", "div")


class Combine(NamedTuple):
    """Combines the result, by an operation of `library.BINARY`, with the input `operand` of the step. It varies along `axes` of the
    result: "all", only "channels", or "none".
    """

    name: str
    operand: int
    axes: str


def post_ops_of(epilogue: Epilogue, channels: int) -> list[Eltwise | Combine] | None:
    """Returns the post-ops of a convolution whose result has its channels at that axis; None where post-ops cannot express all
    of it.
    """
    chain = _Chain(epilogue, channels)
    for node in epilogue.nodes:
        if not chain.take(node):
            return None
    return chain.found if epilogue.graph.outputs == (chain.present,) else None


class _Chain:
    """Post-ops found so far; `present` is their result."""

    def __init__(self, epilogue: Epilogue, channels: int) -> None:
        self.epilogue, self.channels = epilogue, channels
        self.found: list[Eltwise | Combine] = []
        self.present = epilogue.product.outputs[0]
        self.same: dict[Symbol, Symbol] = {}  # values that views show

    def take(self, node: Node) -> bool:
        """Goes on by a node; False where there is no such post-op."""
        op, out = post_op.get(node.command), node.outputs[0]
        inputs = [self.same.get(symbol, symbol) for symbol in node.inputs]
        if is_view(node):
            self.same[out] = inputs[0]
            return inputs[0] is not self.present
        if out.dtype != self.present.dtype or inputs.count(self.present) != 1:
            return False
        if isinstance(op, Eltwise):
            return self._add(op, out)
        if op is None or (inputs[0] is not self.present and node.command not in commutes):
            return False
        other = inputs[1] if inputs[0] is self.present else inputs[0]
        axes = self._axes(other)
        if axes is None or other.dtype != out.dtype:
            return False
        return self._add(Combine(op, self.epilogue.graph.inputs.index(other), axes), out)

    def _add(self, op: Eltwise | Combine, out: Symbol) -> bool:
        self.found.append(op)
        self.present = out
        return True

    def _axes(self, symbol: Symbol) -> str | None:
        """Returns along which axes of the result an input varies; None for others, and for symbols that are no inputs."""
        if symbol not in self.epilogue.graph.inputs[2:]:
            return None
        axes = self.epilogue.domain.axes(self.epilogue.product.outputs[0])
        mine = tuple(label for label in self.epilogue.domain.axes(symbol) if label != UNIT)
        if not mine:
            return "none"
        if mine == (axes[self.channels],):
            return "channels"
        return "all" if self.epilogue.domain.axes(symbol) == axes else None
