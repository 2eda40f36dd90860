from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("onnx")
from nnc.onnx.__main__ import main
from tests.unit.onnx.models import FLOAT, dense, model, node


def test_it_describes_runs_and_draws_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, picture = tmp_path / "m.onnx", tmp_path / "graph.html"
    path.write_bytes(dense())
    assert main([str(path), "--run", "--size", "batch=5", "--graph", str(picture)]) == 0
    text = capsys.readouterr().out
    assert "x: float32[batch, 3]" in text and "Gemm 1" in text and "2 weights of 32 bytes" in text
    assert "y: float32[5, 2]" in text and "compiled as a whole: x float32[5, 3]" in text
    assert "dot" in picture.read_text(encoding="utf-8")


def test_it_times_calls(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(dense())
    assert main([str(path), "--time"]) == 0
    assert " ms" in capsys.readouterr().out


def test_it_names_operators_that_nothing_defines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.onnx"
    odd = [node("Frobnicate", ["x"], ["h"], domain="com.example"), node("HardSwish", ["h"], ["y"])]
    path.write_bytes(model(odd, {"x": (FLOAT, [2])}, {"y": (FLOAT, [2])}))
    assert main([str(path)]) == 0
    assert "without a definition: Frobnicate" in capsys.readouterr().out


def test_a_file_that_is_none_ends_with_a_worded_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.onnx").write_bytes(b"text")
    assert main([str(tmp_path / "m.onnx")]) == 1
    assert "no model" in capsys.readouterr().err


@pytest.mark.parametrize("size", ["batch", "=3", "batch=x", "batch=-1"])
def test_a_size_without_name_or_number_is_worded(size: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.onnx").write_bytes(dense())
    assert main([str(tmp_path / "m.onnx"), "--run", "--size", size]) == 1
    assert f"--size {size}: write the name of a dimension and its size" in capsys.readouterr().err
