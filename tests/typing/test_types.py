"""Type checkers see what functions take and return: mypy reads three programs of users, once for all tests here."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.typing import training

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
LINE = re.compile(r"tests/typing/(?P<file>\w+)\.py:(?P<line>\d+): (?P<kind>error|note): (?P<text>.*)")


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, int], list[str]]:
    """Runs mypy, and returns its messages by (file, line)."""
    cache = tmp_path_factory.mktemp("mypy")
    files = [str(HERE / f"{name}.py") for name in ("training", "reveals", "mistakes")]
    command = [
        sys.executable, "-m", "mypy", "--strict", "--config-file=", "--follow-imports=silent", "--explicit-package-bases",
        "--disable-error-code=empty-body", f"--cache-dir={cache}", *files,
    ]  # fmt: skip
    found = subprocess.run(command, cwd=ROOT, env={**os.environ, "MYPYPATH": str(ROOT)}, capture_output=True, text=True)
    assert found.returncode in (0, 1), found.stdout + found.stderr
    messages: dict[tuple[str, int], list[str]] = {}
    for match in map(LINE.match, found.stdout.splitlines()):
        if match is not None:
            messages.setdefault((match["file"], int(match["line"])), []).append(f"{match['kind']}: {match['text']}")
    return messages


def expectations(file: str) -> dict[int, str]:
    """Returns the text of each comment by the line that it stands above."""
    lines = (HERE / f"{file}.py").read_text().splitlines()
    return {i + 1: line.strip("# ") for i, line in enumerate(lines, 1) if line.startswith("    # ")}


def errors(said: dict[tuple[str, int], list[str]], file: str) -> dict[int, list[str]]:
    return {
        line: [text.removeprefix("error: ") for text in texts if text.startswith("error")]
        for (name, line), texts in said.items()
        if name == file and any(text.startswith("error") for text in texts)
    }


def shortened(revealed: str) -> str:
    """Returns a type as mypy writes it, without the names of modules and with the names of unions."""
    text = re.sub(
        r"(Array|nnc\.array\.Array) \| numpy\.ndarray\[.*?\]\] \| numpy\.generic\[Any\] \| complex", "Leaf", revealed
    )
    return re.sub(r"\b[a-z_]\w*\.(?=[a-zA-Z_])", "", text)


@pytest.mark.slow
def test_a_users_program_has_no_errors_and_no_any(said: dict[tuple[str, int], list[str]]) -> None:
    assert errors(said, "training") == {}


@pytest.mark.slow
def test_transforms_have_the_types_on_record(said: dict[tuple[str, int], list[str]]) -> None:
    assert errors(said, "reveals") == {}
    expected = expectations("reveals")
    revealed = {
        line: shortened(re.findall(r'Revealed type is "(.*)"', texts[0])[0])
        for (name, line), texts in said.items()
        if name == "reveals"
    }
    assert revealed == expected
    assert len(expected) > 90


@pytest.mark.slow
def test_mistakes_are_found_by_type_checkers(said: dict[tuple[str, int], list[str]]) -> None:
    found, expected = errors(said, "mistakes"), expectations("mistakes")
    assert found.keys() == expected.keys()
    missed = {}
    for line, text in expected.items():
        code, words = text.split(": ", 1)
        if not any(error.endswith(f"[{code}]") and words in error for error in found[line]):
            missed[line] = (text, found[line])
    assert missed == {}


def test_the_users_program_runs() -> None:
    assert training.main() < 0.3


def test_the_package_says_that_it_is_typed() -> None:
    assert (ROOT / "nnc" / "py.typed").read_text() == ""
