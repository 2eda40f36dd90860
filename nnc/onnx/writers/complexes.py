"""Commands on complex numbers. A complex array is a real one in ONNX, with the parts of each number along a last axis of 2, as DFT
has them; most commands are written by real commands on the parts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

import nnc
import nnc.numpy as nnp
from nnc.base import dtypes
from nnc.graph import Command, Node
from nnc.onnx.writers.shape import sliced
from nnc.onnx.writers.table import of_complex, refused, writes
from nnc.onnx.writers.writer import Writer

Names = list[str]


class Pair(NamedTuple):
    """The parts of a complex array."""

    re: Any
    im: Any


Form = Callable[..., Any]  # (operands, parameters) -> result; complex ones are Pairs


def _by_parts(form: Callable[[Command], Form]) -> Callable[[Writer, Node, Names], str]:
    """Writes a command by a function of real arrays and of the parts of complex ones."""

    def write(writer: Writer, node: Node, x: Names) -> str:
        specs: list[Any] = []
        names: list[str] = []
        for symbol, name in zip(node.inputs, x, strict=True):
            dtype = dtypes.real_dtype(symbol.spec.dtype)
            is_pair = dtype != symbol.spec.dtype
            spec = nnc.ShapeDtypeStruct(symbol.spec.shape, dtype)
            specs.append(Pair(spec, spec) if is_pair else spec)
            names += writer.parts(name) if is_pair else [name]
        graph = nnc.make_graph(lambda *operands: form(node.command)(*operands, **node.params))(*specs)
        found = writer.graph(graph.update(nodes=tuple(n.update(source=node.source) for n in graph.nodes)), names)
        return found[0] if len(found) == 1 else writer.whole(*found)

    return write


def _each_part(command: Command) -> Form:
    """The real command on the real parts, and on the imaginary ones."""

    def form(*operands: Any, **params: Any) -> Pair:
        params |= {"dtype": dtypes.real_dtype(dtypes.as_dtype(params["dtype"]))} if "dtype" in params else {}
        parts = ([x[part] if isinstance(x, Pair) else x for x in operands] for part in (0, 1))
        re, im = (command(*part, **params) for part in parts)
        return Pair(re, im)

    return form


def _bilinear(command: Command) -> Form:
    """Four real products."""

    def form(x: Pair, y: Pair, **params: Any) -> Pair:
        def product(a: Any, b: Any) -> Any:
            return command(a, b, **params)

        return Pair(product(x.re, y.re) - product(x.im, y.im), product(x.re, y.im) + product(x.im, y.re))

    return form


writes(
    "add", "sub", "neg", "copy", "stop_gradient", "with_slope", "round", "select", "reshape", "transpose", "reorder",
    "broadcast_to", "slice", "flip", "concatenate", "pad", "gather", "dynamic_slice", "dynamic_update_slice", "reduce_sum",
    "cumsum", "assemble", "sum_pool", "sum_pool_input_grad", "pick_pool", "pick_pool_input_grad",
    column=of_complex,
)(_by_parts(_each_part))  # fmt: skip
writes("mul", "dot", "conv", "conv_input_grad", "conv_weight_grad", column=of_complex)(_by_parts(_bilinear))


# -- functions of numbers ----------------------------------------------------------------------------------------------


def _mul(x: Pair, y: Pair) -> Pair:
    return Pair(x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re)


def _scaled(x: Pair, factor: float) -> Pair:
    return Pair(x.re * factor, x.im * factor)


def _shifted(x: Pair, number: float) -> Pair:
    return Pair(x.re + number, x.im)


def _conj(x: Pair) -> Pair:
    return Pair(x.re, -x.im)


def _turned(x: Pair) -> Pair:
    """i x."""
    return Pair(-x.im, x.re)


def _turned_back(x: Pair) -> Pair:
    """-i x."""
    return Pair(x.im, -x.re)


def _abs(x: Pair) -> Any:
    return nnp.hypot(x.re, x.im)


def _div(x: Pair, y: Pair) -> Pair:
    """Smith's quotient (Algorithm 116: complex division, 1962)."""
    is_flat = nnp.abs(y.re) >= nnp.abs(y.im)
    large, small = nnp.where(is_flat, y.re, y.im), nnp.where(is_flat, y.im, y.re)
    ratio = small / large
    scale = 1 / (large + small * ratio)
    first, second = nnp.where(is_flat, x.re, x.im), nnp.where(is_flat, x.im, x.re)
    rest = (second - first * ratio) * scale
    is_zero, size = large == 0, nnp.abs(y.re)
    re = nnp.where(is_zero, x.re / size, (first + second * ratio) * scale)
    return Pair(re, nnp.where(is_zero, x.im / size, nnp.where(is_flat, rest, -rest)))


def _reciprocal(x: Pair) -> Pair:
    return _div(Pair(nnp.ones_like(x.re), nnp.zeros_like(x.im)), x)


def _integer_pow(x: Pair, exponent: int) -> Pair:
    found, square, left = Pair(nnp.ones_like(x.re), nnp.zeros_like(x.im)), x, abs(exponent)
    while left:
        found = _mul(found, square) if left & 1 else found
        square, left = _mul(square, square), left >> 1
    return _reciprocal(found) if exponent < 0 else found


def _exp(x: Pair) -> Pair:
    size = nnp.exp(x.re)
    return Pair(size * nnp.cos(x.im), size * nnp.sin(x.im))


def _expm1(x: Pair) -> Pair:
    half = nnp.sin(x.im / 2)
    return Pair(nnp.expm1(x.re) * nnp.cos(x.im) - 2 * half * half, nnp.exp(x.re) * nnp.sin(x.im))


def _log(x: Pair) -> Pair:
    return Pair(nnp.log(_abs(x)), nnp.arctan2(x.im, x.re))


def _log1p(x: Pair) -> Pair:
    near = nnp.log1p(2 * x.re + x.re * x.re + x.im * x.im) / 2
    return Pair(nnp.where(_abs(x) < 0.5, near, nnp.log(_abs(_shifted(x, 1)))), nnp.arctan2(x.im, x.re + 1))


def _sqrt(x: Pair) -> Pair:
    """The root of the larger part's size, and the other part by it."""
    root = nnp.sqrt((nnp.abs(x.re) + _abs(x)) / 2)
    other = nnp.where(root == 0, 0, nnp.abs(x.im) / (2 * nnp.where(root == 0, 1, root)))
    is_right = x.re >= 0
    return Pair(nnp.where(is_right, root, other), nnp.copysign(nnp.where(is_right, other, root), x.im))


def _pow(x: Pair, y: Pair) -> Pair:
    """e^(y log x); 0 to a power is 0, but 1 where that is 0."""
    found, is_zero = _exp(_mul(y, _log(x))), _abs(x) == 0
    at_zero = nnp.where(_abs(y) == 0, nnp.ones_like(x.re), 0)
    return Pair(nnp.where(is_zero, at_zero, found.re), nnp.where(is_zero, 0, found.im))


def _sinh(x: Pair) -> Pair:
    return Pair(nnp.sinh(x.re) * nnp.cos(x.im), nnp.cosh(x.re) * nnp.sin(x.im))


def _cosh(x: Pair) -> Pair:
    return Pair(nnp.cosh(x.re) * nnp.cos(x.im), nnp.sinh(x.re) * nnp.sin(x.im))


def _tanh(x: Pair) -> Pair:
    """From 22 on, e^-x does not count beside e^x."""
    near = nnp.clip(x.re, -22, 22)
    s, c, sine, cosine = nnp.sinh(near), nnp.cosh(near), nnp.sin(x.im), nnp.cos(x.im)
    below = s * s + cosine * cosine
    return Pair(s * c / below, sine * cosine / below)


def _asin(x: Pair) -> Pair:
    """Kahan's (Branch cuts for complex elementary functions, 1987), as the next two."""
    less, more = _sqrt(Pair(1 - x.re, -x.im)), _sqrt(_shifted(x, 1))
    return Pair(nnp.arctan2(x.re, _mul(less, more).re), nnp.arcsinh(_mul(_conj(less), more).im))


def _acos(x: Pair) -> Pair:
    less, more = _sqrt(Pair(1 - x.re, -x.im)), _sqrt(_shifted(x, 1))
    return Pair(2 * nnp.arctan2(less.re, more.re), nnp.arcsinh(_mul(_conj(more), less).im))


def _acosh(x: Pair) -> Pair:
    less, more = _sqrt(_shifted(x, -1)), _sqrt(_shifted(x, 1))
    return Pair(nnp.arcsinh(_mul(_conj(less), more).re), 2 * nnp.arctan2(less.im, more.re))


def _atanh(x: Pair) -> Pair:
    square = x.im * x.im
    size = nnp.log1p(4 * x.re / ((1 - x.re) * (1 - x.re) + square)) / 4
    return Pair(size, nnp.arctan2(2 * x.im, (1 - x.re) * (1 + x.re) - square) / 2)


def _sign(x: Pair) -> Pair:
    size = _abs(x)
    divisor = nnp.where(size == 0, 1, size)
    return Pair(x.re / divisor, x.im / divisor)


def _convert(x: Any, dtype: Any) -> Any:
    target = dtypes.as_dtype(dtype)
    real = dtypes.real_dtype(target)
    if real == target:  # a bool: whether the number differs from 0
        return (x.re != 0) | (x.im != 0)
    re = x.re if isinstance(x, Pair) else x
    return Pair(nnp.astype(re, real), nnp.astype(x.im, real) if isinstance(x, Pair) else nnp.zeros(re.shape, real))


def _full(shape: tuple[int, ...], dtype: Any, value: Any) -> Pair:
    real, value = dtypes.real_dtype(dtypes.as_dtype(dtype)), complex(value)
    return Pair(nnp.full(shape, value.real, real), nnp.full(shape, value.imag, real))


_FORMS: Mapping[str, Form] = MappingProxyType(
    {
        "conj": _conj, "abs": _abs, "div": _div, "reciprocal": _reciprocal, "integer_pow": _integer_pow, "pow": _pow,
        "square": lambda x: _mul(x, x), "safe_mul": _mul, "multiply_add": lambda x, y, z: Pair(*map(nnp.add, _mul(x, y), z)),
        "sign": _sign, "convert": _convert, "full": _full,
        "exp": _exp, "exp2": lambda x: _exp(_scaled(x, math.log(2))), "expm1": _expm1,
        "log": _log, "log1p": _log1p, "log2": lambda x: _scaled(_log(x), 1 / math.log(2)),
        "log10": lambda x: _scaled(_log(x), 1 / math.log(10)), "sqrt": _sqrt, "rsqrt": lambda x: _reciprocal(_sqrt(x)),
        "sinh": _sinh, "cosh": _cosh, "tanh": _tanh, "sin": lambda x: _turned_back(_sinh(_turned(x))),
        "cos": lambda x: _cosh(_turned(x)), "tan": lambda x: _turned_back(_tanh(_turned(x))),
        "asin": _asin, "acos": _acos, "asinh": lambda x: _turned_back(_asin(_turned(x))), "acosh": _acosh, "atanh": _atanh,
        "atan": lambda x: _turned_back(_atanh(_turned(x))),
        "equal": lambda x, y: (x.re == y.re) & (x.im == y.im), "not_equal": lambda x, y: (x.re != y.re) | (x.im != y.im),
        "isnan": lambda x: nnp.isnan(x.re) | nnp.isnan(x.im), "isinf": lambda x: nnp.isinf(x.re) | nnp.isinf(x.im),
        "isfinite": lambda x: nnp.isfinite(x.re) & nnp.isfinite(x.im),
    }
)  # fmt: skip
writes(*_FORMS, column=of_complex)(_by_parts(lambda command: _FORMS[command.name]))


@writes("scatter", column=of_complex)
def _scatter(writer: Writer, node: Node, x: Names) -> str:
    if node.params["op"] not in ("set", "add"):
        raise refused(node, f"ONNX has no scatter by {node.params['op']} of complex numbers")
    return _by_parts(_each_part)(writer, node, x)


# -- pairs, and Fourier transforms of them -----------------------------------------------------------------------------


@writes("complex", column=of_complex)
def _complex(writer: Writer, node: Node, x: Names) -> str:
    return writer.whole(*x)


@writes("real", "imag", column=of_complex)
def _part(writer: Writer, node: Node, x: Names) -> str:
    return writer.parts(x[0])[node.command.name == "imag"]


def _dft(writer: Writer, node: Node, x: str, axis: int, **attributes: int) -> str:
    if writer.opset < 17:
        raise refused(node, f"version {writer.opset} has no Fourier transforms; 17 and later have")
    if writer.opset < 20:
        return str(writer.op("DFT", x, axis=axis, **attributes))
    return str(writer.op("DFT", x, "", writer.constant(np.int64(axis)), **attributes))


def _inverse_dft(writer: Writer, node: Node, x: str, axis: int, points: int) -> str:
    """The inverse transform, which ONNX divides by the number of points, and nnc's command does not."""
    found = _dft(writer, node, x, axis, inverse=1)
    real = dtypes.real_dtype(node.inputs[0].spec.dtype)
    return str(writer.op("Mul", found, writer.constant(np.asarray(points, real))))


@writes("fft", column=of_complex)
def _fft(writer: Writer, node: Node, x: Names) -> str:
    shape, found = node.inputs[0].spec.shape, x[0]
    for axis in (axis % len(shape) for axis in node.params["axes"]):
        if node.params.get("inverse"):
            found = _inverse_dft(writer, node, found, axis, shape[axis])
        else:
            found = _dft(writer, node, found, axis)
    return found


@writes("rfft", column=of_complex)
def _rfft(writer: Writer, node: Node, x: Names) -> str:
    column = writer.op("Unsqueeze", x[0], writer.integers([-1]))
    return _dft(writer, node, column, node.params["axis"] % len(node.inputs[0].spec.shape), onesided=1)


@writes("irfft", column=of_complex)
def _irfft(writer: Writer, node: Node, x: Names) -> str:
    """The transform of all bins: the second half mirrors the first one, conjugated."""
    axis, points = node.params["axis"] % len(node.inputs[0].spec.shape), node.params["points"]
    real = dtypes.real_dtype(node.inputs[0].spec.dtype)
    pairs, whole = (points - 1) // 2, x[0]
    if pairs:
        mirrored = sliced(writer, x[0], [pairs], [0], [axis], [-1])
        conjugated = writer.op("Mul", mirrored, writer.constant(np.array([1, -1], real)))
        whole = writer.op("Concat", x[0], conjugated, axis=axis)
    return writer.parts(_inverse_dft(writer, node, whole, axis, points))[0]
