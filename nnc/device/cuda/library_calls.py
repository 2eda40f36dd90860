"""Calls of a library's C functions that compiled code makes again without Python.

A step that runs from Python, a product of cuBLASLt for instance, notes the C call by which it was queued. Where the step runs
again on operands with the same layouts, as in a loop whose end only the device knows, compiled code makes the same call on the
new addresses (`nnc.backends.cuda.program.library_calls`). Else Python queues the step, and notes its call anew.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

ARGUMENTS = 16
"""The arguments of a call, each of 8 bytes: so many has cublasLtMatmul.

Example:
    >>> ARGUMENTS
    16
"""
# Words of a record: the function (0: none was noted), the function that queues the step from Python, the number of operands, the
# addresses of the words that hold the arguments, words for numbers among these, and a row for each operand and for the stream.
FUNCTION, OTHERWISE, OPERANDS, SOURCES = range(4)
_NUMBERS = SOURCES + ARGUMENTS
ROWS = _NUMBERS + ARGUMENTS
"""The place of the first row of a record: one for each operand, and one for the stream.

Example:
    >>> ROWS > SOURCES + ARGUMENTS
    True
"""
VALUE, EXPECTED, MASK = range(3)
ROW = 3
"""Words of a row: the address; bits that it must have for the noted call; and a mask of those that are looked at.

Example:
    >>> ROW
    3
"""


@dataclass(frozen=True, slots=True)
class Operand:
    """An argument of a call that is the address of an operand.

    Attributes:
        number: the position of the operand among those of the step; the one behind the last stands for the stream.

    Example:
        >>> Operand(0).number
        0
    """

    number: int


@dataclass(frozen=True, slots=True)
class LibraryCall:
    """A call of a C function on the operands of a step.

    Attributes:
        function: its address.
        arguments: `ARGUMENTS` of them: numbers, addresses of memory that `held` keeps, and operands.
        alignments: for each operand, the bytes that must divide its address; 0: it must be the same one.
        held: keeps the memory of the arguments.

    Example:
        >>> LibraryCall(4096, (Operand(0), *[7] * 14, Operand(1)), (16,), None).arguments[1]
        7
    """

    function: int
    arguments: Sequence[int | Operand]
    alignments: Sequence[int]
    held: Any


@runtime_checkable
class RepeatedCall(Protocol):
    """Queues a step by a C call that can be made again.

    Example:
        >>> isinstance(print, RepeatedCall)
        False
    """

    def __call__(self, addresses: Sequence[int], stream: int) -> None:
        """Queues the step.

        Args:
            addresses: the addresses of its operands.
            stream: the handle of a stream.
        """
        ...

    def library_call(self, addresses: Sequence[int]) -> LibraryCall | None:
        """Returns the C call by which the step was queued; None where it was none, or several.

        Args:
            addresses: the addresses of its operands.
        """
        ...


class Record:
    """The words of memory in which a step tells compiled code how to call a library.

    Args:
        operands: the number of the step's operands.
        otherwise: the address of the function that queues the step from Python.

    Example:
        >>> Record(2, 4096).address % 8
        0
    """

    def __init__(self, operands: int, otherwise: int) -> None:
        self._words = (ctypes.c_int64 * (ROWS + ROW * (operands + 1)))()
        self.address = ctypes.addressof(self._words)
        self._words[OTHERWISE], self._words[OPERANDS] = otherwise, operands
        self._held: Any = None

    def note(self, call: LibraryCall | None, addresses: Sequence[int]) -> None:
        """Notes the call by which the step was queued.

        Args:
            call: the library's call; None where Python has to queue the step.
        """
        words = self._words
        words[FUNCTION] = 0
        if call is None:
            return
        for place, argument in enumerate(call.arguments):
            word = _NUMBERS + place
            if isinstance(argument, Operand):
                word = ROWS + ROW * argument.number + VALUE
            else:
                words[word] = argument
            words[SOURCES + place] = self.address + 8 * word
        for number, (address, alignment) in enumerate(zip(addresses, call.alignments, strict=True)):
            row = ROWS + ROW * number
            words[row + EXPECTED], words[row + MASK] = (0, alignment - 1) if alignment else (address, -1)
        words[FUNCTION], self._held = call.function, call.held
