"""Pages about the code stay true: the files, names and passes that they name exist, and the page for strangers stays short."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.docs.test_words import CLAUSE, NO_WORDS, OPENING, TERM, comments, docstrings
from tests.unit.lower.passes.page import PAGE, page

ROOT = Path(__file__).parents[2]
MOST_WORDS = 1800  # of architecture.md: read in a quarter of an hour
PAGES = [ROOT / "CONTRIBUTING.md", ROOT / "docs" / "architecture.md", *sorted((ROOT / "docs" / "rooms").glob("*.md"))]
TEXTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLE = re.compile(r"```.*?```", re.DOTALL)
LINK = re.compile(r"\[([^\]\n]+)\]\(([^)\s]+)\)")
PATH = re.compile(r"\b(?:nnc|tests|docs|examples|benchmarks|emulation|mutation)/[\w/.*]*[\w*](?![\w<])")
FILE = re.compile(r"(?<![\w/.*-])(?:[a-z_]+/)*[a-z_]+\.py\b")
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


def links(page: Path) -> list[tuple[str, str, str]]:
    """Returns the text, the file and the heading of each link within the repository; without a file, it is the page's own."""
    found = LINK.findall(page.read_text(encoding="utf-8"))
    return [(text, *target.partition("#")[::2]) for text, target in found if "://" not in target]


def target_of(page: Path, file: str) -> Path:
    return (page.parent / file).resolve() if file else page


@cache
def names_in(path: Path) -> frozenset[str]:
    """Returns the names that a file defines, methods as `Class.method`."""
    names: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef):
            inner = [each.name for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
            names |= {node.name, *(f"{node.name}.{name}" for name in inner)}
        elif isinstance(node, ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return frozenset(names)


def headings(page: Path) -> set[str]:
    """Returns the anchors of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@each_page
def test_links_lead_to_files_and_headings(page: Path) -> None:
    assert links(page)
    for text, file, heading in links(page):
        target = target_of(page, file)
        assert target.exists(), f"[{text}]({file})"
        assert not heading or heading in headings(target), f"[{text}]({file}#{heading})"


@each_page
def test_names_that_link_to_a_file_are_defined_there(page: Path) -> None:
    for text, file, _ in links(page):
        if file.endswith(".py") and text.startswith("`"):
            assert text.strip("`") in names_in(target_of(page, file)), f"[{text}]({file})"


@each_page
def test_paths_in_the_text_exist(page: Path) -> None:
    text = LINK.sub("", page.read_text(encoding="utf-8"))
    missing = [path for path in PATH.findall(text) if not any(ROOT.glob(path.rstrip("/")))]
    assert not missing


@each_page
def test_sentences_of_pages_keep_to_the_rules_of_docstrings(page: Path) -> None:
    text = NO_WORDS.sub("`", page.read_text(encoding="utf-8"))
    assert not [*OPENING.findall(text), *TERM.findall(text)]


@pytest.mark.parametrize("page", TEXTS, ids=lambda page: page.stem)
def test_clauses_of_pages_name_their_nouns(page: Path) -> None:
    text = NO_WORDS.sub("`", EXAMPLE.sub("", page.read_text(encoding="utf-8")))
    assert not [text[max(0, match.start() - 40) : match.end() + 20] for match in CLAUSE.finditer(text)]


def test_the_page_for_strangers_is_short() -> None:
    assert len((ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").split()) <= MOST_WORDS


def test_every_room_is_linked_from_the_page_for_strangers() -> None:
    page = ROOT / "docs" / "architecture.md"
    linked = {target_of(page, file) for _, file, _ in links(page)}
    assert {*(ROOT / "docs" / "rooms").glob("*.md")} <= linked


def test_every_pass_of_a_phase_is_explained() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == page(text)  # python -m tests.unit.lower.passes.page renews it


def test_files_that_docstrings_and_comments_name_exist() -> None:
    missing = []
    known = {"train.py"} | {
        path.name for path in (ROOT / "nnc").rglob("*.py")
    }  # train.py: a user's, in examples of errors
    for path in sorted((ROOT / "nnc").rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        for _, text in (*docstrings(list(ast.walk(ast.parse(source)))), *comments(source)):
            for name in FILE.findall(text):
                roots = (ROOT, ROOT / "nnc", path.parent, path.parent.parent)
                if not (any((root / name).exists() for root in roots) if "/" in name else name in known):
                    missing.append(f"{path.relative_to(ROOT)}: {name}")
    assert not missing
