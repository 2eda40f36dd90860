"""Instructions on floating-point numbers.

Every format rounds once. Approximations are computed in float64 and rounded, so they are closer than a GPU's own. A result
that is not a number is any NaN, but for `min` and `max`, which make the NaN of a GPU.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nnc.testing.devices.ptx.decoding import Compute, Decode, Modifiers, Scope, Step, elementwise
from nnc.testing.devices.ptx.instructions.integers import by_parts
from nnc.testing.devices.ptx.rounding import (  # fmt: skip
    exact_sum,
    flush,
    fma_double,
    fma_odd,
    fma_single,
    nan_of,
    narrow,
    saturate,
    to_odd,
    widen,
)
from nnc.testing.devices.ptx.syntax import Instruction
from nnc.testing.devices.ptx.values import Array, Type

_NATIVE: dict[str, Compute] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "sqrt": np.sqrt,
    "rcp": lambda x: x.dtype.type(1) / x,
}  # fmt: skip


def _odd_quotient(x: Array, y: Array) -> Array:
    quotient = x / y
    error = np.where(np.isfinite(quotient) & np.isfinite(y), fma_double(-quotient, y, x) * np.sign(y), 0.0)
    return to_odd(quotient, error)


def _odd_root(x: Array) -> Array:
    root = np.sqrt(x)
    return to_odd(root, np.where(np.isfinite(root), fma_double(-root, root, x), 0.0))


_ODD: dict[str, Compute] = {  # float64 of float32 and narrower numbers, rounded to odd
    "add": lambda x, y: to_odd(*exact_sum(x, y)),
    "sub": lambda x, y: to_odd(*exact_sum(x, -y)),
    "mul": lambda x, y: x * y,
    "fma": fma_odd,
    "div": _odd_quotient,
    "rcp": lambda x: _odd_quotient(np.ones(1), x),
    "sqrt": _odd_root,
}


def _rounded(name: str, kind: Type, mode: str) -> Compute | None:
    """Returns the function of an opcode in a format, or None where there is none."""
    if kind.bits == 64 and mode != "rn":
        return None
    if name == "fma" and mode == "rn" and kind.bits >= 32:
        return fma_double if kind.bits == 64 else fma_single
    if kind.bits >= 32 and mode == "rn":
        return _NATIVE[name]
    odd = _ODD[name]
    return lambda *operands: narrow(odd(*(widen(each, kind) for each in operands)), kind, mode)


def _finished(function: Compute, kind: Type, modifiers: Modifiers) -> Compute:
    """Adds the modifiers that flush, saturate or cut off the result."""
    if modifiers.take("ftz"):
        plain = function
        function = lambda *operands: flush(plain(*(flush(each, kind) for each in operands)), kind)
    if modifiers.take("sat"):
        return _then(function, lambda x: saturate(x, kind))
    if modifiers.take("relu"):
        return _then(function, lambda x: relu(x, kind))
    return function


def _then(first: Compute, second: Callable[[Array], Array]) -> Compute:
    return lambda *operands: second(first(*operands))


def relu(values: Array, kind: Type) -> Array:
    """Returns the numbers with negative ones replaced by 0."""
    wide = widen(values, kind)
    return narrow(np.where(np.isnan(wide), np.nan, np.where(wide > 0, wide, 0.0)), kind)


def _arithmetic(name: str, count: int) -> Decode:
    """Decodes an operation that is rounded once, or approximated."""

    def decode(instruction: Instruction, scope: Scope) -> Step:
        modifiers = Modifiers(instruction, scope)
        if not modifiers.kinds:
            scope.unknown(instruction, "it has no type")
        kind = modifiers.kinds[0]
        part = kind.part or kind
        approximate = name in ("div", "rcp", "sqrt") and modifiers.take("approx", "full")
        mode = modifiers.take("rn", "rz", "rm", "rp") or "rn"
        function = _approximate(_WIDE[name], part) if approximate else _rounded(name, part, mode)
        if function is None:
            scope.unknown(instruction, f"the rounding .{mode} of {part.name}")
        function = by_parts(_finished(function, part, modifiers), kind)
        modifiers.finish(1)
        return elementwise(instruction, scope, [kind] * count, function)

    return decode


def _approximate(function: Compute, kind: Type) -> Compute:
    """Computes in float64; an approximation of a float64 has no more than the upper half of its bits."""
    if kind.bits == 64:
        upper = np.uint64(0xFFFFFFFF00000000)
        return lambda *operands: (function(*operands).view(np.uint64) & upper).view(np.float64)
    return lambda *operands: narrow(function(*(widen(each, kind) for each in operands)), kind)


_WIDE: dict[str, Compute] = {
    "div": np.divide,
    "rcp": lambda x: 1.0 / x,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "ex2": np.exp2,
    "lg2": np.log2,
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
}


def _function(name: str) -> Decode:
    """Decodes a function that is always approximated."""

    def decode(instruction: Instruction, scope: Scope) -> Step:
        modifiers = Modifiers(instruction, scope)
        modifiers.need("approx")
        kind = modifiers.kinds[0]
        part = kind.part or kind
        function = by_parts(_finished(_approximate(_WIDE[name], part), part, modifiers), kind)
        modifiers.finish(1)
        return elementwise(instruction, scope, [kind], function)

    return decode


def _extreme(is_max: bool) -> Decode:
    """Decodes `min` and `max`: -0 is less than 0, and a NaN is left out, or wins with `.NaN`."""

    def decode(instruction: Instruction, scope: Scope) -> Step:
        modifiers = Modifiers(instruction, scope)
        nan_wins = bool(modifiers.take("NaN"))
        magnitude = bool(modifiers.take("abs"))
        opposite = bool(modifiers.take("xorsign"))
        if magnitude or opposite:
            scope.unknown(instruction, "the modifier .xorsign.abs")
        kind = modifiers.kinds[0]
        part = kind.part or kind
        chosen = lambda x, y: choose(x, y, part, is_max, nan_wins)
        function = by_parts(_finished(chosen, part, modifiers), kind)
        modifiers.finish(1)
        operands = [kind] * (len(instruction.operands) - 1)
        return elementwise(instruction, scope, operands, lambda *given: _fold(function, given))

    return decode


def _fold(function: Compute, operands: tuple[Array, ...]) -> Array:
    result = operands[0]
    for each in operands[1:]:
        result = function(result, each)
    return result


def choose(x: Array, y: Array, kind: Type, is_max: bool, nan_wins: bool) -> Array:
    """Returns the smaller or the larger of two numbers; -0 is less than 0.

    Args:
        is_max: whether the larger one is returned.
        nan_wins: whether the result is NaN if one operand is; otherwise it is the other operand.
    """
    left, right = widen(x, kind), widen(y, kind)
    tied = left == right
    takes_left = np.where(tied, np.signbit(left) != is_max, (left > right) if is_max else (left < right))
    no_left, no_right = np.isnan(left), np.isnan(right)
    result = np.where((takes_left & ~no_left) | no_right, x, y)
    no_result = (no_left | no_right) if nan_wins else (no_left & no_right)
    return np.where(no_result, nan_of(kind), result)


def _sign(change: Callable[[Array, Array], Array]) -> Decode:
    """Decodes an instruction on the sign alone."""

    def decode(instruction: Instruction, scope: Scope) -> Step:
        modifiers = Modifiers(instruction, scope)
        kind = modifiers.kinds[0]
        part = kind.part or kind
        bit = part.unsigned.type(1 << (part.bits - 1))
        function = _finished(lambda x: change(x.view(part.unsigned), bit).view(part.dtype), part, modifiers)
        modifiers.finish(1)
        return elementwise(instruction, scope, [kind], by_parts(function, kind))

    return decode


def _test(instruction: Instruction, scope: Scope) -> Step:
    """Decodes `testp`: a property of a number."""
    modifiers = Modifiers(instruction, scope)
    test = _TESTS[modifiers.need(*_TESTS)]
    (kind,) = modifiers.finish(1)
    return elementwise(instruction, scope, [kind], test)


def _is_normal(x: Array) -> Array:
    return np.isfinite(x) & (np.abs(x) >= np.finfo(x.dtype).tiny)


_TESTS: dict[str, Compute] = {
    "finite": np.isfinite,
    "infinite": np.isinf,
    "number": lambda x: ~np.isnan(x),
    "notanumber": np.isnan,
    "normal": _is_normal,
    "subnormal": lambda x: np.isfinite(x) & ~_is_normal(x) & (x != 0),
}


def _copy_sign(instruction: Instruction, scope: Scope) -> Step:
    (kind,) = Modifiers(instruction, scope).finish(1)
    return elementwise(instruction, scope, [kind, kind], lambda sign, x: np.copysign(x, sign))


DECODERS: dict[str, Decode] = {
    "add": _arithmetic("add", 2),
    "sub": _arithmetic("sub", 2),
    "mul": _arithmetic("mul", 2),
    "fma": _arithmetic("fma", 3),
    "mad": _arithmetic("fma", 3),
    "div": _arithmetic("div", 2),
    "rcp": _arithmetic("rcp", 1),
    "sqrt": _arithmetic("sqrt", 1),
    **{name: _function(name) for name in ("rsqrt", "ex2", "lg2", "sin", "cos", "tanh")},
    "min": _extreme(is_max=False),
    "max": _extreme(is_max=True),
    "neg": _sign(lambda bits, sign: bits ^ sign),
    "abs": _sign(lambda bits, sign: bits & ~sign),
    "testp": _test,
    "copysign": _copy_sign,
}
