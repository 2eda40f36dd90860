"""Links lead to pages of the site, whose menu has them all."""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path

import pytest

from docs.links import COPIES, LINK, for_site, in_notebook
from docs.reference import menu, pages

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
WRITTEN = {
    path.relative_to(DOCS).as_posix(): path for end in ("md", "ipynb") for path in sorted(DOCS.rglob(f"*.{end}"))
}
ALL = {**WRITTEN, **{page: ROOT / file for page, file in COPIES.items()}}
NAV = re.findall(r"[\w/]+\.(?:md|ipynb)", (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2])


def text_of(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return text
    return "\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"] if cell["cell_type"] == "markdown")


def paths_in(entries: list[object]) -> list[str]:
    """The pages of a menu."""
    found: list[str] = []
    for entry in entries:
        inside = list(entry.values()) if isinstance(entry, dict) else entry
        found += [inside] if isinstance(inside, str) else paths_in(inside)
    return found


def test_the_menu_has_each_page_once() -> None:
    assert sorted(NAV) == sorted(ALL)
    assert sorted(paths_in(menu())) == sorted(pages())


@functools.cache
def known() -> set[str]:
    """Returns the pages that links may lead to; those of the reference are written of all public names, which takes a while."""
    return {*ALL, *pages()}


@pytest.mark.parametrize("page", ALL)
def test_each_link_leads_to_a_page_or_a_picture(page: str) -> None:
    for _, target, _ in LINK.findall(for_site(text_of(ALL[page]), page)):
        if "://" not in target:
            path = (DOCS / page).parent.joinpath(target).resolve()
            assert path.is_relative_to(DOCS) and path.relative_to(DOCS).as_posix() in known(), target


@pytest.mark.parametrize(
    ("page", "link", "mended"),
    [
        ("arrays.md", "[models](models.md#state)", "[models](models.md#state)"),
        ("index.md", "[arrays](docs/arrays.md)", "[arrays](arrays.md)"),
        ("rooms/plan.md", "[results](../../benchmarks/RESULTS.md)", "[results](../measurements.md)"),
        ("architecture.md", "[`Graph`](../nnc/graph/graph.py)", "`Graph` (`nnc/graph/graph.py`)"),
        ("models.md", "[examples/lora.py](../examples/lora.py)", "examples/lora.py"),
        ("faq.md", "[the standard](https://data-apis.org/)", "[the standard](https://data-apis.org/)"),
    ],
)
def test_links_out_of_the_documentation_are_mended(page: str, link: str, mended: str) -> None:
    assert for_site(link, page) == mended


@pytest.mark.parametrize(
    ("link", "mended"),
    [
        ("../models.md", "../../models/"),
        ("tracing.ipynb#shapes", "../tracing/#shapes"),
        ("../reference/nnc.md", "../../reference/nnc/"),
        ("https://data-apis.org/x.md", "https://data-apis.org/x.md"),
        ("#here", "#here"),
    ],
)
def test_links_of_notebooks_lead_to_pages_of_the_site(link: str, mended: str) -> None:
    assert in_notebook(f'<a href="{link}">', "tutorials/loops.ipynb") == f'<a href="{mended}">'
