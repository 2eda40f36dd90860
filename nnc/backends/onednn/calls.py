"""oneDNN's primitives from compiled code: a function that points memory objects at a step's tensors and runs primitives.

The state that the function is given names the primitives and their memory objects, so that all steps with as many tensors share one
text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, partial
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from nnc.backends.onednn.library import Memory, MemoryDesc, PrimitiveDesc, Stream, loaded
from nnc.backends.onednn.primitives import Primitive, begin_primitives
from nnc.base import dtypes
from nnc.base.dtypes import DType
from nnc.lower.kernels.builder import Code, Value
from nnc.lower.kernels.native import Native

_WORD = 8  # bytes
_OF_POINTED = 3  # words that say where a memory object points
_HEAD = 8  # words before the first call
_LANES = 32  # elements that are looked at together
# Functions of the library that compiled code calls, and the types of their arguments; they return a status.
_CALLED: Mapping[str, str] = MappingProxyType(
    {"dnnl_memory_set_data_handle": "ptr, ptr", "dnnl_primitive_execute": "ptr, ptr, i32, ptr"}
)
_CALLED_TO_CORRECT: Mapping[str, str] = MappingProxyType(
    {**_CALLED, "dnnl_primitive_create": "ptr, ptr", "dnnl_primitive_destroy": "ptr"}
)
_EXPONENTS = MappingProxyType(
    {
        dtypes.bfloat16: (dtypes.uint16, 0x7F80),
        dtypes.float16: (dtypes.uint16, 0x7C00),
        dtypes.float32: (dtypes.uint32, 0x7F800000),
    }
)  # of infinities and NaNs


class Operand(NamedTuple):
    """A tensor of a call: its role, its layout, and the parameter of the compiled function (such as "in0", "out0", "workspace")
    that points to it, so many bytes further. Without a name it lies in the scratch memory that the state is given.
    """

    role: int
    desc: MemoryDesc
    pointer: str
    offset: int = 0


class Call(NamedTuple):
    """A primitive on operands. Of calls that hardly ever run, the primitive is only described: compiled code makes it each time."""

    primitive: Primitive | PrimitiveDesc
    operands: tuple[Operand, ...]


class Correction(NamedTuple):
    """Calls, by descriptions of primitives, that follow the others where these leave an infinity or a NaN in a tensor of floats."""

    looked_at: Operand
    dtype: DType
    calls: tuple[Call, ...]


class CallState:
    """The library's objects that calls need for one arena: a stream, memory objects, and lists of arguments.

    It begins with the stream, the number of calls, the scratch memory, and of a correction: its number of calls, and the place
    in the list of pointers, the bytes to skip, the elements in whole vectors and all elements of the tensor looked at. Each
    call follows: its primitive, how many arguments it has, and how many of these are pointed at tensors; for each tensor, the
    memory object, the tensor's place in the list of pointers, and the bytes to skip; then a pair (role, memory object) for each
    argument.
    """

    def __init__(
        self, calls: Sequence[Call], names: Sequence[str], correction: Correction | None, scratch: int
    ) -> None:
        stream = Stream()
        words = [stream.handle, len(calls), scratch, 0, 0, 0, 0, 0]
        if correction is not None:
            looked_at = correction.looked_at
            place = names.index(looked_at.pointer) if looked_at.pointer else len(names)
            elements = looked_at.desc.nbytes // correction.dtype.itemsize
            whole = elements // _LANES * _LANES
            words[3:] = [len(correction.calls), _WORD * place, looked_at.offset, whole, elements]
            calls = (*calls, *correction.calls)
        memories = [[Memory(operand.desc) for operand in call.operands] for call in calls]
        for call, row in zip(calls, memories, strict=True):
            pointed, pairs = [], []
            for operand, memory in zip(call.operands, row, strict=True):
                pairs += [operand.role, memory.handle]
                if operand.pointer:
                    pointed += [memory.handle, _WORD * names.index(operand.pointer), operand.offset]
                else:
                    memory.point(scratch + operand.offset)
            words += [call.primitive.handle, len(row), len(pointed) // _OF_POINTED, *pointed, *pairs]
        self.words = np.array(words, np.uint64)
        self.held = (stream, memories, tuple(calls))

    @property
    def address(self) -> int:
        """The address of the stream's handle, and of all that follows it."""
        return int(self.words.ctypes.data)


def calls_native(
    calls: Sequence[Call],
    inputs: int,
    *,
    workspace: bool = False,
    correction: Correction | None = None,
) -> Native:
    """Returns the kernel that runs the calls one after the other, and those of the correction where it has to."""
    names = [*(f"in{i}" for i in range(inputs)), "out0", *["workspace"] * workspace]
    kept, more = tuple(calls), correction.calls if correction is not None else ()
    ends = [o.offset + o.desc.nbytes for call in (*kept, *more) for o in call.operands if not o.pointer]
    symbols = {name: loaded().address(name) for name in (_CALLED_TO_CORRECT if more else _CALLED)}
    state = partial(CallState, kept, names, correction)
    looked_at = correction.dtype if correction is not None else None
    return Native(_text(len(names), looked_at), symbols, state, max(ends, default=0), begin=begin_primitives)


@cache
def _text(tensors: int, looked_at: DType | None) -> str:
    """Returns the function for so many tensors, which runs the calls of a `CallState`; with a correction where it looks at a
    tensor.
    """
    code = Code("KERNEL", [*(("ptr", f"x{i}") for i in range(tensors)), ("ptr", "state")])
    pointers = code.room(_WORD * (tensors + 1))
    for tensor in range(tensors):
        code.line(f"store ptr %x{tensor}, ptr {code.offset(pointers, _WORD * tensor)}")
    code.line("call void @nnc_take_threads()")  # OpenMP's number is one of each thread
    runner = _Runner(code, pointers)
    runner.print_calls(_word(code, "%state", 1), is_made=True)
    if looked_at is not None:
        scratch = code.let(f"load ptr, ptr {code.offset('%state', 2 * _WORD)}")
        code.line(f"store ptr {scratch}, ptr {code.offset(pointers, _WORD * tensors)}")
        runner.print_calls(
            code.select(_finds(code, pointers, looked_at), _word(code, "%state", 3), code.integer(0)), is_made=False
        )
    code.ret(code.convert(code.read(runner.failed), dtypes.int64))
    called = _CALLED_TO_CORRECT if looked_at is not None else _CALLED
    lines = [f"declare i32 @{name}({arguments})" for name, arguments in called.items()]
    return "\n".join([*lines, "declare void @nnc_take_threads()", *sorted(code.declarations), code.text()])


def _word(code: Code, words: str, index: int) -> Value:
    return code.load(code.offset(words, _WORD * index), dtypes.int64)


def _finds(code: Code, pointers: str, dtype: DType) -> Value:
    """Whether the tensor that the state says to look at holds an infinity or a NaN."""
    place, skipped, whole, elements = (_word(code, "%state", k) for k in range(4, _HEAD))
    begin = code.offset(code.let(f"load ptr, ptr {code.offset(pointers, place)}"), skipped)
    kind, bits = _EXPONENTS[dtype]

    def look(first: Value | int, end: Value, lanes: int) -> Value:
        exponent = code.constant(bits, kind, lanes)
        found = code.slot(code.constant(0, kind, lanes))
        with code.loop(first, end, max(lanes, 1)) as i:
            x = code.load(code.offset(begin, code.mul(i, code.integer(kind.itemsize))), kind, lanes)
            is_full = code.compare("eq", code.and_(x, exponent), exponent)
            code.write(found, code.or_(code.read(found), code.convert(is_full, kind)))
        return code.read(found)

    vectors = code.reduce("or", look(0, whole, _LANES))
    return code.compare("ne", code.or_(vectors, look(whole, elements, 0)), Value("0", kind))


class _Runner:
    """Writes loops over the calls that a state lists."""

    def __init__(self, code: Code, pointers: str) -> None:
        self.code, self.pointers = code, pointers
        self.stream = code.let("load ptr, ptr %state")
        self.at, self.failed = code.slot(code.integer(_HEAD * _WORD)), code.slot(Value("0", dtypes.int32))

    def print_calls(self, calls: Value, *, is_made: bool) -> None:
        """The next so many calls, whose primitives are made, or are to be made now."""
        code = self.code
        with code.loop(0, calls):
            head = code.offset("%state", code.read(self.at))
            count, pointed = _word(code, head, 1), _word(code, head, 2)
            first = code.offset(head, 3 * _WORD)
            with code.loop(0, pointed) as i:
                entry = code.offset(first, code.mul(i, code.integer(_WORD * _OF_POINTED)))
                memory = code.let(f"load ptr, ptr {entry}")
                place, skipped = _word(code, entry, 1), _word(code, entry, 2)
                begin = code.let(f"load ptr, ptr {code.offset(self.pointers, place)}")
                code.let(f"call i32 @dnnl_memory_set_data_handle(ptr {memory}, ptr {code.offset(begin, skipped)})")
            pairs = code.mul(pointed, code.integer(_WORD * _OF_POINTED))
            arguments = f"{code.convert(count, dtypes.int32).typed}, ptr {code.offset(first, pairs)}"
            primitive = code.let(f"load ptr, ptr {head}")
            if is_made:
                self._execute(primitive, arguments)
            else:
                self._make_and_execute(primitive, arguments)
            length = code.add(pairs, code.add(code.mul(count, code.integer(2 * _WORD)), code.integer(3 * _WORD)))
            code.write(self.at, code.add(code.read(self.at), length))

    def _make_and_execute(self, desc: str, arguments: str) -> None:
        code = self.code
        place = code.room(_WORD)
        status = self._note(f"call i32 @dnnl_primitive_create(ptr {place}, ptr {desc})")
        with code.when(code.compare("eq", status, Value("0", dtypes.int32))):
            primitive = code.let(f"load ptr, ptr {place}")
            self._execute(primitive, arguments)
            self._note(f"call i32 @dnnl_primitive_destroy(ptr {primitive})")

    def _execute(self, primitive: str, arguments: str) -> None:
        self._note(f"call i32 @dnnl_primitive_execute(ptr {primitive}, ptr {self.stream}, {arguments})")

    def _note(self, call: str) -> Value:
        """Makes a call of the library, whose status is returned and becomes a part of the function's."""
        status = Value(self.code.let(call), dtypes.int32)
        self.code.write(self.failed, self.code.or_(self.code.read(self.failed), status))
        return status
