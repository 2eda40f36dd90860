"""`benchmarks.neighbours`: limits of processors' time, and the table."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from benchmarks import neighbours
from benchmarks.peers import process
from benchmarks.peers.process import Surroundings, control_group, describe_surroundings
from benchmarks.peers.rows import ROWS
from benchmarks.peers.run import Figure, Outcome


@pytest.mark.parametrize("version", [1, 2])
def test_a_group_limits_processors_time_and_is_removed(
    version: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = tmp_path / "cpu" if version == 1 else tmp_path
    base.mkdir(exist_ok=True)
    monkeypatch.setattr(process, "GROUPS", tmp_path)
    monkeypatch.setattr(Path, "rmdir", shutil.rmtree)  # the system's folders are removed with their files
    with control_group(0.5) as group:
        assert group is not None and group.parent == base
        files = {file.name: file.read_text() for file in group.iterdir()}
    assert files == (
        {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "50000"} if version == 1 else {"cpu.max": "50000 100000"}
    )
    assert not group.exists()
    with control_group(0) as none:
        assert none is None


def test_a_system_without_groups_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "GROUPS", tmp_path / "missing")
    found = neighbours.measure(ROWS[0], Surroundings(share=0.5), ["nnc"], 0.1)
    assert isinstance(found, str) and found.startswith(
        "the system does not allow time of 0.5 processors; 2 processors: "
    )


def test_means_are_compared_with_the_best_peer() -> None:
    figures = [
        Figure(name, name, step, step, 10, 1.0, {}, mean=mean, idle=0.002)
        for name, step, mean in (("nnc", 0.001, 0.004), ("jax", 0.003, 0.003), ("torch", 0.002, 0.006))
    ]
    row = neighbours.cells(Outcome(ROWS[0], figures), ["nnc", "jax", "torch"])
    assert row == ["4.00 (1.00)", "3.00 (3.00)", "6.00 (2.00)", "0.75", "2.0"]
    assert neighbours.cells(Outcome(ROWS[0]), ["nnc"]) == ["-", "-", "-"]


def test_surroundings_are_put_in_words() -> None:
    assert describe_surroundings(Surroundings("avx2", 1, 1, "numpy", 0.5)) == (
        "instructions up to avx2; beside 1 busy processes; beside threads of numpy; time of 0.5 processors; 1 processors"
    )


@pytest.mark.slow
@pytest.mark.parametrize("surroundings", ["1 processor", "1 busy", "numpy's threads"])
def test_a_row_runs_beside_neighbours(surroundings: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["mlp", "--surroundings", surroundings, "--frameworks", "nnc", "--seconds", "0.1"]
    assert neighbours.main(arguments) == 0
    assert f"| {surroundings} " in capsys.readouterr().out
