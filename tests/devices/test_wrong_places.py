"""Arrays on two devices, and copies between them that nothing asks for: errors with both places and the fix."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import optim
from nnc.errors import (
    DeviceError,
)
from tests.devices.wrong import Use, X, check_told, rows, there

# -- arrays on two devices ---------------------------------------------------------------------------------------------

MIXED: dict[str, Use] = {
    "captured in a branch": lambda x, y: nnc.cond(x[0, 0] >= 0, lambda a: a + y, lambda a: a, x),
    "captured in a scan": lambda x, y: nnc.scan(lambda c, row: (c + y[0], c), x[0], x),
    "captured in a while loop": lambda x, y: nnc.while_loop(lambda c: nnp.sum(c) < 99, lambda c: c + y, x),
    "captured in a for loop": lambda x, y: nnc.fori_loop(0, 3, lambda i, c: c + y, x),
    "captured in a switch": lambda x, y: nnc.switch(1, [lambda a: a, lambda a: a + y], x),
    "captured in a checkpoint": lambda x, y: nnc.grad(nnc.checkpoint(lambda a: nnp.sum(a * y)))(x),
    "two carries": lambda x, y: nnc.while_loop(lambda c: nnp.sum(c[0]) < 99, lambda c: (c[0] + 1, c[1]), (x, y)),
    "mapped": lambda x, y: nnc.vmap(lambda a, b: a + b)(x, y),
    "differentiated": lambda x, y: nnc.grad(lambda a, b: nnp.sum(a * b), argnums=(0, 1))(x, y),
    "a tangent": lambda x, y: nnc.jvp(lambda a: a * 2, (x,), (y,)),
    "a cotangent": lambda x, y: nnc.vjp(lambda a: a * 2, x)[1](y),
    "a Hessian": lambda x, y: nnc.hessian(lambda a: nnp.sum(a * a * y))(x),
    "added at an index": lambda x, y: x.at[0].add(y[0]),
    "stacked": lambda x, y: nnp.stack([x, y]),
    "in a list": lambda x, y: nnp.array([x, y]),
    "compared": lambda x, y: x == y,
    "added by NumPy": np.add,
    "a condition": lambda x, y: nnp.where(y > 0, x, x),
    "parameters and updates": lambda x, y: optim.apply_updates({"w": x}, {"w": y}),
    "contracted": lambda x, y: nnp.einsum("ij,ij->i", x, y),
}


@pytest.mark.parametrize("second", ["sim:1", "cpu"])
@rows(MIXED)
def test_operands_on_two_devices_are_told_with_both_specs_and_the_fix(use: Use, second: str) -> None:
    x, y = there(), there(device=second)
    check_told(
        lambda: use(x, y), DeviceError, "operands are on sim:", f"on {second}", "float32[", "nnc.device_put(x, 'sim:"
    )


INDICES: dict[str, Use] = {
    "taken": lambda x, i: nnp.take(x, i, axis=0),
    "indexed": lambda x, i: x[i],
    "written": lambda x, i: x.at[i].set(1),
}


@rows(INDICES)
def test_an_index_on_another_device_is_told(use: Use) -> None:
    index = there(np.array([0]), "sim:1")
    check_told(lambda: use(there(), index), DeviceError, "operands are on sim:0 and on sim:1", "int64[1] on sim:1")


CAPTURED: dict[str, Use] = {
    "in a branch": lambda x, y: nnc.cond(x[0, 0] >= 0, lambda a: a + y, lambda a: a, x),
    "in a scan": lambda x, y: nnc.scan(lambda c, row: (c + y[0], c), x[0], x),
    "in a while loop": lambda x, y: nnc.while_loop(lambda c: nnp.sum(c) < 99, lambda c: c + y, x),
}


@rows(CAPTURED)
def test_a_compiled_function_captures_no_array_of_another_device(use: Use) -> None:
    y = there(device="sim:1")
    check_told(
        lambda: nnc.compile(lambda x: use(x, y))(there()), DeviceError,
        "it runs on sim:0 and captures an array on sim:1", "float32[2,3]", "pass the array as an argument",
    )  # fmt: skip


@pytest.mark.parametrize("device", ["cpu", "sim:1"])
def test_an_argument_on_another_device_than_the_function_is_told(device: str) -> None:
    f = nnc.compile(lambda x: x + 1, device=device)
    for x in (X, there(device=device)):
        for _ in range(4):
            assert f(x).device == device
    for call in (f, f.lower(X).compile()):
        assert call(X).device == device
        check_told(
            lambda call=call: call(there()), DeviceError,  # type: ignore[misc]
            f"it runs on {device}, and an argument is on sim:0", "float32[2,3]", f"nnc.device_put(x, '{device}')",
        )  # fmt: skip


def _in_a_block(x: Any) -> Any:
    with nnc.default_device("sim:1"):
        return x + nnp.ones(3)


INSIDE: dict[str, Use] = {
    "a new array": lambda x: x + nnp.zeros(3, device="sim:1"),
    "a value": lambda x: nnc.asarray(x, "float64", device="sim:1"),
    "a copy": lambda x: nnc.device_put(x, "sim:1") + 1,
    "a block": _in_a_block,
    "in a branch": lambda x: nnc.cond(x[0, 0] > 0, lambda: x, lambda: x * nnp.ones(3, device="sim:1")),
}


@rows(INSIDE)
def test_a_compiled_function_does_not_leave_its_device(use: Use) -> None:
    told = "device='sim:1' within a compiled function that runs on sim:0"
    check_told(
        lambda: nnc.compile(lambda x: use(x))(there()), DeviceError, told, "compile the function with device='sim:1'"
    )
    assert nnc.compile(lambda x: use(x))(there(device="sim:1")).device == "sim:1"


def test_new_arrays_on_the_device_of_an_argument_meet_it() -> None:
    def f(x: Any) -> Any:
        return nnp.sum(x * nnp.ones(x.shape, device=x.device))

    assert nnc.compile(lambda x: nnp.ones(len(x.device)))(there()).shape == (len("sim:0"),)
    for transform in (nnc.grad(f), nnc.vmap(f), nnc.compile(f), nnc.jacfwd(f)):
        assert transform(there()).device == "sim:0" and transform(X).device == "cpu"


def fail(*_: Any) -> None:
    raise ValueError("mine")


# -- transfers ---------------------------------------------------------------------------------------------------------

TRANSFERS: dict[str, Use] = {
    "a NumPy function": np.sin,
    "an operand of the host": lambda x: X + x,
    "a condition": lambda x: bool(x[0, 0] > 0),
    "an index of a list": lambda x: [1, 2, 3][x[0, 0].astype("int32")],
    "formatted": lambda x: f"{x}",
    "an item": lambda x: x[0, 0].item(),
    "a callback": lambda x: nnc.debug.callback(fail, x),
    "pickled": pickle.dumps,
}


@rows(TRANSFERS)
def test_a_copy_that_nothing_asks_for_is_told_with_its_size(use: Use) -> None:
    x = there()
    with nnc.debug.transfers("error"):
        check_told(lambda: use(x), DeviceError, "bytes (", ") are copied from", "Fix: copy the array once")


def test_work_that_copies_nothing_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    x = there()
    with nnc.debug.transfers("error"):
        for wait in ("0", "1"):
            monkeypatch.setenv("NNC_SYNC", wait)
            for y in (np.add(x, 1), np.mean(x), x[0], x.at[0].set(1), nnc.compile(lambda a: a * 2)(x)):
                assert y.device == "sim:0"
            nnc.block_until_ready(x + 1)
