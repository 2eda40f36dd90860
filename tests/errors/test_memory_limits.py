"""A memory limit of the process's control group, as containers have: an error in words instead of the system's kill."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.base import machine
from nnc.base.machine import memory_left
from nnc.errors import OutOfMemoryError
from tests.errors.reports import reports

GIB = 1 << 30


def group(root: Path, folder: str, files: dict[str, object]) -> None:
    place = root / "sys/fs/cgroup" / folder
    place.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (place / name).write_text(f"{content}\n")


def belongs_to(root: Path, lines: str) -> None:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(lines)


def test_the_limit_of_a_group_of_version_2_is_read(tmp_path: Path) -> None:
    belongs_to(tmp_path, "0::/outer/inner\n")
    group(tmp_path, "outer/inner", {"memory.max": "max", "memory.current": 5 * GIB, "memory.stat": "anon 1"})
    assert memory_left(tmp_path) is None
    stat = f"anon {GIB}\ninactive_file {2 * GIB}\nactive_file {GIB}\n"
    group(tmp_path, "outer", {"memory.max": 8 * GIB, "memory.current": 5 * GIB, "memory.stat": stat})
    assert memory_left(tmp_path) == 6 * GIB  # copies of files are given back
    group(tmp_path, "", {"memory.max": 4 * GIB, "memory.current": 5 * GIB, "memory.stat": ""})
    assert memory_left(tmp_path) == 0


def test_the_limit_of_a_group_of_version_1_is_read(tmp_path: Path) -> None:
    belongs_to(tmp_path, "5:cpu,cpuacct:/\n4:memory:/job\n0::/\n")
    group(
        tmp_path, "memory/job", {"memory.limit_in_bytes": 2**63 - 4096, "memory.usage_in_bytes": GIB, "memory.stat": ""}
    )
    assert memory_left(tmp_path) is None
    stat = f"total_inactive_file {GIB}\ntotal_active_file 0\n"
    group(tmp_path, "memory", {"memory.limit_in_bytes": 3 * GIB, "memory.usage_in_bytes": 2 * GIB, "memory.stat": stat})
    assert memory_left(tmp_path) == 2 * GIB


@pytest.mark.parametrize("lines", ["", "nonsense\n", "0::/a\n", "4:memory:/b\n"])
def test_systems_that_say_nothing_have_no_limit(tmp_path: Path, lines: str) -> None:
    belongs_to(tmp_path, lines)
    assert memory_left(tmp_path) is None


# -- calls that are refused ---------------------------------------------------------------------------------------------------

X = nnp.ones(1 << 16)


def recurrence(x: nnp.ndarray, checkpoint: str | None = None) -> nnp.ndarray:
    return nnc.scan(lambda x, _: (nnp.sin(x) * x, None), x, None, length=40000, checkpoint=checkpoint)[0].sum()


def search(x: nnp.ndarray, n: nnp.ndarray) -> nnp.ndarray:
    return nnc.fori_loop(0, n, lambda i, x: nnp.sin(x) * x, x).sum()


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "a result": (lambda: nnp.ones((1 << 15, 1 << 14)) + 1, "GiB more are needed"),
    "a compiled result": (lambda: nnc.compile(lambda x: x[:, None] + nnp.ones((1, 1 << 18)))(X), "for its results"),
    "values within a program": (
        lambda: nnc.compile(lambda x: nnp.sort(x[:, None] + nnp.arange(1.0 * (1 << 18)), axis=0).sum())(X), "for values within it",
    ),
    "a loop's residuals": (lambda: nnc.compile(nnc.grad(recurrence))(X), 'pass checkpoint="sqrt" to the loop'),
    "a loop's tape": (lambda: nnc.grad(search)(X, nnp.asarray(40000)), 'pass checkpoint="sqrt" to the loop'),
    "a compiled loop's tape": (lambda: nnc.compile(nnc.grad(search))(X, nnp.asarray(40000)), 'pass checkpoint="sqrt" to the loop'),
    "a memory budget": (
        lambda: nnc.compile(nnc.grad(recurrence), memory_budget=12 * GIB)(X), 'pass checkpoint="sqrt" to the loop',
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_memory_beyond_the_limit_of_a_control_group_is_refused_in_words(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "memory_left", lambda: 300 << 20)
    call, text = REFUSED[name]
    with reports(OutOfMemoryError, text):
        call()


def test_the_loop_is_named_and_its_fix_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "memory_left", lambda: 300 << 20)
    with pytest.raises(OutOfMemoryError, match=r"loop 1: .* at .*test_memory_limits.py:\d+"):
        nnc.compile(nnc.grad(recurrence))(X)
    assert nnc.compile(nnc.grad(lambda x: recurrence(x, "sqrt")))(X).shape == X.shape


def test_small_programs_do_not_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "memory_left", lambda: 0)
    assert nnc.compile(lambda x: nnp.sort(x) + 1)(X).sum() == 2 * X.size
    assert np.asarray(nnp.broadcast_to(nnp.ones(1), (1 << 30,)))[5] == 1  # a view takes no memory


def test_a_limit_of_the_address_space_is_an_error_in_words() -> None:
    pytest.importorskip("resource")
    code = (
        "import resource, nnc, nnc.numpy as nnp\n"
        "f = nnc.compile(lambda x: nnp.sort(x[:, None] + nnp.arange(1e5), axis=0))\n"
        "f.lower(nnp.ones(50000)).compile()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))\n"
        "try:\n    f(nnp.ones(50000))\n"
        "except nnc.errors.OutOfMemoryError as error:\n    print(error)\n"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "the system does not give" in found.stdout, found.stderr
