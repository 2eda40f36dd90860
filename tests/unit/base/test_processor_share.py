"""Limits of control groups, such as a container's, count as fewer processors."""

from __future__ import annotations

from pathlib import Path

import pytest

from nnc.base import machine
from nnc.base.machine import allowed_threads, processor_share, usable_threads
from tests.errors.test_memory_limits import belongs_to, group


def test_the_smallest_limit_of_all_groups_counts(tmp_path: Path) -> None:
    belongs_to(tmp_path, "0::/outer/inner\n")
    group(tmp_path, "outer/inner", {"cpu.max": "max 100000"})
    assert processor_share.__wrapped__(tmp_path) is None
    group(tmp_path, "outer", {"cpu.max": "150000 100000"})
    assert processor_share.__wrapped__(tmp_path) == 1.5
    group(tmp_path, "", {"cpu.max": "50000 100000"})
    assert processor_share.__wrapped__(tmp_path) == 0.5


def test_limits_of_version_1_are_read(tmp_path: Path) -> None:
    belongs_to(tmp_path, "5:cpu,cpuacct:/job\n4:memory:/other\n0::/\n")
    group(tmp_path, "cpu/job", {"cpu.cfs_quota_us": -1, "cpu.cfs_period_us": 100_000})
    assert processor_share.__wrapped__(tmp_path) is None
    group(tmp_path, "cpu", {"cpu.cfs_quota_us": 200_000, "cpu.cfs_period_us": 100_000})
    assert processor_share.__wrapped__(tmp_path) == 2.0


@pytest.mark.parametrize("files", [{}, {"cpu.max": ""}, {"cpu.max": "fast 1"}, {"cpu.max": "1 0"}, {"cpu.max": "7"}])
def test_groups_that_say_nothing_have_no_limit(files: dict[str, object], tmp_path: Path) -> None:
    belongs_to(tmp_path, "0::/a\n")
    group(tmp_path, "a", files)
    assert processor_share.__wrapped__(tmp_path) is None


@pytest.mark.parametrize(("share", "threads"), [(0.5, 1), (1.0, 1), (1.5, 2), (2.0, 2), (64.0, 4), (None, 4)])
def test_a_part_of_a_processor_counts_as_one(
    share: float | None, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "allowed_threads", lambda: 4)
    monkeypatch.setattr(machine, "processor_share", lambda: share)
    assert usable_threads() == threads
    assert allowed_threads() >= 1
