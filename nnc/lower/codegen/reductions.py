"""Reductions in printed kernels: what a sum begins with, how two values become one, and the lanes of a vector."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nnc import dtypes
from nnc.dtypes import DType, accumulator
from nnc.graph import Node
from nnc.lower.codegen.builder import Code, Value, scalar_type


def identity(code: Code, node: Node, lanes: int) -> Value:
    """Returns the reduction's neutral element, in the dtype in which it is accumulated."""
    dtype = accumulator(node.inputs[0].dtype)
    return code.constant(_IDENTITIES[node.command.name](dtype), dtype, lanes)


def combine(code: Code, node: Node, x: Value, y: Value) -> Value:
    """Two values as one."""
    return _COMBINE[node.command.name](code, x, y)


def rounded(code: Code, node: Node, x: Value) -> Value:
    """The result in the command's dtype."""
    return code.convert(x, node.outputs[0].dtype)


def across(code: Code, node: Node, x: Value) -> Value:
    """All lanes of a vector as one value."""
    if not x.lanes:
        return x
    name, is_float = node.command.name, dtypes.is_float(x.dtype)
    if name == "reduce_sum":
        if dtypes.is_bool(x.dtype):
            return code.reduce("or", x)
        return code.reduce("fadd", x, code.constant(-0.0, x.dtype)) if is_float else code.reduce("add", x)
    if name == "reduce_prod":
        if dtypes.is_bool(x.dtype):
            return code.reduce("and", x)
        return code.reduce("fmul", x, code.constant(1, x.dtype)) if is_float else code.reduce("mul", x)
    if name in ("reduce_and", "reduce_or"):
        return code.reduce(name.removeprefix("reduce_"), x)
    largest = name == "reduce_max"
    if is_float:
        return _halved(code, node, x)
    if dtypes.is_bool(x.dtype):
        return code.reduce("or" if largest else "and", x)
    sign = "u" if x.dtype in dtypes.UNSIGNED else "s"
    return code.reduce(sign + ("max" if largest else "min"), x)


def _halved(code: Code, node: Node, x: Value) -> Value:
    """The lanes of a vector as one value, half of them with the other half at a time."""
    while x.lanes > 1:
        half, kind = x.lanes // 2, scalar_type(x.dtype)
        low, high = (", ".join(f"i32 {lane}" for lane in range(first, first + half)) for first in (0, half))
        source = f"shufflevector {x.typed}, <{x.lanes} x {kind}> poison, <{half} x i32>"
        x = combine(code, node, *(Value(code.let(f"{source} <{lanes}>"), x.dtype, half) for lanes in (low, high)))
    return Value(code.let(f"extractelement {x.typed}, i64 0"), x.dtype)


def _extreme(dtype: DType, largest: bool) -> Any:
    if dtypes.is_bool(dtype):
        return largest
    if dtypes.is_float(dtype):
        return np.inf if largest else -np.inf
    info = np.iinfo(dtype)
    return info.max if largest else info.min


_IDENTITIES: dict[str, Callable[[DType], Any]] = {
    "reduce_sum": lambda dtype: 0,
    "reduce_prod": lambda dtype: 1,
    "reduce_max": lambda dtype: _extreme(dtype, largest=False),
    "reduce_min": lambda dtype: _extreme(dtype, largest=True),
    "reduce_and": lambda dtype: True if dtypes.is_bool(dtype) else -1,
    "reduce_or": lambda dtype: 0,
}


def _sum(code: Code, x: Value, y: Value) -> Value:
    return code.or_(x, y) if dtypes.is_bool(x.dtype) else code.add(x, y)


def _product(code: Code, x: Value, y: Value) -> Value:
    return code.and_(x, y) if dtypes.is_bool(x.dtype) else code.mul(x, y)


def _extremum(name: str) -> Callable[[Code, Value, Value], Value]:
    def combine(code: Code, x: Value, y: Value) -> Value:
        if dtypes.is_bool(x.dtype):
            return code.or_(x, y) if name == "max" else code.and_(x, y)
        if dtypes.is_float(x.dtype):  # x waits for what came before, so as little as possible is done with it; NaN stay
            further = code.select(code.compare("gt" if name == "max" else "lt", y, x), y, x)
            return code.select(code.compare("uno", y, y), y, further)
        return code.intrinsic(("u" if x.dtype in dtypes.UNSIGNED else "s") + name, x, y)

    return combine


_COMBINE: dict[str, Callable[[Code, Value, Value], Value]] = {
    "reduce_sum": _sum,
    "reduce_prod": _product,
    "reduce_max": _extremum("max"),
    "reduce_min": _extremum("min"),
    "reduce_and": lambda code, x, y: code.and_(x, y),
    "reduce_or": lambda code, x, y: code.or_(x, y),
}
