"""Compiling a program gives the texts that are kept of it, so that any change to lowering shows its effect."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from nnc.backends.loaded import compiler
from nnc.backends.onednn.library import library
from tests.golden.compare import describe_difference, read_texts, unified_diff
from tests.golden.programs import PROGRAMS

ROOT, STORED = Path(__file__).parents[2], Path(__file__).parent / "texts"
NAMES = [make.__name__ for make in PROGRAMS]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of all texts, made by another process: in this one, nnc has looked at the machine."""
    if library() is None or compiler() is None:
        pytest.skip("golden texts are those of compiled programs that call oneDNN")
    folder = tmp_path_factory.mktemp("golden")
    command = [sys.executable, "-m", "tests.golden", "--out", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("name", NAMES)
def test_the_texts_of_a_program_are_those_that_are_kept(name: str, made: Path) -> None:
    difference = describe_difference(name, read_texts(STORED / name), read_texts(made / name))
    if difference:
        pytest.fail(difference, pytrace=False)


def test_texts_are_kept_of_these_programs_alone() -> None:
    assert sorted(path.name for path in STORED.iterdir()) == sorted(NAMES)


def test_a_line_that_was_added_is_the_only_one_that_is_shown() -> None:
    stored = "f(%0: float32[2])\n  %1: float32[2] = exp(%0)\n  %2: float32[2] = add(%1, %0)\n  return %2"
    made = "f(%0: float32[2])\n  %1: float32[2] = neg(%0)\n  %2: float32[2] = exp(%1)\n  %3: float32[2] = add(%2, %1)\n  return %3"
    changed = [line for line in unified_diff(stored, made) if line[0] in "+-"]
    assert changed == ["+  %1: float32[2] = neg(%0)"]


def test_a_number_that_alone_differs_is_shown() -> None:
    stored, made = "  %1: float32[2] = add(%0, %0)", "  %1: float32[2] = add(%0, %1)"
    assert unified_diff(stored, made)[1:] == [f"-{stored}", f"+{made}"]


def test_a_difference_names_the_command_that_renews_the_texts() -> None:
    assert describe_difference("mlp", {"a.txt": "1\n"}, {"a.txt": "1\n"}) == ""
    assert "python -m tests.golden mlp" in describe_difference(
        "mlp", {"a.txt": "one\n"}, {"a.txt": "two\n", "b.txt": "\n"}
    )
