"""The pages for users of other libraries have the tables of today."""

from __future__ import annotations

import pytest

from nnc.errors.names import TABLES
from tests.unit.errors.names.pages import DOCS, PAGES, page_of, tables_of


@pytest.mark.parametrize("file", PAGES)
def test_a_page_is_current(file: str) -> None:
    text = (DOCS / file).read_text(encoding="utf-8")
    assert text == page_of(text, PAGES[file]), "renew it: python -m tests.unit.errors.names.pages"


def test_every_table_is_on_a_page() -> None:
    assert {source for libraries in PAGES.values() for source in tables_of(libraries)} == set(TABLES)


@pytest.mark.parametrize("file", PAGES)
def test_every_name_is_on_its_page(file: str) -> None:
    text = (DOCS / file).read_text(encoding="utf-8")
    for source in tables_of(PAGES[file]):
        assert f"## {source}\n" in text
        assert all(f"`{name}`" in text for name in TABLES[source])
