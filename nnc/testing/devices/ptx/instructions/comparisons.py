"""Comparisons and selections: `setp`, `set`, `selp`, `slct`."""

from __future__ import annotations

import operator
from collections.abc import Callable

import numpy as np

from nnc.testing.devices.ptx.decoding import Decode, Modifiers, Scope, Step, elementwise
from nnc.testing.devices.ptx.rounding import flush, narrow, widen
from nnc.testing.devices.ptx.syntax import Instruction
from nnc.testing.devices.ptx.values import F32, PRED, S32, Array, Mask, Type, split
from nnc.testing.devices.ptx.wave import Wave

Test = Callable[[Array, Array], Array]

_ORDERED: dict[str, Test] = {
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
}  # fmt: skip
_UNSIGNED: dict[str, Test] = {"lo": operator.lt, "ls": operator.le, "hi": operator.gt, "hs": operator.ge}


def _has_nan(x: Array, y: Array) -> Array:
    return np.isnan(x) | np.isnan(y)


def _or_nan(test: Test) -> Test:
    return lambda x, y: test(x, y) | _has_nan(x, y)


_FLOAT: dict[str, Test] = {
    **_ORDERED,
    "ne": lambda x, y: (x != y) & ~_has_nan(x, y),
    **{f"{name}u": _or_nan(test) for name, test in _ORDERED.items()},
    "num": lambda x, y: ~_has_nan(x, y),
    "nan": _has_nan,
}
_COMBINE: dict[str, Test] = {"and": operator.and_, "or": operator.or_, "xor": operator.xor}


def _test_of(instruction: Instruction, scope: Scope, modifiers: Modifiers, kind: Type) -> Test:
    """Returns the comparison that the modifiers name."""
    flushes = modifiers.take("ftz")
    if not kind.is_float:
        tests = {**_ORDERED, **_UNSIGNED}
        return tests[modifiers.need(*tests)]
    test = _FLOAT[modifiers.need(*_FLOAT)]
    if flushes:
        return lambda x, y: test(flush(x, kind), flush(y, kind))
    return (lambda x, y: test(widen(x, kind), widen(y, kind))) if kind.bits == 16 else test


def _set_predicate(instruction: Instruction, scope: Scope) -> Step:
    modifiers = Modifiers(instruction, scope)
    kind = modifiers.kinds[0]
    combine = modifiers.take(*_COMBINE)
    test = _test_of(instruction, scope, modifiers, kind.part or kind)
    modifiers.finish(1, operands=(4,) if combine else (3,))
    first, _, second = instruction.operands[0].partition("|")
    left, right = (scope.read(text, kind) for text in instruction.operands[1:3])
    write, write_other = scope.write(first), scope.write(second or "_")
    with_other = scope.read(instruction.operands[3], PRED) if combine else None
    join = _COMBINE[combine] if combine else operator.and_

    def step(wave: Wave, mask: Mask) -> None:
        result, other = _both(test, left(wave, mask), right(wave, mask), kind)
        if with_other is not None:
            given = with_other(wave, mask)
            result, other = join(result, given), join(other, given)
        write(wave, mask, result)
        write_other(wave, mask, other)

    return step


def _both(test: Test, x: Array, y: Array, kind: Type) -> tuple[Array, Array]:
    """Returns the two predicates of a comparison: it and its opposite, or those of the lower and the upper one of packed
    numbers.
    """
    part = kind.part
    if part is None:
        result = test(x, y)
        return result, ~result
    low, high = (test(a.view(part.dtype), b.view(part.dtype)) for a, b in zip(split(x, 16), split(y, 16), strict=True))
    return low, high


def _set(instruction: Instruction, scope: Scope) -> Step:
    """Decodes `set`: all bits, or the number 1, where a comparison holds."""
    modifiers = Modifiers(instruction, scope)
    if len(modifiers.kinds) != 2:
        scope.unknown(instruction, "it does not have two types")
    target, kind = modifiers.kinds
    if target.part is not None or kind.part is not None:
        scope.unknown(instruction, "packed numbers")
    test = _test_of(instruction, scope, modifiers, kind)
    modifiers.finish(2)
    true = narrow(np.ones(1), target) if target.is_float else (~np.zeros(1, target.dtype))
    zero = np.zeros(1, target.dtype)
    return elementwise(instruction, scope, [kind, kind], lambda x, y: np.where(test(x, y), true, zero))


def _select(instruction: Instruction, scope: Scope) -> Step:
    (kind,) = Modifiers(instruction, scope).finish(1, operands=(4,))
    target, left, right, by = instruction.operands
    values = scope.raw(left, kind), scope.raw(right, kind)
    known = scope.defined(left), scope.defined(right)
    write, limit, condition = scope.write(target), scope.limit_defined(target), scope.read(by, PRED)

    def step(wave: Wave, mask: Mask) -> None:
        chosen = condition(wave, mask)
        is_set = _select_known(known[0](wave), known[1](wave), chosen)
        write(wave, mask, np.where(chosen, values[0](wave, mask), values[1](wave, mask)))
        limit(wave, mask, is_set)

    return step


def _select_known(left: Array | bool, right: Array | bool, chosen: Array) -> Array | bool:
    return True if left is True and right is True else np.where(chosen, left, right)


def _select_by_sign(instruction: Instruction, scope: Scope) -> Step:
    """Decodes `slct`: the first value where a number is not negative."""
    modifiers = Modifiers(instruction, scope)
    flushes = modifiers.take("ftz")
    kind, by = modifiers.finish(2)
    if by not in (S32, F32):
        scope.unknown(instruction, f"it selects by {by.name}")

    def choose(x: Array, y: Array, number: Array) -> Array:
        return np.where((flush(number, by) if flushes else number) >= 0, x, y)

    return elementwise(instruction, scope, [kind, kind, by], choose)


DECODERS: dict[str, Decode] = {"setp": _set_predicate, "set": _set, "selp": _select, "slct": _select_by_sign}
