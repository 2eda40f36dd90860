"""Prints a program as a C function: `int NAME(const void *const *inputs, void *const *outputs, void *arena)`.

The function fills the words of a frame on its stack, where the program's parts find their memory, and runs the parts. Inputs,
outputs and the arena are the caller's; constants are the module's own, or lie in memory that the caller hands over as a fourth
argument. The module has only room for its constants, which is filled in the object file: LLVM would read them as text, several
times. Results that are no fresh memory, such as views and arguments that are returned, are copied in the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import NamedTuple

import numpy as np

from nnc.errors import InternalError
from nnc.graph import TensorSpec
from nnc.lower.kernels.axes import Axes
from nnc.lower.kernels.native import Native
from nnc.lower.plan.liveness import walk
from nnc.lower.plan.stages import Branches, Kind, Loop, NDArray, Planned, Step, View, row_major
from nnc.run.arguments import FrameLayout
from nnc.run.entry import call_parts, print_parts
from nnc.run.entry_steps import Failure, Outline, StepCode
from nnc.run.native_program import ProgramAbi, ProgramParts

ALIGNMENT = 64  # bytes; of the arena and of constants
_ROOM = b"room for an exported function's constants".ljust(ALIGNMENT, b".")  # how it begins in an object file
_BYTES = np.array([f"\\{byte:02X}".encode() for byte in range(256)], "S3")


class StoredConstant(NamedTuple):
    """A constant, and its place among all constants, in bytes."""

    value: NDArray
    offset: int


class ExportedText(NamedTuple):
    """A printed C function.

    Attributes:
        text: its module, in LLVM's text.
        called: the kernels that it calls.
        held: the kernels in its own text.
        arena_bytes: bytes of the memory that callers hand over.
        constants: the arrays that it reads, in the order of their places.
        errors: messages by the numbers that it returns.
    """

    text: str
    called: tuple[Native, ...]
    held: tuple[Native, ...]
    arena_bytes: int
    constants: tuple[StoredConstant, ...]
    errors: dict[int, str]

    @property
    def constant_bytes(self) -> int:
        """Bytes of all constants, with the gaps that align them."""
        return _end(self.constants)

    def with_constants(self, content: bytes) -> bytes:
        """Returns the object file with the constants in their room.

        Raises:
            InternalError: there is no room, or more than one.
        """
        if not self.constant_bytes:
            return content
        if content.count(_ROOM) != 1:
            raise InternalError("the object file has no room for constants, or several.")
        filled, start = bytearray(content), content.index(_ROOM)
        filled[start : start + len(_ROOM)] = bytes(len(_ROOM))
        for value, offset in self.constants:
            filled[start + offset : start + offset + value.nbytes] = np.ascontiguousarray(value).tobytes()
        return bytes(filled)


def missing_kernels(parts: ProgramParts, links: Callable[[str], bool]) -> list[Step]:
    """Returns the steps that would run in Python, and those that call a function of a library that is not linked.

    Args:
        links: whether a function of this name is linked.
    """
    found = []
    for step in walk(parts.planned.bound.steps):
        native = parts.natives.get(id(step))
        if step.region is None and (native is None or native.state is not None or not all(map(links, native.symbols))):
            found.append(step)
    return found


def print_exported(name: str, parts: ProgramParts, given: Sequence[int | NDArray], *, inside: bool) -> ExportedText:
    """Prints the C function of a program whose steps all have printed kernels.

    Args:
        name: the C function's name.
        parts: the program.
        given: for each input of the program the position of the C function's input, or the array that it always is.
        inside: whether the module holds the constants; otherwise they are handed over as a fourth argument.
    """
    planned, outside = parts.planned, ProgramAbi.of(parts.planned)
    words = outside.words(0)
    copied = _Copied(planned, outside, words)
    outline = Outline.of(planned, parts.natives, {}, words, polls=False)
    printed = print_parts(outline, apart=False)
    constants = tuple(_placed([*(x for x in given if not isinstance(x, int)), *outside.constants]))
    code = StepCode(outline, "results")
    copied.print(code)
    code.finish()
    errors = _errors(outline)
    lines = [
        *sorted({*printed.declared, *code.declarations}),
        *([_print_room(constants)] if inside and constants else ()),
        *printed.texts,
        code.text(),
        *_run(printed.flushed),
        *_main(name, words, given, copied, [c.offset for c in constants], inside),
        *_messages(name, errors),
    ]
    called = tuple(printed.called.values())
    return ExportedText("\n".join(lines) + "\n", called, printed.held, copied.arena_bytes, constants, errors)


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def _placed(values: Sequence[NDArray]) -> Iterator[StoredConstant]:
    """Gives constants their places in a row."""
    offset = 0
    for value in values:
        yield StoredConstant(value, offset)
        offset = _aligned(offset + value.nbytes)


def _end(constants: Sequence[StoredConstant]) -> int:
    return _aligned(constants[-1].offset + constants[-1].value.nbytes) if constants else 0


def _print_room(constants: Sequence[StoredConstant]) -> str:
    """Returns the room for constants. LLVM may not take its first bytes for their values: they are initialized elsewhere."""
    rest = max(0, _end(constants) - len(_ROOM))
    kinds = f"[{len(_ROOM)} x i8]", f"[{rest} x i8]"
    return (
        f"@constants = private externally_initialized constant <{{ {', '.join(kinds)} }}> "
        f'<{{ {kinds[0]} c"{_ROOM.decode()}", {kinds[1]} zeroinitializer }}>, align {ALIGNMENT}'
    )


class _Copied:
    """The memory of results. `direct` has the number of the output that each result's memory is; without one it lies behind the
    arena. The other outputs are copied from `views`, by number of the output; their addresses follow the frame's words.
    """

    def __init__(self, planned: Planned, outside: ProgramAbi, words: FrameLayout) -> None:
        self.words, self.direct = words, dict[int, int]()
        self.views: dict[int, View] = {}
        for number, result in enumerate(outside.results):
            is_whole = result.kind is Kind.OUTPUT and result.view == View.whole(
                result.view.buffer, outside.made[result.index]
            )
            if is_whole and result.index not in self.direct:
                self.direct[result.index] = number
            else:
                self.views[number] = result.view
        self.arena_bytes, self.offsets = planned.arena_bytes, dict[int, int]()
        for index, spec in enumerate(outside.made):
            if index not in self.direct:
                self.offsets[index] = _aligned(self.arena_bytes)
                self.arena_bytes = self.offsets[index] + spec.nbytes

    @property
    def frame_words(self) -> int:
        """The words of a frame, with the addresses of outputs that are copied."""
        return self.words.size + len(self.views)

    def print(self, code: StepCode) -> None:
        """Copies views to their outputs."""
        for k, view in enumerate(self.views.values()):
            target = code.base(self.words.size + k)
            _copy(code, view.spec, code.address(view), view.strides, target)


def _copy(code: StepCode, spec: TensorSpec, source: str, strides: tuple[int, ...], target: str) -> None:
    """Copies a tensor to contiguous memory, in the longest pieces that lie in a row."""
    axes, piece = Axes(spec.shape, (strides, row_major(spec))).merged(), spec.dtype.itemsize
    shape, steps = list(axes.shape), [list(each) for each in axes.strides]
    if shape and steps[0][-1] == steps[1][-1] == piece:
        piece *= shape.pop()
    if not spec.size:
        return
    with ExitStack() as stack:
        for n, *pair in zip(shape, steps[0], steps[1], strict=False):
            i = stack.enter_context(code.loop(0, n))
            source, target = (
                code.offset(p, code.mul(i, code.integer(step))) for p, step in zip((source, target), pair, strict=True)
            )
        code.copy(source, target, piece)


def _run(flushed: Sequence[bool]) -> list[str]:
    """Returns the function that runs all parts."""
    return [
        "define internal i64 @run(ptr %frame) nounwind {",
        f"  br label %{'part0' if flushed else 'done'}",
        *call_parts(flushed, "%frame"),
        "done:",
        "  %copied = call i64 @results(ptr %frame)",
        "  ret i64 %copied",
        "}",
    ]


def _main(
    name: str, words: FrameLayout, given: Sequence[int | NDArray], copied: _Copied, offsets: Sequence[int], inside: bool
) -> Iterator[str]:
    """The C function: it fills the frame, and runs the parts."""
    yield (
        f"define i32 @{name}(ptr %inputs, ptr %outputs, ptr %arena{'' if inside else ', ptr %constants'}) nounwind {{"
    )
    yield f"  %frame = alloca [{8 * max(copied.frame_words, 1)} x i8], align {ALIGNMENT}"
    count = 0

    def put(value: str, word: int) -> Iterator[str]:
        nonlocal count
        yield f"  %word{count} = getelementptr i8, ptr %frame, i64 {8 * word}"
        yield f"  store ptr {value}, ptr %word{count}"
        count += 1

    def item(listed: str, number: int) -> Iterator[str]:
        yield f"  %at{count} = getelementptr ptr, ptr {listed}, i64 {number}"
        yield f"  %item{count} = load ptr, ptr %at{count}"

    def behind(start: str, nbytes: int) -> Iterator[str]:
        yield f"  %item{count} = getelementptr i8, ptr {start}, i64 {nbytes}"

    yield from put("%arena", FrameLayout.arena_at)
    known = 0

    def constant(word: int) -> Iterator[str]:
        nonlocal known
        yield from behind("@constants" if inside else "%constants", offsets[known])
        yield from put(f"%item{count}", word)
        known += 1

    for i, position in enumerate(given):
        if isinstance(position, int):
            yield from item("%inputs", position)
            yield from put(f"%item{count}", words.input(i))
        else:
            yield from constant(words.input(i))
    for i in range(words.constants):
        yield from constant(words.constant(i))
    for index in range(words.made):
        if index in copied.direct:
            yield from item("%outputs", copied.direct[index])
        else:
            yield from behind("%arena", copied.offsets[index])
        yield from put(f"%item{count}", words.result(index))
    for k, number in enumerate(copied.views):
        yield from item("%outputs", number)
        yield from put(f"%item{count}", words.size + k)
    yield "  %why = call i64 @run(ptr %frame)"
    yield "  %error = trunc i64 %why to i32"
    yield "  ret i32 %error"
    yield "}"


# -- errors ------------------------------------------------------------------------------------------------------------

_REFUSED = {
    "cholesky": "the matrix is not positive definite",
    "lu": "the matrix is singular",
    "solve": "the matrix is singular",
    "triangular_solve": "the matrix is singular",
    "eigh": "the iteration did not converge",
}
_INDEXED = ("gather", "scatter", "dynamic_slice", "dynamic_update_slice", "fused")


def _errors(outline: Outline) -> dict[int, str]:
    """Returns the messages of the numbers that the program returns."""
    errors: dict[int, str] = {}
    for step in walk(outline.planned.bound.steps):
        number, region, native = outline.numbers[id(step)], step.region, outline.natives.get(id(step))
        if isinstance(region, Loop) and region.limit is not None:
            problem = f"the condition still holds after max_steps={region.limit} iterations"
            errors[Failure.LIMIT.code(number)] = _message(step, problem)
        elif isinstance(region, Branches):
            problem = f"there is no branch of this number: there are {len(region.branches)}"
            errors[Failure.BRANCH.code(number)] = _message(step, problem)
        elif native is not None and native.may_fail:
            name = step.command.name
            problem = _REFUSED.get(name, "an index is out of range" if name in _INDEXED else "an operand is refused")
            errors[Failure.KERNEL.code(number)] = _message(step, problem)
    return errors


def _message(step: Step, problem: str) -> str:
    place = f"\n  at {step.source.describe()}" if step.source is not None else ""
    return f"{step.command.name}: {problem}.{place}"


def _messages(name: str, errors: dict[int, str]) -> Iterator[str]:
    """`const char *NAME_error(int)`."""
    texts = {0: "no error", **errors}
    for code, text in (*texts.items(), ("unknown", "no error has this number")):
        data = np.frombuffer(text.encode() + b"\0", np.uint8)
        yield (
            f'@message{code} = private unnamed_addr constant [{data.size} x i8] c"{_BYTES[data].tobytes().decode()}"'
        )
    yield f"define ptr @{name}_error(i32 %error) nounwind {{"
    yield f"  switch i32 %error, label %unknown [{' '.join(f'i32 {code}, label %e{code}' for code in texts)}]"
    for code in texts:
        yield f"e{code}:\n  ret ptr @message{code}"
    yield "unknown:\n  ret ptr @messageunknown\n}"
