"""Memory of a device that nnc and other libraries share, on a stand-in whose streams run in any order that events allow."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.base.dtypes import bfloat16
from nnc.device.dlpack import load
from nnc.errors import ArgumentTypeError, OutOfBoundsError
from tests.devices.cuda.machine import Host, Machine
from tests.devices.cuda.tensors import Library, Tensor

X = np.arange(600, dtype=np.float32).reshape(20, 30)
DTYPES = ["bool", "int8", "uint16", "int64", "float16", bfloat16, "float32", "float64", "complex64"]


def place_of(x: Any, machine: Machine) -> int:
    """The address of an array of nnc."""
    return int(x.memory.block.address)


def address_of(x: Tensor) -> int:
    return int(x.lease.region.address + x.held.ctypes.data - x.lease.bytes.ctypes.data)


def finish(machine: Machine) -> None:
    """Does all work, so that a wrong order shows."""
    gc.collect()
    machine.sim.synchronize()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_an_array_of_another_library_is_read_where_it_lies(dtype: Any, machine: Machine) -> None:
    tensor = Library(machine).array(X.astype(dtype))
    x = nnp.asarray(tensor)
    assert (x.device, x.dtype, x.shape) == (machine.name, np.dtype(dtype), X.shape)
    assert place_of(x, machine) == address_of(tensor)
    assert np.array_equal(np.asarray(nnp.concatenate([x, x]))[20:], X.astype(dtype))
    assert np.array_equal(np.asarray(nnp.from_dlpack(tensor)), X.astype(dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_another_library_reads_an_array_where_it_lies(dtype: Any, machine: Machine) -> None:
    library, x = Library(machine), nnc.device_put(X.astype(dtype), machine.name)
    y = nnp.concatenate([x, x])  # is computed late
    tensor = library.from_dlpack(y)
    assert address_of(tensor) == place_of(y, machine)
    (found,) = (tensor.read(), machine.sim.synchronize())[0]
    assert np.array_equal(found.view(dtype), np.concatenate([X, X]).astype(dtype))
    assert y.__dlpack_device__() == (2, int(machine.name.partition(":")[2]))


def test_arrays_of_other_libraries_meet_those_of_the_device_and_are_arguments(machine: Machine) -> None:
    tensor, y = Library(machine).array(X), nnc.device_put(X, machine.name)
    f = nnc.compile(lambda x, y: nnp.sum(x * y, axis=0))
    for _ in range(4):  # a captured graph at the end
        found = f(tensor, y)
        assert found.device == machine.name and np.allclose(np.asarray(found), (X * X).sum(0))
    assert np.array_equal(np.asarray(y - tensor), np.zeros_like(X))
    assert nnc.grad(lambda x: nnp.sum(x * x))(tensor).device == machine.name
    assert f(tensor, tensor).device == machine.name


@pytest.mark.parametrize("first", [4, 64, 255])
def test_memory_that_begins_between_places_of_arrays_is_copied(first: int, machine: Machine) -> None:
    tensor = Library(machine).array(X.view(np.uint8), first=first)
    x = nnp.asarray(tensor)
    assert place_of(x, machine) % 256 == 0 and place_of(x, machine) != address_of(tensor)
    del tensor  # its library may use the memory again, behind the copy
    finish(machine)
    assert np.array_equal(np.asarray(x), X.view(np.uint8))


@pytest.mark.parametrize("view", [lambda x: x[::2], lambda x: x.T, lambda x: x[:, 64:128]])
def test_elements_that_lie_apart_are_copied(view: Any, machine: Machine) -> None:
    whole = Library(machine).array(X)
    x = nnp.asarray(Tensor(whole.library, view(whole.held), whole))
    assert np.array_equal(np.asarray(x), view(X))


def test_empty_arrays_go_both_ways(machine: Machine) -> None:
    library = Library(machine)
    x = nnp.asarray(library.array(np.zeros((0, 3), np.float32)))
    assert x.shape == (0, 3) and np.asarray(x + 1).shape == (0, 3)
    assert x.__cuda_array_interface__["data"] == (0, False)


def synchronizations(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows with each time that the host waits for the whole device."""
    found: list[int] = []
    wait = machine.libraries.cupy.cuda.runtime.deviceSynchronize
    monkeypatch.setattr(machine.libraries.cupy.cuda.runtime, "deviceSynchronize", lambda: (found.append(1), wait())[1])
    return found


@pytest.mark.parametrize("names_stream", [True, False])
def test_work_of_another_library_comes_before_memory_is_used_again(
    names_stream: bool, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = Library(machine, handle=1)  # CUDA's own stream, which is there for ever
    x = nnc.device_put(X, machine.name)
    y = x + 1
    tensor = library.from_dlpack(y) if names_stream else Tensor(library, load(Host(y.__dlpack__())))
    waits = synchronizations(machine, monkeypatch)
    found = tensor.read()
    del y, tensor
    gc.collect()
    for i in range(8):
        z = x * i  # takes the memory again
        del z
    assert waits == []
    finish(machine)
    assert np.array_equal(found[0], X + 1)


@pytest.mark.parametrize("by_interface", [False, True])
def test_the_host_waits_for_streams_that_may_be_gone(
    by_interface: bool, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = synchronizations(machine, monkeypatch)
    library, x = Library(machine), nnc.device_put(X, machine.name)
    y = x + 1
    if by_interface:  # the reader keeps its stream for itself
        given = y.__cuda_array_interface__
        lease, first = machine.sim.pool.find(given["data"][0])
        held = np.ndarray(given["shape"], given["typestr"], lease.bytes, first)
        library.order(given["stream"], library.handle)
        tensor = Tensor(library, held, y)
    else:
        tensor = library.from_dlpack(y)
    found = tensor.read()
    del y, tensor
    gc.collect()
    for i in range(8):
        z = x * i
        del z
    assert waits == [1]
    finish(machine)
    assert np.array_equal(found[0], X + 1)


def test_memory_of_another_library_is_kept_until_work_on_it_is_done(machine: Machine) -> None:
    library, x = Library(machine), nnc.device_put(X, machine.name)
    tensor = library.array(X)
    found = x + nnp.asarray(tensor)
    del tensor
    gc.collect()
    for _ in range(4):
        other = library.array(np.full_like(X, 7.0))  # takes the memory again, once it is free
        del other
        x = x + 0
    finish(machine)
    assert np.array_equal(np.asarray(found), X + X)


def test_the_host_sees_later_writes_of_another_library(machine: Machine) -> None:
    library = Library(machine)
    tensor = library.array(X)
    x = nnp.asarray(tensor)
    assert np.array_equal(np.asarray(x), X)
    machine.sim.synchronize()
    tensor.fill(3.0)
    machine.sim.synchronize()
    assert np.array_equal(np.asarray(x), np.full_like(X, 3.0))


@pytest.mark.parametrize("shared", ["received", "argument", "lent", "described"])
def test_a_donated_array_of_two_libraries_is_not_written_over(shared: str, machine: Machine) -> None:
    library = Library(machine)
    f = nnc.compile(lambda x: x * 2, donate_argnums=0)
    if shared == "lent" or shared == "described":
        x = nnc.device_put(X, machine.name) + 0
        tensor = library.from_dlpack(x) if shared == "lent" else Tensor(library, _described(x, machine), x.memory)
    else:
        tensor = library.array(X)
        x = tensor if shared == "argument" else nnp.asarray(tensor)
    for _ in range(1 if shared != "argument" else 4):
        assert np.array_equal(np.asarray(f(x)), 2 * X)
    finish(machine)
    assert np.array_equal(tensor.held, X)


def _described(x: Any, machine: Machine) -> Any:
    given = x.__cuda_array_interface__
    assert (given["version"], given["strides"], given["shape"]) == (3, None, X.shape)
    lease, first = machine.sim.pool.find(given["data"][0])
    return np.ndarray(given["shape"], given["typestr"], lease.bytes, first)


def test_a_copy_is_lent_where_one_is_asked_for(machine: Machine) -> None:
    library, x = Library(machine), nnc.device_put(X, machine.name)
    tensor = library.from_dlpack(x, copy=True)
    assert address_of(tensor) != place_of(x, machine)
    tensor.fill(1.0)
    machine.sim.synchronize()
    assert np.array_equal(np.asarray(x), X)
    assert np.array_equal(np.from_dlpack(x, device="cpu"), X)


def test_an_array_that_a_refused_index_made_is_not_lent(machine: Machine) -> None:
    x = nnc.device_put(X, machine.name)
    y = nnc.compile(lambda x, i: x[i])(x, nnc.device_put(np.array([3, 77]), machine.name))
    with pytest.raises(OutOfBoundsError):
        Library(machine).from_dlpack(y)
    with pytest.raises(OutOfBoundsError):
        _ = y.__cuda_array_interface__


def test_a_tensor_that_its_library_keeps_is_an_error(machine: Machine) -> None:
    class Refuses(Tensor):
        def __dlpack__(self, **_: Any) -> Any:
            raise BufferError("it carries a gradient")

    tensor = Library(machine).array(X)
    with pytest.raises(ArgumentTypeError, match="Refuses.*cannot be read: it carries a gradient"):
        nnp.asarray(Refuses(tensor.library, tensor.held, tensor))
    x = nnc.device_put(X.astype(bfloat16), machine.name)
    assert not hasattr(x, "__cuda_array_interface__")  # it has no bfloat16
