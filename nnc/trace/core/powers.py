"""Powers of roots and roots of powers: norm(x)² and ∛(x³) are smooth where norm(x) and ∛x are not.

At 0, where a root has no finite derivative, its rule makes 0 of a tangent of 0, and the chain rule makes 0 of the derivatives of
its powers. So dual tracers remember that they are roots, or powers, and the rules here stand in for those of the commands.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple

import ml_dtypes

from nnc.base import dtypes
from nnc.commands import elementwise as ew
from nnc.commands.constants import full_like
from nnc.commands.contract import dot
from nnc.commands.properties import element_as
from nnc.commands.reduce import reduce_sum
from nnc.commands.rules import Gathered, add_tangents, root_of
from nnc.commands.special import erf
from nnc.commands.trigonometry import asin, asinh, atan, atanh, cos, cosh, hypot, sin, sinh, tan, tanh
from nnc.graph import Command, Graph, Node, bind
from nnc.graph.registry import alias, derivative, joined

_finfo: Any = ml_dtypes.finfo  # which knows bfloat16, too


class Root(NamedTuple):
    """A value whose n-th power is smoother than the value itself.

    Attributes:
        made: the command that made it, with its operands.
        n: the exponent of the power.
        tangent: returns the tangent of the n-th power, None where it is zero.
        line: another root of which this one is an odd function, and a function that returns their quotient at 0; None: itself.
        curves: the same value as a function of other roots.
    """

    made: Roots
    n: int
    tangent: Callable[[], Any]
    line: tuple[Operand, Callable[[], Any]] | None = None
    curves: tuple[Curve, ...] = ()


class Power(NamedTuple):
    """The n-th power of a real number, the command's first operand."""

    made: Roots
    n: int


class Sum(NamedTuple):
    """A sum of powers."""

    made: Roots


class Curve(NamedTuple):
    """A value as a function of one square root.

    Attributes:
        base: the root.
        slopes: returns the first and the second derivative along the root.
        part: returns the factor of the tangent of the root's square in the tangent where the root is 0.
    """

    base: Operand
    slopes: Callable[[], tuple[Any, Any]]
    part: Callable[[], Any]


class Bent(NamedTuple):
    """A function of some square roots."""

    made: Roots
    curves: tuple[Curve, ...]


Origin = Root | Power | Sum | Bent | None
"""How a dual tracer was made, as derivatives at 0 need to know."""


class Operand(NamedTuple):
    """An operand of a command: its primal, its tangent (None: zero), its origin, and a number that equal computations share."""

    primal: Any
    tangent: Any
    origin: Origin = None
    number: Any = None

    def equals(self, other: Operand) -> bool:
        """Whether two operands are known to be one value, or to be computed by the same commands of the same values."""
        if self.primal is other.primal and self.tangent is other.tangent:  # a constant copy has no tangent
            return True
        if self.number is not None and self.number == other.number:
            return True
        return self.origin is not None and other.origin is not None and self.origin.made.equals(other.origin.made)

    def line(self) -> tuple[Operand, Callable[[], Any]]:
        """Returns the root that this root is an odd function of, and a function that returns their quotient at 0."""
        known = self.origin.line if isinstance(self.origin, Root) else None
        return (self, lambda: full_like(self.primal, 1)) if known is None else known

    def power(self, n: int) -> Any:
        """Returns the n-th power of the primal."""
        return self.primal if n == 1 else ew.integer_pow(self.primal, exponent=n)

    def power_tangent(self, n: int) -> Any:
        """Returns the tangent of the n-th power, which is at least that of the origin."""
        is_root = isinstance(self.origin, Root)
        tangent, known = (self.origin.tangent(), self.origin.n) if is_root else (self.tangent, 1)  # type: ignore[union-attr]
        return tangent if tangent is None or n == known else ew.safe_mul(tangent, self.power(n - known) * (n / known))


class Roots(NamedTuple):
    """A command that makes a root, or that has roots or powers among its operands."""

    command: Command
    operands: tuple[Operand, ...]
    params: Mapping[str, Any]
    graphs: tuple[Graph, ...] = ()

    def equals(self, other: Roots) -> bool:
        """Whether these are the same commands of the same values."""
        if self.command is not other.command or self.params != other.params:
            return False
        begin = 1 if self.command is ew.with_square else 0  # the square says all
        return all(map(Operand.equals, self.operands[begin:], other.operands[begin:]))

    @property
    def exponent(self) -> int:
        """The power of the first operand that the result is; 0 if it is none."""
        if self.command is ew.integer_pow:
            return int(self.params["exponent"])
        is_square = self.command is ew.mul and self.operands[0].equals(self.operands[1])
        return 2 if self.command is ew.square or is_square else 0

    @property
    def moves(self) -> bool:
        """Whether the command moves elements, or rounds them; other operands than the first are indices."""
        return _rule_of(self.command, len(self.operands)) is _move

    @property
    def is_paired_dot(self) -> bool:
        """Whether the result is a sum of products of elements in equal places."""
        if self.command is not dot:
            return False
        contract, batch = self.params["contract"], self.params.get("batch", ((), ()))
        is_paired = contract[0] == contract[1] and batch[0] == batch[1]
        return bool(is_paired) and len(contract[0]) + len(batch[0]) == max(x.primal.spec.ndim for x in self.operands)

    def move(self, x: Any) -> Any:
        """Returns the result for another first operand."""
        return bind(self.command, [x, *(y.primal for y in self.operands[1:])], dict(self.params), ())[0]

    def moved(self, base: Operand) -> Operand:
        """Returns the root whose functions the moved elements of functions of `base` are."""
        square = base.origin.tangent if isinstance(base.origin, Root) else lambda: None
        made = self._replace(operands=(base, *self.operands[1:]))
        rule = cache(lambda: None if square() is None else self.move(square()))
        return Operand(self.move(base.primal), None, Root(made, 2, rule))

    def tangent(self, output: Any) -> Any:
        """Returns the tangent of the result, where it is a power of a root or a root of a power; NotImplemented elsewhere."""
        x = self.operands[0]
        if isinstance(x.origin, Root):
            if self.command is ew.pow_:
                return _tangent_of_pow(x, x.origin, self.operands[1], output)
            if self.command in _EVEN:
                return _tangent_of_even(self.command, x, x.origin)
            exponent = self.exponent
            if self.command is dot:
                return self._tangent_of_dot()
            if not exponent and self.command in _PRODUCTS:
                return _tangent_of_product(x, self.operands[1])
            return x.power_tangent(exponent) if exponent >= x.origin.n else NotImplemented
        if isinstance(x.origin, Power) and self.command in (ew.sqrt, ew.cbrt):
            order, base = root_of[self.command][0], x.origin.made.operands[0]
            if x.origin.n % order == 0 and base.tangent is not None:
                return _tangent_of_root(base, x.origin.n // order, order == 2)
        return NotImplemented

    def _tangent_of_dot(self) -> Any:
        """Returns the tangent of a sum of products of elements in equal places, as those of a vector by itself are."""
        if not self.is_paired_dot:
            return NotImplemented
        x, y = self.operands
        products = _tangent_of_product(x, y)
        if products is NotImplemented:
            return NotImplemented
        return bind(dot, [products, full_like(products, 1)], dict(self.params), ())[0]

    def origin(self) -> Origin:
        """Returns how the result was made."""
        command, operands = self.command, self.operands
        if command in root_of:
            order, rule = root_of[command]
            primals, tangents = tuple(x.primal for x in operands), tuple(x.tangent for x in operands)
            return Root(self, order, cache(lambda: rule(primals, tangents)))
        x, exponent = operands[0], self.exponent
        if command is reduce_sum:
            return Sum(self) if isinstance(x.origin, Power) else None
        orders = {x.origin.n for x in operands if isinstance(x.origin, Root)}
        if len(orders) == 1 and not exponent:
            (n,) = orders
            rule_of_power = _rule_of(command, len(operands))
            if rule_of_power is None:
                return None
            return Root(self, n, cache(lambda: rule_of_power(self, n)), self.line())
        is_power = exponent > 1 and not orders and dtypes.is_float(x.primal.spec.dtype)
        return Power(self, exponent) if is_power else None

    def line(self) -> tuple[Operand, Callable[[], Any]] | None:
        """Returns the root that the result is an odd function of, and a function that returns their quotient at 0; None: no
        other.
        """
        x, *others = self.operands
        if self.command in _PRODUCTS and isinstance(others[0].origin, Root):
            x, others = others[0], [x]
        if not isinstance(x.origin, Root) or any(isinstance(y.origin, Root) for y in others):
            return None
        base, quotient = x.line()
        if self.moves:
            return None if base is x else (self.moved(base), lambda: self.move(quotient()))
        if self.command in _ODD:
            return base, lambda: quotient() * _ODD[self.command]
        if self.command is ew.neg:
            return base, lambda: ew.neg(quotient())
        if self.command in _PRODUCTS or self.command is ew.div:
            combine = ew.div if self.command is ew.div else ew.mul
            return base, lambda: combine(quotient(), others[0].primal)
        return None


def _tangent_of_product(x: Operand, y: Operand) -> Any:
    """Returns the tangent of a product of two odd functions of one square root, which is smooth in the number under the root."""
    if not (isinstance(x.origin, Root) and isinstance(y.origin, Root)):
        return NotImplemented
    (base, first), (other, second) = x.line(), y.line()
    smooth = base.origin.tangent() if isinstance(base.origin, Root) and base.origin.n == 2 else None
    if smooth is None or not base.equals(other):
        return NotImplemented
    by_x, by_y = (None if t is None else ew.safe_mul(t, z) for t, z in ((x.tangent, y.primal), (y.tangent, x.primal)))
    usual, limits = add_tangents(by_x, by_y), _finfo(base.primal.spec.dtype)
    small = min(float(limits.tiny) ** (2 / 3), float(limits.eps) ** 2)  # where derivatives of the root overflow
    near_zero = ew.less(ew.square(base.primal), full_like(base.primal, small))
    return ew.select(near_zero, ew.safe_mul(smooth, first() * second()), _or_zeros(usual, base))


def _tangent_of_pow(x: Operand, root: Root, y: Operand, output: Any) -> Any:
    """Returns the tangent of a power of a root whose exponent is an array: from the root's power on by this, below by the usual
    rule.
    """
    by_exponent = (
        None if y.tangent is None else ew.safe_mul(y.tangent, ew.pow_slope_by_exponent(x.primal, y.primal, output))
    )
    smooth = root.tangent()
    if smooth is None or x.tangent is None:
        return by_exponent
    is_high = ew.greater_equal(y.primal, full_like(y.primal, root.n))
    rest = ew.pow_(x.primal, ew.select(is_high, y.primal - root.n, full_like(y.primal, 0)))
    usual = ew.safe_mul(x.tangent, ew.pow_slope_by_base(x.primal, y.primal, output))
    by_base = ew.select(is_high, ew.safe_mul(smooth, rest * y.primal * (1 / root.n)), usual)
    return add_tangents(by_base, by_exponent)


def _tangent_of_root(x: Operand, m: int, is_even: bool) -> Any:
    """Returns the tangent of x^m, or of |x|^m where the root is of an even order."""
    t = x.power_tangent(m)
    return ew.mul(t, ew.sign(x.primal)) if is_even and m % 2 else t


def _tangent_of_even(command: Command, x: Operand, root: Root) -> Any:
    """Returns the tangent of cos r or cosh r, which are smooth in r²: the slope over 2 r, times the tangent of r²."""
    smooth = root.tangent() if root.n == 2 else None
    if smooth is None:
        return None if x.tangent is None else NotImplemented
    at_zero = ew.equal(x.primal, full_like(x.primal, 0))
    slope, at = _EVEN[command]
    safe = ew.select(at_zero, full_like(x.primal, 1), x.primal)
    return ew.safe_mul(smooth, ew.select(at_zero, full_like(x.primal, at), slope(safe) / safe) * 0.5)


def _rule_of(command: Command, arity: int) -> Callable[[Roots, int], Any] | None:
    """Returns the rule that makes the tangent of the n-th power of a command's result, which is a root where an operand is one."""
    if command in joined:
        return _join
    moves = element_as(command, Gathered) or (arity == 1 and command in alias)
    return _move if moves else _RULES.get(command)


def keeps_roots(node: Node) -> bool:
    """Whether a node's result is a root where an operand is."""
    is_square = node.command is ew.mul and node.inputs[0] is node.inputs[1]
    return not is_square and _rule_of(node.command, len(node.inputs)) is not None


# -- the n-th powers of values made of roots ---------------------------------------------------------------------------


def _move(roots: Roots, n: int) -> Any:
    """Returns the rule of commands that move elements, or round them; other operands are indices."""
    t = roots.operands[0].power_tangent(n)
    return None if t is None else roots.move(t)


def _join(roots: Roots, n: int) -> Any:
    parts = [_or_zeros(x.power_tangent(n), x) for x in roots.operands]
    return bind(roots.command, parts, dict(roots.params), ())[0]


def _or_zeros(t: Any, x: Operand) -> Any:
    return full_like(x.primal, 0) if t is None else t


def _negative(roots: Roots, n: int) -> Any:
    t = roots.operands[0].power_tangent(n)
    return t if t is None or n % 2 == 0 else ew.neg(t)


def _product(roots: Roots, n: int) -> Any:
    x, y = roots.operands
    return _product_of(x, y, n)


def _product_of(x: Operand, y: Operand, n: int) -> Any:
    by_x, by_y = x.power_tangent(n), y.power_tangent(n)
    first = None if by_x is None else ew.safe_mul(by_x, y.power(n))
    second = None if by_y is None else ew.safe_mul(by_y, x.power(n))
    return add_tangents(first, second)


def _quotient(roots: Roots, n: int) -> Any:
    x, y = roots.operands
    inverse = ew.reciprocal(y.primal)
    t = None if y.tangent is None else ew.safe_mul(y.tangent, -(inverse * inverse))
    return _product_of(x, Operand(inverse, t), n)


def _odd(roots: Roots, n: int) -> Any:
    """Returns the rule of odd functions: at 0 their powers are those of the root times a number."""
    (x,) = roots.operands
    smooth, out = x.power_tangent(n), bind(roots.command, [x.primal], {}, ())[0]
    rule = derivative[roots.command].jvp
    if smooth is None or x.tangent is None or rule is None:
        return None
    usual = ew.safe_mul(rule((x.primal,), (x.tangent,), (out,))[0], ew.integer_pow(out, exponent=n - 1) * n)
    at_zero = ew.equal(x.primal, full_like(x.primal, 0))
    return ew.select(at_zero, ew.safe_mul(smooth, full_like(x.primal, _ODD[roots.command] ** n)), usual)


def _select(roots: Roots, n: int) -> Any:
    condition, *branches = roots.operands
    found = [branch.power_tangent(n) for branch in branches]
    if all(t is None for t in found):
        return None
    x, y = map(_or_zeros, found, branches)
    return ew.select(condition.primal, x, y)


_PRODUCTS = frozenset((ew.mul, ew.safe_mul))
_ODD: Mapping[Command, float] = MappingProxyType(
    dict.fromkeys((sin, sinh, tan, tanh, asin, asinh, atan, atanh), 1.0) | {erf: 2 / math.sqrt(math.pi)}
)
"""Odd smooth functions, and their slopes at 0."""
_RULES: Mapping[Command, Callable[[Roots, int], Any]] = MappingProxyType(
    {
        ew.neg: _negative, ew.mul: _product, ew.safe_mul: _product, ew.div: _quotient, ew.select: _select,
        ew.convert: _move, ew.copy: _move, **dict.fromkeys(_ODD, _odd),
    }
)  # fmt: skip
_EVEN: Mapping[Command, tuple[Callable[[Any], Any], float]] = MappingProxyType(
    {cos: (lambda x: -sin(x), -1.0), cosh: (sinh, 1.0)}
)  # fmt: skip
"""Even functions: their slopes, and the second derivatives at 0."""
WATCHED = frozenset(
    (ew.sqrt, ew.length, ew.with_square, ew.cbrt, ew.abs_, ew.pow_, hypot, ew.square, ew.integer_pow, ew.mul)
)
"""Commands that make roots and powers."""
