"""oneDNN's primitives from compiled code: a function that points memory objects at a step's tensors and runs primitives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nnc.backends.onednn.library import Memory, MemoryDesc, Primitive, Stream, loaded
from nnc.lower.codegen.native import Native


@dataclass(frozen=True)
class Operand:
    """A tensor of a call: its role, its layout, and the parameter of the compiled function (such as "in0", "out0", "workspace")
    that points to it, so many bytes further. Without a name it lies in the scratch memory that the state is given."""

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

    It begins with the stream; each call follows with its primitive, its memory objects, and pairs (role, memory object).
    """

    def __init__(self, calls: Sequence[Call], scratch: int) -> None:
        stream = Stream()
        memories = [[Memory(operand.desc) for operand in call.operands] for call in calls]
        words = [stream.handle]
        for call, row in zip(calls, memories, strict=True):
            words += [call.primitive.handle, *(memory.handle for memory in row)]
            for operand, memory in zip(call.operands, row, strict=True):
                words += [operand.role, memory.handle]
                if not operand.pointer:
                    memory.point(scratch + operand.offset)
        self.words = np.array(words, np.uint64)
        self.held = (stream, memories, tuple(calls))

    @property
    def address(self) -> int:
        """Where the stream's handle lies, and all that follows it."""
        return int(self.words.ctypes.data)


def calls_native(calls: Sequence[Call], inputs: int, outputs: int = 1, *, workspace: bool = False) -> Native:
    """The kernel that runs the calls one after the other. Their primitives and layouts are its state; the text knows pointers."""
    names = [*(f"in{i}" for i in range(inputs)), *(f"out{i}" for i in range(outputs)), *["workspace"] * workspace]
    parameters = ", ".join(f"ptr %{name}" for name in (*names, "state"))
    lines = ["  %stream = load ptr, ptr %state"]
    at = 8
    for c, call in enumerate(calls):
        lines += _load(f"primitive{c}", at)
        for o, operand in enumerate(call.operands):
            if not operand.pointer:
                continue
            lines += _load(f"memory{c}.{o}", at + 8 * (o + 1))
            pointer = f"%{operand.pointer}"
            if operand.offset:
                lines.append(f"  %data{c}.{o} = getelementptr i8, ptr {pointer}, i64 {operand.offset}")
                pointer = f"%data{c}.{o}"
            lines.append(f"  %set{c}.{o} = call i32 @dnnl_memory_set_data_handle(ptr %memory{c}.{o}, ptr {pointer})")
        count = len(call.operands)
        lines.append(f"  %arguments{c} = getelementptr i8, ptr %state, i64 {at + 8 * (count + 1)}")
        lines.append(
            f"  %status{c} = call i32 @dnnl_primitive_execute(ptr %primitive{c}, ptr %stream, i32 {count}, ptr %arguments{c})"
        )
        previous = f"%failed{c - 1}" if c else "0"
        lines.append(f"  %failed{c} = or i32 {previous}, %status{c}")
        at += 8 * (1 + 3 * count)
    lines += [f"  %result = zext i32 %failed{len(calls) - 1} to i64", "  ret i64 %result"]
    text = "\n".join([
        "declare i32 @dnnl_memory_set_data_handle(ptr, ptr)", "declare i32 @dnnl_primitive_execute(ptr, ptr, i32, ptr)",
        "declare void @nnc_take_threads()", f"define i64 @KERNEL({parameters}) nounwind {{",
        "  call void @nnc_take_threads()", *lines, "}", "",  # OpenMP's number is one of each thread
    ])  # fmt: skip
    kept, ends = tuple(calls), [o.offset + o.desc.nbytes for call in calls for o in call.operands if not o.pointer]
    symbols = {name: loaded().address(name) for name in ("dnnl_memory_set_data_handle", "dnnl_primitive_execute")}
    return Native(text, symbols, lambda scratch: CallState(kept, scratch), max(ends, default=0))


def _load(name: str, at: int) -> list[str]:
    return [f"  %{name}.at = getelementptr i8, ptr %state, i64 {at}", f"  %{name} = load ptr, ptr %{name}.at"]
