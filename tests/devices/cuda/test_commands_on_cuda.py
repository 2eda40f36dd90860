"""The table of commands on the stand-in for a device of CUDA: kernels, libraries and the host have the CPU's values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nnc
from tests.contract.commands.sample import Sample
from tests.contract.commands.test_contract import SAMPLES, run
from tests.devices.cuda.machine import Machine
from tests.devices.test_commands_on_ptx import check_near


@pytest.mark.parametrize("row", SAMPLES, ids=str)
def test_a_compiled_command_has_the_results_of_the_cpu(row: Sample, machine: Machine) -> None:
    def function(*operands: Any) -> tuple[Any, ...]:
        return run(row, operands)

    wanted = nnc.compile(function)(*map(np.asarray, row.operands))
    given = [nnc.device_put(np.asarray(x), machine.name) for x in row.operands]
    found = nnc.compile(function, device=machine.name)(*given)
    check_near(row, found, wanted, machine.name)
