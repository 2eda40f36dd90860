"""Scalar commands as code: their expressions, read with Python's parser, printed on values of any number of lanes.

An expression is the cell of the column `scalar`: Python's operators on x, y, z (the operands) and on the parameters by name, and
functions: from `integers.py` and, for floats, `math/table.py`. It gives the result of the command's reference. 16-bit floats are
computed in float32, as there, unless the command merely moves values.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from nnc import dtypes
from nnc.commands.rules import scalar as expressions
from nnc.dtypes import DType
from nnc.errors import InternalError
from nnc.graph import Command
from nnc.lower.codegen.builder import Code, Value, has_code
from nnc.lower.codegen.integers import FUNCTIONS as INTEGER_FUNCTIONS
from nnc.lower.codegen.integers import integer_pow, shift
from nnc.lower.codegen.math.table import FUNCTIONS as REAL_FUNCTIONS
from nnc.lower.codegen.math.terms import Term, where

_OPERANDS = ("x", "y", "z")
_NARROW = frozenset({"nextafter", "select", "convert", "stop_gradient", "copy", "full"})  # exact in every dtype


def has_scalar(command: Command, input_dtypes: Sequence[DType], output_dtype: DType, params: Mapping[str, Any]) -> bool:
    """Whether `scalar` can print a command for operands of these dtypes."""
    expression = expressions.get(command, None)
    if not isinstance(expression, str) or len(input_dtypes) > len(_OPERANDS):
        return False
    if not all(has_code(dtype) for dtype in (*input_dtypes, output_dtype)):
        return False
    parsed = _parse(expression)
    known = {**dict.fromkeys(_OPERANDS[: len(input_dtypes)]), **params, "inf": None}
    integers = bool(input_dtypes) and not dtypes.is_float(input_dtypes[-1])
    return parsed.names <= known.keys() and all(
        name in _SHARED or (name in INTEGER_FUNCTIONS if integers else name in REAL_FUNCTIONS)
        for name in parsed.functions
    )


def scalar(code: Code, command: Command, operands: Sequence[Value], dtype: DType, params: Mapping[str, Any]) -> Value:
    """Prints a command on values with equally many lanes; the result has this dtype. See `has_scalar`."""
    parsed = _parse(str(expressions[command]))
    terms = [Term(code, operand) for operand in operands]
    if command.name not in _NARROW:
        terms = [term.to(dtypes.accumulator(term.dtype)) for term in terms]
    names: dict[str, Any] = {"inf": math.inf, **params, **dict(zip(_OPERANDS, terms, strict=False))}
    out = _Printer(names).visit(parsed.body)
    return out.to(dtype).value if isinstance(out, Term) else code.constant(out, dtype)


@dataclass(frozen=True, slots=True)
class _Parsed:
    body: ast.expr
    names: frozenset[str]
    functions: frozenset[str]


@cache
def _parse(expression: str) -> _Parsed:
    body = ast.parse(expression, mode="eval").body
    calls = [node.func for node in ast.walk(body) if isinstance(node, ast.Call)]
    functions = frozenset(node.id for node in calls if isinstance(node, ast.Name))
    names = frozenset(node.id for node in ast.walk(body) if isinstance(node, ast.Name)) - functions
    return _Parsed(body, names, functions)


class _Printer(ast.NodeVisitor):
    """Evaluates an expression; names and numbers are Python's numbers until they meet a Term."""

    def __init__(self, names: Mapping[str, Any]) -> None:
        self.names = names

    def generic_visit(self, node: ast.AST) -> Any:
        raise InternalError(f"a scalar expression holds {ast.dump(node)}")

    def visit_Name(self, node: ast.Name) -> Any:
        return self.names[node.id]

    def visit_Constant(self, node: ast.Constant) -> Any:
        return node.value

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        x = self.visit(node.operand)
        return -x if isinstance(node.op, ast.USub) else ~x

    def visit_BinOp(self, node: ast.BinOp) -> Any:
        return _BINARY[type(node.op)](self.visit(node.left), self.visit(node.right))

    def visit_BoolOp(self, node: ast.BoolOp) -> Any:
        first, *others = (self.visit(value) for value in node.values)
        for other in others:
            first = first & other if isinstance(node.op, ast.And) else first | other
        return first

    def visit_Compare(self, node: ast.Compare) -> Any:
        x, y = self.visit(node.left), self.visit(node.comparators[0])
        predicate = _PREDICATES[type(node.ops[0])]
        if y == math.inf and not dtypes.is_float(x.dtype):  # integers are finite
            return x.of(x.code.constant(predicate == "lt", dtypes.bool_, x.value.lanes))
        return x.compare(predicate, y)

    def visit_Call(self, node: ast.Call) -> Any:
        assert isinstance(node.func, ast.Name)
        name, arguments = node.func.id, [self.visit(argument) for argument in node.args]
        if name in _SHARED:
            return _SHARED[name](*arguments)
        table = REAL_FUNCTIONS if dtypes.is_float(arguments[0].dtype) else INTEGER_FUNCTIONS
        return table[name](*arguments)


def _add(x: Any, y: Any) -> Any:
    return x | y if _are_bools(x, y) else x + y


def _mul(x: Any, y: Any) -> Any:
    return x & y if _are_bools(x, y) else x * y


def _are_bools(x: Any, y: Any) -> bool:
    return all(isinstance(term, Term) and dtypes.is_bool(term.dtype) for term in (x, y))


def _power(x: Term, exponent: int) -> Term:
    return integer_pow(x, exponent, REAL_FUNCTIONS["pow"])


def _select(condition: Term, x: Any, y: Any) -> Term:
    return where(condition, x, y)


_BINARY: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: _add,
    ast.Sub: lambda x, y: x - y,
    ast.Mult: _mul,
    ast.Div: lambda x, y: x / y,
    ast.Pow: _power,
    ast.BitAnd: lambda x, y: x & y,
    ast.BitOr: lambda x, y: x | y,
    ast.BitXor: lambda x, y: x ^ y,
    ast.LShift: lambda x, y: shift(x, y, left=True),
    ast.RShift: lambda x, y: shift(x, y, left=False),
}
_PREDICATES: Mapping[type[ast.cmpop], str] = {
    ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge",
}  # fmt: skip
_SHARED: Mapping[str, Callable[..., Any]] = {
    "select": _select,
    "convert": lambda x: x,
    "isnan": lambda x: x.compare("ne", x),
}
