"""Random draws: Threefry in integers, and the functions of `nnc.commands.portable` on nodes. Draws are those of nnc in every bit,
as far as the engine computes sums, products and quotients as IEEE 754 has them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from nnc.commands import portable
from nnc.commands.random import PARITY, ROTATIONS
from nnc.graph import Node
from nnc.onnx.writers.elementwise import need_bitwise
from nnc.onnx.writers.shape import reshaped
from nnc.onnx.writers.table import writes
from nnc.onnx.writers.writer import Writer

Names = list[str]
_EXACT = {"sqrt": "Sqrt", "fabs": "Abs", "floor": "Floor", "rint": "Round"}


class _Term:
    """A value of nodes, with the methods of `nnc.commands.lanes.Lanes`. A pattern of bits is an unsigned integer."""

    def __init__(self, writer: Writer, name: str, dtype: Any) -> None:
        self._writer, self._name, self.dtype = writer, name, np.dtype(dtype)

    def _op(self, operator: str, *operands: Any, dtype: Any = None, **attributes: Any) -> _Term:
        names = [self._same(operand)._name for operand in operands]
        return _Term(self._writer, self._writer.op(operator, *names, **attributes), dtype or self.dtype)

    def _same(self, y: Any) -> _Term:
        return y if isinstance(y, _Term) else _Term(self._writer, self._writer.constant(y, self.dtype), self.dtype)

    def __add__(self, y: Any) -> _Term:
        return self._op("Add", self, y)

    def __mul__(self, y: Any) -> _Term:
        return self._op("Mul", self, y)

    __radd__, __rmul__ = __add__, __mul__

    def __sub__(self, y: Any) -> _Term:
        return self._op("Sub", self, y)

    def __rsub__(self, y: Any) -> _Term:
        return self._op("Sub", y, self)

    def __truediv__(self, y: Any) -> _Term:
        return self._op("Div", self, y)

    def __rtruediv__(self, y: Any) -> _Term:
        return self._op("Div", y, self)

    def __neg__(self) -> _Term:
        return self._op("Neg", self)

    def __lt__(self, y: Any) -> _Term:
        return self._op("Less", self, y, dtype=bool)

    def __le__(self, y: Any) -> _Term:
        return self._op("LessOrEqual", self, y, dtype=bool)

    def __gt__(self, y: Any) -> _Term:
        return self._op("Greater", self, y, dtype=bool)

    def __and__(self, y: Any) -> _Term:
        return self._op("And" if self.dtype == bool else "BitwiseAnd", self, y)

    def __or__(self, y: Any) -> _Term:
        return self._op("Or" if self.dtype == bool else "BitwiseOr", self, y)

    def __xor__(self, y: Any) -> _Term:
        return self._op("BitwiseXor", self, y)

    def __lshift__(self, count: int) -> _Term:
        return self._op("BitShift", self, count, direction="LEFT")

    def __rshift__(self, count: int) -> _Term:
        return self._op("BitShift", self, count, direction="RIGHT")

    def is_nan(self) -> _Term:
        return self._op("IsNaN", self, dtype=bool)

    def choose(self, x: Any, y: Any) -> _Term:
        """x where this bool holds, else y; one of them is a term."""
        like: _Term = x if isinstance(x, _Term) else y
        return like._op("Where", self, like._same(x), like._same(y))

    def choose_rarely(self, make: Callable[[], _Term], otherwise: _Term) -> _Term:
        return self.choose(make(), otherwise)

    def intrinsic(self, name: str) -> _Term:
        return self._op(_EXACT[name], self)

    def to(self, dtype: Any) -> _Term:
        return _Term(self._writer, self._writer.cast(self._name, dtype), dtype)

    def _power(self, place: _Term) -> _Term:
        """Returns the power of 2 whose exponent with its bias is `place`; 0 for 0, infinity for the largest."""
        last = 255 if self.dtype.itemsize == 4 else 2047
        powers = [0.0, *(2.0 ** (place - last // 2) for place in range(1, last)), math.inf]
        table = _Term(self._writer, self._writer.constant(powers, self.dtype), self.dtype)
        return table._op("Gather", table, place.to(np.int64), axis=0)

    def bits(self) -> _Term:
        """Returns the pattern of bits of a normal number above 0; that of 1 for all others. ONNX reads none before version 26."""
        mantissa, bias = (23, 127) if self.dtype.itemsize == 4 else (52, 1023)
        is_normal = (self < math.inf) & self._op("Not", self < 2.0 ** (1 - bias), dtype=bool)
        x = is_normal.choose(self, 1.0)
        exponent = x._op("Floor", x._op("Log", x) * (1 / math.log(2)))
        half = (exponent * 0.5).intrinsic("floor")  # whose power of 2 is a normal number, too
        part = x * x._power(-half + bias) * x._power(half - exponent + bias)
        # where the logarithm is rounded over a whole number
        less, more = part < 1.0, part._op("Not", part < 2.0, dtype=bool)
        exponent = less.choose(exponent - 1, more.choose(exponent + 1, exponent))
        part = less.choose(part * 2, more.choose(part * 0.5, part))
        unsigned = np.uint32 if self.dtype.itemsize == 4 else np.uint64
        return ((exponent + bias).to(unsigned) << mantissa) + ((part - 1) * 2.0**mantissa).to(unsigned)

    def as_float(self) -> _Term:
        """Returns the number of a pattern of bits; one below the smallest normal number is 0."""
        dtype, mantissa = (np.float32, 23) if self.dtype.itemsize == 4 else (np.float64, 52)
        part = (self & ((1 << mantissa) - 1)).to(dtype) * 2.0**-mantissa + 1
        return part * part._power((self >> mantissa) & ((1 << (8 * self.dtype.itemsize - 1 - mantissa)) - 1))


@writes("random_bits")
def _random_bits(writer: Writer, node: Node, x: Names) -> str:
    """Threefry-2x32 (Salmon et al., 2011), as in `nnc.commands.random.threefry2x32`."""
    need_bitwise(writer, node)
    out = node.outputs[0].spec
    lead, count = node.inputs[1].spec.shape, math.prod(node.params["shape"])
    column = (math.prod(lead), 1)
    start = _Term(writer, reshaped(writer, x[1], column), np.uint64)
    counter = start + _Term(writer, writer.constant(np.arange(count, dtype=np.uint64)[None]), np.uint64)
    words = [writer.op("Gather", x[0], writer.constant(np.int64(place)), axis=-1) for place in (0, 1)]
    key = [_Term(writer, reshaped(writer, word, column), np.uint32) for word in words]
    schedule = (*key, key[0] ^ key[1] ^ PARITY)
    a, b = (counter >> 32).to(np.uint32) + schedule[0], (counter & 0xFFFFFFFF).to(np.uint32) + schedule[1]
    for group in range(5):
        for turn in ROTATIONS[group % 2]:
            a = a + b
            b = ((b << turn) | (b >> (32 - turn))) ^ a
        a = a + schedule[(group + 1) % 3]
        b = b + (schedule[(group + 2) % 3] + (group + 1))
    width = node.params["width"]
    if width == 64:
        found = (a.to(np.uint64) << 32) | b.to(np.uint64)
    else:
        found = a ^ b if width == 32 else ((a ^ b) & ((1 << width) - 1)).to(out.dtype)
    return reshaped(writer, found._name, tuple(out.shape))


_FUNCTIONS = {name: name for name in portable.FUNCTIONS | portable.OF_WORDS} | {
    "truncated_normal_quantile": "truncated_normal"
}
del _FUNCTIONS["truncated_normal"]


@writes(*_FUNCTIONS)
def _portable(writer: Writer, node: Node, x: Names) -> str:
    need_bitwise(writer, node)
    dtype = np.dtype(node.inputs[0].spec.dtype)
    narrow = dtype.itemsize == 2  # computed in float32, as elsewhere
    terms = [_Term(writer, name, dtype) for name in x]
    terms = [term.to(np.float32) for term in terms] if narrow else terms
    found: _Term = (portable.FUNCTIONS | portable.OF_WORDS)[_FUNCTIONS[node.command.name]](*terms)
    return (found.to(dtype) if narrow else found)._name


@writes("erfinv")
def _erfinv(writer: Writer, node: Node, x: Names) -> str:
    """The quantile of the normal distribution divided by the root of 2."""
    need_bitwise(writer, node)
    dtype = np.dtype(node.inputs[0].spec.dtype)
    wide = dtype if dtype.itemsize == 8 else np.dtype(np.float32)
    found: _Term = portable.normal_quantile(_Term(writer, x[0], dtype).to(wide)) * math.sqrt(0.5)
    return found.to(dtype)._name
