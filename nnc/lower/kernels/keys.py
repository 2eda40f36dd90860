"""Keys: unsigned integers in the order in which a sort puts elements, for the printers of all devices.

A float's key is its bits with the sign turned (all bits, where it is negative). All NaN have the greatest key and both zeros
the same; so keys do not tell these apart, and a sort restores the original bits.
"""

from __future__ import annotations

from collections.abc import Sequence

from nnc.base import dtypes
from nnc.base.dtypes import DType
from nnc.lower.kernels.axes import word_of
from nnc.lower.kernels.builder import Code, Value


def has_keys(dtype: DType) -> bool:
    """Whether elements of a dtype are sorted by keys."""
    return not dtypes.is_complex(dtype)


def key_dtype(dtype: DType) -> DType:
    """Returns the dtype of keys: uint32 or uint64."""
    return dtypes.uint64 if dtype.itemsize == 8 else dtypes.uint32


def key_of(code: Code, x: Value, descending: bool) -> Value:
    """Returns the keys of values."""
    bits, wide = word_of(x.dtype), key_dtype(x.dtype)
    top = 1 << 8 * bits.itemsize - 1
    if dtypes.is_float(x.dtype):
        raw = code.bitcast(x, bits)
        negative = code.compare("ne", code.and_(raw, code.like(raw, top)), code.like(raw, 0))
        turned = code.xor(raw, code.select(negative, code.like(raw, 2 * top - 1), code.like(raw, top)))
        size = code.and_(raw, code.like(raw, top - 1))
        turned = code.select(code.compare("eq", size, code.like(size, 0)), code.like(raw, top), turned)
        turned = code.select(
            code.compare("gt", size, code.like(size, _infinity(x.dtype))), code.like(raw, 2 * top - 1), turned
        )
    elif dtypes.is_bool(x.dtype):
        turned = code.convert(x, bits)
    else:
        raw = code.bitcast(x, bits)
        turned = code.xor(raw, code.like(raw, top)) if x.dtype in dtypes.SIGNED else raw
    if descending:
        turned = code.not_(turned)
    return code.convert(turned, wide)


def value_of(code: Code, key: Value, dtype: DType, descending: bool) -> Value:
    """Returns the values of keys; NaN and 0 where the key stands for several."""
    bits = word_of(dtype)
    top = 1 << 8 * bits.itemsize - 1
    raw = code.convert(key, bits)
    if descending:
        raw = code.not_(raw)
    if dtypes.is_bool(dtype):
        return code.convert(raw, dtype)
    if dtypes.is_float(dtype):
        positive = code.compare("ne", code.and_(raw, code.like(raw, top)), code.like(raw, 0))
        raw = code.xor(raw, code.select(positive, code.like(raw, top), code.like(raw, 2 * top - 1)))
    elif dtype in dtypes.SIGNED:
        raw = code.xor(raw, code.like(raw, top))
    return code.bitcast(raw, dtype)


def is_ambiguous(code: Code, x: Value) -> Value:
    """Whether a float is one that its key does not tell: NaN or -0."""
    raw = code.bitcast(x, word_of(x.dtype))
    top = 1 << 8 * raw.dtype.itemsize - 1
    size = code.and_(raw, code.like(raw, top - 1))
    is_nan = code.compare("gt", size, code.like(size, _infinity(x.dtype)))
    return code.or_(is_nan, code.compare("eq", raw, code.like(raw, top)))


def _infinity(dtype: DType) -> int:
    return {"float16": 0x7C00, "bfloat16": 0x7F80, "float32": 0x7F800000, "float64": 0x7FF0000000000000}[dtype.name]


# -- elements of a sort ------------------------------------------------------------------------------------------------

Element = tuple[Value, ...]  # a key, perhaps with the position beside it; a register of each

POSITION_BITS = 32


def kinds_with_position(dtype: DType) -> tuple[DType, ...]:
    """Returns the dtypes of an element's registers: a key of at most 32 bits has its position in the lower half of a uint64, a
    longer one beside it.
    """
    return (dtypes.uint64,) if key_dtype(dtype) == dtypes.uint32 else (dtypes.uint64, dtypes.uint32)


def with_position(code: Code, key: Value, position: Value) -> Element:
    """Returns the element of a key and its position."""
    if key.dtype == dtypes.uint64:
        return key, code.convert(position, dtypes.uint32)
    wide = code.convert(key, dtypes.uint64)
    return (code.or_(code.shl(wide, code.like(wide, POSITION_BITS)), code.convert(position, dtypes.uint64)),)


def comes_before(code: Code, a: Element, b: Element) -> Value:
    """Whether one element comes before another."""
    less = code.compare("lt", a[0], b[0])
    if len(a) == 1:
        return less
    return code.or_(less, code.and_(code.compare("eq", a[0], b[0]), code.compare("lt", a[1], b[1])))


def select_element(code: Code, condition: Value, a: Element, b: Element) -> Element:
    """One of two elements."""
    return tuple(code.select(condition, x, y) for x, y in zip(a, b, strict=True))


def place_of(code: Code, array: str, i: Value, kind: DType) -> str:
    """Returns the address of number i of an array without gaps."""
    return code.offset(array, code.mul(i, code.integer(kind.itemsize)))


def load_element(code: Code, kinds: Sequence[DType], arrays: Sequence[str], i: Value, lanes: int = 0) -> Element:
    """Reads an element, or so many, from number i on: a register of each array."""
    pairs = zip(arrays, kinds, strict=True)
    return tuple(code.load(place_of(code, array, i, kind), kind, lanes) for array, kind in pairs)


def store_element(code: Code, arrays: Sequence[str], i: Value, element: Element) -> None:
    """Writes elements from number i on."""
    for array, value in zip(arrays, element, strict=True):
        code.store(place_of(code, array, i, value.dtype), value)
