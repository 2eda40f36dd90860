"""Operators of each element: arithmetic, comparisons, logic, casts, mathematical functions."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import ml_dtypes
import numpy as np

import nnc.numpy as nnp
from nnc.onnx.model import Node, dtype_of
from nnc.onnx.operators.table import operator, rows
from nnc.onnx.values import known, nnc_has

rows(
    {
        "Abs": nnp.abs, "Acos": nnp.arccos, "Acosh": nnp.arccosh, "Asin": nnp.arcsin, "Asinh": nnp.arcsinh, "Atan": nnp.arctan,
        "Atanh": nnp.arctanh, "BitwiseAnd": nnp.bitwise_and, "BitwiseNot": nnp.bitwise_not, "BitwiseOr": nnp.bitwise_or,
        "BitwiseXor": nnp.bitwise_xor, "Ceil": nnp.ceil, "Cos": nnp.cos, "Cosh": nnp.cosh, "Erf": nnp.erf, "Exp": nnp.exp,
        "Floor": nnp.floor, "IsNaN": nnp.isnan, "Log": nnp.log, "Neg": nnp.negative, "Not": nnp.logical_not,
        "Reciprocal": nnp.reciprocal, "Round": nnp.round, "Sign": nnp.sign, "Sin": nnp.sin, "Sinh": nnp.sinh, "Sqrt": nnp.sqrt,
        "Tan": nnp.tan, "Tanh": nnp.tanh, "Where": nnp.where,
    }
)  # fmt: skip


@operator("Identity")
def identity(node: Node, x: Any) -> Any:
    return x


# -- two operands ------------------------------------------------------------------------------------------------------


def divide(x: Any, y: Any) -> Any:
    """Divides; integers are rounded towards 0, unlike Python's."""
    kind = np.dtype(x.dtype).kind
    if kind == "u":
        return nnp.floor_divide(x, y)
    if kind != "i":
        return nnp.divide(x, y)
    floor = nnp.floor_divide(x, y)
    is_less = (floor < 0) & (floor * y != x)
    return nnp.where(is_less, floor + np.ones((), x.dtype), floor)


def power(x: Any, y: Any) -> Any:
    """Powers in the dtype of the base."""
    if np.dtype(x.dtype).kind in "iu" and np.dtype(y.dtype).kind in "f":
        return nnp.power(nnp.astype(x, "float64"), nnp.astype(y, "float64")).astype(x.dtype)
    if np.dtype(x.dtype).kind in "iu":
        exponent = nnp.asarray(y)
        raised = nnp.power(x, nnp.astype(nnp.maximum(exponent, nnp.zeros_like(exponent)), x.dtype))
        root = nnp.power(nnp.astype(x, "float64"), nnp.astype(exponent, "float64"))
        return nnp.where(exponent < 0, nnp.astype(root, x.dtype), raised)
    return nnp.power(x, nnp.astype(y, x.dtype))


def _compared(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Comparisons work on strings, too, which only NumPy has."""

    def compare(x: Any, y: Any) -> Any:
        if np.dtype(x.dtype) == object:
            return getattr(np, function.__name__)(x, y)
        return function(x, y)

    return compare


_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "Add": nnp.add, "Sub": nnp.subtract, "Mul": nnp.multiply, "Div": divide, "Pow": power, "And": nnp.logical_and,
    "Or": nnp.logical_or, "Xor": nnp.logical_xor, "Equal": _compared(nnp.equal), "Greater": nnp.greater,
    "GreaterOrEqual": nnp.greater_equal, "Less": nnp.less, "LessOrEqual": nnp.less_equal,
}  # fmt: skip


def _aligned(function: Callable[[Any, Any], Any]) -> Callable[[Node, Any, Any], Any]:
    """Before version 7, the second operand's axes began at an axis of the first one's that the node names."""

    def run(node: Node, x: Any, y: Any) -> Any:
        axis = node.attributes.get("axis")
        if node.attributes.get("broadcast", 0) and axis is not None:
            behind = len(x.shape) - axis % max(len(x.shape), 1) - len(y.shape)
            y = nnp.reshape(y, (*y.shape, *([1] * behind)))
        return function(x, y)

    return run


for _name, _function in _BINARY.items():
    operator(_name)(_aligned(_function))
rows(_BINARY, since=7)


@operator("Mod")
def mod(node: Node, x: Any, y: Any) -> Any:
    return nnp.fmod(x, y) if node.attributes.get("fmod", 0) else nnp.remainder(x, y)


@operator("BitShift")
def bit_shift(node: Node, x: Any, y: Any) -> Any:
    return nnp.left_shift(x, y) if node.attributes["direction"] == "LEFT" else nnp.right_shift(x, y)


@operator("Sum", "Max", "Min")
def fold(node: Node, *operands: Any) -> Any:
    functions: dict[str, Callable[[Any, Any], Any]] = {"Sum": nnp.add, "Max": nnp.maximum, "Min": nnp.minimum}
    return reduce(functions[node.operator], operands)


@operator("Mean")
def mean(node: Node, *operands: Any) -> Any:
    total = reduce(nnp.add, operands)
    return nnp.divide(total, np.asarray(len(operands), total.dtype))


# -- one operand with settings -----------------------------------------------------------------------------------------


@operator("IsInf")
def is_inf(node: Node, x: Any) -> Any:
    above, below = node.attributes.get("detect_positive", 1), node.attributes.get("detect_negative", 1)
    found = nnp.isinf(x)
    if above and below:
        return found
    return found & (x > 0 if above else x < 0) & bool(above or below)


@operator("Clip")
def clip_of_attributes(node: Node, x: Any) -> Any:
    bounds = (node.attributes.get("min"), node.attributes.get("max"))
    return clip(node, x, *(None if bound is None else np.asarray(bound, x.dtype) for bound in bounds))


@operator("Clip", since=6)
def clip_to_float32(node: Node, x: Any) -> Any:
    """A bound that is not given is the farthest number of float32, which float16 does not reach."""
    if np.dtype(x.dtype) not in (np.float32, np.float64):
        return clip_of_attributes(node, x)
    limits = np.finfo(np.float32)
    given = {"min": float(limits.min), "max": float(limits.max), **node.attributes}
    return clip_of_attributes(node._replace(attributes=given), x)


@operator("Clip", since=11)
def clip(node: Node, x: Any, low: Any = None, high: Any = None) -> Any:
    x = x if low is None else nnp.maximum(x, nnp.reshape(low, ()))
    return x if high is None else nnp.minimum(x, nnp.reshape(high, ()))


# -- casts -------------------------------------------------------------------------------------------------------------


@operator("Cast")
def cast_by_name(node: Node, x: Any) -> Any:
    return cast_to(x, np.dtype(_NAMES[node.attributes["to"]]))


_NAMES = {
    "FLOAT": "float32", "DOUBLE": "float64", "FLOAT16": "float16", "BOOL": "bool", "INT8": "int8", "INT16": "int16",
    "INT32": "int32", "INT64": "int64", "UINT8": "uint8", "UINT16": "uint16", "UINT32": "uint32", "UINT64": "uint64",
}  # fmt: skip


@operator("Cast", since=6)
def cast(node: Node, x: Any) -> Any:
    to = node.attributes["to"]
    dtype = np.dtype(object) if to == 8 else dtype_of(to)
    return cast_to(x, dtype, bool(node.attributes.get("saturate", 1)), node.attributes.get("round_mode", "up"))


@operator("CastLike")
def cast_like(node: Node, x: Any, like: Any) -> Any:
    return cast_to(x, np.dtype(like.dtype), bool(node.attributes.get("saturate", 1)))


def cast_to(x: Any, dtype: np.dtype[Any], saturates: bool = True, rounding: str = "up") -> Any:
    """Converts to a dtype. Strings and types of a few bits are NumPy's alone, so their values have to be known."""
    source = np.dtype(x.dtype)
    if source == dtype:
        return x
    if nnc_has(source) and nnc_has(dtype):
        return nnp.astype(x, dtype)
    values = known(x, f"a cast from {source.name} to {dtype.name}")
    if dtype.kind == "O":
        return np.array([_as_text(value) for value in values.ravel()], object).reshape(values.shape)
    if source.kind == "O":
        numbers = [_as_number(text, dtype) for text in values.ravel()]
        return np.array(numbers).reshape(values.shape).astype(dtype)
    if nnc_has(dtype):
        return values.astype(np.float32).astype(dtype) if dtype.kind != "b" else values.astype(np.float32) != 0
    return to_few_bits(values, dtype, saturates, rounding)


def to_few_bits(values: np.ndarray[Any, Any], dtype: np.dtype[Any], saturates: bool, rounding: str = "up") -> Any:
    """Converts to a type of 8 bits or fewer. Numbers beyond its range become its largest ones, or as IEEE 754 has it."""
    if "int" in dtype.name:
        bounds: Any = ml_dtypes.iinfo(dtype)  # type: ignore[no-untyped-call]
        wide = values.astype(np.float64 if values.dtype.kind == "f" or not nnc_has(values.dtype) else values.dtype)
        if wide.dtype.kind == "f":
            return wide.astype(np.int64).astype(dtype)
        span = int(bounds.max) - int(bounds.min) + 1
        return ((wide.astype(np.int64) - int(bounds.min)) % span + int(bounds.min)).astype(dtype)
    wide = values.astype(np.float32)
    if dtype.name == "float8_e8m0fnu":
        return _to_exponents(wide, dtype, saturates, rounding)
    limits: Any = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    if saturates or dtype.name.startswith("float4"):
        wide = np.where(np.isnan(wide), wide, np.clip(wide, float(limits.min), float(limits.max)))
    return wide.astype(dtype)


def _to_exponents(wide: np.ndarray[Any, Any], dtype: np.dtype[Any], saturates: bool, rounding: str) -> Any:
    """Converts to powers of 2: that above, that below, or the nearest."""
    with np.errstate(divide="ignore", invalid="ignore"):
        exponents = np.log2(np.abs(wide.astype(np.float64)))
    turns: dict[str, Any] = {"up": np.ceil, "down": np.floor, "nearest": lambda e: np.floor(e + np.log2(4 / 3))}
    turned = turns[rounding](exponents)
    bits = np.where(
        np.isnan(wide), 255, np.clip(np.nan_to_num(turned, neginf=-127), -127, 127 if saturates else 128) + 127
    )
    return bits.astype(np.uint8).view(dtype)


def _as_text(value: Any) -> str:
    if isinstance(value, (bool, np.bool_)):
        return "1" if value else "0"
    if isinstance(value, np.integer):
        return str(int(value))
    number = float(value)
    if np.isnan(number):
        return "NaN"
    if np.isinf(number):
        return "-INF" if number < 0 else "INF"
    return f"{number:.9g}"


def _as_number(text: Any, dtype: np.dtype[Any]) -> Any:
    return int(text) if dtype.kind in "iu" else float(text)
