"""Conversions between types: `cvt`, with every rounding, and saturation."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nnc.testing.devices.ptx.decoding import Compute, Decode, Modifiers, Scope, Step, elementwise
from nnc.testing.devices.ptx.instructions.floats import relu
from nnc.testing.devices.ptx.rounding import flush, narrow, saturate, widen
from nnc.testing.devices.ptx.syntax import Instruction
from nnc.testing.devices.ptx.values import F32, Array, Type

_TO_INTEGER: dict[str, Callable[[Array], Array]] = {
    "rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil,
}  # fmt: skip
_TO_FLOAT = ("rn", "rz", "rm", "rp")


def _convert(instruction: Instruction, scope: Scope) -> Step:
    modifiers = Modifiers(instruction, scope)
    if len(modifiers.kinds) != 2:
        scope.unknown(instruction, "it does not have two types")
    target, source = modifiers.kinds
    if target.part is not None:
        return _convert_pair(instruction, scope, modifiers)
    if not target.is_float and not source.is_float:
        function = _integers(target, bool(modifiers.take("sat")))
    else:
        function = _numbers(instruction, scope, modifiers)
    modifiers.finish(2)
    return elementwise(instruction, scope, [source], function)


def _integers(target: Type, saturates: bool) -> Compute:
    if not saturates:
        return lambda x: x.astype(target.dtype)
    limits = np.iinfo(target.dtype)

    def clip(x: Array) -> Array:
        low, high = max(limits.min, np.iinfo(x.dtype).min), min(limits.max, np.iinfo(x.dtype).max)
        return np.clip(x, x.dtype.type(low), x.dtype.type(high)).astype(target.dtype)

    return clip


def _numbers(instruction: Instruction, scope: Scope, modifiers: Modifiers) -> Compute:
    """Returns the function of a conversion from or to floating-point numbers."""
    target, source = modifiers.kinds
    rounds_to_integer = modifiers.take(*_TO_INTEGER)
    mode = modifiers.take(*_TO_FLOAT) or "rn"
    flushes, saturates, no_negative = (bool(modifiers.take(name)) for name in ("ftz", "sat", "relu"))
    if not target.is_float:
        if rounds_to_integer is None:
            scope.unknown(instruction, "its rounding is missing")
        to_integer = _TO_INTEGER[rounds_to_integer]
        return lambda x: _to_integer(to_integer(widen(_flushed(x, source, flushes), source)), target)

    def convert(x: Array) -> Array:
        if not source.is_float:
            result = (
                narrow(_integers_to_wide(x), target, mode)
                if _is_split(source, target, mode)
                else x.astype(target.dtype)
            )
        else:
            wide = widen(_flushed(x, source, flushes), source)
            result = narrow(wide if rounds_to_integer is None else _TO_INTEGER[rounds_to_integer](wide), target, mode)
        if saturates:
            result = saturate(result, target)
        result = relu(result, target) if no_negative else result
        return _flushed(result, target, flushes)

    return convert


def _is_split(source: Type, target: Type, mode: str) -> bool:
    """Whether integers go through float64: NumPy converts them itself where it rounds once, to nearest."""
    return not (target.bits >= 32 and mode == "rn")


def _integers_to_wide(x: Array) -> Array:
    """Integers as float64, rounded to odd."""
    wide = x.astype(np.float64)
    if x.dtype.itemsize < 8:
        return wide
    low = x & x.dtype.type(0xFFF)
    # 52 bits, the last of which says that there were more
    cut = (x - low) | np.where(low != 0, x.dtype.type(0x1000), x.dtype.type(0))
    is_large = np.abs(wide) >= 2.0**53
    return np.where(is_large, cut.astype(np.float64), wide)


def _flushed(x: Array, kind: Type, flushes: bool) -> Array:
    return flush(x, kind) if flushes and kind.name == "f32" else x


def _to_integer(x: Array, target: Type) -> Array:
    """Whole numbers as integers: the nearest one that the type has; 0 for NaN."""
    limits = np.iinfo(target.dtype)
    is_high, is_low = x >= float(limits.max) + 1.0, x < float(limits.min)
    inside = np.where(is_high | is_low | np.isnan(x), 0.0, x).astype(target.dtype)
    return np.where(is_high, target.dtype.type(limits.max), np.where(is_low, target.dtype.type(limits.min), inside))


def _convert_pair(instruction: Instruction, scope: Scope, modifiers: Modifiers) -> Step:
    """Decodes a conversion of two numbers into one packed register, the first into its upper half."""
    target, source = modifiers.kinds
    part = target.part
    if part is None or not part.is_float or source != F32:
        scope.unknown(instruction, "the types of its packed numbers")
    mode = modifiers.need("rn", "rz")
    no_negative = bool(modifiers.take("relu"))
    modifiers.finish(2)

    def half(x: Array) -> Array:
        result = narrow(widen(x, source), part, mode)
        return (relu(result, part) if no_negative else result).view(np.uint16).astype(np.uint32)

    return elementwise(instruction, scope, [source, source], lambda high, low: half(high) << np.uint32(16) | half(low))


DECODERS: dict[str, Decode] = {"cvt": _convert}
