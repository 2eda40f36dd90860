"""The CPU as a device: its memory, and names of devices in arguments."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.base import machine
from nnc.device import CPU, kind_of
from nnc.device.cpu import ALIGNMENT, aligned_bytes
from nnc.device.targets import _cpu_target as cpu_target_of
from nnc.device.targets import cpu_target
from nnc.errors import RegistryError, UnsupportedError
from nnc.graph import Kernel, TensorSpec, add_kernel, command, find_kernel, register, structural_hash
from nnc.graph.rules import Rules
from tests.figures import HERE


@pytest.mark.parametrize("nbytes", [1, 63, 64, 1 << 20])
@pytest.mark.parametrize("alignment", [ALIGNMENT, 1 << 12])
def test_memory_is_aligned_and_as_long_as_asked(nbytes: int, alignment: int) -> None:
    found = aligned_bytes(nbytes, alignment)
    assert found.nbytes == nbytes and found.ctypes.data % alignment == 0


def test_kinds_are_names_without_numbers() -> None:
    assert [kind_of(name) for name in ("cpu", "cuda:0", "cuda:13", "sim:0")] == ["cpu", "cuda", "cuda", "cpu"]


@pytest.mark.parametrize(
    "ask",
    [
        lambda: nnc.compile(lambda x: x, device="cuda:7"),
        lambda: nnp.zeros(2, device="cuda:7"),
        lambda: nnc.asarray(1.0, device="cuda:7"),
        lambda: nnc.asarray(1.0).to_device("cuda:7"),
    ],
)
def test_a_device_that_is_not_there_is_refused_with_those_that_are(ask: Any) -> None:
    with pytest.raises(UnsupportedError, match=r"no device 'cuda:7'[\s\S]*'cpu'"):
        ask()


def test_a_kernel_is_found_for_its_kind_of_devices_alone() -> None:
    def run(inputs: Any, outputs: Any, params: Any) -> None:
        outputs[0][...] = inputs[0]

    register("test_same_for_devices", Rules(infer=lambda x: x))
    add_kernel("test_same_for_devices", Kernel("here", run))
    add_kernel("test_same_for_devices", Kernel("here", run, device="elsewhere"))
    spec = TensorSpec((2,), "float32")
    for kind in ("cpu", "elsewhere"):
        found = find_kernel(command("test_same_for_devices"), (spec,), {}, replace(HERE, kind=kind))
        assert found is not None and found.device == kind
    with pytest.raises(RegistryError, match="has a kernel of priority"):
        add_kernel("test_same_for_devices", Kernel("here", run, device="elsewhere"))
    assert nnc.compile(command("test_same_for_devices"))(np.ones(2)).tolist() == [1.0, 1.0]


def test_a_graph_knows_no_device() -> None:
    graph = nnc.make_graph(lambda x: nnp.zeros(2, device=CPU) + x)(np.ones(2))
    assert structural_hash(graph) == structural_hash(nnc.make_graph(lambda x: nnp.zeros(2) + x)(np.ones(2)))
    assert not any(hasattr(symbol.spec, "device") for symbol in graph.symbols())


@pytest.mark.parametrize(
    ("system", "units", "nbytes"),
    [
        ("Linux x86_64", "avx2, fma, avx512f", 64),
        ("Linux x86_64", "avx2, fma", 32),
        ("Linux aarch64", "asimd", 16),
        ("Linux aarch64", "asimd, sve", 16),  # LLVM keeps vectors of a fixed length in NEON's registers
        ("Darwin arm64", "unknown", 16),
        ("Windows AMD64", "unknown", 32),
    ],
)
def test_vectors_are_those_of_the_processor(
    system: str, units: str, nbytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = {"model": "some", "system": system, "vector units": units}
    monkeypatch.setattr(machine, "processor", lambda cpuinfo, cpu: facts)
    cpu_target_of.cache_clear()
    try:
        assert cpu_target().vector_bytes == nbytes
    finally:
        cpu_target_of.cache_clear()
