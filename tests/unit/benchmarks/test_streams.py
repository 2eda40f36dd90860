"""The benchmark of streams runs, and both ways compute the same."""

from __future__ import annotations

import pytest

from benchmarks import streams


def test_both_numbers_of_streams_are_timed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["streams", "--size", "64", "--rounds", "2", "--calls", "2"])
    streams.main()
    printed = capsys.readouterr().out
    assert "one stream / two streams: " in printed
    assert printed.rstrip().endswith("same bits: True")
