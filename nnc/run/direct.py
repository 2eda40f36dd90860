"""Calls of compiled programs from arrays to arrays without Python in between: CPython calls compiled code.

A call through `NativeFrame.run` takes some microseconds of Python around a program, more than small programs compute. Where a
program needs nothing of Python, a function printed by `direct_code.py` does the same in a fraction. It takes only ordinary
calls, so that errors are detected and worded in `run` alone.
"""

from __future__ import annotations

import ctypes
import struct
import sys
import sysconfig
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple, cast

import numpy as np

from nnc.base.dtypes import Weakness
from nnc.base.records import record
from nnc.graph import TensorSpec
from nnc.lower.kernels.native import Compiler, Function
from nnc.run import direct_code as code
from nnc.run.native_frame import DirectCall, NativeFrame
from nnc.run.program import Program

_ONE_ARGUMENT = 8  # METH_O
_WORD = 8


class _Method(ctypes.Structure):
    """CPython's description of a function: PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


class ArrayLayout(NamedTuple):
    """The layout of objects that stand for arrays: their type, and the offset in bytes of each field."""

    kind: type
    places: tuple[int, int, int]  # of memory, spec and whether it is weak

    @classmethod
    def like(cls, box: Any) -> ArrayLayout | None:
        """Returns the layout of objects like this one; None where they cannot be read so."""
        if sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
            return None
        kind = type(box)
        begin, count = id(box) + object.__basicsize__, (kind.__basicsize__ - object.__basicsize__) // _WORD
        words = list((ctypes.c_int64 * count).from_address(begin))
        held = [id(box.memory), id(box.spec), id(box.weak)]
        if any(words.count(each) != 1 for each in held):
            return None
        memory, spec, weak = (object.__basicsize__ + _WORD * words.index(each) for each in held)
        return cls(kind, (memory, spec, weak))


class Results(NamedTuple):
    """The form of a program's results: for each array its spec and whether it is weak. `is_one`: the one
    result is returned, not a list.
    """

    specs: Sequence[TensorSpec]
    weak: Sequence[Weakness]
    is_one: bool


@record
class Direct:
    """A program that is called on arrays directly: on one of its `idle` frames, with the table that `bind` makes for the frame.

    The caller takes a frame out of the list and puts it back. A call returns NotImplemented where it does not run: an argument is
    other than expected, or the program fails. The caller then takes the general way.
    """

    idle: list[NativeFrame]
    _function: Function
    _boxes: ArrayLayout
    _arguments: Sequence[tuple[TensorSpec, Weakness]]
    _results: Results

    @classmethod
    def of(
        cls,
        program: Program,
        compiler: Compiler,
        boxes: ArrayLayout,
        arguments: Sequence[tuple[TensorSpec, Weakness]],
        results: Results,
    ) -> Direct | None:
        """Makes the direct form of a program of arrays; `arguments` has the spec of each, and whether it is weak. None where it
        needs Python.
        """
        if not program.needs_no_python or len(program.outside.inputs) != len(arguments):
            return None
        return cls(cast(list[NativeFrame], program.idle), load_direct(compiler), boxes, arguments, results)

    def bind(self, frame: NativeFrame) -> DirectCall:
        """Gives a frame the function of CPython's that calls the program on it."""
        function, boxes, arguments, results = self._function, self._boxes, self._arguments, self._results
        made_from = [(spec.shape, spec.dtype) for spec in results.specs]
        head = [0] * code.HEAD
        head[code.FRAME], head[code.ENTRY] = frame.address, frame.entry.held.address
        head[code.ARGUMENTS], head[code.RESULTS], head[code.IS_ONE] = len(arguments), len(made_from), results.is_one
        head[code.KIND], head[code.MEMORY], head[code.SPEC], head[code.WEAK] = id(boxes.kind), *boxes.places
        head[code.MAKE], head[code.OTHERWISE] = id(np.empty), id(NotImplemented)
        rows = [*arguments, *zip(made_from, results.specs, results.weak, strict=True)]
        words = [*head, *(id(each) for row in rows for each in row)]
        method = _Method(b"direct", function.address, _ONE_ARGUMENT, None)
        held = made_from, arguments, results, boxes, method, function  # as CPython holds the module of a function
        make = ctypes.pythonapi["PyCFunction_NewEx"]
        make.restype, make.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.py_object, ctypes.py_object)
        call: DirectCall = make(ctypes.addressof(method), struct.pack(f"{len(words)}q", *words), held)
        frame.direct = call
        return call


@cache
def load_direct(compiler: Compiler) -> Function:
    """Returns the compiled function that all direct calls are made by; the first time it may have to be compiled."""
    return compiler.load([code.direct()])[0]
