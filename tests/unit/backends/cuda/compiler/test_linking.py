"""Printed kernels become machine code for three processors, and keep their values in registers."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import pytest

import nnc
from nnc.backends.cuda.compiler.compiler import to_ptx
from nnc.backends.cuda.compiler.linking import Linker, find_linker
from nnc.errors import InternalError
from tests.devices.test_programs_on_sim import arguments_of
from tests.golden.programs import PROGRAMS, Program
from tests.unit.backends.cuda.compiler.test_assembling import SQUARES

TARGETS = ("sm_80", "sm_90", "sm_100")
MOST_SPILLED = 16  # bytes
_FUNCTION = re.compile(
    r"Compiling entry function '(.+?)'.*\n.*\n.* (\d+) bytes stack frame, (\d+) bytes spill stores, (\d+)"
)
_REGISTERS = re.compile(r"Function properties for '(.+?)':\n.*used (\d+) registers, .*?(\d+) bytes smem")


@dataclass(frozen=True, slots=True)
class Resources:
    """The resources that a kernel takes.

    Attributes:
        registers: registers of a thread.
        spilled: bytes that threads store in memory, and load again, because registers are short.
        stack: bytes of a thread's own memory.
        shared: bytes of a block's shared memory.
    """

    registers: int
    spilled: int
    stack: int
    shared: int


def resources_of(log: str) -> dict[str, Resources]:
    """Returns the resources of kernels, as the assembler's log lists them."""
    used = {name: (int(registers), int(shared)) for name, registers, shared in _REGISTERS.findall(log)}
    return {
        name: Resources(used[name][0], max(int(stored), int(loaded)), int(stack), used[name][1])
        for name, stack, stored, loaded in _FUNCTION.findall(log)
    }


@pytest.fixture(scope="module")
def linker() -> Linker:
    found = find_linker()
    assert found is not None, "the extra `test` brings nvidia-nvjitlink"
    return found


@pytest.mark.parametrize("target", TARGETS)
def test_a_kernel_becomes_machine_code(linker: Linker, target: str) -> None:
    linked = linker.link(to_ptx([SQUARES], target), target, ["-verbose"])
    assert linked.cubin[:4] == b"\x7fELF"
    ((name, resources),) = resources_of(linked.log).items()
    assert name == "squares" and 4 <= resources.registers <= 32
    assert (resources.spilled, resources.stack, resources.shared) == (0, 0, 0)


def test_a_text_that_is_not_taken_is_told_with_the_log(linker: Linker) -> None:
    with pytest.raises(InternalError, match=r"for sm_90: [\s\S]*Not a name of any known instruction: 'addx'"):
        linker.link(to_ptx([SQUARES], "sm_90").replace("add.rn", "addx.rn"), "sm_90")
    with pytest.raises(InternalError, match="does not take the options"):
        linker.link(to_ptx([SQUARES], "sm_90"), "sm_90", ["-no-such-option"])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("make", PROGRAMS, ids=lambda make: make.__name__)
def test_kernels_of_programs_keep_their_values_in_registers(
    linker: Linker, make: Callable[[], Program], target: str
) -> None:
    program = make()
    executable, _ = nnc.compile(program.fun).find(*nnc.device_put(arguments_of(program), "ptx:0"))
    assert executable is not None
    kernels = {kernel.name: kernel for kernel in executable._program.printed.values()}
    linked = linker.link(to_ptx([kernel.code for kernel in kernels.values()], target), target, ["-verbose"])
    found = resources_of(linked.log)
    functions = {kernel.function(launch) for kernel in kernels.values() for launch in kernel.launches}
    assert found.keys() == functions
    spilled = {name: resources for name, resources in found.items() if resources.spilled > MOST_SPILLED}
    assert not spilled
