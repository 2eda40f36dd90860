"""Lowering for a device asks the kernels of its kind, and no library of another kind is loaded."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.backends.loaded import candidate_kernels, choose_kernel, compiler
from nnc.backends.numpy_ref import reference_kernel
from nnc.backends.onednn.library import library
from nnc.base.options import Options
from nnc.base.target import Target
from nnc.compiled.pipeline import lower, plan
from nnc.device import machine_of_device
from nnc.graph import Command, Graph, Kernel, TensorSpec, add_kernel, command, kernel, reference
from nnc.run.kernel_queue import settled

GPU = "cuda:0"


def network(w: Any, k: Any, x: Any, a: Any) -> Any:
    """A loss of convolutions with few channels, products, a norm, softmax, a sort, a loop and a system of equations."""
    h = nnc.nn.relu(nnc.nn.conv(nnc.nn.relu(nnc.nn.conv(x, k, padding=1)), nnp.swapaxes(k, 0, 1), stride=2))
    h = h.reshape(h.shape[0], -1)[:, :64]
    h = nnc.nn.relu((h - nnp.mean(h, axis=0)) / (1 + nnp.var(h, axis=0)) @ w + 1)
    h = nnc.scan(lambda carry, _: (nnp.tanh(carry @ w), None), h, nnp.arange(3))[0]
    return (
        nnp.sum(nnc.nn.softmax(h) ** 2)
        + nnp.sum(nnp.sort(h) + h[:, nnp.argmax(h, axis=1)][:, :1])
        + nnp.sum(nnp.linalg.solve(a, a))
    )


def operands(size: int) -> tuple[Any, ...]:
    shapes = (64, 64), (8, 3, 3, 3), (2, 3, size, size)
    return *(np.full(shape, 0.1, "float32") for shape in shapes), np.eye(8, dtype="float32")


def refer(command: Command, specs: tuple[TensorSpec, ...], params: Mapping[str, Any], machine: Target) -> Kernel:
    """Chooses references."""
    return reference_kernel(command, specs, params)


def step(size: int = 16) -> Graph:
    """The gradients of the network."""
    return nnc.make_graph(nnc.grad(network, argnums=(0, 1, 2)))(*operands(size))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc lists the libraries of a process")
def test_a_program_for_another_device_loads_no_library_of_the_cpu() -> None:
    if library() is None or compiler() is None:
        pytest.skip("oneDNN or LLVM is not installed")
    code = """
        from pathlib import Path
        from nnc.backends.loaded import choose_kernel
        from nnc.compiled.pipeline import lower
        from nnc.base.options import Options
        from tests.unit.lower.test_devices import GPU, refer, step

        def libraries():
            lines = Path("/proc/self/maps").read_text().splitlines()
            return {name for line in lines if ".so" in (name := line.split("/")[-1])}

        graph, known = step(), libraries()
        lower(graph, Options(device=GPU, keeps=(0, 1)), refer)
        print(*sorted(libraries() - known))
        lower(graph, Options(keeps=(0, 1)), choose_kernel)
        print(*sorted(libraries() - known))
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\n")
    assert not [name for name in loaded[0].split() if name.startswith(("libdnnl", "libgomp", "libLLVM", "libllvm"))]
    assert any(name.startswith("libdnnl") for name in loaded[1].split())  # the same graph asks it on the CPU


def refuse(*_: Any) -> Any:
    raise AssertionError("a kernel for another kind of device was asked")


def add_kernels_that_refuse(device: str) -> None:
    """Gives each command a kernel of the highest priority that must not be asked."""
    for each in [*reference, *kernel]:
        if not any(known.backend == "refusing" for known in kernel.get(each, ())):
            refusing = Kernel("refusing", refuse, refuse, 1000, refuse, refuse, refuse, refuse, True, refuse, device)
            add_kernel(each, refusing)


@pytest.mark.usefixtures("own_registries")
@pytest.mark.parametrize(("device", "other"), [("cpu", "elsewhere"), ("sim:0", "elsewhere"), (GPU, "cpu")])
def test_kernels_for_another_kind_of_device_are_not_asked(device: str, other: str) -> None:
    small, large = step(), step(128)
    chosen = refer if device == GPU else choose_kernel
    add_kernels_that_refuse(other)
    lower(small, Options(device=device, keeps=(0, 1), verify_passes=True), chosen)
    plan(large, Options(device=device, memory_budget=1))  # delays and rematerializes, too
    settled(small, machine_of_device(device))


@pytest.mark.usefixtures("own_registries")
def test_candidates_on_the_cpu_are_kernels_for_the_cpu() -> None:
    add_kernels_that_refuse("elsewhere")
    x = TensorSpec((16, 16), "float32")
    params: Mapping[str, Any] = {}
    found = candidate_kernels(command("add"), (x, x), params)
    assert [each.backend for each in found] == [reference_kernel(command("add"), (x, x), params).backend]
