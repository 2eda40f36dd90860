"""Printed kernels become machine code for three processors, and keep their values in registers."""

from __future__ import annotations

from collections.abc import Callable

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


@pytest.fixture(scope="module")
def linker() -> Linker:
    found = find_linker()
    assert found is not None, "the extra `test` brings nvidia-nvjitlink"
    return found


@pytest.mark.parametrize("target", TARGETS)
def test_a_kernel_becomes_machine_code(linker: Linker, target: str) -> None:
    linked = linker.link(to_ptx([SQUARES], target), target)
    assert linked.cubin[:4] == b"\x7fELF"
    ((name, resources),) = linked.resources.items()
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
    linked = linker.link(to_ptx([kernel.code for kernel in kernels.values()], target), target)
    functions = {kernel.function(launch) for kernel in kernels.values() for launch in kernel.launches}
    assert linked.resources.keys() == functions
    spilled = {name: resources for name, resources in linked.resources.items() if resources.spilled > MOST_SPILLED}
    assert not spilled
