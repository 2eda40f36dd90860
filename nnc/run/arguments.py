"""How compiled programs find their arguments: they read the objects of NumPy and Python where these lie in memory.

A call hands over two lists of arrays, the arguments and the memory made for the results. The spec, the order and the alignment that
the program was lowered for are checked there, too, for each array: one pass over the list, without any Python for an array.
The parts of the objects that are read belong to the interfaces that NumPy and CPython publish for C; `is_layout_known` makes sure.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache

import numpy as np

from nnc.base import dtypes
from nnc.base.dtypes import DType
from nnc.base.records import record
from nnc.graph import TensorSpec
from nnc.lower.kernels.builder import Code, Value
from nnc.lower.kernels.native import ALIGNED, CONTIGUOUS, DATA, DTYPE, FLAGS, HEAD, NDIM, SHAPE, WRITEABLE, Native
from nnc.lower.plan.stages import NDArray

TYPE = HEAD - 8
_SIZE, _ITEMS = HEAD, HEAD + 8  # of a list
_LANES = 8
_COUNTS, _ROW = 4, 4  # words at the start of a table, and of a row before the shape


@record
class FrameLayout:
    """The layout of a frame: positions of 64-bit words in its memory.

    First the lists `given` and `made`, the table of expected arguments, the callback, the arena, the number of the next call of the
    callback, a 0, and the caller's mode of floating-point arithmetic; then the addresses of inputs, where inputs end,
    addresses of results and of constants; the present iteration of each loop; the states of kernels; and numbers that follow from
    sizes, where the program's text leaves them out.
    """

    inputs: int
    made: int
    constants: int
    loops: int
    states: int
    numbers: int = 0

    given_at = 0
    made_at = 1
    table_at = 2
    callback_at = 3
    arena_at = 4
    next_call = 5
    mode_at = 6  # of floating-point arithmetic, as the caller has it

    @property
    def _padded(self) -> int:
        return -(-self.inputs // _LANES) * _LANES

    def input(self, i: int) -> int:
        """Returns the address of an input."""
        return 8 + i

    def result(self, i: int) -> int:
        """Returns the address of a result's memory."""
        return self.input(2 * self._padded) + i

    def constant(self, i: int) -> int:
        """Returns the address of a constant."""
        return self.result(self.made) + i

    def round(self, loop: int) -> int:
        """Returns the present iteration of a loop."""
        return self.constant(self.constants) + loop

    def state(self, i: int) -> int:
        """Returns the address of a kernel's state."""
        return self.round(self.loops) + i

    def number(self, i: int) -> int:
        """Returns a number that follows from sizes."""
        return self.state(self.states) + i

    @property
    def size(self) -> int:
        """The number of words."""
        return self.number(self.numbers)


@cache
def is_layout_known() -> bool:
    """Whether lists and arrays lie in memory as this file reads them; where they do not, programs run step by step from Python."""
    if ctypes.sizeof(ctypes.c_void_p) != 8 or np.ndarray.__basicsize__ < FLAGS + 4 or list.__basicsize__ < _ITEMS + 8:
        return False
    x = np.zeros((3, 5), np.float32)[1:, ::2]
    x.flags.writeable = False
    flags = ALIGNED * x.flags.aligned + CONTIGUOUS * x.flags.c_contiguous + WRITEABLE * x.flags.writeable
    listed = [x, None]
    return (
        _read(id(x) + TYPE) == id(np.ndarray)
        and _read(id(x) + DATA) == x.ctypes.data
        and ctypes.c_int32.from_address(id(x) + NDIM).value == 2
        and tuple((ctypes.c_int64 * 2).from_address(_read(id(x) + SHAPE))) == x.shape
        and _read(id(x) + DTYPE) == id(x.dtype)
        and ctypes.c_int32.from_address(id(x) + FLAGS).value & (ALIGNED | CONTIGUOUS | WRITEABLE) == flags
        and _read(id(listed) + _SIZE) == 2
        and _read(_read(id(listed) + _ITEMS)) == id(x)
    )


def _read(address: int) -> int:
    return ctypes.c_int64.from_address(address).value


def _own_dtype(dtype: DType) -> DType:
    """Returns the one object that NumPy gives arrays of a dtype."""
    return np.dtype(dtype.type)


def as_plain(array: NDArray, dtype: DType) -> NDArray:
    """Returns an array as `binder` takes it: no subclass of NumPy's, and with NumPy's own object for its dtype."""
    plain = np.asarray(array)
    own = _own_dtype(dtype)
    return plain if plain.dtype is own else plain.view(own)


def make_table(inputs: Sequence[TensorSpec], made: int, donated: Sequence[int]) -> ctypes.Array[ctypes.c_int64]:
    """Makes the table with which `binder` checks inputs: counts, donated inputs, and a row for each input. It must live as long as
    it is used.
    """
    words = [len(inputs), made, id(np.ndarray), len(donated), *donated]
    written = frozenset(donated)
    for i, spec in enumerate(inputs):
        flags = CONTIGUOUS | ALIGNED | (WRITEABLE if i in written else 0)
        words += [id(_own_dtype(spec.dtype)), flags, spec.ndim, spec.nbytes, *spec.shape]
    return (ctypes.c_int64 * len(words))(*words)


@cache
def binder() -> Native:
    """Returns the compiled function (frame, table) -> i64 that finds the arrays of a call.

    Returns:
        The function returns 0, or 1 + the number of an input that differs from the table, or shares memory that the program
            overwrites.
    """
    code = Code("KERNEL", (("ptr", "frame"), ("ptr", "table")))
    refuse = code.label("refuse")
    given, made = word(code, "%frame", FrameLayout.given_at), word(code, "%frame", FrameLayout.made_at)
    count, results, kind, donated = (word(code, "%table", i) for i in range(_COUNTS))
    refused = code.slot(count)
    padded = code.and_(code.add(count, code.integer(_LANES - 1)), code.integer(-_LANES))
    starts = code.offset("%frame", 8 * FrameLayout(0, 0, 0, 0, 0).input(0))
    ends = word_at(code, starts, padded)
    outputs = word_at(code, ends, padded)
    expect(code, length_of(code, pointer(code, given)), count, refuse)
    items = items_of(code, pointer(code, given))
    row = code.slot(code.add(donated, code.integer(_COUNTS)))
    with code.loop(0, count) as i:
        code.write(refused, i)
        x = pointer(code, element(code, items, i))
        at = word_at(code, "%table", code.read(row))
        flags = word(code, at, 1)
        axes = word(code, at, 2)
        expect(code, word(code, x, TYPE // 8), kind, refuse)
        expect(code, word(code, x, DTYPE // 8), word(code, at, 0), refuse)
        expect(code, code.and_(_half(code, x, FLAGS), flags), flags, refuse)
        expect(code, _half(code, x, NDIM), axes, refuse)
        shape = pointer(code, word(code, x, SHAPE // 8))
        expected = code.offset(at, 8 * _ROW)
        with code.loop(0, axes) as axis:
            expect(code, element(code, shape, axis), element(code, expected, axis), refuse)
        start = word(code, x, DATA // 8)
        code.store(word_at(code, starts, i), start)
        code.store(word_at(code, ends, i), code.add(start, word(code, at, 3)))
        code.write(row, code.add(code.add(code.read(row), axes), code.integer(_ROW)))
    made_items = items_of(code, pointer(code, made))
    with code.loop(0, results) as i:
        result = word(code, pointer(code, element(code, made_items, i)), DATA // 8)
        code.store(word_at(code, outputs, i), result)
    with code.loop(0, donated) as k:
        i = element(code, code.offset("%table", 8 * _COUNTS), k)
        code.write(refused, i)
        meets = code.slot(code.constant(0, dtypes.int64, _LANES))
        start, end = element(code, starts, i), element(code, ends, i)
        with code.loop(0, count, _LANES) as j:
            before = code.compare("lt", code.load(word_at(code, starts, j), dtypes.int64, _LANES), end)
            behind = code.compare("gt", code.load(word_at(code, ends, j), dtypes.int64, _LANES), start)
            met = code.select(code.and_(before, behind), code.integer(1), code.integer(0))
            code.write(meets, code.add(code.read(meets), met))
        alone = code.compare("le", code.reduce("add", code.read(meets)), code.integer(1))  # it meets itself
        following = code.label("next")
        code.branch(alone, following, refuse)
        code.place(following)
    code.ret(code.integer(0))
    code.place(refuse)
    code.ret(code.add(code.read(refused), code.integer(1)))
    return Native("\n".join([*sorted(code.declarations), code.text()]))


def word_at(code: Code, pointer: str, position: Value) -> str:
    """Returns the address of a word."""
    return code.offset(pointer, code.mul(position, code.integer(8)))


def element(code: Code, pointer: str, position: Value) -> Value:
    """Returns a word, at a position that is found out as code runs."""
    return code.load(word_at(code, pointer, position), dtypes.int64)


def word(code: Code, pointer: str, position: int) -> Value:
    """Returns a word."""
    return code.load(code.offset(pointer, 8 * position), dtypes.int64)


def length_of(code: Code, listed: str) -> Value:
    """Returns the number of items of a list."""
    return word(code, listed, _SIZE // 8)


def items_of(code: Code, listed: str) -> str:
    """Returns the address of the pointer to the items of a list."""
    return pointer(code, word(code, listed, _ITEMS // 8))


def _half(code: Code, pointer: str, offset: int) -> Value:
    """Returns an int32, widened."""
    return code.convert(code.load(code.offset(pointer, offset), dtypes.int32), dtypes.int64)


def pointer(code: Code, address: Value) -> str:
    """Turns an address into a pointer."""
    return code.let(f"inttoptr i64 {address.text} to ptr")


def expect(code: Code, found: Value, expected: Value, otherwise: str) -> None:
    """Goes on at a block unless two words are equal."""
    following = code.label("next")
    code.branch(code.compare("eq", found, expected), following, otherwise)
    code.place(following)
