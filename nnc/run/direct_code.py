"""Prints the function by which CPython calls compiled programs on arrays, without Python in between.

It takes the list of a call's arrays, as Python's objects, finds the memory of each, makes the arrays for the results, runs the
program and wraps its results. It touches objects through CPython's published functions alone, but for fields that
`arguments.py` reads anyway; where anything is not as it expects, it leaves the call to Python.
"""

from __future__ import annotations

import ctypes
from functools import cache

from nnc.base import dtypes
from nnc.lower.kernels.builder import Code, Value
from nnc.lower.kernels.native import Native
from nnc.run.arguments import TYPE, FrameLayout, element, expect, items_of, length_of, pointer, word, word_at

CONTENT = bytes.__basicsize__ - 1  # offset of the elements of `bytes`
# The table: these words, then the words of each argument, then the words of each result.
(
    FRAME, ENTRY, ARGUMENTS, RESULTS, KIND, MEMORY, SPEC, WEAK, MAKE, OTHERWISE, IS_ONE
) = range(11)  # fmt: skip
HEAD = 11
ARGUMENT_SPEC, ARGUMENT_WEAK = range(2)
ARGUMENT_WORDS = 2
MADE_FROM, RESULT_SPEC, RESULT_WEAK = range(3)
RESULT_WORDS = 3
_FUNCTIONS = {
    "PyEval_RestoreThread": "void (ptr)", "PyEval_SaveThread": "ptr ()", "PyList_New": "ptr (i64)",
    "PyList_SetItem": "i32 (ptr, i64, ptr)", "PyObject_Call": "ptr (ptr, ptr, ptr)", "PyType_GenericAlloc": "ptr (ptr, i64)",
    "Py_DecRef": "void (ptr)", "Py_IncRef": "void (ptr)",
}  # fmt: skip


@cache
def direct() -> Native:
    """Returns the function (table, leaves) -> object that CPython calls: the table is an object of `bytes`, the leaves are a
    list of arrays, which is emptied.

    The table holds the words of a frame and the program's entry; how many arguments and results there are; the type of arrays, and
    how many bytes behind their begin they hold their memory, their spec and whether they are weak; the function that makes NumPy's
    arrays; the object returned where Python has to do the call; and whether the one result is returned rather than a list. For each
    argument there are its spec and its `weak`; for each result the argument of the function that makes its memory, its spec and its
    `weak`.
    """
    code = Code("KERNEL", (("ptr", "self"), ("ptr", "leaves")))
    otherwise, raised, drop, dropped = (code.label(stem) for stem in ("otherwise", "raised", "drop", "dropped"))
    table = code.offset("%self", CONTENT)
    _take_memory(code, table, otherwise)
    made = _call(code, "PyList_New", word(code, table, RESULTS).text)
    _expect_object(code, made, raised)
    _make_memory(code, table, made, drop)
    expect(code, _call_program(code, table, made), code.integer(0), dropped)
    _wrap(code, table, made, drop)
    one, several = code.label("one"), code.label("several")
    code.branch(code.compare("eq", word(code, table, IS_ONE), code.integer(0)), several, one)
    code.place(several)
    _return(code, made)
    code.place(one)
    first = pointer(code, word(code, items_of(code, made), 0))
    _call(code, "Py_IncRef", first)
    _call(code, "Py_DecRef", made)
    _return(code, first)
    code.place(drop)
    _call(code, "Py_DecRef", made)
    code.jump(raised)
    code.place(raised)
    code.ret(code.integer(0))
    code.place(dropped)
    _call(code, "Py_DecRef", made)
    code.jump(otherwise)
    code.place(otherwise)
    instead = pointer(code, word(code, table, OTHERWISE))
    _call(code, "Py_IncRef", instead)
    _return(code, instead)
    return Native("\n".join([*sorted(code.declarations), code.text()]), symbols=_symbols())


def _take_memory(code: Code, table: str, otherwise: str) -> None:
    """Replaces the leaves, which must be arrays as expected, by their memory."""
    arguments = word(code, table, ARGUMENTS)
    expect(code, length_of(code, "%leaves"), arguments, otherwise)
    items = items_of(code, "%leaves")
    with code.loop(0, arguments) as i:
        x = pointer(code, element(code, items, i))
        expect(code, word(code, x, TYPE // 8), word(code, table, KIND), otherwise)
        row = _argument(code, table, i)
        expect(code, _held(code, x, word(code, table, SPEC)), word(code, row, ARGUMENT_SPEC), otherwise)
        expect(code, _held(code, x, word(code, table, WEAK)), word(code, row, ARGUMENT_WEAK), otherwise)
        memory = pointer(code, _held(code, x, word(code, table, MEMORY)))
        _expect_object(code, memory, otherwise)
        _call(code, "Py_IncRef", memory)
        _call(code, "PyList_SetItem", "%leaves", i.text, memory)


def _make_memory(code: Code, table: str, made: str, drop: str) -> None:
    """Fills a list with NumPy's arrays for the results."""
    make = pointer(code, word(code, table, MAKE))
    with code.loop(0, word(code, table, RESULTS)) as i:
        source = pointer(code, word(code, _result(code, table, i), MADE_FROM))
        array = _call(code, "PyObject_Call", make, source, "null")
        _expect_object(code, array, drop)
        _call(code, "PyList_SetItem", made, i.text, array)


def _call_program(code: Code, table: str, made: str) -> Value:
    """Runs the program, while other threads run Python; returns its entry's result."""
    frame, entry = (pointer(code, word(code, table, place)) for place in (FRAME, ENTRY))
    for place, listed in ((FrameLayout.given_at, "%leaves"), (FrameLayout.made_at, made)):
        code.store(code.offset(frame, 8 * place), _address(code, listed))
    thread = _call(code, "PyEval_SaveThread")
    status = Value(code.let(f"call i64 {entry}(ptr {frame})"), dtypes.int64)
    _call(code, "PyEval_RestoreThread", thread)
    return status


def _wrap(code: Code, table: str, made: str, drop: str) -> None:
    """Replaces the memory in a list by arrays that hold it."""
    items = items_of(code, made)
    with code.loop(0, word(code, table, RESULTS)) as i:
        row = _result(code, table, i)
        array = _call(code, "PyType_GenericAlloc", pointer(code, word(code, table, KIND)), "0")
        _expect_object(code, array, drop)
        for place, held in (
            (MEMORY, element(code, items, i)),
            (SPEC, word(code, row, RESULT_SPEC)),
            (WEAK, word(code, row, RESULT_WEAK)),
        ):
            _call(code, "Py_IncRef", pointer(code, held))
            code.store(code.offset(array, word(code, table, place)), held)
        _call(code, "PyList_SetItem", made, i.text, array)


def _argument(code: Code, table: str, i: Value) -> str:
    """Returns the address of the words of an argument."""
    return word_at(code, code.offset(table, 8 * HEAD), code.mul(i, code.integer(ARGUMENT_WORDS)))


def _result(code: Code, table: str, i: Value) -> str:
    """Returns the address of the words of a result."""
    return word_at(code, _argument(code, table, word(code, table, ARGUMENTS)), code.mul(i, code.integer(RESULT_WORDS)))


def _held(code: Code, x: str, place: Value) -> Value:
    """Loads the word that an object holds so many bytes behind its begin."""
    return code.load(code.offset(x, place), dtypes.int64)


def _call(code: Code, name: str, *operands: str) -> str:
    """Calls one of CPython's functions; returns its result, or "" if there is none."""
    returned, _, parameters = _FUNCTIONS[name].partition(" ")
    code.declare(f"declare {returned} @{name}{parameters}")
    kinds = parameters.strip("()").split(", ")
    text = f"call {returned} @{name}({', '.join(map(' '.join, zip(kinds, operands, strict=False)))})"
    if returned == "void":
        code.line(text)
        return ""
    return code.let(text)


def _expect_object(code: Code, at: str, otherwise: str) -> None:
    """Continues at a block where there is no object."""
    following = code.label("next")
    code.branch(Value(code.let(f"icmp ne ptr {at}, null"), dtypes.bool_), following, otherwise)
    code.place(following)


def _address(code: Code, at: str) -> Value:
    return Value(code.let(f"ptrtoint ptr {at} to i64"), dtypes.int64)


def _return(code: Code, at: str) -> None:
    code.ret(_address(code, at))


@cache
def _symbols() -> dict[str, int]:
    """Returns the addresses of CPython's functions."""
    return {name: ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0 for name in _FUNCTIONS}
