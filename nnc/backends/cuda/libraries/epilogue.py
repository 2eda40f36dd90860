"""Epilogues of matrix products that cuBLASLt computes: a bias, and the gelu by tanh.

    d = p + b     d = gelu(p)     d = gelu(p + b)

The library's relu is none of them: it is documented as max(x, 0), which says nothing of NaN, and nnc's relu keeps NaN. Its
gradients of relu and gelu read values that its own forward product wrote, which nnc's programs do not keep.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nnc.base import dtypes
from nnc.graph import Attribute, Node, Symbol
from nnc.graph.registry import commutes
from nnc.lower.kernels.domain import UNIT, is_view
from nnc.lower.kernels.epilogue import Epilogue

term: Attribute[str] = Attribute("cublaslt_term", "the name of a command in the expressions of cuBLASLt's epilogues")
term.set("add", "+")
term.set("mul", "*")
term.set("sigmoid", "sigmoid")

_DTYPES = (dtypes.float32, dtypes.float16, dtypes.bfloat16)  # of float64 the library documents no epilogue
_SLOPE = math.sqrt(8 / math.pi)  # ½ + ½ tanh(u) is the sigmoid of 2u
_CURVE = 0.044715 * _SLOPE


@dataclass(frozen=True, slots=True)
class ProductEpilogue:
    """An epilogue of a product.

    Attributes:
        bias: the position of the operand that is added along the last axis of the result; None: there is none.
        gelu: whether the gelu of the sum is the result.
    """

    bias: int | None
    gelu: bool

    def apply(self, product: Any, bias: Any) -> Any:
        """Computes the result by NumPy's functions, which also take CuPy's arrays.

        Args:
            product: an array of a dtype that such functions compute in.
            bias: a vector along the last axis; None: there is none.
        """
        x = product if bias is None else product + bias.reshape(-1)
        if not self.gelu:
            return x
        wide = x.astype(np.float32)
        return (wide * (0.5 + 0.5 * np.tanh(wide * (_SLOPE + _CURVE * (wide * wide)) / 2))).astype(x.dtype)


def finish_of(epilogue: Epilogue) -> ProductEpilogue | None:
    """The library's epilogue for a sub-graph; None where it has none with these very values.

    Args:
        epilogue: of a `dot`.
    """
    graph, result = epilogue.graph, epilogue.product.outputs[0]
    dtype, others = result.dtype, graph.inputs[2:]
    if dtype not in _DTYPES or len(graph.outputs) != 1 or len(others) > 1:
        return None
    terms = _Terms()
    terms.known[result] = terms.leaf("product")
    for symbol in others:
        axes = tuple(label for label in epilogue.domain.axes(symbol) if label != UNIT)
        if symbol.dtype != dtype or axes != epilogue.domain.axes(result)[-1:]:
            return None
        terms.known[symbol] = terms.leaf("bias")
    for symbol, number in graph.constants.items():
        terms.known[symbol] = terms.leaf(float(number.reshape(-1)[0]) if number.size == 1 else symbol)
    if not all(node.outputs[0].dtype == dtype and terms.take(node) for node in epilogue.nodes):
        return None
    found, sum_ = terms.known[graph.outputs[0]], terms.leaf("product")
    if others:
        sum_ = terms.of("+", sum_, terms.leaf("bias"))
    bias = 2 if others else None
    if found == terms.gelu(sum_, dtype):
        return ProductEpilogue(bias, gelu=True)
    return ProductEpilogue(bias, gelu=False) if others and found == sum_ else None


@dataclass
class _Terms:
    """Numbers expressions; equal expressions get the same number, and the order of a commutative command's operands does not
    count.
    """

    known: dict[Symbol, int] = field(default_factory=dict)
    _numbers: dict[Any, int] = field(default_factory=dict)

    def leaf(self, value: Any) -> int:
        return self._numbers.setdefault(value, len(self._numbers))

    def of(self, name: str, *operands: int) -> int:
        return self.leaf((name, tuple(sorted(operands))))

    def take(self, node: Node) -> bool:
        """Numbers the result of a node; False where the command is in no epilogue."""
        inputs = [self.known[symbol] for symbol in node.inputs]
        name = term.get(node.command)
        if is_view(node):
            self.known[node.outputs[0]] = inputs[0]
            return True
        if name is None or (len(inputs) > 1 and node.command not in commutes):
            return False
        self.known[node.outputs[0]] = self.of(name, *inputs)
        return True

    def gelu(self, x: int, dtype: Any) -> int:
        """Returns the gelu by tanh of an expression, as `nnc.nn.gelu` writes it in a dtype."""
        slope, curve = (self.leaf(float(np.asarray(number, dtype))) for number in (_SLOPE, _CURVE))
        inner = self.of("*", x, self.of("+", slope, self.of("*", curve, self.of("*", x, x))))
        return self.of("*", x, self.of("sigmoid", inner))
