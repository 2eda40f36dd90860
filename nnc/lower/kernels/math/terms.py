"""Values whose Python operators print instructions, so that functions read as formulas; and the bit patterns of floats."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from nnc.base import dtypes
from nnc.base.dtypes import DType
from nnc.lower.kernels.builder import Code, Value

Number = bool | int | float


class Term:
    """A value and the code that computes it. Numbers that meet one take its dtype; both operands have one dtype.

    There are thousands in a program, and a frozen dataclass takes three times as long to make.
    """

    __slots__ = ("code", "value")

    def __init__(self, code: Code, value: Value) -> None:
        self.code, self.value = code, value

    @property
    def dtype(self) -> DType:
        """The dtype of the value."""
        return self.value.dtype

    def like(self, number: Term | Number) -> Value:
        """Returns the other operand: a number becomes a constant of this dtype."""
        return number.value if isinstance(number, Term) else self.code.like(self.value, number)

    def constant(self, number: Number) -> Term:
        """Returns a number with the dtype and lanes of this."""
        return self.of(self.code.like(self.value, number))

    def of(self, value: Value) -> Term:
        """Another value of the same code."""
        return Term(self.code, value)

    def __add__(self, y: Term | Number) -> Term:
        return self.of(self.code.add(self.value, self.like(y)))

    __radd__ = __add__

    def __sub__(self, y: Term | Number) -> Term:
        return self.of(self.code.sub(self.value, self.like(y)))

    def __rsub__(self, y: Number) -> Term:
        return self.of(self.code.sub(self.like(y), self.value))

    def __mul__(self, y: Term | Number) -> Term:
        return self.of(self.code.mul(self.value, self.like(y)))

    __rmul__ = __mul__

    def __truediv__(self, y: Term | Number) -> Term:
        return self.of(self.code.div(self.value, self.like(y)))

    def __rtruediv__(self, y: Number) -> Term:
        return self.of(self.code.div(self.like(y), self.value))

    def __neg__(self) -> Term:
        return self.of(self.code.neg(self.value))

    def __and__(self, y: Term | Number) -> Term:
        return self.of(self.code.and_(self.value, self.like(y)))

    def __or__(self, y: Term | Number) -> Term:
        return self.of(self.code.or_(self.value, self.like(y)))

    def __xor__(self, y: Term | Number) -> Term:
        return self.of(self.code.xor(self.value, self.like(y)))

    def __invert__(self) -> Term:
        return self.of(self.code.not_(self.value))

    def __lshift__(self, y: Term | int) -> Term:
        return self.of(self.code.shl(self.value, self.like(y)))

    def __rshift__(self, y: Term | int) -> Term:
        return self.of(self.code.shr(self.value, self.like(y)))

    def compare(self, predicate: str, y: Term | Number) -> Term:
        """Returns a bool; see `Code.compare`."""
        return self.of(self.code.compare(predicate, self.value, self.like(y)))

    def __lt__(self, y: Term | Number) -> Term:
        return self.compare("lt", y)

    def __le__(self, y: Term | Number) -> Term:
        return self.compare("le", y)

    def __gt__(self, y: Term | Number) -> Term:
        return self.compare("gt", y)

    def __ge__(self, y: Term | Number) -> Term:
        return self.compare("ge", y)

    def equals(self, y: Term | Number) -> Term:
        """x == y."""
        return self.compare("eq", y)

    def is_nan(self) -> Term:
        """Whether a float is no number."""
        return self.compare("uno", self)

    def to(self, dtype: DType) -> Term:
        """Returns the value in another dtype."""
        return self if self.value.dtype == dtype else self.of(self.code.convert(self.value, dtype))

    def choose(self, x: Term | Number, y: Term | Number) -> Term:
        """x where this bool holds, else y; one of them is a Term."""
        return where(self, x, y)

    def choose_rarely(self, make: Callable[[], Term], otherwise: Term) -> Term:
        """Returns `make()` where this bool holds, else `otherwise`; the instructions of `make` are skipped where it holds in no
        lane.
        """
        slot = self.code.slot(otherwise.value)
        with self.code.when(any_lane(self).value):
            self.code.write(slot, where(self, make(), otherwise).value)
        return otherwise.of(self.code.read(slot))

    def intrinsic(self, name: str, *others: Term | Number) -> Term:
        """One of LLVM's functions."""
        return self.of(self.code.intrinsic(name, self.value, *(self.like(other) for other in others)))

    def bits(self) -> Term:
        """Returns the bit pattern, as an unsigned integer."""
        return self.of(self.code.bitcast(self.value, _BITS[self.dtype.itemsize]))

    def signed(self) -> Term:
        """Returns the same bits, as a signed integer."""
        return self.of(self.code.bitcast(self.value, _SIGNED[self.dtype.itemsize]))

    def as_float(self) -> Term:
        """Returns the float of a bit pattern, in float32 or float64."""
        return self.of(self.code.bitcast(self.value, dtypes.float32 if self.dtype.itemsize == 4 else dtypes.float64))


_BITS = {1: dtypes.uint8, 2: dtypes.uint16, 4: dtypes.uint32, 8: dtypes.uint64}
_SIGNED = {1: dtypes.int8, 2: dtypes.int16, 4: dtypes.int32, 8: dtypes.int64}


def where(condition: Term, x: Term | Number, y: Term | Number) -> Term:
    """x where the condition holds, else y; one of them is a Term."""
    if isinstance(x, Term):
        return x.of(x.code.select(condition.value, x.value, x.like(y)))
    assert isinstance(y, Term)
    return y.of(y.code.select(condition.value, y.like(x), y.value))


def fma(x: Term, y: Term | Number, z: Term | Number) -> Term:
    """x · y + z, rounded once."""
    return x.of(x.code.fma(x.value, x.like(y), x.like(z)))


def apart(name: str, x: Term, make: Callable[[Term], Sequence[Term]]) -> list[Term]:
    """Returns `make(x)`, computed by a function that is compiled once: for long code that hardly ever runs."""
    code, lanes = x.code, x.value.lanes
    if not code.calls:
        return list(make(x))
    full = f"KERNEL.{name}{8 * x.dtype.itemsize}x{lanes}"
    if full not in code.apart:
        function = Code(full, [(x.value.type, "x")], attributes="nounwind noinline cold", linkage="internal")
        made = [term.value for term in make(Term(function, x.value._replace(text="%x")))]
        function.returns = f"{{ {', '.join([value.type for value in made])} }}"
        result = "poison"
        for i, value in enumerate(made):
            result = function.let(f"insertvalue {function.returns} {result}, {value.typed}, {i}")
        function.line(f"ret {function.returns} {result}")
        code.declarations |= {*function.declarations, function.text()}
        code.apart[full] = function.returns, made
    kind, made = code.apart[full]
    found = code.let(f"call {kind} @{full}({x.value.typed})")
    return [x.of(each._replace(text=code.let(f"extractvalue {kind} {found}, {i}"))) for i, each in enumerate(made)]


def horner(x: Term, coefficients: Sequence[float]) -> Term:
    """Returns the polynomial with these coefficients, the lowest power's first."""
    total: Term | float = coefficients[-1]
    for c in coefficients[-2::-1]:
        total = fma(x, total, c)
    return total if isinstance(total, Term) else x.constant(total)


def sqrt(x: Term) -> Term:
    """√x, rounded correctly."""
    return x.intrinsic("sqrt")


def absolute(x: Term) -> Term:
    """|x| of a float."""
    return x.intrinsic("fabs")


def any_lane(x: Term) -> Term:
    """Whether a bool holds in one of the lanes."""
    return x.of(x.code.reduce("or", x.value)) if x.value.lanes else x


def is_single(x: Term) -> bool:
    """Whether a value is float32, else it is float64."""
    return x.dtype == dtypes.float32


class Format(NamedTuple):
    """The layout of a float's bits."""

    mantissa: int  # bits of it that are stored
    bias: int

    @property
    def sign(self) -> int:
        """The bit pattern of -0."""
        return 1 << (self.mantissa + (9 if self.mantissa == 23 else 12) - 1)

    @property
    def magic(self) -> float:
        """1.5 · 2^mantissa: a number added to it is rounded to an integer, which the lowest bits show."""
        return 1.5 * 2.0**self.mantissa

    @property
    def smallest(self) -> float:
        """The smallest normal number."""
        return 2.0 ** (1 - self.bias)

    @property
    def infinity(self) -> int:
        """The bit pattern of infinity."""
        return (2 * self.bias + 1) << self.mantissa


LN2 = {
    23: (0.693147182464599609375, -1.904654299957768e-09),
    52: (0.6931471805599453, 2.3190468138462996e-17),
}
"""ln 2 in two parts, by bits of the mantissa."""

_SINGLE, _DOUBLE = Format(23, 127), Format(52, 1023)


def format_of(x: Term) -> Format:
    """Returns the format of float32 or float64."""
    return _SINGLE if is_single(x) else _DOUBLE


def split_sign(x: Term) -> tuple[Term, Term]:
    """Returns the sign bit of a float, and its size."""
    sign = x.bits() & format_of(x).sign
    return sign, absolute(x)


def with_sign(sign: Term, x: Term) -> Term:
    """Returns a float with its sign turned where the bit of `sign` is set."""
    return (x.bits() ^ sign).as_float()


def two_sum(x: Term, y: Term) -> tuple[Term, Term]:
    """x + y and its rounding error, for |x| >= |y| or x = 0 (Dekker)."""
    total = x + y
    return total, y - (total - x)


def two_sum_any(x: Term, y: Term) -> tuple[Term, Term]:
    """x + y and its rounding error (Knuth)."""
    total = x + y
    part = total - x
    return total, (x - (total - part)) + (y - part)


def two_product(x: Term, y: Term) -> tuple[Term, Term]:
    """x · y and its rounding error."""
    product = x * y
    return product, fma(x, y, -product)
