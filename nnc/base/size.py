"""Sizes that are not known yet: polynomials of given integers, which arithmetic keeps and comparisons note.

A program is lowered once for many sizes by lowering it with `Size`s in place of the integers that differ. Each has a value, that of
one member, by which comparisons are decided; each decision is noted as a *guard*: a condition on the given integers under which
the same decisions are taken. A size is no int, so that no code sees its value unnoticed: converting it to an int, a float or a text
fixes it, which is a guard, too. Choices that are right for any size, such as an order of steps, ask for its `hint`. A function
that is no polynomial, such as the greater of two sizes, is another unknown (`derive`); so is a quotient.

    given n = 96:   4 * n + 1   → Size of value 385     n % 32 == 0 → True, guard n - 32 * (n // 32) == 0
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import add, eq, floordiv, ge, gt, le, lt, mod, mul, neg, sub
from types import MappingProxyType
from typing import Any

import numpy as np

Monomial = tuple[int, ...]  # numbers of atoms, in order
Terms = tuple[tuple[Monomial, int], ...]  # monomials with their coefficients, in order
_HOLDS: Mapping[str, Any] = MappingProxyType({"eq": eq, "lt": lt, "le": le, "gt": gt, "ge": ge})
_ARITHMETIC = frozenset({abs, add, floordiv, mod, mul, neg, sub})  # which sizes have themselves


class Sizes:
    """The given integers of one lowering, functions of sizes, and the guards.

    Attributes:
        values: the value of each atom: of the given integers, and of functions that are no polynomials, such as quotients.
        guards: for each polynomial and comparison with 0 whether it holds.
    """

    def __init__(self) -> None:
        self.values: list[int] = []
        self.guards: dict[tuple[Terms, str], bool] = {}
        self._functions: dict[tuple[Callable[..., int], tuple[Terms, ...]], int] = {}
        self._decisions: dict[tuple[Callable[..., Any], tuple[Any, ...]], Any] = {}
        self._given = 0

    def give(self, value: int) -> Any:
        """Returns a size for the next given integer; all are given before anything is derived."""
        self.values.append(value)
        self._given = len(self.values)
        return self.make({(self._given - 1,): 1})

    def make(self, terms: Mapping[Monomial, int]) -> Any:
        """Returns the size of a polynomial; an int where it is constant."""
        kept = tuple(sorted([(m, c) for m, c in terms.items() if c]))
        if not kept:
            return 0
        return kept[0][1] if kept[0][0] == () and len(kept) == 1 else Size(self, kept, _sum(kept, self.values))

    def apply(self, function: Callable[..., int], *operands: Terms) -> Any:
        """Returns the size that a function of sizes gives, which must depend on nothing else."""
        number = self._functions.get((function, operands))
        if number is None:
            number = self._functions[function, operands] = len(self.values)
            self.values.append(function(*[_sum(x, self.values) for x in operands]))
        return self.make({(number,): 1})

    def decide(self, function: Callable[..., Any], operands: tuple[Any, ...]) -> Any:
        """Returns a function of nested tuples of sizes, and notes its result as a guard."""
        if (function, operands) not in self._decisions:
            self._decisions[function, operands] = function(*_known(operands, hint))
        return self._decisions[function, operands]

    def note(self, terms: Terms, comparison: str, holds: bool) -> None:
        """Notes that a comparison with 0 was made."""
        self.guards[terms, comparison] = holds

    def fixes(self, count: int) -> bool:
        """Whether a guard allows only one value of one of the first so many given integers."""
        fixed = (terms for (terms, comparison), holds in self.guards.items() if comparison == "eq" and holds)
        atoms = ([monomial for monomial, _ in terms if monomial] for terms in fixed)
        return any(len(found) == len(found[0]) == 1 and found[0][0] < count for found in atoms)

    def at(self, given: Sequence[int]) -> Evaluation | None:
        """Returns the values for other given integers; None where a guard does not hold, so that other decisions would be taken."""
        values = list(given)
        for function, operands in self._functions:
            try:
                values.append(function(*[_sum(x, values) for x in operands]))
            except ZeroDivisionError:
                return None
        found = Evaluation(values)
        for (terms, comparison), holds in self.guards.items():
            if _HOLDS[comparison](found.sum(terms), 0) is not holds:
                return None
        for (decision, nested), result in self._decisions.items():
            if decision(*_known(nested, found.of)) != result:
                return None
        return found


class Evaluation:
    """The values of sizes for other given integers than they were made with.

    Args:
        values: the value of each atom.
    """

    def __init__(self, values: Sequence[int]) -> None:
        self.values = values
        self._sums: dict[Terms, int] = {}

    def sum(self, terms: Terms) -> int:
        """Returns the value of a polynomial."""
        found = self._sums.get(terms)
        if found is None:
            found = self._sums[terms] = _sum(terms, self.values)
        return found

    def of(self, size: Any) -> Any:
        """Returns the value of a size; anything else stays."""
        return self.sum(size.terms) if type(size) is Size else size


def _sum(terms: Terms, values: Sequence[int]) -> int:
    total = 0
    for monomial, factor in terms:
        for atom in monomial:
            factor *= values[atom]
        total += factor
    return total


class Size:
    """A size that is not known yet; see above.

    Attributes:
        sizes: where decisions are noted.
        terms: the polynomial.
        value: its value for the sizes that lowering is done with.
    """

    __slots__ = ("sizes", "terms", "value")
    __array_ufunc__ = None  # NumPy's integers leave arithmetic to this class

    def __init__(self, sizes: Sizes, terms: Terms, value: int) -> None:
        self.sizes, self.terms, self.value = sizes, terms, value

    def fix(self) -> int:
        """Returns the value, which is then the only one for which the program is right."""
        (self - self.value).sizes.note((self - self.value).terms, "eq", True)
        return self.value

    # -- arithmetic ----------------------------------------------------------------------------------------------------

    def __add__(self, other: Any) -> Any:
        if not _is_whole(other):
            return self.fix() + other
        terms = dict(self.terms)
        for monomial, factor in _terms(other):
            terms[monomial] = terms.get(monomial, 0) + factor
        return self.sizes.make(terms)

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, (tuple, list)):
            return other * self.fix()
        if not _is_whole(other):
            return self.fix() * other
        terms: dict[Monomial, int] = {}
        for m, c in self.terms:
            for n, d in _terms(other):
                both = tuple(sorted(m + n))
                terms[both] = terms.get(both, 0) + c * d
        return self.sizes.make(terms)

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> Any:
        return self * -1

    def __pos__(self) -> Size:
        return self

    def __abs__(self) -> Any:
        return -self if self < 0 else self

    def __sub__(self, other: Any) -> Any:
        return self + -other

    def __rsub__(self, other: Any) -> Any:
        return -self + other

    def __pow__(self, exponent: int) -> Any:
        result: Any = 1
        for _ in range(exponent):
            result = result * self
        return result

    def __floordiv__(self, other: Any) -> Any:
        if not _is_whole(other):
            return self.fix() // other
        if isinstance(other, Size):
            exact = self._exact_quotient(other)
            return self.sizes.apply(floordiv, self.terms, other.terms) if exact is None else exact
        divisor = int(other)
        whole = self.sizes.make({m: c // divisor for m, c in self.terms})
        rest = self.sizes.make({m: c % divisor for m, c in self.terms})
        return whole + (
            self.sizes.apply(floordiv, rest.terms, _terms(divisor)) if isinstance(rest, Size) else rest // divisor
        )

    def _exact_quotient(self, other: Size) -> Any:
        """Returns the quotient by a polynomial, by long division; None where a rest is left."""
        lead, factor = max(other.terms, key=_order)
        quotient: dict[Monomial, int] = {}
        rest: Any = self
        while isinstance(rest, Size):
            monomial, c = max(rest.terms, key=_order)
            left = list(monomial)
            for atom in lead:
                if atom not in left:
                    return None
                left.remove(atom)
            if c % factor:
                return None
            quotient[tuple(left)] = c // factor
            rest = rest - other * self.sizes.make({tuple(left): c // factor})
        return self.sizes.make(quotient) if rest == 0 and other != 0 else None

    def __rfloordiv__(self, other: Any) -> Any:
        return self.sizes.apply(floordiv, _terms(other), self.terms) if _is_whole(other) else other // self.fix()

    def __mod__(self, other: Any) -> Any:
        return self - (self // other) * other

    def __rmod__(self, other: Any) -> Any:
        return other - (other // self) * self

    def __divmod__(self, other: Any) -> tuple[Any, Any]:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> tuple[Any, Any]:
        return other // self, other % self

    def __truediv__(self, other: Any) -> Any:
        return self.fix() / (other.fix() if isinstance(other, Size) else other)

    def __rtruediv__(self, other: Any) -> Any:
        return other / self.fix()

    # -- comparisons ---------------------------------------------------------------------------------------------------

    def _compare(self, other: Any, comparison: str) -> bool:
        if isinstance(other, float):
            return bool(_HOLDS[comparison](self.fix(), other))
        difference = self - other
        if not isinstance(difference, Size):
            return bool(_HOLDS[comparison](difference, 0))
        holds = bool(_HOLDS[comparison](difference.value, 0))
        self.sizes.note(difference.terms, comparison, holds)
        return holds

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Size) and other.sizes is not self.sizes:
            return False  # shared tables hold sizes of several lowerings, whose guards are apart
        return (_is_whole(other) or isinstance(other, float)) and self._compare(other, "eq")

    def __hash__(self) -> int:
        return hash((id(self.sizes), self.terms))

    def __lt__(self, other: Any) -> bool:
        return self._compare(other, "lt")

    def __le__(self, other: Any) -> bool:
        return self._compare(other, "le")

    def __gt__(self, other: Any) -> bool:
        return self._compare(other, "gt")

    def __ge__(self, other: Any) -> bool:
        return self._compare(other, "ge")

    def __bool__(self) -> bool:
        return not self._compare(0, "eq")

    # -- conversions ---------------------------------------------------------------------------------------------------

    def __int__(self) -> int:
        return self.fix()

    def __index__(self) -> int:
        return self.fix()

    def __float__(self) -> float:
        return float(self.fix())

    def __str__(self) -> str:
        return str(self.fix())

    def __format__(self, form: str) -> str:
        return format(self.fix(), form)

    def __repr__(self) -> str:
        return f"<Size {self.value} of {id(self.sizes)}: {self.terms}>"  # no number, so that no text holds it unnoticed


def _order(term: tuple[Monomial, int]) -> tuple[int, Monomial]:
    """The place of a term, which products of monomials keep."""
    return len(term[0]), term[0]


def hint(size: Any) -> int:
    """Returns the value of a size without a guard, for choices that are right for any size; an int stays."""
    return size.value if type(size) is Size else size


def fixed(size: Any) -> int:
    """Returns the value of a size, which is then the only one for which the program is right; an int stays."""
    return size.fix() if type(size) is Size else size


def derive(function: Callable[..., Any], *operands: Any) -> Any:
    """Returns a function of sizes and integers, which must depend on nothing else."""
    home = next((x.sizes for x in operands if type(x) is Size), None)
    if home is None or function in _ARITHMETIC:
        return function(*operands)
    return home.apply(function, *map(_terms, operands))


def decide(function: Callable[..., Any], *operands: Any) -> Any:
    """Returns a choice that a function makes by nested tuples of sizes and integers, and by nothing else. With sizes among them the
    choice is a guard.
    """
    home = _home(operands)
    return function(*operands) if home is None else home.decide(function, operands)


def _home(value: Any) -> Sizes | None:
    if isinstance(value, tuple):
        return next((home for home in map(_home, value) if home is not None), None)
    return value.sizes if type(value) is Size else None


def _known(value: Any, of: Callable[[Any], Any]) -> Any:
    return tuple([_known(each, of) for each in value]) if isinstance(value, tuple) else of(value)


def _is_whole(value: object) -> bool:
    return isinstance(value, (int, Size, np.integer))


def _terms(value: Any) -> Terms:
    if isinstance(value, Size):
        return value.terms
    return (((), int(value)),) if value else ()
