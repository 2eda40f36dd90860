"""Collectives of devices: calls of NCCL, held against a stand-in whose places all hold the same operands."""

from __future__ import annotations

import importlib
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.commands import collective
from nnc.commands.collective import process_index
from nnc.errors import UnsupportedError
from nnc.graph import bind
from nnc.graph import reference as references
from tests.devices.cuda.machine import Machine
from tests.devices.cuda.nccl import FakeNccl

SIZE, RANK = 4, 2
PARAMS = {"size": SIZE, "stride": 1}
MODULE = importlib.import_module("nnc.backends.cuda.libraries.nccl")


@pytest.fixture
def nccl(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> FakeNccl:
    """The machine's NCCL, in the process of one of four ranks."""
    made = FakeNccl(machine)
    monkeypatch.setattr(machine.libraries.cupy.cuda, "nccl", made, raising=False)
    group = SimpleNamespace(rank=RANK, bcast=lambda own: made.get_unique_id() if own is None else own)
    monkeypatch.setattr(MODULE, "communicator", lambda size, stride: group)
    monkeypatch.setattr(MODULE, "known_world", lambda: SimpleNamespace(waiting=lambda site: nullcontext()))
    return made


def run(name: str, x: Any, machine: Machine, **params: Any) -> None:
    """Compares the result of a collective in a compiled program with that of its reference."""
    named = {} if name == "process_index" else {"axis_name": "data"}

    def call(x: Any) -> Any:
        (index,) = bind(process_index, [], PARAMS)
        return bind(getattr(collective, name), [x, index], {**PARAMS, **named, **params})[0]

    found = np.asarray(nnc.compile(call)(nnc.device_put(nnp.asarray(x), machine.name)).to_device("cpu"))
    wanted = references[getattr(collective, name)](np.asarray(x), np.asarray(RANK, np.int32), size=SIZE, **params)
    assert found.dtype == wanted.dtype
    assert found.tobytes() == wanted.tobytes() or np.array_equal(
        found.astype("f4"), wanted.astype("f4"), equal_nan=True
    )


DTYPES = ("float32", "float64", "float16", ml_dtypes.bfloat16, "int8", "uint64", "int32", "int16", "complex64")
TURNED = tuple((k, (k + 1) % SIZE) for k in range(SIZE))


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda x: np.dtype(x).name)
def test_all_collectives_have_their_results(dtype: Any, machine: Machine, nccl: FakeNccl) -> None:
    x = np.random.default_rng(0).integers(-3, 9, (SIZE, 3)).astype(dtype)
    for name in ("psum", "psum_scatter", "all_gather", "all_gather_same", "all_to_all"):
        run(name, x, machine)
    run("ppermute", x, machine, perm=TURNED)
    if dtype != "complex64":
        run("pmax", x, machine)
        run("pmin", x, machine)
    assert len(nccl.known) == 1  # one communicator


def test_calls_have_counts_dtypes_and_partners(machine: Machine, nccl: FakeNccl) -> None:
    x = np.ones((SIZE, 3), np.float32)
    for name, calls in (
        ("psum", [("allReduce", 12, 7, 0)]),
        ("psum_scatter", [("reduceScatter", 3, 7, 0)]),
        ("all_gather", [("allGather", 48, 1)]),
        ("pmax", [("allGather", 48, 1)]),  # NaN
        ("all_to_all", [(kind, 12, 1, place) for kind in ("send", "recv") for place in range(SIZE)]),
    ):
        nccl.calls.clear()
        run(name, x, machine)
        assert nccl.calls == calls
    nccl.calls.clear()
    run("ppermute", x, machine, perm=TURNED)
    assert nccl.calls == [("send", 48, 1, 3), ("recv", 48, 1, 1)]
    nccl.calls.clear()
    run("pmin", np.ones(5, np.bool_), machine)
    run("psum", np.ones(5, np.complex64), machine)
    assert nccl.calls == [("allReduce", 5, 1, 3), ("allReduce", 10, 7, 0)]


def test_a_place_without_a_source_gets_zeros(machine: Machine, nccl: FakeNccl) -> None:
    run("ppermute", np.ones(3, np.float32), machine, perm=((2, 3),))
    assert nccl.calls == [("send", 12, 1, 3)]
    run("ppermute", np.ones((0, 3), np.float32), machine, perm=TURNED)
    assert len(nccl.calls) == 1


def test_the_largest_of_nan_is_nan(machine: Machine, nccl: FakeNccl) -> None:
    for dtype in ("float32", ml_dtypes.bfloat16):
        run("pmax", np.asarray([1, np.nan, 3]).astype(dtype), machine)


def test_strided_operands_are_copied_first(machine: Machine, nccl: FakeNccl) -> None:
    x = np.arange(24.0, dtype=np.float32).reshape(4, 6)

    def columns(x: Any) -> Any:
        (index,) = bind(process_index, [], PARAMS)
        return bind(collective.psum, [x.T[1:3], index], {**PARAMS, "axis_name": "data"})[0].T

    found = nnc.compile(columns)(nnc.device_put(nnp.asarray(x), machine.name))
    np.testing.assert_array_equal(np.asarray(found.to_device("cpu")), SIZE * x[:, 1:3])


def test_without_the_library_the_error_says_so(machine: Machine, nccl: FakeNccl) -> None:
    nccl.available = False
    with pytest.raises(UnsupportedError, match=r"NCCL, which CuPy does not find(.|\n)*nvidia-nccl"):
        run("psum", np.ones(3, np.float32), machine)
