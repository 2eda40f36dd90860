"""README, CI and CONTRIBUTING say the same."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_ci_runs_exactly_the_test_command_of_the_readme() -> None:
    commands = [line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith("python3 -m venv")]
    assert len(commands) == 2
    assert commands[1] in [line.strip() for line in (ROOT / ".ci" / "run").read_text().splitlines()]


def test_files_that_the_documents_name_exist() -> None:
    for document in ("README.md", "CONTRIBUTING.md", "docs/architecture.md"):
        text = (ROOT / document).read_text()
        for name in ("docs/architecture.md", "CONTRIBUTING.md", "examples/digits.py", "tests/docs/outside/plugin"):
            if name in text:
                assert (ROOT / name).exists(), f"{document} names {name}"
