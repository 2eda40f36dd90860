"""Wrong uses of devices and of their arrays: each is an error that names the mistake, the place, the user's line and the fix."""

from __future__ import annotations

import copy
import gc
import multiprocessing
import pickle
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import nn
from nnc.errors import (
    ArgumentTypeError,
    DeviceError,
    DTypeError,
    NncError,
    UnsupportedError,
)
from tests.devices.wrong import Use, X, check_told, new_device, rows, there

HERE = __name__.rpartition(".")[2]


# -- donated arrays ----------------------------------------------------------------------------------------------------

DONATED: dict[str, Use] = {
    "read": np.asarray,
    "float": lambda x: float(x[0, 0]),
    "pickled": pickle.dumps,
    "copied": copy.copy,
    "asked for its device": lambda x: x.device,
    "sent to the host": lambda x: nnc.device_put(x, "cpu"),
    "sent to another device": lambda x: nnc.device_put(x, "sim:1"),
    "sent where it was": lambda x: nnc.device_put(x, "sim:0"),
    "waited for": nnc.block_until_ready,
    "donated again": lambda x: nnc.compile(lambda a: a * 2, donate_argnums=0)(x),
    "an operand": lambda x: there() + x,
    "an operand beside one of the CPU": lambda x: nnp.ones((2, 3)) + x,
    "captured": lambda x: nnc.compile(lambda: x * 2, device="sim:0")(),
    "differentiated": lambda x: nnc.grad(lambda a: nnp.sum(a * a))(x),
    "mapped": lambda x: nnc.vmap(lambda a: a * 2)(x),
}


@rows(DONATED)
def test_a_donated_array_cannot_be_used(use: Use) -> None:
    x = there() * 1
    nnc.compile(lambda a: a + 1, donate_argnums=0)(x)
    assert repr(x) == "Array(<donated>, float32[2,3])"
    check_told(lambda: use(x), ArgumentTypeError, "donated array: its memory was given", "float32[2,3]")


def test_an_array_that_is_donated_twice_in_one_call_is_copied_as_on_the_cpu() -> None:
    f = nnc.compile(lambda a, b: (a + 1, b * 2), donate_argnums=(0, 1))
    for array in (there() * 1, nnp.asarray(X) * 1):
        first, second = f(array, array)
        assert np.array_equal(first, X + 1) and np.array_equal(second, X * 2) and array.is_deleted()


def test_of_two_threads_that_donate_an_array_one_is_told() -> None:
    for i in range(80):
        if i % 4 == 0:  # its first calls take another way than later ones
            f = nnc.compile(lambda a: a + 1, donate_argnums=0)
            f(there() * 1)
        x, found, barrier = there() * 1, list[Any](), threading.Barrier(2)

        def work(f: Any = f, x: Any = x, found: list[Any] = found, barrier: threading.Barrier = barrier) -> None:
            barrier.wait()
            try:
                found.append(np.asarray(f(x)))
            except ArgumentTypeError as error:
                found.append(str(error))

        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        results = [each for each in found if not isinstance(each, str)]
        assert len(found) == 2 and len(results) == 1 and np.array_equal(results[0], X + 1)


def test_a_call_that_is_refused_donates_nothing() -> None:
    x = there() * 1
    f = nnc.compile(lambda a, b: a + b, donate_argnums=0)
    check_told(lambda: f(x, there(device="sim:1")), DeviceError, "arguments are on sim:0 and on sim:1")
    assert np.array_equal(f(x, there()), X * 2) and x.is_deleted()


# -- a device that is lost ---------------------------------------------------------------------------------------------

LOST: dict[str, Use] = {
    "an operand": lambda x: x + 1,
    "printed": print,
    "pickled": pickle.dumps,
    "read": np.asarray,
    "asked": lambda x: bool(x[0, 0] > 0),
    "iterated": list,
    "sent to the host": lambda x: nnc.device_put(x, "cpu"),
    "sent to another device": lambda x: nnc.device_put({"a": X, "b": x}, "sim:0"),
    "waited for": nnc.block_until_ready,
    "an argument": lambda x: nnc.compile(lambda a: a + 1)(x),
    "captured": lambda x: nnc.compile(lambda a: a + x, device=x.device)(X),
    "differentiated": lambda x: nnc.grad(lambda a: nnp.sum(a * a))(x),
    "changed": lambda x: x.at[0].set(1),
    "followed by an array of the host": lambda x: nnc.compile(lambda a: a, device=x.device)(X),
    "the default": lambda x: nnp.zeros(2, device=x.device),
    "donated": lambda x: nnc.compile(lambda a: a + 1, donate_argnums=0)(x),
}


@rows(LOST)
def test_an_array_of_a_lost_device_cannot_be_used(use: Use) -> None:
    device, name = new_device()
    x = there(device=name) * 2
    device.unplug()
    check_told(lambda: use(x), DeviceError, f"{name} does not answer any more")


def test_a_program_that_ran_before_its_device_was_lost_is_told() -> None:
    device, name = new_device()
    f = nnc.compile(lambda a: a + 1, device=name)
    for _ in range(4):
        f(X)
    device.unplug()
    check_told(lambda: f(X), DeviceError, f"{name} does not answer any more")
    assert np.array_equal(nnc.compile(lambda a: a + 1)(X), X + 1)  # the CPU goes on


def test_a_device_that_is_lost_in_the_middle_of_work_gives_no_elements() -> None:
    device, name = new_device()
    x = there(device=name)
    device.stream.launch("unplug", device.unplug, [])
    y = x + 1
    check_told(lambda: np.asarray(y), DeviceError, f"{name} does not answer any more")


def test_arrays_of_a_lost_device_can_be_dropped_and_elements_that_were_read_stay() -> None:
    device, name = new_device()
    x, y = there(device=name), there(device=name)
    known = np.asarray(x)
    device.unplug()
    assert np.array_equal(known, X) and x.shape == (2, 3) and x.device == name
    del x, y
    gc.collect()


# -- other processes and threads ---------------------------------------------------------------------------------------


def in_a_fork(function: Callable[[], Any]) -> str:
    """The error of a function in a forked process, or its result."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)

    def child() -> None:
        try:
            sender.send(f"returned {function()}")
        except NncError as error:
            sender.send(f"{type(error).__name__}: {error}")

    process = context.Process(target=child)
    process.start()
    process.join(60)
    assert receiver.poll(), "the process ended without an answer"
    return str(receiver.recv())


FORKED: dict[str, Use] = {
    "read": np.asarray,
    "an operand": lambda x: x + 1,
    "an argument": lambda x: nnc.compile(lambda a: a * 2)(x),
    "a new array": lambda x: nnp.ones(2, device="sim:0"),
    "printed": print,
}


@rows(FORKED)
def test_a_forked_process_cannot_use_a_device_with_queued_work(use: Use) -> None:
    x = there() + 1
    text = in_a_fork(lambda: use(x))
    assert "DeviceError" in text and "sim:0 belongs to the process that this one was forked from" in text
    assert HERE in text and "Fix: start processes with" in text
    assert np.array_equal(x, X + 1)  # the parent goes on


@pytest.mark.slow
def test_a_forked_process_can_drop_arrays_and_work_on_the_cpu() -> None:
    held = [there() + 1]

    def work() -> list[float]:
        held.clear()
        gc.collect()
        return (nnp.ones(2) + 1).tolist()

    assert in_a_fork(work) == "returned [2.0, 2.0]" and np.array_equal(held[0], X + 1)


def test_a_block_against_transfers_holds_in_its_own_thread() -> None:
    x, found = there(), list[Any]()
    with nnc.debug.transfers("error"):
        thread = threading.Thread(target=lambda: found.append(np.asarray(x + X)))
        thread.start()
        thread.join()
        check_told(lambda: np.asarray(x), DeviceError, "24 bytes (float32[2,3]) are copied from sim:0 to the host")
    assert np.array_equal(found[0], X * 2)


def test_a_pickled_array_is_loaded_on_the_host_wherever_it_was() -> None:
    device, name = new_device()
    text = pickle.dumps([there(device=name), nnc.device_put(nn.Linear(3, 2, key=nnc.random.key(0)), name)])
    device.unplug()
    assert {x.device for x in nnc.tree.leaves(pickle.loads(text))} == {"cpu"}


# -- names and things that no device takes -----------------------------------------------------------------------------

NAMES = ["gpu", "sim", "sim:", "sim:-1", "sim:00", "sim:٣", "sim:1000", "SIM:0", "sim:0 ", "cuda:0", "", 0, b"sim:0"]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_of_no_device_is_told_with_those_that_are(name: Any) -> None:
    ask: list[Use] = [
        lambda: nnc.device_put(X, name), lambda: nnc.default_device(name), lambda: nnp.zeros(2, device=name),
        lambda: nnc.compile(lambda x: x, device=name), lambda: there().to_device(name), lambda: nnc.asarray(X, device=name),
    ]  # fmt: skip
    for use in ask:
        check_told(use, UnsupportedError, f"there is no device {name!r}", "'cpu', 'sim:0'")


@pytest.mark.parametrize(
    "value", ["text", object(), print, {1, 2}, np.array([object()]), np.array(["a"])], ids=range(6)
)
@pytest.mark.parametrize("device", ["cpu", "sim:0"])
def test_things_that_are_no_numbers_are_not_sent(value: Any, device: str) -> None:
    check_told(
        lambda: nnc.device_put({"a": X, "b": value}, device), (DTypeError, ArgumentTypeError), "device_put: a leaf"
    )


def test_numpy_does_not_write_into_arrays() -> None:
    for x in (there(), nnp.asarray(X)):
        check_told(lambda x=x: np.add(X, X, out=x), ArgumentTypeError, "np.add(..., out=x)", "immutable")  # type: ignore[misc]
