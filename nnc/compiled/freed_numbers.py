"""Frees numbers in fields of dataclasses: settings of a compiled function's arguments become operands once they change.

A number in a field is a setting, so a function that is called with `State(w, step=i)` would be traced for each step. When such a
number changes, the function is traced with a weak array in its place, as for a number that is an argument itself. Where that
cannot be (the number decides a shape or a branch of Python, or the dataclass is taken apart within the function, where a setting
is no leaf), the number stays a setting.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import field
from typing import Any, TypeVar

from nnc import tree
from nnc.array.array import as_value
from nnc.base.bounded import BoundedCache
from nnc.base.records import record
from nnc.compiled.signature import Call, Key

T = TypeVar("T")
_FAMILIES = 256  # of calls of one function


@record
class _Family:
    """Calls that differ only in the numbers in fields: the numbers of the first call, those that have changed since, and those
    that must stay settings. Numbers are counted in the order of the arguments.
    """

    first: tuple[int | float, ...]
    changed: set[int] = field(default_factory=set)
    needed: set[int] = field(default_factory=set)


class FreedNumbers:
    """Knows which numbers in fields of a compiled function's arguments are operands. Callers hold a lock."""

    def __init__(self) -> None:
        self._families: BoundedCache[Key, _Family] = BoundedCache(_FAMILIES)

    def clear(self) -> None:
        """Forgets all calls."""
        self._families.clear()

    def free(self, call: Call, device: str | None) -> Call:
        """Returns a call with operands in place of the numbers that have changed since earlier calls, or the call itself.

        Args:
            device: the device that the user chose.
        """
        numbers: list[int | float] = []
        whole = _with_freed(call, None, device, numbers)
        if whole is call:
            return call
        family = self._families.find(whole.key)
        if family is None:
            self._families.keep(whole.key, _Family(tuple(numbers)))
            return call
        pairs = zip(numbers, family.first, strict=True)
        family.changed.update(i for i, (x, first) in enumerate(pairs) if not tree.same_settings(x, first))
        chosen = family.changed - family.needed
        if len(chosen) == len(numbers):
            return whole
        return _with_freed(call, chosen, device) if chosen else call

    def trace(self, call: Call, device: str | None, trace: Callable[[Call], T]) -> tuple[Call, T]:
        """Traces the function for a call in which as many changed numbers as it allows are operands.

        Args:
            device: the device that the user chose.
            trace: traces the function for a call.

        Returns:
            the call that was traced, and the trace.
        """
        freed = self.free(call, device)
        if freed is call:
            return call, trace(call)
        try:
            return freed, trace(freed)
        except Exception:  # a mistake that has nothing to do with the numbers is raised again below
            pass
        family = self._families.find(_with_freed(call, None, device).key)
        wanted = sorted(family.changed - family.needed) if family is not None else []
        kept: set[int] = set()
        for i in wanted if len(wanted) > 1 else ():
            try:
                trace(_with_freed(call, {*kept, i}, device))
                kept.add(i)
            except Exception:  # likewise
                continue
        freed = _with_freed(call, kept, device) if kept else call
        traced = trace(freed)
        if family is not None:
            family.needed.update({*wanted} - kept)
        return freed, traced


def _with_freed(
    call: Call, chosen: Set[int] | None, device: str | None, numbers: list[int | float] | None = None
) -> Call:
    """Returns a call with arrays in place of numbers in fields; the call itself where it has no such numbers.

    Args:
        chosen: the positions of the numbers to replace; None: all.
        device: the device that the user chose.
        numbers: a list to which all these numbers are added.
    """

    def change(i: int, number: int | float) -> Any:
        if numbers is not None:
            numbers.append(number)
        fits = isinstance(number, float) or -(1 << 63) <= number < 1 << 63
        return as_value(number) if fits and (chosen is None or i in chosen) else number

    signature, positions = call.signature, call.key.positions
    given = signature.dynamic(call.args, call.kwargs, positions)
    changed = tree.change_numbers(given, change)
    if changed is given:
        return call
    rest = iter(changed[0])
    args = tuple([x if i in positions else next(rest) for i, x in enumerate(call.args)])
    freed = signature.take_apart(args, {**call.kwargs, **changed[1]}, device)
    freed.has_freed_numbers = True
    return freed
