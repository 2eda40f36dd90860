"""Every page and every tutorial runs by itself, in a fresh process, and gives the outputs that it shows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.docs.site.cold import server

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.ipynb"))
BLOCK = re.compile(r"^```(?:python|pycon)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def has_examples(page: Path) -> bool:
    return ">>>" in page.read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def failures() -> Iterator[Callable[[Path], list[str]]]:
    with server() as ask:
        yield ask


@pytest.mark.parametrize(
    "page", [*filter(has_examples, PAGES), *TUTORIALS], ids=lambda page: str(page.relative_to(ROOT))
)
def test_it_runs_in_a_fresh_process(page: Path, failures: Callable[[Path], list[str]]) -> None:
    found = failures(page)
    assert not found, "\n".join(found)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_each_block_of_python_is_an_example_that_runs(page: Path) -> None:
    for block in BLOCK.findall(page.read_text(encoding="utf-8")):
        assert block.lstrip().startswith(">>>"), block


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (">>> 1 + 1\n3\n", "Expected"),
        (">>> nnc.zeros(3)\n", "NameError"),
        (">>> import warnings\n>>> warnings.warn('old')\n", "old"),
        (">>> import os\n>>> os._exit(1)\n", "ended early"),
    ],
)
def test_a_page_that_says_otherwise_is_found(
    text: str, words: str, failures: Callable[[Path], list[str]], tmp_path: Path
) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    assert words in "".join(failures(page))
