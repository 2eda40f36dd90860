"""Commands of each element."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from nnc.graph import Node
from nnc.onnx.writers.table import Write, kind, onnx, refused, writes
from nnc.onnx.writers.writer import Writer

Names = list[str]

_SAME = {
    "add": "Add", "sub": "Sub", "mul": "Mul", "product": "Mul", "neg": "Neg", "abs": "Abs", "exp": "Exp", "log": "Log",
    "sqrt": "Sqrt", "length": "Sqrt",
    "sin": "Sin", "cos": "Cos", "tan": "Tan", "asin": "Asin", "acos": "Acos", "atan": "Atan", "sinh": "Sinh",
    "cosh": "Cosh", "asinh": "Asinh", "acosh": "Acosh", "atanh": "Atanh", "tanh": "Tanh", "sigmoid": "Sigmoid", "erf": "Erf",
    "floor": "Floor", "ceil": "Ceil", "round": "Round", "sign": "Sign", "isnan": "IsNaN", "isinf": "IsInf",
    "reciprocal": "Reciprocal", "equal": "Equal", "less": "Less", "less_equal": "LessOrEqual",
    "greater": "Greater", "greater_equal": "GreaterOrEqual", "div": "Div", "pow": "Pow",
}  # fmt: skip


def _same(operator: str) -> Write:
    return lambda writer, node, x: str(writer.op(operator, *x))


for _name, _operator in _SAME.items():
    onnx.set(_name, _same(_operator))


@writes("stop_gradient", "copy", "conj", "real", "with_slope", "with_square")
def _first(writer: Writer, node: Node, x: Names) -> str:
    return x[0]


def number(writer: Writer, node: Node, value: float) -> str:
    """Returns a constant of the first operand's dtype."""
    return writer.constant(np.asarray(value, node.inputs[0].spec.dtype))


@writes("select")
def _select(writer: Writer, node: Node, x: Names) -> str:
    """Engines choose among wider numbers alone, and fuse Relu with the operator before it."""
    dtype = node.outputs[0].spec.dtype
    compared = writer.maker(x[0], "LessOrEqual")
    if (
        compared is not None
        and compared[0] == x[2]
        and kind(node, 1) == "f"
        and all(map(writer.is_zero, (compared[1], x[1])))
    ):
        return str(writer.op("Relu", x[2]))
    if kind(node, 1) == "b":
        other = writer.op("And", writer.op("Not", x[0]), x[2])
        return str(writer.op("Or", writer.op("And", x[0], x[1]), other))
    if kind(node, 1) in "iu" and np.dtype(dtype).itemsize < 4:
        wide = [writer.cast(name, np.int32) for name in x[1:]]
        return writer.cast(writer.op("Where", x[0], *wide), dtype)
    return str(writer.op("Where", *x))


@writes("maximum", "minimum")
def _extreme(writer: Writer, node: Node, x: Names) -> str:
    if kind(node) == "b":
        return str(writer.op("Or" if node.command.name == "maximum" else "And", *x))
    found = writer.op("Max" if node.command.name == "maximum" else "Min", *x)
    if kind(node) != "f":
        return str(found)
    for operand in x:  # engines differ in whether NaN goes through
        found = writer.op("Where", writer.op("IsNaN", operand), operand, found)
    return str(found)


@writes("safe_mul")
def _safe_mul(writer: Writer, node: Node, x: Names) -> str:
    zero = number(writer, node, 0)
    return str(writer.op("Where", writer.op("Equal", x[0], zero), zero, writer.op("Mul", *x)))


@writes("multiply_add")
def _multiply_add(writer: Writer, node: Node, x: Names) -> str:
    return str(writer.op("Add", writer.op("Mul", x[0], x[1]), x[2]))


@writes("square")
def _square(writer: Writer, node: Node, x: Names) -> str:
    return str(writer.op("Mul", x[0], x[0]))


@writes("rsqrt")
def _rsqrt(writer: Writer, node: Node, x: Names) -> str:
    return str(writer.op("Reciprocal", writer.op("Sqrt", x[0])))


@writes("integer_pow")
def _integer_pow(writer: Writer, node: Node, x: Names) -> str:
    exponent = node.params["exponent"]
    found, base, left = "", x[0], abs(exponent)
    while left:
        if left & 1:
            found = writer.op("Mul", found, base) if found else base
        left >>= 1
        base = writer.op("Mul", base, base) if left else base
    found = found or writer.op(
        "Where", writer.op("Equal", x[0], x[0]), number(writer, node, 1), number(writer, node, 1)
    )
    return str(writer.op("Reciprocal", found)) if exponent < 0 else found


@writes("not_equal")
def _not_equal(writer: Writer, node: Node, x: Names) -> str:
    return str(writer.op("Not", writer.op("Equal", *x)))


def need_bitwise(writer: Writer, node: Node) -> None:
    """Raises where the model's version has no bitwise operators."""
    if writer.opset < 18:
        raise refused(node, f"version {writer.opset} has no bitwise operators; 18 and later have")


@writes("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not")
def _bits(writer: Writer, node: Node, x: Names) -> str:
    word = node.command.name.removeprefix("bitwise_").capitalize()
    if kind(node) == "b":
        return str(writer.op(word, *x))
    need_bitwise(writer, node)
    return str(writer.op(f"Bitwise{word}", *x))


@writes("shift_left", "shift_right")
def _shift(writer: Writer, node: Node, x: Names) -> str:
    """A shift of unsigned integers; of signed ones, of 64 bits, whose complement is shifted to the right below 0."""
    dtype, is_left = np.dtype(node.inputs[0].spec.dtype), node.command.name == "shift_left"
    if kind(node) == "u":
        return _shifted(writer, x[0], x[1], dtype, is_left)
    wide, count = writer.cast(x[0], np.int64), writer.cast(x[1], np.uint64)
    is_below, last = writer.op("Less", wide, writer.constant(np.int64(0))), writer.constant(np.int64(-1))
    positive = wide if is_left else writer.op("Where", is_below, writer.op("Sub", last, wide), wide)
    found = writer.cast(
        _shifted(writer, writer.cast(positive, np.uint64), count, np.dtype(np.uint64), is_left), np.int64
    )
    return writer.cast(found if is_left else writer.op("Where", is_below, writer.op("Sub", last, found), found), dtype)


def _shifted(writer: Writer, x: str, count: str, dtype: np.dtype[Any], is_left: bool) -> str:
    """Shifts unsigned integers; by as many bits as they have, or more, to 0, which engines leave open."""
    bits, known = 8 * dtype.itemsize, writer.known(count)
    shifted = str(writer.op("BitShift", x, count, direction="LEFT" if is_left else "RIGHT"))
    if known is not None and (known < bits).all():
        return shifted
    inside = writer.op("Less", count, writer.constant(np.asarray(bits, dtype)))
    return str(writer.op("Mul", shifted, writer.cast(inside, dtype)))


@writes("bit_count")
def _bit_count(writer: Writer, node: Node, x: Names) -> str:
    """Sums of neighbouring bits, of pairs, of fours and so on."""
    need_bitwise(writer, node)
    found = writer.cast(writer.op("Abs", writer.cast(x[0], np.int64)) if kind(node) == "i" else x[0], np.uint64)
    for step in (1, 2, 4, 8, 16, 32):
        mask = writer.constant(np.uint64(((1 << 64) - 1) // ((1 << step) + 1)))
        high = writer.op("BitShift", found, writer.constant(np.uint64(step)), direction="RIGHT")
        low = writer.op("BitwiseAnd", found, mask)
        found = writer.op("Add", low, writer.op("BitwiseAnd", high, mask))
    return writer.cast(found, node.outputs[0].spec.dtype)


@writes("isfinite")
def _isfinite(writer: Writer, node: Node, x: Names) -> str:
    return str(writer.op("Not", writer.op("Or", writer.op("IsInf", x[0]), writer.op("IsNaN", x[0]))))


@writes("signbit")
def _signbit(writer: Writer, node: Node, x: Names) -> str:
    zero = number(writer, node, 0)
    is_zero = writer.op("Equal", x[0], zero)
    below = writer.op("Less", writer.op("Reciprocal", x[0]), zero)
    return str(writer.op("Or", writer.op("And", is_zero, below), writer.op("Less", x[0], zero)))


@writes("copysign")
def _copysign(writer: Writer, node: Node, x: Names) -> str:
    size = writer.op("Abs", x[0])
    return str(writer.op("Where", _signbit(writer, node, [x[1]]), writer.op("Neg", size), size))


@writes("trunc")
def _trunc(writer: Writer, node: Node, x: Names) -> str:
    is_below = writer.op("Less", x[0], number(writer, node, 0))
    return str(writer.op("Where", is_below, writer.op("Ceil", x[0]), writer.op("Floor", x[0])))


@writes("fmod")
def _fmod(writer: Writer, node: Node, x: Names) -> str:
    return str(writer.op("Mod", *x, fmod=1))


@writes("remainder")
def _remainder(writer: Writer, node: Node, x: Names) -> str:
    if kind(node) != "f":
        return str(writer.op("Mod", *x))
    rest, zero = writer.op("Mod", *x, fmod=1), number(writer, node, 0)
    differs = writer.op("Xor", writer.op("Less", rest, zero), writer.op("Less", x[1], zero))
    is_some = writer.op("Not", writer.op("Equal", rest, zero))
    return str(writer.op("Where", writer.op("And", differs, is_some), writer.op("Add", rest, x[1]), rest))


@writes("floor_divide")
def _floor_divide(writer: Writer, node: Node, x: Names) -> str:
    if kind(node) == "u":
        return str(writer.op("Div", *x))
    rest = _remainder(writer, node, x)
    ratio = writer.op("Div", writer.op("Sub", x[0], rest), x[1])
    return str(writer.op("Round", ratio)) if kind(node) == "f" else str(ratio)


@writes("convert")
def _convert(writer: Writer, node: Node, x: Names) -> str:
    return writer.cast(x[0], node.params["dtype"])


@writes("exp2")
def _exp2(writer: Writer, node: Node, x: Names) -> str:
    return str(writer.op("Pow", number(writer, node, 2), x[0]))


@writes("log2", "log10")
def _log(writer: Writer, node: Node, x: Names) -> str:
    base = 2 if node.command.name == "log2" else 10
    return str(writer.op("Mul", writer.op("Log", x[0]), number(writer, node, 1 / math.log(base))))


@writes("expm1")
def _expm1(writer: Writer, node: Node, x: Names) -> str:
    """Near 0 by 2 t / (1 - t) with t = tanh(x / 2), which keeps the digits."""
    one = number(writer, node, 1)
    t = writer.op("Tanh", writer.op("Mul", x[0], number(writer, node, 0.5)))
    near = writer.op("Div", writer.op("Mul", t, number(writer, node, 2)), writer.op("Sub", one, t))
    is_near = writer.op("Less", writer.op("Abs", x[0]), one)
    return str(writer.op("Where", is_near, near, writer.op("Sub", writer.op("Exp", x[0]), one)))


@writes("log1p")
def _log1p(writer: Writer, node: Node, x: Names) -> str:
    """Near 0 by log(u) · x / (u - 1) with u = 1 + x rounded (Kahan)."""
    one = number(writer, node, 1)
    u = writer.op("Add", x[0], one)
    log, less = writer.op("Log", u), writer.op("Sub", u, one)
    near = writer.op(
        "Where",
        writer.op("Equal", less, number(writer, node, 0)),
        x[0],
        writer.op("Div", writer.op("Mul", log, x[0]), less),
    )
    return str(writer.op("Where", writer.op("Less", writer.op("Abs", x[0]), one), near, log))


@writes("logaddexp")
def _logaddexp(writer: Writer, node: Node, x: Names) -> str:
    top, gap = _extreme_of(writer, x), writer.op("Abs", writer.op("Sub", *x))
    far = writer.op("IsNaN", gap)  # of equal infinities
    gap = writer.op("Where", far, number(writer, node, 0), gap)
    rest = _log1p(writer, node, [writer.op("Exp", writer.op("Neg", gap))])
    return str(writer.op("Where", far, writer.op("Add", *x), writer.op("Add", top, rest)))


def _extreme_of(writer: Writer, x: Names) -> str:
    return str(writer.op("Max", *x))


@writes("logistic_density")
def _logistic_density(writer: Writer, node: Node, x: Names) -> str:
    return str(writer.op("Mul", writer.op("Sigmoid", x[0]), writer.op("Sigmoid", writer.op("Neg", x[0]))))


@writes("soft_sign")
def _soft_sign(writer: Writer, node: Node, x: Names) -> str:
    return str(writer.op("Softsign", x[0]))


@writes("cbrt")
def _cbrt(writer: Writer, node: Node, x: Names) -> str:
    root = writer.op("Pow", writer.op("Abs", x[0]), number(writer, node, 1 / 3))
    return str(writer.op("Mul", writer.op("Sign", x[0]), root))


@writes("hypot")
def _hypot(writer: Writer, node: Node, x: Names) -> str:
    """The larger operand times sqrt(1 + q²), of the quotient q of the smaller one by it: nothing overflows on the way."""
    sizes = [writer.op("Abs", name) for name in x]
    large, small, one = writer.op("Max", *sizes), writer.op("Min", *sizes), number(writer, node, 1)
    divisor = writer.op("Where", writer.op("Equal", large, number(writer, node, 0)), one, large)
    quotient = writer.op("Div", small, divisor)
    root = writer.op("Sqrt", writer.op("Add", writer.op("Mul", quotient, quotient), one))
    return str(writer.op("Where", writer.op("IsInf", large), large, writer.op("Mul", large, root)))


@writes("atan2")
def _atan2(writer: Writer, node: Node, x: Names) -> str:
    """The angle of the ratio, turned by half a turn where the second operand is below 0."""
    y, across = x
    zero, half_turn = number(writer, node, 0), number(writer, node, math.pi)
    angle = writer.op("Atan", writer.op("Div", y, across))
    back = _signbit(writer, node, [across])
    turned = writer.op(
        "Where", _signbit(writer, node, [y]), writer.op("Sub", angle, half_turn), writer.op("Add", angle, half_turn)
    )
    found = writer.op("Where", back, turned, angle)
    both = writer.op("And", writer.op("Equal", y, zero), writer.op("Equal", across, zero))
    flat = writer.op("Where", back, half_turn, zero)
    signed = writer.op("Where", _signbit(writer, node, [y]), writer.op("Neg", flat), flat)
    return str(writer.op("Where", both, signed, found))


@writes("erfc")
def _erfc(writer: Writer, node: Node, x: Names) -> str:
    """t · exp(g(t) - z²) with z = |x| and t = 2 / (2 + z), in which g is a series of Chebyshev's; 2 less that below 0."""
    wide = np.dtype(node.inputs[0].spec.dtype).itemsize == 8
    two = number(writer, node, 2)
    z = writer.op("Abs", x[0])
    t = writer.op("Div", two, writer.op("Add", two, z))
    argument = writer.op("Sub", writer.op("Mul", t, two), number(writer, node, 1))
    double = writer.op("Mul", argument, two)
    last = before = number(writer, node, 0)
    first, *rest = _erfc_series(28 if wide else 14)
    for coefficient in reversed(rest):  # Clenshaw
        step = writer.op("Sub", writer.op("Mul", double, last), before)
        last, before = writer.op("Add", step, number(writer, node, coefficient)), last
    series = writer.op("Add", writer.op("Sub", writer.op("Mul", argument, last), before), number(writer, node, first))
    tail = writer.op("Mul", t, writer.op("Exp", writer.op("Sub", series, writer.op("Mul", z, z))))
    is_below = writer.op("Less", x[0], number(writer, node, 0))
    return str(writer.op("Where", is_below, writer.op("Sub", two, tail), tail))


@cache
def _erfc_series(degree: int) -> tuple[float, ...]:
    """Returns Chebyshev's coefficients of g(t) = log(erfc(z) exp(z²) / t), t = 2 / (2 + z), on 0 to 1."""

    def scaled(z: float) -> float:
        if z < 5:
            return math.log(math.erfc(z)) + z * z
        term, total = 1.0, 1.0
        for k in range(1, 13):
            term *= -(2 * k - 1) / (2 * z * z)
            total += term
        return math.log(total / (z * math.sqrt(math.pi)))

    def g(at: Any) -> Any:
        t = (np.asarray(at) + 1) / 2
        return np.array([scaled(2 / value - 2) - math.log(value) for value in t.ravel()]).reshape(t.shape)

    return tuple(np.polynomial.chebyshev.chebinterpolate(g, degree).tolist())
