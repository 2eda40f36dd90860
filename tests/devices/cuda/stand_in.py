"""Makes the stand-in for a graphics processor the device `cuda:0` of this process, for the generator of programs:

`python -m nnc.testing.fuzz --imports tests.devices.cuda.stand_in --modes "cuda,eager cuda,cuda vjp" --seconds 300`
"""

from __future__ import annotations

import os
import traceback

import nnc.backends.cuda.compiler.compiler as compiler
import nnc.backends.cuda.libraries.dot as dot
from nnc.device import kinds
from nnc.device.cuda import libraries
from tests.devices.cuda.cublaslt import FakeCublasLt
from tests.devices.cuda.machine import Machine


class _Faults(list[BaseException]):
    """Ends the process at a fault of the machine, which the generator then reports with the program."""

    def append(self, fault: BaseException) -> None:
        traceback.print_exception(fault)
        os.abort()


def install() -> Machine:
    """Makes a machine the device `cuda:0`; it interprets PTX, and no machine code."""
    machine = Machine()
    machine.faults, machine.name = _Faults(), "cuda:0"
    library = FakeCublasLt(machine)
    libraries.number_of_gpus = lambda: 1
    compiler.find_linker = lambda: None
    dot.load_library = lambda: library
    kinds._DEVICES[machine.name] = machine.device(machine.name)
    return machine


MACHINE = install()
