"""Scalar expressions on complex numbers, as pairs of real ones.

Quotients are Smith's (Algorithm 116: complex division, 1962), as NumPy's are.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from nnc.base.dtypes import DType, is_bool, real_dtype
from nnc.base.later import later
from nnc.graph import Command
from nnc.graph.registry import scalar as expressions
from nnc.lower.kernels.math.terms import Term, absolute, where
from nnc.lower.kernels.scalars import OPERANDS, Operations, Parsed, evaluate, parse

_hypot = later(f"{__package__}.power", "hypot")
BY_LOGARITHMS = 100
"""The least exponent of which NumPy takes logarithms."""


class Complex(NamedTuple):
    """A complex number in registers."""

    real: Term
    imag: Term


class ComplexOperations(Operations):
    """Prints operators and functions of complex numbers; an operand is a Complex, a Term or a number."""

    def unary(self, operator: type[ast.unaryop], x: Any) -> Any:
        """Returns a sign."""
        return Complex(-x.real, -x.imag) if isinstance(x, Complex) else super().unary(operator, x)

    def binary(self, operator: type[ast.operator], x: Any, y: Any) -> Any:
        """Returns a sum, a difference, a product or a quotient."""
        if not isinstance(x, Complex) and not isinstance(y, Complex):
            return super().binary(operator, x, y)
        if x is y and operator is ast.Mult:
            return complex_square(x)
        if operator is ast.Div and not isinstance(x, (Complex, Term)) and x == 1:
            return complex_reciprocal(y)
        like = x if isinstance(x, Complex) else y
        return _OPERATORS[operator](_as_complex(x, like), _as_complex(y, like))

    def compare(self, predicate: str, x: Any, y: Any) -> Any:
        """Whether both parts are equal, or one is not."""
        if not isinstance(x, Complex):
            return super().compare(predicate, x, y)
        other = _as_complex(y, x)
        same = x.real.equals(other.real) & x.imag.equals(other.imag)
        return same if predicate == "eq" else ~same

    def call(self, name: str, arguments: list[Any]) -> Any:
        """Returns a function."""
        return _FUNCTIONS[name](*arguments)


def evaluate_complex(parsed: Parsed, operands: Sequence[Complex | Term]) -> Complex | Term:
    """Prints an expression for which `can_be_complex` holds, on operands that include complex ones."""
    found: Complex | Term = evaluate(parsed, dict(zip(OPERANDS, operands, strict=False)), ComplexOperations())
    return found


def complex_function(command: Command, params: Mapping[str, Any]) -> Callable[..., Complex | Term]:
    """Returns the function that gives a result's element from the operands' elements, of a command with such an expression."""
    if command.name == "integer_pow":
        return lambda x: integer_power(x, params["exponent"])
    parsed = parse(expressions[command])
    return lambda *operands: evaluate_complex(parsed, operands)


def to_dtype(x: Complex | Term, dtype: DType) -> tuple[Term, ...]:
    """Returns the parts of a number in another dtype; as a bool, whether it differs from 0.

    Args:
        dtype: a complex dtype, or that of a real result.
    """
    real = real_dtype(dtype)
    if real != dtype:
        parts = (x.real, x.imag) if isinstance(x, Complex) else (x, x.constant(0))
        return tuple(part.to(real) for part in parts)
    if not isinstance(x, Complex):
        return (x.to(dtype),)
    return (x.real.compare("ne", 0) | x.imag.compare("ne", 0),) if is_bool(dtype) else (x.real.to(dtype),)


def _as_complex(x: Any, like: Complex) -> Complex:
    if isinstance(x, Complex):
        return x
    return Complex(x if isinstance(x, Term) else like.real.constant(x), like.real.constant(0))


def complex_product(x: Complex, y: Complex) -> Complex:
    """x · y."""
    return Complex(x.real * y.real - x.imag * y.imag, x.real * y.imag + x.imag * y.real)


def complex_square(x: Complex) -> Complex:
    """x², whose real part is a product: squares of the parts may overflow where their difference does not. Its 0 has no sign."""
    return Complex((x.real - x.imag) * (x.real + x.imag) + 0, x.real * (x.imag + x.imag))


def complex_reciprocal(x: Complex) -> Complex:
    """1 / x; the imaginary part 0 turns its sign."""
    is_flat = absolute(x.real) >= absolute(x.imag)
    large, small = where(is_flat, x.real, x.imag), where(is_flat, x.imag, x.real)
    ratio = small / large
    scale = 1 / (large + small * ratio)
    return Complex(where(is_flat, scale, ratio * scale), -where(is_flat, ratio * scale, scale))


def complex_quotient(x: Complex, y: Complex) -> Complex:
    """x / y."""
    is_flat = absolute(y.real) >= absolute(y.imag)
    large, small = where(is_flat, y.real, y.imag), where(is_flat, y.imag, y.real)
    ratio = small / large
    scale = 1 / (large + small * ratio)
    first, second = where(is_flat, x.real, x.imag), where(is_flat, x.imag, x.real)
    rest = (second - first * ratio) * scale
    real, imaginary = (first + second * ratio) * scale, where(is_flat, rest, -rest)
    is_zero, size = large.equals(0), absolute(y.real)
    return Complex(where(is_zero, x.real / size, real), where(is_zero, x.imag / size, imaginary))


def integer_power(x: Complex, exponent: int) -> Complex:
    """Raises x to an integer power by the products that NumPy forms (npy_cpow), so that infinities and NaN come out alike.

    Args:
        exponent: an integer smaller than `BY_LOGARITHMS` in size.
    """
    one, size = Complex(x.real.constant(1), x.real.constant(0)), abs(exponent)
    if exponent == 0:
        return one
    if 0 < exponent < 4:
        found = x
        for _ in range(exponent - 1):
            found = complex_product(x, found)
    else:
        found, square = one, x
        for bit in range(size.bit_length()):
            square = complex_product(square, square) if bit else x
            found = complex_product(found, square) if size >> bit & 1 else found
        found = found if exponent > 0 else complex_quotient(one, found)
    at_zero = x.real.constant(0.0 if exponent > 0 else math.nan)
    is_zero = x.real.equals(0) & x.imag.equals(0)
    return Complex(where(is_zero, at_zero, found.real), where(is_zero, at_zero, found.imag))


def _safe_product(x: Complex, y: Complex) -> Complex:
    is_zero = (x.real.equals(0) & x.imag.equals(0)) | (y.real.equals(0) & y.imag.equals(0))
    product = complex_product(x, y)
    return Complex(where(is_zero, 0, product.real), where(is_zero, 0, product.imag))


def _select(condition: Term, x: Any, y: Any) -> Any:
    if not isinstance(x, Complex):
        return where(condition, x, y)
    return Complex(where(condition, x.real, y.real), where(condition, x.imag, y.imag))


_OPERATORS: Mapping[type[ast.operator], Callable[[Complex, Complex], Complex]] = MappingProxyType(
    {
        ast.Add: lambda x, y: Complex(x.real + y.real, x.imag + y.imag),
        ast.Sub: lambda x, y: Complex(x.real - y.real, x.imag - y.imag),
        ast.Mult: complex_product,
        ast.Div: complex_quotient,
    }
)
_FUNCTIONS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "complex": Complex,
        "real": lambda x: x.real,
        "imag": lambda x: x.imag,
        "conj": lambda x: Complex(x.real, -x.imag),
        "abs": lambda x: _hypot(x.real, x.imag) if isinstance(x, Complex) else absolute(x),
        **{
            name: later(f"{__package__}.complex_functions", f"complex_{name}")
            for name in ("cos", "cosh", "exp", "log", "rsqrt", "sin", "sinh", "sqrt", "tan", "tanh")
        },
        "safe_product": _safe_product,
        "select": _select,
        "convert": lambda x: x,
    }
)
