"""Checks of scalar expressions: a wrong one is refused when its command is registered, with the reason.

Without them a row whose names or functions are unknown would silently never be printed, and one whose types do not fit would fail
within a compiled program, or print code that LLVM refuses. The expression is evaluated once for each dtype that the command takes,
on operands that stand for any.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any

from nnc.base import dtypes
from nnc.base.dtypes import DType
from nnc.base.later import resolve
from nnc.errors import NncError, RegistryError, user_error
from nnc.graph import Command, TensorSpec, infer
from nnc.graph.registry import exact
from nnc.lower.kernels.builder import Code, Value, has_code
from nnc.lower.kernels.integers import FUNCTIONS as INTEGER_FUNCTIONS
from nnc.lower.kernels.math.table import FUNCTIONS as REAL_FUNCTIONS
from nnc.lower.kernels.math.terms import Term
from nnc.lower.kernels.scalars import (
    BINARY,
    OPERANDS,
    PREDICATES,
    SHARED,
    Operations,
    Parsed,
    evaluate,
    functions_of,
    parse,
)

# Functions that kernels have not: their commands are known to be elementwise, and run their references.
_UNPRINTED = frozenset({"real", "imag", "conj", "complex"})
_KNOWN = frozenset({*SHARED, *REAL_FUNCTIONS, *INTEGER_FUNCTIONS, *_UNPRINTED})
_BITS = (ast.BitAnd, ast.BitOr, ast.BitXor, ast.LShift, ast.RShift)
# which stand within their expressions
_OPERATORS = (ast.operator, ast.unaryop, ast.cmpop, ast.boolop, ast.expr_context)


class _WrongExpressionError(Exception):
    """A reason to refuse an expression, and the way out."""

    def __init__(self, why: str, fix: str) -> None:
        super().__init__(why)
        self.why, self.fix = why, fix


def check_scalar(command: Command, expression: object) -> None:
    """Refuses an expression that cannot be printed.

    Args:
        command: the command of the expression; its shape rule says which dtypes it takes.
        expression: a text in x, y, z and the command's parameters.

    Raises:
        RegistryError: the expression cannot be printed; names the command, the expression and the reason.
    """
    try:
        if not isinstance(expression, str):
            raise _WrongExpressionError("it is no text", 'write it as text, such as "x * sin(y)".')
        parsed = parse(expression)
        _check_form(parsed)
        _check_names(command, parsed)
        _check_dtypes(command, parsed)
    except SyntaxError as error:
        fault = _WrongExpressionError(f"Python's parser says: {error.msg}", "write one expression, such as x * sin(y).")
    except _WrongExpressionError as found:
        fault = found
    else:
        return
    where = f"the scalar expression {expression!r} cannot be printed: {fault.why}."
    raise user_error(RegistryError, command.name, where, fix=fault.fix) from None


# -- readable sources --------------------------------------------------------------------------------------------------


def _check_form(parsed: Parsed) -> None:
    for node in ast.walk(parsed.body):
        if not _is_known_form(node):
            raise _WrongExpressionError(
                f"`{ast.unparse(node)}` is none of the forms that it may have",
                "use the operators + - * / ** & | ^ ~ << >> and comparisons of two operands, functions such as sin(x), and "
                "select(condition, x, y) for a choice.",
            )


def _is_known_form(node: ast.AST) -> bool:
    match node:
        case ast.Constant(value=value):
            return isinstance(value, (bool, int, float))
        case ast.Call(func=function, args=arguments, keywords=named):
            return (
                isinstance(function, ast.Name) and not named and not any(isinstance(x, ast.Starred) for x in arguments)
            )
        case ast.Compare(ops=operators):
            return len(operators) == 1 and type(operators[0]) in PREDICATES
        case ast.BinOp(op=operator):
            return type(operator) in BINARY
        case ast.UnaryOp(op=sign):
            return isinstance(sign, (ast.USub, ast.Invert))
    return isinstance(node, (ast.Name, ast.BoolOp, *_OPERATORS))


def _check_names(command: Command, parsed: Parsed) -> None:
    if command.arity is None or command.arity > len(OPERANDS) or command.outputs != 1:
        raise _WrongExpressionError(
            f"it is for commands of up to {len(OPERANDS)} operands and one result",
            "leave the cell `scalar` empty, and give the command a kernel or an expansion.",
        )
    operands = OPERANDS[: command.arity]
    known = _parameters(command)
    for name in sorted(parsed.names - {*operands, "inf"}):
        if not name.isascii() or (known is not None and name not in known):
            listed = ", ".join([*operands, *sorted(known or ())]) or "none"
            raise _WrongExpressionError(
                f"`{name}` is neither an operand nor a parameter of the command, which has these: {listed}",
                "write numbers as digits, such as 3.141592653589793, and name operands x, y and z in their order.",
            )
    for name in sorted(parsed.functions - _KNOWN):
        near = get_close_matches(name, _KNOWN)
        raise _WrongExpressionError(
            f"there is no function `{name}`",
            f"use {' or '.join(near)}." if near else "compose it of functions that nnc.lower.kernels.math.table has.",
        )


def _parameters(command: Command) -> set[str] | None:
    """Returns the names of parameters by the shape rule; None where it takes any, or there is none yet."""
    rule = infer.get(command)
    taken = inspect.signature(rule).parameters.values() if rule is not None else ()
    if rule is None or any(each.kind is each.VAR_KEYWORD for each in taken):
        return None
    return {each.name for each in taken if each.kind is each.KEYWORD_ONLY}


# -- which dtypes fit --------------------------------------------------------------------------------------------------


def _check_dtypes(command: Command, parsed: Parsed) -> None:
    """Evaluates the expression for each dtype that the command takes; if that is not known, one dtype has to do."""
    if not _UNPRINTED.isdisjoint(parsed.functions):
        return
    taken = dict(_taken(command))
    kinds = taken or {dtype: dtype for dtype in dtypes.ALL}
    printed = {dtype: out for dtype, out in kinds.items() if has_code(dtype) and has_code(out)}
    able = [
        dtype for dtype in printed if all(name in SHARED or name in functions_of(dtype) for name in parsed.functions)
    ]
    if printed and not able:
        listed = ", ".join(sorted(parsed.functions - SHARED.keys()))
        raise _WrongExpressionError(
            f"no dtype that the command takes has all of these functions: {listed}",
            "use functions of floats for floats, and of integers for integers.",
        )
    faults = {}
    for dtype in able:
        try:
            _evaluate(command, parsed, dtype, printed[dtype])
        except _WrongExpressionError as fault:
            faults[dtype] = fault
    if faults and (taken or len(faults) == len(able)):
        dtype = next((each for each in faults if dtypes.is_float(each)), next(iter(faults)))
        raise _WrongExpressionError(f"for operands of dtype {dtype.name}, {faults[dtype].why}", faults[dtype].fix)


def _taken(command: Command) -> Iterator[tuple[DType, DType]]:
    """Dtypes of all operands that the shape rule takes, with the result's; none where that depends on parameters."""
    rule = infer.get(command)
    if rule is None:
        return
    kinds = inspect.signature(rule).parameters.values()
    if any(each.kind is each.KEYWORD_ONLY and each.default is each.empty for each in kinds):
        return
    for dtype in dtypes.ALL:
        try:
            out = rule(*[TensorSpec((2,), dtype)] * (command.arity or 0))
        except (NncError, TypeError, ValueError):  # a dtype that it does not take
            continue
        if isinstance(out, TensorSpec):
            yield dtype, out.dtype


def _evaluate(command: Command, parsed: Parsed, dtype: DType, out: DType) -> None:
    code = Code("CHECK", [])
    wide = dtype if command in exact else dtypes.accumulator(dtype)
    operands = {name: Term(code, Value(f"%{name}", wide)) for name in OPERANDS[: command.arity or 0]}
    number = True if dtypes.is_bool(dtype) else 2  # stands for parameters, whose values are not known yet
    parameters = dict.fromkeys(parsed.names - operands.keys(), number)
    try:
        found = evaluate(parsed, {**parameters, "inf": float("inf"), **operands}, _Checked())
    except (TypeError, AttributeError, AssertionError, ArithmeticError) as error:
        raise _WrongExpressionError(f"a number stands where an operand is needed ({error})", _OPERANDS_FIRST) from error
    if isinstance(found, Term):
        found.to(out)


_OPERANDS_FIRST = (
    "give functions operands, or values that are computed from them; numbers may stand beside operators, on the right of "
    "comparisons, and in select(condition, x, 0)."
)


class _Checked(Operations):
    """The operations; each first checks its operands' dtypes."""

    def unary(self, operator: type[ast.unaryop], x: Any) -> Any:
        """See the base."""
        if operator is ast.Invert and (dtypes.is_float(x.dtype) if isinstance(x, Term) else type(x) is not int):
            given = f"a {x.dtype.name}" if isinstance(x, Term) else f"the number {x!r}"
            raise _WrongExpressionError(f"~ is given {given}", "use ~ with bools and integers among the operands.")
        if isinstance(x, Term) and operator is ast.USub and dtypes.is_bool(x.dtype):
            raise _WrongExpressionError("a bool has no sign", "use ~ for the opposite of a bool.")
        return super().unary(operator, x)

    def binary(self, operator: type[ast.operator], x: Any, y: Any) -> Any:
        """See the base."""
        if operator is ast.Pow:
            if not isinstance(x, Term) or type(y) is not int:
                raise _WrongExpressionError("** is no operand to an integer power", "use pow(x, y) for other powers.")
            if y < 0 and not dtypes.is_float(x.dtype):
                raise _WrongExpressionError(
                    f"{x.dtype.name} has no negative powers", "register the command for floats alone."
                )
            return super().binary(operator, x, y)
        dtype = _meeting(x, y)
        if dtype is not None:
            is_float, is_bool = dtypes.is_float(dtype), dtypes.is_bool(dtype)
            if (is_float and operator in _BITS) or (is_bool and operator in (ast.Sub, ast.LShift, ast.RShift)):
                raise _WrongExpressionError(
                    f"{_SIGNS[operator]} is given {dtype.name}", "use an operator of that dtype."
                )
            if not is_float and operator is ast.Div:
                raise _WrongExpressionError(
                    f"/ is given {dtype.name}", "use floor_divide(x, y), or register the command for floats alone."
                )
        return super().binary(operator, x, y)

    def compare(self, predicate: str, x: Any, y: Any) -> Any:
        """See the base."""
        if not isinstance(x, Term):
            raise _WrongExpressionError(
                "a number stands on the left of a comparison", "turn the comparison round, as in x > 2."
            )
        if isinstance(y, Term) or y != float("inf"):
            _meeting(x, y)
        return super().compare(predicate, x, y)

    def call(self, name: str, arguments: list[Any]) -> Any:
        """See the base."""
        dtype = next((x.dtype for x in arguments if isinstance(x, Term)), dtypes.float64)
        function = SHARED.get(name) or functions_of(dtype).get(name)
        if function is None:
            raise _WrongExpressionError(
                f"`{name}` is given {dtype.name}", "use it for the dtypes that have it, or another function."
            )
        try:
            inspect.signature(resolve(function)).bind(*arguments)
        except TypeError:
            count = len(inspect.signature(resolve(function)).parameters)
            raise _WrongExpressionError(
                f"`{name}` takes {count} operands, and is given {len(arguments)}", f"give it {count} operands."
            ) from None
        if name not in SHARED:
            for x in arguments:
                if not isinstance(x, Term):
                    raise _WrongExpressionError(f"`{name}` is given the number {x!r}", _OPERANDS_FIRST)
                _meeting(arguments[0], x)
        elif name == "select":
            if not isinstance(arguments[0], Term) or not dtypes.is_bool(arguments[0].dtype):
                raise _WrongExpressionError("the condition of `select` is no bool", "write a comparison there.")
            _meeting(*arguments[1:])
        return super().call(name, arguments)


_SIGNS = {
    ast.Sub: "-", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.LShift: "<<", ast.RShift: ">>",
}  # fmt: skip


def _meeting(x: Any, y: Any) -> DType | None:
    """Returns the one dtype of two operands; one may be a number. None where both are numbers."""
    found = [each.dtype for each in (x, y) if isinstance(each, Term)]
    if len(set(found)) > 1:
        raise _WrongExpressionError(
            f"{found[0].name} meets {found[1].name}",
            "compute with one dtype; select(condition, x, y) makes numbers of bools.",
        )
    for number in (each for each in (x, y) if found and not isinstance(each, Term)):
        if not _fits(number, found[0]):
            raise _WrongExpressionError(
                f"{number!r} is no {found[0].name}", "register the command for dtypes that have all of its numbers."
            )
    return found[0] if found else None


def _fits(number: bool | float, dtype: DType) -> bool:
    """Whether an operand of this dtype may meet a number."""
    if dtypes.is_bool(dtype):
        return isinstance(number, bool)
    if dtypes.is_float(dtype):
        return True
    bits = dtype.itemsize * 8
    low, high = (0, 1 << bits) if dtype in dtypes.UNSIGNED else (-(1 << bits - 1), 1 << bits - 1)
    return isinstance(number, int) and low <= number < high
