"""Reductions in printed kernels: the initial value, how two values become one, and the lanes of a vector.

Values are combined by the scalar expression of the command that the column `reduction` names, or by a cell of `shortcut`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from nnc.base import dtypes
from nnc.base.dtypes import DType, accumulator
from nnc.commands.rules import Reduction, reduction
from nnc.graph import Attribute, Command, Node
from nnc.lower.kernels.builder import Code, Value, has_code
from nnc.lower.kernels.cascade import total_dtype
from nnc.lower.kernels.scalars import has_scalar, scalar
from nnc.lower.kernels.writer import scalar_type

Combine = Callable[[Code, Value, Value], Value]


class Shortcut(NamedTuple):
    """A way to combine values that is faster than the scalar expression of a command.

    Attributes:
        combine: combines (code, x, y); x is the accumulated value, on which as few operations as possible are done.
        across: combines all lanes of a vector, (code, x), to one value.
    """

    combine: Combine
    across: Callable[[Code, Value], Value]


shortcut: Attribute[Shortcut] = Attribute(
    "shortcut",
    "how printed reductions combine values by the command, where its scalar expression is not the fastest way",
)


def has_reduction(by: Reduction, dtype: DType) -> bool:
    """Whether reductions of elements of this dtype can be printed."""
    wide = accumulator(dtype)
    return has_code(dtype) and (by.combine in shortcut or has_scalar(by.combine, (wide, wide), wide, {}))


def identity(code: Code, node: Node, lanes: int, dtype: DType | None = None) -> Value:
    """Returns the reduction's neutral element, in the dtype in which it is accumulated, if no other one is given."""
    dtype = dtype or accumulator(node.inputs[0].dtype)
    return code.constant(reduction[node.command].identity(dtype), dtype, lanes)


def loses_digits(node: Node) -> bool:
    """Whether terms of a long reduction lose digits, as those of a sum of floats do."""
    by = reduction[node.command]
    return dtypes.is_float(accumulator(node.inputs[0].dtype)) and not by.idempotent and not by.ordered


def dtype_of_total(node: Node) -> DType:
    """Returns the dtype in which results of pieces are joined."""
    wide = accumulator(node.inputs[0].dtype)
    return total_dtype(wide) if loses_digits(node) and has_reduction(reduction[node.command], dtypes.float64) else wide


def combine(code: Code, node: Node, x: Value, y: Value) -> Value:
    """Two values as one."""
    return combined(code, reduction[node.command].combine, x, y)


def combined(code: Code, by: Command, x: Value, y: Value) -> Value:
    """Two values as one, by an elementwise command."""
    fast = shortcut.get(by)
    return fast.combine(code, x, y) if fast is not None else scalar(code, by, (x, y), x.dtype, {})


def rounded(code: Code, node: Node, x: Value) -> Value:
    """Returns the result in the command's dtype."""
    return code.convert(x, node.outputs[0].dtype)


def across(code: Code, node: Node, x: Value) -> Value:
    """Returns all lanes of a vector as one value."""
    if not x.lanes:
        return x
    by = reduction[node.command].combine
    fast = shortcut.get(by)
    return fast.across(code, x) if fast is not None else _halved(code, lambda code, x, y: combined(code, by, x, y), x)


def _halved(code: Code, combine: Combine, x: Value) -> Value:
    """Returns the lanes of a vector as one value, half of them with the other half at a time."""
    while x.lanes > 1:
        half, kind = x.lanes // 2, scalar_type(x.dtype)
        low, high = (", ".join(f"i32 {lane}" for lane in range(first, first + half)) for first in (0, half))
        source = f"shufflevector {x.typed}, <{x.lanes} x {kind}> poison, <{half} x i32>"
        x = combine(code, *(Value(code.let(f"{source} <{lanes}>"), x.dtype, half) for lanes in (low, high)))
    return Value(code.let(f"extractelement {x.typed}, i64 0"), x.dtype)


# -- shortcuts ---------------------------------------------------------------------------------------------------------


def _sum(code: Code, x: Value, y: Value) -> Value:
    return code.or_(x, y) if dtypes.is_bool(x.dtype) else code.add(x, y)


def _sum_across(code: Code, x: Value) -> Value:
    if dtypes.is_float(x.dtype):
        return code.reduce("fadd", x, code.constant(-0.0, x.dtype))
    return code.reduce("or" if dtypes.is_bool(x.dtype) else "add", x)


def _product(code: Code, x: Value, y: Value) -> Value:
    return code.and_(x, y) if dtypes.is_bool(x.dtype) else code.mul(x, y)


def _product_across(code: Code, x: Value) -> Value:
    if dtypes.is_float(x.dtype):
        return code.reduce("fmul", x, code.constant(1, x.dtype))
    return code.reduce("and" if dtypes.is_bool(x.dtype) else "mul", x)


def _extremum(name: str, beats: str, of_bools: str) -> Shortcut:
    def combine(code: Code, x: Value, y: Value) -> Value:
        if dtypes.is_bool(x.dtype):
            return code.or_(x, y) if of_bools == "or" else code.and_(x, y)
        if dtypes.is_float(x.dtype):  # NaN stay
            further = code.select(code.compare(beats, y, x), y, x)
            return code.select(code.compare("uno", y, y), y, further)
        return code.intrinsic(_signed(x) + name, x, y)

    def across(code: Code, x: Value) -> Value:
        if dtypes.is_float(x.dtype):
            return _halved(code, combine, x)
        return code.reduce(of_bools if dtypes.is_bool(x.dtype) else _signed(x) + name, x)

    return Shortcut(combine, across)


def _signed(x: Value) -> str:
    return "u" if x.dtype in dtypes.UNSIGNED else "s"


shortcut.set("add", Shortcut(_sum, _sum_across))
shortcut.set("mul", Shortcut(_product, _product_across))
shortcut.set("maximum", _extremum("max", "gt", "or"))
shortcut.set("minimum", _extremum("min", "lt", "and"))
shortcut.set("bitwise_and", Shortcut(lambda code, x, y: code.and_(x, y), lambda code, x: code.reduce("and", x)))
shortcut.set("bitwise_or", Shortcut(lambda code, x, y: code.or_(x, y), lambda code, x: code.reduce("or", x)))
