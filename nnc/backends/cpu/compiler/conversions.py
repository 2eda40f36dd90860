"""float16 to float32 and back, for processors that have no instructions for it: code generation calls functions of these names.

A system's compiler would bring them in a library of its own.
"""

from __future__ import annotations

from collections.abc import Callable

from nnc.base import dtypes
from nnc.base.dtypes import DType
from nnc.lower.kernels.builder import Code, Value, scalar_type

NAMES = ("__truncsfhf2", "__extendhfsf2")


def conversions_text() -> str:
    """Both, as LLVM's text. Numbers are rounded to nearest, halves to even."""
    functions = [
        _function("__truncsfhf2", dtypes.float32, dtypes.float16, _half_of_float),
        _function("__extendhfsf2", dtypes.float16, dtypes.float32, _float_of_half),
    ]
    return "\n".join(code.text() for code in functions)


def _function(name: str, source: DType, target: DType, body: Callable[[Code, Value], Value]) -> Code:
    code = Code(name, [(scalar_type(source), "x")], returns=scalar_type(target))
    code.ret(body(code, Value("%x", source)))
    return code


def _word(code: Code, value: int) -> Value:
    return code.constant(value, dtypes.uint32)


def _half_of_float(code: Code, x: Value) -> Value:
    bits = code.bitcast(x, dtypes.uint32)
    sign = code.and_(bits, _word(code, 0x80000000))
    size = code.xor(bits, sign)
    odd = code.and_(code.shr(size, _word(code, 13)), _word(code, 1))
    shifted = code.sub(
        size, _word(code, ((127 - 15) << 23) - 0xFFF)
    )  # another exponent, and all but half a unit for rounding
    normal = code.shr(code.add(shifted, odd), _word(code, 13))
    # 0.5 has the smallest float16 as its last bit, so adding it rounds there.
    sum_ = code.add(code.bitcast(size, dtypes.float32), code.constant(0.5, dtypes.float32))
    small = code.sub(code.bitcast(sum_, dtypes.uint32), _word(code, 0x3F000000))
    not_finite = code.select(
        code.compare("gt", size, _word(code, 0x7F800000)), _word(code, 0x7E00), _word(code, 0x7C00)
    )
    result = code.select(code.compare("lt", size, _word(code, 113 << 23)), small, normal)
    result = code.select(code.compare("ge", size, _word(code, 143 << 23)), not_finite, result)
    result = code.or_(result, code.shr(sign, _word(code, 16)))
    return code.bitcast(code.convert(result, dtypes.uint16), dtypes.float16)


def _float_of_half(code: Code, x: Value) -> Value:
    bits = code.convert(code.bitcast(x, dtypes.uint16), dtypes.uint32)
    sign = code.shl(code.and_(bits, _word(code, 0x8000)), _word(code, 16))
    size = code.shl(code.and_(bits, _word(code, 0x7FFF)), _word(code, 13))
    exponent = code.and_(size, _word(code, 0x7C00 << 13))
    normal = code.add(size, _word(code, (127 - 15) << 23))
    not_finite = code.add(normal, _word(code, (128 - 16) << 23))
    smallest = code.bitcast(_word(code, 113 << 23), dtypes.float32)
    scaled = code.sub(code.bitcast(code.add(normal, _word(code, 1 << 23)), dtypes.float32), smallest)
    result = code.select(code.compare("eq", exponent, _word(code, 0)), code.bitcast(scaled, dtypes.uint32), normal)
    result = code.select(code.compare("eq", exponent, _word(code, 0x7C00 << 13)), not_finite, result)
    return code.bitcast(code.or_(result, sign), dtypes.float32)
