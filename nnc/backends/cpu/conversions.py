"""Conversions to and from 16-bit floats that code generation calls as functions where the processor has no instruction for them.

Elsewhere a compiler's support library has these functions, under the same names.
"""

from __future__ import annotations

from collections.abc import Callable

from nnc import dtypes
from nnc.dtypes import DType
from nnc.lower.codegen.builder import Code, Value, scalar_type

NAMES = ("__truncsfhf2", "__truncdfhf2", "__truncsfbf2", "__truncdfbf2", "__extendhfsf2")


def conversions_text() -> str:
    """Their declarations and definitions, as LLVM's text. Everything is rounded once, to nearest, halves to even."""
    functions = [
        _function("__truncsfhf2", dtypes.float32, dtypes.float16, _half_of_float),
        _function("__truncdfhf2", dtypes.float64, dtypes.float16, _half_of_double),
        _function("__truncsfbf2", dtypes.float32, dtypes.bfloat16, _bfloat_of_float),
        _function("__truncdfbf2", dtypes.float64, dtypes.bfloat16, _bfloat_of_double),
        _function("__extendhfsf2", dtypes.float16, dtypes.float32, _float_of_half),
    ]
    declarations = set().union(*[code.declarations for code in functions])
    return "\n".join([*sorted(declarations), *[code.text() for code in functions]])


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


def _bfloat_of_float(code: Code, x: Value) -> Value:
    bits = code.bitcast(x, dtypes.uint32)
    odd = code.and_(code.shr(bits, _word(code, 16)), _word(code, 1))
    rounded = code.shr(code.add(code.add(bits, _word(code, 0x7FFF)), odd), _word(code, 16))
    quiet = code.or_(code.shr(bits, _word(code, 16)), _word(code, 0x40))
    result = code.select(code.compare("uno", x, x), quiet, rounded)
    return code.bitcast(code.convert(result, dtypes.uint16), dtypes.bfloat16)


def _half_of_double(code: Code, x: Value) -> Value:
    return code.convert(_odd_float(code, x), dtypes.float16)


def _bfloat_of_double(code: Code, x: Value) -> Value:
    return _bfloat_of_float(code, _odd_float(code, x))


def _odd_float(code: Code, x: Value) -> Value:
    """A double cut to a float whose last bit is 1 where something was cut off: rounding that once more is rounding once."""
    near = code.convert(x, dtypes.float32)
    back, bits = code.convert(near, dtypes.float64), code.bitcast(near, dtypes.uint32)
    above = code.convert(code.compare("gt", code.intrinsic("fabs", back), code.intrinsic("fabs", x)), dtypes.uint32)
    odd = code.or_(code.sub(bits, above), _word(code, 1))
    inexact = code.and_(code.compare("ne", back, x), code.compare("eq", x, x))
    return code.bitcast(code.select(inexact, odd, bits), dtypes.float32)


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
