"""The machine is a value: no module of lowering, running or backends looks at it when it is imported."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.backends.loaded import choose_kernel, compiler
from nnc.base.options import Options
from nnc.base.target import Target
from nnc.compiled.pipeline import lower
from nnc.device import machine_of, machine_of_device
from nnc.device.targets import Cache, cache_sizes
from nnc.device.targets.gpu import gpu_target
from nnc.run.program import Program
from tests.figures import HERE, with_figures

# The second is small in all that a system tells, and has the figures of cores that must spare their second cache.
LARGE = with_figures("memory", replace(HERE, vector_bytes=64), first_cache_bytes=48 << 10, second_cache_bytes=1 << 20)
SMALL = with_figures("memory", replace(HERE, vector_bytes=16), first_cache_bytes=8 << 10, second_cache_bytes=64 << 10)
SMALL = with_figures("fusion", with_figures("products", SMALL, slow_second_cache=True), nodes=3, row_elements=64)

IMPORTS = """
import importlib, pkgutil
import nnc, nnc.device.targets, nnc.base.machine, nnc.device.kinds

def poisoned(*_, **__):
    raise AssertionError("the machine was looked at")

nnc.device.targets.cpu_target = nnc.device.targets._cpu_target = poisoned
for name in ("machine_of", "machine_of_device"):
    setattr(nnc.device, name, poisoned)
    setattr(nnc.device.kinds, name, poisoned)
for name in ("processor", "usable_threads"):
    setattr(nnc.base.machine, name, poisoned)
names = []
for room in ("lower", "run", "backends"):
    package = importlib.import_module(f"nnc.{room}")
    names += [each.name for each in pkgutil.walk_packages(package.__path__, f"nnc.{room}.")]
for name in names:
    if not name.endswith("__main__"):
        importlib.import_module(name)
print(len(names))
"""


def operands() -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(0)
    return tuple(rng.normal(size=shape).astype(np.float32) for shape in ((150, 700), (700, 90), (90,)))


def network(x: Any, w: Any, b: Any) -> Any:
    y = nnp.tanh(x @ w + b)
    shares = nnp.exp(y - y.max(axis=1, keepdims=True))
    return nnp.sort(shares / shares.sum(axis=1, keepdims=True), axis=1), nnp.cumsum(y, axis=0), y.sum(axis=0)


def lowered(machine: Target | None, **options: Any) -> Program:
    graph = nnc.make_graph(network)(*operands())
    return lower(graph, Options(machine=machine, verify_passes=True, **options), choose_kernel, compiler())


def texts(program: Program, names: tuple[str, ...] = ("fused", "with_epilogue", "sort", "cumsum")) -> set[str]:
    """The texts of kernels of some commands."""
    return {program.natives[id(step)].text for step in program.bound.steps if step.command.name in names}


def test_no_module_looks_at_the_machine_when_it_is_imported() -> None:
    ran = subprocess.run([sys.executable, "-c", IMPORTS], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert int(ran.stdout) > 200


def test_two_machines_have_programs_of_their_own_in_one_process() -> None:
    if compiler() is None or HERE.vector_bytes < 64:
        pytest.skip("there is no compiler, or no vectors of 64 bytes")
    large, small = lowered(LARGE), lowered(SMALL)
    again = lowered(LARGE)
    assert texts(again) == texts(large) != texts(small)
    for program, printed in ((large, True), (small, False)):
        assert any("<16 x float>" in text for text in texts(program, ("fused", "with_epilogue"))) is printed
    fused = [sum(step.command.name == "fused" for step in each.bound.steps) for each in (large, small)]
    assert fused[0] < fused[1]
    wanted = lower(nnc.make_graph(network)(*operands()), Options(native=False), choose_kernel).run(list(operands()))
    for program in (large, small):
        for found, right in zip(program.run(list(operands())), wanted, strict=True):
            np.testing.assert_allclose(found, right, rtol=2e-5, atol=1e-4)


def test_options_without_a_machine_take_this_one() -> None:
    if compiler() is None:
        pytest.skip("there is no compiler")
    assert texts(lowered(None)) == texts(lowered(HERE))
    assert machine_of(Options()) == HERE
    assert machine_of(Options(machine=SMALL)) is SMALL
    assert machine_of(Options(device="cuda:0")) == machine_of_device("cuda:0") == gpu_target()


def test_programs_of_a_gpu_are_decided_by_its_figures() -> None:
    graph = nnc.make_graph(lambda x: nnp.exp(nnp.sin(nnp.tanh(x * 2)) + 1))(operands()[0])
    few = with_figures("fusion", gpu_target(), nodes=2)
    counts = [
        len(nnc.graph.run_passes(graph, ("fuse",), Options(device="cuda:0", machine=machine)).nodes)
        for machine in (None, few, SMALL)
    ]
    assert counts[0] == 1 < counts[1]
    assert counts[2] == len(nnc.graph.run_passes(graph, ("fuse",), Options(machine=SMALL)).nodes) > 1


def test_sizes_of_caches_are_read_from_the_system(tmp_path: Any) -> None:
    rows = (("1", "Data", "32K"), ("1", "Instruction", "64K"), ("2", "Unified", "2M"), ("3", "Unified", "odd"))
    for i, row in enumerate(rows):
        (tmp_path / f"index{i}").mkdir()
        for name, text in zip(("level", "type", "size"), row, strict=True):
            (tmp_path / f"index{i}" / name).write_text(f"{text}\n")
    (tmp_path / "index0" / "ways_of_associativity").write_text("8\n")
    assert list(cache_sizes(tmp_path)) == [("1", Cache(32 << 10, 8)), ("2", Cache(2 << 20, 512))]
    assert list(cache_sizes(tmp_path / "missing")) == []
