"""The compiled function that makes a library's call again, on a C function that notes its arguments."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from nnc.backends.cpu.compiler.jit import compiler
from nnc.backends.cuda.program.library_calls import load_library_calls
from nnc.device.cuda.library_calls import ARGUMENTS, LibraryCall, Operand, Record
from nnc.device.driver import RUN_STEP, c_function

STREAM, FIRST = 77, 1 << 32
LIBRARY = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_uint64] * ARGUMENTS)


class Step:
    """A step of three operands, whose library takes numbers, its operands and the stream.

    Args:
        alignments: of the operands, as the noted call has them.
    """

    def __init__(self, *alignments: int) -> None:
        self.status = 0
        self.from_library: list[tuple[int, ...]] = []
        self.from_python: list[tuple[int, ...]] = []
        self._library, self._python = LIBRARY(self._called), c_function(RUN_STEP)(self._asked)
        self.record = Record(len(alignments), ctypes.cast(self._python, ctypes.c_void_p).value or 0)
        address = ctypes.cast(self._library, ctypes.c_void_p).value or 0
        numbers = [FIRST + k for k in range(ARGUMENTS - 4)]
        arguments = (Operand(2), *numbers, Operand(0), Operand(1), Operand(3))
        self.call = LibraryCall(address, arguments, alignments, None)

    def _called(self, *arguments: int) -> int:
        self.from_library.append(arguments)
        return self.status

    def _asked(self, record: int, stream: int, parameters: int) -> int:
        places = (ctypes.c_void_p * 3).from_address(parameters)
        self.from_python.append((record, stream, *(ctypes.c_uint64.from_address(at or 0).value for at in places)))
        return 5

    def run(self, *addresses: int) -> int:
        """Queues the step as an entry does; returns the function's result."""
        values = (ctypes.c_uint64 * 3)(*addresses)
        pointers = (ctypes.c_void_p * 3)(*(ctypes.addressof(values) + 8 * i for i in range(3)))
        found = compiler()
        assert found is not None
        function = c_function(RUN_STEP)(load_library_calls(found).address)
        return int(function(self.record.address, STREAM, ctypes.addressof(pointers)))


def test_python_queues_a_step_that_has_noted_no_call() -> None:
    step = Step(16, 16, 16)
    assert step.run(160, 320, 480) == 5 and step.from_library == []
    assert step.from_python == [(step.record.address, STREAM, 160, 320, 480)]
    step.record.note(step.call, [160, 320, 480])
    step.record.note(None, [160, 320, 480])
    assert step.run(160, 320, 480) == 5 and step.from_library == []


def test_a_noted_call_is_made_on_new_operands_and_the_stream() -> None:
    step = Step(16, 1, 256)
    step.record.note(step.call, [16, 3, 512])
    for addresses in ((16, 3, 512), (4096, 7, 1 << 40), (0, 1 << 50, 256)):
        assert step.run(*addresses) == 0
        first, *numbers, second, third, stream = step.from_library[-1]
        assert (second, third, first, stream) == (*addresses, STREAM)
        assert numbers == [FIRST + k for k in range(ARGUMENTS - 4)]
    assert step.from_python == []


@pytest.mark.parametrize(
    ("alignments", "addresses", "is_alike"),
    [
        ((16, 16, 16), (16, 32, 48), True),
        ((16, 16, 16), (17, 32, 48), False),
        ((16, 16, 16), (16, 40, 48), False),
        ((16, 16, 16), (16, 32, 56), False),
        ((8, 8, 8), (24, 8, 40), True),
        ((8, 8, 8), (24, 8, 44), False),
        ((16, 0, 16), (32, 64, 32), True),
        ((16, 0, 16), (32, 65, 32), False),
        ((16, 0, 16), (32, 64 + (1 << 60), 32), False),
    ],
)
def test_operands_must_lie_alike(alignments: Any, addresses: Any, is_alike: bool) -> None:
    step = Step(*alignments)
    step.record.note(step.call, [64, 64, 64])
    assert step.run(*addresses) == (0 if is_alike else 5)
    assert (len(step.from_library), len(step.from_python)) == ((1, 0) if is_alike else (0, 1))


def test_python_queues_a_step_whose_call_fails() -> None:
    step = Step(16, 16, 16)
    step.record.note(step.call, [16, 16, 16])
    step.status = 13
    assert step.run(16, 32, 48) == 5 and len(step.from_library) == len(step.from_python) == 1


def test_a_noted_call_is_replaced() -> None:
    step, other = Step(16, 16, 16), Step(16, 16, 16)
    step.record.note(step.call, [16, 16, 16])
    step.record.note(other.call, [16, 16, 16])
    assert step.run(16, 16, 16) == 0 and step.from_library == [] and len(other.from_library) == 1
