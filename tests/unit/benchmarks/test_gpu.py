"""The comparison on graphics processors runs on the CPU and in the interpreter of PTX, whose results are checked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.gpu import __main__ as gpu
from benchmarks.gpu.frameworks import prepare_nnc
from benchmarks.gpu.rows import ROWS, Row


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_row_has_the_results_of_the_cpu_on_ptx(row: Row) -> None:
    assert gpu.check(row, "ptx:0") is None


def test_a_wrong_result_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(row: Row, arrays: list[object], device: str) -> object:
        return prepare_nnc(row, [x * (1 if device == "cpu" else 1.01) for x in arrays], device)

    monkeypatch.setattr(gpu, "prepare_nnc", broken)
    problem = gpu.check(ROWS[0], "ptx:0")
    assert problem is not None and problem.startswith("its results lie")


def test_the_table_has_a_line_for_each_row_and_names_a_framework_that_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(*_: object) -> None:
        raise ImportError("it is not installed")

    monkeypatch.setitem(gpu._PREPARE, "torch", absent)
    file = tmp_path / "figures.json"
    given = ["--device", "cpu", "--small", "--rows", "copy,mlp", "--frameworks", "nnc,torch", "--json", str(file)]
    assert gpu.main(given) == 0
    printed = capsys.readouterr().out
    assert "| copy" in printed and "| mlp" in printed and "ImportError: it is not installed" in printed
    assert json.loads(file.read_text())["times"]["copy"]["nnc"] > 0


def test_an_unknown_row_is_named() -> None:
    with pytest.raises(SystemExit, match="there is no row chian"):
        gpu.choose_rows("chian", quick=False)
    assert {row.name for row in gpu.choose_rows(None, quick=True)} < {row.name for row in ROWS}
