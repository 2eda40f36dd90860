"""Records of the compiler: dataclasses with slots, which nobody changes once they are made.

A frozen dataclass writes and compiles six methods when its module is imported, half a millisecond each time; a hundred of them
were a tenth of `import nnc` and the first decorated function. A record compiles its initializer alone and shares the other
methods. Mypy checks that nobody sets its fields; a frozen class checks so again at run time, and sets each field through a call.
So values that users are given are frozen dataclasses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: type[T]) -> type[T]:
    """Makes a record of a class; equal are records of one class with equal fields."""
    made: Any = dataclass(slots=True, eq=False, repr=False)(cls)
    made.__dataclass_params__.frozen = True  # so it counts for classes that inherit from it, and for code that asks
    found = fields(made)
    compared = _values_of([f.name for f in found if f.compare])
    hashed = _values_of([f.name for f in found if (f.compare if f.hash is None else f.hash)])

    def equals(self: Any, other: Any) -> Any:
        return compared(self) == compared(other) if other.__class__ is self.__class__ else NotImplemented

    methods = {"__eq__": equals, "__hash__": lambda self: hash(hashed(self)), "__repr__": _shown}
    for name, method in methods.items():
        if name not in cls.__dict__:
            setattr(made, name, method)
    return made  # type: ignore[no-any-return]


def _values_of(names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Returns the function that reads these fields."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda self: tuple([getattr(self, name) for name in names])


def _shown(self: Any) -> str:
    values = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in fields(self) if f.repr)
    return f"{type(self).__qualname__}({values})"
