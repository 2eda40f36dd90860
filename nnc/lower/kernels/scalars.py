"""Scalar commands as code: their expressions, read with Python's parser, printed on values of any number of lanes.

An expression is the cell of the column `scalar`: Python's operators on x, y, z (the operands) and on the parameters by name, and
functions: from `integers.py` and, for floats, `math/table.py`. It gives the result of the command's reference. 16-bit floats are
computed in float32, as there, unless the command merely moves values.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from nnc.base import dtypes
from nnc.base.dtypes import DType
from nnc.base.later import later
from nnc.errors import InternalError
from nnc.graph import Command
from nnc.graph.registry import exact
from nnc.graph.registry import scalar as expressions
from nnc.lower.kernels.builder import Code, Value, has_code
from nnc.lower.kernels.integers import FUNCTIONS as INTEGER_FUNCTIONS
from nnc.lower.kernels.integers import integer_pow, shift
from nnc.lower.kernels.math.table import FUNCTIONS as REAL_FUNCTIONS
from nnc.lower.kernels.math.terms import Term, where

OPERANDS = ("x", "y", "z")


def has_scalar(command: Command, input_dtypes: Sequence[DType], output_dtype: DType, params: Mapping[str, Any]) -> bool:
    """Whether `scalar` can print a command for operands of these dtypes."""
    expression = expressions.get(command)
    if expression is None or len(input_dtypes) > len(OPERANDS):
        return False
    if not all(has_code(dtype) for dtype in (*input_dtypes, output_dtype)):
        return False
    parsed = parse(expression)
    known = {**dict.fromkeys(OPERANDS[: len(input_dtypes)]), **params, "inf": None}
    functions = functions_of(input_dtypes[-1] if input_dtypes else dtypes.float64)
    return parsed.names <= known.keys() and all(name in SHARED or name in functions for name in parsed.functions)


def scalar(code: Code, command: Command, operands: Sequence[Value], dtype: DType, params: Mapping[str, Any]) -> Value:
    """Prints a command on values with equally many lanes; the result has this dtype. See `has_scalar`."""
    parsed = parse(expressions[command])
    terms = [Term(code, operand) for operand in operands]
    if command not in exact:
        terms = [term.to(dtypes.accumulator(term.dtype)) for term in terms]
    elif code.keeps_wide:  # operands may have been kept wide, or not
        terms = [term.to(dtype) if term.dtype == dtypes.accumulator(dtype) else term for term in terms]
    names: dict[str, Any] = {"inf": math.inf, **params, **dict(zip(OPERANDS, terms, strict=False))}
    out = evaluate(parsed, names, _PRINTED)
    if not isinstance(out, Term):
        return code.constant(out, dtype)
    stays = code.keeps_wide and command not in exact and dtypes.is_float(dtype)
    return out.value if stays and out.dtype == dtypes.accumulator(dtype) else out.to(dtype).value


def count_instructions(command: Command, transcendental: int) -> int:
    """About how many instructions a command takes for one vector, where functions that are not cheap take `transcendental`."""
    expression = expressions.get(command)
    return transcendental if expression is None else _count_instructions(expression, transcendental)


@cache
def _count_instructions(expression: str, transcendental: int) -> int:
    total = 0
    for node in ast.walk(parse(expression).body):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            total += _CHEAP_FUNCTIONS.get(node.func.id, transcendental)
        elif isinstance(node, (ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare)):
            total += _DIVISION if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) else 1
    return max(total, 1)


COMPLEX_FUNCTIONS = frozenset(
    (
        "complex", "real", "imag", "conj", "abs", "select", "convert", "safe_product", "cos", "cosh", "exp", "log", "rsqrt",
        "sin", "sinh", "sqrt", "tan", "tanh",
    )
)  # fmt: skip
_DIVISION = 4  # instructions
# Instructions that functions of expressions take for a vector; a size is taken together with its reader.
_CHEAP_FUNCTIONS = {
    "abs": 0, "sign": 1, "signbit": 1, "copysign": 1, "max": 1, "min": 1, "floor": 1, "ceil": 1, "trunc": 1, "round_even": 1,
    "safe_product": 1, "fma": 1, "select": 1, "convert": 1, "isnan": 1, "sqrt": 4, "rsqrt": 6, "fmod": 8, "remainder": 8,
    "floor_divide": 8,
}  # fmt: skip


class Parsed(NamedTuple):
    """An expression, with the names of its numbers and of its functions."""

    body: ast.expr
    names: frozenset[str]
    functions: frozenset[str]


@cache
def parse(expression: str) -> Parsed:
    """Parses an expression.

    Raises:
        SyntaxError: the text is no expression.
    """
    body = ast.parse(expression, mode="eval").body
    calls = [node.func for node in ast.walk(body) if isinstance(node, ast.Call)]
    functions = frozenset(node.id for node in calls if isinstance(node, ast.Name))
    names = frozenset(node.id for node in ast.walk(body) if isinstance(node, ast.Name)) - functions
    return Parsed(body, names, functions)


def can_be_complex(expression: str) -> bool:
    """Whether an expression is defined for complex numbers in `math/complexes.py`: sums, products, quotients, parts, and equality
    of operands. A bare name is left to the kernels that move elements.
    """
    words, signs = set(re.findall(r"[a-z_]\w*", expression)), set(re.findall(r"[^\w\s(),.]+", expression))
    if signs & {"==", "!="}:
        return len(signs) == 1 and words <= {*OPERANDS}
    return signs <= {*"+-*/"} and words <= {*OPERANDS, *COMPLEX_FUNCTIONS} and not expression.isalnum()


class Operations:
    """Prints the operators and functions of expressions; an operand is a Term, or a number."""

    def unary(self, operator: type[ast.unaryop], x: Any) -> Any:
        """Returns a sign, or the opposite of a bool or of bits."""
        return -x if operator is ast.USub else ~x

    def binary(self, operator: type[ast.operator], x: Any, y: Any) -> Any:
        """Two operands of an operator."""
        return BINARY[operator](x, y)

    def compare(self, predicate: str, x: Any, y: Any) -> Any:
        """Returns a comparison with a Term on the left."""
        if y == math.inf and not dtypes.is_float(x.dtype):  # integers are finite
            return x.of(x.code.constant(predicate in ("lt", "le", "ne"), dtypes.bool_, x.value.lanes))
        return x.compare(predicate, y)

    def call(self, name: str, arguments: list[Any]) -> Any:
        """Returns a function of Terms; some of `SHARED` take numbers, too."""
        if name in SHARED:
            return SHARED[name](*arguments)
        own = arguments[0].code.functions.get(name) if dtypes.is_float(arguments[0].dtype) else None
        return (own or functions_of(arguments[0].dtype)[name])(*arguments)


def evaluate(parsed: Parsed, names: Mapping[str, Any], operations: Operations) -> Any:
    """Returns the value of an expression, a Term or a number, where names have these values."""
    return _Evaluator(names, operations).visit(parsed.body)


class _Evaluator(ast.NodeVisitor):
    """Evaluates an expression; names and numbers are Python's numbers until they meet a Term."""

    def __init__(self, names: Mapping[str, Any], operations: Operations) -> None:
        self.names, self.operations = names, operations

    def generic_visit(self, node: ast.AST) -> Any:
        raise InternalError(f"a scalar expression holds {ast.dump(node)}")

    def visit_Name(self, node: ast.Name) -> Any:
        return self.names[node.id]

    def visit_Constant(self, node: ast.Constant) -> Any:
        return node.value

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        return self.operations.unary(type(node.op), self.visit(node.operand))

    def visit_BinOp(self, node: ast.BinOp) -> Any:
        return self.operations.binary(type(node.op), self.visit(node.left), self.visit(node.right))

    def visit_BoolOp(self, node: ast.BoolOp) -> Any:
        operator = ast.BitAnd if isinstance(node.op, ast.And) else ast.BitOr
        first, *others = (self.visit(value) for value in node.values)
        for other in others:
            first = self.operations.binary(operator, first, other)
        return first

    def visit_Compare(self, node: ast.Compare) -> Any:
        return self.operations.compare(
            PREDICATES[type(node.ops[0])], self.visit(node.left), self.visit(node.comparators[0])
        )

    def visit_Call(self, node: ast.Call) -> Any:
        assert isinstance(node.func, ast.Name)
        return self.operations.call(node.func.id, [self.visit(argument) for argument in node.args])


def functions_of(dtype: DType) -> Mapping[str, Callable[..., Term]]:
    """Returns the functions of floats, or of integers and bools, beside those that all dtypes share."""
    return REAL_FUNCTIONS if dtypes.is_float(dtype) else INTEGER_FUNCTIONS


def _add(x: Any, y: Any) -> Any:
    bools = _of_bools(x, y)
    return bools[0] | bools[1] if bools else x + y


def _mul(x: Any, y: Any) -> Any:
    bools = _of_bools(x, y)
    return bools[0] & bools[1] if bools else x * y


def _of_bools(x: Any, y: Any) -> tuple[Term, Any] | None:
    """Returns the two operands with the Term of bools first; None where neither is one."""
    for term, other in ((x, y), (y, x)):
        if isinstance(term, Term) and dtypes.is_bool(term.dtype):
            return term, other
    return None


def _power(x: Term, exponent: int) -> Term:
    return integer_pow(x, exponent, REAL_FUNCTIONS["pow"])


def _select(condition: Term, x: Any, y: Any) -> Term:
    return where(condition, x, y)


BINARY: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
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
PREDICATES: Mapping[type[ast.cmpop], str] = {
    ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge",
}  # fmt: skip
SHARED: Mapping[str, Callable[..., Any]] = {
    "select": _select,
    "convert": lambda x: x,
    "isnan": lambda x: x.compare("ne", x),
    "polygamma": later(f"{__package__}.math.polygamma", "polygamma"),
}
_PRINTED = Operations()
