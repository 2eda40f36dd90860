"""The memory of a call by purpose, and whether it fits into a device that is there, or is described by its size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
import nnc.testing.devices
from nnc import nn, optim
from nnc.device import find_device
from nnc.errors import ArgumentError, MemoryBudgetError, UnsupportedError
from tests.devices.cuda.machine import Machine
from tests.devices.wrong import new_device

OPTIMIZER = optim.adam(1e-3)
X = np.ones((16, 8), np.float32)


def step(params: Any, state: Any, x: Any) -> Any:
    ct = nnc.grad(lambda p: nnp.sum(nnp.tanh(x @ p["w"] + p["b"]) ** 2))(params)
    updates, state = OPTIMIZER.update(ct, state, params)
    return optim.apply_updates(params, updates), state


def params() -> dict[str, Any]:
    return {"w": nnp.ones((8, 4), "float32"), "b": nnp.zeros(4, "float32")}


def test_a_training_step_knows_parameters_state_and_data() -> None:
    executable = nnc.compile(step).lower(params(), OPTIMIZER.init(params()), X).compile()
    found = executable.memory_plan.by_purpose
    assert found["parameters"] == 4 * (8 * 4 + 4)
    assert found["optimizer"] >= 2 * found["parameters"] and found["arguments"] == X.nbytes
    assert found["activations"] > 0 and found["captured"] == 0
    assert executable.memory_plan.total == sum(found.values())
    assert executable.memory_plan.total >= executable.memory_plan.peak + found["parameters"]


def test_a_module_is_parameters_also_where_nothing_is_trained() -> None:
    layer = nn.Linear(8, 4, key=nnc.random.key(0))
    found = nnc.compile(lambda layer, x: layer(x)).lower(layer, X).compile().memory_plan.by_purpose
    assert (found["parameters"], found["arguments"], found["results"]) == (4 * 36, X.nbytes, 4 * 16 * 4)
    captured = nnc.compile(lambda x: layer(x)).lower(X).compile().memory_plan.by_purpose
    assert (captured["parameters"], captured["captured"]) == (0, 4 * 36)


def test_an_argument_that_is_returned_anew_is_no_parameter_without_an_optimizer() -> None:
    found = nnc.compile(lambda x: x * 2).lower(X).compile().memory_plan.by_purpose
    assert (found["parameters"], found["arguments"]) == (0, X.nbytes)


def test_workspace_is_told_apart_from_activations() -> None:
    executable = (
        nnc.compile(lambda x: nnp.sum(nnp.abs(x), axis=0), device="ptx:0").lower(np.ones((4000, 64), "f4")).compile()
    )
    found = executable.memory_plan.by_purpose
    assert found["workspace"] > 0 and found["workspace"] + found["activations"] == executable.memory_plan.arena_bytes


def test_a_program_fits_where_all_its_bytes_do() -> None:
    executable = nnc.compile(lambda x: nnp.tanh(x) @ x.T, device="ptx:0").lower(X).compile()
    total = executable.memory_plan.total
    assert executable.fits(total) and not executable.fits(total - 1)
    assert executable.fits("80GiB") and executable.fits("ptx:0") and executable.fits("cpu")
    device, name = new_device(total)
    assert executable.fits(name)
    device.pool.capacity = total - 1
    assert not executable.fits(name)
    with pytest.raises(ArgumentError, match="'much' is no number of bytes"):
        executable.fits("much")
    with pytest.raises(UnsupportedError, match="there is no device"):
        executable.fits("sim:x")


def test_a_device_of_cuda_tells_all_its_memory() -> None:
    machine = Machine()
    assert machine.device("cuda:7").pool.capacity == machine.device("cuda:7").cupy.cuda.runtime.memGetInfo()[1]


@pytest.mark.parametrize("rows", [64, 1024])
def test_a_device_gives_the_bytes_of_the_plan(rows: int) -> None:
    device, name = new_device(1 << 28)
    f = nnc.compile(lambda x: (nnp.sum(nnp.sin(x) @ nnp.cos(x).T, axis=1), nnp.sort(x)), device=name)
    x = nnc.device_put(np.ones((rows, 96), "f4"), name)
    executable, before = f.lower(x).compile(), device.pool.used
    held = f(x)
    nnc.block_until_ready(held)
    taken, planned = device.pool.used - before, executable.memory_plan.peak
    assert planned <= taken <= planned + 256 * 4  # each block has whole units of 256 bytes, and effects have one


def test_a_budget_that_a_program_exceeds_is_refused_before_it_takes_memory() -> None:
    device, name = new_device(1 << 28)
    x = nnc.device_put(np.ones((256, 256), "f4"), name)
    before = device.pool.used
    with pytest.raises(MemoryBudgetError, match="memory_budget is 100.00 KiB"):
        nnc.compile(lambda x: nnp.tanh(x @ x) @ x, memory_budget="100KiB")(x)
    assert device.pool.used == before
    assert find_device(name, "test") is device
