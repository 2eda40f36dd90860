from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest

from nnc.lower.alloc import ALIGNMENT, find_overlap
from nnc.lower.alloc.__main__ import main

INSTANCES = Path(__file__).parent / "instances"
FILES = [INSTANCES / "mlp.step.csv", INSTANCES / "resnet18.infer.csv"]


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "nnc.lower.alloc", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_module_prints_one_json_object_a_file_and_writes_offsets_that_do_not_overlap(tmp_path: Path) -> None:
    result = run("--json", "--offsets", tmp_path / "out", *FILES)
    assert (result.returncode, result.stderr) == (0, "")
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [list(line) for line in lines] == [["tensors", "bound", "peak", "ratio", "seconds"]] * 2
    assert [line["tensors"] for line in lines] == [33, 69]
    for path, line in zip(FILES, lines, strict=True):
        given, planned = read(path), read(tmp_path / "out" / path.name)
        assert list(planned[0]) == ["id", "offset"]
        assert [row["id"] for row in planned] == [row["id"] for row in given]
        columns = [[int(row[name]) for row in given] for name in ("lower", "upper", "size")]
        offsets = [int(row["offset"]) for row in planned]
        assert find_overlap(*columns, offsets) is None
        assert all(offset % ALIGNMENT == 0 for offset in offsets)
        assert max(at + n for at, n in zip(offsets, columns[2], strict=True)) == line["peak"] == line["bound"]


def test_a_mistake_ends_the_program_with_a_message_alone(tmp_path: Path) -> None:
    path = tmp_path / "bad.csv"
    path.write_text("id,lower,upper,size\na,0,1,many\n")
    result = run("--json", path)
    assert (result.returncode, result.stdout) == (2, "")
    first, fix = result.stderr.splitlines()
    assert first == f"{path}:2: column 'size': 'many' is no whole number."
    assert fix.startswith("Fix: ")


def test_the_table_names_each_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(path) for path in FILES]) == 0
    header, *rows = capsys.readouterr().out.splitlines()
    assert header.split() == ["tensors", "bound", "peak", "ratio", "seconds", "file"]
    assert [row.split()[-1] for row in rows] == [str(path) for path in FILES]
    assert [row.split()[3] for row in rows] == ["1.0000", "1.0000"]


def test_the_articles_algorithm_can_be_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--json", "--algorithm", "article", str(FILES[1])]) == 0
    assert json.loads(capsys.readouterr().out)["ratio"] == 1.5


def test_sizes_in_other_units_than_bytes_are_not_padded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "units.csv"
    path.write_text("id,lower,upper,size\na,0,2,3\nb,1,3,5\nc,2,4,3\n")
    assert main(["--json", str(path)]) == 0
    assert json.loads(capsys.readouterr().out)["peak"] == 8


def test_an_empty_table_needs_no_memory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "empty.csv"
    path.write_text("id,lower,upper,size\n")
    assert main(["--json", str(path)]) == 0
    assert json.loads(capsys.readouterr().out)["peak"] == 0


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("", 1, "column 'id' is missing"),
        ("id,lower,size\n", 1, "column 'upper' is missing"),
        ("id,id,lower,upper,size\n", 1, "column 'id' is twice"),
        ("id,lower,upper,size\na,0,1\n", 2, "3 cells, the header 4"),
        ("id,lower,upper,size\na,0,1,64\nb,0,x,64\n", 3, "column 'upper': 'x' is no whole number"),
        ("id,lower,upper,size\na,0,1.5,64\n", 2, "column 'upper': '1.5' is no whole number"),
        ("id,lower,upper,size\na,-1,1,64\n", 2, "column 'lower': -1 is negative"),
        ("id,lower,upper,size\na,0,1,-64\n", 2, "column 'size': -64 is negative"),
        ("id,lower,upper,size\na,3,2,64\n", 2, "column 'upper': 2 is not after lower, 3"),
        ("id,lower,upper,size\na,2,2,64\n", 2, "column 'upper': 2 is not after lower, 2"),
        ("id,lower,upper,size\na,0,1,64\na,0,1,64\n", 3, "column 'id': 'a' stands in an earlier line"),
        (f"id,lower,upper,size\na,0,1,{2**70}\n", 2, "larger than 2**56"),
        (f"id,lower,upper,size\n{'a' * 200_000},0,1,64\n", 2, "no row of a table: field larger than"),
    ],
)
def test_mistakes_in_a_table_are_named_by_line_and_column(
    text: str, line: int, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text)
    assert main([str(path)]) == 2
    error = capsys.readouterr().err
    assert f"bad.csv:{line}: " in error and message in error
    assert "Traceback" not in error


def test_more_bytes_than_planners_can_count_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "large.csv"
    path.write_text("id,lower,upper,size\n" + "".join(f"{i},0,1,{2**56}\n" for i in range(300)))
    assert main([str(path)]) == 2
    error = capsys.readouterr().err
    assert "large.csv: column 'size': 300 tensors have" in error and "2**60 / 300" in error
    path.write_text("id,lower,upper,size\n" + "".join(f"{i},0,1,{2**43}\n" for i in range(300)))
    assert main(["--json", str(path)]) == 0
    assert json.loads(capsys.readouterr().out)["peak"] == 300 * 2**43


def test_names_keep_their_line_breaks(tmp_path: Path) -> None:
    path = tmp_path / "names.csv"
    path.write_text('id,lower,upper,size\n"a\nb",0,1,64\nc\u2028d,0,1,64\n', encoding="utf-8")
    assert main(["--offsets", str(tmp_path / "out"), str(path)]) == 0
    assert [row["id"] for row in read(tmp_path / "out" / "names.csv")] == ["a\nb", "c\u2028d"]


def test_a_file_that_is_not_there_and_a_binary_one_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path / "none.csv")]) == 2
    assert "none.csv: the file cannot be read" in capsys.readouterr().err
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x80")
    assert main([str(tmp_path / "binary.csv")]) == 2
    assert "no text in UTF-8" in capsys.readouterr().err


def test_offsets_of_two_files_of_one_name_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--offsets", str(tmp_path), str(FILES[0]), str(FILES[0])]) == 2
    assert "same name" in capsys.readouterr().err
