"""oneDNN's primitives from compiled code: a function that points memory objects at a step's tensors and runs primitives.

The state that the function is given names the primitives and their memory objects, so that all steps with as many tensors share one
text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial

import numpy as np

from nnc import dtypes
from nnc.backends.onednn.library import Memory, MemoryDesc, Stream, loaded
from nnc.backends.onednn.primitives import Primitive, begin_primitives
from nnc.lower.codegen.builder import Code, Value
from nnc.lower.codegen.native import Native

_WORD = 8  # bytes
_OF_POINTED = 3  # words that say where a memory object points


@dataclass(frozen=True)
class Operand:
    """A tensor of a call: its role, its layout, and the parameter of the compiled function (such as "in0", "out0", "workspace")
    that points to it, so many bytes further. Without a name it lies in the scratch memory that the state is given.
    """

    role: int
    desc: MemoryDesc
    pointer: str
    offset: int = 0


@dataclass(frozen=True)
class Call:
    """A primitive on operands."""

    primitive: Primitive
    operands: tuple[Operand, ...]


class CallState:
    """The library's objects that calls need for one arena: a stream, memory objects, and lists of arguments.

    It begins with the stream and the number of calls. Each call follows: its primitive, how many arguments it has, and how many of
    these are pointed at tensors; for each of the latter the memory object, the tensor's place in the list of pointers, and the
    bytes to skip; then a pair (role, memory object) for each argument.
    """

    def __init__(self, calls: Sequence[Call], names: Sequence[str], scratch: int) -> None:
        stream = Stream()
        memories = [[Memory(operand.desc) for operand in call.operands] for call in calls]
        words = [stream.handle, len(calls)]
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
        """Where the stream's handle lies, and all that follows it."""
        return int(self.words.ctypes.data)


def calls_native(calls: Sequence[Call], inputs: int, outputs: int = 1, *, workspace: bool = False) -> Native:
    """The kernel that runs the calls one after the other."""
    names = [*(f"in{i}" for i in range(inputs)), *(f"out{i}" for i in range(outputs)), *["workspace"] * workspace]
    kept, ends = tuple(calls), [o.offset + o.desc.nbytes for call in calls for o in call.operands if not o.pointer]
    symbols = {name: loaded().address(name) for name in ("dnnl_memory_set_data_handle", "dnnl_primitive_execute")}
    state = partial(CallState, kept, names)
    return Native(_text(len(names)), symbols, state, max(ends, default=0), begin=begin_primitives)


@cache
def _text(tensors: int) -> str:
    """The function for so many tensors, which does what a `CallState` says."""
    code = Code("KERNEL", [*(("ptr", f"x{i}") for i in range(tensors)), ("ptr", "state")])
    pointers = code.room(_WORD * tensors)
    for tensor in range(tensors):
        code.line(f"store ptr %x{tensor}, ptr {code.offset(pointers, _WORD * tensor)}")
    code.line("call void @nnc_take_threads()")  # OpenMP's number is one of each thread
    stream = code.let("load ptr, ptr %state")
    at, failed = code.slot(code.integer(2 * _WORD)), code.slot(Value("0", dtypes.int32))
    with code.loop(0, code.load(code.offset("%state", _WORD), dtypes.int64)):
        head = code.offset("%state", code.read(at))
        primitive = code.let(f"load ptr, ptr {head}")
        count, pointed = (code.load(code.offset(head, _WORD * k), dtypes.int64) for k in (1, 2))
        first = code.offset(head, 3 * _WORD)
        with code.loop(0, pointed) as i:
            entry = code.offset(first, code.mul(i, code.integer(_WORD * _OF_POINTED)))
            memory = code.let(f"load ptr, ptr {entry}")
            place, skipped = (code.load(code.offset(entry, _WORD * k), dtypes.int64) for k in (1, 2))
            begin = code.let(f"load ptr, ptr {code.offset(pointers, place)}")
            code.let(f"call i32 @dnnl_memory_set_data_handle(ptr {memory}, ptr {code.offset(begin, skipped)})")
        pairs = code.mul(pointed, code.integer(_WORD * _OF_POINTED))
        operands = (
            f"ptr {primitive}, ptr {stream}, {code.convert(count, dtypes.int32).typed}, ptr {code.offset(first, pairs)}"
        )
        status = Value(code.let(f"call i32 @dnnl_primitive_execute({operands})"), dtypes.int32)
        code.write(failed, code.or_(code.read(failed), status))
        length = code.add(pairs, code.add(code.mul(count, code.integer(2 * _WORD)), code.integer(3 * _WORD)))
        code.write(at, code.add(code.read(at), length))
    code.ret(code.convert(code.read(failed), dtypes.int64))
    return "\n".join([
        "declare i32 @dnnl_memory_set_data_handle(ptr, ptr)", "declare i32 @dnnl_primitive_execute(ptr, ptr, i32, ptr)",
        "declare void @nnc_take_threads()", code.text(),
    ])  # fmt: skip
