"""Steps in a row as constants: a table of the kernels to call and of the addresses to call them with.

They need no code of their own: `runner` goes through the rows of a table. LLVM takes 30 µs for a printed call and its addresses,
hardly anything for a row, and a program is compiled last, when everybody waits for it.

    words of a row: the number to return if the kernel refuses, number of operands, how it takes them;
                    for each operand a word of the frame, and the offset from its address
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

from nnc.base import dtypes
from nnc.lower.kernels.builder import Code, Value
from nnc.lower.kernels.native import Native
from nnc.run.arguments import element, word, word_at

MOST = 12  # operands that a kernel may take one by one
_HEAD = 3  # words of a row before its operands
_PACKED = 0  # in the place of the number of operands: the kernel takes a pointer to all of them


@dataclass(slots=True)
class StepTable:
    """Rows for steps in a row. Integers and pointers are operands of one kind: both are words that are passed in the same
    places.
    """

    functions: list[str] = field(default_factory=list)
    words: list[int] = field(default_factory=list)
    room: int = 1  # operands of a row at most

    def add(self, native: Native, failure: int, operands: Sequence[tuple[int, int]]) -> None:
        """Appends a row.

        Args:
            failure: the number to return if the kernel refuses its operands.
            operands: for each operand, the position of a word of the frame, and an offset from the address in that word.
        """
        self.functions.append(native.name)
        self.words += failure, len(operands), _PACKED if native.packed else len(operands)
        for position, offset in operands:
            self.words += position, offset
        self.room = max(self.room, len(operands))

    def text(self, name: str) -> str:
        """Returns the constants `@{name}.functions` and `@{name}.words`."""
        functions = ", ".join([f"ptr @{function}" for function in self.functions])
        words = ", ".join([f"i64 {word}" for word in self.words])
        return (
            f"@{name}.functions = internal constant [{len(self.functions)} x ptr] [{functions}]\n"
            f"@{name}.words = internal constant [{len(self.words)} x i64] [{words}]"
        )


@cache
def runner() -> Native:
    """Returns the compiled function (frame, functions, words, rows, room) -> i64 that runs the rows of a table.

    `room` is memory for the operands of any row. The function returns 0, or the failure of the first row whose kernel did not
    return 0.
    """
    parameters = ("ptr", "frame"), ("ptr", "functions"), ("ptr", "words"), ("i64", "rows"), ("ptr", "room")
    code = Code("KERNEL", parameters)
    failed = code.label("failed")
    place, status, failure = (code.slot(code.integer(0)) for _ in range(3))
    with code.loop(0, Value("%rows", dtypes.int64)) as i:
        function = code.let(f"load ptr, ptr {word_at(code, '%functions', i)}")
        row = word_at(code, "%words", code.read(place))
        code.write(failure, word(code, row, 0))
        count, form = word(code, row, 1), word(code, row, 2)
        with code.loop(0, count) as j:
            operand = code.offset(word_at(code, row, code.mul(j, code.integer(2))), 8 * _HEAD)
            base, offset = word(code, operand, 0), word(code, operand, 1)
            code.store(word_at(code, "%room", j), code.add(element(code, "%frame", base), offset))
        code.write(place, code.add(code.read(place), code.add(code.mul(count, code.integer(2)), code.integer(_HEAD))))
        forms, after, following = [code.label("form") for _ in range(MOST + 1)], code.label("after"), code.label("next")
        choices = " ".join(f"i64 {k}, label %{label}" for k, label in enumerate(forms))
        code.line(f"switch {form.typed}, label %{failed} [{choices}]")
        for k, label in enumerate(forms):
            with code.scope():
                code.place(label)
                operands = [code.let(f"load ptr, ptr {code.offset('%room', 8 * n)}") for n in range(k)]
                listed = ", ".join(f"ptr {operand}" for operand in operands) if k != _PACKED else "ptr %room"
                code.write(status, Value(code.let(f"call i64 {function}({listed})"), dtypes.int64))
                code.jump(after)
        code.place(after)
        code.branch(code.compare("eq", code.read(status), code.integer(0)), following, failed)
        code.place(following)
    code.ret(code.integer(0))
    code.place(failed)
    code.ret(code.read(failure))
    return Native("\n".join([*sorted(code.declarations), code.text()]))
