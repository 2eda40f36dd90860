"""Sizes for tracing: a user's function sees them in place of the sizes of its arguments, when it is traced for many sizes at once.

Such a size behaves as the int that it stands for, and notes each use by which the function could tell one size from another:
arithmetic stays symbolic, comparisons are guards, and everything else (hashing, `range`, indexing, formatting, conversion, NumPy)
fixes it, so that the trace holds for this size alone. It is no subclass of int, since C code reads the value of those without
asking. Two uses are not seen: the class that `type` returns, and identity (`is`); nnc.compiled.replay refuses functions whose code
asks for these.

Floats made of sizes, such as `1 / n`, are expressions that are computed again for another size.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from operator import add, index, mul, neg, sub, truediv
from operator import pow as power
from typing import Any

import numpy as np

from nnc.base.size import Evaluation, Size

_NUMBERS = frozenset({int, float})


class TracedSize(Size):
    """A size that a user's function sees."""

    __slots__ = ()

    @property
    def __class__(self) -> type:
        return int  # for isinstance

    @__class__.setter
    def __class__(self, other: type) -> None:
        raise TypeError("a size keeps its class")

    def __getattr__(self, name: str) -> Any:
        return getattr(self.fix() if hasattr(int, name) else 0, name)

    def __hash__(self) -> int:
        return super().__hash__() if _is_own(sys._getframe(1)) else hash(self.fix())

    def __repr__(self) -> str:
        return super().__repr__() if _is_own(sys._getframe(1)) else repr(self.fix())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return np.asarray(self.fix(), dtype)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return int, (self.fix(),)

    def __copy__(self) -> TracedSize:
        return self

    def __deepcopy__(self, memo: Any) -> TracedSize:
        return self

    # -- floats --------------------------------------------------------------------------------------------------------

    def __truediv__(self, other: Any) -> Any:
        return combined(truediv, self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return combined(truediv, other, self)

    def __add__(self, other: Any) -> Any:
        return combined(add, self, other) if _is_float(other) else super().__add__(other)

    def __radd__(self, other: Any) -> Any:
        return combined(add, other, self) if _is_float(other) else super().__radd__(other)

    def __sub__(self, other: Any) -> Any:
        return combined(sub, self, other) if _is_float(other) else super().__sub__(other)

    def __rsub__(self, other: Any) -> Any:
        return combined(sub, other, self) if _is_float(other) else super().__rsub__(other)

    def __mul__(self, other: Any) -> Any:
        return combined(mul, self, other) if _is_float(other) else super().__mul__(other)

    def __rmul__(self, other: Any) -> Any:
        return combined(mul, other, self) if _is_float(other) else super().__rmul__(other)

    def __pow__(self, other: Any, modulus: Any = None) -> Any:
        if type(other) is int and 0 <= other <= 8 and modulus is None:
            return super().__pow__(other)
        return combined(power, self, other) if _is_float(other) and modulus is None else pow(self.fix(), other, modulus)


def _forward(cls: type, like: type) -> None:
    """Gives a class the methods of numbers that it does not define: they fix its value."""

    def fixing(name: str) -> Callable[..., Any]:
        return lambda self, *args: getattr(self.fix(), name)(*args)

    for name in dir(like):
        is_own = getattr(cls, name, None) is not getattr(object, name, None)
        if name.startswith("__") and callable(getattr(like, name)) and not is_own and name not in _OBJECTS:
            setattr(cls, name, fixing(name))


_OBJECTS = frozenset(
    {"__class__", "__delattr__", "__dir__", "__doc__", "__getattribute__", "__getnewargs__", "__getstate__", "__init__",
     "__init_subclass__", "__ne__", "__new__", "__reduce__", "__setattr__", "__sizeof__", "__subclasshook__", "__getformat__"}
)  # fmt: skip
_forward(TracedSize, int)


class TracedFloat:
    """A float that Python computes from sizes.

    Args:
        function: a function of the operands.
        operands: sizes, numbers and other expressions.
    """

    __array_ufunc__ = None
    __slots__ = ("function", "operands", "sizes", "value")

    def __init__(self, function: Callable[..., Any], operands: tuple[Any, ...]) -> None:
        self.function, self.operands = function, operands
        self.sizes = next(x.sizes for x in operands if is_traced(x))
        self.value = function(*[x.value if is_traced(x) else x for x in operands])

    @property
    def __class__(self) -> type:
        return float  # for isinstance

    @__class__.setter
    def __class__(self, other: type) -> None:
        raise TypeError("a number keeps its class")

    def at(self, values: Evaluation) -> Any:
        """Returns the value for other sizes."""
        return self.function(*[evaluated(x, values) for x in self.operands])

    def fix(self) -> float:
        """Returns the value; the sizes that it is made of are then the only ones for which the trace is right."""
        for operand in self.operands:
            if is_traced(operand):
                operand.fix()
        value: float = self.value
        return value

    def __getattr__(self, name: str) -> Any:
        return getattr(self.fix() if hasattr(float, name) else 0.0, name)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return np.asarray(self.fix(), dtype)

    def __hash__(self) -> int:
        return object.__hash__(self) if _is_own(sys._getframe(1)) else hash(self.fix())

    def __reduce_ex__(self, protocol: Any) -> Any:
        return float, (self.fix(),)

    def __copy__(self) -> TracedFloat:
        return self

    def __deepcopy__(self, memo: Any) -> TracedFloat:
        return self

    def __add__(self, other: Any) -> Any:
        return combined(add, self, other)

    def __radd__(self, other: Any) -> Any:
        return combined(add, other, self)

    def __sub__(self, other: Any) -> Any:
        return combined(sub, self, other)

    def __rsub__(self, other: Any) -> Any:
        return combined(sub, other, self)

    def __mul__(self, other: Any) -> Any:
        return combined(mul, self, other)

    def __rmul__(self, other: Any) -> Any:
        return combined(mul, other, self)

    def __truediv__(self, other: Any) -> Any:
        return combined(truediv, self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return combined(truediv, other, self)

    def __neg__(self) -> Any:
        return TracedFloat(neg, (self,))

    def __pow__(self, other: Any, modulus: Any = None) -> Any:
        return combined(power, self, other) if modulus is None else pow(self.fix(), other, modulus)


_forward(TracedFloat, float)


def is_traced(value: Any) -> bool:
    """Whether a number is a size, or made of sizes, of a trace for many sizes."""
    return type(value) in TRACED


TRACED = frozenset({TracedSize, TracedFloat})


def key_of(value: Any) -> Any:
    """Returns a key that is equal for equal expressions alone."""
    if type(value) is TracedSize:
        return value.terms
    if type(value) is TracedFloat:
        return value.function, *map(key_of, value.operands)
    return type(value), repr(value)


def evaluated(value: Any, values: Evaluation) -> Any:
    """Returns the value of a number for other sizes."""
    if type(value) is TracedFloat:
        return value.at(values)
    return values.of(value)


def as_index(value: Any) -> int:
    """Returns `operator.index` of a value; a traced size stays one.

    Raises:
        TypeError: it is no integer.
    """
    found: int = value if is_traced(value) else index(value)
    return found


def float_of(function: Callable[[int], float], size: int) -> float:
    """Returns a function of a size, which must depend on nothing else."""
    found: float = TracedFloat(function, (size,)) if is_traced(size) else function(size)  # type: ignore[assignment]
    return found


def combined(function: Callable[[Any, Any], Any], x: Any, y: Any) -> Any:
    """Returns a function of two numbers, one of them traced; of other operands than numbers, the value with its size fixed."""
    if all(type(each) in _NUMBERS or is_traced(each) for each in (x, y)):
        found = TracedFloat(function, (x, y))
        return found if type(found.value) is float else found.fix()
    return function(*[each.fix() if is_traced(each) else each for each in (x, y)])


def _is_float(value: Any) -> bool:
    return type(value) is float or type(value) is TracedFloat


def _is_own(frame: Any) -> bool:
    """Whether code of nnc asks, whose tables keep sizes of traces apart."""
    while frame is not None and frame.f_globals.get("__name__") == "weakref":  # a table that is written in Python
        frame = frame.f_back
    return frame is None or str(frame.f_globals.get("__name__", "")).partition(".")[0] == "nnc"
