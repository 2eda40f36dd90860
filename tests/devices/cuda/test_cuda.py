"""Devices of CUDA, on a stand-in for CuPy and the driver (`machine.py`): memory, order, errors, and whole programs."""

from __future__ import annotations

import gc
import importlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.backends.cpu.compiler.jit import compiler
from nnc.backends.cuda.compiler.compiler import CudaCompiler
from nnc.backends.cuda.compiler.linking import find_linker
from nnc.backends.cuda.kernels.regions import print_region
from nnc.device import find_device
from nnc.device.cuda import CudaDevice
from nnc.errors import DeviceError, OutOfBoundsError, OutOfMemoryError, UnsupportedError
from tests.devices.cuda.machine import COUNT, Machine
from tests.devices.test_programs_on_sim import arguments_of
from tests.devices.test_ptx import check_close, lowered
from tests.golden.programs import PROGRAMS, Program

X = np.random.default_rng(0).normal(size=(6, 40)).astype(np.float32)


@pytest.mark.parametrize("make", PROGRAMS, ids=lambda make: make.__name__)
def test_a_program_has_the_results_of_the_cpu_in_every_call(make: Callable[[], Program], machine: Machine) -> None:
    program = make()
    arguments = arguments_of(program)
    f = nnc.compile(program.fun)
    wanted = f(*arguments)
    for _ in range(2):
        check_close(f(*nnc.device_put(arguments, machine.name)), wanted)
    assert machine.launched


def test_eager_commands_and_derivatives_run_on_the_device(machine: Machine) -> None:
    x = nnc.device_put(X, machine.name)
    found = nnc.grad(lambda x: nnp.sum(nnp.tanh(x @ x.T)))(x)
    assert found.device == machine.name
    check_close(found, nnc.grad(lambda x: nnp.sum(nnp.tanh(x @ x.T)))(X))


def test_loops_and_branches_find_their_way_by_numbers_of_the_device(machine: Machine) -> None:
    def f(x: Any) -> Any:
        x = nnc.while_loop(lambda x: nnp.sum(x) < 100, lambda x: x * 2, x, max_steps=20)
        return nnc.cond(x[0] > 3, lambda x: x + 1, lambda x: x - 1, x)

    for start in (np.ones(3), np.full(3, 30.0)):
        check_close(nnc.compile(f)(nnc.device_put(start, machine.name)), f(start))


def test_programs_run_alike_without_a_compiled_entry(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NNC_NATIVE", "0")
    f = nnc.compile(lambda x: nnp.linalg.solve(x @ x.T + 6 * nnp.eye(6, dtype="float32"), x))
    check_close(f(nnc.device_put(X, machine.name)), f(X))
    assert machine.launched == []


def test_strided_operands_and_results_of_steps_on_the_host_keep_their_neighbours(machine: Machine) -> None:
    def f(x: Any) -> Any:
        y = (
            nnp.zeros((6, 6), "float32")
            .at[::2, 1::2]
            .set(nnp.linalg.inv(x[::2, :3] + 4 * nnp.eye(3, dtype="float32"))[::-1])
        )
        return y, x[:, ::-2]

    check_close(nnc.compile(f)(nnc.device_put(X, machine.name)), f(X))


def test_a_callback_runs_in_each_call_and_its_error_reaches_the_caller(machine: Machine) -> None:
    seen: list[float] = []

    @nnc.compile
    def f(x: Any) -> Any:
        nnc.debug.callback(lambda v: seen.append(float(v)), nnp.sum(x))
        return x + 1

    x = nnc.device_put(np.ones(3), machine.name)
    f(x), f(f(x))
    assert seen == [3.0, 3.0, 6.0]


def test_a_thread_that_never_used_the_device_launches_kernels(machine: Machine) -> None:
    f = nnc.compile(lambda x: nnp.tanh(x) + 1)
    x = nnc.device_put(X, machine.name)
    results = [f(x), x + 1]  # all that the other thread runs is known by now
    with ThreadPoolExecutor(1) as pool:
        others = pool.submit(lambda: [f(x), x + 1]).result()
    for result, other in zip(results, others, strict=True):
        check_close(other, result)


def test_the_present_device_of_the_user_stays(machine: Machine) -> None:
    runtime = machine.libraries.cupy.cuda.runtime
    runtime.setDevice(7)
    x = nnc.device_put(X, machine.name)
    check_close(nnc.compile(nnp.tanh)(x), nnp.tanh(X))
    machine.fails["cuLaunchKernel"] = 1
    with pytest.raises(DeviceError):
        x + 1
    assert runtime.getDevice() == 7


# -- refused operands --------------------------------------------------------------------------------------------------


def take(x: Any, i: Any) -> Any:
    return nnp.take(x, i, axis=0) * 2  # a fused group, which is printed


def test_a_refused_index_is_reported_with_its_value_when_a_result_is_read(machine: Machine) -> None:
    f = nnc.compile(take)
    x, i = nnc.device_put((X, np.array([0, 77])), machine.name)
    bad = f(x, i)
    with pytest.raises(OutOfBoundsError, match=r"index 77 is out of range for axis 0, which has size 6.*\n.*in take"):
        np.asarray(bad)
    with pytest.raises(OutOfBoundsError, match="index 77"):
        bad.block_until_ready()
    check_close(f(x, nnc.device_put(np.array([0, 5]), machine.name)), take(X, np.array([0, 5])))


def test_the_error_passes_to_all_that_is_computed_from_the_result(machine: Machine) -> None:
    f, g = nnc.compile(take), nnc.compile(lambda x: nnp.sum(x) + 1)
    x, i = nnc.device_put((X, np.array([0, 77])), machine.name)
    late = g(g(f(x, i)))
    f(x, nnc.device_put(np.array([1, 2]), machine.name))
    with pytest.raises(OutOfBoundsError, match="index 77"):
        float(late)


def test_a_loop_names_the_index_of_the_iteration_that_refuses(machine: Machine) -> None:
    f = nnc.compile(lambda x, rows: nnc.scan(lambda c, i: (c + x[i], None), nnp.zeros(40, "float32"), rows)[0])
    x, rows = nnc.device_put((X, np.array([1, 2, 9, 3])), machine.name)
    with pytest.raises(OutOfBoundsError, match="index 9"):
        np.asarray(f(x, rows))


def test_after_a_donation_the_error_comes_without_the_value(machine: Machine) -> None:
    f = nnc.compile(lambda x, z, i: (x + 1, take(z, i)), donate_argnums=0)
    x, z, i = nnc.device_put((X, X, np.array([0, 77])), machine.name)
    y = f(x, z, i)[1]
    with pytest.raises(DeviceError, match=r"refused its operands[^$]*run the function on the CPU"):
        np.asarray(y)


# -- memory ------------------------------------------------------------------------------------------------------------


def test_memory_of_sent_arrays_is_not_taken_while_the_device_reads_it(machine: Machine) -> None:
    f = nnc.compile(lambda x: nnp.sum(x * 2))
    sums = [f(nnc.device_put(np.full(1000, i, np.float32), machine.name)) for i in range(40)]
    assert [float(x) for x in sums] == [2000.0 * i for i in range(40)]


def test_the_garbage_collector_frees_memory_behind_the_work_on_it(machine: Machine) -> None:
    for _ in range(4):
        ring: list[Any] = [nnc.device_put(np.ones(2048), machine.name)]  # sent in another stream than that of the work
        ring += [ring, ring[0] + 1]
        del ring
        gc.collect()
        nnc.device_put(X, machine.name)
    assert not machine.faults


def test_freed_memory_goes_back_to_the_pool(machine: Machine) -> None:
    x = nnc.device_put(np.ones(1000), machine.name)
    y = x + 1
    del y
    gc.collect()
    x + 1
    before = machine.sim.pool.used
    for _ in range(20):
        x + 1
    assert machine.sim.pool.used <= before + 2 * 8192


def test_too_large_an_array_is_an_error_with_the_free_bytes(machine: Machine) -> None:
    machine.sim.pool.capacity = 64 << 20
    x = nnc.device_put(np.ones(1 << 20), machine.name)
    with pytest.raises(
        OutOfMemoryError, match=r"bytes for .* do not fit: .* are in use by this process, and .* are free"
    ):
        nnp.outer(x[:8192], x[:8192])
    assert float(nnp.sum(x)) == 1 << 20


# -- errors ------------------------------------------------------------------------------------------------------------


def test_an_error_of_the_driver_is_worded(machine: Machine) -> None:
    f = nnc.compile(lambda x: x + 1)
    x = nnc.device_put(X, machine.name)
    f(x)
    machine.fails["cuLaunchKernel"] = 700
    with pytest.raises(DeviceError, match="CUDA reports CUDA_ERROR_ILLEGAL_ADDRESS"):
        f(x)
    machine.fails.clear()
    check_close(f(x), X + 1)


def test_an_error_of_the_runtime_is_worded(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise machine.libraries.cupy.cuda.runtime.CUDARuntimeError("cudaErrorLaunchFailure: unspecified launch failure")

    x = nnc.device_put(X, machine.name)
    monkeypatch.setattr(machine.libraries.cupy.cuda.runtime, "memcpyAsync", fail)
    with pytest.raises(DeviceError, match="copy: CUDA reports cudaErrorLaunchFailure"):
        np.asarray(x + 1)


def test_a_device_that_cuda_does_not_find_is_refused(machine: Machine) -> None:
    with pytest.raises(UnsupportedError, match=f"CUDA finds {COUNT} of its devices"):
        machine.device(f"cuda:{COUNT}")


def test_a_processor_that_is_too_old_is_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"compute capability is 7\.5"):
        Machine(capability="75").device("cuda:0")


@pytest.mark.parametrize(
    ("has_cupy", "words"),
    [(False, r"CuPy: pip install 'nnc\[gpu13\]'"), (True, r"driver \(libcuda.so.1\)[^$]*finds no")],
)
def test_without_a_gpu_the_error_names_the_missing_library(
    has_cupy: bool, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: (has_cupy or None) if name == "cupy" else find(name))
    monkeypatch.setattr(importlib.import_module("nnc.device.cuda.libraries"), "number_of_gpus", lambda: 0)
    with pytest.raises(UnsupportedError, match=rf"no device 'cuda:0'[^$]*{words}"):
        nnc.device_put(1.0, "cuda:0")


def test_a_forked_process_cannot_use_the_device(machine: Machine) -> None:
    x = nnc.device_put(X, machine.name)
    device = find_device(machine.name, "test")
    assert isinstance(device, CudaDevice)
    device._context.process = os.getppid()
    with pytest.raises(DeviceError, match="belongs to the process that this one was forked from"):
        x + 1
    device._context.process = os.getpid()


def test_the_first_command_of_a_process_may_be_an_eager_one_on_a_device() -> None:
    code = "import nnc, nnc.testing.devices; print(float(nnc.device_put(1.0, 'ptx:0') + 1))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "2.0\n", done.stderr


# -- machine code ------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(find_linker() is None, reason="nvJitLink is not installed")
def test_kernels_become_machine_code_which_files_keep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    linker = find_linker()
    assert linker is not None
    links: list[str] = []

    class Counting:
        version = linker.version

        @staticmethod
        def link(ptx: str, target: str) -> Any:
            links.append(target)
            return linker.link(ptx, target)

    monkeypatch.setattr(importlib.import_module("nnc.backends.cuda.compiler.compiler"), "find_linker", Counting)
    monkeypatch.setenv("NNC_CACHE_DIR", str(tmp_path))
    host = compiler()
    assert host is not None
    printed = lowered(lambda x: nnp.tanh(x) + 1, X).printed
    codes = [CudaCompiler(host, print_region).to_machine_code([*printed.values()], "sm_90") for _ in range(2)]
    while not list(tmp_path.rglob("*.bin")):
        time.sleep(0.01)  # files are written in the background
    linked = len(links)
    codes.append(CudaCompiler(host, print_region).to_machine_code([*printed.values()], "sm_90"))
    assert len(links) == linked
    assert all(code.startswith(b"\x7fELF") and code == codes[0] for code in codes)


def test_memory_that_waits_for_its_last_work_is_found_where_there_is_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(capacity=40 << 20)
    machine.name = "cuda:99"
    known = importlib.import_module("nnc.device.kinds")
    monkeypatch.setitem(known._DEVICES, machine.name, machine.device(machine.name))
    for i in range(4):
        x = nnc.device_put(np.full(6 << 20, i, np.float32), machine.name)  # 24 MiB, which are read in another stream
        del x
    assert float(nnc.device_put(np.full(6 << 20, 7, np.float32), machine.name)[5]) == 7
    with pytest.raises(OutOfMemoryError, match="24"):
        _ = [nnc.device_put(np.zeros(6 << 20, np.float32), machine.name) for _ in range(2)]
    assert machine.faults == []
