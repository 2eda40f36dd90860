"""Sizes that kernels of one text take as numbers.

A `Number` is a size that the printer knows and the text does not hold: it computes and compares like an integer, and is printed as
a register. Results of arithmetic on numbers are numbers again; results of comparisons are decisions, which are noted. So printers
need little code for sizes that vary. A text serves all sizes at which the decisions are the same; `Numbers.again` says which these
are.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any, NamedTuple, TypeGuard, TypeVar

from nnc.base.size import decide, derive, fixed, hint
from nnc.lower.kernels.native import PRINTED, Native

_RESERVED = 1 << 12  # bytes of the stack for a number of elements, at least
_MOST_VARIANTS = 16  # texts of one form, for different decisions

_DECISIONS = frozenset({bool, operator.eq, operator.ge, operator.gt, operator.le, operator.lt, operator.pos})

T = TypeVar("T")
Structure = TypeVar("Structure", bound="int | tuple[Any, ...]")


class _Trailed(NamedTuple):
    """A function of earlier values. Its result is the next value, or must be the `expected` one."""

    function: Callable[..., Any]
    operands: tuple[int, ...]
    expected: Any


class Numbers:
    """The numbers of a kernel that is being printed, and the decisions that were taken by them.

    Values stand in a list: the given sizes, constants, and functions of these. The trail tells how each function was computed, and
    which decisions were taken meanwhile.
    """

    def __init__(self) -> None:
        self._values: list[int] = []
        self._given: list[int] = []  # places in the list
        self._constants: dict[int, int] = {}
        self._derived: dict[Any, int] = {}
        self._decided: dict[Any, Any] = {}
        self._trail: list[_Trailed] = []
        self._leading: list[int] = []
        self._registers: list[int] = []

    def give(self, size: int) -> int:
        """Returns a size as a number."""
        self._given.append(len(self._values))
        return self._append(size)

    def derive(self, function: Callable[..., int], *operands: int) -> int:
        """Returns a function of numbers and integers, which must depend on nothing else."""
        key = function, tuple(map(self._place, operands))
        if key not in self._derived:
            self._derived[key] = len(self._values)
            self._trail.append(_Trailed(*key, None))
            return self._append(function(*[self._values[at] for at in key[1]]))
        return self._number(self._derived[key])

    def decide(self, function: Callable[..., Any], *operands: int) -> Any:
        """Returns a function of numbers and integers, by which the printer chooses a text."""
        key = function, tuple(map(self._place, operands))
        if key not in self._decided:
            self._decided[key] = function(*[self._values[at] for at in key[1]])
            self._trail.append(_Trailed(*key, self._decided[key]))
        return self._decided[key]

    def lead(self, size: int) -> None:
        """Notes a size that the kernel takes in front of the numbers in registers, under a name of its own."""
        self._leading.append(self._place(size))

    def register(self, at: int) -> str:
        """Returns the register of a value, which the kernel takes as a number from here on."""
        if at not in self._registers:
            self._registers.append(at)
        return f"%n{self._registers.index(at)}"

    @property
    def given(self) -> tuple[int, ...]:
        """The sizes that were given, in their order."""
        return tuple([self._values[at] for at in self._given])

    @property
    def printed(self) -> tuple[int, ...]:
        """The numbers that the kernel takes: leading ones, then those of the registers %n0, %n1 and so on."""
        return tuple([self._values[at] for at in (*self._leading, *self._registers)])

    @property
    def parameters(self) -> tuple[tuple[str, str], ...]:
        """The parameters of a function that takes the numbers: types and names."""
        return tuple([("i64", f"n{i}") for i in range(len(self._registers))])

    def loads(self, pointer: str, first: int) -> list[str]:
        """Returns the lines that load the numbers from memory, where they stand behind the first so many words."""
        lines = []
        for i in range(len(self._registers)):
            lines.append(f"  %at{i} = getelementptr i8, ptr {pointer}, i64 {8 * (first + i)}")
            lines.append(f"  %n{i} = load i64, ptr %at{i}")
        return lines

    def again(self, sizes: Sequence[int]) -> tuple[int, ...] | None:
        """Returns the numbers that the kernel takes at other sizes; None where it would have another text. Sizes that are not known
        yet (nnc.base.size) give such numbers.
        """
        values = self._values.copy()
        for at, size in zip(self._given, sizes, strict=True):
            values[at] = size
        made = iter(self._derived.values())
        for function, operands, expected in self._trail:
            given = [values[at] for at in operands]
            if expected is None:
                values[next(made)] = derive(function, *given)
            elif (function(*given) if function in _DECISIONS else decide(function, *given)) != expected:
                return None
        return tuple([values[at] for at in (*self._leading, *self._registers)])

    def _place(self, x: int) -> int:
        if is_number(x):
            return x.at
        if x not in self._constants:
            self._constants[x] = len(self._values)
            self._values.append(x)
        return self._constants[x]

    def _append(self, value: int) -> int:
        self._values.append(value)
        return self._number(len(self._values) - 1)

    def _number(self, at: int) -> int:
        return Number(self, at)  # type: ignore[return-value]


def _binary(function: Callable[..., Any], neutral: int | None = None) -> tuple[Any, Any]:
    return (
        lambda self, other: self if other is neutral else self.home.derive(function, self, other),
        lambda self, other: self.home.derive(function, other, self),
    )


def _decision(function: Callable[..., Any]) -> Any:
    return lambda self, other: self.home.decide(function, self, other)


class Number:
    """An integer that kernels of one text take as a number. It is no `int`: printers treat it like a value that is known when the
    kernel runs, and where Python itself needs an integer, its value is a decision.
    """

    __slots__ = ("at", "home")

    def __init__(self, home: Numbers, at: int) -> None:
        self.home, self.at = home, at

    __add__, __radd__ = _binary(operator.add)
    __sub__, __rsub__ = _binary(operator.sub)
    __mul__, _ = _binary(operator.mul, 1)
    __rmul__ = __mul__
    __floordiv__, __rfloordiv__ = _binary(operator.floordiv, 1)
    __mod__, __rmod__ = _binary(operator.mod)
    __lt__, __le__, __gt__, __ge__ = map(_decision, (operator.lt, operator.le, operator.gt, operator.ge))

    def __neg__(self) -> int:
        return self.home.derive(operator.neg, self)  # type: ignore[arg-type]

    def __abs__(self) -> int:
        return self.home.derive(abs, self)  # type: ignore[arg-type]

    def __eq__(self, other: object) -> bool:
        if is_number(other) or isinstance(other, int):
            return bool(self.home.decide(operator.eq, self, other))  # type: ignore[arg-type]
        return NotImplemented

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __bool__(self) -> bool:
        return bool(self.home.decide(bool, self))  # type: ignore[arg-type]

    def __index__(self) -> int:
        return int(self.home.decide(operator.pos, self))  # type: ignore[arg-type]

    __int__ = __index__

    def __hash__(self) -> int:
        return hash(self.__index__())

    def __str__(self) -> str:
        return self.home.register(self.at)


def derived(function: Callable[..., int], *operands: int) -> int:
    """Returns a function of integers: a number, if one of them is."""
    home = next((x.home for x in operands if is_number(x)), None)
    return function(*operands) if home is None else home.derive(function, *operands)


def decided(function: Callable[..., T], *operands: int) -> T:
    """Returns a choice that a function makes by integers, and by nothing else that varies; with numbers it is a decision."""
    home = next((x.home for x in operands if is_number(x)), None)
    found: T = function(*operands) if home is None else home.decide(function, *operands)
    return found


def reserved(nbytes: int) -> int:
    """Returns the bytes of the stack to reserve, which are no number."""
    if not is_number(nbytes):
        return nbytes
    most = _RESERVED
    while most < nbytes:
        most *= 2
    return most


def is_number(x: Any) -> TypeGuard[Number]:
    """Whether a size is one of a kernel's numbers."""
    return type(x) is Number


# -- texts for other sizes ---------------------------------------------------------------------------------------------


class _Variant(NamedTuple):
    """A kernel of some form, and the trail of its numbers."""

    native: Native
    numbers: Numbers

    @property
    def text(self) -> str:
        """The kernel's text."""
        return self.native.text


def _form(here: Any, there: Any, given: list[Any]) -> Any:
    """Returns nested tuples of integers with `...` in the place of each that differs in others, and adds these to `given`."""
    if isinstance(here, tuple):
        pairs = zip(here, there if isinstance(there, tuple) and len(there) == len(here) else repeat(None), strict=False)
        return tuple([_form(x, y, given) for x, y in pairs])
    if isinstance(hint(here), int) and isinstance(there, int) and hint(here) != there:
        given.append(here)
        return ...
    return fixed(here)


def _numbered(sizes: Structure, form: Any, numbers: Numbers) -> Structure:
    """Returns nested tuples of integers, with a number in the place of each that is `...` in their form."""
    if form is ...:
        return numbers.give(sizes)  # type: ignore[arg-type, return-value]
    if isinstance(sizes, tuple):
        made = [_numbered(x, y, numbers) for x, y in zip(sizes, form, strict=True)]
        return type(sizes)(*made) if hasattr(sizes, "_fields") else type(sizes)(made)
    return sizes


def find_sized(
    key: Any, sizes: Structure, others: Structure, make: Callable[[Structure, Numbers], Native | None]
) -> Native | None:
    """Returns the kernel for sizes, which it takes as numbers where they differ from those of another size of the program. A known
    text is not printed again. Sizes that are not known yet find known texts alone; there is None where no text is known.

    Args:
        key: all that the text depends on beside the sizes.
        sizes: nested tuples of integers.
        others: the same of another size of the program.
        make: prints the kernel for sizes with numbers among them; None where there is no kernel.
    """
    given: list[int] = []
    form = _form(sizes, others, given)
    values = list(map(hint, given))
    is_known = all(map(operator.is_, given, values))
    i = 0
    for i in range(_MOST_VARIANTS):
        known: _Variant | None = PRINTED.get((find_sized, key, form, i))
        if known is None:
            break
        numbers = known.numbers.again(values)
        if numbers is not None and not is_known:
            numbers = known.numbers.again(given)
        if numbers is not None:
            return known.native.at(numbers)
    if not is_known:
        return None
    trail = Numbers()
    made = make(_numbered(sizes, form, trail), trail)
    if made is not None:
        PRINTED.find((find_sized, key, form, i), lambda: _Variant(made, trail))
    return made
