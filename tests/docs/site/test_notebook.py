"""Cells of notebooks run as in Jupyter, and outputs that differ from the stored ones are found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.docs.site import notebook


def store(path: Path, *sources: str, tags: tuple[str, ...] = ()) -> Path:
    """A notebook of these cells, with the outputs of today."""
    cells: list[dict[str, Any]] = [
        {"cell_type": "code", "execution_count": None, "metadata": {"tags": list(tags)}, "outputs": [], "source": text}
        for text in sources
    ]
    notebook.write(path, {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
    notebook.renew(path)
    return path


def change(path: Path, count: int, source: str) -> None:
    stored = notebook.read(path)
    stored["cells"][count]["source"] = source
    notebook.write(path, stored)


def test_outputs_are_printed_lines_and_the_value_of_the_last_line(tmp_path: Path) -> None:
    path = store(tmp_path / "a.ipynb", "x = 2", "print('x:')\nx + 1")
    first, second = (cell["outputs"] for cell in notebook.read(path)["cells"])
    assert first == [] and list(map(notebook.text_of, second)) == ["x:", "3"]
    assert notebook.failures(path) == []


@pytest.mark.parametrize("source", ["x + 2", "x", "None", "1 / 0"])
def test_another_output_or_an_error_fails(tmp_path: Path, source: str) -> None:
    path = store(tmp_path / "a.ipynb", "x = 2", "x + 1")
    change(path, 1, source)
    assert notebook.failures(path)


def test_a_cell_that_shows_an_error_must_raise_the_same(tmp_path: Path) -> None:
    path = store(tmp_path / "a.ipynb", "1 / 0", tags=(notebook.RAISES,))
    assert notebook.failures(path) == []
    change(path, 0, "int('one')")
    assert "invalid literal" in notebook.failures(path)[0]
    change(path, 0, "1 / 1")
    assert notebook.failures(path)


def test_only_outputs_that_are_said_to_vary_may_vary(tmp_path: Path) -> None:
    path = store(tmp_path / "a.ipynb", "import time\ntime.perf_counter_ns()", tags=(notebook.VARIES,))
    assert notebook.failures(path) == []
    change(path, 0, "1 / 0")
    assert notebook.failures(path)


def test_outputs_of_a_cell_that_fails_are_not_stored(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="cell 1: ZeroDivisionError"):
        store(tmp_path / "a.ipynb", "1 / 0")
