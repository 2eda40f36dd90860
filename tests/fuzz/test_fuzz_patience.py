"""The fuzzer's limits of time count the processor time of the watched code."""

from __future__ import annotations

import os
import time

import pytest

from nnc.testing.fuzz import patience
from nnc.testing.fuzz.patience import Patience, seconds_of


def test_code_that_the_machine_keeps_waiting_is_not_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    now, used = [0.0], [0.0]
    monkeypatch.setattr(patience, "monotonic", lambda: now[0])
    limit = Patience(60.0, lambda: used[0])
    now[0], used[0] = 240.0, 59.0
    assert not limit.is_over()
    used[0] = 60.0
    assert limit.is_over()


def test_code_that_waits_for_ever_is_given_up_by_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(patience, "monotonic", lambda: now[0])
    limit = Patience(60.0, lambda: 0.0)
    now[0] = patience.SLOWEST * 60
    assert limit.is_over()


def test_the_time_of_a_process_is_its_own() -> None:
    before = seconds_of(os.getpid())
    end = time.process_time() + 0.05
    while time.process_time() < end:
        pass
    assert seconds_of(os.getpid()) > before
