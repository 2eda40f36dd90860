"""Prints the function that queues a step by a library's C call that was noted before, or from Python.

It stands in the driver's table in the place of the function that leads into Python: entries call it with the step's record
(`nnc.device.cuda.library_calls`), a stream, and pointers to the addresses of the step's operands.
"""

from __future__ import annotations

from functools import cache

from nnc.base import dtypes
from nnc.device.cuda import library_calls as record
from nnc.lower.kernels.builder import Code, Value
from nnc.lower.kernels.native import Compiler, Function, Native
from nnc.run.arguments import element, expect, pointer, word, word_at


@cache
def load_library_calls(compiler: Compiler) -> Function:
    """Returns the compiled function; the first call may have to compile it, with the CPU's compiler."""
    return compiler.load([library_calls()])[0]


@cache
def library_calls() -> Native:
    """Returns the function (record, stream, parameters), which returns 0 where all is well, and has the driver's signature
    otherwise.
    """
    code = Code("KERNEL", (("ptr", "record"), ("ptr", "stream"), ("ptr", "parameters")), returns="i32")
    python = code.label("python")
    function = word(code, "%record", record.FUNCTION)
    noted = code.label("noted")
    code.branch(code.compare("eq", function, code.integer(0)), python, noted)
    code.place(noted)
    rows, count = code.offset("%record", 8 * record.ROWS), word(code, "%record", record.OPERANDS)
    with code.loop(0, count) as i:
        row = word_at(code, rows, code.mul(i, code.integer(record.ROW)))
        address = word(code, pointer(code, element(code, "%parameters", i)), 0)
        code.store(code.offset(row, 8 * record.VALUE), address)
        wrong = code.and_(code.xor(address, word(code, row, record.EXPECTED)), word(code, row, record.MASK))
        expect(code, wrong, code.integer(0), python)
    last = word_at(code, rows, code.mul(count, code.integer(record.ROW)))
    stream = Value(code.let("ptrtoint ptr %stream to i64"), dtypes.int64)
    code.store(code.offset(last, 8 * record.VALUE), stream)
    places = [pointer(code, word(code, "%record", record.SOURCES + k)) for k in range(record.ARGUMENTS)]
    given = ", ".join(word(code, place, 0).typed for place in places)
    status = Value(code.let(f"call i32 {pointer(code, function)}({given})"), dtypes.int32)
    made = code.label("made")
    code.branch(code.compare("eq", status, code.constant(0, dtypes.int32)), made, python)
    code.place(made)
    code.ret(status)
    code.place(python)
    otherwise = pointer(code, word(code, "%record", record.OTHERWISE))
    asked = code.let(f"call i32 {otherwise}(ptr %record, ptr %stream, ptr %parameters)")
    code.ret(Value(asked, dtypes.int32))
    return Native(code.text())
