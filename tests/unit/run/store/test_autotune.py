"""Kernels chosen by measuring, and choices that outlive the process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.backends.choose import candidate_kernels
from nnc.base.options import Options
from nnc.debug import doctor
from nnc.graph import Command, Kernel, TensorSpec, add_kernel, command, register
from nnc.graph.rules import Rules
from nnc.run.store.autotune import Tuner, measure, scratch
from tests.figures import HERE

pytestmark = pytest.mark.usefixtures("own_registries")
SPEC = TensorSpec((3,), "float32")


class Clock:
    """Time as kernels of these tests spend it: that of a machine, on which others work, too, would decide by chance."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


CLOCK = Clock()


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nnc.run.store.autotune.time", SimpleNamespace(perf_counter=CLOCK))


def kernel(backend: str, seconds: float = 0.0, priority: int = 10, log: list[Any] | None = None) -> Kernel:
    """Doubles its input, which takes some seconds; records its operands."""

    def run(inputs: Any, outputs: Any, params: Any) -> None:
        CLOCK.now += seconds
        if log is not None:
            log.append(inputs[0].copy())
        np.multiply(inputs[0], 2, out=outputs[0])

    return Kernel(backend, run, priority=priority)


def double(*kernels: Kernel, **facts: Any) -> Command:
    new = register("test_double", Rules(infer=lambda x: x), **facts)
    for each in kernels:
        add_kernel(new, each)
    return new


def tuner(folder: Path | None = None) -> Tuner:
    return Tuner(candidate_kernels, Options(cache_folder=folder))


def chosen(target: Command, folder: Path | None = None) -> str:
    return tuner(folder)(target, (SPEC,), {}, HERE).backend


@pytest.mark.parametrize("slow_one_first", [True, False])
def test_the_faster_backend_is_chosen_under_any_priorities(slow_one_first: bool) -> None:
    target = double(kernel("slow", 5e-3, 20 if slow_one_first else 10), kernel("fast", 0.0, 15))
    assert chosen(target) == "fast"


def test_a_compiled_function_runs_the_winner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NNC_CACHE_DIR", str(tmp_path))
    slow: list[Any] = []
    fast: list[Any] = []
    target = double(kernel("slow", 5e-3, 20, slow), kernel("fast", 0.0, 15, fast))
    x = nnp.asarray([7.0, 8.0, 9.0])
    f = nnc.compile(lambda x: target(x), autotune=True)
    np.testing.assert_array_equal(f(x), [14, 16, 18])
    assert [list(given) for given in (*slow, *fast) if 7.0 in given] == [
        [7, 8, 9]
    ]  # the user's data, once, by the winner
    assert 7.0 in fast[-1]
    assert (
        "[slow]" in nnc.compile(lambda x: target(x)).lower(x).compile().as_text()
    )  # without autotune priorities decide


def test_the_reference_is_a_candidate() -> None:
    assert chosen(double(kernel("slow", 5e-3), reference=lambda x: x * 2)) == "numpy"


def test_a_kernel_that_fails_on_made_up_data_does_not_take_part() -> None:
    def fail(inputs: Any, outputs: Any, params: Any) -> None:
        raise np.linalg.LinAlgError("not positive definite")

    target = double(kernel("slow", 2e-3, 20), Kernel("picky", fail))
    assert chosen(target) == "slow"


def test_where_no_kernel_runs_on_made_up_data_priorities_decide(tmp_path: Path) -> None:
    def fail(inputs: Any, outputs: Any, params: Any) -> None:
        raise ValueError("no data is good enough")

    target = double(Kernel("first", fail, priority=20), Kernel("second", fail))
    assert chosen(target, tmp_path) == "first"
    assert not list(tmp_path.rglob("*.bin"))


def test_commands_with_an_effect_are_not_run() -> None:
    log: list[Any] = []
    target = double(kernel("first", 0, 20, log), kernel("second", 0, 10, log), effect="debug")
    assert chosen(target) == "first"
    assert not log


@pytest.mark.parametrize(("seconds", "winner"), [({0: 1.0, 1: 0.97}, "first"), ({0: 1.0, 1: 0.9}, "second")])
def test_a_kernel_that_is_hardly_faster_does_not_win(
    monkeypatch: pytest.MonkeyPatch, seconds: dict[int, float], winner: str
) -> None:
    monkeypatch.setattr("nnc.run.store.autotune.measure", lambda *_: seconds)
    assert chosen(double(kernel("first", priority=20), kernel("second"))) == winner


def test_kernels_get_the_workspace_that_they_ask_for() -> None:
    sizes = []

    def run(inputs: Any, outputs: Any, params: Any) -> None:
        sizes.append((outputs[1].dtype, outputs[1].size))

    target = double(Kernel("needy", run, workspace=lambda specs, params: specs[0].nbytes), kernel("other", 2e-3))
    assert chosen(target) == "needy"
    assert set(sizes) == {(np.dtype("uint8"), 12)}


def test_made_up_data_is_no_number_that_kernels_stumble_over() -> None:
    for dtype in ("float16", "bfloat16", "float64", "complex64"):
        x = scratch(TensorSpec((100,), dtype)).astype("complex128")
        assert (np.abs(x) >= 0.5).all() and (np.abs(x) <= 1.5).all()
    assert not scratch(TensorSpec((4,), "int64")).any()
    assert not scratch(TensorSpec((4,), "bool")).any()
    take = command("add")
    pair = (SPEC, SPEC)
    assert set(measure(take, candidate_kernels(take, pair, {}), pair, {})) == {0}


# -- on disk -----------------------------------------------------------------------------------------------------------


def counting(runs: list[int]) -> Command:
    def run(inputs: Any, outputs: Any, params: Any) -> None:
        runs.append(1)
        np.multiply(inputs[0], 2, out=outputs[0])

    return double(kernel("slow", 2e-3, 20), Kernel("counted", run))


def entry(folder: Path) -> Path:
    (file,) = folder.rglob("*.bin")
    return file


def test_a_choice_on_disk_is_used_without_measuring(tmp_path: Path) -> None:
    runs: list[int] = []
    target = counting(runs)
    assert chosen(target, tmp_path) == "counted"
    assert runs
    runs.clear()
    assert chosen(target, tmp_path) == "counted"
    assert not runs
    assert not list(tmp_path.rglob("*.part"))


def test_each_set_of_parameters_has_a_choice_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def by_rows(target: Command, kernels: Any, specs: Any, params: Any) -> dict[int, float]:
        measured.append(params["rows"])
        return {0: 1.0, 1: 0.1} if params["rows"] else {0: 0.1, 1: 1.0}

    measured: list[bool] = []
    monkeypatch.setattr("nnc.run.store.autotune.measure", by_rows)
    target = register("test_double", Rules(infer=lambda x, rows: x))
    for each in (kernel("columns", priority=20), kernel("rows")):
        add_kernel(target, each)
    one = tuner(tmp_path)
    for tune in (one, one, tuner(tmp_path)):  # in memory, and on disk
        assert [tune(target, (SPEC,), {"rows": rows}, HERE).backend for rows in (True, False)] == ["rows", "columns"]
    assert measured == [True, False]


DAMAGE: dict[str, Callable[[Path], object]] = {
    "empty": lambda file: file.write_bytes(b""),
    "cut": lambda file: file.write_bytes(file.read_bytes()[:-20]),
    "bytes": lambda file: file.write_bytes(b"\x80\x04\x95" + bytes(range(256))),
    "folder": lambda file: (file.unlink(), file.mkdir()),
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.filterwarnings("ignore:nnc keeps nothing")
def test_a_damaged_or_foreign_entry_is_ignored(tmp_path: Path, damage: str) -> None:
    runs: list[int] = []
    target = counting(runs)
    chosen(target, tmp_path)
    DAMAGE[damage](entry(tmp_path))
    runs.clear()
    assert chosen(target, tmp_path) == "counted"
    assert runs
    if damage != "folder":
        runs.clear()
        assert chosen(target, tmp_path) == "counted"  # a sound entry has taken its place
        assert not runs


def test_a_backend_that_came_later_is_measured_too(tmp_path: Path) -> None:
    target = double(kernel("slow", 8e-3, 20), kernel("slower", 9e-3))
    chosen(target, tmp_path)
    add_kernel(target, kernel("new", 0.0))
    assert chosen(target, tmp_path) == "new"


def test_a_folder_that_cannot_be_written_is_warned_of_once_for_a_choice(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.warns(RuntimeWarning, match="nnc keeps nothing in"):
        assert chosen(double(kernel("slow", 2e-3, 20), kernel("fast")), tmp_path / "file") == "fast"


PROGRAM = """
from types import SimpleNamespace
import numpy as np
import nnc
from nnc.run.store import autotune
from nnc.graph.rules import Rules
from nnc.graph import Kernel, add_kernel, register

now = 0.0
autotune.time = SimpleNamespace(perf_counter=lambda: now)

def run(name, seconds):
    def kernel(inputs, outputs, params):
        global now
        print(name, float(inputs[0][0]))
        now += seconds
        np.multiply(inputs[0], 2, out=outputs[0])
    return kernel

double = register("double", Rules(infer=lambda x: x))
add_kernel(double, Kernel("first", run("first", 0.005), priority=20))
add_kernel(double, Kernel("second", run("second", 0.0)))
nnc.compile(lambda x: double(x), autotune=True)(np.full(2, 100.0))
"""


def test_a_second_process_reuses_the_choice_of_the_first(tmp_path: Path) -> None:
    def lines() -> list[str]:
        run = subprocess.run(
            [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True,
            env={"NNC_CACHE_DIR": str(tmp_path), "PYTHONPATH": ":".join(sys.path), "OPENBLAS_NUM_THREADS": "1"},
        )  # fmt: skip
        return run.stdout.splitlines()

    first = lines()
    assert any(line.startswith("first") for line in first) and first[-1] == "second 100.0"
    assert lines() == ["second 100.0"]


def test_the_cache_is_listed_by_the_doctor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NNC_CACHE_DIR", str(tmp_path))
    assert doctor.collect()["caches"]["on disk"] == f"0 entries, 0 B in {tmp_path}"
    chosen(double(kernel("slow", 2e-3, 20), kernel("fast")), tmp_path)
    assert doctor.collect()["caches"]["on disk"].startswith("1 entries, ")
